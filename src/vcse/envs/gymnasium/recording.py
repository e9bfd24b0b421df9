"""Episodes of an environment of Gymnasium, rendered for people."""

from collections.abc import Iterator

import numpy as np
from jaxtyping import UInt8

from vcse.envs.gymnasium.environment import GymnasiumEnvironment
from vcse.envs.gymnasium.spaces import shrunk
from vcse.envs.interface import Making
from vcse.envs.moments import Moment
from vcse.envs.recording import Choose, record_episodes

IMAGES_PER_SECOND = 12.0  # of the environment's own time
LEAST_SIDE, MOST_SIDE = 240, 480  # pixels of the longer side of an image


def record_environment(
    name: str,
    choose: Choose,
    *,
    episodes: int,
    seed: int,
    recent: int = 1,
    family: str = "gymnasium",
    making: Making,
) -> Iterator[Moment]:
    """Play episodes of an environment, and render some steps of them.

    Args:
        name: Its id, perhaps with a module before it.
        choose: The policy; this and the next three as in `record_episodes`.
        episodes: How many.
        seed: Of the generator.
        recent: Observations that the policy is shown.
        family: Of the task.
        making: How the environment is made that the policy sees.
    """
    world = GymnasiumEnvironment(
        name, family=family, image_size=making.image_size, action_repeat=making.action_repeat, renders=True
    )
    every = max(1, round(world.frames_per_second / making.action_repeat / IMAGES_PER_SECOND))
    for moment in record_episodes(world, choose, episodes=episodes, seed=seed, recent=recent, every=every):
        yield moment._replace(image=_for_people(moment.image))


def _for_people(image: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h2 w2 3"]:
    """Return an image that is neither tiny nor huge."""
    height, width, _ = image.shape
    longest = max(height, width)
    if longest < LEAST_SIDE:
        times = -(-LEAST_SIDE // longest)
        return image.repeat(times, axis=0).repeat(times, axis=1)
    apart = -(-longest // MOST_SIDE)
    return shrunk(image, (height // apart, width // apart))
