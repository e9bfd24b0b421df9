import dataclasses
import math

import pytest
from agents.contract import SACKind

from vcse.agents.sac.settings import sac_settings

VCSE = SACKind().config("vcse")


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ("release", ("release-sac", False, None)),
        ("paper", ("paper", True, "running-mean")),
        ("clean", ("clean", False, "running-mean")),
    ],
)
def test_readings_of_sac_differ_in_formula_and_extrinsic_target(reading, expected):
    of_bonus, extrinsic_entropy, normalizer = expected
    for bonus in ("se", "vcse"):
        found = sac_settings(bonus, reading)
        assert (found.bonus.reading, found.bonus.k, found.value_critic) == (of_bonus, 12, "target")
        assert found.extrinsic_entropy is extrinsic_entropy
        assert found.bonus.normalizer == (normalizer if bonus == "se" else None)


def test_a_bonus_that_asks_for_more_states_than_there_are_is_refused():
    with pytest.raises(ValueError, match="k must be below 12, the states of a batch, got 12"):
        sac_settings("vcse", batch_size=12)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_units": 0}, "hidden_units must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"seed_frames": 0}, "seed_frames must be at least 1, got 0"),
        ({"beta": -0.1}, r"beta must be finite and not negative, got -0\.1"),
        ({"beta": math.nan}, "beta must be finite and not negative, got nan"),
        ({"step_cost": -0.1}, r"step_cost must be finite and not negative, got -0\.1"),
        ({"step_cost": math.nan}, "step_cost must be finite and not negative, got nan"),
        ({"updates_per_step": -1.0}, r"updates_per_step must be finite and not negative, got -1\.0"),
        ({"learning_rate": 0.0}, r"learning_rate must be finite and above 0, got 0\.0"),
        ({"temperature": 0.0}, r"temperature must be finite and above 0, got 0\.0"),
        ({"batch_size": 12}, "k must be below 12, the states of a batch, got 12"),
        ({"replay_capacity": 47}, "replay_capacity must be at least 48, the transitions of a batch, got 47"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(VCSE, **changes)
