"""Episodes of one environment, rendered for people."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np
from jaxtyping import UInt8

from vcse.envs.moments import Moment, Outcome
from vcse.envs.processes import Environment
from vcse.streams import episode_seeds

Choose = Callable[[Sequence[np.ndarray], np.random.Generator], Any]


class Filmed(Environment, Protocol):
    """An environment that can be rendered for people."""

    def image(self) -> UInt8[np.ndarray, "h w 3"]:
        """Render what is there now."""


def record_episodes(
    world: Filmed, choose: Choose, *, episodes: int, seed: int, recent: int, every: int
) -> Iterator[Moment]:
    """Play episodes, render some steps of them, and close the environment.

    Args:
        world: What is played.
        choose: The policy: from the last observations, the newest last, and a generator to an action.
        episodes: How many.
        seed: Of the generator, from which the seeds of the episodes come too.
        recent: Observations that the policy is shown; the first of an episode is repeated before it.
        every: Steps from one image to the next. The first and the last of an episode are rendered too.
    """
    generator = np.random.default_rng(seed)
    with contextlib.closing(world):
        for episode in range(1, episodes + 1):
            seen = world.begin(episode_seeds(generator, 1)[0])
            stack = deque([seen] * recent, maxlen=recent)
            step, return_so_far, has_succeeded = 0, 0.0, False
            outcome: Outcome = ""
            yield Moment(world.image(), episode, step, return_so_far, outcome)
            while not outcome:
                seen, reward, terminated, truncated, success = world.step(choose(stack, generator))
                stack.append(seen)
                step, return_so_far, has_succeeded = step + 1, return_so_far + reward, has_succeeded or success > 0
                if terminated or truncated:
                    outcome = "goal" if has_succeeded else "over" if terminated else "out of time"
                if outcome or step % every == 0:
                    yield Moment(world.image(), episode, step, return_so_far, outcome)
