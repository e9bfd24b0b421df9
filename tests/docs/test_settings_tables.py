"""The tables of settings in the reference are what the settings say of themselves."""

import sys
from pathlib import Path

import pytest

from vcse.agents import agent_entry

pytest.importorskip("sphinx", reason="Sphinx is not installed")
sys.path.append(str(Path(__file__).parents[2] / "docs" / "extensions"))
from settings_tables import settings_table


def test_a_row_has_default_range_and_words():
    table = settings_table(agent_entry("sac").settings).splitlines()
    assert "| `--updates-per-step` | `1.0` | 0 or more | Updates per step; 0.5 is one at every other step. |" in table
    units = "Units of each of the two hidden layers of every network."
    assert f"| `--hidden-units` | 256 for gymnasium/..., else 1024 | 1 or more | {units} |" in table
    [critic] = [row for row in table if row.startswith("| `--value-critic` |")]
    assert "| `online`, `target` |" in critic
