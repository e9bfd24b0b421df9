"""Processes that train SAC and are really killed. VCSE_SAC_KILLS=50 kills fifty times, in runs that are longer."""

import multiprocessing
import os
import random
import signal
import time

import jaxtyping
import pytest
from runs.small import half_written, newest_frame, wait_for
from runs.small_sac import assert_same_run

from vcse.cli import main
from vcse.runs.directory import run_directories

KILLS = int(os.environ.get("VCSE_SAC_KILLS", "10"))
FRAMES, CHECKPOINT_FRAMES = max(1060, 110 * KILLS), 50
MOST_AFTER_S = 0.2  # that a process still runs after a checkpoint


@pytest.fixture(scope="module", autouse=True)
def _without_type_checks():
    """The processes have none either, and are compared."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def processes():
    """Make processes that have the libraries loaded, which would take most of the time of each."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["vcse.cli", "dm_control.suite"])
    return context


def command(out):
    """Two runs whose first episode ends at frame 1000, trained by the process itself."""
    options = {
        "--frames": FRAMES,
        "--seed-frames": 100,
        "--updates-per-step": 0.25,
        "--checkpoint-every-frames": CHECKPOINT_FRAMES,
        "--eval-every-frames": 500,
        "--eval-episodes": 1,
        "--hidden-units": 16,
        "--batch-size": 32,
        "--threads": 1,
        "--jobs": 1,
        "--out": out,
    }
    given = [str(each) for option in options.items() for each in option]
    return ["train", "--task", "dmc/pendulum_swingup", "--bonus", "none", "vcse", *given, "--device", "cpu", "--quiet"]


def test_runs_that_are_killed_again_and_again_end_as_if_nothing_had_happened(tmp_path, processes):
    assert main(command(tmp_path / "uninterrupted")) == 0
    out, chance = tmp_path / "killed", random.Random(0)
    for kill in range(KILLS):
        # All over the course of the runs, at any moment after a checkpoint.
        begin, after_s = FRAMES * kill // (KILLS + 2), chance.uniform(0, MOST_AFTER_S)
        process = processes.Process(target=main, args=(command(out),))
        process.start()
        wait_for(lambda: newest_frame(out) >= begin, process.is_alive)  # noqa: B023 - it is called here
        # On a fast machine the runs would be done before: they do not get as far as that.
        late, give_up = begin + 2 * CHECKPOINT_FRAMES, time.monotonic() + after_s
        while newest_frame(out) < late and time.monotonic() < give_up:
            time.sleep(0.005)
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        told = f"kill {kill + 1} of {KILLS}, {after_s:.2f} s after frame {begin} was saved"
        print(f"{told}: the newest checkpoint of any run is of frame {newest_frame(out)} of {FRAMES}")
    assert main(command(out)) == 0
    runs = run_directories(out)
    assert len(runs) == 2
    for run in runs:
        assert_same_run(run, tmp_path / "uninterrupted" / run.relative_to(out))
    assert half_written(out) == []
