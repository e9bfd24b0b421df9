import pytest
import torch
from torch import nn

from vcse.nets.encoders import GridEncoder
from vcse.nets.observers import Encoder, ImageEncoder, Untouched, VectorEncoder, trunk_for
from vcse.streams import torch_generator


def generators(count=2):
    return [torch_generator(seed, "parameters") for seed in range(count)]


def test_every_kind_of_observation_has_its_trunk():
    kinds = {"state": ((4,), Untouched), "grid": ((7, 7, 3), GridEncoder), "image": ((84, 84, 3), ImageEncoder)}
    for seen, (shape, kind) in kinds.items():
        trunk = trunk_for(seen, shape)
        assert isinstance(trunk, kind)
        assert isinstance(trunk, Encoder)
        assert trunk.initial(generators()).shape == (2, trunk.layout.size)


def test_states_are_left_as_they_are():
    trunk = Untouched(3)
    states = torch.randn(2, 5, 3)
    assert trunk(trunk.prepare(trunk.layout.pieces(trunk.initial(generators()))), states) is states


@pytest.mark.parametrize("shape", [(84, 84, 3), (40, 37, 1), (12, 14, 3), (7, 7, 2)])
def test_images_pass_through_plain_layers_and_their_gradient_comes_back(shape):
    encoder = ImageEncoder(*shape)
    rows = encoder.initial(generators()).requires_grad_()
    images = torch.randint(0, 256, (2, 3, *shape), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    pieces = encoder.layout.pieces(rows)
    features = encoder(encoder.prepare(pieces), images)
    assert features.shape == (2, 3, encoder.features)
    (gradient,) = torch.autograd.grad(features.square().sum(), rows)
    for learner in range(2):
        mine = {name: piece[learner].detach().clone().requires_grad_() for name, piece in pieces.items()}
        hidden = images[learner].permute(0, 3, 1, 2).float() / 255
        for number, (_, _, stride) in enumerate(encoder.layers, start=1):
            weight, bias = mine[f"conv{number}.weight"], mine[f"conv{number}.bias"]
            hidden = nn.functional.conv2d(hidden, weight, bias, stride=stride).relu()
        expected = (hidden.flatten(1) @ mine["dense.weight"] + mine["dense.bias"]).relu()
        torch.testing.assert_close(features[learner], expected, rtol=1e-5, atol=1e-5)
        expected.square().sum().backward()
        for name, piece in encoder.layout.pieces(gradient).items():
            torch.testing.assert_close(piece[learner], mine[name].grad, rtol=1e-4, atol=1e-5)


def test_long_vectors_pass_through_two_layers():
    encoder = VectorEncoder(70)
    pieces = encoder.layout.pieces(encoder.initial(generators()))
    vectors = torch.randn(2, 5, 70)
    features = encoder(encoder.prepare(pieces), vectors)
    for learner in range(2):
        mine = {name: piece[learner] for name, piece in pieces.items()}
        hidden = (vectors[learner] @ mine["dense1.weight"] + mine["dense1.bias"]).relu()
        torch.testing.assert_close(features[learner], hidden @ mine["dense2.weight"] + mine["dense2.bias"])


@pytest.mark.parametrize(("layer", "fan_in"), [("conv1", 192), ("conv2", 256), ("dense", 2592)])
def test_starts_as_pytorch_starts_such_layers(layer, fan_in):
    encoder = ImageEncoder(84, 84, 3)
    pieces = encoder.layout.pieces(encoder.initial(generators(4)))
    drawn = torch.cat([pieces[f"{layer}.{kind}"].flatten() for kind in ("weight", "bias")])
    bound = fan_in**-0.5
    assert 0.9 * bound < drawn.abs().max() <= bound
    assert abs(drawn.var().item() - bound**2 / 3) < 0.05 * bound**2 / 3


def test_an_image_too_small_is_refused():
    with pytest.raises(ValueError, match="at least 7x7 pixels, got 5x6"):
        ImageEncoder(5, 6, 3)
