import copy
import warnings
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from integrations.common import copy_of, no_global_random_numbers, same
from torch import nn

from vcse.bonuses import (
    BonusWarning,
    EpisodicCounts,
    FeatureMemory,
    NoBonus,
    RandomNetworkDistillation,
    RewardConditionalStateEntropy,
    RewardScaling,
    StateEntropy,
    ValueConditionalStateEntropy,
)
from vcse.integrations import RolloutBonus, StateFeatures, ValueNetwork

DISCOUNT, GAE_LAMBDA = 0.9, 0.8


def rollout(steps=16, environments=3, *, shape=(4,), seed=0):
    """Return a made-up rollout: observations, rewards, next observations, terminated, ended."""
    generator = torch.Generator().manual_seed(seed)
    observations, next_observations = torch.randn(2, steps, environments, *shape, generator=generator)
    rewards = torch.randn(steps, environments, generator=generator)
    terminated, truncated = torch.rand(2, steps, environments, generator=generator) < 0.15
    return observations, rewards, next_observations, terminated, terminated | truncated


def make(shape=(4,), **choices):
    choices = {"bonus": ValueConditionalStateEntropy.recommended(k=3), "epochs": 2, "batch_size": 16} | choices
    return RolloutBonus(shape, discount=DISCOUNT, gae_lambda=GAE_LAMBDA, **choices)


class Recording(NoBonus):
    """A bonus that pays 1 and remembers what it was given."""

    needs_values = needs_rewards = needs_next_features = needs_episode_starts = True

    def forward(self, features, **given):
        self.given = {"features": features, **given}
        output = super().forward(features)
        return type(output)(output.reward + 1)


class Double(StateFeatures):
    """Features in float64."""

    def __init__(self):
        super().__init__(4)

    def forward(self, observations):
        return super().forward(observations).double()


class FirstNumber(nn.Module):
    """A critic that says V(s) = w times the first number of an observation."""

    def __init__(self, weight=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.tensor(weight))

    def forward(self, observations):
        return self.weight * observations[:, 0]


def returns_by_a_loop(observations, rewards, next_observations, terminated, ended, *, valid=None, critic):
    """Return V(s) + A(s) of every environment by itself, step by step from the end."""
    steps, environments = rewards.shape
    returns = torch.full((steps, environments), float("nan"))
    for environment in range(environments):
        for start in range(steps):
            if valid is not None and not valid[start, environment]:
                continue
            advantage, weight = 0.0, 1.0
            for step in range(start, steps):
                here = step, environment
                value, next_value = (critic(each[here][None]).item() for each in (observations, next_observations))
                value_after = 0.0 if terminated[here] else next_value
                advantage += weight * (rewards[here].item() + DISCOUNT * value_after - value)
                weight *= DISCOUNT * GAE_LAMBDA
                last = step + 1 == steps or (valid is not None and not valid[step + 1, environment])
                if ended[here] or last:
                    break
            returns[start, environment] = critic(observations[start, environment][None]).item() + advantage
    return returns


def learned_targets(part, *batch, **known):
    """Return what the critic of a part is fitted to, and where."""
    seen = []
    part._train_critic = lambda inputs, returns: seen.append((inputs, returns))
    part(*batch, **known)
    return seen[0]


@pytest.mark.parametrize("seed", range(3))
def test_the_critic_learns_the_returns_of_a_loop(seed):
    batch, critic = rollout(seed=seed), FirstNumber(0.7)
    inputs, returns = learned_targets(make(critic=critic), *batch)
    wanted = returns_by_a_loop(*batch, critic=critic)
    assert torch.equal(inputs, batch[0].transpose(0, 1).flatten(0, 1))
    torch.testing.assert_close(returns, wanted.T.flatten())


def test_a_time_limit_is_no_termination():
    observations, rewards, next_observations, terminated, ended = rollout(8, 1)
    terminated, ended = torch.zeros_like(terminated), torch.zeros_like(ended)
    ended[3] = True
    limit = learned_targets(make(critic=FirstNumber()), observations, rewards, next_observations, terminated, ended)[1]
    terminated = ended.clone()
    over = learned_targets(make(critic=FirstNumber()), observations, rewards, next_observations, terminated, ended)[1]
    bootstrapped = DISCOUNT * next_observations[3, 0, 0]
    torch.testing.assert_close(limit[3] - over[3], bootstrapped)
    torch.testing.assert_close(limit[3], rewards[3, 0] + bootstrapped)
    torch.testing.assert_close(over[3], rewards[3, 0])
    assert torch.equal(limit[4:], over[4:])


def test_the_critic_fits_the_returns():
    part = make(epochs=300, batch_size=64, learning_rate=1e-2)
    inputs, returns = learned_targets(part, *rollout(32, 2))
    RolloutBonus._train_critic(part, inputs, returns)
    assert torch.nn.functional.mse_loss(part.critic(inputs), returns) < 0.05 * returns.var()


@given(st.integers(0, 1000))
def test_rows_that_are_not_real_are_no_part_of_anything(seed):
    batch, generator = rollout(seed=seed), torch.Generator().manual_seed(seed)
    valid, critic = torch.rand(batch[1].shape, generator=generator) < 0.7, FirstNumber(0.7)
    bonus = Recording()
    part = make(bonus=bonus, critic=critic, beta=2.0)
    inputs, returns = learned_targets(part, *batch, valid=valid)
    wanted = returns_by_a_loop(*batch, valid=valid, critic=critic).T.flatten()
    keep = valid.T.flatten()
    torch.testing.assert_close(returns, wanted[keep])
    assert torch.equal(inputs, batch[0].transpose(0, 1).flatten(0, 1)[keep])
    assert torch.equal(bonus.given["features"], inputs / 2)
    # Whatever they hold: it may be the padding of an episode.
    for each in batch[:3]:
        each[~valid] = float("nan")
    again = make(bonus=bonus, critic=critic, beta=2.0)
    paid = again(*batch, valid=valid)
    assert torch.equal(paid, 2.0 * valid)


def test_rows_that_are_not_real_are_no_neighbours():
    batch = rollout(12, 3)
    valid = torch.ones(12, 3, dtype=torch.bool)
    valid[:, 1] = False
    paid = make()(*batch, valid=valid)
    alone = make()(*(each[:, [0, 2]] for each in batch))
    assert torch.equal(paid[:, [0, 2]], alone)
    assert torch.equal(paid[:, 1], torch.zeros(12))


def test_all_rows_valid_is_the_same_as_saying_nothing():
    one, other = make(), make()
    batch = rollout()
    assert torch.equal(one(*batch), other(*batch, valid=torch.ones(16, 3, dtype=torch.bool)))
    assert same(one.state_dict(), other.state_dict())


def test_each_environment_s_states_stay_in_order():
    observations, rewards, next_observations, terminated, ended = rollout(5, 3)
    bonus = Recording()
    make(bonus=bonus, critic=FirstNumber())(observations, rewards, next_observations, terminated, ended)
    for environment in range(3):
        rows = slice(5 * environment, 5 * environment + 5)
        assert torch.equal(bonus.given["features"][rows], observations[:, environment] / 2)
        assert torch.equal(bonus.given["next_features"][rows], next_observations[:, environment] / 2)
        assert torch.equal(bonus.given["values"][rows], observations[:, environment, 0])
        assert torch.equal(bonus.given["rewards"][rows], rewards[:, environment])
        starts = [True, *ended[:-1, environment].tolist()]
        assert bonus.given["episode_starts"][rows].tolist() == starts


def test_what_follows_a_row_that_is_not_real_begins_an_episode():
    ended = torch.tensor([[0, 1, 0, 0, 0]], dtype=torch.bool).T
    valid = torch.tensor([[1, 1, 0, 1, 1]], dtype=torch.bool).T  # the third is an automatic reset
    assert make()._episode_starts(ended, None).flatten().tolist() == [True, False, True, False, False]
    assert make()._episode_starts(ended | ~valid, None).flatten().tolist()[3:] == [True, False]


def test_it_pays_what_the_bonus_says_of_features_and_extrinsic_values():
    batch, part = rollout(), make(beta=0.3)
    states = batch[0].transpose(0, 1).flatten(0, 1)
    with torch.no_grad():
        values = part.critic(states)
    alone = ValueConditionalStateEntropy.recommended(k=3)(states / 2, values=values).reward
    torch.testing.assert_close(part(*batch), 0.3 * alone.view(3, 16).T)


def test_a_weight_of_0_pays_exactly_0_and_the_critic_learns_all_the_same():
    plain, free = make(beta=1.0), make(beta=0.0)
    batch = rollout()
    assert (free(*batch) == 0).all()
    plain(*batch)
    assert same(free.state_dict(), plain.state_dict())


@pytest.mark.parametrize("whose", ["batch", "running"])
def test_loaded_it_goes_on_bit_for_bit(whose):
    def new():
        scaling = RewardScaling("standardized", statistics=whose)
        return make(bonus=ValueConditionalStateEntropy.recommended(k=3, scaling=scaling))

    batches = [rollout(seed=seed) for seed in range(4)]
    one = new()
    for batch in batches[:2]:
        one(*batch)
    saved = copy.deepcopy(one.state_dict())
    other = new()
    other.load_state_dict(one.state_dict())
    for batch in batches[2:]:  # in turns: neither goes on in the other's tensors
        assert torch.equal(one(*batch), other(*batch))
    assert same(one.state_dict(), other.state_dict())
    assert not same(saved, other.state_dict())
    third = new()
    third.load_state_dict(saved)
    for batch in batches[2:]:
        third(*batch)
    assert same(third.state_dict(), one.state_dict())


def test_its_state_is_of_tensors_and_numbers_that_a_safe_load_accepts(tmp_path):
    part = make()
    part(*rollout())
    torch.save(part.state_dict(), tmp_path / "part.pt")
    assert same(torch.load(tmp_path / "part.pt", weights_only=True), part.state_dict())


@pytest.mark.parametrize("shape", [(4,), (7, 7, 3)])
def test_no_global_random_number_is_drawn(shape, without_type_checks):
    batch = rollout(shape=shape)
    with no_global_random_numbers():
        make(shape)(*batch)


def test_the_same_seed_gives_the_same_numbers_whatever_the_global_one():
    paid = []
    for seed in range(2):
        torch.manual_seed(seed)
        part = make(seed=5)
        paid.append((part(*rollout()), part.state_dict()))
    assert same(*paid)
    assert not torch.equal(make(seed=6)(*rollout()), paid[0][0])


def test_the_critic_s_gradient_reaches_nothing_else():
    shared = nn.Linear(4, 4)  # an encoder of the agent's, say
    batch = rollout()
    observations, next_observations = shared(batch[0]), shared(batch[2])
    rewards = batch[1].clone().requires_grad_()
    frozen = ValueNetwork((4,))
    next(frozen.parameters()).requires_grad_(False)
    part, before = make(critic=frozen), copy_of(frozen)
    paid = part(observations, rewards, next_observations, *batch[3:])
    assert not paid.requires_grad
    assert all(each.grad is None for each in (*shared.parameters(), rewards))
    changed = [not torch.equal(*pair) for pair in zip(before, part.critic.parameters(), strict=True)]
    assert changed == [False, True, True, True, True, True]


def test_a_critic_may_have_parameters_that_its_values_do_not_use():
    class ActorCritic(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk, self.actor, self.critic = nn.Linear(4, 8), nn.Linear(8, 2), nn.Linear(8, 1)

        def forward(self, observations):
            return self.critic(self.trunk(observations).tanh())

    part = make(critic=ActorCritic())
    before = copy_of(part.critic)
    part(*rollout())
    changed = [not torch.equal(*pair) for pair in zip(before, part.critic.parameters(), strict=True)]
    assert changed == [True, True, False, False, True, True]
    other = make(critic=ActorCritic())
    other.load_state_dict(part.state_dict())
    assert torch.equal(part(*rollout(seed=1)), other(*rollout(seed=1)))


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
            batch = rollout()
            paid.append((part(*batch).clone(), part(*batch).clone(), part.state_dict()))
    assert all(same(paid[0], each) for each in paid[1:])


def test_what_it_is_given_stays_as_it_is():
    batch = rollout()
    before = [each.clone() for each in batch]
    make()(*batch, valid=torch.rand(16, 3) < 0.9)
    assert same(before, [*batch])


def test_observations_may_be_dictionaries():
    class Joined(nn.Module):
        def forward(self, observations):
            return torch.cat((observations["a"], observations["b"]), -1)

    encoder = nn.Sequential(Joined())
    critic = nn.Sequential(Joined(), nn.Linear(4, 1))
    part = RolloutBonus(bonus=StateEntropy(k=3), encoder=encoder, critic=critic)
    observations, rewards, next_observations, terminated, ended = rollout()
    whole = RolloutBonus((4,), bonus=StateEntropy(k=3), encoder=nn.Identity(), critic=copy.deepcopy(critic[1]))
    paid = part(
        *({"a": observations[..., :1], "b": observations[..., 1:]}, rewards),
        *({"a": next_observations[..., :1], "b": next_observations[..., 1:]}, terminated, ended),
    )
    assert torch.equal(paid, whole(observations, rewards, next_observations, terminated, ended))
    assert same([*part.critic.parameters()], [*whole.critic.parameters()])


@pytest.mark.parametrize("shape", [(64, 64, 3), (3, 40, 40), (7, 7, 3), (300,)])
def test_images_grids_and_large_vectors(shape):
    part = make(shape, epochs=1)
    batch = rollout(8, 2, shape=shape)
    assert part(*batch).shape == (8, 2)
    pixels = [(each.clamp(0, 1) * 255).to(torch.uint8) for each in (batch[0], batch[2])]
    assert part(pixels[0], batch[1], pixels[1], *batch[3:]).std() > 0


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("flag", [torch.bool, torch.float32, torch.uint8])
def test_flags_may_be_numbers_and_rewards_of_either_precision(dtype, flag, without_type_checks):
    observations, rewards, next_observations, terminated, ended = rollout()
    paid = make()(observations, rewards.to(dtype), next_observations, terminated.to(flag), ended.to(flag))
    assert paid.dtype == dtype
    wanted = make()(observations, rewards, next_observations, terminated, ended)
    torch.testing.assert_close(paid.float(), wanted)


@pytest.mark.parametrize("kind", [ValueConditionalStateEntropy, RewardConditionalStateEntropy])
def test_features_values_and_rewards_may_be_of_different_precisions(kind, without_type_checks):
    observations, rewards, *others = rollout()
    wanted = make(bonus=kind(k=3))(observations, rewards, *others)
    paid = make(bonus=kind(k=3))(observations, rewards.double(), *others)
    torch.testing.assert_close(paid.float(), wanted)
    paid = make(bonus=kind(k=3), encoder=Double())(observations, rewards, *others)
    torch.testing.assert_close(paid, wanted)


def test_metrics_are_numbers_of_the_critic_and_the_bonus():
    part = make()
    assert part.metrics() == {}
    part(*rollout())
    metrics = part.metrics()
    assert {"bonus/extrinsic_critic_loss", "bonus/extrinsic_explained_variance", "bonus/radius_mean"} <= metrics.keys()
    assert all(isinstance(each, float) for each in metrics.values())
    assert metrics["bonus/beta"] == 0.02
    assert metrics["bonus/std"] == pytest.approx(1, rel=1e-3)
    assert abs(metrics["bonus/mean"]) < 1e-6


def bad(batch, number, change):
    batch = list(batch)
    batch[number] = change(batch[number])
    return batch


def with_nan(tensor):
    tensor = tensor.clone()
    tensor.view(-1)[5] = float("nan")
    return tensor


SHAPE = r"must begin with the shape of the rewards, \(16, 3\), got"


@pytest.mark.parametrize(
    ("number", "change", "message"),
    [
        (0, lambda each: each[:-1], rf"observations {SHAPE} \(15, 3, 4\)"),
        (0, lambda each: each[..., :3], r"next_observations have shape \(16, 3, 4\), but .* shape \(16, 3, 3\)"),
        (0, with_nan, "the extrinsic critic's targets, computed from rewards and observations, must be finite"),
        (1, lambda each: each[..., None], r"rewards must have shape \[steps, environments\], got \(16, 3, 1\)"),
        (1, with_nan, "rewards must be finite, but 1 of its 48 entries are NaN or infinite"),
        (1, lambda each: each.long(), "rewards must be a floating-point tensor, got torch.int64"),
        (2, lambda each: each[:, :2], rf"next_observations {SHAPE} \(16, 2, 4\)"),
        (2, with_nan, "the extrinsic critic's targets, computed from rewards and observations, must be finite"),
        (3, lambda each: each.T, rf"terminated {SHAPE} \(3, 16\)"),
        (4, lambda each: each[0], rf"truncated {SHAPE} \(3,\)"),
    ],
)
def test_bad_input_is_named_and_changes_nothing(number, change, message, without_type_checks):
    part = make()
    before = copy.deepcopy(part.state_dict())
    with pytest.raises(ValueError, match=f"^{message}"):
        part(*bad(rollout(), number, change))
    assert same(before, part.state_dict())


def test_too_few_states_are_refused_with_the_numbers(without_type_checks):
    part = make(bonus=ValueConditionalStateEntropy.recommended())
    with pytest.raises(ValueError, match=r"^k=12 needs at least 13 points in features, got 10$"):
        part(*rollout(5, 2))
    valid = torch.zeros(16, 3, dtype=torch.bool)
    with pytest.raises(ValueError, match="valid is False everywhere: the rollout has no valid transition"):
        part(*rollout(), valid=valid)


@pytest.mark.parametrize(
    ("choices", "message"),
    [
        ({"beta": float("nan")}, "beta must be finite and not negative, got nan"),
        ({"beta": -1.0}, "beta must be finite and not negative, got -1.0"),
        ({"shape": None}, "pass a critic, or the shape of an observation"),
        ({"shape": None, "critic": nn.Linear(4, 1)}, "pass an encoder, or the shape of an observation"),
        ({"bonus": NoBonus(learners=2)}, "the bonus must be made with learners=None, got learners=2"),
        ({"shape": (5, 5)}, r"observations of shape \(5, 5\) are not supported"),
    ],
)
def test_bad_choices_are_named(choices, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        RolloutBonus(**({"shape": (4,)} | choices))


@pytest.mark.parametrize("beta", [float("nan"), -0.1])
def test_a_weight_that_is_set_later_is_checked_too(beta):
    part = make()
    with pytest.raises(ValueError, match=f"^beta must be finite and not negative, got {beta}$"):
        part.beta = beta
    part.beta = 0.5
    assert part.beta == 0.5


def test_an_episode_that_terminates_ends_whatever_truncated_says():
    *batch, terminated, ended = rollout()
    assert terminated.any()
    assert (ended & ~terminated).any()
    targets = [learned_targets(make(), *batch, terminated, each)[1] for each in (ended, ended & ~terminated)]
    assert torch.equal(*targets)


@pytest.mark.parametrize(
    "bonus",
    [
        ValueConditionalStateEntropy.recommended(k=3, scaling=RewardScaling("standardized", statistics="running")),
        StateEntropy(k=3, memory=FeatureMemory(100, 4)),
        RandomNetworkDistillation(4, environments=3),
        EpisodicCounts(environments=3),
    ],
    ids=lambda bonus: type(bonus).__name__,
)
def test_computing_alone_changes_nothing(bonus):
    critic = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 1)).eval()  # in training its values would be others
    part = make(bonus=bonus, critic=critic)
    part(*rollout())
    before, metrics = copy.deepcopy(part.state_dict()), part.metrics()
    alone = part(*rollout(seed=1), learn=False)
    assert same(part.state_dict(), before)
    assert part.metrics() == metrics
    assert torch.equal(part(*rollout(seed=1)), alone)
    assert not same(part.state_dict(), before)
    critic.train()
    before = copy.deepcopy(part.state_dict())
    part(*rollout(seed=2), learn=False)
    assert same(part.state_dict(), before)
    assert critic.training


def test_numpy_arrays_are_refused_with_the_remedy(without_type_checks):
    given = [each.numpy() for each in rollout()]
    with pytest.raises(ValueError, match=r"^RolloutBonus takes tensors, got a NumPy array: pass torch.from_numpy"):
        make()(*given)


@pytest.mark.parametrize("actions", [torch.arange(48).view(16, 3), torch.rand(16, 3, 2)])
def test_a_bonus_may_look_at_actions(actions):
    class Looks(Recording):
        needs_actions = True

    bonus = Looks()
    make(bonus=bonus)(*rollout(), actions=actions)
    assert torch.equal(bonus.given["actions"], actions.transpose(0, 1).flatten(0, 1))
    with pytest.raises(ValueError, match=r"^actions is needed by Looks$"):
        make(bonus=bonus)(*rollout())


def test_a_grid_world_s_duplicates_are_warned_of_once_and_a_good_rollout_is_not():
    observations, rewards, next_observations, terminated, ended = rollout(32, 2)
    part, still = make(epochs=0), torch.zeros_like(observations)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(5):
            part(observations, rewards, next_observations, terminated, ended)
        for _ in range(2):
            part(still, rewards, still, terminated, ended)
    with pytest.warns(BonusWarning, match="100% of the states .* are duplicates.*Take a larger k"):
        part(still, rewards, still, terminated, ended)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for _ in range(4):
            part(still, rewards, still, terminated, ended)
