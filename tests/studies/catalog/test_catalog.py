import dataclasses

import pytest
import torch

from vcse.bonuses.registry import make_bonus
from vcse.cli import main
from vcse.envs.tasks import check_task, observation_kind, task_spec
from vcse.launch.cohorts import alike
from vcse.nets.observers import make_encoder
from vcse.studies.catalog import CATALOG, study
from vcse.studies.catalog.minigrid import CROSSED_MAP, CROSSED_WALL
from vcse.studies.local import form_cohorts
from vcse.studies.study import Claim, narrowed, run_configs

PAPERS = {  # every experiment of the paper: runs per method and task
    "minigrid": 16,
    "minigrid-beta-se": 8,
    "minigrid-beta-vcse": 8,
    "minigrid-k": 8,
    "minigrid-values": 16,
    "minigrid-heatmap": 8,
    "minigrid-full": 16,
    "dmc-pixels": 16,
    "dmc-pixels-rcse": 8,
    "dmc-pixels-batch": 8,
    "dmc-pixels-beta-se": 8,
    "dmc-pixels-decay": 8,
    "dmc-states": 16,
    "metaworld": 16,
    "metaworld-mwm": 16,
}


OURS = {
    *("minigrid-readings", "minigrid-controls", "minigrid-value", "dmc-states-controls", "dmc-pixels-controls"),
    *("metaworld-remedies", "metaworld-clean", "metaworld-mwm-controls", "value-fork"),
}
EXPLORATORY = {"metaworld-remedies"}  # without a claim


def test_every_experiment_of_the_paper_is_there_and_eight_of_our_own():
    assert {*PAPERS, *OURS} == set(CATALOG)
    assert {name: CATALOG[name].seeds for name in PAPERS} == PAPERS


@pytest.mark.parametrize("entry", CATALOG.values(), ids=list(CATALOG))
def test_methods_are_told_apart_in_words_that_fit_a_legend(entry):
    words = [method.in_words for method in (*entry.methods, *entry.beside)]
    assert len(set(words)) == len(words)
    assert [each for each in words if len(each) > 42] == []


def test_a_method_is_called_by_its_label_its_bonus_or_its_explanation():
    entry = CATALOG["minigrid-value"]
    words = {method.name: method.in_words for method in entry.methods}
    assert (words["none"], words["se-matched"]) == ("no bonus", "VCSE without value")
    assert (words["se-beta-0.05"], words["vcse-centered"]) == ("SE, ten times its weight", "VCSE less its mean")


def test_claims_about_the_control_compare_bonuses_with_and_without_the_value():
    found = {
        entry.name: [(claim.better, claim.than) for claim in entry.claims if entry.is_about_control(claim)]
        for entry in CATALOG.values()
    }
    assert found["minigrid"] == found["value-fork"] == [("vcse", "se-matched")]
    assert found["minigrid-controls"] == [("vcse", "se-matched"), ("vcse-log1p", "se-matched-log1p")]
    assert [pair[0] for pair in found["minigrid-value"]] == ["vcse-centered"] * 2 + ["vcse-standardized"] * 2
    assert found["dmc-pixels"] == []


@pytest.mark.parametrize("entry", CATALOG.values(), ids=list(CATALOG))
def test_claims_are_about_methods_and_tasks_that_the_study_has(entry):
    assert len(set(entry.method_names)) == len(entry.methods)
    assert len(set(entry.task_names)) == len(entry.tasks)
    assert bool(entry.claims) == (entry.name not in EXPLORATORY)
    for claim in entry.claims:
        named = (claim.better, claim.than) if isinstance(claim, Claim) else (claim.method,)
        assert set(named) <= set(entry.method_names) or (isinstance(claim, Claim) and claim.where_run)
        assert set(claim.tasks) <= set(entry.task_names)
    assert all(frame < task.frames for task in entry.tasks for frame in task.table_frames)


@pytest.mark.parametrize("entry", CATALOG.values(), ids=list(CATALOG))
def test_runs_have_tasks_and_bonuses_that_exist(entry):
    configs = run_configs(entry)
    assert len(configs) == len(entry.tasks) * entry.runs_per_task
    assert {config.seed for config in configs} >= set(range(entry.first_seed, entry.first_seed + entry.seeds))
    assert len({config.name for config in configs}) == len(configs)
    for task in entry.task_names:
        check_task(task)
        if entry.agent == "a2c":
            make_encoder(observation_kind(task), task_spec(task).observation_shape, [torch.Generator()])
    for choice in {config.settings.bonus for config in configs}:
        make_bonus(choice, learners=2, dimensions=2)


def test_methods_of_a_task_differ_in_more_than_their_names():
    for entry in CATALOG.values():
        alike = {}
        for config in run_configs(narrowed(entry, seeds=1)):
            settings = dataclasses.replace(config, method="any")
            assert alike.setdefault(settings, config.method) == config.method, f"{config.name} of {entry.name}"


@pytest.mark.parametrize(
    ("name", "task"),
    [
        ("minigrid", "minigrid/LavaGapS7"),
        ("minigrid-full", "minigrid-full/LavaGapS7"),
        ("dmc-states", "dmc/hopper_stand"),
        ("dmc-pixels", "dmc-pixels/walker_walk"),
        ("metaworld", "metaworld/door-open"),
    ],
)
def test_a_study_is_what_vcse_train_makes_of_the_same_names(monkeypatch, tmp_path, name, task):
    asked = [each for each in run_configs(narrowed(study(name), seeds=2)) if each.task == task]
    made = []
    monkeypatch.setattr("vcse.cli.train.train_in_jobs", lambda configs, out, **settings: made.extend(configs))
    bonuses = list(dict.fromkeys(config.settings.bonus.name for config in asked))
    frames = str(asked[0].frames)
    command = ["train", "--task", task, "--bonus", *bonuses, "--seeds", "2", "--frames", frames, "--quiet"]
    assert main([*command, "--out", str(tmp_path)]) == 0
    assert made == asked


def test_readings_set_injection_and_weight_as_their_labels_say():
    settings = {
        config.method: (config.settings.bonus.reading, config.settings.injection, config.settings.beta)
        for config in run_configs(narrowed(study("minigrid-readings"), seeds=1, tasks=["LavaGapS7"]))
    }
    assert settings["vcse-release"] == ("release-a2c", "after_gae", 0.005)
    assert settings["vcse-release-reward-beta-0.00125"] == ("release-a2c", "reward", 0.00125)
    assert settings["vcse-paper"] == ("paper", "reward", 0.005)
    assert settings["vcse-clean-advantage"] == ("clean", "after_gae", 0.005)


def test_values_are_exact_where_the_label_says_so():
    sources = {
        config.method: (config.settings.values, config.settings.bonus_features)
        for config in run_configs(narrowed(study("minigrid-values"), seeds=1))
    }
    assert sources == {
        "none": ("network", "position"),
        "se": ("network", "position"),
        "vcse": ("network", "position"),
        "vcse-exact": ("exact", "position"),
        "vcse-exact-stationary": ("exact-stationary", "position"),
    }


def test_the_twelve_arms_of_minigrid_value_differ_as_their_names_say():
    found = {
        config.method: (
            config.settings.bonus.name,
            config.settings.bonus.scaling,
            config.settings.bonus.log_offset,
            config.settings.beta,
            config.settings.injection,
            config.settings.step_cost,
            config.settings.values,
        )
        for config in run_configs(study("minigrid-value"))
    }
    assert found == {
        "none": ("none", "raw", None, 0.005, "after_gae", 0.0, "network"),
        "none-cost": ("none", "raw", None, 0.005, "reward", 0.02, "network"),
        "se-beta-0.05": ("se", "raw", None, 0.05, "after_gae", 0.0, "network"),
        "vcse": ("vcse", "raw", None, 0.005, "after_gae", 0.0, "network"),
        "vcse-centered": ("vcse", "centered", None, 0.005, "after_gae", 0.0, "network"),
        "vcse-centered-cost": ("vcse", "centered", None, 0.005, "after_gae", 0.02, "network"),
        "se-matched": ("se-matched", "raw", None, 0.005, "after_gae", 0.0, "network"),
        "se-matched-centered": ("se-matched", "centered", None, 0.005, "after_gae", 0.0, "network"),
        "vcse-standardized": ("vcse", "standardized", 1.0, 0.02, "after_gae", 0.0, "network"),
        "se-matched-standardized": ("se-matched", "standardized", 1.0, 0.02, "after_gae", 0.0, "network"),
        "vcse-permuted": ("vcse", "standardized", 1.0, 0.02, "after_gae", 0.0, "permuted"),
        "vcse-frozen": ("vcse", "standardized", 1.0, 0.02, "after_gae", 0.0, "frozen"),
    }


def test_minigrid_value_has_the_tasks_of_minigrid_and_seeds_of_its_own():
    entry = study("minigrid-value")
    frames = {task.name: task.frames for task in entry.tasks}
    assert frames == {task.name: task.frames for task in study("minigrid").tasks} | {"minigrid/DoorKey-8x8": 1_000_000}
    configs = run_configs(entry)
    assert {config.seed for config in configs} == set(range(100, 156))
    assert {config.settings.bonus.k for config in configs if config.settings.bonus.name != "none"} == {3, 5}
    assert {(config.reading, config.settings.time_limit) for config in configs} == {("release", "ends")}


def test_all_arms_of_minigrid_value_on_tasks_of_one_length_are_trained_in_one_stack():
    cohorts = alike(run_configs(narrowed(study("minigrid-value"), seeds=1)))
    assert {cohort[0].frames: len(cohort) for cohort in cohorts} == {
        200_000: 12,
        250_000: 12,
        500_000: 36,
        1_000_000: 12,
    }
    assert len(cohorts) == 4
    block = form_cohorts(run_configs(narrowed(study("minigrid-value"), seeds=28)), jobs=1, device="cuda")
    assert [len(cohort) for cohort in block] == [336] * 6


def test_the_trial_of_remedies_is_nine_runs_from_seed_20():
    runs = {
        (config.method, config.seed): (
            config.reading,
            config.settings.pre_activation_penalty,
            config.settings.actor_normalization,
            config.settings.reward_normalization,
        )
        for config in run_configs(study("metaworld-remedies"))
    }
    assert runs == {
        ("clean-penalty-centered", 20): ("clean", 0.1, False, "centered"),
        ("clean-penalty-centered", 21): ("clean", 0.1, False, "centered"),
        ("clean-normalized-centered", 20): ("clean", 0.0, True, "centered"),
        ("clean-normalized-centered", 21): ("clean", 0.0, True, "centered"),
        ("clean-penalty-mean", 20): ("clean", 0.1, False, "mean"),
        ("clean-normalized-mean", 20): ("clean", 0.0, True, "mean"),
        ("clean-penalty-n-step", 20): ("clean", 0.1, False, "n_step_mean"),
        ("release-penalty-centered", 20): ("release", 0.1, False, "centered"),
        ("recommended-penalty-centered", 20): ("recommended", 0.1, False, "centered"),
    }
    assert {config.frames for config in run_configs(study("metaworld-remedies"))} == {100_000}


def test_clean_on_door_open_differs_in_the_bonus_alone():
    configs = run_configs(study("metaworld-clean"))
    assert [(config.method, config.seed) for config in configs] == [
        (method, seed) for method in ("none", "se", "vcse", "se-matched") for seed in range(5)
    ]
    assert {(config.task, config.frames, config.reading) for config in configs} == {
        ("metaworld/door-open", 150_000, "clean")
    }
    for config in configs:
        settings = config.settings
        assert (settings.pre_activation_penalty, settings.reward_normalization) == (0.1, "centered")
        assert settings.bonus.name == config.method


def test_sac_from_states_has_the_numbers_of_the_release():
    configs = run_configs(study("dmc-states"))
    assert len(configs) == 4 * 3 * 16
    by_method = {config.method: config.settings for config in configs}
    assert {method: (sac.temperature, sac.has_extrinsic_critic) for method, sac in by_method.items()} == {
        "none": ("learned", False),
        "se": (0.001, False),
        "vcse": (0.001, True),
    }
    for config in configs:
        sac = config.settings
        assert sac == by_method[config.method]
        assert (sac.bonus.reading, sac.bonus.k, sac.beta) == ("release-sac", 12, 0.1)
        assert (sac.batch_size, sac.hidden_units, sac.learning_rate, sac.discount) == (1024, 1024, 1e-4, 0.99)
        assert (sac.target_rate, sac.target_every_updates, sac.initial_temperature) == (0.005, 2, 0.1)
        assert (sac.seed_frames, sac.updates_per_step) == (5000, 1)
        assert (sac.value_critic, sac.extrinsic_entropy) == ("target", False)
        assert (config.reading, config.backend, config.eval_every_frames, config.eval_episodes) == (
            "release",
            "dm_control",
            10_000,
            10,
        )
        assert config.frames <= sac.replay_capacity  # nothing is forgotten


def test_masked_world_models_have_the_numbers_of_the_release():
    configs = run_configs(study("metaworld-mwm"))
    assert len(configs) == 4 * 3 * 16
    by_method = {config.method: config.settings for config in configs}
    assert {method: mwm.has_extrinsic_critic for method, mwm in by_method.items()} == {
        "none": False,
        "se": False,
        "vcse": True,
    }
    for config in configs:
        mwm = config.settings
        assert mwm == by_method[config.method]
        assert (mwm.bonus.reading, mwm.bonus.k, mwm.beta, mwm.image_size) == ("release-mwm", 12, 1.0, 64)
        assert (mwm.batch_size, mwm.sequence_length, mwm.horizon) == (50, 50, 15)
        assert (config.frames, config.eval_every_frames, config.eval_episodes) == (500_000, 20_000, 10)


def test_the_control_of_masked_world_models_differs_from_vcse_in_the_bonus_alone():
    configs = {config.method: config for config in run_configs(narrowed(study("metaworld-mwm-controls"), seeds=1))}
    vcse, matched = configs["vcse"], configs["se-matched"]
    assert dataclasses.replace(matched.settings, bonus=vcse.settings.bonus) == vcse.settings
    assert dataclasses.replace(matched.settings.bonus, name="vcse") == vcse.settings.bonus


def test_an_unknown_study_is_answered_with_the_nearest():
    with pytest.raises(ValueError, match=r"'dmc-state' does not exist; nearest are dmc-states, .*list lists all 24\)"):
        study("dmc-state")


def test_the_map_of_the_visits_has_its_wall_where_the_metric_looks():
    from vcse.envs.minigrid.crossing import MAPS

    crossed = MAPS[CROSSED_MAP]
    walls = [crossed.is_wall(CROSSED_WALL, y) for y in range(1, 8)]
    assert sum(walls) == 6
    assert not crossed.is_wall(CROSSED_WALL, 5)
