import dataclasses

import pytest
from runs.small import LAVA, make_config
from runs.small_pixels import make_config as make_pixel_config
from runs.small_sac import make_config as make_sac_config

from vcse.agents import agent_entry, agent_names, agents_for, agents_of, register_agent
from vcse.agents.mwm.settings import mwm_settings
from vcse.envs.tasks import families
from vcse.launch.cohorts import cohort_key
from vcse.runs.arithmetic import Arithmetic
from vcse.studies.catalog import CATALOG

PIXELS = make_pixel_config()
CONFIGS = {
    "a2c": make_config(LAVA),
    "sac": make_sac_config(),
    "drqv2": PIXELS,
    "mwm": dataclasses.replace(PIXELS, agent="mwm", settings=mwm_settings("vcse")),
}


def test_every_agent_has_a_loop_tasks_and_a_study():
    assert agent_names() == tuple(CONFIGS)
    assert {agent for family in families() for agent in agents_of(family)} == set(agent_names())
    assert {entry.agent for entry in CATALOG.values()} == set(agent_names())


@pytest.mark.parametrize("agent", CONFIGS)
def test_an_agent_is_found_by_its_name_and_for_its_tasks(agent):
    assert agent_entry(agent).name == agent
    assert agent in agents_for(CONFIGS[agent].task)
    assert agents_for(CONFIGS["drqv2"].task)[:2] == ("drqv2", "mwm")


def test_an_unknown_agent_is_refused():
    with pytest.raises(ValueError, match=f"agent must be one of {', '.join(agent_names())}, got 'ppo'"):
        agent_entry("ppo")


def test_a_name_that_is_taken_is_refused():
    with pytest.raises(ValueError, match="agent 'sac' is registered already"):
        register_agent(dataclasses.replace(agent_entry("sac"), observes="grid"))
    assert agent_entry("sac").observes == "state"


@pytest.mark.parametrize("agent", CONFIGS)
def test_settings_of_another_agent_are_refused(agent):
    [other, *_] = [each for each in CONFIGS if each != agent]
    mixed = dataclasses.replace(CONFIGS[agent], settings=CONFIGS[other].settings)
    own, theirs = (agent_entry(each).settings.__name__ for each in (agent, other))
    for ask in (agent_entry(agent).needs, agent_entry(agent).warning if agent != "a2c" else agent_entry(agent).check):
        with pytest.raises(ValueError, match=f"settings must be of the class {own}, got {theirs}"):
            ask(mixed)


@pytest.mark.parametrize(
    ("agent", "device", "expected"),
    [
        ("a2c", "cuda", Arithmetic("highest", False)),
        ("sac", "cuda", Arithmetic("high", False)),
        ("drqv2", "cuda", Arithmetic("high", True)),
        ("drqv2", "cpu", Arithmetic("highest", False)),
        ("mwm", "cuda", Arithmetic("high", True)),
    ],
)
def test_how_exactly_products_are_computed_follows_from_agent_and_device(agent, device, expected):
    assert agent_entry(agent).arithmetic(device) == expected


@pytest.mark.parametrize("agent", CONFIGS)
def test_a_loop_says_of_its_runs_what_they_take_and_which_go_together(agent):
    config, cohort = CONFIGS[agent], agent_entry(agent)
    cohort.check(config)
    longer = dataclasses.replace(config, frames=100 * config.frames)
    for device in agent_entry(agent).most_runs:
        assert 0 < cohort.expected_seconds(config, device) < cohort.expected_seconds(longer, device)
    assert 0 < cohort.needs(config).files < cohort.needs(longer).files
    assert cohort.needs(config).working > 0
    assert (cohort.needs(config).replay > 0) == (cohort.needs(longer).replay > 0) == (agent != "a2c")
    other = dataclasses.replace(config, seed=config.seed + 1)
    assert (cohort_key(other) == cohort_key(config)) == (agent_entry(agent).most_runs["cuda"] > 1)


@pytest.mark.parametrize("agent", CONFIGS)
def test_settings_follow_from_a_bonus_a_reading_and_a_task(agent):
    facts, task = agent_entry(agent), CONFIGS[agent].task
    for reading in ("release", "paper", "clean"):
        settings = facts.settings_for("vcse", reading, task=task, k=7)
        assert isinstance(settings, facts.settings)
        assert settings.bonus.k == 7
