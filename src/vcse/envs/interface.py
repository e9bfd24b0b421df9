"""What a batch of environments is, whatever simulates them."""

from typing import NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

Observations = UInt8[np.ndarray, "n h w c"]
Positions = Int[np.ndarray, "n 2"]


class Step(NamedTuple):
    """What one action of every environment led to.

    A finished environment is reset before its next action: `observations` shows what that action will see, and
    `arrived` what the last one led to. They differ only where an episode ended.
    """

    observations: Observations
    arrived: Observations
    rewards: Float[np.ndarray, " n"]
    terminated: Bool[np.ndarray, " n"]  # the task is over: goal, lava
    truncated: Bool[np.ndarray, " n"]  # the time limit, and nothing else, ended the episode
    positions: Positions  # of the agent on the map, at `observations`
    arrived_positions: Positions  # at `arrived`

    @property
    def ended(self) -> Bool[np.ndarray, " n"]:
        """Whether an episode ended here, for whatever reason."""
        ended: Bool[np.ndarray, " n"] = np.logical_or(self.terminated, self.truncated)
        return ended


@runtime_checkable
class Environments(Protocol):
    """A batch of environments of one task, each with a seed of its own.

    `send` and `receive` come apart, so that something else can be done while the environments are simulated.
    """

    count: int
    observation_shape: tuple[int, int, int]
    actions: int
    most_steps: int  # the time limit of an episode

    def reset(self) -> tuple[Observations, Positions]:
        """Start the first episodes. To be called once: simulators differ in where a second call would begin."""
        ...

    def send(self, actions: Int[np.ndarray, " n"]) -> None:
        """Begin a step of every environment."""
        ...

    def receive(self) -> Step:
        """Wait until the step is done."""
        ...

    def close(self) -> None:
        """Free what is held."""
        ...
