"""The logs of a run that learns from images: every image, and what led to it."""

import math
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, UInt8
from torch import Tensor

from vcse.replay.storage import step_record
from vcse.runs.directory import RunDirectory

MOST_UNWRITTEN = 1000  # images, 21 MB of 84 x 84, that wait in memory for the run's files


class Outcome(NamedTuple):
    """What an action led to."""

    action: Float[Tensor, " a"]
    reward: float
    terminated: bool
    image: UInt8[Tensor, "c h w"]


class StepLog:
    """Images and steps, added to a run's files in blocks.

    Args:
        directory: Of the run.
        image_shape: Of an image.
        action_size: Numbers of an action.
    """

    def __init__(self, directory: RunDirectory, image_shape: tuple[int, ...], action_size: int) -> None:
        self.directory = directory
        self.image_shape = image_shape
        self.record = step_record(action_size)
        self._images: list[np.ndarray] = []  # that are not on disk yet
        self._steps: list[np.ndarray] = []

    def add(self, outcome: Outcome, position: int) -> None:
        """Add an image, what led to it, and its place in the episode."""
        self._images.append(outcome.image.numpy())
        step = (outcome.action.numpy(), outcome.reward, outcome.terminated, position)
        self._steps.append(np.array(step, dtype=self.record))
        if len(self._images) >= MOST_UNWRITTEN:
            self.flush()

    def flush(self) -> None:
        """Write what waits."""
        if self._images:
            self.directory.append_log("frames.bin", np.stack(self._images))
            self.directory.append_log("steps.bin", np.stack(self._steps))
            self._images, self._steps = [], []

    def cut(self, frame: int, kept: int) -> None:
        """Drop all but so many images, and what the run wrote after a frame."""
        sizes = {"frames.bin": math.prod(self.image_shape), "steps.bin": self.record.itemsize}
        self.directory.cut(frame, {name: kept * size for name, size in sizes.items()})

    def read(self, kept: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the first so many images, which stay on disk, and steps."""
        steps = self.directory.read_log("steps.bin", kept, self.record)
        path = self.directory.path / "frames.bin"
        return np.memmap(path, dtype=np.uint8, mode="r", shape=(kept, *self.image_shape)), steps
