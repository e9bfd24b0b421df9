import dataclasses
import math

import pytest
from agents.mwm import toy_images
from agents.mwm.toy_images import make_config

from vcse.agents.image_environments import steps_of
from vcse.agents.mwm.agent import MWM, MWMSpec
from vcse.agents.mwm.costs import capacity_of, expected_seconds, needs, operations
from vcse.agents.mwm.settings import mwm_settings
from vcse.runs import checkpoint
from vcse.runs.config import RunConfig
from vcse.runs.resources import CHECKPOINT_COPIES

TASK = "dmc-pixels/walker_walk"
SETTINGS = mwm_settings("none", task=TASK)
USUAL = RunConfig(TASK, "mwm", "none", 0, "release", 100_000, SETTINGS, eval_episodes=0, rendering="fast")
IMAGE_BYTES = 3 * 64 * 64


def with_settings(config=USUAL, **changes):
    return dataclasses.replace(config, settings=dataclasses.replace(config.settings, **changes))


def paid(bonus="vcse"):
    return dataclasses.replace(USUAL, method=bonus, settings=mwm_settings(bonus, task=TASK))


def checkpoint_bytes(config):
    """Return what a checkpoint is reckoned to take, of which a run has two beside its images."""
    images = needs(dataclasses.replace(config, keep_replay=False)).until_done
    return (needs(config).files - images) / 2


def state_bytes(config):
    """Return the bytes of all tensors that a learner saves."""
    state = MWM(MWMSpec(6), config.settings, 0).state_dict()
    return sum(each.nbytes for part in state.values() if isinstance(part, list) for each in part)


@pytest.mark.parametrize("bonus", ["none", "se", "vcse"])
def test_a_checkpoint_of_full_size_is_as_large_as_was_said_before(bonus):
    config = paid(bonus)
    size = state_bytes(config)
    assert size > 300e6
    assert checkpoint_bytes(config) == pytest.approx(size, rel=0.05)


@pytest.mark.parametrize(
    "changes", [{"hidden_units": 64}, {"deterministic": 256}, {"token_dimensions": 128}, {"model_dimensions": 64}]
)
def test_a_checkpoint_shrinks_with_the_networks_and_is_hardly_larger_on_disk_than_its_tensors(tmp_path, changes):
    config = with_settings(**changes)
    size = state_bytes(config)
    assert checkpoint_bytes(config) == pytest.approx(size, rel=0.1)
    if "deterministic" in changes:
        state = MWM(MWMSpec(6), config.settings, 0).state_dict()
        assert checkpoint.save(tmp_path, 0, {"agent": state}).stat().st_size == pytest.approx(size, rel=0.01)


def test_the_replay_holds_what_it_may_and_no_more_than_the_run_has():
    assert (steps_of(USUAL), capacity_of(USUAL)) == (50_000, 50_000)
    assert steps_of(dataclasses.replace(USUAL, frames=99_999)) == 50_000
    assert capacity_of(dataclasses.replace(USUAL, frames=5_000_000)) == 2_000_000
    assert capacity_of(with_settings(replay_capacity=1_000)) == 1_000
    steps = 50_000 + 100  # with the images at which episodes of 500 steps begin
    assert needs(USUAL).replay == steps * IMAGE_BYTES
    assert needs(with_settings(image_size=32)).replay == steps * IMAGE_BYTES / 4
    assert needs(with_settings(replay_capacity=25_000)).replay == steps * IMAGE_BYTES / 2
    assert needs(with_settings(replay_capacity=25_000)).files == needs(USUAL).files


def test_what_a_replay_takes_that_is_not_kept_is_needed_until_a_run_is_done():
    kept, dropped = (needs(dataclasses.replace(USUAL, keep_replay=keeps)) for keeps in (True, False))
    assert dropped.until_done == 50_100 * IMAGE_BYTES
    assert dropped.files + dropped.until_done == kept.files
    assert dropped._replace(files=kept.files, until_done=0) == kept


def test_memory_grows_with_what_is_learned_at_once_and_with_a_bonus():
    def of_updates(config):
        return needs(config).working - CHECKPOINT_COPIES * checkpoint_bytes(config)

    assert of_updates(with_settings(batch_size=100)) == pytest.approx(2 * of_updates(USUAL))
    assert of_updates(with_settings(horizon=30)) > of_updates(USUAL) > 1e9
    assert needs(paid()).working > needs(paid("se")).working > needs(USUAL).working


def test_operations_grow_with_what_is_learned_part_by_part():
    plain, vcse = operations(SETTINGS), operations(paid().settings)
    assert plain.total == math.fsum(plain)
    twice = operations(dataclasses.replace(SETTINGS, batch_size=100))
    assert twice == plain._replace(model=2 * plain.model, actor_critic=2 * plain.actor_critic)
    seen = operations(dataclasses.replace(SETTINGS, autoencoder_batch_size=64))
    assert seen == plain._replace(autoencoder=2 * plain.autoencoder)
    further = operations(dataclasses.replace(SETTINGS, horizon=30))
    assert further.actor_critic == pytest.approx(2 * plain.actor_critic, rel=0.05)
    assert further[:2] == plain[:2]
    assert vcse.autoencoder == plain.autoencoder
    assert 1 < vcse.model / plain.model < 1.1
    assert 1.1 < vcse.actor_critic / plain.actor_critic < 1.5


def test_imagination_multiplies_as_often_as_its_matrices_are_read():
    """Counted by hand for a step without a bonus, with matrices of one size each."""
    settings = dataclasses.replace(SETTINGS, horizon=1_000_000, deterministic=512, variables=16, hidden_units=512)
    latent, stochastic, units, features = 512, 16 * 32, 512, 1024
    dynamics = latent * (stochastic + 50) + 2 * latent * 3 * latent + latent * latent + latent * stochastic
    head = features * units + 3 * units * units
    # There and back: dynamics, rewards and slow critic. There, and back to inputs and weights: actor and critic.
    inputs_too = head + head + 3 * units * units
    expected = 2 * dynamics + 2 * 2 * head + 2 * inputs_too
    found = operations(settings).actor_critic / (2_500 * 1_000_000)
    assert found == pytest.approx(expected, rel=1e-3)


def seconds(config):
    return expected_seconds(config, "cpu")


def test_the_time_that_a_run_takes_on_a_core_goes_with_what_it_learns_and_renders():
    pretraining = seconds(USUAL) - seconds(with_settings(pretraining_updates=0))
    assert pretraining == pytest.approx(2 * (seconds(USUAL) - seconds(with_settings(pretraining_updates=2_500))))
    assert pretraining > 3600
    assert seconds(paid()) > seconds(USUAL) > seconds(with_settings(horizon=10))
    assert seconds(dataclasses.replace(USUAL, rendering="faithful")) > seconds(USUAL)
    assert seconds(dataclasses.replace(USUAL, frames=4_000)) < 300  # in which nothing is learned
    evaluated = dataclasses.replace(USUAL, eval_every_frames=20_000, eval_episodes=10)
    played = 6 * 10 * 500
    assert 6e-3 * played < seconds(evaluated) - seconds(USUAL) < 0.1 * played


def test_the_time_that_a_run_takes_on_a_gpu_goes_with_its_frames():
    assert expected_seconds(dataclasses.replace(USUAL, frames=200_000), "cuda") == 2 * expected_seconds(USUAL, "cuda")


def test_a_run_of_the_toy_task_needs_next_to_nothing(monkeypatch):
    toy_images.register(monkeypatch)
    found = needs(make_config())
    assert found.replay == (30 + 4) * 3 * 16 * 16
    assert found.working < 20e6
