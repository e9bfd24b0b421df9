"""Processes that are really killed. VCSE_KILLS=20 kills twenty times, in runs that are longer."""

import os
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jaxtyping
import pytest
from runs.small import assert_same_run, half_written, newest_frame, wait_for

import vcse
from vcse.cli import main
from vcse.runs.directory import run_directories

KILLS = int(os.environ.get("VCSE_KILLS", "3"))
FRAMES = 280 * KILLS
CHECKPOINT_FRAMES = 150
MOST_AFTER_S = 1.0  # that a process still runs after a checkpoint


@pytest.fixture(scope="module", autouse=True)
def _without_type_checks():
    """The processes have none either, and are compared."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def command(out, *more):
    tasks = ["--task", "minigrid/Empty-5x5", "minigrid/LavaGapS5", "--bonus", "none", "se", "vcse"]
    lengths = ["--frames", FRAMES, "--checkpoint-every-frames", CHECKPOINT_FRAMES]
    looks = ["--eval-every-frames", 500, "--eval-episodes", 4]
    means = ["--environments", 4, "--threads", 2, "--device", "cpu"]
    return [str(each) for each in ["train", *tasks, *lengths, *looks, *means, "--out", out, *more]]


class Process:
    """`python -m vcse train`, once it says that it trains."""

    def __init__(self, out, *more):
        self.process = subprocess.Popen(
            [sys.executable, "-m", "vcse", *command(out, *more)],
            env=os.environ | {"PYTHONPATH": str(Path(vcse.__file__).parents[1])},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.began = self.process.stderr.readline()

    def is_alive(self):
        return self.process.poll() is None

    def end(self, number):
        """Send a signal; gives the exit status and what was written."""
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, self.began + err

    def children(self):
        """Return the processes of its session that still run; one that only waits to be buried does not."""
        listed = subprocess.run(["ps", "-A", "-o", "pgid=,stat=,args="], capture_output=True, text=True, check=True)
        rows = [line.split(maxsplit=2) for line in listed.stdout.splitlines()]
        return [what for group, state, *what in rows if int(group) == self.process.pid and not state.startswith("Z")]

    def leaves_none(self, within_s=20):
        """Return whether all of them end by themselves: what Python started ends a moment after it."""
        give_up = time.monotonic() + within_s
        while self.children() and time.monotonic() < give_up:
            time.sleep(0.05)
        return not self.children()


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("uninterrupted")
    assert main(command(out)) == 0
    return out


def assert_all_same(out, other):
    runs = run_directories(out)
    assert len(runs) == 6
    for run in runs:
        assert_same_run(run, other / run.relative_to(out))
    assert half_written(out) == []


def test_runs_that_are_killed_again_and_again_end_as_if_nothing_had_happened(tmp_path, uninterrupted):
    chance = random.Random(0)
    for kill in range(KILLS):
        # All over the course of the runs, at any moment after a checkpoint; every fifth kill at once, before a restart
        # has got anywhere, and every fourth is of a process that has two others train.
        begin = 0 if kill % 5 == 4 else FRAMES * kill // (KILLS + 2)
        after_s = chance.uniform(0, MOST_AFTER_S)
        jobs = 2 if kill % 4 == 3 else 1
        process = Process(tmp_path, "--jobs", jobs)
        wait_for(lambda: newest_frame(tmp_path) >= begin, process.is_alive)  # noqa: B023 - it is called here
        # On a fast machine the runs would be done before: they do not get as far as that.
        late, give_up = min(begin + 2 * CHECKPOINT_FRAMES, FRAMES - 1), time.monotonic() + after_s
        while newest_frame(tmp_path) < late and time.monotonic() < give_up:
            time.sleep(0.01)
        status, _, err = process.end(signal.SIGKILL)
        assert status == -signal.SIGKILL, err
        assert process.leaves_none()
        told = f"kill {kill + 1} of {KILLS}, {jobs} process(es), {after_s:.2f} s after frame {begin} was saved"
        print(f"{told}: the newest checkpoint of any run is of frame {newest_frame(tmp_path)} of {FRAMES}")
    assert main(command(tmp_path)) == 0
    assert_all_same(tmp_path, uninterrupted)


def test_sigterm_saves_says_how_to_go_on_and_leaves_no_process(tmp_path, uninterrupted, capsys):
    process = Process(tmp_path, "--jobs", 1)
    wait_for(lambda: newest_frame(tmp_path) > 0, process.is_alive)
    assert process.children()
    status, out, err = process.end(signal.SIGTERM)
    assert status == 128 + signal.SIGTERM, err
    assert out == ""
    *_, before, last = err.splitlines()
    assert before == "stopping: saving all runs"
    assert re.fullmatch(
        rf"vcse: stopped by SIGTERM: \d+ runs? saved in {tmp_path} at frames? [\d, to]+; to continue, run the same "
        rf"command again, or vcse resume {tmp_path}",
        last,
    )
    assert "Traceback" not in err
    assert process.leaves_none()
    assert not any((run / "DONE").exists() for run in run_directories(tmp_path))
    assert main(["resume", str(tmp_path), "--threads", "1", "--jobs", "1", "--device", "cpu"]) == 0
    assert_all_same(tmp_path, uninterrupted)
    assert capsys.readouterr().out == ""
