import dataclasses
import math

import pytest

from vcse.agents.a2c.settings import A2CSettings, a2c_settings
from vcse.bonuses.registry import BonusChoice

NONE, SE, VCSE = (a2c_settings(bonus) for bonus in ("none", "se", "vcse"))


def test_readings_say_which_neighbour_and_where_the_bonus_joins():
    release, paper, clean = (a2c_settings("vcse", reading) for reading in ("release", "paper", "clean"))
    assert (release.bonus.k, release.injection, release.time_limit) == (3, "after_gae", "ends")
    assert (paper.bonus.k, paper.injection, paper.time_limit) == (5, "reward", "ends")
    assert (clean.bonus.k, clean.injection, clean.time_limit) == (5, "reward", "bootstraps")
    assert a2c_settings("se", "release").bonus.k == 5
    assert a2c_settings("se-matched", "release").bonus.k == 3


def test_deviations_have_the_last_word():
    config = a2c_settings("vcse", "release", k=7, beta=0.1, injection="reward", time_limit="bootstraps", log_offset=1.0)
    assert config == A2CSettings(
        bonus=BonusChoice("vcse", "release-a2c", 7, log_offset=1.0),
        beta=0.1,
        injection="reward",
        time_limit="bootstraps",
    )


def test_a_step_cost_joins_where_the_bonus_joins_and_without_one_the_reward():
    joins = {
        (bonus, reading): a2c_settings(bonus, reading, step_cost=0.02).injection
        for bonus in ("none", "vcse")
        for reading in ("release", "clean")
    }
    assert joins == {
        ("none", "release"): "reward",
        ("none", "clean"): "reward",
        ("vcse", "release"): "after_gae",
        ("vcse", "clean"): "reward",
    }
    assert a2c_settings("none", step_cost=0.02, injection="after_gae").injection == "after_gae"
    for nothing in (0.0, None):
        assert a2c_settings("none", step_cost=nothing, injection="reward") == a2c_settings("none")


def test_a_bonus_that_asks_for_more_states_than_there_are_is_refused():
    with pytest.raises(ValueError, match="k must be below 8, the states of an update, got 8"):
        a2c_settings("vcse", environments=1, k=8)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environments": 0}, "environments must be at least 1, got 0"),
        ({"beta": math.inf}, "beta must be finite and not negative, got inf"),
        ({"step_cost": -0.02}, r"step_cost must be finite and not negative, got -0\.02"),
        ({"step_cost": math.nan}, "step_cost must be finite and not negative, got nan"),
        ({"discount": 7.0}, r"discount must be from 0 to 1, got 7\.0"),
        ({"gae_lambda": math.nan}, "gae_lambda must be from 0 to 1, got nan"),
        ({"learning_rate": -1.0}, r"learning_rate must be finite and above 0, got -1\.0"),
        ({"environments": 1, "rollout_steps": 3}, "k must be below 3, the states of an update, got 3"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(VCSE, **changes)


def test_more_states_than_the_bonus_remembers_are_refused():
    message = "environments=1251 with rollout_steps=8 is 10008 states an update, but the memory of se holds 10000"
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(SE, environments=1251)
    assert dataclasses.replace(SE, environments=1250).frames_per_update == 10_000
    forgetful = dataclasses.replace(SE, bonus=BonusChoice("se", "paper", 5))
    for config in (NONE, VCSE, forgetful):
        assert dataclasses.replace(config, environments=1251).frames_per_update == 10_008


def test_unknown_names_are_refused(without_type_checks):
    with pytest.raises(
        ValueError, match=r"bonus must be one of none, se, vcse, rcse, se-matched, rnd, icm, counts, got 'curiosity'"
    ):
        a2c_settings("curiosity")
    with pytest.raises(
        ValueError, match="reading must be one of release, paper, clean, re3, recommended for a2c, got 'mine'"
    ):
        a2c_settings("vcse", "mine")
    with pytest.raises(ValueError, match="reading 're3' is one of state entropy"):
        a2c_settings("vcse", "re3")
