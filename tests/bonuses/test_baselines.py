"""What RND, ICM and episodic counts have in common with every bonus."""

from functools import partial

import pytest
import torch

from vcse.bonuses import (
    BonusBatch,
    BonusChoice,
    BonusContext,
    EpisodicCounts,
    IntrinsicCuriosity,
    RandomNetworkDistillation,
    StackedBonus,
    make_bonus,
)
from vcse.bonuses.base import needed_by

DIMENSIONS, ENVIRONMENTS, STEPS, ACTIONS = 5, 3, 6, 4
SMALL = {"hidden_units": 16, "epochs": 2, "minibatches": 2}
MAKE = {
    "rnd": partial(RandomNetworkDistillation, DIMENSIONS, environments=ENVIRONMENTS, outputs=8, **SMALL),
    "rnd of single states": partial(RandomNetworkDistillation, DIMENSIONS, state="present", outputs=8, **SMALL),
    "icm": partial(IntrinsicCuriosity, DIMENSIONS, actions=ACTIONS, encoded=8, **SMALL),
    "icm of continuous actions": partial(IntrinsicCuriosity, DIMENSIONS, action_size=2, encoded=8, **SMALL),
    "counts": partial(EpisodicCounts, environments=ENVIRONMENTS, memory=20),
    "hashed counts": partial(EpisodicCounts, environments=ENVIRONMENTS, hash_bits=3, dimensions=DIMENSIONS),
}
of_all = pytest.mark.parametrize("name", MAKE)


def batch(number, *, learners=3, name="", dtype=torch.float32):
    """A rollout of every learner, in few different places."""
    generator = torch.Generator().manual_seed(number)
    shape = (learners, ENVIRONMENTS * STEPS)
    places = torch.randn(6, DIMENSIONS, generator=generator)
    draw = partial(torch.randint, 0, 6, shape, generator=generator)
    discrete = torch.randint(0, ACTIONS, shape, generator=generator)
    continuous = torch.randn(*shape, 2, generator=generator)
    return {
        "features": places[draw()].to(dtype),
        "next_features": places[draw()].to(dtype),
        "actions": continuous if "continuous" in name else discrete,
        "episode_starts": torch.rand(shape, generator=generator) < 0.1,
    }


def of_learner(rows, learner):
    return {name: each[learner : learner + 1] for name, each in rows.items()}


def play(bonus, rows):
    """Pay, learn where that is what the bonus does, and return all numbers."""
    needed = {name: rows[name] for name in needed_by(bonus)}
    paid = {"reward": bonus(rows["features"], **needed).reward}
    return paid | (bonus.learn(BonusBatch(rows["features"], **needed)) if bonus.learns else {})


@of_all
def test_a_learner_has_the_same_bits_alone_and_beside_others(name):
    together = MAKE[name](learners=3, seed=[7, 8, 9])
    alone = [MAKE[name](learners=1, seed=[seed]) for seed in (7, 8, 9)]
    for number in range(3):
        rows = batch(number, name=name)
        numbers = play(together, rows)
        for learner, bonus in enumerate(alone):
            for key, each in play(bonus, of_learner(rows, learner)).items():
                assert torch.equal(each[0], numbers[key][learner]), (number, learner, key)
    for learner, bonus in enumerate(alone):
        for key, each in bonus.state_dict().items():
            assert torch.equal(each[0], together.state_dict()[key][learner]), key


@of_all
def test_without_a_learner_axis_it_is_the_same_as_with_one(name):
    one, none = MAKE[name](learners=1), MAKE[name]()
    for number in range(2):
        rows = batch(number, learners=1, name=name)
        theirs = play(none, {key: each[0] for key, each in rows.items()})
        for key, each in play(one, rows).items():
            assert torch.equal(each[0], theirs[key]), key


@of_all
def test_saved_loaded_and_continued_equals_not_stopping(name, tmp_path):
    bonus, other = MAKE[name](learners=2, seed=[1, 2]), MAKE[name](learners=2, seed=[3, 4])
    for number in range(3):
        play(bonus, batch(number, learners=2, name=name))
    torch.save(bonus.state_dict(), tmp_path / "state")
    other.load_state_dict(torch.load(tmp_path / "state", weights_only=True))
    for number in range(3, 6):
        rows = batch(number, learners=2, name=name)
        theirs = play(other, rows)
        for key, each in play(bonus, rows).items():
            assert torch.equal(each, theirs[key]), key
    assert all(isinstance(each, torch.Tensor) for each in bonus.state_dict().values())


@of_all
def test_a_learner_goes_on_in_another_stack(name):
    first = StackedBonus.of([(MAKE[name](learners=2, seed=[1, 2]), [0, 1])])
    second = StackedBonus.of([(MAKE[name](learners=3, seed=[3, 4, 5]), [0, 1, 2])])
    part, other = first.parts[0], second.parts[0]
    for number in range(2):
        play(part, batch(number, learners=2, name=name))
        play(other, batch(50 + number, name=name))
    second.load_learner_state(2, first.learner_state(1))
    rows = batch(9, learners=2, name=name)
    more = {key: torch.cat((batch(60, learners=2, name=name)[key], each[1:])) for key, each in rows.items()}
    assert torch.equal(play(other, more)["reward"][2], play(part, rows)["reward"][1])


@of_all
def test_its_seed_decides_and_no_global_random_number_does(name):
    rows = batch(0, learners=1, name=name)
    rows = {key: each[0] for key, each in rows.items()}
    before = torch.get_rng_state()
    rewards = [play(MAKE[name](seed=seed), rows)["reward"] for seed in (0, 0, 1)]
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(rewards[0], rewards[1])
    assert torch.equal(rewards[0], rewards[2]) == (name == "counts")  # which draws nothing


@of_all
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_types_of_features_are_paid_in_float32(name, dtype):
    rows = {key: each[0] for key, each in batch(0, learners=1, name=name, dtype=dtype).items()}
    reward = play(MAKE[name](), rows)["reward"]
    assert reward.dtype == torch.float32
    assert reward.isfinite().all()


@of_all
def test_graphs_of_whoever_made_the_features_are_not_kept(name):
    rows = {key: each[0] for key, each in batch(0, learners=1, name=name).items()}
    bonus = MAKE[name]()
    for key in ("features", "next_features"):
        rows[key] = rows[key].clone().requires_grad_()
    assert not any(each.requires_grad for each in play(bonus, rows).values())
    assert rows["features"].grad is None
    assert [*bonus.parameters()] == []  # nobody's optimiser finds any


@of_all
def test_its_rewards_are_scaled_where_that_is_asked_for(name):
    rows = {key: each[0] for key, each in batch(0, learners=1, name=name).items()}
    raw, scaled = (play(MAKE[name](scaling=scaling), rows)["reward"] for scaling in ("raw", "standardized"))
    assert raw.min() >= 0
    torch.testing.assert_close(scaled, (raw - raw.mean()) / raw.std(correction=0), rtol=1e-4, atol=1e-5)


@of_all
def test_it_can_be_captured(name):
    assert MAKE[name]().is_capturable


CONTEXT = BonusContext(
    seeds=(3, 4),
    environments=ENVIRONMENTS,
    actions=ACTIONS,
    gives=frozenset(("actions", "next_features", "episode_starts")),
)


def test_by_its_name_a_bonus_is_made_for_what_the_agent_is():
    def make(name, context=CONTEXT):
        return make_bonus(BonusChoice(name, "paper", 1, scaling="centered"), learners=2, dimensions=5, context=context)

    replay = BonusContext(seeds=(3, 4), action_size=2, gives=frozenset(("actions",)))
    rnd, of_replay = make("rnd"), make("rnd", replay)
    assert (rnd.environments, rnd.needs_next_features, rnd.scaling.name) == (ENVIRONMENTS, True, "centered")
    assert (of_replay.environments, of_replay.needs_next_features) == (None, False)
    assert not torch.equal(rnd.target.rows[0], rnd.target.rows[1])
    icm, continuous = make("icm"), make("icm", replay)
    assert (icm.is_discrete, icm.action_size, icm.scaling.name) == (True, ACTIONS, "centered")
    assert (continuous.is_discrete, continuous.action_size) == (False, 2)
    counts = make("counts")
    assert (counts.environments, counts.scaling.name) == (ENVIRONMENTS, "centered")
    with pytest.raises(ValueError, match="the bonus icm must know the agent's actions"):
        make("icm", None)
    with pytest.raises(ValueError, match="the bonus counts must know of whose rollouts batches are"):
        make("counts", replay)


def test_learners_of_a_stack_have_the_networks_of_their_own_seeds():
    rnd, icm = BonusChoice("rnd", "paper", 1), BonusChoice("icm", "paper", 1)
    context = BonusContext(seeds=(3, 4, 5), actions=ACTIONS, gives=CONTEXT.gives)
    stack = StackedBonus([rnd, icm, rnd], dimensions=5, context=context)
    alone = StackedBonus([rnd], dimensions=5, context=context.of([2]))
    for name, each in alone.learner_state(0).items():
        assert torch.equal(each, stack.learner_state(2)[name]), name
    alike = StackedBonus([rnd, rnd], dimensions=5)
    assert torch.equal(alike.learner_state(0)["target.rows"], alike.learner_state(1)["target.rows"])


def test_a_bonus_for_other_rollouts_than_there_are_is_refused():
    counts = EpisodicCounts(environments=2, learners=1)
    choices = [BonusChoice("none", "paper", 1)]
    given = partial(StackedBonus.for_agent, counts, choices, agent="a2c", dimensions=5)
    told = "EpisodicCounts was made with environments=2, but batches are rollouts of 3: make it with environments=3"
    with pytest.raises(ValueError, match=told):
        given(CONTEXT)
    with pytest.raises(ValueError, match=r"with environments=2, but batches have no order: make it with .*=None"):
        given(BonusContext(gives=CONTEXT.gives))
    with pytest.raises(ValueError, match="EpisodicCounts needs episode_starts, but the agent a2c gives nothing"):
        given(BonusContext(environments=2))
