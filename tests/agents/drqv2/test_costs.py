import dataclasses
import math

import pytest
from runs.small_pixels import make_config

from vcse.agents.drqv2.agent import DrQv2, DrQv2Spec
from vcse.agents.drqv2.costs import _checkpoint_bytes, capacity_of, expected_seconds, needs
from vcse.agents.drqv2.settings import IMAGE_SHAPE, drqv2_settings
from vcse.agents.image_environments import steps_of
from vcse.envs.tasks import task_spec
from vcse.runs import checkpoint
from vcse.runs.config import RunConfig

TASK = "dmc-pixels/walker_walk"
SETTINGS = drqv2_settings("none", task=TASK)
USUAL = RunConfig(TASK, "drqv2", "none", 0, "release", 100_000, SETTINGS, eval_episodes=0, rendering="fast")


def seconds(**changes):
    return expected_seconds(dataclasses.replace(USUAL, **changes), "cpu")


def test_the_time_that_a_run_takes_on_a_core_goes_with_what_it_learns_and_draws():
    paid = drqv2_settings("vcse", task=TASK)
    assert 20 < seconds() / 3600 < 24  # 24,500 updates of 512 transitions, which take 3.2 s each
    assert seconds(settings=paid) == pytest.approx(1.25 * seconds(), rel=0.01)
    assert seconds(settings=drqv2_settings("none", task=TASK, batch_size=256)) == pytest.approx(seconds() / 2, rel=0.01)
    assert seconds(settings=dataclasses.replace(paid, bonus_batch_size=1024)) > 1.1 * seconds(settings=paid)
    assert seconds(frames=4_000) < 60  # in which nothing is learned
    assert seconds(eval_every_frames=10_000, eval_episodes=10) - seconds() == pytest.approx(11 * 10 * 500 * 6e-3)
    assert seconds(rendering="faithful") > seconds()
    assert expected_seconds(USUAL, "cuda") == 200


def test_the_replay_holds_what_it_may_and_no_more_than_the_run_has():
    assert (steps_of(USUAL), capacity_of(USUAL)) == (50_000, 50_000)
    assert steps_of(dataclasses.replace(USUAL, frames=99_999)) == 50_000
    assert capacity_of(dataclasses.replace(USUAL, frames=3_000_000)) == 1_000_000


def test_what_a_replay_takes_that_is_not_kept_is_needed_until_a_run_is_done():
    kept, dropped = (needs(dataclasses.replace(USUAL, keep_replay=keeps)) for keeps in (True, False))
    frames = steps_of(USUAL) * math.prod(IMAGE_SHAPE)
    assert frames < dropped.until_done < 1.01 * frames
    assert dropped.files + dropped.until_done == kept.files
    assert dropped._replace(files=kept.files, until_done=0) == kept


@pytest.mark.parametrize("bonus", ["none", "se", "vcse"])
@pytest.mark.parametrize("hidden_units", [16, 256])
def test_a_checkpoint_is_as_large_as_is_said_before(tmp_path, bonus, hidden_units):
    pytest.importorskip("metaworld")
    task = "metaworld/door-open"
    config = make_config(bonus, task=task, settings={"hidden_units": hidden_units})
    state = DrQv2(DrQv2Spec(9, task_spec(task).action_size), config.settings, 0).state_dict()
    size = checkpoint.save(tmp_path, 0, {"agent": state}).stat().st_size
    expected = _checkpoint_bytes(config)
    assert expected == pytest.approx(size, rel=0.02, abs=30_000)  # names and shapes take some, too
    assert needs(config).files == needs(config).replay + 2 * expected
