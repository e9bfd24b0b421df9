"""MWM learns from images alone what random actions hardly ever do: to bring a dot to a place, and to keep it there."""

from types import SimpleNamespace

import jaxtyping
import numpy as np
import pytest
from agents.mwm import toy_images
from agents.mwm.toy_images import REACH, SIDE, Dots, make_config
from csv_rows import read_rows
from runs.small import newest_state, train

from vcse.agents.mwm.settings import ACTION_REPEAT
from vcse.runs.evaluation import play_episodes

EPISODES = 100
RANDOM_STEPS, PRETRAINING, UPDATES = 800, 400, 600
SEEDS = (0, 1, 2)  # what follows was chosen on others
SETTINGS = {
    "seed_frames": ACTION_REPEAT * RANDOM_STEPS,
    "pretraining_updates": PRETRAINING,
    "steps_per_update": 1,
    # Networks that learn in some hundreds of updates, of an update that takes a few hundredths of a second.
    "batch_size": 16,
    "sequence_length": 5,
    "autoencoder_batch_size": 4,
    "autoencoder_sequence_length": 9,
    "mask_ratio": 0.5,
    "token_dimensions": 32,
    "model_dimensions": 32,
    "deterministic": 64,
    "variables": 8,
    "classes": 8,
    "hidden_units": 64,
    "projection_size": 16,
    "autoencoder_learning_rate": 3e-3,
    "warm_up_updates": 100,
    "model_learning_rate": 3e-3,
    "learning_rate": 1e-3,
    "most_gradient_norm": 100.0,
    "kl_scale": 0.1,
    # A task of eight steps, and an actor that does not settle before the world model knows what actions do.
    "horizon": 5,
    "discount": 0.9,
    "target_updates": 50,
    "entropy_weight": 0.03,
}


@pytest.fixture(scope="module", autouse=True)
def _toy_images():
    """Know the toy tasks, and check no types, which is slow."""
    jaxtyping.config.update("jaxtyping_disable", True)
    with pytest.MonkeyPatch.context() as patch:
        toy_images.register(patch)
        yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_random_actions_hardly_ever_succeed():
    environments = Dots(["reach"] * 1000, SimpleNamespace(image_size=SIDE, action_repeat=ACTION_REPEAT))
    generator = np.random.default_rng(0)

    def act(images):
        return generator.uniform(-1, 1, (len(images), 2)).astype(np.float32)

    assert play_episodes(environments, act, range(1000)).success_rate <= 0.2


@pytest.mark.parametrize(("bonus", "seed"), [*(("vcse", seed) for seed in SEEDS), ("none", SEEDS[0])])
def test_mwm_learns_in_some_hundreds_of_updates(bonus, seed, tmp_path):
    frames = ACTION_REPEAT * (RANDOM_STEPS + UPDATES)
    lengths = {"frames": frames, "row_every_frames": frames, "eval_every_frames": frames, "eval_episodes": EPISODES}
    config = make_config(bonus, seed, task=REACH, settings=SETTINGS, checkpoint_every_frames=frames, **lengths)
    train([config], tmp_path)
    before, after = read_rows(tmp_path / config.name / "eval.csv")
    assert newest_state(tmp_path / config.name).state["agent"]["updates"] == UPDATES
    assert before["success_rate"] <= 0.2
    assert after["success_rate"] >= 0.8
