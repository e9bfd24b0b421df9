import math

import jaxtyping
import numpy as np
import pytest
import torch
from csv_rows import read_rows
from runs.small import (
    EMPTY,
    FRAMES_PER_UPDATE,
    LAVA,
    assert_same,
    assert_same_run,
    make_config,
    train,
)

from vcse.agents.a2c.cohort import A2CCohort
from vcse.agents.a2c.settings import a2c_settings
from vcse.runs import loop
from vcse.runs.directory import RunDirectory
from vcse.runs.metrics import REWARD_COLUMNS

BONUSES = ("none", "se", "vcse", "se-matched")
SIXTEEN = [make_config(task, bonus, seed) for task in (EMPTY, LAVA) for bonus in BONUSES for seed in (0, 3)]


@pytest.fixture
def make_cohort(tmp_path):
    directories = []

    def make(*configs):
        directories.extend(RunDirectory(tmp_path / config.name, config) for config in configs)
        return A2CCohort(directories)

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
    assert other.settings.time_limit != mine.settings.time_limit
    train([mine, other], tmp_path)
    assert_same_run(tmp_path / mine.name, sixteen / mine.name)


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
    loop.save(cohort)
    again = A2CCohort(cohort.directories)
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
        loop.train(cohort, 288, report=lambda status: None, should_stop=lambda: False)
    assert not (tmp_path / good.name / "DONE").exists()


def test_runs_of_one_task_must_stand_side_by_side(make_cohort):
    with pytest.raises(ValueError, match="runs of one task must be adjacent"):
        make_cohort(make_config(EMPTY), make_config(LAVA), make_config(EMPTY, seed=1))


def test_the_whole_map_can_be_learned_from_with_positions_for_the_bonus(tmp_path):
    config = make_config(
        task="minigrid-full/SimpleCrossingS9N1",
        backend="minigrid",
        settings=a2c_settings("vcse", environments=4, bonus_features="position"),
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
