import pytest
import torch
from torch import nn

from vcse.nets.encoders import CHANNELS, GridEncoder
from vcse.streams import torch_generator


def generators(count):
    return [torch_generator(seed, "parameters") for seed in range(count)]


def plain_trunk(encoder, learner, channels):
    """The same encoder as PyTorch's own layers, with the parameters of one learner."""
    sizes = (channels, *CHANNELS)
    convolutions = [nn.Conv2d(before, after, 2) for before, after in zip(sizes, CHANNELS, strict=False)]
    for layer, stacked in zip(convolutions, encoder.convolutions, strict=True):
        weight = stacked.weight[learner].detach()
        layer.weight.data = weight.view(2, 2, -1, weight.shape[-1]).permute(3, 2, 0, 1).contiguous()
        layer.bias.data = stacked.bias[learner].detach().clone()
    first, second, third = convolutions
    return nn.Sequential(first, nn.ReLU(), nn.MaxPool2d(2), second, nn.ReLU(), third, nn.ReLU())


@pytest.mark.parametrize("shape", [(7, 7, 3), (9, 9, 22), (16, 16, 22), (11, 7, 4)])
def test_is_the_trunk_of_plain_layers_and_has_its_gradient(shape):
    encoder = GridEncoder(*shape, generators(2))
    cells = torch.randint(0, 11, (2, 5, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    features = encoder(cells)
    assert features.shape == (2, 5, encoder.features)
    weight = torch.randn(features.shape, generator=torch.Generator().manual_seed(1))
    (features * weight).sum().backward()
    for learner in range(2):
        trunk = plain_trunk(encoder, learner, shape[-1])
        expected = trunk(cells[learner].permute(0, 3, 1, 2).float()).permute(0, 2, 3, 1).flatten(1)
        torch.testing.assert_close(features[learner], expected, rtol=1e-5, atol=1e-5)
        (expected * weight[learner]).sum().backward()
        for stacked, layer in zip(encoder.convolutions, (trunk[0], trunk[3], trunk[5]), strict=True):
            mine = stacked.weight.grad[learner].view(2, 2, -1, layer.out_channels).permute(3, 2, 0, 1)
            torch.testing.assert_close(mine, layer.weight.grad, rtol=1e-4, atol=1e-4)
            torch.testing.assert_close(stacked.bias.grad[learner], layer.bias.grad, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        encoder.cache_matrices()
        assert torch.equal(encoder(cells), features)
        assert torch.equal(encoder(cells[1:], slice(1, 2)), features[1:])


def test_a_view_of_seven_cells_becomes_64_features():
    assert GridEncoder(7, 7, 3, generators(1)).features == 64


def test_a_image_too_small_is_refused():
    with pytest.raises(ValueError, match="at least 7x7 cells, got 6x6"):
        GridEncoder(6, 6, 3, generators(1))


def test_starts_as_pytorch_starts_convolutions():
    encoder = GridEncoder(7, 7, 3, generators(40))
    for layer, fan_in in zip(encoder.convolutions, (12, 64, 128), strict=True):
        for drawn in (layer.weight, layer.bias):
            bound = fan_in**-0.5
            assert 0.9 * bound < drawn.abs().max() <= bound
            assert abs(drawn.var().item() - bound**2 / 3) < 0.1 * bound**2 / 3
