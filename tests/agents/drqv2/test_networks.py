import math

import pytest
import torch
from torch import nn

from vcse.agents.drqv2.networks import FEATURES, Actor, CuriosityModule, ImageEncoder, Trunk


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def images(count, channels=9):
    shape = (count, channels, 84, 84)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator())


def assert_orthogonal(weight, gain=1.0):
    """Rows, or where there are more of them, columns, are orthogonal and as long as the gain."""
    flat = weight.detach().flatten(1).double()
    square = flat @ flat.T if flat.shape[0] <= flat.shape[1] else flat.T @ flat
    torch.testing.assert_close(square, gain**2 * torch.eye(len(square), dtype=torch.float64), rtol=0, atol=1e-5)


class TestEncoder:
    def test_a_image_has_39200_features(self):
        encoder = ImageEncoder(9, generator())
        assert encoder(images(2)).shape == (2, 39200)
        assert FEATURES == 39200 == 32 * 35 * 35

    def test_it_is_four_convolutions_of_pixels_from_minus_a_half_to_a_half(self):
        encoder, shown = ImageEncoder(9, generator()), images(2)
        layers = []
        for layer, (inputs, stride) in zip(encoder.layers, [(9, 2), (32, 1), (32, 1), (32, 1)], strict=True):
            plain = nn.Conv2d(inputs, 32, kernel_size=3, stride=stride)
            plain.load_state_dict(layer.state_dict())
            layers += [plain, nn.ReLU()]
        expected = nn.Sequential(*layers)(shown.float() / 255 - 0.5).permute(0, 2, 3, 1).flatten(1)
        torch.testing.assert_close(encoder(shown), expected)
        assert (encoder(shown) >= 0).all()

    def test_with_bfloat16_features_are_nearly_those_of_float32_and_gradients_point_their_way(self):
        shown, exact, rounded = (
            images(3),
            ImageEncoder(9, generator()),
            ImageEncoder(9, generator(), precision="bfloat16"),
        )
        weights = torch.randn(3, FEATURES, generator=generator(1))
        features, gradients = [], []
        for encoder in (exact, rounded):
            features.append(encoder(shown))
            gradients.append(torch.autograd.grad((weights * features[-1]).sum(), encoder.parameters()))
        assert [each.dtype for each in features] == [torch.float32, torch.bfloat16]
        assert 0 < (features[1] - features[0]).norm() < 0.01 * features[0].norm()
        for mine, theirs in zip(*gradients, strict=True):
            assert mine.dtype == torch.float32
            # Units about to switch on or off do so elsewhere, which turns the gradient of so random a loss a little.
            assert torch.cosine_similarity(mine.flatten(), theirs.flatten(), dim=0) > 0.99

    def test_weights_are_orthogonal_with_the_gain_of_relu_and_biases_zero(self):
        for layer in ImageEncoder(9, generator()).layers:
            assert_orthogonal(layer.weight, math.sqrt(2))
            assert not layer.bias.any()

    def test_parameters_depend_on_the_generator_alone(self):
        one, same, other = (ImageEncoder(9, generator(seed)) for seed in (3, 3, 4))
        torch.manual_seed(1)
        for mine, again, different in zip(one.layers, same.layers, other.layers, strict=True):
            assert torch.equal(mine.weight, again.weight)
            assert not torch.equal(mine.weight, different.weight)


class TestTrunk:
    def test_it_is_linear_layer_norm_and_tanh(self):
        trunk = Trunk(5, generator(), inputs=40)
        features = torch.randn(6, 40, generator=generator(1))
        with torch.no_grad():
            trunk.norm.weight.copy_(torch.rand(5, generator=generator(2)))
            trunk.norm.bias.copy_(torch.rand(5, generator=generator(3)))
            trunk.linear.bias.copy_(torch.rand(5, generator=generator(4)))
        linear = features @ trunk.linear.weight.T + trunk.linear.bias
        centred = linear - linear.mean(-1, keepdim=True)
        normal = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        torch.testing.assert_close(trunk(features), (normal * trunk.norm.weight + trunk.norm.bias).tanh())

    def test_weights_are_orthogonal(self):
        trunk = Trunk(50, generator())
        assert trunk.linear.weight.shape == (50, 39200)
        assert_orthogonal(trunk.linear.weight)
        assert not trunk.linear.bias.any()


class TestActor:
    def make(self, *, normalized=False):
        return Actor(6, 16, 2, generator(), normalized=normalized)

    def test_actions_are_the_tanh_of_the_pre_activation(self):
        actor, features = self.make(), torch.randn(4, FEATURES, generator=generator(1))
        torch.testing.assert_close(actor(features), actor.pre_tanh(features).tanh())

    def test_a_normalized_actor_is_as_far_from_its_bias_as_its_last_weights_are_long_at_most(self):
        features = torch.randn(4, FEATURES, generator=generator(1))
        plain, normalized = self.make(), self.make(normalized=True)
        for actor in (plain, normalized):
            with torch.no_grad():
                actor.head.layers[2].mul_(1000)  # of the last hidden layer
                actor.head.layers[-1].fill_(0.3)
        lengths = normalized.head.layers[4][0].norm(dim=0)
        assert ((normalized.pre_tanh(features) - 0.3).abs() <= lengths * (1 + 1e-5)).all()
        assert ((plain.pre_tanh(features) - 0.3).abs() > 10 * lengths).any()

    def test_it_begins_with_the_same_parameters_either_way(self):
        for mine, theirs in zip(self.make().parameters(), self.make(normalized=True).parameters(), strict=True):
            assert torch.equal(mine, theirs)


class TestCuriosity:
    def make(self):
        return CuriosityModule(4, 16, 2, generator())

    def material(self, count=6):
        drawn = generator(1)
        here, there = (torch.randn(count, 4, generator=drawn) for _ in range(2))
        return here, 2 * torch.rand(count, 2, generator=drawn) - 1, there

    def test_the_loss_is_the_mean_length_of_both_errors(self):
        curiosity, (here, actions, there) = self.make(), self.material()
        total = 0.0
        for one, action, other in zip(here, actions, there, strict=True):
            first, _, second = curiosity.forward_net
            guess = second(first(torch.cat((one, action))).relu())
            first, _, second, _ = curiosity.inverse_net
            guessed_action = second(first(torch.cat((one, other))).relu()).tanh()
            total += math.dist(other.tolist(), guess.tolist()) + math.dist(action.tolist(), guessed_action.tolist())
        assert curiosity.loss(here, actions, there).item() == pytest.approx(total / 6, rel=1e-5)

    def test_lengths_are_not_squared(self):
        curiosity, (here, actions, there) = self.make(), self.material()
        with torch.no_grad():
            for net in (curiosity.forward_net, curiosity.inverse_net):
                for parameter in net.parameters():
                    parameter.zero_()
        lengths = there.norm(dim=-1).mean() + actions.norm(dim=-1).mean()
        torch.testing.assert_close(curiosity.loss(here, actions, there), lengths)
        torch.testing.assert_close(curiosity.loss(here, 10 * actions, 10 * there), 10 * lengths)

    def test_both_images_and_both_guesses_have_a_gradient(self):
        curiosity, (here, actions, there) = self.make(), self.material()
        here.requires_grad_(), there.requires_grad_()
        wanted = [here, there, *curiosity.forward_net.parameters(), *curiosity.inverse_net.parameters()]
        for gradient in torch.autograd.grad(curiosity.loss(here, actions, there), wanted):
            assert gradient.abs().sum() > 0

    def test_weights_are_orthogonal_and_actions_are_guessed_within_their_range(self):
        curiosity, (here, _, there) = self.make(), self.material()
        for net in (curiosity.forward_net, curiosity.inverse_net):
            for layer in net:
                if isinstance(layer, nn.Linear):
                    assert_orthogonal(layer.weight)
                    assert not layer.bias.any()
        assert curiosity.inverse_net(torch.cat((100 * here, there), -1)).abs().max() <= 1
