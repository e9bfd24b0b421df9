"""Replay of transitions: what every learner of a cohort experienced, and batches sampled from it."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vcse.replay.staging import Staging

FLOAT_BYTES = 4


class Batch(NamedTuple):
    """Transitions of every learner, on the learners' device."""

    observations: Float[Tensor, "l n d"]
    actions: Float[Tensor, "l n a"]
    rewards: Float[Tensor, "l n"]
    terminated: Float[Tensor, "l n"]  # 1 where nothing comes after; a time limit is no such end
    next_observations: Float[Tensor, "l n d"]  # what the action led to


def transition_bytes(observation_size: int, action_size: int) -> int:
    """Return the bytes of one transition, in memory and on disk: two observations, action, reward, end."""
    return FLOAT_BYTES * _width(observation_size, action_size)


def uniforms_for(count: int) -> int:
    """Return how many random numbers choose so many places."""
    return 2 * count + 64


def distinct_places(uniforms: Float[Tensor, "l u"], size: int, count: int) -> Int[Tensor, "l n"]:
    """Choose the places of a batch among so many transitions, none of them twice, every set as likely as any other.

    A transition and its own copy would be nearest neighbours, at distance 0. Where fewer are there than a batch
    holds, each is taken as often as any other, as far as that goes.

    Args:
        uniforms: `uniforms_for` so many places, in [0, 1).
        size: How many transitions there are.
        count: Places of a batch.
    """
    if size <= uniforms.shape[-1]:
        order = uniforms[:, :size].argsort(-1)
        return order[:, torch.arange(count, device=order.device) % size]
    # Repeats are passed over. That so many samples hold fewer distinct ones than there are places is ten standard
    # deviations away.
    sampled = (uniforms * size).long()
    ascending, order = sampled.sort(dim=-1, stable=True)
    again = torch.zeros_like(sampled, dtype=torch.bool)
    again.scatter_(1, order[:, 1:], ascending[:, 1:] == ascending[:, :-1])
    # Those that are new come first, in the order in which they were sampled.
    return sampled.gather(1, again.byte().argsort(dim=-1, stable=True)[:, :count])


class TransitionReplay:
    """The last transitions of every learner; the oldest make room for new ones.

    A transition is one row of numbers, so that adding and sampling are one operation for all of its parts.

    Args:
        learners: How many there are; all add at the same time.
        capacity: Transitions that are kept of each.
        observation_size: Numbers of an observation.
        action_size: Numbers of an action.
        batch_size: Transitions of each learner in a batch.
        device: Of batches.
        storage_device: Where the transitions lie, if not there: the memory of the host is larger.

    Attributes:
        batch: The memory that batches are sampled into.
    """

    def __init__(
        self,
        *,
        learners: int,
        capacity: int,
        observation_size: int,
        action_size: int,
        batch_size: int,
        device: torch.device | str,
        storage_device: torch.device | str | None = None,
    ) -> None:
        if capacity < 1 or batch_size < 1:
            raise ValueError(f"capacity and batch_size must be at least 1, got {capacity} and {batch_size}")
        self.capacity = capacity
        self.count = 0  # transitions that each learner ever added
        width = _width(observation_size, action_size)
        self._rows = torch.zeros(learners, capacity, width, device=storage_device or device)
        self._sampled = torch.zeros(learners * batch_size, width, device=device)
        sampled, sizes = self._sampled.view(learners, batch_size, width), (observation_size, action_size, 1, 1)
        parts = torch.split(sampled, [*sizes, observation_size], dim=-1)
        self.batch = Batch(parts[0], parts[1], parts[2][..., 0], parts[3][..., 0], parts[4])
        self._staging = Staging((learners, width), torch.float32, self._rows.device)
        self._first = capacity * torch.arange(learners, device=self._rows.device)[:, None]

    @property
    def size(self) -> int:
        """Transitions that are there of each learner."""
        return min(self.count, self.capacity)

    def add(
        self,
        observations: Float[Tensor, "l d"],
        actions: Float[Tensor, "l a"],
        rewards: Float[Tensor, " l"],
        terminated: Bool[Tensor, " l"],
        next_observations: Float[Tensor, "l d"],
    ) -> Float[Tensor, "l w"]:
        """Add a transition of every learner, all on the host, and return them as they are stored."""
        rows = torch.cat((observations, actions, rewards[:, None], terminated[:, None].float(), next_observations), 1)
        self._staging.send(rows, self._rows[:, self.count % self.capacity])
        self.count += 1
        return rows

    def restore(self, rows: Sequence[Float[np.ndarray, "t w"]]) -> None:
        """Restore the replay from all that each learner ever added, in order."""
        self.count = len(rows[0])
        start = self.count - self.size
        places = np.arange(start, self.count) % self.capacity
        for learner, mine in enumerate(rows):
            self._rows[learner, torch.from_numpy(places)] = torch.from_numpy(mine[start:]).to(self._rows.device)

    def sample(self, places: Int[Tensor, "l n"]) -> Batch:
        """Return the transitions at these places, in memory that the next call overwrites."""
        flat = (places.to(self._first.device) + self._first).flatten()
        rows = self._rows.flatten(0, 1)
        if rows.device == self._sampled.device:
            torch.index_select(rows, 0, flat, out=self._sampled)
        else:
            self._sampled.copy_(rows[flat])
        return self.batch


def _width(observation_size: int, action_size: int) -> int:
    return 2 * observation_size + action_size + 2
