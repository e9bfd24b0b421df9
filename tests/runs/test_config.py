import dataclasses
import json

import pytest

from runs.small import make_config
from vcse.agents.settings import drqv2_config
from vcse.bonuses.registry import BonusChoice
from vcse.runs.config import RunConfig, difference, marker_of


@pytest.mark.parametrize("bonus", ["none", "vcse"])
def test_a_configuration_survives_json(bonus):
    config = make_config(bonus=bonus, reading="clean", values="exact")
    assert RunConfig.from_json(json.loads(json.dumps(config.to_json()))) == config


@pytest.mark.parametrize(("task", "marker"), [("metaworld/door-open", True), ("dmc-pixels/hopper_stand", None)])
def test_a_run_from_before_the_goal_could_be_hidden_is_the_same_run(task, marker):
    settings = drqv2_config("none", task=task)
    config = RunConfig(task, "drqv2", "none", 0, "release", 100, settings, goal_marker=marker_of(task))
    assert config.goal_marker is marker
    assert config.shows_goal
    before = {name: value for name, value in config.to_json().items() if name not in ("goal_marker", "keeps_replay")}
    assert RunConfig.from_json(before) == config


def test_a_goal_is_hidden_where_there_is_one():
    assert marker_of("metaworld/door-open", False) is False
    with pytest.raises(ValueError, match=r"goal_marker is for metaworld/\.\.\., .* not for dmc-pixels/hopper_stand"):
        marker_of("dmc-pixels/hopper_stand", False)


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
    assert difference(config, dataclasses.replace(config, keeps_replay=False)) == ""
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


def test_an_unknown_agent_is_refused():
    with pytest.raises(ValueError, match="agent must be one of a2c, sac, drqv2, got 'ppo'"):
        dataclasses.replace(make_config(), agent="ppo")
