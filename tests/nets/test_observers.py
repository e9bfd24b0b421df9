import pytest
import torch
from torch import nn

from vcse.nets.encoders import Encoder, GridEncoder
from vcse.nets.observers import IdentityEncoder, ImageEncoder, VectorEncoder, make_encoder
from vcse.streams import torch_generator


def generators(count=2):
    return [torch_generator(seed, "parameters") for seed in range(count)]


def test_every_kind_of_observation_has_its_trunk():
    kinds = {"state": ((4,), IdentityEncoder), "grid": ((7, 7, 3), GridEncoder), "image": ((84, 84, 3), ImageEncoder)}
    for seen, (shape, kind) in kinds.items():
        trunk = make_encoder(seen, shape, generators())
        assert isinstance(trunk, kind)
        assert isinstance(trunk, Encoder)
        assert all(len(each) == 2 for each in trunk.parameters())


def test_states_are_left_as_they_are():
    states = torch.randn(2, 5, 3)
    assert IdentityEncoder(3)(states) is states


@pytest.mark.parametrize("shape", [(84, 84, 3), (40, 37, 1), (12, 14, 3), (7, 7, 2)])
def test_images_pass_through_plain_layers_and_their_gradient_comes_back(shape):
    encoder = ImageEncoder(*shape, generators())
    images = torch.randint(0, 256, (2, 3, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    features = encoder(images)
    assert features.shape == (2, 3, encoder.features)
    features.square().sum().backward()
    for learner in range(2):
        mine = {name: each[learner].detach().clone().requires_grad_() for name, each in encoder.named_parameters()}
        hidden = images[learner].permute(0, 3, 1, 2).float() / 255
        for number, stride in enumerate(encoder.strides):
            weight, bias = mine[f"convolutions.{number}.weight"], mine[f"convolutions.{number}.bias"]
            hidden = nn.functional.conv2d(hidden, weight, bias, stride=stride).relu()
        expected = (hidden.flatten(1) @ mine["dense.weight"] + mine["dense.bias"]).relu()
        torch.testing.assert_close(features[learner], expected, rtol=1e-5, atol=1e-5)
        expected.square().sum().backward()
        for name, each in encoder.named_parameters():
            torch.testing.assert_close(each.grad[learner], mine[name].grad, rtol=1e-4, atol=1e-5)
    assert torch.equal(encoder(images[1:], [1]), features[1:])


def test_long_vectors_pass_through_two_layers():
    encoder = VectorEncoder(70, generators())
    vectors = torch.randn(2, 5, 70)
    features = encoder(vectors)
    for learner in range(2):
        mine = {name: each[learner] for name, each in encoder.named_parameters()}
        hidden = (vectors[learner] @ mine["dense1.weight"] + mine["dense1.bias"]).relu()
        torch.testing.assert_close(features[learner], hidden @ mine["dense2.weight"] + mine["dense2.bias"])


@pytest.mark.parametrize(("layer", "fan_in"), [("convolutions.0", 192), ("convolutions.1", 256), ("dense", 2592)])
def test_starts_as_pytorch_starts_such_layers(layer, fan_in):
    layer = ImageEncoder(84, 84, 3, generators(4)).get_submodule(layer)
    drawn = torch.cat([each.detach().flatten() for each in (layer.weight, layer.bias)])
    bound = fan_in**-0.5
    assert 0.9 * bound < drawn.abs().max() <= bound
    assert abs(drawn.var().item() - bound**2 / 3) < 0.05 * bound**2 / 3


def test_an_image_too_small_is_refused():
    with pytest.raises(ValueError, match="at least 7x7 pixels, got 5x6"):
        ImageEncoder(5, 6, 3, generators())
