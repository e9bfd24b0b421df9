"""What every agent promises. Each test is about all of them, or about all that have many learners."""

import dataclasses

import pytest
import torch
from agents.contract import (
    A2CImagesKind,
    A2CKind,
    A2CLongStatesKind,
    A2CStatesKind,
    DrQv2Kind,
    MWMKind,
    SACKind,
    assert_same_state,
)

COHORT_KINDS = [A2CKind(), A2CStatesKind(), A2CLongStatesKind(), A2CImagesKind(), SACKind()]
COHORT_IDS = ["a2c", "a2c-states", "a2c-long-states", "a2c-images", "sac"]
of_cohorts = pytest.mark.parametrize("kind", COHORT_KINDS, ids=COHORT_IDS)
KINDS = [*COHORT_KINDS, DrQv2Kind(), MWMKind()]
of_all = pytest.mark.parametrize("kind", KINDS, ids=[*COHORT_IDS, "drqv2", "mwm"])


def with_every_bonus(kinds):
    """Parametrise a test by agents, and by the bonuses that each of them can serve."""
    pairs = [(kind, bonus) for kind in kinds for bonus in kind.bonuses]
    return pytest.mark.parametrize(
        ("kind", "bonus"), pairs, ids=[f"{type(kind).__name__}-{name}" for kind, name in pairs]
    )


def all_equal(some, others):
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


@of_cohorts
def test_a_learner_is_bit_equal_alone_and_in_a_cohort_of_others(kind):
    configs = [*map(kind.config, kind.bonuses), kind.config("vcse", beta=0.01), kind.config("none")]
    configs.append(kind.config("rnd"))  # a second one, with networks of its own seed
    count = len(configs)
    cohort = kind.make(configs, range(count))
    alone = [kind.make([config], [seed]) for seed, config in enumerate(configs)]
    for update in range(4):
        seeds = [100 * update + learner for learner in range(count)]
        metrics, actions = kind.update(cohort, seeds), kind.act(cohort, seeds)
        for learner, agent in enumerate(alone):
            mine = kind.update(agent, seeds[learner : learner + 1])
            assert mine.keys() == metrics.keys()
            for name, each in mine.items():
                assert torch.equal(each[0], metrics[name][learner]), (update, learner, name)
            assert torch.equal(kind.act(agent, seeds[learner : learner + 1])[0], actions[learner])
    for learner, agent in enumerate(alone):
        assert_same_state(agent.learner_state(0), cohort.learner_state(learner))


@with_every_bonus(KINDS)
def test_saved_loaded_and_continued_equals_not_stopping(kind, bonus):
    count = 2 if kind in COHORT_KINDS else 1
    agent, other = (kind.make([kind.config(bonus)] * count, seeds[:count]) for seeds in ([0, 1], [7, 8]))
    for update in range(3):
        kind.update(agent, [update, 50 + update][:count])
    other.load_state_dict(agent.state_dict())
    for update in range(3, 6):
        for each in (agent, other):
            kind.update(each, [update, 50 + update][:count])
    assert_same_state(other.state_dict(), agent.state_dict())


@with_every_bonus(COHORT_KINDS)
def test_a_learner_saved_in_one_cohort_goes_on_in_another(kind, bonus):
    first = kind.make([kind.config(each) for each in ("vcse", bonus)], [3, 4])
    second = kind.make([kind.config(each) for each in ("none", "se", bonus)], [7, 8, 9])
    for update in range(3):  # as many in both: runs of one cohort are at the same frame
        kind.update(first, [update, 50 + update])
        kind.update(second, [200 + update] * 3)
    second.load_learner_state(2, first.learner_state(1))
    for update in range(3, 6):
        kind.update(first, [update, 50 + update])
        kind.update(second, [200 + update, 200 + update, 50 + update])
    assert_same_state(second.learner_state(2), first.learner_state(1))


@of_all
def test_a_state_is_a_copy_that_later_updates_do_not_change(kind):
    agent, other = (kind.make([kind.config("vcse")], [seed]) for seed in (0, 1))
    saved = kind.state(agent)
    kind.update(agent, [0])
    kind.load(other, saved)
    kind.update(other, [0])
    assert_same_state(kind.state(other), kind.state(agent))


@of_all
def test_the_state_of_a_learner_with_another_bonus_is_refused(kind):
    plain, paid = (kind.make([kind.config(bonus)], [0]) for bonus in ("none", "vcse"))
    with pytest.raises((ValueError, KeyError)):
        kind.load(paid, kind.state(plain))


@of_all
def test_the_extrinsic_critic_does_not_see_the_bonus(kind):
    agents = [kind.make([kind.config("vcse", beta=beta)], [0]) for beta in (0.0, 10.0)]
    for agent in agents:
        kind.update(agent, [0])
    assert kind.extrinsic(agents[0])
    assert all_equal(*map(kind.extrinsic, agents))
    assert not all_equal(*map(kind.policy, agents))


@of_all
def test_a_plain_learner_has_no_extrinsic_critic(kind):
    plain, paid = (kind.make([kind.config(bonus)], [0]) for bonus in ("none", "vcse"))
    assert not kind.extrinsic(plain)
    assert kind.extrinsic(paid)


@of_all
def test_a_bonus_does_not_change_the_first_policy_and_a_seed_does(kind):
    plain, paid, other = (
        kind.make([kind.config(bonus)], [seed]) for bonus, seed in (("none", 5), ("vcse", 5), ("none", 6))
    )
    assert all_equal(kind.policy(plain), kind.policy(paid))
    assert not all_equal(kind.policy(plain), kind.policy(other))


@of_all
def test_a_bonus_without_weight_is_none(kind):
    configs = [dataclasses.replace(kind.config("none"), beta=0.0), kind.config("se-matched", beta=0.0)]
    if hasattr(configs[0], "temperature"):
        configs[1] = dataclasses.replace(configs[1], temperature="learned")
    agents = [kind.make([config], [0]) for config in configs]
    for agent in agents:
        for update in range(2):
            kind.update(agent, [update])
    assert all_equal(*map(kind.policy, agents))


@of_cohorts
def test_what_learners_of_a_cohort_must_share_is_named(kind):
    name, number = kind.mismatch
    with pytest.raises(ValueError, match=rf"the same {name}, got"):
        kind.make([kind.config("none"), kind.config("none", **{name: number})], [0, 1])
    with pytest.raises(ValueError, match="one seed per configuration, got 1 and 2"):
        kind.make([kind.config("none")], [0, 1])
    with pytest.raises(ValueError, match="one seed per configuration, got 0 and 0"):
        kind.make([], [])
