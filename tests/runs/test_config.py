import dataclasses
import json

import pytest

from vcse.agents.a2c import A2CConfig
from vcse.bonuses.named import BonusChoice
from vcse.runs.config import RunConfig, a2c_config, difference, drqv2_config, sac_config

from .small import make_config


def test_a_bonus_that_asks_for_more_states_than_there_are_is_refused():
    with pytest.raises(ValueError, match="k=8 needs more than the 8 states of an update"):
        a2c_config("vcse", environments=1, k=8)
    with pytest.raises(ValueError, match="k=12 needs more than the 12 states of a batch"):
        sac_config("vcse", batch_size=12)


@pytest.mark.parametrize("bonus", ["none", "vcse"])
def test_a_configuration_survives_json(bonus):
    config = make_config(bonus=bonus, reading="clean", values="exact")
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


def test_another_schema_is_refused():
    with pytest.raises(ValueError, match="it has schema version 99; this release reads 1"):
        RunConfig.from_json(make_config().to_json() | {"schema_version": 99})


def test_the_name_is_a_path_of_three_parts():
    assert make_config("minigrid-full/LavaGapS7", seed=12, method="mine").name == "minigrid-full-LavaGapS7/mine/seed12"


def test_differences_are_named_with_both_values_and_length_and_cadence_of_checkpoints_are_none():
    config = make_config()
    other = dataclasses.replace(
        config,
        frames=5,
        eval_episodes=7,
        settings=dataclasses.replace(config.a2c, bonus=BonusChoice("vcse", "paper", 4)),
    )
    assert difference(config, config) == ""
    assert difference(config, dataclasses.replace(config, frames=5, checkpoint_every_frames=7)) == ""
    assert difference(config, other).split("; ") == [
        "a2c.bonus.reading is 'paper' there and 'release-a2c' here",
        "a2c.bonus.k is 4 there and 3 here",
        "eval_episodes is 7 there and 2 here",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frames": 0}, "frames must be at least 1, got 0"),
        ({"row_every_frames": 0}, "row_every_frames must be at least 1, got 0"),
        ({"checkpoint_every_frames": -1}, "checkpoint_every_frames must be at least 1, got -1"),
        ({"eval_episodes": -1}, "eval_episodes must not be negative, got -1"),
        ({"seed": -1}, "seed must be from 0 to 1,000,000,000, got -1"),
        ({"seed": 3_000_000_000}, "seed must be from 0 to 1,000,000,000, got 3000000000"),
        ({"method": ".."}, "method names a directory"),
        ({"method": "a/b"}, "method names a directory"),
    ],
)
def test_what_cannot_be_a_run_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        make_config(**changes)


def test_readings_say_which_neighbour_and_where_the_bonus_joins():
    release, paper, clean = (a2c_config("vcse", reading) for reading in ("release", "paper", "clean"))
    assert (release.bonus.k, release.injection, release.time_limit) == (3, "after_gae", "ends")
    assert (paper.bonus.k, paper.injection, paper.time_limit) == (5, "reward", "ends")
    assert (clean.bonus.k, clean.injection, clean.time_limit) == (5, "reward", "bootstraps")
    assert a2c_config("se", "release").bonus.k == 5
    assert a2c_config("se-matched", "release").bonus.k == 3


def test_deviations_have_the_last_word():
    config = a2c_config("vcse", "release", k=7, beta=0.1, injection="reward", time_limit="bootstraps", log_offset=1.0)
    assert config == A2CConfig(
        bonus=BonusChoice("vcse", "release-a2c", 7, log_offset=1.0),
        beta=0.1,
        injection="reward",
        time_limit="bootstraps",
    )


@pytest.mark.parametrize(
    ("bonus", "heeded"),
    [
        ("none", (None, "batch")),
        ("se", (None, "batch")),
        ("se-matched", (1.0, "batch")),
        ("vcse", (1.0, "running")),
        ("rcse", (1.0, "running")),
    ],
)
def test_of_deviations_that_a_bonus_does_not_heed_nothing_is_recorded(bonus, heeded):
    asked = {"log_offset": 1.0, "value_normalization": "running"}
    for settings in (sac_config(bonus, **asked), drqv2_config(bonus, task="dmc-pixels/hopper_stand", **asked)):
        assert (settings.bonus.log_offset, settings.bonus.value_normalization) == heeded


def test_unknown_names_are_refused(without_type_checks):
    with pytest.raises(ValueError, match=r"bonus must be one of none, se, vcse, rcse, se-matched, got 'curiosity'"):
        a2c_config("curiosity")
    with pytest.raises(ValueError, match="reading must be one of release, paper, clean, re3, got 'mine'"):
        a2c_config("vcse", "mine")
    with pytest.raises(ValueError, match="reading 're3' is one of state entropy"):
        a2c_config("vcse", "re3")
    with pytest.raises(ValueError, match="agent must be one of a2c, sac, drqv2, got 'ppo'"):
        dataclasses.replace(make_config(), agent="ppo")
