"""Replay of sequences: the images of a run, with actions and rewards, sampled as stretches of one episode.

The images may lie on a GPU. All the rest is little, and stays in the memory of the host: what a batch consists of is
known there without waiting for the device, which then gathers the images.
"""

import math
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, Shaped, UInt8
from torch import Tensor

from vcse.replay.storage import ImageRing, image_slots

SequenceSampling = Literal["ends", "uniform"]


class SequenceBatch(NamedTuple):
    """Sequences, each of one episode, on the learner's device."""

    images: UInt8[Tensor, "b t c h w"]
    actions: Float[Tensor, "b t a"]  # that led to the image; zeros where an episode begins
    rewards: Float[Tensor, "b t"]  # that came with the image
    is_first: Bool[Tensor, "b t"]  # at the first place of every sequence: nothing is known of what was before


class SequenceReplay(ImageRing):
    """The last images of one run, with the action and reward that led to each; the oldest make room for new ones.

    An episode of s steps has s + 1 images. How sequences are sampled:

    - `"uniform"`: every window of so many images within an episode is equally likely; the episode in progress has
      windows too.
    - `"ends"`: first one of the complete episodes that are kept whole, all equally likely, then where in it the
      sequence begins. All begins that the episode has no room for count as the last one, so that the ends of episodes,
      which are in few windows otherwise, are seen more often: of an episode of 251 images, a fifth of the sequences of
      50 are its last 50.

    Args:
        capacity: Steps that are kept.
        most_steps: Of an episode.
        sampling: How sequences are sampled.
        images: What they are and where they lie: see `ImageRing`.
    """

    def __init__(
        self,
        *,
        capacity: int,
        most_steps: int,
        sampling: SequenceSampling = "uniform",
        **images: Any,
    ) -> None:
        for name, number in (("capacity", capacity), ("most_steps", most_steps)):
            if number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        slots = image_slots(capacity, most_steps)
        super().__init__(slots, **images)
        self.most_steps = most_steps
        self.sampling = sampling
        # Episodes of which images are kept, each of which has one slot here at least, counted from the first episode
        # ever; those before `_first_episode` are gone. Images are counted from the first ever, too.
        self._begins = np.zeros(slots, dtype=np.int64)
        self._lengths = np.zeros(slots, dtype=np.int64)  # images, those that are gone included
        self._first_episode = self._next_episode = 0
        self._is_in_progress = False

    @property
    def position(self) -> int:
        """Place of the newest image in its episode; the first is 0."""
        return int(self._lengths[(self._next_episode - 1) % self.slots]) - 1

    def size_of(self, length: int) -> int:
        """Return how many windows of so many images can be sampled."""
        _, lengths = self._episodes()
        return int(np.maximum(lengths - length + 1, 0).sum())

    def begin(self, image: UInt8[Tensor, "c h w"]) -> None:
        """Add the first image of an episode, which nothing led to. The episode before is complete."""
        self._add(image, 0.0, 0.0)
        # Not before: as many episodes as there are slots may have been kept until now.
        episode = self._next_episode % self.slots
        self._begins[episode], self._lengths[episode] = self.count - 1, 1
        self._next_episode += 1
        self._is_in_progress = True

    def add(self, action: Float[Tensor, " a"], reward: float, image: UInt8[Tensor, "c h w"], *, ended: bool) -> None:
        """Add a step of the episode: an action, and what it led to.

        Args:
            action: Action on the host.
            reward: Reward that came with the image.
            image: Image that was seen then.
            ended: Whether the episode is complete.
        """
        if not self._is_in_progress:
            raise ValueError("a step must follow the first image of its episode: begin the episode first")
        self._add(image, action.numpy(), reward)
        self._lengths[(self._next_episode - 1) % self.slots] += 1
        self._is_in_progress = not ended

    def _add(self, image: UInt8[Tensor, "c h w"], action: Float[np.ndarray, " a"] | float, reward: float) -> None:
        self._put(image, action, reward)
        if self._first_episode < self._next_episode:
            episode = self._first_episode % self.slots
            is_gone = self._begins[episode] + self._lengths[episode] <= self._oldest
            self._first_episode += int(is_gone)  # one at most, as one image at most is overwritten

    def restore(self, images: UInt8[np.ndarray, "t c h w"], steps: Shaped[np.ndarray, " t"]) -> None:
        """Restore the replay from all images that were ever added, in order, with what led to each.

        The last episode counts as complete where its task ended, or where it has `most_steps` steps.

        Args:
            images: Of which the last are read.
            steps: As `step_record` has them.
        """
        self._restore(images, steps)
        begins = np.flatnonzero(steps["position"] == 0)
        ends = np.append(begins[1:], self.count)
        is_kept = ends > self._oldest
        begins, ends = begins[is_kept], ends[is_kept]
        self._first_episode, self._next_episode = 0, len(begins)
        self._begins[: len(begins)], self._lengths[: len(begins)] = begins, ends - begins
        self._is_in_progress = not steps["terminated"][-1] and self.position < self.most_steps

    def sample(self, uniforms: Float[np.ndarray, "b 2"], length: int) -> SequenceBatch:
        """Sample sequences, on the learner's device.

        Args:
            uniforms: Random numbers in [0, 1) that choose each sequence.
            length: Images of a sequence.
        """
        slots = self.choose(uniforms, length)
        is_first = np.zeros(slots.shape, dtype=bool)
        is_first[:, 0] = True
        numbers = map(torch.from_numpy, (self.actions[slots], self.rewards[slots], is_first))
        images = self._gather(torch.from_numpy(slots))
        return SequenceBatch(images, *(each.to(self.device, non_blocking=True) for each in numbers))

    def choose(self, uniforms: Float[np.ndarray, "b 2"], length: int) -> Int[np.ndarray, "b t"]:
        """Choose sequences, and return the slots of their images; for the arguments see `sample`."""
        if length < 1:
            raise ValueError(f"length must be at least 1, got {length}")
        begins, lengths = self._episodes()
        fits = lengths >= length
        if not fits.any():
            kind = "complete episode" if self.sampling == "ends" else "episode"
            longest = lengths.max(initial=0)
            raise ValueError(f"no sequence of {length} images can be sampled: the longest {kind} has {longest}")
        choose_starts = _near_ends if self.sampling == "ends" else _uniformly
        starts = choose_starts(uniforms.astype(np.float64), begins[fits], lengths[fits], length)
        slots: Int[np.ndarray, "b t"] = (starts[:, None] + np.arange(length)) % self.slots
        return slots

    def _episodes(self) -> tuple[Int[np.ndarray, " e"], Int[np.ndarray, " e"]]:
        """Return, of the episodes that are sampled from, the first image that is kept, and how many are kept."""
        first, after = self._first_episode, self._next_episode
        if self.sampling == "ends":
            after -= int(self._is_in_progress)
            first += int(self._begins[first % self.slots] < self._oldest)  # the others began later, and are whole
        episodes = np.arange(first, after) % self.slots
        begins, lengths = self._begins[episodes], self._lengths[episodes]
        gone = np.maximum(self._oldest - begins, 0)
        return begins + gone, lengths - gone


def sequence_bytes(capacity: int, most_steps: int, image_shape: tuple[int, int, int]) -> int:
    """Return the bytes of the images of so many steps."""
    return image_slots(capacity, most_steps) * math.prod(image_shape)


def _uniformly(
    uniforms: Float[np.ndarray, "b 2"], begins: Int[np.ndarray, " e"], lengths: Int[np.ndarray, " e"], length: int
) -> Int[np.ndarray, " b"]:
    """Choose where sequences begin, every window being equally likely; the second random number is not needed."""
    windows = lengths - length + 1
    after = windows.cumsum()  # the windows of an episode and of all before it
    places = (uniforms[:, 0] * after[-1]).astype(np.int64)
    episodes = after.searchsorted(places, side="right")
    starts: Int[np.ndarray, " b"] = begins[episodes] + places - (after - windows)[episodes]
    return starts


def _near_ends(
    uniforms: Float[np.ndarray, "b 2"], begins: Int[np.ndarray, " e"], lengths: Int[np.ndarray, " e"], length: int
) -> Int[np.ndarray, " b"]:
    """Choose where sequences begin: first the episode, then among its windows, the last of which is likelier."""
    episodes = (uniforms[:, 0] * len(begins)).astype(np.int64)
    total = lengths[episodes]
    # So many begins, one for each image and one more, of which the last `length` + 1 are the last window.
    offsets = np.minimum((uniforms[:, 1] * (total + 1)).astype(np.int64), total - length)
    starts: Int[np.ndarray, " b"] = begins[episodes] + offsets
    return starts
