"""Rollouts: what a cohort saw and did since its last update."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor


class Rollout(NamedTuple):
    """A few steps of every environment of every learner, on the learners' device.

    At step t an environment has observation t, takes action t and returns the rest of index t. One observation
    more is there at the end, for the value of what comes after.
    """

    observations: Shaped[Tensor, "l n t_and_one ..."]
    actions: Int[Tensor, "l n t"]
    rewards: Float[Tensor, "l n t"]
    terminated: Bool[Tensor, "l n t"]
    truncated: Bool[Tensor, "l n t"]
    positions: Float[Tensor, "l n t 2"]  # of the agent on the map, at observation t
    # What the action led to, which is not observation t + 1 where the episode ended. Only where a learner
    # bootstraps from the time limit, or a bonus looks at it.
    next_observations: Shaped[Tensor, "l n t ..."] | None
    next_positions: Float[Tensor, "l n t 2"] | None = None  # of the agent then, where it has one


class Rollouts:
    """Memory for one rollout at a time, overwritten by the next."""

    def __init__(
        self,
        *,
        learners: int,
        environments: int,
        steps: int,
        observation_shape: tuple[int, ...],
        keep_next_observations: bool,
        device: torch.device,
        dtype: torch.dtype = torch.uint8,
    ) -> None:
        self.device = device
        # In memory the step comes first, so that what is written at one moment lies together.
        shape = (steps, learners, environments)
        # Small numbers are gathered on the host and sent to the device once per rollout.
        self._host = {
            "rewards": torch.zeros(shape),
            "terminated": torch.zeros(shape, dtype=torch.bool),
            "truncated": torch.zeros(shape, dtype=torch.bool),
            "positions": torch.zeros(*shape, 2),
        }
        if keep_next_observations:
            self._host["next_positions"] = torch.zeros(*shape, 2)
        if device.type == "cuda":
            self._host = {name: each.pin_memory() for name, each in self._host.items()}
        self._memory = {name: each if device.type == "cpu" else each.to(device) for name, each in self._host.items()}
        cells = torch.zeros(steps + 1, learners, environments, *observation_shape, dtype=dtype, device=device)
        self.rollout = Rollout(
            observations=cells.movedim(0, 2),
            actions=torch.zeros(shape, dtype=torch.int64, device=device).movedim(0, 2),
            **{name: each.movedim(0, 2) for name, each in self._memory.items()},
            next_observations=torch.zeros_like(cells[1:]).movedim(0, 2) if keep_next_observations else None,
        )

    def keep(
        self,
        learners: slice,
        step: int,
        *,
        rewards: Float[Tensor, "l n"],
        terminated: Bool[Tensor, "l n"],
        truncated: Bool[Tensor, "l n"],
        next_observations: Shaped[Tensor, "l n ..."],
        next_positions: Int[Tensor, "l n 2"] | None = None,
    ) -> None:
        """Store what a step of some learners led to; all on the host."""
        self._host["rewards"][step, learners] = rewards
        self._host["terminated"][step, learners] = terminated
        self._host["truncated"][step, learners] = truncated
        if self.rollout.next_observations is not None:
            self.rollout.next_observations[learners, :, step] = next_observations.to(self.device, non_blocking=True)
            if next_positions is not None:
                self._host["next_positions"][step, learners] = next_positions

    def keep_positions(self, learners: slice, step: int, positions: Int[Tensor, "l n 2"]) -> None:
        """Store the positions of the agents before the action of a step."""
        self._host["positions"][step, learners] = positions

    def complete(self) -> Rollout:
        """Return the rollout, all of it on the device."""
        if self.device.type == "cuda":
            for name, each in self._host.items():
                self._memory[name].copy_(each, non_blocking=True)
        return self.rollout
