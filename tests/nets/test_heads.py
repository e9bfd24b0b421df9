import math

import torch

from vcse.nets.heads import Head, symexp, symlog


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def elu(x):
    return [each if each > 0 else math.expm1(each) for each in x]


def test_a_head_is_a_perceptron_with_elu():
    head = Head(5, 2, generator(), units=7, layers=3)
    for number, parameter in enumerate(head.parameters()):
        parameter.data += 0.1 * torch.randn(parameter.shape, generator=generator(number))
    features = torch.randn(4, 3, 5, generator=generator(1))
    found = head(features)
    assert found.shape == (4, 3, 2)
    layers = [each for each in head.modules() if isinstance(each, torch.nn.Linear)]
    hidden = features[1, 2]
    for layer in layers[:-1]:
        hidden = torch.tensor(elu((layer.weight @ hidden + layer.bias).tolist()))
    torch.testing.assert_close(found[1, 2], layers[-1].weight @ hidden + layers[-1].bias)


def test_a_head_has_the_parameters_of_its_layers_at_full_size():
    head = Head(2048, 8, generator())
    expected = 2048 * 512 + 512 + 3 * (512 * 512 + 512) + 512 * 8 + 8
    assert sum(each.numel() for each in head.parameters()) == expected


def test_the_output_scale_is_that_of_the_variance_of_the_last_weights_alone():
    large, small = (Head(9, 200, generator(), units=300, output_scale=scale) for scale in (1.0, 0.01))
    torch.testing.assert_close(small.output.weight, 0.1 * large.output.weight)
    for first, second in zip(large.hidden.parameters(), small.hidden.parameters(), strict=True):
        assert torch.equal(first, second)
    assert math.isclose(large.output.weight.var().item(), 1 / 250, rel_tol=0.05)


def test_outputs_are_float32_under_autocast():
    head, features = Head(5, 1, generator(), units=16), torch.randn(6, 5, generator=generator(1))
    with torch.autocast("cpu", torch.bfloat16):
        found = head(features)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, head(features), rtol=0.05, atol=0.05)


def test_symlog_is_a_logarithm_of_both_signs_and_symexp_its_inverse():
    x = torch.tensor([-1000.0, -1.0, -1e-6, 0.0, 1e-6, 0.5, math.e - 1, 1e6])
    expected = [math.copysign(math.log1p(abs(each)), each) for each in x.tolist()]
    torch.testing.assert_close(symlog(x), torch.tensor(expected))
    assert symlog(torch.tensor(0.0)) == symexp(torch.tensor(0.0)) == 0
    torch.testing.assert_close(symexp(symlog(x)), x, rtol=1e-5, atol=1e-12)


def test_gradients_of_symexp_are_those_of_the_exponential():
    x = torch.tensor([-2.0, -0.3, 0.7, 3.0], requires_grad=True)
    (gradient,) = torch.autograd.grad(symexp(x).sum(), x)
    torch.testing.assert_close(gradient, x.detach().abs().exp())
