import numpy as np
import pytest
from gl import needs_gl

from vcse.envs.mujoco.dmc import DMCStates
from vcse.envs.mujoco.pixels import Pixels
from vcse.envs.mujoco.recording import FRAMES_PER_IMAGE, SIDE, Filmed

pytestmark = needs_gl
SEED, STEPS = 5, 9


def play(task, **settings):
    """Play some actions at random, and keep what was seen and what came of them."""
    filmed = Filmed(task, **settings)
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, filmed.action_size)).astype(np.float32)
    try:
        return filmed, actions, filmed.begin(SEED), [filmed.step(action) for action in actions]
    finally:
        filmed.close()


@pytest.mark.parametrize("task", ["dmc/hopper_stand", "dmc-pixels/hopper_stand"])
def test_a_policy_sees_what_it_would_see_without_a_film(task):
    filmed, actions, first, steps = play(task, rendering="fast")
    unfilmed = DMCStates(["hopper_stand"]) if task.startswith("dmc/") else Pixels([task], rendering="fast")
    try:
        np.testing.assert_array_equal(first.observation, unfilmed.reset([SEED])[0])
        for action, step in zip(actions, steps, strict=True):
            unfilmed.send(action[None])
            expected = unfilmed.receive()
            np.testing.assert_array_equal(step.sight.observation, expected.next_observations[0])
            assert step.reward == expected.rewards[0]
            assert (step.terminated, step.truncated) == (False, False)
    finally:
        unfilmed.close()
    assert not filmed.has_success


@pytest.mark.parametrize(("task", "action_repeat"), [("dmc/hopper_stand", 1), ("dmc-pixels/hopper_stand", 2)])
def test_people_see_large_images_of_some_frames(task, action_repeat):
    filmed, _, first, steps = play(task, rendering="fast")
    assert filmed.action_repeat == action_repeat
    assert first.image.shape == (SIDE, SIDE, 3)
    shown = first.image
    assert shown.std() > 10  # there is something to be seen
    for number, step in enumerate(steps, start=1):
        is_new = number * action_repeat % FRAMES_PER_IMAGE == 0
        assert np.array_equal(step.sight.image, shown) != is_new
        shown = step.sight.image


def test_the_film_is_as_fine_as_it_gets_whatever_the_policy_sees():
    images = [play("dmc-pixels/hopper_stand", rendering=rendering)[2] for rendering in ("fast", "faithful")]
    np.testing.assert_array_equal(images[0].image, images[1].image)
    assert not np.array_equal(images[0].observation, images[1].observation)
