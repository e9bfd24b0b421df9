import multiprocessing
import os
import signal
import threading
import time
from types import SimpleNamespace

import numpy as np
import pytest

from vcse.envs.mujoco.dmc import simulate
from vcse.envs.processes import Batch, _read


@pytest.fixture
def looks(monkeypatch):
    """When somebody who does not sleep looked for a word, and found none."""
    times, sched_yield = [], os.sched_yield

    def noting():
        times.append(time.monotonic())
        sched_yield()

    monkeypatch.setattr(os, "sched_yield", noting)
    return times


@pytest.mark.parametrize("spins", [False, True])
def test_who_waits_sleeps_and_who_spins_does_so_after_a_while(looks, spins):
    here, there = multiprocessing.Pipe()
    sender = threading.Timer(1.0, os.write, args=(there.fileno(), b"d"))
    begin = time.monotonic()
    sender.start()
    assert _read(here, spins=spins) == b"d"
    assert time.monotonic() - begin > 0.9
    assert bool(looks) == spins
    assert all(look - begin < 0.5 for look in looks)
    sender.join()
    there.close()
    here.close()


@pytest.mark.parametrize("spins", [False, True])
def test_that_nobody_is_left_to_talk_to_is_noticed(spins):
    here, there = multiprocessing.Pipe()
    there.close()
    with pytest.raises(EOFError):
        _read(here, spins=spins)
    here.close()


def test_environments_that_were_built_before_one_that_fails_are_closed():
    closed = []

    def build(name):
        if name == "toy/bad":
            raise RuntimeError("no robot")
        return SimpleNamespace(constants={}, close=lambda: closed.append(name))

    with pytest.raises(RuntimeError, match=r"^environment 2 \(toy/bad\) failed: RuntimeError: no robot$"):
        Batch(["toy/a", "toy/b", "toy/bad"], build, action_size=1, seen=("seen", np.float32), processes=1)
    assert sorted(closed) == ["toy/a", "toy/b"]


@pytest.mark.parametrize("spins", [False, True])
def test_the_death_of_a_worker_in_a_step_is_told(spins):
    seen = ("observation", np.float32, (3,))
    names = ["dmc/pendulum_swingup"] * 2
    batch = Batch(names, simulate, action_size=1, seen=seen, processes=2, spins=spins)
    batch.reset([0, 1])
    victim = batch._simulators._workers[0].process
    os.kill(victim.pid, signal.SIGSTOP)
    batch.send(np.zeros((2, 1), dtype=np.float32))
    os.kill(victim.pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="worker process of environments 0 ended unexpectedly"):
        batch.receive()
    assert not multiprocessing.active_children()
