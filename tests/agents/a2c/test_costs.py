import pytest
from runs.small import make_config

from vcse.agents.a2c.costs import expected_seconds, needs
from vcse.agents.a2c.settings import a2c_settings


def test_large_updates_take_memory_and_are_made_whole():
    small, large = (
        make_config(frames=100, settings=a2c_settings("vcse", environments=environments)) for environments in (4, 4000)
    )
    assert needs(large).working - needs(small).working == pytest.approx(8 * 3996 * 17_000)
    seconds = [expected_seconds(config, "cpu") for config in (small, large)]
    assert seconds[1] > seconds[0] * (32_000 + 30_000) / (128 + 30_000) * 0.99
