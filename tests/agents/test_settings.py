import dataclasses

import pytest

from vcse.agents.a2c.agent import A2CConfig
from vcse.agents.settings import a2c_config, drqv2_config, sac_config
from vcse.bonuses.registry import BonusChoice


def test_readings_say_which_neighbour_and_where_the_bonus_joins():
    release, paper, clean = (a2c_config("vcse", reading) for reading in ("release", "paper", "clean"))
    assert (release.bonus.k, release.injection, release.time_limit) == (3, "after_gae", "ends")
    assert (paper.bonus.k, paper.injection, paper.time_limit) == (5, "reward", "ends")
    assert (clean.bonus.k, clean.injection, clean.time_limit) == (5, "reward", "bootstraps")
    assert a2c_config("se", "release").bonus.k == 5
    assert a2c_config("se-matched", "release").bonus.k == 3


def test_deviations_have_the_last_word():
    config = a2c_config("vcse", "release", k=7, beta=0.1, injection="reward", time_limit="bootstraps", log_offset=1.0)
    assert config == A2CConfig(
        bonus=BonusChoice("vcse", "release-a2c", 7, log_offset=1.0),
        beta=0.1,
        injection="reward",
        time_limit="bootstraps",
    )


@pytest.mark.parametrize(
    ("bonus", "heeded"),
    [
        ("none", (None, "batch")),
        ("se", (None, "batch")),
        ("se-matched", (1.0, "batch")),
        ("vcse", (1.0, "running")),
        ("rcse", (1.0, "running")),
    ],
)
def test_of_deviations_that_a_bonus_does_not_heed_nothing_is_recorded(bonus, heeded):
    asked = {"log_offset": 1.0, "value_normalization": "running"}
    for settings in (sac_config(bonus, **asked), drqv2_config(bonus, task="dmc-pixels/hopper_stand", **asked)):
        assert (settings.bonus.log_offset, settings.bonus.value_normalization) == heeded


def test_a_baseline_is_the_same_run_whatever_is_asked_of_the_bonuses_beside_it():
    assert a2c_config("none", k=7, beta=0.1, injection="reward") == a2c_config("none")
    for bonus in ("none", "se", "rcse", "se-matched"):
        assert sac_config(bonus, value_critic="online", extrinsic_entropy=True) == sac_config(bonus)
        task = "dmc-pixels/hopper_stand"
        assert drqv2_config(bonus, task=task, value_critic="target") == drqv2_config(bonus, task=task)
    asked = {"k": 5, "beta": 1.0, "beta_decay": 0.1, "bonus_batch_size": 1024}
    of_curiosity = {"curiosity_pair": "one-step", "return_injection": "every_step"}
    assert drqv2_config("none", task=task, **asked, **of_curiosity) == drqv2_config("none", task=task)
    paid = drqv2_config("se", task=task, **asked, **of_curiosity)
    assert (paid.bonus.k, paid.beta, paid.beta_decay, paid.bonus_batch_size) == (5, 1.0, 0.1, 1024)
    assert (paid.curiosity_pair, paid.injection) == ("one-step", "every_step")


def test_a_bonus_that_asks_for_more_states_than_there_are_is_refused():
    with pytest.raises(ValueError, match="k must be below 8, the states of an update, got 8"):
        a2c_config("vcse", environments=1, k=8)
    with pytest.raises(ValueError, match="k must be below 12, the states of a batch, got 12"):
        sac_config("vcse", batch_size=12)


# Written out, and from the papers and their code: not by what the library has for it.
DRQV2 = {
    "beta": 0.1,
    "beta_decay": 0.0,
    "noise_clip": 0.3,
    "normalizes_reward": False,
    "bonus_batch_size": None,
    "n_step": 3,
    "batch_size": 256,
    "features": 50,
    "hidden_units": 1024,
    "encoder_precision": "float32",
    "learning_rate": 1e-4,
    "discount": 0.99,
    "target_rate": 0.01,
    "seed_frames": 4_000,
    "steps_per_update": 2,
    "replay_capacity": 1_000_000,
}
WALKER = {"n_step": 1, "batch_size": 512}
HUMANOID = {"learning_rate": 8e-5, "features": 100}
EASY, MEDIUM, HARD, FIXED = (1.0, 0.1, 100_000), (1.0, 0.1, 500_000), (1.0, 0.1, 2_000_000), (0.2, 0.2, 1)


@pytest.mark.parametrize(
    ("task", "noise", "deviations"),
    [
        ("dmc-pixels/hopper_stand", EASY, {}),
        ("dmc-pixels/pendulum_swingup", EASY, {}),
        ("dmc-pixels/cartpole_swingup_sparse", MEDIUM, {}),
        ("dmc-pixels/cheetah_run_sparse", MEDIUM, {}),
        ("dmc-pixels/walker_walk", EASY, WALKER),
        ("dmc-pixels/walker_walk_sparse", EASY, WALKER),
        ("dmc-pixels/walker_run", MEDIUM, WALKER),
        ("dmc-pixels/quadruped_run", MEDIUM, {"replay_capacity": 100_000}),
        ("dmc-pixels/quadruped_walk", MEDIUM, {}),
        ("dmc-pixels/humanoid_walk", HARD, HUMANOID),
        ("metaworld/door-open", FIXED, {"normalizes_reward": True}),
    ],
)
@pytest.mark.parametrize("bonus", ["none", "se", "vcse", "rcse", "se-matched"])
def test_drqv2_has_the_settings_of_its_authors_on_each_task(task, noise, deviations, bonus):
    found = dataclasses.asdict(drqv2_config(bonus, task=task))
    assert found.pop("bonus") == {
        "name": bonus,
        "reading": "release-drqv2",
        "k": 12,
        "log_offset": None,
        "value_normalization": "batch",
        "normalizer": None,
    }
    expected = {
        **DRQV2,
        "noise_schedule": noise if bonus == "none" else FIXED,
        "value_critic": "online",
        "curiosity_pair": "n-step",
        "injection": "once",
    }
    assert found == expected | deviations


@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ("release", ("release-drqv2", "online", "n-step", "once", None)),
        ("paper", ("paper", "target", "one-step", "every_step", "running-mean")),
        ("clean", ("clean", "target", "one-step", "every_step", "running-mean")),
    ],
)
def test_readings_of_drqv2_differ_in_formula_critic_pair_and_injection(reading, expected):
    of_bonus, critic, pair, injection, normalizer = expected
    for bonus in ("se", "vcse"):
        found = drqv2_config(bonus, reading, task="dmc-pixels/hopper_stand")
        assert (found.bonus.reading, found.bonus.k) == (of_bonus, 12)
        assert (found.value_critic, found.curiosity_pair, found.injection) == (critic, pair, injection)
        assert found.bonus.normalizer == (normalizer if bonus == "se" else None)


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
        found = sac_config(bonus, reading)
        assert (found.bonus.reading, found.bonus.k, found.value_critic) == (of_bonus, 12, "target")
        assert found.extrinsic_entropy is extrinsic_entropy
        assert found.bonus.normalizer == (normalizer if bonus == "se" else None)


def test_the_noise_of_actions_may_stay_or_follow_a_schedule_of_ones_own():
    task = "dmc-pixels/hopper_stand"
    assert drqv2_config("none", task=task, action_noise=0.4).noise_schedule == (0.4, 0.4, 1)
    assert drqv2_config("vcse", task=task, action_noise=(1.0, 0.1, 500_000)).noise_schedule == (1.0, 0.1, 500_000)
    with pytest.raises(ValueError, match=r"action_noise must be finite and not negative, got -0\.1"):
        drqv2_config("none", task=task, action_noise=(1.0, -0.1, 10))
    with pytest.raises(ValueError, match="action_noise must change over at least 1 step, got 0"):
        drqv2_config("none", task=task, action_noise=(1.0, 0.1, 0))


def test_unknown_names_are_refused(without_type_checks):
    with pytest.raises(ValueError, match=r"bonus must be one of none, se, vcse, rcse, se-matched, got 'curiosity'"):
        a2c_config("curiosity")
    with pytest.raises(ValueError, match="reading must be one of release, paper, clean, re3, got 'mine'"):
        a2c_config("vcse", "mine")
    with pytest.raises(ValueError, match="reading 're3' is one of state entropy"):
        a2c_config("vcse", "re3")
