import copy
import warnings
from functools import partial

import pytest
import torch
from integrations.common import copy_of, no_global_random_numbers, same
from torch import nn

from vcse.bonuses import (
    BonusWarning,
    NoBonus,
    RandomNetworkDistillation,
    RewardScaling,
    StateEntropy,
    ValueConditionalStateEntropy,
)
from vcse.integrations import QNetwork, ReplayBonus

STATES, ACTIONS = 4, 2


def policy(observations):
    return observations[:, :ACTIONS].tanh()


def batch(count=32, *, shape=(STATES,), seed=0):
    """Return a made-up batch: observations, actions, rewards, next observations, terminated."""
    generator = torch.Generator().manual_seed(seed)
    observations, next_observations = torch.randn(2, count, *shape, generator=generator)
    actions, rewards = torch.randn(count, ACTIONS, generator=generator), torch.randn(count, generator=generator)
    return observations, actions, rewards, next_observations, torch.rand(count, generator=generator) < 0.2


def make(shape=(STATES,), **choices):
    choices = {"bonus": ValueConditionalStateEntropy.recommended(k=3)} | choices
    return ReplayBonus(choices.pop("policy", policy), shape, ACTIONS, **choices)


class Recording(NoBonus):
    """A bonus that remembers what it was given."""

    needs_values = needs_rewards = needs_actions = needs_next_features = True

    def forward(self, features, **given):
        self.given = {"features": features, **given}
        return super().forward(features)


@pytest.mark.parametrize("discount", [None, torch.linspace(0.5, 1, 32)])
def test_a_call_is_one_step_of_adam_to_targets_by_a_loop(discount):
    part, twin = make(discount=0.9), QNetwork((STATES,), ACTIONS)
    target = copy.deepcopy(twin)
    optimizer = torch.optim.Adam(twin.parameters(), lr=3e-4, fused=True)
    for seed in range(3):
        observations, actions, rewards, next_observations, terminated = batch(seed=seed)
        part(observations, actions, rewards, next_observations, terminated, discount=discount)
        targets = []
        for row in range(32):
            following = next_observations[row : row + 1]
            with torch.no_grad():
                value = 0.0 if terminated[row] else target(following, policy(following)).item()
            targets.append(rewards[row].item() + (0.9 if discount is None else discount[row].item()) * value)
        optimizer.zero_grad()
        nn.functional.mse_loss(twin(observations, actions), torch.tensor(targets)).backward()
        optimizer.step()
        with torch.no_grad():
            for slow, fast in zip(target.parameters(), twin.parameters(), strict=True):
                slow.lerp_(fast, 0.005)
    for mine, wanted in ((part.critic, twin), (part.target_critic, target)):
        for one, other in zip(mine.parameters(), wanted.parameters(), strict=True):
            torch.testing.assert_close(one, other, atol=1e-5, rtol=1e-4)


def test_it_pays_what_the_bonus_says_of_features_and_the_target_critic_s_values():
    part, given = make(beta=0.3), batch()
    with torch.no_grad():
        values = part.target_critic(given[0], policy(given[0]))
    alone = ValueConditionalStateEntropy.recommended(k=3)(given[0] / STATES**0.5, values=values).reward
    torch.testing.assert_close(part(*given), 0.3 * alone)


def test_a_bonus_gets_what_it_needs():
    bonus = Recording()
    observations, actions, rewards, next_observations, terminated = batch()
    make(bonus=bonus)(observations, actions, rewards[:, None], next_observations, terminated[:, None])
    assert bonus.given.keys() == {"features", "values", "rewards", "actions", "next_features"}
    assert torch.equal(bonus.given["features"], observations / 2)
    assert torch.equal(bonus.given["next_features"], next_observations / 2)
    assert torch.equal(bonus.given["actions"], actions)
    assert torch.equal(bonus.given["rewards"], rewards)


def test_trailing_axes_of_1_and_numbers_for_flags_are_the_same(without_type_checks):
    observations, actions, rewards, next_observations, terminated = batch()
    paid = make()(observations, actions, rewards, next_observations, terminated)
    column = make()(observations, actions, rewards[:, None], next_observations, terminated[:, None].float())
    assert torch.equal(paid[:, None], column)  # so that adding it to the rewards is right in either shape
    double = make()(observations, actions.double(), rewards.double(), next_observations, terminated)
    assert double.dtype == torch.float64
    torch.testing.assert_close(double.float(), paid)


def test_a_weight_of_0_pays_exactly_0_and_the_critic_learns_all_the_same():
    plain, free = make(beta=1.0), make(beta=0.0)
    assert (free(*batch()) == 0).all()
    plain(*batch())
    assert same(free.state_dict(), plain.state_dict())


@pytest.mark.parametrize("whose", ["batch", "running"])
def test_loaded_it_goes_on_bit_for_bit(whose):
    def new():
        scaling = RewardScaling("standardized", statistics=whose)
        return make(bonus=ValueConditionalStateEntropy.recommended(k=3, scaling=scaling))

    batches = [batch(seed=seed) for seed in range(5)]
    one = new()
    for each in batches[:3]:
        one(*each)
    other = new()
    other.load_state_dict(one.state_dict())
    for each in batches[3:]:  # in turns: neither goes on in the other's tensors
        assert torch.equal(one(*each), other(*each))
    assert same(one.state_dict(), other.state_dict())


def test_no_global_random_number_is_drawn(without_type_checks):
    given = batch()
    with no_global_random_numbers():
        make()(*given)


def test_the_critic_s_gradient_reaches_nothing_else():
    actor, encoder = nn.Linear(STATES, ACTIONS), nn.Linear(STATES, STATES)
    observations, actions, rewards, next_observations, terminated = batch()
    actions, rewards = actions.clone().requires_grad_(), rewards.clone().requires_grad_()
    part = make(policy=actor)
    before = copy_of(actor)
    for _ in range(3):
        paid = part(encoder(observations), actions, rewards, encoder(next_observations), terminated)
        assert not paid.requires_grad
    assert all(each.grad is None for each in (*actor.parameters(), *encoder.parameters(), actions, rewards))
    assert all(each.grad is None for each in part.target_critic.parameters())
    assert same(before, copy_of(actor))


@pytest.mark.parametrize("column", [False, True])
def test_discrete_actions_have_a_critic_of_as_many_outputs(column, without_type_checks):
    observations, _, rewards, next_observations, terminated = batch()
    actions = torch.arange(32) % 3
    given = [each[:, None] if column else each for each in (actions, rewards, terminated)]
    part = ReplayBonus(lambda each: each[:, :3].argmax(-1), (STATES,), actions=3, bonus=Recording())
    q_values = part.target_critic.layers(observations).detach()
    assert part(observations, *given[:2], next_observations, given[2]).shape == given[1].shape
    assert part.critic.layers[-1].out_features == 3
    assert torch.equal(part.bonus.given["actions"], actions)
    likeliest = q_values[torch.arange(32), observations[:, :3].argmax(-1)]
    torch.testing.assert_close(part.bonus.given["values"], likeliest)


@pytest.mark.parametrize(
    ("choices", "actions", "message"),
    [
        (
            {"action_size": 2},
            torch.arange(32) % 2,
            r"vectors of 2 numbers, got torch.int64 of shape \(\) each; for discrete",
        ),
        (
            {"action_size": 1},
            torch.arange(32) % 2,
            r"vectors of 1 numbers, got torch.int64 of shape \(\) each; for discrete",
        ),
        ({"action_size": 3}, torch.rand(32, 2), r"vectors of 3 numbers, got torch.float32 of shape \(2,\) each"),
        ({"actions": 3}, torch.eye(3)[torch.arange(32) % 3], r"the number of one action each, got shape \(3,\) each"),
    ],
)
def test_actions_that_do_not_fit_the_critic_are_refused(choices, actions, message, without_type_checks):
    observations, _, rewards, next_observations, terminated = batch()
    part = ReplayBonus(lambda each: actions.repeat(2, *[1] * (actions.ndim - 1)), (STATES,), **choices)
    with pytest.raises(ValueError, match=f"^actions must be {message}"):
        part(observations, actions, rewards, next_observations, terminated)


@pytest.mark.parametrize("kind", [RandomNetworkDistillation, ValueConditionalStateEntropy])
def test_computing_alone_changes_nothing(kind):
    scaling = RewardScaling("standardized", statistics="running")
    bonus = kind(STATES, scaling=scaling) if kind is RandomNetworkDistillation else kind.recommended(scaling=scaling)
    part = make(bonus=bonus)
    part(*batch())
    before, metrics = copy.deepcopy(part.state_dict()), part.metrics()
    alone = part(*batch(seed=1), learn=False)
    assert same(part.state_dict(), before)
    assert part.metrics() == metrics
    assert torch.equal(part(*batch(seed=1)), alone)
    assert not same(part.state_dict(), before)


def test_the_agent_s_parameters_are_not_its_own():
    actor = nn.Linear(STATES, ACTIONS)
    part = make(policy=actor)
    assert not {*map(id, actor.parameters())} & {*map(id, part.parameters())}


def test_parameters_that_are_frozen_stay_and_statistics_follow_at_once():
    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.normal = nn.BatchNorm1d(STATES + ACTIONS)
            self.layers = nn.Sequential(nn.Linear(STATES + ACTIONS, 8), nn.Tanh(), nn.Linear(8, 1))

        def forward(self, observations, actions):
            return self.layers(self.normal(torch.cat((observations, actions), -1)))

    torch.manual_seed(0)
    critic = Critic()
    critic.layers[0].requires_grad_(False)
    part, before = make(critic=critic), copy_of(critic.layers)
    part(*batch())
    assert [same(*pair) for pair in zip(before, copy_of(critic.layers), strict=True)] == [True, True, False, False]
    assert same([*part.target_critic.buffers()], [*critic.buffers()])
    weight, target = critic.layers[2].weight, part.target_critic.layers[2].weight
    torch.testing.assert_close(target, before[2] + 0.005 * (weight - before[2]))


def test_gradients_inference_mode_and_autocast_of_the_agent_do_not_matter():
    paid = []
    for mode in (
        torch.enable_grad,
        torch.no_grad,
        torch.inference_mode,
        partial(torch.autocast, "cpu", torch.bfloat16),
    ):
        part = make()
        with mode():
            given = batch()
            paid.append((part(*given).clone(), part(*given).clone(), part.state_dict()))
    assert all(same(paid[0], each) for each in paid[1:])


def test_a_policy_that_autocasts_by_itself_does_not_round_the_values():
    seen = []

    class Seeing(QNetwork):
        def forward(self, observations, actions):
            seen.append(actions.dtype)
            return super().forward(observations, actions)

    actor = nn.Linear(STATES, ACTIONS)
    part = make(policy=lambda each: actor(each).bfloat16(), critic=Seeing((STATES,), ACTIONS))
    part(*batch())
    assert seen == [torch.float32, torch.float32]
    assert len(part.output.values.unique()) == 32


def test_what_it_is_given_stays_as_it_is():
    given = batch()
    before = [each.clone() for each in given]
    make()(*given)
    assert same(before, [*given])


def test_observations_may_be_dictionaries():
    class Joined(nn.Module):
        def forward(self, observations):
            return torch.cat((observations["a"], observations["b"]), -1)

    class Critic(nn.Module):
        def __init__(self):
            super().__init__()
            self.network = QNetwork((STATES,), ACTIONS)

        def forward(self, observations, actions):
            return self.network(Joined()(observations), actions)

    observations, actions, rewards, next_observations, terminated = batch()
    part = ReplayBonus(
        lambda each: policy(torch.cat((each["a"], each["b"]), -1)),
        bonus=StateEntropy(k=3),
        encoder=Joined(),
        critic=Critic(),
    )
    whole = make(bonus=StateEntropy(k=3), encoder=nn.Identity())
    first, second = ({"a": each[:, :1], "b": each[:, 1:]} for each in (observations, next_observations))
    paid = part(first, actions, rewards, second, terminated)
    assert torch.equal(paid, whole(*batch()))
    assert same([*part.critic.parameters()], [*whole.critic.parameters()])


@pytest.mark.parametrize("shape", [(40, 40, 3), (7, 7, 3), (100,)])
def test_images_grids_and_large_vectors(shape):
    part = make(shape, policy=lambda each: each.flatten(1)[:, :ACTIONS].float())
    observations, actions, rewards, next_observations, terminated = batch(shape=shape)
    assert part(observations, actions, rewards, next_observations, terminated).std() > 0


def test_metrics_are_numbers_of_the_critic_and_the_bonus():
    part = make()
    part(*batch())
    metrics = part.metrics()
    wanted = {"bonus/extrinsic_critic_loss", "bonus/extrinsic_q_mean", "bonus/mean", "bonus/radius_mean", "bonus/beta"}
    assert wanted <= metrics.keys()
    assert all(isinstance(each, float) for each in metrics.values())


SHAPE = r"must begin with the shape of the rewards, \(32,\), got"


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (0, lambda each: each[1:], rf"observations {SHAPE} \(31, 4\)"),
        (0, lambda each: each * torch.inf, "features must be finite, but 128 of its 128 entries"),
        (1, lambda each: each[:5], rf"actions {SHAPE} \(5, 2\)"),
        (2, lambda each: each * torch.nan, "rewards must be finite, but 32 of its 32 entries are NaN or infinite"),
        (2, lambda each: each.view(16, 2), r"rewards must have shape \[n\] or \[n, 1\], got \(16, 2\)"),
        (2, lambda each: each.int(), "rewards must be a floating-point tensor, got torch.int32"),
        (3, lambda each: each[:, 1:], r"next_observations have shape \(32, 3\), but observations have shape \(32, 4\)"),
        (3, lambda each: each * torch.nan, "the extrinsic critic's targets, computed from rewards and observations,"),
        (4, lambda each: each[:-2], rf"terminated {SHAPE} \(30,\)"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(number, change, message, without_type_checks):
    part, given = make(bonus=StateEntropy(k=3)), list(batch())
    given[number] = change(given[number])
    before = copy.deepcopy(part.state_dict())
    with pytest.raises(ValueError, match=f"^{message}"):
        part(*given)
    assert same(before, part.state_dict())


def test_too_few_states_are_refused_with_the_numbers_and_change_nothing():
    part = make(bonus=ValueConditionalStateEntropy.recommended())
    before = copy.deepcopy(part.state_dict())
    with pytest.raises(ValueError, match=r"^k=12 needs at least 13 points in features, got 8$"):
        part(*batch(8))
    assert same(before, part.state_dict())


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"beta": float("inf")}, "beta must be finite and not negative, got inf"),
        ({"shape": None}, "pass a critic, or shape and action_size"),
        ({"action_size": None}, "pass a critic, or shape and action_size"),
        ({"actions": 2}, "pass a critic, or shape and action_size, or shape and actions if they are discrete"),
        ({"shape": None, "critic": nn.Linear(4, 1)}, "pass an encoder, or the shape of an observation"),
    ],
)
def test_bad_choices_are_named(choices, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        ReplayBonus(policy, **({"shape": (STATES,), "action_size": ACTIONS} | choices))


def test_a_bonus_that_needs_more_is_refused():
    class Needs(NoBonus):
        needs_episode_starts = True

    with pytest.raises(ValueError, match="the bonus Needs needs episode_starts, but the agent ReplayBonus gives"):
        make(bonus=Needs())


def test_warnings_are_given_once_and_not_where_all_is_well(monkeypatch):
    monkeypatch.setattr(ReplayBonus, "check_every", 2)
    good, poor = make(), make()
    observations, *others = batch()
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for _ in range(4 * ReplayBonus.check_every):
            good(observations, *others)
        assert given == []
        for _ in range(5 * ReplayBonus.check_every):
            poor(torch.zeros_like(observations), *others)
    assert [each.category for each in given] == [BonusWarning]
    assert "duplicates" in str(given[0].message)
