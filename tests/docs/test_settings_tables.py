"""The tables of settings on the agents' pages are what the settings say of themselves."""

import importlib.util
from pathlib import Path

import pytest

from vcse.agents import agent_entry
from vcse.settings import described

DOCS = Path(__file__).parents[2] / "docs"
AGENTS = ("a2c", "sac", "drqv2", "mwm")


@pytest.fixture(scope="module")
def settings_tables():
    spec = importlib.util.spec_from_file_location("settings_tables", DOCS / "settings_tables.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("agent", AGENTS)
def test_page_has_the_table_of_its_agent(settings_tables, agent):
    page = (DOCS / f"{agent}.md").read_text()
    assert settings_tables.with_tables(page) == page, "python docs/settings_tables.py writes it anew"
    for name in described(agent_entry(agent).settings):
        assert f"`--{name.replace('_', '-')}`" in page or f"`--set {name}=...`" in page


def test_a_row_has_default_range_and_words(settings_tables):
    table = settings_tables.settings_table(agent_entry("sac").settings).splitlines()
    assert "| `--updates-per-step` | `1.0` | 0 or more | Updates per step; 0.5 is one at every other step. |" in table
    units = "Units of each of the two hidden layers of every network."
    assert f"| `--hidden-units` | 256 for gymnasium/..., else 1024 | 1 or more | {units} |" in table
    [critic] = [row for row in table if row.startswith("| `--value-critic` |")]
    assert "| `online`, `target` |" in critic
