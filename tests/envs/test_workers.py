import multiprocessing
import os
import threading
import time

import pytest

from vcse.envs.workers import _read


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
