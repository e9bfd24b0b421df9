import pytest
import torch

from vcse.bonuses.base import needed_by
from vcse.bonuses.counts import EpisodicCounts
from vcse.bonuses.icm import IntrinsicCuriosity
from vcse.bonuses.none import NoBonus
from vcse.bonuses.normalizers import RunningStandardized
from vcse.bonuses.registry import BonusChoice, BonusContext, bonus_entry, bonus_names, make_bonus
from vcse.bonuses.rnd import RandomNetworkDistillation
from vcse.bonuses.state_entropy import MatchedStateEntropy, StateEntropy
from vcse.bonuses.value_conditional import RewardConditionalStateEntropy, ValueConditionalStateEntropy

KINDS = {
    "none": NoBonus,
    "se": StateEntropy,
    "vcse": ValueConditionalStateEntropy,
    "rcse": RewardConditionalStateEntropy,
    "se-matched": MatchedStateEntropy,
    "rnd": RandomNetworkDistillation,
    "icm": IntrinsicCuriosity,
    "counts": EpisodicCounts,
}
CONTEXT = BonusContext(environments=4, actions=3, gives=frozenset(("actions", "next_features", "episode_starts")))


def make_batch(learners=2, points=20, dimensions=3):
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(learners, points, dimensions, generator=generator)
    values, rewards = torch.randn(2, learners, points, generator=generator)
    return features, values, rewards


def test_all_names_are_tried_here():
    assert bonus_names()[: len(KINDS)] == tuple(KINDS)


@pytest.mark.parametrize("reading", ["release-a2c", "paper", "clean"])
@pytest.mark.parametrize("name", KINDS)
def test_every_name_builds_a_bonus_that_pays_every_learner(name, reading):
    bonus = make_bonus(BonusChoice(name, reading, 3), learners=2, dimensions=3, context=CONTEXT)
    assert type(bonus) is KINDS[name]
    features, values, rewards = make_batch()
    known = {"values": values, "rewards": rewards, "next_features": features + 1.0}
    known |= {"actions": torch.ones(2, 20, dtype=torch.int64), "episode_starts": torch.ones(2, 20, dtype=torch.bool)}
    output = bonus(features, **{needed: known[needed] for needed in needed_by(bonus)})
    assert output.reward.shape == (2, 20)
    assert torch.isfinite(output.reward).all()
    assert (output.reward == 0).all() == (name == "none")


def test_what_is_known_of_a_bonus_before_it_is_made():
    known = {name: bonus_entry(name) for name in KINDS}
    assert {name for name, entry in known.items() if entry.learns} == {"rnd", "icm"}
    assert {name for name, entry in known.items() if not entry.has_neighbors} == {"rnd", "icm", "counts"}
    assert {name for name, entry in known.items() if entry.takes_context} == {"rnd", "icm", "counts"}
    assert known["icm"].needs == {"actions", "next_features"}
    assert known["counts"].needs == {"episode_starts"}
    assert known["rnd"].needs == frozenset()  # of the next state where there is one, else of the present
    assert all(entry.help for entry in known.values())


def test_settings_reach_the_bonus():
    vcse = make_bonus(
        BonusChoice("vcse", "release-a2c", 7, log_offset=0.5, value_normalization="running"), learners=2, dimensions=3
    )
    assert (vcse.k, vcse.rule.log_offset) == (7, 0.5)
    assert isinstance(vcse.value_normalizer, RunningStandardized)
    rcse = make_bonus(
        BonusChoice("rcse", "release-sac", 7, log_offset=0.5, value_normalization="running"), learners=2, dimensions=3
    )
    assert (rcse.k, rcse.rule.log_offset) == (7, 0.5)
    assert isinstance(rcse.reward_normalizer, RunningStandardized)
    matched = make_bonus(BonusChoice("se-matched", "release-a2c", 4, log_offset=0.25), learners=2, dimensions=3)
    assert (matched.k, matched.rule.log_offset) == (4, 0.25)
    assert make_bonus(BonusChoice("vcse", "release-a2c", 3), learners=1, dimensions=3).rule.log_offset != 0.5


def test_state_entropy_remembers_where_its_reading_says_so():
    remembering, forgetful = (
        make_bonus(BonusChoice("se", reading, 3), learners=2, dimensions=3) for reading in ("release-a2c", "paper")
    )
    assert remembering.memory.features.shape == (2, 10_000, 3)
    assert forgetful.memory is None
    assert BonusChoice("se", "re3", 3).memory_capacity == 10_000
    assert BonusChoice("vcse", "release-a2c", 3).memory_capacity is None


def test_an_unknown_name_and_no_neighbour_are_refused(without_type_checks):
    with pytest.raises(ValueError, match=f"bonus must be one of {', '.join(bonus_names())}, got 'curiosity'"):
        BonusChoice("curiosity", "paper", 3)
    with pytest.raises(ValueError, match="k must be at least 1, got 0"):
        BonusChoice("se", "paper", 0)
    for name in ("vcse", "se"):
        with pytest.raises(ValueError, match="reading"):
            make_bonus(BonusChoice(name, "mine", 3), learners=1, dimensions=3)
