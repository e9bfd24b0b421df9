import dataclasses
import math

import pytest
from agents.contract import DrQv2Kind

from vcse.agents.drqv2.settings import drqv2_settings

VCSE = DrQv2Kind().config("vcse")
# Written out, and from the papers and their code: not by what the library has for it.
DRQV2 = {
    "beta": 0.1,
    "beta_decay": 0.0,
    "noise_clip": 0.3,
    "reward_normalization": "none",
    "actor_normalization": False,
    "pre_activation_penalty": 0.0,
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
        ("metaworld/door-open", FIXED, {"reward_normalization": "mean"}),
    ],
)
@pytest.mark.parametrize("bonus", ["none", "se", "vcse", "rcse", "se-matched"])
def test_drqv2_has_the_settings_of_its_authors_on_each_task(task, noise, deviations, bonus):
    found = dataclasses.asdict(drqv2_settings(bonus, task=task))
    assert found.pop("bonus") == {
        "name": bonus,
        "reading": "release-drqv2",
        "k": 12,
        "log_offset": None,
        "value_normalization": "batch",
        "normalizer": None,
        "scaling": "raw",
    }
    expected = {
        **DRQV2,
        "action_noise": noise if bonus == "none" else FIXED,
        "value_critic": "online",
        "curiosity_pair": "n-step",
        "return_injection": "once",
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
        found = drqv2_settings(bonus, reading, task="dmc-pixels/hopper_stand")
        assert (found.bonus.reading, found.bonus.k) == (of_bonus, 12)
        assert (found.value_critic, found.curiosity_pair, found.return_injection) == (critic, pair, injection)
        assert found.bonus.normalizer == (normalizer if bonus == "se" else None)


@pytest.mark.parametrize("reading", ["release", "paper", "clean", "recommended"])
@pytest.mark.parametrize(("task", "rewards"), [("dmc-pixels/hopper_stand", "none"), ("metaworld/door-open", "mean")])
def test_what_is_against_saturation_is_off_in_every_reading(reading, task, rewards):
    found = drqv2_settings("vcse", reading, task=task)
    assert (found.pre_activation_penalty, found.actor_normalization) == (0.0, False)
    assert found.reward_normalization == rewards


def test_the_noise_of_actions_may_stay_or_follow_a_schedule_of_ones_own():
    task = "dmc-pixels/hopper_stand"
    assert drqv2_settings("none", task=task, action_noise=0.4).action_noise == (0.4, 0.4, 1)
    assert drqv2_settings("vcse", task=task, action_noise=(1.0, 0.1, 500_000)).action_noise == (1.0, 0.1, 500_000)
    with pytest.raises(ValueError, match=r"action_noise must be finite and not negative, got -0\.1"):
        drqv2_settings("none", task=task, action_noise=(1.0, -0.1, 10))
    with pytest.raises(ValueError, match="action_noise must change over at least 1 step, got 0"):
        drqv2_settings("none", task=task, action_noise=(1.0, 0.1, 0))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"n_step": 0}, "n_step must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"features": 0}, "features must be at least 1, got 0"),
        ({"hidden_units": 0}, "hidden_units must be at least 1, got 0"),
        ({"seed_frames": 0}, "seed_frames must be at least 1, got 0"),
        ({"steps_per_update": 0}, "steps_per_update must be at least 1, got 0"),
        ({"beta": -0.1}, r"beta must be finite and not negative, got -0\.1"),
        ({"beta": math.nan}, "beta must be finite and not negative, got nan"),
        ({"beta_decay": 1.0}, r"beta_decay must be from 0 to below 1, got 1\.0"),
        ({"beta_decay": -0.1}, r"beta_decay must be from 0 to below 1, got -0\.1"),
        ({"pre_activation_penalty": -0.1}, r"pre_activation_penalty must be finite and not negative, got -0\.1"),
        (
            {"reward_normalization": "centered", "discount": 1.0},
            "discount must be below 1 with reward_normalization centered, got 1",
        ),
        ({"learning_rate": 0.0}, r"learning_rate must be finite and above 0, got 0\.0"),
        ({"replay_capacity": 5}, "replay_capacity must be at least 6, the transitions of a batch, got 5"),
        ({"replay_capacity": 9, "n_step": 9}, "replay_capacity must be above n_step, 9, got 9"),
        ({"bonus_batch_size": 5}, "bonus_batch_size must be at least batch_size, 6, got 5"),
        ({"bonus_batch_size": 16_385}, "bonus_batch_size must be at most 16384, got 16385"),
        ({"batch_size": 20_000}, "batch_size must be at most 16384, got 20000"),
        ({"batch_size": 3}, "k must be below 3, the states of a batch, got 3"),
    ],
)
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(VCSE, **changes)
