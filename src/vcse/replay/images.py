"""Replay of images: every image of a run is kept once, and stacks and n-step returns are made when they are sampled.

The images may lie on a GPU. All the rest is little, and stays in the memory of the host: what a batch consists of is
known there without waiting for the device, which then gathers the images.
"""

import math
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor

from vcse.replay.storage import ImageRing, image_slots

STACK = 3  # images that an agent sees at once


class ImageBatch(NamedTuple):
    """Transitions over n steps, on the learner's device."""

    observations: UInt8[Tensor, "n c h w"]  # the last `STACK` images, channel by channel
    actions: Float[Tensor, "n a"]  # the first of the n
    rewards: Float[Tensor, " n"]  # discounted sum over the n steps
    first_rewards: Float[Tensor, " n"]  # of the first step alone
    discounts: Float[Tensor, " n"]  # what the value of `next_observations` counts; 0 where nothing comes after
    next_observations: UInt8[Tensor, "n c h w"]  # n steps later
    one_step_observations: UInt8[Tensor, "n c h w"] | None = None  # one step later, if needed
    between: "Between | None" = None  # the steps after the first, if needed


class Chosen(NamedTuple):
    """What a batch consists of: its numbers, and where its images lie."""

    slots: Int[Tensor, "s n k"]  # of stacks: now, n steps later, and what else is needed
    actions: Float[Tensor, "n a"]
    rewards: Float[Tensor, " n"]
    first_rewards: Float[Tensor, " n"]
    discounts: Float[Tensor, " n"]
    later_rewards: Float[Tensor, "b n"]  # of the steps after the first; none if not needed
    later_discounts: Float[Tensor, "b n"]


class Between(NamedTuple):
    """The steps of transitions after the first."""

    observations: UInt8[Tensor, "s n c h w"]  # at which the step begins
    rewards: Float[Tensor, "s n"]  # of the step
    discounts: Float[Tensor, "s n"]  # what the step counts


class ImageReplay(ImageRing):
    """The last images of one run, with the actions and rewards that led to each; the oldest make room for new ones.

    A transition begins at an image from which n more of the same episode are there.

    Args:
        capacity: Steps that are kept.
        most_steps: Of an episode: each has one image more than steps.
        n_step: Steps of a transition.
        discount: Of each step.
        with_one_step: Include the observation after one step.
        with_between: Include the steps of a transition after the first.
        images: What they are and where they lie: see `ImageRing`.
    """

    def __init__(
        self,
        *,
        capacity: int,
        most_steps: int,
        n_step: int,
        discount: float,
        with_one_step: bool = False,
        with_between: bool = False,
        **images: Any,
    ) -> None:
        for name, number in (("capacity", capacity), ("n_step", n_step)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        slots = stacked_slots(capacity, most_steps)
        super().__init__(slots, **images)
        self.with_one_step = with_one_step
        self.with_between = with_between and n_step > 1
        self.n_step = n_step
        self.discount = discount
        self.terminated = np.zeros(slots, dtype=np.float32)
        self.positions = np.zeros(slots, dtype=np.int64)  # of an image in its episode
        # Where transitions begin, counted from the first image ever, in order; those before `_first_start` are gone.
        self._starts = np.zeros(slots, dtype=np.int64)
        self._first_start = self._next_start = 0
        self.position = -1  # of the newest image in its episode; the first is 0

    @property
    def size(self) -> int:
        """Transitions that can be sampled."""
        return self._next_start - self._first_start

    def begin(self, image: UInt8[Tensor, "c h w"]) -> None:
        """Add the first image of an episode, which nothing led to."""
        self.position = -1
        self._add(image, 0.0, 0.0, terminated=False)

    def add(self, action: Float[Tensor, " a"], reward: float, terminated: bool, image: UInt8[Tensor, "c h w"]) -> None:
        """Add a step of the episode: an action, and what it led to."""
        self._add(image, action.numpy(), reward, terminated=terminated)

    def _add(
        self, image: UInt8[Tensor, "c h w"], action: Float[np.ndarray, " a"] | float, reward: float, *, terminated: bool
    ) -> None:
        self.position += 1
        if self.position >= self.n_step:
            self._starts[self._next_start % self.slots] = self.count - self.n_step
            self._next_start += 1
        slot = self._put(image, action, reward)
        self.terminated[slot], self.positions[slot] = terminated, self.position
        # A sample needs the images before it too.
        oldest = self.count - self.slots
        while self.size and int(self._starts[self._first_start % self.slots]) - (STACK - 1) < oldest:
            self._first_start += 1

    def restore(self, images: UInt8[np.ndarray, "t c h w"], steps: Shaped[np.ndarray, " t"]) -> None:
        """Restore the replay from all images that were ever added, in order, with what led to each.

        Args:
            images: Of which the last are read.
            steps: As `step_record` has them.
        """
        kept = self._restore(images, steps)
        self.terminated[kept % self.slots] = steps["terminated"][kept]
        self.positions[kept % self.slots] = steps["position"][kept]
        self.position = int(steps["position"][-1])
        starts = kept[steps["position"][kept] >= self.n_step] - self.n_step
        starts = starts[starts - (STACK - 1) >= self.count - self.slots]
        self._first_start, self._next_start = 0, len(starts)
        self._starts[: len(starts)] = starts

    def sample(self, places: Int[Tensor, " n"]) -> ImageBatch:
        """Return the transitions at these places, which are on the host, among `size`."""
        return self.gather(self.choose(places))

    def choose(self, places: Int[Tensor, " n"]) -> Chosen:
        """Return the contents of the transitions at these places, all of it on the host."""
        starts = self._starts[(self._first_start + places.numpy()) % self.slots]
        positions = self.positions[starts % self.slots]
        rewards, discounts = np.zeros(len(starts), dtype=np.float32), np.ones(len(starts), dtype=np.float32)
        later_rewards, later_discounts = [], []
        for step in range(1, self.n_step + 1):
            slot = (starts + step) % self.slots
            if step > 1:
                later_rewards.append(self.rewards[slot])
                later_discounts.append(discounts)
            rewards += discounts * self.rewards[slot]
            discounts = discounts * np.float32(self.discount) * (1 - self.terminated[slot])
        first = (starts + 1) % self.slots
        seen = [0, self.n_step]
        seen += [1] if self.with_one_step else []
        seen += range(1, self.n_step) if self.with_between else []
        none: Float[np.ndarray, "0 n"] = np.zeros((0, len(starts)), dtype=np.float32)
        chosen = (
            np.stack([self._stack(starts + step, positions + step) for step in seen]),
            self.actions[first],
            rewards,
            self.rewards[first],
            discounts,
            np.stack(later_rewards) if self.with_between else none,
            np.stack(later_discounts) if self.with_between else none,
        )
        return Chosen(*map(torch.from_numpy, chosen))

    def _stack(self, index: Int[np.ndarray, " n"], positions: Int[np.ndarray, " n"]) -> Int[np.ndarray, "n k"]:
        """Return the slots of a stack at an index, oldest first; the first of an episode is repeated before it."""
        back = np.arange(STACK - 1, -1, -1)
        slots: Int[np.ndarray, "n k"] = (index[:, None] - np.minimum(back, positions[:, None])) % self.slots
        return slots

    def gather(self, chosen: Chosen) -> ImageBatch:
        """Return a batch on the learner's device. What was chosen is on the host, or on that device already.

        Where the images are there too, nothing waits for the host, so that it can be captured as a CUDA graph.
        """
        stacks = self._gather(chosen.slots).flatten(2, 3)  # channel by channel
        now, next_observations, *others = stacks
        one_step_observations = others[0] if self.with_one_step else None
        there = (each.to(self.device, non_blocking=True) for each in chosen[1:])
        actions, rewards, first_rewards, discounts, *later = there
        between = Between(stacks[-len(chosen.later_rewards) :], *later) if self.with_between else None
        of_step = actions, rewards, first_rewards, discounts
        return ImageBatch(now, *of_step, next_observations, one_step_observations, between)


def image_bytes(capacity: int, most_steps: int, image_shape: tuple[int, int, int]) -> int:
    """Return the bytes of the images of so many steps."""
    return stacked_slots(capacity, most_steps) * math.prod(image_shape)


def stacked_slots(capacity: int, most_steps: int) -> int:
    """Return how many images so many steps have, at least, with those at which episodes begin, and those before."""
    return image_slots(capacity, most_steps) + STACK
