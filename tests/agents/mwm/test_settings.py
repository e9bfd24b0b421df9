import dataclasses
import math

import pytest
from agents.contract import MWMKind

from vcse.agents.mwm.settings import MWMSettings, mwm_settings
from vcse.bonuses.registry import BonusChoice

VCSE = MWMKind().config("vcse")
# Written out, and from the papers and their code: not by what the library has for it.
MWM = {
    "beta": 1.0,
    "image_size": 64,
    "batch_size": 50,
    "sequence_length": 50,
    "autoencoder_batch_size": 32,
    "autoencoder_sequence_length": 32,
    "pretraining_updates": 5_000,
    "horizon": 15,
    "seed_frames": 10_000,
    "steps_per_update": 5,
    "replay_capacity": 2_000_000,
    "precision": "bfloat16",
    "mask_ratio": 0.75,
    "token_dimensions": 256,
    "encoder_blocks": 4,
    "decoder_blocks": 3,
    "model_dimensions": 128,
    "model_blocks": 2,
    "heads": 4,
    "deterministic": 1024,
    "variables": 32,
    "classes": 32,
    "hidden_units": 512,
    "projection_size": 256,
    "model_learning_rate": 3e-4,
    "autoencoder_learning_rate": 3e-4,
    "warm_up_updates": 2_500,
    "learning_rate": 1e-4,
    "adam_epsilon": 1e-5,
    "most_gradient_norm": 100.0,
    "weight_decay": 1e-6,
    "discount": 0.99,
    "return_lambda": 0.95,
    "entropy_weight": 1e-4,
    "kl_balance": 0.8,
    "kl_scale": 1.0,
    "kl_least": 0.01,
    "target_updates": 100,
    "reward_momentum": 0.99,
}
OF_READING = ("reward_token", "sequence_sampling", "projection_std", "projection_precision")


@pytest.mark.parametrize("bonus", ["none", "se", "vcse", "rcse", "se-matched", "rnd"])
@pytest.mark.parametrize(
    ("reading", "expected"),
    [
        ("release", ("pixels", "ends", 1 / 256, "float16")),
        ("paper", ("token", "ends", 1 / 256, "float32")),
        ("clean", ("token", "uniform", 1 / 16, "float32")),
        ("recommended", ("token", "uniform", 1 / 16, "float32")),
    ],
)
def test_readings_differ_in_reward_token_sampling_and_projection_alone(bonus, reading, expected):
    found = dataclasses.asdict(mwm_settings(bonus, reading, task="metaworld/drawer-open"))
    del found["bonus"]
    assert found == MWM | dict(zip(OF_READING, expected, strict=True))


@pytest.mark.parametrize(
    ("reading", "of_bonus", "log_offset", "scaling"),
    [
        ("release", "release-mwm", None, "raw"),
        ("paper", "paper", None, "raw"),
        ("clean", "clean", None, "raw"),
        ("recommended", "clean", 1.0, "standardized"),
    ],
)
def test_a_bonus_is_of_the_twelfth_neighbour_and_nothing_divides_it(reading, of_bonus, log_offset, scaling):
    """What is predicted of it is divided by its running size, in the agent."""
    for name in ("se", "vcse"):
        assert mwm_settings(name, reading).bonus == BonusChoice(
            name,
            of_bonus,
            12,
            log_offset=log_offset if name == "vcse" else None,
            normalizer="none" if name == "se" else None,
            scaling=scaling,
        )


def test_deviations_are_taken_and_those_that_a_run_without_a_bonus_does_not_heed_are_not_recorded():
    deviations = {"beta": 0.3, "k": 5, "projection_size": 64, "horizon": 10, "image_size": 32}
    paid, plain = (mwm_settings(bonus, **deviations) for bonus in ("vcse", "none"))
    assert (paid.beta, paid.bonus.k, paid.projection_size, paid.horizon, paid.image_size) == (0.3, 5, 64, 10, 32)
    assert plain == mwm_settings("none", horizon=10, image_size=32)
    with pytest.raises(ValueError, match="setting 'horizont' does not exist"):
        mwm_settings("none", horizont=10)


def test_settings_come_back_from_what_config_json_holds():
    for bonus, reading in (("none", "release"), ("vcse", "clean"), ("se", "recommended")):
        settings = mwm_settings(bonus, reading)
        assert MWMSettings.from_json(dataclasses.asdict(settings)) == settings


def test_an_update_is_due_every_five_steps_once_the_random_actions_are_over():
    settings = mwm_settings("none", seed_frames=21)
    assert [step for step in range(31) if settings.learns_at(step)] == [15, 20, 25, 30]
    assert mwm_settings("none").feature_size == 2048
    assert mwm_settings("none", seed_frames=30, steps_per_update=4).learns_at(16)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"image_size": 60}, "image_size must be a multiple of the 8 pixels of a patch, got 60"),
        ({"image_size": 0}, "image_size must be at least 1, got 0"),
        ({"batch_size": 0}, "batch_size must be at least 1, got 0"),
        ({"horizon": 0}, "horizon must be at least 1, got 0"),
        ({"horizon": 1}, "horizon must be at least 2, .* got 1"),
        ({"seed_frames": 0}, "seed_frames must be at least 1, got 0"),
        ({"steps_per_update": 0}, "steps_per_update must be at least 1, got 0"),
        ({"pretraining_updates": -1}, "pretraining_updates must not be negative, got -1"),
        ({"token_dimensions": 12}, "token_dimensions must be a multiple of 8, four for each of 2 heads, got 12"),
        ({"model_dimensions": 20}, "model_dimensions must be a multiple of 8, four for each of 2 heads, got 20"),
        ({"heads": 3}, "token_dimensions must be a multiple of 12, four for each of 3 heads, got 16"),
        ({"replay_capacity": 4}, "replay_capacity must be at least 5, a sequence, got 4"),
        ({"replay_capacity": 8, "autoencoder_sequence_length": 9}, "replay_capacity must be at least 9, a sequence"),
        ({"batch_size": 1, "sequence_length": 3}, "k must be below 3, the states of a batch, got 3"),
        ({"mask_ratio": 1.5}, "mask_ratio must be from 0 to 1, got 1.5"),
        ({"mask_ratio": 0.9}, "mask_ratio must leave 1 to 4 of 4 patches, got 0.9"),
        ({"kl_balance": -0.1}, "kl_balance must be from 0 to 1, got -0.1"),
        ({"beta": math.nan}, "beta must be finite and not negative, got nan"),
        ({"learning_rate": 0.0}, "learning_rate must be finite and above 0, got 0.0"),
        ({"adam_epsilon": 0.0}, "adam_epsilon must be finite and above 0, got 0.0"),
        ({"precision": "float16"}, "precision must be one of float32, bfloat16, got 'float16'"),
        ({"reward_token": "none"}, "reward_token must be one of token, pixels, got 'none'"),
        ({"sequence_sampling": "begins"}, "sequence_sampling must be one of ends, uniform, got 'begins'"),
    ],
)
@pytest.mark.usefixtures("without_type_checks")
def test_settings_that_cannot_be_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(VCSE, **changes)
