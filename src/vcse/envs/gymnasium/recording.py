"""Episodes of an environment of Gymnasium, rendered for people."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

from vcse.envs.gymnasium.environment import GymnasiumEnvironment
from vcse.envs.gymnasium.spaces import shrunk
from vcse.envs.interface import Making
from vcse.envs.moments import Moment, Outcome
from vcse.streams import episode_seeds

IMAGES_PER_SECOND = 12.0  # of the environment's own time
LEAST_SIDE, MOST_SIDE = 240, 480  # pixels of the longer side of an image


def record_environment(
    name: str,
    choose: Callable[[Sequence[np.ndarray], np.random.Generator], Any],
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
        choose: The policy: from the last observations, the newest last, and a generator to an action.
        episodes: How many.
        seed: Of the generator, from which the seeds of the episodes come too.
        recent: Observations that the policy is shown; the first of an episode is repeated before it.
        family: Of the task.
        making: How the environment is made that the policy sees.
    """
    world = GymnasiumEnvironment(
        name, family=family, image_size=making.image_size, action_repeat=making.action_repeat, renders=True
    )
    generator = np.random.default_rng(seed)
    every = max(1, round(world.frames_per_second / making.action_repeat / IMAGES_PER_SECOND))
    try:
        for episode in range(1, episodes + 1):
            seen = world.begin(episode_seeds(generator, 1)[0])
            stack = deque([seen] * recent, maxlen=recent)
            step, return_so_far, has_succeeded = 0, 0.0, False
            outcome: Outcome = ""
            yield Moment(_for_people(world.image()), episode, step, return_so_far, outcome)
            while not outcome:
                seen, reward, terminated, truncated, success = world.step(choose(stack, generator))
                stack.append(seen)
                step, return_so_far, has_succeeded = step + 1, return_so_far + reward, has_succeeded or success > 0
                if terminated or truncated:
                    outcome = "goal" if has_succeeded else "over" if terminated else "out of time"
                if outcome or step % every == 0:
                    yield Moment(_for_people(world.image()), episode, step, return_so_far, outcome)
    finally:
        world.close()


def _for_people(image: UInt8[np.ndarray, "h w 3"]) -> UInt8[np.ndarray, "h2 w2 3"]:
    """Return an image that is neither tiny nor huge."""
    height, width, _ = image.shape
    longest = max(height, width)
    if longest < LEAST_SIDE:
        times = -(-LEAST_SIDE // longest)
        return image.repeat(times, axis=0).repeat(times, axis=1)
    apart = -(-longest // MOST_SIDE)
    return shrunk(image, (height // apart, width // apart))
