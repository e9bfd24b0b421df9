import dataclasses

import pytest
from runs.small import train
from runs.small_sac import FRAMES, make_config

from vcse.agents.sac.agent import SAC, SACSpec
from vcse.agents.sac.costs import _checkpoint_bytes, expected_seconds, needs
from vcse.envs.tasks import task_spec
from vcse.runs import checkpoint


def test_a_run_needs_what_its_replay_then_takes(tmp_path):
    config = make_config("none", eval_episodes=0)
    train([config], tmp_path)
    rows = (tmp_path / config.name / "replay.bin").stat().st_size
    assert needs(config).replay == rows
    forgetful = make_config(config.method, settings={"replay_capacity": FRAMES // 2})
    assert needs(forgetful).replay == rows // 2
    assert needs(forgetful).files == needs(config).files > rows
    dropping = needs(dataclasses.replace(config, keep_replay=False))
    assert (dropping.until_done, dropping.files) == (rows, needs(config).files - rows)


@pytest.mark.parametrize("bonus", ["none", "se", "vcse"])
@pytest.mark.parametrize("hidden_units", [16, 256])
def test_a_checkpoint_is_as_large_as_is_said_before(tmp_path, bonus, hidden_units):
    task = "dmc/walker_walk"
    config, spec = make_config(bonus, task=task, settings={"hidden_units": hidden_units}), task_spec(task)
    state = SAC(SACSpec(spec.observation_shape[0], spec.action_size), [config.settings], [0]).learner_state(0)
    size = checkpoint.save(tmp_path, 0, {"agent": state}).stat().st_size
    expected = _checkpoint_bytes(config)
    assert expected == pytest.approx(size, rel=0.02, abs=30_000)  # names and shapes take some, too
    assert needs(config).files == needs(config).replay + 2 * expected


def test_a_run_with_fewer_updates_is_expected_to_take_less_time():
    def seconds(**settings):
        return expected_seconds(make_config("vcse", frames=100_000, settings=settings), "cpu")

    large = {"hidden_units": 1024, "batch_size": 1024, "seed_frames": 20_000}
    assert seconds(**large, updates_per_step=0.5) == pytest.approx(seconds(**large) / 2)
    assert seconds(**large, updates_per_step=0.0) > 0  # it acts
