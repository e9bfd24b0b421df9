import pytest

from vcse.bench import minigrid
from vcse.bench.minigrid import Case, measure


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    monkeypatch.setattr(minigrid, "WARM_UP_UPDATES", 1)


def shares(row):
    return [row.share_env, row.share_act, row.share_bonus, row.share_update]


def test_rows_say_what_was_measured_and_their_shares_add_up(without_type_checks):
    cases = [Case(("none",), 1, ("LavaGapS5",)), Case(("se", "vcse"), 1, ("LavaGapS5", "Empty-5x5"))]
    without, paid = measure("cpu", cases, threads=1, seconds=0.01)
    assert (without.device, without.learners, without.bonus) == ("cpu", 1, "none")
    assert (paid.device, paid.learners, paid.bonus) == ("cpu", 4, "se+vcse")
    for row in (without, paid):
        assert row.frames_per_s > 0
        assert sum(shares(row)) == pytest.approx(1)
        assert all(0 <= share < 1 for share in shares(row))
    assert paid.share_bonus > 0


def test_a_case_counts_every_task_bonus_and_seed():
    assert Case(("none", "se", "vcse"), 16, ("LavaGapS7", "DoorKey-6x6")).learners == 96
