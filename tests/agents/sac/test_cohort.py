import dataclasses
import json
import math
import os
import shutil
import signal

import jaxtyping
import numpy as np
import pytest
import torch
from agents.contract import assert_same_state
from csv_rows import read_rows
from runs.small import Interrupting, checkpoint_path, newest_state, train
from runs.small_sac import CARTPOLE, EPISODE, FRAMES, SEED_FRAMES, Transitions, assert_same_run, make_config

from vcse.agents.sac.cohort import SACCohort, warning
from vcse.cli import evaluate, main
from vcse.envs.mujoco import dmc
from vcse.launch.cohorts import StoppedError
from vcse.runs import checkpoint, loop, resources
from vcse.runs.directory import RunDirectory
from vcse.runs.metrics import REWARD_COLUMNS

FOUR = [make_config(bonus, seed) for seed, bonus in enumerate(("none", "se", "vcse", "rcse"))]
ROW_FRAMES = list(range(20, FRAMES + 1, 20))


@pytest.fixture(scope="module", autouse=True)
def _quick():
    """Short episodes, every frame reported, and no type checks, which are in the agents' tests: much is trained."""
    jaxtyping.config.update("jaxtyping_disable", True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dmc, "MOST_STEPS", EPISODE)
        patch.setattr(loop, "SECONDS_BETWEEN_REPORTS", -1)
        yield
    dmc.task_spec.cache_clear()  # it remembers how long episodes were here
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def four(tmp_path_factory):
    """Runs of four bonuses at once."""
    out = tmp_path_factory.mktemp("four")
    train(FOUR, out)
    return out


@pytest.fixture
def copy(four, tmp_path):
    """The finished runs, to be spoilt."""
    return shutil.copytree(four, tmp_path / "copy")


def stop():
    signal.raise_signal(signal.SIGTERM)


class DeathError(BaseException):
    """The end of a process, which nothing in it may survive but what is on disk."""


def die():
    raise DeathError


def test_what_a_run_leaves_on_disk(four):
    run = four / FOUR[2].name
    assert sorted(each.name for each in run.iterdir()) == [
        ".lock",
        "DONE",
        "checkpoint",
        "config.json",
        "eval.csv",
        "meta.json",
        "replay.bin",
        "timing.csv",
        "train.csv",
    ]
    assert (run / "DONE").read_text() == f"{FRAMES}\n"
    assert checkpoint.frames(run / "checkpoint") == [FRAMES, 120]
    assert newest_state(run).state["agent"]["updates"] == FRAMES - SEED_FRAMES
    header = (run / "train.csv").read_text().splitlines()[0]
    assert header.startswith("frame,episodes,return_mean,success_rate,bonus_mean,")
    assert (run / "eval.csv").read_text().startswith("frame,episodes,return_mean,success_rate\n")
    rows = read_rows(run / "train.csv")
    assert [row["frame"] for row in rows] == ROW_FRAMES
    assert [row["episodes"] for row in rows] == [float(frame >= EPISODE) for frame in ROW_FRAMES]
    assert [(row["frame"], row["episodes"]) for row in read_rows(run / "eval.csv")] == [(EPISODE, 1), (FRAMES, 1)]


def test_columns_are_the_same_for_every_bonus_and_empty_where_there_is_nothing_to_say(four):
    rows = {config.method: read_rows(four / config.name / "train.csv") for config in FOUR}
    assert len({tuple(row) for each in rows.values() for row in each}) == 1
    last = {method: each[-1] for method, each in rows.items()}
    known = {method: {name for name, number in row.items() if not math.isnan(number)} for method, row in last.items()}
    assert last["none"]["bonus_mean"] == 0
    assert "radius_mean" not in known["none"]
    assert known["none"] >= {"critic_loss", "actor_loss", "policy_entropy", "temperature", "eval_return_mean"}
    assert known["vcse"] - known["se"] >= {"value_count_mean", "decided_by_value_share", "value_mean", "value_std"}
    assert known["rcse"] - known["se"] == set(REWARD_COLUMNS)
    assert not set(REWARD_COLUMNS) & (known["none"] | known["se"] | known["vcse"])
    assert last["rcse"]["reward_mean"] == pytest.approx(last["rcse"]["batch_reward"])
    assert last["none"]["temperature"] != rows["none"][-2]["temperature"]
    assert last["vcse"]["temperature"] == pytest.approx(0.001)
    before_learning = rows["vcse"][ROW_FRAMES.index(SEED_FRAMES)]
    assert math.isnan(before_learning["critic_loss"])
    assert math.isnan(before_learning["bonus_mean"])


def test_the_evaluation_is_in_the_training_curve_where_there_was_one(four):
    run = four / FOUR[2].name
    shown = {row["frame"]: row["eval_return_mean"] for row in read_rows(run / "train.csv")}
    evaluated = {row["frame"]: row["return_mean"] for row in read_rows(run / "eval.csv")}
    assert {frame: number for frame, number in shown.items() if not math.isnan(number)} == evaluated


@pytest.mark.parametrize("place", [1, 2])
def test_a_run_alone_is_the_run_among_others_with_another_bonus(four, tmp_path, place):
    train([FOUR[place]], tmp_path)
    assert_same_run(tmp_path / FOUR[place].name, four / FOUR[place].name)
    assert {row["runs"] for row in read_rows(four / FOUR[place].name / "timing.csv")} == {4}


def test_transitions_are_a_chain_that_a_time_limit_interrupts_without_an_end(four):
    for config in FOUR:
        found = Transitions(four / config.name)
        assert len(found.rewards) == FRAMES
        follows = (found.next_observations[:-1] == found.observations[1:]).all(1)
        assert np.flatnonzero(~follows).tolist() == [EPISODE - 1]
        assert not found.terminated.any()
        assert np.abs(found.actions).max() <= 1
        returned = math.fsum(found.rewards[:EPISODE].astype(float))
        (row,) = [row for row in read_rows(four / config.name / "train.csv") if row["frame"] == EPISODE]
        assert row["return_mean"] == pytest.approx(returned)


def end_episodes(monkeypatch, when):
    """End a task by its steps and its velocity, as those of the suite hardly ever end."""
    plain = dmc._Environment.step

    def step(environment, action):
        next_observations, reward, _, truncated, success = plain(environment, action)
        return next_observations, reward, bool(when(environment._steps, next_observations[2])), truncated, success

    monkeypatch.setattr(dmc._Environment, "step", step)


def test_an_end_of_the_task_is_stored_as_one(tmp_path, monkeypatch):
    end_episodes(monkeypatch, lambda steps, velocity: steps == 10)
    config = make_config("none", eval_episodes=0, frames=35, settings={"seed_frames": 1000})
    train([config], tmp_path)
    found = Transitions(tmp_path / config.name)
    follows = (found.next_observations[:-1] == found.observations[1:]).all(1)
    assert np.flatnonzero(found.terminated).tolist() == np.flatnonzero(~follows).tolist() == [9, 19, 29]
    assert read_rows(tmp_path / config.name / "train.csv")[-1]["episodes"] == 3


@pytest.mark.parametrize("at", [50, 117])
def test_stopped_in_the_middle_of_an_episode_a_run_goes_on_to_the_same_end(four, tmp_path, at):
    pair = [FOUR[0], FOUR[2]]
    with pytest.raises(StoppedError):
        train(pair, tmp_path, progress=Interrupting(at, stop))
    assert [checkpoint.frames(tmp_path / each.name / "checkpoint")[0] for each in pair] == [at, at]
    train(pair, tmp_path)
    for config in pair:
        assert_same_run(tmp_path / config.name, four / config.name)


def test_episodes_that_began_at_different_frames_are_all_taken_up_again(tmp_path, monkeypatch):
    end_episodes(monkeypatch, lambda steps, velocity: steps >= 20 and velocity > 0)
    three = [make_config("none", seed, eval_episodes=3) for seed in range(3)]
    train(three, tmp_path / "once")
    with pytest.raises(StoppedError):
        train(three, tmp_path / "again", progress=Interrupting(117, stop))
    states = [newest_state(tmp_path / "again" / config.name).state for config in three]
    assert len({state["episode_begin"] for state in states}) == 3
    train(three, tmp_path / "again")
    train(three[1:2], tmp_path / "alone")
    for config in three:
        assert_same_run(tmp_path / "again" / config.name, tmp_path / "once" / config.name)
    assert_same_run(tmp_path / "alone" / three[1].name, tmp_path / "once" / three[1].name)


@pytest.mark.parametrize("at", [30, 115])
def test_a_death_takes_a_run_back_to_its_checkpoint_and_it_ends_the_same(four, tmp_path, at):
    with pytest.raises(DeathError):
        train([FOUR[1]], tmp_path, progress=Interrupting(at, die))
    train([FOUR[1]], tmp_path)
    assert_same_run(tmp_path / FOUR[1].name, four / FOUR[1].name)


def test_a_replay_that_is_not_kept_is_gone_with_the_end_of_its_run_alone(four, tmp_path):
    dropping, keeping = dataclasses.replace(FOUR[0], keep_replay=False), FOUR[1]
    train([dropping, keeping], tmp_path)
    for config in (dropping, keeping):
        run, whole = tmp_path / config.name, four / config.name
        assert (run / "replay.bin").exists() == config.keep_replay
        assert (run / "train.csv").read_bytes() == (whole / "train.csv").read_bytes()
    with pytest.raises(ValueError, match="was trained with --no-keep-replay: it cannot be extended to"):
        train([dataclasses.replace(dropping, frames=2 * FRAMES)], tmp_path)


def test_runs_that_grow_go_on_where_they_were(four, tmp_path):
    shorter = [dataclasses.replace(config, frames=110) for config in FOUR[1:3]]
    train(shorter, tmp_path)
    before = {config.name: (tmp_path / config.name / "train.csv").read_text() for config in shorter}
    train(FOUR[1:3], tmp_path)
    for config in FOUR[1:3]:
        grown, whole = tmp_path / config.name, four / config.name
        assert json.loads((grown / "config.json").read_text())["frames"] == FRAMES
        assert (grown / "train.csv").read_text().startswith(before[config.name])
        assert [row["frame"] for row in read_rows(grown / "train.csv")] == sorted([*ROW_FRAMES, 110])
        assert (grown / "replay.bin").read_bytes() == (whole / "replay.bin").read_bytes()
        mine, theirs = (newest_state(run).state["agent"] for run in (grown, whole))
        assert_same_state(mine, theirs)


def test_seeds_and_bonuses_make_different_runs(four):
    assert len({(four / config.name / "replay.bin").read_bytes() for config in FOUR}) == len(FOUR)


@pytest.mark.parametrize("bytes_left", [0, 1000])
def test_lost_transitions_are_told(copy, bytes_left):
    run = copy / FOUR[1].name
    (run / "DONE").unlink()
    checkpoint.drop_after(run / "checkpoint", 120)
    os.truncate(run / "replay.bin", bytes_left)
    told = f"replay.bin holds {bytes_left} bytes, but the checkpoint needs {120 * 9 * 4}"
    with pytest.raises(RuntimeError, match=told):
        train([FOUR[1]], copy)


def test_actions_that_were_tampered_with_are_found_by_what_the_environments_show(copy):
    run = copy / FOUR[1].name
    (run / "DONE").unlink()
    checkpoint.drop_after(run / "checkpoint", 120)
    rows = np.fromfile(run / "replay.bin", dtype=np.float32).reshape(-1, 9)
    rows[:, 3] = 0
    rows.tofile(run / "replay.bin")
    with pytest.raises(RuntimeError, match="se/seed1: the environment, replayed, shows something else than when"):
        train([FOUR[1]], copy)


@pytest.mark.parametrize(("per_step", "updates"), [(0.5, 10), (2.0, 40), (0.0, 0)])
def test_as_many_updates_are_made_as_asked_for(tmp_path, per_step, updates):
    config = make_config("vcse", frames=60, eval_episodes=0, settings={"seed_frames": 40, "updates_per_step": per_step})
    train([config], tmp_path)
    assert newest_state(tmp_path / config.name).state["agent"]["updates"] == updates


@pytest.mark.parametrize("per_step", [0.1, 1.5])
def test_a_run_with_another_number_of_updates_survives_a_stop_too(tmp_path, per_step):
    settings = {"seed_frames": 40, "updates_per_step": per_step}
    config = make_config("vcse", frames=80, row_every_frames=5, eval_episodes=0, settings=settings)
    train([config], tmp_path / "once")
    for at in (52, 63):  # a row comes before the next update
        with pytest.raises(StoppedError):
            train([config], tmp_path / "again", progress=Interrupting(at, stop))
    train([config], tmp_path / "again")
    for name in ("train.csv", "replay.bin"):
        again, once = (tmp_path / each / config.name / name for each in ("again", "once"))
        assert again.read_bytes() == once.read_bytes(), name
    assert_same_state(*(newest_state(tmp_path / each / config.name).state for each in ("again", "once")))


@pytest.mark.parametrize(("frames", "per_step", "updates"), [(80, 1.0, 0), (81, 1.0, 1), (81, 0.5, 0), (82, 0.5, 1)])
def test_a_run_that_is_too_short_to_learn_is_warned_of_and_no_other(tmp_path, frames, per_step, updates):
    config = make_config("none", frames=frames, eval_episodes=0, settings={"updates_per_step": per_step})
    train([config], tmp_path)
    assert newest_state(tmp_path / config.name).state["agent"]["updates"] == updates
    first = 80 + round(1 / per_step)
    said = f"nothing is learned in {frames} frames: the first update comes within {first}, after seed_frames 80 of "
    assert warning(config).startswith(said) == (updates == 0)
    assert bool(warning(config)) == (updates == 0)


def test_a_run_without_updates_is_warned_of():
    config = make_config("none", settings={"updates_per_step": 0.0})
    assert warning(config) == "nothing is learned with 0 updates per step"


def test_a_batch_that_never_finds_enough_is_warned_of():
    enough = make_config(frames=129, settings={"batch_size": 128})
    assert warning(enough) == ""
    few = make_config(frames=128, settings={"batch_size": 128})
    said = "every batch of 128 holds transitions more than once: there are never more than 127"
    assert warning(few) == said


def test_the_oldest_transitions_make_room_and_survive_a_stop(tmp_path):
    settings = {"seed_frames": 40, "replay_capacity": 50}
    config = make_config("vcse", frames=130, eval_episodes=0, settings=settings)
    train([config], tmp_path / "once")
    with pytest.raises(StoppedError):
        train([config], tmp_path / "again", progress=Interrupting(117, stop))
    train([config], tmp_path / "again")
    assert_same_state(*(newest_state(tmp_path / each / config.name).state for each in ("again", "once")))
    everything = make_config("vcse", frames=130, eval_episodes=0, method="all", settings={"seed_frames": 40})
    train([everything], tmp_path / "once")
    kept, forgot = (
        newest_state(tmp_path / "once" / each.name).state["agent"]["actor"] for each in (everything, config)
    )
    assert not torch.equal(kept[0], forgot[0])


def test_a_replay_that_does_not_fit_is_refused_with_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(resources, "free_bytes", lambda device: 10**9)
    configs = [make_config(seed=seed, frames=10**8, settings={"replay_capacity": 10**7}) for seed in range(4)]
    refused = r"the replays of 4 runs at once, 1\.4 GB are needed, but there is room for 300 MB in the memory of the"
    with pytest.raises(ValueError, match=refused):
        train(configs, tmp_path)
    assert list(tmp_path.iterdir()) == []
    directories = [RunDirectory(tmp_path / config.name, config) for config in configs]
    with pytest.raises(ValueError, match=refused):
        SACCohort(directories)  # whoever builds one cohort finds room for it alone
    for directory in directories:
        directory.close()


def test_tasks_of_other_sizes_are_no_cohort(tmp_path):
    lengths = {"frames": 45, "eval_episodes": 0, "settings": {"seed_frames": 40}}
    both = [make_config("none", **lengths), make_config("none", task=CARTPOLE, **lengths)]
    train(both, tmp_path)
    for config in both:
        assert {row["runs"] for row in read_rows(tmp_path / config.name / "timing.csv")} == {1}
        assert len(Transitions(tmp_path / config.name, config.task).rewards) == 45


def test_a_loss_that_is_not_finite_stops_the_run_names_it_and_keeps_the_checkpoint(tmp_path):
    settings = {"frames": 60, "eval_episodes": 0, "settings": {"seed_frames": 40}}
    configs = [make_config("none", **settings), make_config("vcse", 4, **settings)]
    directories = [RunDirectory(tmp_path / config.name, config) for config in configs]
    cohort = SACCohort(directories)
    with torch.no_grad():
        cohort.agent.critic.mlp.layers[0][2] = math.nan
    try:
        with pytest.raises(RuntimeError, match=r"of dmc-pendulum_swingup/vcse/seed4 is not finite at frame"):
            loop.train(cohort, 60, report=lambda status: None, should_stop=lambda: False)
    finally:
        for directory in directories:
            directory.close()
    for directory in directories:
        assert not (directory.path / "DONE").exists()
        assert not checkpoint_path(directory.path, 60).exists()


def test_runs_in_worker_processes_are_the_run_alone(tmp_path):
    lengths = {"frames": 45, "eval_episodes": 0, "settings": {"seed_frames": 40}}
    six = [make_config(bonus, seed, **lengths) for bonus in ("none", "vcse") for seed in range(3)]
    train(six, tmp_path / "six", threads=2)
    train(six[4:5], tmp_path / "alone")
    run, other = (tmp_path / each / six[4].name for each in ("six", "alone"))
    assert (run / "replay.bin").read_bytes() == (other / "replay.bin").read_bytes()
    assert_same_state(newest_state(run).state, newest_state(other).state)


def test_vcse_eval_gives_the_last_evaluation_again(four, capsys, monkeypatch):
    monkeypatch.setattr(evaluate, "cores", lambda: 1)  # other processes would play whole episodes
    assert main(["eval", str(four), "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["method"] for row in rows] == ["none", "rcse", "se", "vcse"]
    for row in rows:
        last = read_rows(four / "dmc-pendulum_swingup" / row["method"] / f"seed{row['seed']}" / "eval.csv")[-1]
        assert {name: row[name] for name in ("frame", "episodes", "return_mean")} == {
            name: last[name] for name in ("frame", "episodes", "return_mean")
        }
        assert 0 <= row["sampled_return_mean"] <= EPISODE
