import dataclasses
import signal

import numpy as np
import pytest
from csv_rows import read_rows
from runs.small import Interrupting, assert_same, assert_same_run, make_config, newest_state, train

from vcse.agents.a2c.settings import a2c_settings
from vcse.launch.cohorts import StoppedError

TABLE = "minigrid-table/SimpleCrossingS9N1"


def settings(values):
    return a2c_settings("vcse", environments=4, values=values)


@pytest.mark.usefixtures("without_type_checks")
def test_exact_values_and_visits_are_a_runs_own_and_survive_a_stop(tmp_path):
    table = {"backend": "table", "frames": 160, "eval_episodes": 0, "visits_every_frames": 64}
    sources = ("network", "exact", "exact-stationary")
    configs = [make_config(TABLE, method=values, settings=settings(values), **table) for values in sources]
    alone, together = tmp_path / "alone", tmp_path / "together"
    with pytest.raises(StoppedError):
        train(configs, together, progress=Interrupting(128, lambda: signal.raise_signal(signal.SIGTERM)))
    train(configs, together)
    for config in configs:
        train([config], alone)
        same = [out / config.name for out in (alone, together)]
        for name in ("train.csv", "actions.bin", "visits.npy"):
            assert same[0].joinpath(name).read_bytes() == same[1].joinpath(name).read_bytes(), name
        assert_same(newest_state(same[0]).state, newest_state(same[1]).state)
        visits = np.load(same[0] / "visits.npy")
        assert visits.sum((1, 2)).tolist() == [64, 64]
    rows = [read_rows(together / config.name / "train.csv")[0] for config in configs]
    assert len({row["value_mean"] for row in rows}) == 3


@pytest.mark.parametrize("values", ["exact", "exact-stationary"])
def test_exact_values_take_the_place_of_the_critics_and_survive_a_restart(tmp_path, values):
    exact = make_config(TABLE, method="exact", settings=settings(values), backend="table")
    critic = make_config(TABLE, backend="table")
    train([exact, critic], tmp_path / "together")
    train([critic], tmp_path / "alone")
    assert_same_run(tmp_path / "together" / critic.name, tmp_path / "alone" / critic.name)
    rows = [read_rows(tmp_path / "together" / each.name / "train.csv")[0] for each in (exact, critic)]
    assert rows[0]["value_mean"] != rows[1]["value_mean"]
    assert 0 <= rows[0]["value_mean"] < 1  # of a policy that hardly finds the goal, and never less than nothing
    assert rows[0]["exact_value_rmse"] > 0
    assert -1 <= rows[0]["exact_value_correlation"] <= 1
    assert "exact_value_rmse" not in rows[1]
    for frames in (192, 288):
        train([dataclasses.replace(exact, frames=frames)], tmp_path / "grown")
    grown, whole = tmp_path / "grown" / exact.name, tmp_path / "together" / exact.name
    assert (grown / "train.csv").read_text() == (whole / "train.csv").read_text()
    assert_same(newest_state(grown).state, newest_state(whole).state)
