import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest

from runs.small import make_config
from runs.small_pixels import make_config as make_pixel_config
from runs.small_sac import make_config as make_sac_config
from vcse.agents import agent_entry, upgraded_content
from vcse.agents.a2c.settings import A2CSettings, a2c_settings
from vcse.agents.drqv2.settings import DrQv2Settings, drqv2_settings
from vcse.agents.sac.settings import sac_settings
from vcse.bonuses.registry import BonusChoice
from vcse.runs.config import RunConfig, difference, flat, upgraded
from vcse.runs.directory import check_config

# What releases whose schema was 1 wrote of these runs: not by what the library has for it now.
SCHEMA_1 = json.loads((Path(__file__).parent / "schema1.json").read_text())
# What commits of schema 2 wrote before `reward_normalization` took the place of `normalize_reward`.
SCHEMA_2 = json.loads((Path(__file__).parent / "schema2.json").read_text())
TABLE, WHOLE, HOPPER, DOOR = (
    "minigrid-table/SimpleCrossingS9N1",
    "minigrid-full/SimpleCrossingS9N1",
    "dmc-pixels/hopper_stand",
    "metaworld/door-open",
)
LOOKS = {"row_every_frames": 10_000, "eval_every_frames": 10_000, "eval_episodes": 10}
TODAY = {
    "a2c": RunConfig("minigrid/LavaGapS7", "a2c", "vcse", 0, "release", 100_000, a2c_settings("vcse")),
    "a2c with exact values": RunConfig(
        TABLE,
        "a2c",
        "vcse-exact",
        3,
        "clean",
        400_000,
        a2c_settings("vcse", "clean", log_offset=1.0, environments=4, values="exact"),
        backend="table",
        visits_every_frames=10_000,
    ),
    "a2c that keeps its extrinsic critic": RunConfig(
        WHOLE,
        "a2c",
        "none",
        0,
        "release",
        100_000,
        a2c_settings("none", bonus_features="position", keep_extrinsic_critic=True),
        backend="minigrid",
    ),
    "sac with a learned temperature": RunConfig(
        "dmc/hopper_stand",
        "sac",
        "none",
        0,
        "release",
        500_000,
        sac_settings("none", temperature="learned"),
        backend="dm_control",
        **LOOKS,
    ),
    "sac with a fixed temperature": RunConfig(
        "dmc/hopper_stand",
        "sac",
        "se",
        0,
        "paper",
        500_000,
        sac_settings("se", "paper", k=5, hidden_units=256, temperature=0.001),
        backend="dm_control",
        keep_replay=False,
        **LOOKS,
    ),
    "drqv2 with a noise schedule": RunConfig(
        HOPPER,
        "drqv2",
        "none",
        0,
        "release",
        1_000_000,
        drqv2_settings("none", task=HOPPER, action_noise=(1.0, 0.1, 100_000)),
        backend="dm_control",
        rendering="faithful",
        **LOOKS,
    ),
    "drqv2 at every step": RunConfig(
        DOOR,
        "drqv2",
        "vcse",
        0,
        "paper",
        250_000,
        drqv2_settings(
            "vcse",
            "paper",
            task=DOOR,
            bonus_batch_size=1024,
            action_noise=0.2,
            return_injection="every_step",
            reward_normalization="mean",
        ),
        backend="metaworld",
        rendering="light",
        goal_marker=True,
        keep_replay=False,
        **LOOKS,
    ),
    "drqv2 with a hidden goal": RunConfig(
        DOOR,
        "drqv2",
        "none",
        0,
        "release",
        250_000,
        drqv2_settings("none", task=DOOR, action_noise=(0.5, 0.1, 1000)),
        backend="metaworld",
        rendering="fast",
        goal_marker=False,
    ),
}
SINCE = {
    "drqv2 with rewards as they are": RunConfig(
        HOPPER,
        "drqv2",
        "se",
        0,
        "clean",
        250_000,
        drqv2_settings("se", "clean", task=HOPPER, reward_normalization="none"),
        backend="dm_control",
        rendering="light",
        keep_replay=False,
        **LOOKS,
    ),
    "drqv2 with rewards divided by their mean": RunConfig(
        DOOR,
        "drqv2",
        "vcse",
        0,
        "release",
        250_000,
        drqv2_settings("vcse", task=DOOR, reward_normalization="mean"),
        backend="metaworld",
        rendering="light",
        goal_marker=True,
        keep_replay=False,
        **LOOKS,
    ),
}
OF_EVERY_AGENT = [
    make_config(bonus="none", reading="clean"),
    make_config(reading="clean", settings=a2c_settings("vcse", "clean", environments=4, values="exact")),
    make_sac_config("none"),
    make_sac_config("vcse", keep_replay=False),
    make_pixel_config("none"),
    make_pixel_config("vcse", task=DOOR, goal_marker=False),
]


def written(content):
    """Return what a file holds once it is read again: without tuples."""
    return json.loads(json.dumps(content))


@pytest.mark.parametrize("config", OF_EVERY_AGENT, ids=lambda config: config.name)
def test_a_configuration_survives_json(config):
    content = written(config.to_json())
    assert content["schema_version"] == 2
    assert RunConfig.from_json(content, agent_entry(config.agent).settings) == config


@pytest.mark.parametrize("name", SCHEMA_1)
def test_what_schema_1_holds_is_the_same_run_today(name):
    stored, config = SCHEMA_1[name], TODAY[name]
    assert stored["schema_version"] == 1
    found = RunConfig.from_json(stored, agent_entry(config.agent).settings)
    assert found == config
    assert difference(config, found) == ""


@pytest.mark.parametrize("name", SCHEMA_1)
def test_what_schema_1_holds_has_the_names_of_today_once_it_is_upgraded(name):
    stored, settings = SCHEMA_1[name], agent_entry(SCHEMA_1[name]["agent"]).settings
    before = written(stored)
    found = upgraded(stored, settings)
    assert stored == before
    assert written(found) == written(TODAY[name].to_json())
    assert upgraded_content(stored) == found


@pytest.mark.parametrize("name", SCHEMA_2)
def test_what_schema_2_held_before_settings_were_replaced_is_the_same_run_today(tmp_path, name):
    stored, config = SCHEMA_2[name], SINCE[name]
    assert stored["schema_version"] == 2
    assert "normalize_reward" in stored["drqv2"]
    before = written(stored)
    assert written(upgraded(stored, DrQv2Settings)) == upgraded_content(stored) == written(config.to_json())
    assert stored == before
    assert RunConfig.from_json(stored, DrQv2Settings) == config
    (tmp_path / "config.json").write_text(json.dumps(stored))
    (tmp_path / "DONE").write_text(f"{config.frames}\n")
    assert check_config(tmp_path, config) == config


def test_all_settings_that_have_another_name_now_are_in_a_sample():
    assert set(SCHEMA_1) == set(TODAY)
    assert {each["agent"] for each in SCHEMA_1.values()} == {"a2c", "sac", "drqv2"}
    assert {each["values"] for each in SCHEMA_1.values()} == {"network", "exact"}
    assert {each["keeps_replay"] for each in SCHEMA_1.values()} == {True, False}
    temperatures = {each["sac"]["temperature"] for each in SCHEMA_1.values() if each["agent"] == "sac"}
    assert temperatures == {None, 0.001}
    for settings in (agent_entry(each).settings for each in ("a2c", "sac", "drqv2")):
        stored = [flat(each) for each in SCHEMA_1.values() if agent_entry(each["agent"]).settings is settings]
        for name in settings.renamed:
            found = {json.dumps(value) for each in stored for key, value in each.items() if key.endswith(f".{name}")}
            assert len(found) > 1, name  # more than its default


@pytest.mark.parametrize("config", OF_EVERY_AGENT, ids=lambda config: config.name)
def test_what_this_schema_holds_is_left_as_it_is(config):
    content = written(config.to_json())
    assert upgraded(content, agent_entry(config.agent).settings) == content
    assert upgraded_content(content) == content


def test_what_holds_an_unknown_agent_is_left_as_it_is():
    content = SCHEMA_1["a2c"] | {"agent": "ppo"}
    assert upgraded_content(content) == content


@pytest.mark.parametrize("name", SCHEMA_1)
def test_a_run_that_schema_1_began_may_go_on_and_no_other_in_its_place(tmp_path, name):
    (tmp_path / "config.json").write_text(json.dumps(SCHEMA_1[name]))
    config = TODAY[name]
    (tmp_path / "DONE").write_text(f"{config.frames}\n")
    assert check_config(tmp_path, config) == config
    other = dataclasses.replace(config, eval_episodes=7)
    with pytest.raises(ValueError, match=r"holds another run: eval_episodes is \d+ there and 7 here"):
        check_config(tmp_path, other)


@pytest.mark.parametrize(
    ("name", "marker"), [("drqv2 at every step", True), ("drqv2 with a noise schedule", None), ("a2c", None)]
)
def test_a_run_from_before_the_goal_could_be_hidden_is_the_same_run(name, marker):
    config = dataclasses.replace(TODAY[name], keep_replay=True)
    assert config.goal_marker is marker
    assert agent_entry(config.agent).making(config).goal_marker
    before = {key: value for key, value in SCHEMA_1[name].items() if key not in ("goal_marker", "keeps_replay")}
    assert RunConfig.from_json(before, agent_entry(config.agent).settings) == config


def test_a_run_from_before_values_could_be_exact_is_the_same_run():
    before = {key: value for key, value in SCHEMA_1["a2c"].items() if key != "values"}
    assert RunConfig.from_json(before, A2CSettings) == TODAY["a2c"]


@pytest.mark.parametrize("version", [0, 3, 99, "1", None])
def test_another_schema_is_refused(version):
    content = make_config().to_json() | {"schema_version": version}
    told = f"it has schema version {version}; this release reads 2 and 1"
    with pytest.raises(ValueError, match=told):
        RunConfig.from_json(content, A2CSettings)
    with pytest.raises(ValueError, match=told):
        upgraded(content, A2CSettings)


def test_a_configuration_without_a_schema_is_refused():
    content = {name: value for name, value in SCHEMA_1["drqv2 at every step"].items() if name != "schema_version"}
    with pytest.raises(ValueError, match="it has schema version None; this release reads 2 and 1"):
        RunConfig.from_json(content, DrQv2Settings)


def test_the_name_is_a_path_of_three_parts():
    assert make_config("minigrid-full/LavaGapS7", seed=12, method="mine").name == "minigrid-full-LavaGapS7/mine/seed12"


def test_differences_are_named_with_both_values_and_length_and_cadence_of_checkpoints_are_none():
    config = make_config()
    other = dataclasses.replace(
        config,
        frames=5,
        eval_episodes=7,
        settings=dataclasses.replace(config.settings, bonus=BonusChoice("vcse", "paper", 4)),
    )
    assert difference(config, config) == ""
    assert difference(config, dataclasses.replace(config, frames=5, checkpoint_every_frames=7)) == ""
    assert difference(config, dataclasses.replace(config, keep_replay=False)) == ""
    assert difference(config, other).split("; ") == [
        "a2c.bonus.reading is 'paper' there and 'release-a2c' here",
        "a2c.bonus.k is 4 there and 3 here",
        "eval_episodes is 7 there and 2 here",
    ]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"frames": 0}, "frames must be at least 1, got 0"),
        ({"frames": 64.5}, "frames must be a whole number, got 64.5"),
        ({"frames": "100k"}, "frames must be a whole number, got '100k'"),
        ({"eval_episodes": float("inf")}, "eval_episodes must be a whole number, got inf"),
        ({"row_every_frames": 0}, "row_every_frames must be at least 1, got 0"),
        ({"checkpoint_every_frames": -1}, "checkpoint_every_frames must be at least 1, got -1"),
        ({"eval_episodes": -1}, "eval_episodes must not be negative, got -1"),
        ({"seed": -1}, "seed must be from 0 to 1,000,000,000, got -1"),
        ({"seed": 3_000_000_000}, "seed must be from 0 to 1,000,000,000, got 3000000000"),
        ({"method": ".."}, "method names a directory"),
        ({"method": "a/b"}, "method names a directory"),
    ],
)
def test_what_cannot_be_a_run_is_refused(changes, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        make_config(**changes)


def test_whole_numbers_of_other_types_are_those_of_python(without_type_checks):
    config = make_config(frames=1e5, seed=np.int64(3), eval_episodes=np.float32(2))
    assert json.dumps(config.to_json()) == json.dumps(make_config(frames=100_000, seed=3, eval_episodes=2).to_json())
