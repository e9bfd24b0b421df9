"""Every agent on environments of one's own, which are registered with Gymnasium."""

import dataclasses
import math

import numpy as np
import pytest
import torch
from csv_rows import read_rows
from runs import small, small_pixels, small_sac
from runs.small_gymnasium import Broken, task

from vcse.agents.a2c.cohort import A2CCohort
from vcse.agents.a2c.settings import a2c_settings
from vcse.agents.sac.settings import sac_settings
from vcse.envs.gymnasium.environment import GymnasiumEnvironment
from vcse.launch.cohorts import warn_of
from vcse.launch.configs import run_configs
from vcse.play.load import load_policies
from vcse.runs.directory import RunDirectory

A2C = {"environments": 4, "frames": 288, "row_every_frames": 32, "checkpoint_every_frames": 96, "eval_episodes": 2}
SAC = {
    **{"hidden_units": 16, "batch_size": 32, "seed_frames": 40, "frames": 130, "row_every_frames": 10},
    **{"checkpoint_every_frames": 30, "eval_every_frames": 60, "eval_episodes": 2},
}
DRQV2 = {
    **{"hidden_units": 8, "batch_size": 4, "seed_frames": 40, "frames": 80, "row_every_frames": 10},
    **{"checkpoint_every_frames": 20, "eval_every_frames": 0, "eval_episodes": 0, "k": 3},
}


def assert_same_pixels(run, other):
    """As of other runs from images, but for evaluations, whose simulators take seconds to start."""
    for each in (run, other):
        (each / "eval.csv").touch()
    small_pixels.assert_same_run(run, other)


RUNS = {
    task("Walk"): (A2C, small.assert_same_run),
    task("Image"): (A2C, small.assert_same_run),
    task("MiniGrid-Mine"): (A2C, small.assert_same_run),
    "gymnasium/CartPole-v1": (A2C, small.assert_same_run),
    task("Steered"): (SAC, small_sac.assert_same_run),
    task("SteeredImage"): (DRQV2, assert_same_pixels),
}


class DeathError(BaseException):
    """The end of a process, which nothing in it may survive but what is on disk."""


def die():
    raise DeathError


def configs_of(name, bonus="vcse", *, seeds=(0,), **changes):
    options = {"bonus": bonus, **RUNS.get(name, (A2C, None))[0], **changes}
    return run_configs(name, options.pop("bonus"), seeds=seeds, **options)


def rows_of(out, config, file="train.csv"):
    return read_rows(out / config.name / file)


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("name", RUNS)
def test_a_run_that_died_goes_on_to_the_same_end(tmp_path, name):
    configs = configs_of(name)
    small.train(configs, tmp_path / "whole")
    deaths = (configs[0].frames // 2, configs[0].frames * 4 // 5)
    for frame in deaths[configs[0].agent == "drqv2" :]:  # whose simulators are processes that take seconds to start
        with pytest.raises(DeathError):
            small.train(configs, tmp_path / "died", progress=small.Interrupting(frame, die))
    small.train(configs, tmp_path / "died")
    for config in configs:
        RUNS[name][1](tmp_path / "died" / config.name, tmp_path / "whole" / config.name)


@pytest.mark.parametrize(("name", "agent"), [("Walk", "a2c"), ("Image", "a2c"), ("Steered", "sac")])
def test_a_run_is_the_same_alone_and_in_company(tmp_path, name, agent):
    configs = configs_of(task(name), seeds=range(3), frames=96)
    assert {config.agent for config in configs} == {agent}
    small.train(configs, tmp_path / "together")
    small.train(configs[1:2], tmp_path / "alone")
    same = RUNS[task(name)][1]
    same(tmp_path / "alone" / configs[1].name, tmp_path / "together" / configs[1].name)


def test_no_more_than_the_present_episodes_is_replayed(tmp_path, monkeypatch):
    configs = configs_of(task("Walk"))
    with pytest.raises(DeathError):
        small.train(configs, tmp_path, progress=small.Interrupting(256, die))
    steps, step = [], GymnasiumEnvironment.step
    monkeypatch.setattr(GymnasiumEnvironment, "step", lambda self, action: steps.append(action) or step(self, action))
    directory = RunDirectory(tmp_path / configs[0].name, configs[0])
    cohort = A2CCohort([directory])
    state = directory.newest_checkpoint().state
    cohort.cut([state])
    cohort.load([state])
    assert len(steps) == state["progress"][:, 1].sum() < 4 * 20
    directory.close()


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("name", ["LateNoise", "Steered"])
def test_what_is_not_deterministic_is_named_when_it_is_replayed(tmp_path, monkeypatch, name):
    configs = configs_of(task(name), checkpoint_every_frames=64)
    with pytest.raises(DeathError):
        small.train(configs, tmp_path, progress=small.Interrupting(96, die))
    if name == "Steered":
        begin = GymnasiumEnvironment.begin
        monkeypatch.setattr(GymnasiumEnvironment, "begin", lambda self, seed: begin(self, seed) + np.float32(0.5))
        monkeypatch.setattr(GymnasiumEnvironment, "step", lambda self, action: (np.ones(2), 0.0, False, False, 0))
    said = rf"{configs[0].name}: {task(name)}, replayed from its seed and actions, shows something else .*np_random"
    with pytest.raises(RuntimeError, match=said):
        small.train(configs, tmp_path)


@pytest.mark.usefixtures("without_type_checks")
def test_an_evaluation_that_fails_leaves_no_environment_open(tmp_path, monkeypatch):
    opened, make = [], Broken.__init__
    monkeypatch.setattr(Broken, "__init__", lambda self, **options: opened.append(self) or make(self, **options))
    monkeypatch.setattr(Broken, "close", lambda self: opened.remove(self))  # noqa: PLW0108 - to be bound
    configs = run_configs(task("Broken"), "none", **A2C | {"frames": 32, "eval_episodes": 400})  # 16 in each of 25
    with pytest.raises(RuntimeError, match=r"failed: KeyError: .the robot.*is gone"):
        small.train(configs, tmp_path)
    assert (tmp_path / configs[0].name / "config.json").exists()
    assert opened == []


def test_what_is_seen_to_be_not_deterministic_is_warned_of(capsys):
    warn_of([*configs_of(task("Noisy")), *configs_of(task("Walk"))])
    told = capsys.readouterr().err
    assert told.count("it is not det") == 1
    assert "small_gymnasium-Noisy-v0/vcse/seed0: the same seed and actions led to something else: it is not det" in told


@pytest.mark.parametrize("reading", ["release", "clean", "recommended"])
def test_a_raw_bonus_outside_the_tasks_of_the_paper_is_warned_of(capsys, reading):
    configs = run_configs(task("Walk"), "vcse", agent="a2c", seeds=[0], frames=640, reading=reading)
    warn_of([*configs, *run_configs(task("Walk"), "none", agent="a2c", seeds=[0], frames=640, reading=reading)])
    warnings = capsys.readouterr().err.splitlines()
    assert len(warnings) == (reading != "recommended")
    assert all(f"the bonus of the reading {reading} is negative" in each for each in warnings)


@pytest.mark.parametrize(("name", "is_said"), [("Walk", True), ("QuietWalk", False), ("Steered", True)])
def test_success_is_what_the_environment_says_and_else_unknown(tmp_path, name, is_said):
    configs = configs_of(task(name), "none")
    small.train(configs, tmp_path)
    rates = [row["success_rate"] for row in rows_of(tmp_path, configs[0])]
    evaluated = rows_of(tmp_path, configs[0], "eval.csv")[-1]
    assert math.isnan(rates[-1]) != is_said
    assert math.isnan(evaluated["success_rate"]) != is_said
    if is_said:
        last = rows_of(tmp_path, configs[0])[-1]
        assert rates[-1] == pytest.approx(last["return_mean"])  # which is 1 where the end was reached
        assert evaluated["success_rate"] == evaluated["return_mean"]


def test_a_time_limit_is_no_end(tmp_path):
    [config] = configs_of(task("Walk"))
    assert config.settings.time_limit == "bootstraps"
    assert a2c_settings("vcse", task="minigrid/LavaGapS5").time_limit == "ends"
    cohort = A2CCohort([RunDirectory(tmp_path / config.name, config)])
    cohort._collect()
    for _ in range(4):
        cohort._collect()
        rollout = cohort.rollouts.complete()
        if rollout.truncated.any():
            break
    assert not (rollout.truncated & rollout.terminated).any()
    next_observations = rollout.next_observations[rollout.terminated]
    assert (next_observations[:, 0] == 6).all()
    assert rollout.observations.dtype == torch.float32
    cohort.directories[0].close()


def test_sac_has_the_usual_sizes_here_and_those_of_the_release_elsewhere():
    here, there = (sac_settings("vcse", task=name) for name in ("gymnasium/Pendulum-v1", "dmc/hopper_stand"))
    assert (here.hidden_units, here.batch_size, here.learning_rate, here.seed_frames) == (256, 256, 3e-4, 1_000)
    assert (there.hidden_units, there.batch_size, there.learning_rate, there.seed_frames) == (1024, 1024, 1e-4, 5_000)
    assert sac_settings("vcse", task="gymnasium/Pendulum-v1", hidden_units=32).hidden_units == 32


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"visits_every_frames": 100}, "visits_every_frames needs the agent's position on a map, which gymnasium/"),
        ({"bonus_features": "position"}, "bonus_features position needs the agent's position on a map"),
        ({"backend": "minigrid"}, "backend minigrid does not step gymnasium/.*: leave it out"),
        ({"agent": "sac"}, "agent sac does not train on gymnasium/.*, which is for a2c"),
    ],
)
def test_what_makes_no_sense_here_is_refused(options, said):
    with pytest.raises(ValueError, match=said):
        configs_of(task("MiniGrid-Mine"), **options)


def test_policies_of_several_tasks_are_loaded_together_where_they_see_the_same(tmp_path):
    configs = [*configs_of(task("Walk"), frames=96), *configs_of(task("QuietWalk"), frames=96)]
    configs += configs_of(task("Image"), frames=96)
    small.train(configs, tmp_path)
    loaded = load_policies([tmp_path / config.name for config in configs])
    assert sorted(len(policies.configs) for policies in loaded) == [1, 2]


def test_a_directory_has_no_colon(tmp_path):
    [config] = configs_of(task("Walk"))
    assert config.name == "gymnasium-runs.small_gymnasium-Walk-v0/vcse/seed0"
    assert dataclasses.replace(config, task="minigrid/LavaGapS7").name == "minigrid-LavaGapS7/vcse/seed0"
