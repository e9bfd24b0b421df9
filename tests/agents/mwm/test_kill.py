"""Processes that train MWM and are really killed. VCSE_MWM_KILLS=50 kills fifty times, in runs that are longer."""

import multiprocessing
import os
import random
import signal
import time

import jaxtyping
import pytest
from agents.mwm import toy_images
from agents.mwm.toy_images import SEED_FRAMES, assert_same_run, make_config, train_alone
from runs.small import half_written, newest_state, train

from vcse.runs import checkpoint

KILLS = int(os.environ.get("VCSE_MWM_KILLS", "5"))
FRAMES, PRETRAINING = SEED_FRAMES + 10 * KILLS, 10 * KILLS
CONFIG = make_config(
    frames=FRAMES, settings={"pretraining_updates": PRETRAINING}, row_every_frames=8, checkpoint_every_frames=4
)


@pytest.fixture(autouse=True)
def _toy_images(monkeypatch):
    """Know the toy tasks, and check no types: the processes do not either, and are compared."""
    jaxtyping.config.update("jaxtyping_disable", True)
    toy_images.register(monkeypatch)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def learned(run):
    """Return the frame of the newest checkpoint, and how often the autoencoder had learned."""
    if not checkpoint.frames(run / "checkpoint"):
        return 0, 0
    newest = newest_state(run)
    return newest.frame, newest.state["agent"]["autoencoder_updates"]


def test_a_run_that_is_killed_again_and_again_ends_as_if_nothing_had_happened(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(
        ["vcse.cli", "vcse.agents.a2c", "vcse.agents.sac", "vcse.agents.drqv2", "vcse.agents.mwm"]
    )
    run, chance, told = tmp_path / "killed" / CONFIG.name, random.Random(0), []
    train([CONFIG], tmp_path / "whole")
    whole = tmp_path / "whole" / CONFIG.name
    end = sum(learned(whole))
    for kill in range(KILLS):
        process = context.Process(target=train_alone, args=(CONFIG, tmp_path / "killed"))
        process.start()
        # All over the course of the run: random actions, the autoencoder alone, and everything.
        begin, give_up = end * kill // KILLS, time.monotonic() + 60
        while sum(learned(run)) < begin and process.is_alive() and time.monotonic() < give_up:
            time.sleep(0.005)
        time.sleep(chance.uniform(0, 0.05))
        process.kill()
        process.join()
        assert process.exitcode == -signal.SIGKILL
        told.append(learned(run))
        print(f"kill {kill + 1} of {KILLS}: the newest checkpoint is of frame {told[-1][0]}, update {told[-1][1]}")
    assert told == sorted(told)
    assert any(0 < updates < PRETRAINING for _, updates in told)
    assert any(updates > PRETRAINING for _, updates in told)
    train([CONFIG], tmp_path / "killed")
    assert_same_run(run, whole)
    assert half_written(tmp_path) == []
    assert not list(tmp_path.rglob("replay.scratch"))
