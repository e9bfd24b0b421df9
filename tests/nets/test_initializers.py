import math

import pytest
import torch
from torch.nn.functional import conv2d

from vcse.nets.initializers import convolution, learnable_token, linear


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def assert_uniform(weight, bound):
    assert 0.98 * bound < weight.abs().max() <= bound
    assert math.isclose(weight.var().item(), bound**2 / 3, rel_tol=0.05)
    assert abs(weight.mean().item()) < 0.02 * bound


@pytest.mark.parametrize("scale", [1.0, 0.1])
def test_a_linear_layer_has_glorot_weights_of_a_scaled_variance_and_no_bias(scale):
    layer = linear(120, 80, generator(), scale=scale)
    assert layer.weight.shape == (80, 120)
    assert_uniform(layer.weight, math.sqrt(scale * 6 / (120 + 80)))  # variance: scale / mean of 120 and 80
    assert torch.equal(layer.bias, torch.zeros(80))


def test_a_convolution_counts_every_cell_of_its_kernel():
    layer = convolution(6, 24, 4, 2, generator())
    assert_uniform(layer.weight, math.sqrt(6 / (16 * 6 + 16 * 24)))
    assert torch.equal(layer.bias, torch.zeros(24))


@pytest.mark.parametrize(("kernel", "stride", "side"), [(4, 2, 5), (1, 1, 10)])
def test_a_convolution_divides_height_and_width_by_its_stride(kernel, stride, side):
    layer = convolution(3, 2, kernel, stride, generator())
    images = torch.randn(2, 3, 10, 10, generator=generator(1))
    assert layer(images).shape == (2, 2, side, side)
    padded = torch.nn.functional.pad(images, [(kernel - stride) // 2] * 4)
    torch.testing.assert_close(layer(images), conv2d(padded, layer.weight, stride=stride))


def test_a_token_has_small_normal_numbers():
    token = learnable_token(20_000, generator())
    assert token.requires_grad
    assert math.isclose(token.std().item(), 0.02, rel_tol=0.02)
    assert abs(token.mean().item()) < 0.001


def test_the_generator_alone_decides():
    before = torch.random.get_rng_state()
    for make in (
        lambda each: linear(5, 4, each).weight,
        lambda each: convolution(3, 2, 4, 2, each).weight,
        lambda each: learnable_token(7, each),
    ):
        assert torch.equal(make(generator(3)), make(generator(3)))
        assert not torch.equal(make(generator(3)), make(generator(4)))
    assert torch.equal(torch.random.get_rng_state(), before)
