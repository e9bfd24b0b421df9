import math
import time
from types import SimpleNamespace

import pytest

from vcse.bench import sac, training
from vcse.bench.sac import Case, measure

UPDATE_SHARES = ("share_bonus", "share_extrinsic_critic")
TRAINING_SHARES = ("share_env", "share_act", "share_update")


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Little is measured, in the time of this process alone: others may take the core in the middle of it."""
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=time.process_time))
    monkeypatch.setattr(sac, "WARM_UP", 1)
    monkeypatch.setattr(sac, "CAPACITY", 200)


def test_rows_say_what_was_measured_and_their_shares_add_up(without_type_checks):
    cases = [Case(1, "none", 16, 32), Case(2, "se", 16, 32), Case(1, "vcse", 16, 32)]
    plain, strange, paid = measure("cpu", cases, threads=1, seconds=0.02)
    assert (plain.device, plain.learners, plain.bonus, plain.hidden_units, plain.batch_size) == (
        "cpu",
        1,
        "none",
        16,
        32,
    )
    assert (strange.learners, strange.bonus, paid.bonus) == (2, "se", "vcse")
    for row in (plain, strange, paid):
        assert row.updates_per_s > 0
        assert row.frames_per_s > 0
        assert all(0 <= getattr(row, share) <= 1 for share in (*UPDATE_SHARES, *TRAINING_SHARES))
        assert sum(getattr(row, share) for share in TRAINING_SHARES) == pytest.approx(1)
    assert (plain.times_plain, plain.share_bonus, plain.share_extrinsic_critic) == (1, 0, 0)
    assert paid.share_bonus > 0
    assert paid.times_plain > 0
    assert math.isnan(strange.times_plain)  # nothing of its size to hold it against
    assert strange.share_extrinsic_critic == 0


def test_a_plain_case_comes_before_those_that_are_held_against_it():
    for cases in (sac.CPU_CASES, sac.CUDA_CASES):
        for number, case in enumerate(cases):
            assert case._replace(bonus="none") in cases[: number + 1]
