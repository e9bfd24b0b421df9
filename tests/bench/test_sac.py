import math
import time
from types import SimpleNamespace

import pytest

from vcse.bench import sac, training
from vcse.bench.sac import Case, measure

TRAINING_SHARES = ("share_env", "share_act", "share_update")


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Little is measured, in the time of this process alone: others may take the core in the middle of it."""
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=time.process_time))
    monkeypatch.setattr(sac, "WARM_UP", 1)
    monkeypatch.setattr(sac, "CAPACITY", 200)


def test_a_row_says_what_was_measured_and_its_shares_add_up(without_type_checks):
    [row] = measure("cpu", [Case(2, "vcse", 16, 32)], threads=1, seconds=0.02)
    assert (row.device, row.learners, row.bonus, row.hidden_units, row.batch_size) == ("cpu", 2, "vcse", 16, 32)
    assert row.updates_per_s > 0
    assert row.frames_per_s > 0
    assert all(0 <= getattr(row, share) <= 1 for share in TRAINING_SHARES)
    assert sum(getattr(row, share) for share in TRAINING_SHARES) == pytest.approx(1)
    assert math.isnan(row.times_plain)  # nothing of its size to hold it against


def test_an_update_is_held_against_one_without_a_bonus_and_the_rest_is_the_extrinsic_critic(monkeypatch):
    # Seconds of an update, then of its bonus where there is one. What is measured varies from one to the next.
    found = iter([0.002, 0.003, 0.001, 0.008, 0.002])

    def duration(call, device, seconds):
        call()
        return next(found)

    monkeypatch.setattr(sac, "duration", duration)
    monkeypatch.setattr(sac, "_train", lambda *_: (1.0, dict.fromkeys(TRAINING_SHARES, 1 / 3)))
    plain, entropy, paid = measure("cpu", [Case(1, bonus, 16, 32) for bonus in ("none", "se", "vcse")], threads=1)
    assert [row.times_plain for row in (plain, entropy, paid)] == pytest.approx([1, 1.5, 4])
    assert [row.share_bonus for row in (plain, entropy, paid)] == pytest.approx([0, 1 / 3, 0.25])
    assert [row.share_extrinsic_critic for row in (plain, entropy, paid)] == pytest.approx([0, 0, 0.5])
    assert paid.updates_per_s == pytest.approx(125)


def test_a_plain_case_comes_before_those_that_are_held_against_it():
    for cases in (sac.CPU_CASES, sac.CUDA_CASES):
        for number, case in enumerate(cases):
            assert case._replace(bonus="none") in cases[: number + 1]
