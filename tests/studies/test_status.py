import fcntl
import math
import time
from contextlib import contextmanager

import pytest
from rich.console import Console
from runs import small_sac
from runs.small import make_config

from vcse.studies.status import (
    StudyStatus,
    add_failures,
    forget_failures,
    is_being_written,
    read_failures,
    study_status,
    wait_until_free,
)


def write_run(path, *, frame=0, done=None, ago=0.0, torn=""):
    path.mkdir(parents=True)
    (path / ".lock").touch()
    if frame:
        row = f"{frame},{time.time() - ago},100.0,1\n"
        first = f"32,{time.time() - ago - 10},50.0,1\n"
        (path / "timing.csv").write_text(f"frame,unix_time,frames_per_s,runs\n{first}{row}{torn}")
    if done is not None:
        (path / "DONE").write_text(f"{done}\n")


@pytest.fixture
def configs():
    return [make_config(seed=seed) for seed in range(5)]


@pytest.fixture
def study(tmp_path, configs):
    """One run done, one being written, one that failed, one that stopped, one that has not begun."""
    write_run(tmp_path / configs[0].name, frame=288, done=288)
    write_run(tmp_path / configs[1].name, frame=96)
    write_run(tmp_path / configs[2].name, frame=64)
    write_run(tmp_path / configs[3].name, frame=160, torn="192,17")
    add_failures(tmp_path, {configs[2].name: "the disk is full"})
    with open(tmp_path / configs[1].name / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield tmp_path


def test_a_run_is_done_running_failed_or_waiting(study, configs):
    runs = study_status(study, configs).runs
    assert [run.state for run in runs] == ["done", "running", "failed", "waiting", "waiting"]
    assert [run.frame for run in runs] == [288, 96, 64, 160, 0]
    assert [run.frames_per_s for run in runs] == [0, 100, 0, 0, 0]
    assert runs[2].problem == "the disk is full"


def test_time_left_is_that_of_what_goes_on_and_waits(study, configs):
    status = study_status(study, configs)
    assert status.seconds_left == pytest.approx((192 + 128 + 288) / 100)
    assert status.frames_per_s == 100
    assert status.counts() == "5 runs, 1 done, 1 running, 2 waiting, 1 failed"
    assert (status.frame, status.share) == (608, pytest.approx(608 / 1440))


def test_an_old_speed_says_nothing(tmp_path, configs):
    write_run(tmp_path / configs[0].name, frame=96, ago=3600)
    with open(tmp_path / configs[0].name / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        status = study_status(tmp_path, configs[:1])
    assert status.runs[0].state == "running"
    assert math.isinf(status.seconds_left)


@contextmanager
def held(path):
    with open(path / ".lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def test_random_frames_say_nothing_of_the_pace_of_learning(tmp_path):
    learning, random = (small_sac.make_config(seed=seed) for seed in (0, 1))  # 80 of 140 frames are random
    waiting = small_sac.make_config(seed=2)
    write_run(tmp_path / learning.name, frame=100)
    write_run(tmp_path / random.name, frame=80)
    with held(tmp_path / learning.name), held(tmp_path / random.name):
        alone = study_status(tmp_path, [random])
        status = study_status(tmp_path, [learning, random, waiting])
    assert alone.runs[0].state == "running"
    assert math.isinf(alone.seconds_left)
    assert [run.frames_per_s for run in status.runs] == [100, 0, 0]
    assert status.seconds_left == pytest.approx((40 + 60 + 140) / 200)  # the second is soon as slow as the first


def test_a_speed_is_fresh_as_long_as_rows_take(tmp_path, configs):
    write_run(tmp_path / configs[0].name, frame=96, ago=1000)
    path = tmp_path / configs[0].name / "timing.csv"
    header, _, last = path.read_text().splitlines(keepends=True)
    path.write_text(f"{header}32,{time.time() - 1600},50.0,1\n{last}")  # ten minutes before
    with held(tmp_path / configs[0].name):
        assert study_status(tmp_path, configs[:1]).runs[0].frames_per_s == 100


def test_the_table_has_a_line_per_task_and_one_for_all(study, configs):
    configs = [*configs, make_config("minigrid/LavaGapS5")]
    console = Console(width=80, record=True, quiet=False)
    console.print(study_status(study, configs).table("here"))
    text = console.export_text()
    assert [line.split()[0] for line in text.splitlines()] == ["here", "task", "Empty-5x5", "LavaGapS5", "all"]
    assert text.splitlines()[-1].split()[1:5] == ["1", "1", "3", "1"]


def test_a_run_that_grew_is_not_done(tmp_path, configs):
    write_run(tmp_path / configs[0].name, frame=160, done=160)
    assert study_status(tmp_path, configs[:1]).runs[0].state == "waiting"


def test_failures_are_forgotten_when_there_are_none_and_those_of_other_commands_stay(tmp_path):
    assert read_failures(tmp_path) == {}
    add_failures(tmp_path, {"a": "b"})
    assert read_failures(tmp_path) == {"a": "b"}
    add_failures(tmp_path, {"d": "e"})
    assert read_failures(tmp_path) == {"a": "b", "d": "e"}
    forget_failures(tmp_path, ["a", "c"])
    assert read_failures(tmp_path) == {"d": "e"}
    forget_failures(tmp_path, ["d"])
    assert [path.name for path in tmp_path.iterdir()] == [".lock"]


def test_a_run_that_is_held_is_waited_for_and_then_refused(study, configs):
    held, free = (study / config.name for config in configs[1:3])
    assert is_being_written(held)
    assert not is_being_written(free)
    assert not is_being_written(study / "nothing")
    wait_until_free([free], 0.0)
    with pytest.raises(RuntimeError, match="is being written by another process"):
        wait_until_free([free, held], 0.2)


def test_an_empty_study_has_no_time_left():
    assert StudyStatus([]).seconds_left == 0
