import dataclasses

import pytest

from vcse.agents import agent_entry
from vcse.studies.catalog import CATALOG
from vcse.studies.catalog.durations import CORES, HOURS
from vcse.studies.study import run_configs


def hours(entry, device):
    """Compute how long all runs of a study take, from the costs of its agent."""
    one = dataclasses.replace(
        entry, seeds=1, methods=tuple(dataclasses.replace(method, more_seeds=0) for method in entry.methods)
    )
    runs = {method.name: entry.seeds + method.more_seeds for method in entry.methods}
    costs = agent_entry(entry.agent).expected_seconds
    return sum(costs(config, device) * runs[config.method] for config in run_configs(one)) / 3600


@pytest.mark.parametrize("entry", CATALOG.values(), ids=list(CATALOG))
def test_hours_are_those_of_the_agents_costs(entry):
    found = hours(entry, "cpu") / CORES, hours(entry, "cuda")
    assert HOURS[entry.name] == pytest.approx(found, rel=0.1), f"write ({found[0]:.2g}, {found[1]:.2g})"


def test_every_study_has_hours():
    assert HOURS.keys() == CATALOG.keys()
