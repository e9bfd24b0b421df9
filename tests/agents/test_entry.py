import dataclasses

import pytest
from runs.small import LAVA, make_config
from runs.small_pixels import make_config as make_pixel_config
from runs.small_sac import make_config as make_sac_config

from vcse.agents.drqv2 import costs
from vcse.agents.drqv2.agent import DrQv2, DrQv2Spec
from vcse.agents.entry import AGENTS
from vcse.agents.sac import cohort
from vcse.agents.sac.agent import SAC, SACSpec
from vcse.envs.mujoco.pixels import pixel_spec
from vcse.envs.tasks import AGENT_OF_FAMILY, state_spec
from vcse.launch.cohorts import COHORTS, cohort_key
from vcse.runs import checkpoint
from vcse.studies.catalog import CATALOG

CONFIGS = {"a2c": make_config(LAVA), "sac": make_sac_config(), "drqv2": make_pixel_config()}


def test_every_agent_has_a_loop_tasks_and_a_study():
    assert list(COHORTS) == list(AGENTS) == list(CONFIGS)
    assert set(AGENT_OF_FAMILY.values()) == set(AGENTS)
    assert {entry.agent for entry in CATALOG.values() if entry.is_runnable} == set(AGENTS)


@pytest.mark.parametrize("agent", AGENTS)
def test_a_loop_says_of_its_runs_what_they_take_and_which_go_together(agent):
    config, cohort = CONFIGS[agent], COHORTS[agent]
    cohort.check(config)
    longer = dataclasses.replace(config, frames=100 * config.frames)
    for device in AGENTS[agent].most_runs:
        assert 0 < cohort.expected_seconds(config, device) < cohort.expected_seconds(longer, device)
    assert 0 < cohort.needs(config).files < cohort.needs(longer).files
    assert cohort.needs(config).working > 0
    assert (cohort.needs(config).replay > 0) == (cohort.needs(longer).replay > 0) == (agent != "a2c")
    other = dataclasses.replace(config, seed=config.seed + 1)
    assert (cohort_key(other) == cohort_key(config)) == (AGENTS[agent].most_runs["cuda"] > 1)


@pytest.mark.parametrize("agent", AGENTS)
def test_settings_follow_from_a_bonus_a_reading_and_a_task(agent):
    facts, task = AGENTS[agent], CONFIGS[agent].task
    for reading in ("release", "paper", "clean"):
        settings = facts.settings_for("vcse", reading, task=task, k=7)
        assert isinstance(settings, facts.settings)
        assert settings.bonus.k == 7


@pytest.mark.parametrize("bonus", ["none", "se", "vcse"])
@pytest.mark.parametrize("hidden_units", [16, 256])
@pytest.mark.parametrize(
    ("agent", "make", "task"),
    [("sac", make_sac_config, "dmc/walker_walk"), ("drqv2", make_pixel_config, "metaworld/door-open")],
)
def test_a_checkpoint_is_as_large_as_is_said_before(tmp_path, agent, make, task, bonus, hidden_units):
    if agent == "drqv2":
        pytest.importorskip("metaworld")
    config = make(bonus, task=task, settings={"hidden_units": hidden_units})
    if agent == "sac":
        spec = state_spec(task)
        sizes = SACSpec(spec.observation_size, spec.action_size)
        state = SAC(sizes, [config.sac], [0]).learner_state(0)
        expected = cohort._checkpoint_bytes(config)
    else:
        state = DrQv2(DrQv2Spec(9, pixel_spec(task).action_size), config.drqv2, 0).state_dict()
        expected = costs._checkpoint_bytes(config)
    size = checkpoint.save(tmp_path, 0, {"agent": state}).stat().st_size
    assert expected == pytest.approx(size, rel=0.02, abs=30_000)  # names and shapes take some, too
    needs = COHORTS[agent].needs(config)
    assert needs.files == needs.replay + 2 * expected
