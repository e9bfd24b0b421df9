import itertools
import multiprocessing
import os
import signal
from types import SimpleNamespace

import numpy as np
import pytest

from vcse.envs.mujoco.dmc import simulate
from vcse.envs.processes import _PATIENCE_SECONDS, _SPIN_SECONDS, Batch, _end, _read, _Worker


@pytest.mark.parametrize("spins", [False, True])
def test_who_waits_sleeps_and_who_spins_does_so_after_a_while(monkeypatch, spins):
    here, there = multiprocessing.Pipe()
    seconds, looks, read = itertools.count(step=_SPIN_SECONDS / 10), [], os.read

    def read_what_comes_late(descriptor, count):
        assert not here.poll()
        os.write(there.fileno(), b"d")
        return read(descriptor, count)

    monkeypatch.setattr("vcse.envs.processes.time", SimpleNamespace(monotonic=lambda: next(seconds)))
    monkeypatch.setattr(os, "sched_yield", lambda: looks.append(1))
    monkeypatch.setattr(os, "read", read_what_comes_late)
    assert _read(here, spins=spins) == b"d"
    assert 8 <= len(looks) <= 10 if spins else not looks
    there.close()
    here.close()


def test_who_spins_reads_at_once_what_comes_meanwhile(monkeypatch):
    here, there = multiprocessing.Pipe()
    looks = []

    def answer():
        looks.append(1)
        os.write(there.fileno(), b"d")

    monkeypatch.setattr("vcse.envs.processes.time", SimpleNamespace(monotonic=lambda: 0.0))
    monkeypatch.setattr(os, "sched_yield", answer)
    assert _read(here, spins=True) == b"d"
    assert len(looks) == 1
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


def test_workers_that_do_not_end_are_waited_for_together_and_killed(monkeypatch, without_type_checks):
    now, killed = [0.0], []

    class Stuck:
        pid, exitcode, close = 1, None, lambda self: None

        def join(self, timeout=None):
            now[0] += timeout or 0.0

        def kill(self):
            killed.append(self)

    monkeypatch.setattr("vcse.envs.processes.time", SimpleNamespace(monotonic=lambda: now[0]))
    connection = SimpleNamespace(close=lambda: None)
    _end([_Worker(Stuck(), connection, range(1)) for _ in range(16)])
    assert len(killed) == 16
    assert now[0] == _PATIENCE_SECONDS


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
