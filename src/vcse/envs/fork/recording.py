"""Episodes of the fork, rendered from above."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from jaxtyping import UInt8

from vcse.envs.fork.world import Fork, ForkMap
from vcse.envs.moments import Moment, Outcome

LONGER_SIDE = 480  # pixels of an image
WALL, ROOM, UNPAID, PAID, AGENT = (40, 42, 48), (96, 110, 140), (130, 130, 130), (70, 190, 110), (245, 200, 70)


def record_fork(
    name: str,
    choose: Callable[[Sequence[np.ndarray], np.random.Generator], Any],
    *,
    episodes: int,
    seed: int,
    **unused: Any,
) -> Iterator[Moment]:
    """Play episodes of a task, and render every step of them.

    Args:
        name: Of the task.
        choose: The policy: from the last observations, the newest last, and a generator to an action.
        episodes: How many.
        seed: Of the generator.
        unused: Options of other families.
    """
    del unused
    generator, fork = np.random.default_rng(seed), Fork(name, 1)
    seen = fork.reset()
    for episode in range(1, episodes + 1):
        return_so_far, has_succeeded = 0.0, False
        yield Moment(image(fork.map, fork.place), episode, 0, return_so_far, "")
        for number in range(1, fork.most_steps + 1):
            fork.send(np.array([choose(list(seen), generator)]))
            place, step = fork.place, fork.receive()
            seen, return_so_far = step.observations, return_so_far + float(step.rewards[0])
            has_succeeded |= bool(step.success is not None and step.success[0])
            outcome: Outcome = "" if number < fork.most_steps else "goal" if has_succeeded else "out of time"
            yield Moment(image(fork.map, place), episode, number, return_so_far, outcome)


def image(world: ForkMap, agent: int) -> UInt8[np.ndarray, "h w 3"]:
    """Render a map from above: the higher the reward of a cell, the greener it is.

    Args:
        world: The map.
        agent: The number of the cell in which it is.
    """
    least, most = world.cells.min(0), world.cells.max(0)
    pixels = np.empty((*(most - least + 3), 3), dtype=np.uint8)  # walls all around
    pixels[:] = WALL
    share = (world.rewards / world.rewards.max())[:, None]
    colours = np.where(world.cells[:, 1:] < 0, ROOM, (1 - share) * UNPAID + share * PAID)
    colours[agent] = AGENT
    pixels[tuple((world.cells - least + 1).T)] = colours.round()
    times = max(1, LONGER_SIDE // max(pixels.shape))
    return pixels.repeat(times, axis=0).repeat(times, axis=1)
