import dataclasses
import math
import signal

import jaxtyping
import numpy as np
import pytest
import torch
from runs.small import (
    EMPTY,
    FRAMES_PER_UPDATE,
    LAVA,
    Interrupting,
    assert_same,
    assert_same_run,
    make_config,
    newest_state,
    train,
)

from vcse.agents.a2c.cohort import OnPolicyCohort
from vcse.agents.settings import a2c_config
from vcse.launch.cohorts import StoppedError
from vcse.runs.directory import REWARD_COLUMNS, RunDirectory, read_rows

BONUSES = ("none", "se", "vcse", "se-matched")
SIXTEEN = [make_config(task, bonus, seed) for task in (EMPTY, LAVA) for bonus in BONUSES for seed in (0, 3)]


@pytest.fixture
def make_cohort(tmp_path):
    directories = []

    def make(*configs):
        directories.extend(RunDirectory(tmp_path / config.name, config) for config in configs)
        return OnPolicyCohort(directories)

    yield make
    for directory in directories:
        directory.close()


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory):
    """Sixteen runs of two tasks, two threads and four bonuses at once."""
    jaxtyping.config.update("jaxtyping_disable", True)
    out = tmp_path_factory.mktemp("sixteen")
    train(SIXTEEN, out, threads=2)
    jaxtyping.config.update("jaxtyping_disable", False)
    return out


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(("place", "threads"), [(1, 1), (2, 1), (5, 1), (5, 2), (15, 1)])
def test_a_run_alone_is_the_run_among_fifteen_others(sixteen, tmp_path, place, threads):
    config = SIXTEEN[place]
    train([config], tmp_path, threads=threads)
    assert_same_run(tmp_path / config.name, sixteen / config.name)
    assert {row["runs"] for row in read_rows(sixteen / config.name / "timing.csv")} == {16}


@pytest.mark.usefixtures("without_type_checks")
def test_a_run_is_the_same_among_runs_of_another_reading(sixteen, tmp_path):
    mine, other = SIXTEEN[4], make_config(EMPTY, "vcse", 9, reading="clean", method="clean")
    assert other.a2c.time_limit != mine.a2c.time_limit
    train([mine, other], tmp_path)
    assert_same_run(tmp_path / mine.name, sixteen / mine.name)


@pytest.mark.usefixtures("without_type_checks")
def test_exact_values_and_visits_are_a_runs_own_and_survive_a_stop(tmp_path):
    table = {"backend": "table", "frames": 160, "eval_episodes": 0, "visits_every_frames": 64}
    task = "minigrid-table/SimpleCrossingS9N1"
    sources = ("network", "exact", "exact-stationary")
    configs = [make_config(task, "vcse", method=values, values=values, **table) for values in sources]
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


def test_seeds_tasks_and_bonuses_make_different_runs(sixteen):
    actions = {(sixteen / config.name / "actions.bin").read_bytes() for config in SIXTEEN}
    assert len(actions) == len(SIXTEEN)


def test_columns_are_the_same_for_every_bonus_and_empty_where_there_is_nothing_to_say(sixteen):
    rows = {config.method: read_rows(sixteen / config.name / "train.csv")[-1] for config in SIXTEEN}
    columns = {tuple(row) for row in rows.values()}
    assert len(columns) == 1
    known = {method: {name for name, number in row.items() if not math.isnan(number)} for method, row in rows.items()}
    assert rows["none"]["bonus_mean"] == 0
    assert "radius_mean" not in known["none"]
    assert "value_count_mean" not in known["se"]
    assert known["vcse"] - known["se"] >= {"value_count_mean", "decided_by_value_share", "value_mean", "value_std"}


def test_where_collisions_cost_something_the_reward_can_be_conditioned_on(tmp_path):
    configs = [make_config("minigrid/Dynamic-Obstacles-5x5", bonus) for bonus in ("rcse", "vcse")]
    train(configs, tmp_path)
    rcse, vcse = (read_rows(tmp_path / config.name / "train.csv")[-1] for config in configs)
    assert set(rcse) - set(vcse) == set(REWARD_COLUMNS)
    assert rcse["reward_mean"] < 0  # a random walk collides soon
    assert 0 < rcse["reward_std"] < 1


def test_saving_and_loading_goes_on_as_if_nothing_had_happened(make_cohort, tmp_path):
    cohort = make_cohort(make_config(EMPTY, "vcse"), make_config(LAVA, "se", 1))
    for _ in range(2):
        cohort.step()
    cohort.save()
    again = OnPolicyCohort(cohort.directories)
    again.load([directory.newest_checkpoint().state for directory in cohort.directories])
    assert (again.update, again.frame) == (2, 2 * FRAMES_PER_UPDATE)
    for one in (cohort, again):
        one.step()
    assert_same(again.agent.state_dict(), cohort.agent.state_dict())
    assert torch.equal(again.bonus_mean.sum, cohort.bonus_mean.sum)
    assert np.array_equal(again.episodes.running, cohort.episodes.running)


def test_a_gradient_that_is_not_finite_stops_the_run_and_names_it(make_cohort, tmp_path):
    good, bad = make_config(EMPTY, "vcse"), make_config(LAVA, "none", 4)
    cohort = make_cohort(good, bad)
    with torch.no_grad():
        cohort.agent.parameters[1, 0] = math.nan
    with pytest.raises(RuntimeError, match=r"the gradient of minigrid-LavaGapS5/none/seed4 is not finite at frame 64"):
        cohort.train(288, report=lambda status: None, should_stop=lambda: False)
    assert not (tmp_path / good.name / "DONE").exists()


def test_runs_of_one_task_must_stand_side_by_side(make_cohort):
    with pytest.raises(ValueError, match="runs of one task must stand side by side"):
        make_cohort(make_config(EMPTY), make_config(LAVA), make_config(EMPTY, seed=1))


@pytest.mark.parametrize("values", ["exact", "exact-stationary"])
def test_exact_values_take_the_place_of_the_critics_and_survive_a_restart(tmp_path, values):
    settings = {"task": "minigrid-table/SimpleCrossingS9N1", "backend": "table"}
    exact = make_config(method="exact", values=values, **settings)
    critic = make_config(**settings)
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


def test_the_whole_map_can_be_learned_from_with_positions_for_the_bonus(tmp_path):
    config = make_config(
        task="minigrid-full/SimpleCrossingS9N1",
        backend="minigrid",
        settings=a2c_config("vcse", environments=4, position_features=True),
    )
    train([config], tmp_path)
    rows = read_rows(tmp_path / config.name / "train.csv")
    assert rows[-1]["frame"] == 288
    assert rows[-1]["bonus_mean"] < 0


def test_visits_are_counted_in_slices(tmp_path):
    config = make_config(visits_every_frames=96)
    train([config], tmp_path)
    visits = np.load(tmp_path / config.name / "visits.npy")
    assert visits.sum((1, 2)).tolist() == [96, 96, 96]
    assert (visits[:, 0] == 0).all()  # the wall


def test_large_updates_take_memory_and_are_made_whole():
    small, large = (
        make_config(frames=100, settings=a2c_config("vcse", environments=environments)) for environments in (4, 4000)
    )
    needs = OnPolicyCohort.needs(small), OnPolicyCohort.needs(large)
    assert needs[1].working - needs[0].working == pytest.approx(8 * 3996 * 17_000)
    seconds = [OnPolicyCohort.expected_seconds(config, "cpu") for config in (small, large)]
    assert seconds[1] > seconds[0] * (32_000 + 30_000) / (128 + 30_000) * 0.99
