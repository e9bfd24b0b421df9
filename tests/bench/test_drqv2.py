import json
import math
import time
from types import SimpleNamespace

import pytest
from gl import needs_gl

from vcse.bench import drqv2, training
from vcse.bench.drqv2 import Case, measure
from vcse.cli import main

pytestmark = needs_gl
TASK = "dmc-pixels/pendulum_swingup"
SHARES = ("share_env", "share_act", "share_update")
TRAINED = (1.0, dict.fromkeys(SHARES, 1 / 3), "egl")  # what a training gave that was not made


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Little is measured, of tiny networks, after few frames."""
    monkeypatch.setattr(drqv2, "SEED_FRAMES", 80)
    run_configs = drqv2.run_configs
    monkeypatch.setattr(drqv2, "run_configs", lambda **asked: run_configs(hidden_units=16, **asked))
    monkeypatch.setattr(training, "time", SimpleNamespace(perf_counter=time.process_time))


@pytest.mark.usefixtures("without_type_checks")
def test_rows_say_what_was_measured_and_what_drew_it_and_their_shares_add_up():
    cases = [Case(TASK, "none", "fast", 16), Case(TASK, "vcse", "fast", 16)]
    plain, paid = measure("cpu", cases, threads=1, seconds=0.02)
    assert (plain.device, plain.task, plain.bonus, plain.rendering) == ("cpu", TASK, "none", "fast")
    assert plain.batch_size == 16
    assert paid.bonus == "vcse"
    assert plain.times_plain == 1
    for row in (plain, paid):
        assert row.drawn_by in ("egl", "osmesa")
        assert row.ms_per_update > 0
        assert row.frames_per_s > 0
        assert sum(getattr(row, share) for share in SHARES) == pytest.approx(1)
        assert all(0 < getattr(row, share) < 1 for share in SHARES)


@pytest.mark.usefixtures("without_type_checks")
def test_a_case_without_a_plain_one_is_held_against_nothing(monkeypatch):
    monkeypatch.setattr(drqv2, "train_on_images", lambda *_: TRAINED)
    [alone] = measure("cpu", [Case(TASK, "vcse", "fast", 16)], threads=1, seconds=0.02)
    assert math.isnan(alone.times_plain)


@pytest.mark.usefixtures("without_type_checks")
def test_the_command_prints_flat_rows_or_a_table(capsys, monkeypatch):
    monkeypatch.setattr(drqv2, "train_on_images", lambda *_: TRAINED)
    monkeypatch.setattr(drqv2, "CPU_CASES", (Case(TASK, "none", "fast", 16),))
    command = ["bench", "drqv2", "--device", "cpu", "--seconds", "0.02"]
    assert main([*command, "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["drawn_by"], row["frames_per_s"]) == ("egl", 1)
    assert main(command) == 0
    shown = capsys.readouterr().out
    assert "DrQ-v2 on cpu, drawn by egl" in shown
    assert "pendulum_swingup" in shown


def test_one_quality_of_images_is_measured_with_every_bonus_and_once():
    assert drqv2.cases_for("cpu") == drqv2.CPU_CASES
    assert drqv2.cases_for("cuda") == drqv2.CUDA_CASES
    found = drqv2.cases_for("cuda", "fast")
    assert [(case.task, case.bonus) for case in found] == [
        (task, bonus) for task in (drqv2.HOPPER, drqv2.WALKER) for bonus in drqv2.BONUSES
    ]
    assert {case.rendering for case in found} == {"fast"}


def test_a_plain_case_comes_before_those_that_are_held_against_it():
    for cases in (drqv2.CPU_CASES, drqv2.CUDA_CASES):
        for number, case in enumerate(cases):
            earlier = [(each.task, each.batch_size, each.bonus) for each in cases[: number + 1]]
            assert (case.task, case.batch_size, "none") in earlier
