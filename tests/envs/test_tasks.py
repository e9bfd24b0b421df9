import pytest

from vcse.envs.interface import Making
from vcse.envs.tasks import check_task, families, known_tasks, make_environments, marker_of


@pytest.mark.parametrize("family", [each for each in families() if each != "metaworld"])
def test_what_is_listed_exists(family):
    names = known_tasks(family)
    assert len(set(names)) == len(names) > 0
    for task in names:
        check_task(task)


def test_door_open_is_listed_and_the_sparse_tasks_are():
    assert "metaworld/door-open" in known_tasks("metaworld")
    assert {"dmc-pixels/walker_walk_sparse", "dmc-pixels/cheetah_run_sparse"} <= set(known_tasks("dmc-pixels"))


@pytest.mark.parametrize(
    ("task", "meant"),
    [
        ("dmc_pixels/hopper_stand", "and the nearest family is that of dmc-pixels/hopper_stand"),
        ("DMC/hopper_stand", "and the nearest family is that of dmc/hopper_stand"),
        ("meta-world/door-open", "and the nearest family is that of metaworld/door-open"),
        ("hopper_stand", r"such as dmc/hopper_stand, dmc-pixels/hopper_stand \("),
        ("atari/Pong", "such as minigrid/LavaGapS7, dmc/hopper_stand, "),
        ("metaworld/", "such as minigrid/LavaGapS7, dmc/hopper_stand, "),
    ],
)
def test_a_family_that_is_none_is_answered_with_what_was_meant(task, meant):
    with pytest.raises(ValueError, match=f"task '{task}' does not exist; tasks are written family/name, {meant}"):
        check_task(task)


def test_what_is_not_installed_is_nobodys_nearest(monkeypatch):
    monkeypatch.setattr("vcse.envs.mujoco.dmc._installed", lambda: False)
    with pytest.raises(ValueError, match="such as minigrid/LavaGapS7, "):
        check_task("hopper_stand")


def test_a_goal_is_hidden_where_there_is_one():
    assert marker_of("metaworld/door-open") is True
    assert marker_of("dmc-pixels/hopper_stand") is None
    assert marker_of("metaworld/door-open", False) is False
    with pytest.raises(ValueError, match=r"goal_marker is for metaworld/\.\.\., .* not for dmc-pixels/hopper_stand"):
        marker_of("dmc-pixels/hopper_stand", False)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "at least one environment is needed, got no tasks"),
        (["dmc/hopper_stand", "minigrid/LavaGapS7"], "of one family, got dmc/hopper_stand and minigrid/LavaGapS7"),
    ],
)
def test_environments_that_cannot_be_made_together_are_refused(tasks, message):
    with pytest.raises(ValueError, match=message):
        make_environments(tasks, Making())


@pytest.mark.parametrize("task", ["gymnasium/CartPole-v1", "minigrid/Empty-5x5", "minigrid-table/SimpleCrossingS9N1"])
def test_environments_that_begin_by_themselves_need_a_seed_each(task):
    with pytest.raises(ValueError, match="seeds must be one for each of 3 environments, got 2"):
        make_environments([task] * 3, Making(seeds=[4, 5]))
    with pytest.raises(ValueError, match="at least one environment is needed, got no seeds"):
        make_environments([task] * 3, Making())
