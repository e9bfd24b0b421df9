import pytest
from runs.small import make_config

from vcse.agents.a2c.costs import expected_seconds, needs
from vcse.agents.a2c.settings import a2c_settings
from vcse.launch.configs import run_configs


def test_large_updates_take_memory_and_are_made_whole():
    small, large = (
        make_config(frames=100, settings=a2c_settings("vcse", environments=environments)) for environments in (4, 4000)
    )
    assert needs(large).working - needs(small).working == pytest.approx(8 * 3996 * 17_000)
    seconds = [expected_seconds(config, "cpu") for config in (small, large)]
    assert seconds[1] > seconds[0] * (32_000 + 30_000) / (128 + 30_000) * 0.99


def test_images_take_more_than_grids_and_states_no_more():
    grid, state, image = (
        run_configs(task, "vcse", frames=10_000)[0]
        for task in ("minigrid/Empty-5x5", "gymnasium/CartPole-v1", "gymnasium-pixels/CartPole-v1")
    )
    assert needs(state).working == needs(grid).working
    assert needs(image).working > needs(grid).working + 128 * 84 * 84 * 3
    assert needs(image).files > needs(grid).files + 2 * 4 * 345_000  # parameters in two checkpoints
    assert expected_seconds(grid, "cpu") < expected_seconds(state, "cpu") < expected_seconds(image, "cpu")
