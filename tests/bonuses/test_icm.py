import math

import pytest
import torch
from torch import nn

from vcse.bonuses import BonusBatch, IntrinsicCuriosity

ACTIONS, SIZE = 5, 2
SMALL = {"encoded": 4, "hidden_units": 8}


def make(*, is_discrete=True, **changes):
    kind = {"actions": ACTIONS} if is_discrete else {"action_size": SIZE}
    return IntrinsicCuriosity(3, **{**SMALL, **kind, **changes})


def transitions(number=0, *, is_discrete=True, points=12):
    generator = torch.Generator().manual_seed(number)
    features, next_features = torch.randn(2, points, 3, generator=generator)
    discrete = torch.randint(0, ACTIONS, (points,), generator=generator)
    continuous = torch.randn(points, SIZE, generator=generator)
    return BonusBatch(features, actions=discrete if is_discrete else continuous, next_features=next_features)


def paid(bonus, batch):
    return bonus(batch.features, actions=batch.actions, next_features=batch.next_features).reward


def twins_of(bonus):
    """Encoder, inverse and forward model as modules of PyTorch."""
    pieces, nets = bonus.networks.pieces(bonus.networks.stack), {}
    for name in ("encoder", "inverse", "forward"):
        layers = []
        for number in range(2):
            weight, bias = (pieces[f"{name}.{number}.{kind}"][0] for kind in ("weight", "bias"))
            layer = nn.Linear(*weight.shape)
            layer.weight.data.copy_(weight.T)
            layer.bias.data.copy_(bias)
            layers += [layer, nn.ELU() if name == "encoder" else nn.ReLU()]
        nets[name] = nn.Sequential(*(layers if name == "encoder" else layers[:-1]))
    return nets


@pytest.mark.parametrize("is_discrete", [True, False])
@pytest.mark.parametrize("reaches", [False, True])
def test_rewards_and_learning_are_those_of_a_plain_loop(is_discrete, reaches):
    bonus = make(is_discrete=is_discrete, forward_trains_encoder=reaches, learning_rate=0.01)
    nets = twins_of(bonus)
    adam = torch.optim.Adam(nn.ModuleList(nets.values()).parameters(), lr=0.01)
    for number in range(4):
        batch = transitions(number, is_discrete=is_discrete)
        here, there = nets["encoder"](batch.features), nets["encoder"](batch.next_features)
        played = nn.functional.one_hot(batch.actions, ACTIONS).float() if is_discrete else batch.actions
        guess = nets["inverse"](torch.cat((here, there), -1))
        if is_discrete:
            inverse = nn.functional.cross_entropy(guess, batch.actions)
        else:
            inverse = 0.5 * (guess - batch.actions).square().sum(-1).mean()
        if not reaches:
            here, there = here.detach(), there.detach()
        error = 0.5 * (nets["forward"](torch.cat((here, played), -1)) - there).square().sum(-1)
        torch.testing.assert_close(paid(bonus, batch), error.detach(), rtol=1e-4, atol=1e-5)

        shown = bonus.learn(batch)
        assert shown["inverse_loss"].item() == pytest.approx(inverse.item(), rel=1e-4)
        assert shown["forward_loss"].item() == pytest.approx(error.mean().item(), rel=1e-4)
        adam.zero_grad()
        (0.2 * error.mean() + 0.8 * inverse).backward()
        adam.step()


def test_networks_of_zeros_have_losses_in_closed_form():
    for is_discrete in (True, False):
        bonus, batch = make(is_discrete=is_discrete), transitions(is_discrete=is_discrete)
        bonus.networks.rows.zero_()
        bonus.networks.pieces(bonus.networks.stack)["forward.1.bias"].copy_(torch.tensor([1.0, 2.0, 0.0, -3.0]))
        torch.testing.assert_close(paid(bonus, batch), torch.full((12,), (1 + 4 + 9) / 2))
        expected = math.log(ACTIONS) if is_discrete else 0.5 * batch.actions.square().sum(-1).mean().item()
        assert bonus.learn(batch)["inverse_loss"].item() == pytest.approx(expected)


@pytest.mark.parametrize("reaches", [False, True])
def test_the_forward_model_trains_the_encoder_only_where_that_is_asked_for(reaches):
    bonus = make(forward_weight=1.0, forward_trains_encoder=reaches)
    before = {name: each.clone() for name, each in bonus.networks.pieces(bonus.networks.stack).items()}
    bonus.learn(transitions())
    changed = {
        name.partition(".")[0]
        for name, each in bonus.networks.pieces(bonus.networks.stack).items()
        if not torch.equal(each, before[name])
    }
    assert changed == ({"encoder", "forward"} if reaches else {"forward"})


def test_without_weight_the_forward_model_learns_nothing():
    bonus = make(forward_weight=0.0)
    before = bonus.networks.pieces(bonus.networks.stack)["forward.0.weight"].clone()
    bonus.learn(transitions())
    assert torch.equal(bonus.networks.pieces(bonus.networks.stack)["forward.0.weight"], before)


def test_what_follows_from_state_and_action_pays_less_once_it_is_known():
    """States on a circle, of which each action goes as many steps on; noise is as far away as they are."""
    bonus = make(learning_rate=3e-3, hidden_units=32, encoded=8)
    generator = torch.Generator().manual_seed(0)
    place, actions = torch.rand(256, generator=generator) * 6, torch.randint(0, ACTIONS, (256,), generator=generator)

    def seen(angle):
        return torch.stack((angle.cos(), angle.sin(), torch.zeros_like(angle)), -1)

    batch = BonusBatch(seen(place), actions=actions, next_features=seen(place + actions / 2))
    first = paid(bonus, batch).mean()
    for _ in range(300):
        shown = bonus.learn(batch)
    elsewhere = BonusBatch(batch.features, actions=actions, next_features=seen(place + 3))
    assert shown["inverse_loss"] < 0.5 * math.log(ACTIONS)
    assert paid(bonus, batch).mean() < 0.5 * first
    assert paid(bonus, elsewhere).mean() > 3 * paid(bonus, batch).mean()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"action_size": 2}, "must be given, got actions=5 and action_size=2"),
        ({"actions": None}, "must be given, got actions=None and action_size=None"),
        ({"actions": 0}, "actions must be at least 1, got 0"),
        ({"forward_weight": 1.2}, r"forward_weight must be from 0 to 1, got 1\.2"),
        ({"encoded": 0}, "encoded must be at least 1, got 0"),
        ({"hidden_units": 0}, "hidden_units must be at least 1, got 0"),
        ({"forward_trains_encoder": 1}, "forward_trains_encoder must be True or False, got 1"),
    ],
)
def test_what_it_cannot_be_is_refused(changes, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        make(**changes)


def test_what_does_not_fit_is_refused(without_type_checks):
    discrete, continuous = transitions(), transitions(is_discrete=False)
    with pytest.raises(ValueError, match=r"actions must have shape \(12,\) .*, got \(12, 2\)"):
        paid(make(), continuous)
    with pytest.raises(ValueError, match=r"actions must have shape \(12, 2\) .*, got \(12,\)"):
        paid(make(is_discrete=False), discrete)
    with pytest.raises(
        ValueError, match=r"actions must be whole numbers, as the bonus was made for, got torch\.float32"
    ):
        make()(discrete.features, actions=discrete.actions.float(), next_features=discrete.next_features)
    with pytest.raises(ValueError, match="actions must be from 0 to 3, got 0 to 4"):
        paid(make(actions=4), discrete)
    with pytest.raises(ValueError, match="actions is needed by IntrinsicCuriosity"):
        make().learn(BonusBatch(discrete.features, next_features=discrete.next_features))
    with pytest.raises(ValueError, match="next_features is needed by IntrinsicCuriosity"):
        make().learn(BonusBatch(discrete.features, actions=discrete.actions))
