"""Bonuses that go by the order of steps, and those that learn, in other people's agents."""

import copy

import pytest
import torch
from integrations.common import same

from vcse.bonuses import BonusBatch, EpisodicCounts, IntrinsicCuriosity, RandomNetworkDistillation, RewardScaling
from vcse.integrations import ReplayBonus, RolloutBonus

STEPS, ENVIRONMENTS = 6, 2


def rollout(number, *, ends=0.0):
    """Walk among three places; nothing is rewarded."""
    generator = torch.Generator().manual_seed(number)
    observations = torch.eye(3)[torch.randint(0, 3, (STEPS, ENVIRONMENTS), generator=generator)]
    ended = torch.rand(STEPS, ENVIRONMENTS, generator=generator) < ends
    return observations, torch.zeros(STEPS, ENVIRONMENTS), observations.roll(-1, 0), ended, ended


def make(**changes):
    counts = EpisodicCounts(environments=ENVIRONMENTS, power=1.0)
    return RolloutBonus((3,), **{"bonus": counts, "beta": 1.0, "epochs": 1, **changes})


def counted(part, *batch, **given):
    return (1 / part(*batch, **given)).round().int()


def test_an_episode_goes_on_in_the_next_rollout():
    part, still = make(), (torch.zeros(STEPS, ENVIRONMENTS, 3), *rollout(0)[1:])
    never = torch.zeros(STEPS, ENVIRONMENTS, dtype=torch.bool)
    once = never.clone()
    once[-1, 1] = True  # the last step of the second environment ends its episode
    batch = (still[0], still[1], still[0])
    assert counted(part, *batch, once, once).T.tolist() == [[1, 2, 3, 4, 5, 6]] * 2
    assert counted(part, *batch, never, never).T.tolist() == [[7, 8, 9, 10, 11, 12], [1, 2, 3, 4, 5, 6]]
    again = torch.tensor([True, False])  # the first was reset in the meantime
    assert counted(part, *batch, never, never, begins=again).T.tolist() == [[1, 2, 3, 4, 5, 6], [7, 8, 9, 10, 11, 12]]


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32, torch.int64])
def test_begins_may_be_numbers_as_other_libraries_have_them(dtype, without_type_checks):
    part, never = make(), torch.zeros(STEPS, ENVIRONMENTS, dtype=torch.bool)
    batch = torch.zeros(STEPS, ENVIRONMENTS, 3), torch.zeros(STEPS, ENVIRONMENTS), torch.zeros(STEPS, ENVIRONMENTS, 3)
    part(*batch, never, never)
    assert counted(part, *batch, never, never, begins=torch.tensor([1, 0]).to(dtype))[0].tolist() == [1, 7]
    assert counted(part, *batch, never, never, begins=torch.tensor([0, 0]).to(dtype))[0].tolist() == [7, 13]


def test_begins_of_another_shape_are_refused_and_change_nothing(without_type_checks):
    part = make()
    part(*rollout(0))
    before = copy.deepcopy(part.state_dict())
    with pytest.raises(ValueError, match=r"^begins must have shape \[environments\], \(2,\), got \(2, 1\)$"):
        part(*rollout(1), begins=torch.zeros(ENVIRONMENTS, 1, dtype=torch.bool))
    assert same(before, part.state_dict())


def test_saved_loaded_and_continued_equals_not_stopping():
    part, other = make(), make()
    part(*rollout(0, ends=0.2))
    other.load_state_dict(copy.deepcopy(part.state_dict()))
    for number in (1, 2):
        batch = rollout(number, ends=0.2)
        assert torch.equal(part(*batch), other(*batch))


def test_what_is_not_real_takes_no_other_steps_place():
    """After an automatic reset the counts begin anew, and so they do where the reset is the last of a rollout."""
    ended = torch.zeros(STEPS, ENVIRONMENTS, dtype=torch.bool)
    ended[2, 0] = ended[4, 1] = True
    valid = torch.ones_like(ended)
    valid[3, 0] = valid[5, 1] = False
    observations, rewards = torch.zeros(STEPS, ENVIRONMENTS, 3), torch.zeros(STEPS, ENVIRONMENTS)
    part = make()
    paid = part(observations, rewards, observations, ended, ended, valid=valid)
    expected = torch.tensor([[1, 2, 3, 0, 1, 2], [1, 2, 3, 4, 5, 0]]).T
    torch.testing.assert_close(paid, torch.where(expected > 0, 1 / expected, 0))
    never = torch.zeros_like(ended)
    assert counted(part, observations, rewards, observations, never, never)[0].tolist() == [3, 1]


@pytest.mark.parametrize("steps", [1024, 1025, 1026, 2049])
def test_an_equal_state_is_counted_wherever_in_a_long_rollout_it_is(steps):
    """In one or two rows alone a matrix product may have other last bits, and then a state was never seen before."""
    state = torch.rand(1, 1, 100, generator=torch.Generator().manual_seed(0))
    observations, never = state.repeat(steps, 1, 1), torch.zeros(steps, 1, dtype=torch.bool)
    part = RolloutBonus((100,), bonus=EpisodicCounts(power=1.0), beta=1.0, epochs=0)
    assert counted(part, observations, torch.zeros(steps, 1), observations, never, never)[-1] == steps


def masked(number=0):
    """Return a rollout in which automatic resets and padding, which hold NaN, are no transitions, and its mask."""
    observations, rewards, next_observations, ended, _ = rollout(number)
    ended[2, 0] = True
    valid = torch.ones_like(ended)
    valid[3, 0] = valid[4, 1] = valid[5, 1] = False
    for each in (observations, rewards, next_observations):
        each[~valid] = torch.nan
    return (observations, rewards, next_observations, ended, ended), valid


@pytest.mark.parametrize("whose", ["batch", "running"])
def test_rows_that_are_not_real_do_not_enter_the_scale_of_counts(whose):
    batch, valid = masked()
    scaling = RewardScaling("standardized", statistics=whose)
    part, raw = make(bonus=EpisodicCounts(environments=ENVIRONMENTS, scaling=scaling)), make()
    counts = raw(*batch, valid=valid)[valid].sqrt()
    paid = part(*batch, valid=valid)
    torch.testing.assert_close(paid[valid], (counts - counts.mean()) / counts.std(correction=0))
    assert (paid[~valid] == 0).all()
    assert len(part.output.reward) == valid.sum()


def test_a_predictor_does_not_learn_rows_that_are_not_real():
    batch, valid = masked()
    options = {"environments": ENVIRONMENTS, "discount": 0.5, "epochs": 2, "minibatches": 1}
    bonus, twin = (RandomNetworkDistillation(3, **options) for _ in range(2))
    paid = make(bonus=bonus)(*batch, valid=valid)
    assert (paid[~valid] == 0).all()
    assert bonus.input_moments.count.unique() == bonus.reward_moments.count == valid.sum()
    # By hand: the same states without those rows, whose errors are summed environment by environment.
    states = torch.nan_to_num(batch[2]).transpose(0, 1).flatten(0, 1)[valid.T.flatten()] / 3**0.5
    twin.reward_moments = None
    errors = twin(states, next_features=states).reward
    sums = []
    for rows, last in zip(errors.split([5, 4]), bonus.sums, strict=True):
        total = 0.0
        for error in rows.tolist():
            total = 0.5 * total + error
            sums.append(total)
        assert abs(total - last) < 1e-6
    torch.testing.assert_close(paid.T[valid.T], errors / torch.tensor(sums).std(correction=0))
    twin.learn(BonusBatch(states, next_features=states))
    torch.testing.assert_close(bonus.predictor.rows, twin.predictor.rows)


def test_a_bonus_for_other_rollouts_is_refused():
    with pytest.raises(ValueError, match="EpisodicCounts was made with environments=5, but batches are rollouts of 2"):
        make(bonus=EpisodicCounts(environments=5))(*rollout(0))
    ordered = RandomNetworkDistillation(3, environments=2)
    with pytest.raises(ValueError, match="environments=2, but batches have no order: make it with environments=None"):
        ReplayBonus(lambda seen: seen[:, :1], (3,), 1, bonus=ordered)


@pytest.mark.parametrize("kind", ["rnd", "rnd of rollouts", "icm"])
def test_bonuses_that_learn_do_so_in_a_rollout(kind):
    bonus = {
        "rnd": RandomNetworkDistillation(3, epochs=1, minibatches=2),
        "rnd of rollouts": RandomNetworkDistillation(3, environments=ENVIRONMENTS, epochs=2, minibatches=1),
        "icm": IntrinsicCuriosity(3, actions=4, epochs=2),
    }[kind]
    part = make(bonus=bonus)
    actions = torch.randint(0, 4, (STEPS, ENVIRONMENTS), generator=torch.Generator().manual_seed(0))
    paid = [part(*rollout(number), actions=actions) for number in range(3)]
    assert all(each.isfinite().all() and (each >= 0).all() for each in paid)
    networks = bonus.networks if kind == "icm" else bonus.predictor
    assert networks.steps == 6
    assert ("bonus/forward_loss" if kind == "icm" else "bonus/predictor_loss") in part.metrics()


def test_bonuses_that_learn_do_so_from_a_replay():
    generator = torch.Generator().manual_seed(0)
    for bonus in (RandomNetworkDistillation(3), IntrinsicCuriosity(3, action_size=1)):
        part = ReplayBonus(lambda seen: seen[:, :1].tanh(), (3,), 1, bonus=bonus)
        seen, following = torch.randn(2, 32, 3, generator=generator)
        paid = part(seen, torch.rand(32, 1, generator=generator), torch.zeros(32), following, torch.zeros(32))
        assert paid.shape == (32,)
        assert paid.isfinite().all()
