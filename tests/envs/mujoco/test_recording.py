import itertools

import numpy as np
import pytest
from gl import needs_gl

from vcse.envs.interface import Making
from vcse.envs.mujoco.dmc import DMCStates
from vcse.envs.mujoco.pixels import Pixels
from vcse.envs.mujoco.recording import FRAMES_PER_IMAGE, SIDE, Filmed

pytestmark = needs_gl
SEED, STEPS = 5, 9


def play(task, **settings):
    """Play some actions at random, and keep what came of them, what was seen, and the images for people."""
    filmed = Filmed(task, Making(action_repeat=2, **settings))
    actions = np.random.default_rng(0).uniform(-1, 1, (STEPS, filmed.action_size)).astype(np.float32)
    try:
        steps, images = [(filmed.begin(SEED),)], [filmed.image()]
        for action in actions:
            steps.append(filmed.step(action))
            images.append(filmed.image())
    finally:
        filmed.close()
    return filmed, actions, steps, images


@pytest.mark.parametrize("task", ["dmc/hopper_stand", "dmc-pixels/hopper_stand"])
def test_a_policy_sees_what_it_would_see_without_a_film(task):
    filmed, actions, [[first], *steps], _ = play(task, rendering="fast")
    making = Making(rendering="fast", action_repeat=2)
    unfilmed = DMCStates(["hopper_stand"]) if task.startswith("dmc/") else Pixels([task], making)
    try:
        np.testing.assert_array_equal(first, unfilmed.reset([SEED])[0])
        for action, (seen, reward, terminated, truncated, success) in zip(actions, steps, strict=True):
            unfilmed.send(action[None])
            expected = unfilmed.receive()
            np.testing.assert_array_equal(seen, expected.next_observations[0])
            assert reward == expected.rewards[0]
            assert (terminated, truncated, success) == (False, False, False)
    finally:
        unfilmed.close()
    assert not filmed.has_success


@pytest.mark.parametrize(("task", "action_repeat"), [("dmc/hopper_stand", 1), ("dmc-pixels/hopper_stand", 2)])
def test_people_see_large_images_of_some_frames(task, action_repeat):
    filmed, _, _, images = play(task, rendering="fast")
    assert filmed.action_repeat == action_repeat
    assert images[0].shape == (SIDE, SIDE, 3)
    assert images[0].std() > 10  # there is something to be seen
    for number, (before, now) in enumerate(itertools.pairwise(images), start=1):
        is_new = number * action_repeat % FRAMES_PER_IMAGE == 0
        assert np.array_equal(before, now) != is_new


def test_the_film_is_as_fine_as_it_gets_whatever_the_policy_sees():
    [[fast, *_], images], [[fine, *_], others] = (
        play("dmc-pixels/hopper_stand", rendering=rendering)[2:] for rendering in ("fast", "faithful")
    )
    np.testing.assert_array_equal(images[0], others[0])
    assert not np.array_equal(fast, fine)
