import json

import numpy as np
import pytest

from vcse.agents.a2c.settings import a2c_settings
from vcse.agents.drqv2.settings import drqv2_settings
from vcse.agents.sac.settings import sac_settings
from vcse.launch.configs import resolve_agent, run_configs
from vcse.runs.config import RunConfig

DOOR = "metaworld/door-open"


def test_runs_of_a_task_and_a_bonus_differ_in_their_seeds_alone():
    first, second = run_configs("minigrid-full/LavaGapS7", "se", seeds=(3, 7), frames=500, reading="clean")
    settings = a2c_settings("se", "clean", bonus_features="position")
    asked = ("minigrid-full/LavaGapS7", "a2c", "se", 3, "clean", 500, settings)
    assert first == RunConfig(*asked, backend="minigrid")
    assert second == RunConfig(*asked[:3], 7, *asked[4:], backend="minigrid")


def test_what_is_not_given_follows_from_agent_and_task():
    (states,) = run_configs("dmc/hopper_stand")
    looks = (states.row_every_frames, states.eval_every_frames, states.eval_episodes)
    assert (states.agent, states.backend, states.method, states.frames) == ("sac", "dm_control", "vcse", 100_000)
    assert (states.rendering, states.goal_marker, looks) == (None, None, (10_000, 10_000, 10))
    assert states.settings == sac_settings("vcse")
    (door,) = run_configs(DOOR, "none")
    assert (door.agent, door.backend, door.rendering, door.goal_marker) == ("drqv2", "metaworld", "faithful", True)
    assert door.settings == drqv2_settings("none", task=DOOR)


def test_options_go_to_the_run_or_to_its_agent_by_their_names():
    of_agent = {"k": 5, "n_step": 2, "beta": None}
    of_run = {"rendering": "light", "goal_marker": False, "keep_replay": False, "eval_episodes": 0, "method": "mine"}
    (config,) = run_configs(DOOR, "vcse", agent="drqv2", **of_agent, **of_run)
    assert config.settings == drqv2_settings("vcse", task=DOOR, k=5, n_step=2)
    assert {name: getattr(config, name) for name in of_run} == of_run


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        ("minigrid/Nowhere", {}, "task 'minigrid/Nowhere' does not exist"),
        ("dmc/hopper_stand", {"agent": "a2c"}, "agent a2c does not train on dmc/hopper_stand, which is for sac"),
        ("dmc/hopper_stand", {"agent": "ppo"}, "agent must be one of a2c, sac, drqv2, mwm, got 'ppo'"),
        ("dmc/hopper_stand", {"n_step": 3}, "setting 'n_step' does not exist; there are k, log_offset, "),
        ("dmc/hopper_stand", {"goal_marker": True}, "goal_marker is for metaworld/..., whose tasks have one"),
        ("minigrid-full/LavaGapS7", {"backend": "envpool"}, "backend envpool does not show the whole map"),
        ("minigrid/Empty-5x5", {"values": "exact"}, "values exact needs a task that is enumerated"),
        ("minigrid/Empty-5x5", {"k": 0}, "k must be at least 1, got 0"),
        ("minigrid/Empty-5x5", {"bonus": "vsce"}, r"bonus must be one of .*, got 'vsce'; did you mean vcse\?$"),
        ("minigrid/Empty-5x5", {"seed": 3}, r"seed is not an option of several runs: pass seeds=\[3\]"),
    ],
)
def test_runs_that_cannot_be_are_refused(task, options, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        run_configs(task, **options)


def test_the_agent_is_the_one_for_the_task():
    tasks = ("minigrid-table/SimpleCrossingS9N1", "dmc/hopper_stand", "dmc-pixels/hopper_stand", DOOR)
    assert [resolve_agent(task) for task in tasks] == ["a2c", "sac", "drqv2", "drqv2"]
    assert resolve_agent(DOOR, "drqv2") == "drqv2"


def test_numbers_of_numpy_are_those_of_python():
    (config,) = run_configs("minigrid/Empty-5x5", beta=np.float32(0.5), k=np.int64(7), eval_episodes=np.int64(2))
    (expected,) = run_configs("minigrid/Empty-5x5", beta=0.5, k=7, eval_episodes=2)
    assert json.dumps(config.to_json()) == json.dumps(expected.to_json())
