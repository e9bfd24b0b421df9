"""Memory for images, on a GPU, on the host or in a file on disk, and the record of what led to each image."""

import math
import os
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor

from vcse.replay.staging import Staging

IMAGES_PER_COPY = 1000  # that are restored at once, as a long log does not fit into memory


def step_record(action_size: int) -> np.dtype[np.void]:
    """Return the record of what led to an image, all of it zeros where an episode begins, as it is kept on disk."""
    return np.dtype(
        [
            ("action", np.float32, (action_size,)),
            ("reward", np.float32),
            ("terminated", np.float32),  # 1 where that ended the task
            ("position", np.float32),  # of the image in its episode; the first is 0
        ]
    )


def image_slots(capacity: int, most_steps: int) -> int:
    """Return how many images so many steps have, with those at which episodes of `most_steps` steps begin."""
    return capacity + -(-capacity // most_steps)


def image_memory(shape: tuple[int, ...], device: torch.device, path: Path | None) -> UInt8[Tensor, "s c h w"]:
    """Return memory for images on a device, or in a file that has no name any more, so that it ends with the process.

    Args:
        shape: Images, channels, height, width.
        device: Where they lie.
        path: File that holds them instead.
    """
    if path is None:
        return torch.zeros(shape, dtype=torch.uint8, device=device)
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w+b") as file:
        path.unlink()
        # All of it is taken now, where that can be refused: to write to a map that the disk has no room for is fatal.
        if hasattr(os, "posix_fallocate"):  # which macOS has not
            try:
                os.posix_fallocate(file.fileno(), 0, math.prod(shape))
            except OSError as error:  # which names no file
                raise OSError(error.errno, error.strerror, str(path)) from error
        return torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="r+", shape=shape))


def in_words(images: UInt8[Tensor, "s c h w"]) -> Shaped[Tensor, "s b"]:
    """Return the same memory as few large numbers for each image, which are gathered faster than many small ones."""
    flat = images.flatten(1)
    fits = (dtype for dtype in (torch.int64, torch.int32, torch.int16) if flat.shape[1] % dtype.itemsize == 0)
    return flat.view(next(fits, torch.uint8))


class ImageRing:
    """The last images of one run, with the action and reward that led to each; the oldest make room for new ones.

    Args:
        slots: Images that are kept.
        image_shape: Channels, height, width.
        action_size: Numbers of an action.
        device: Of what is sampled.
        storage_device: Where the images lie, if not there.
        path: Of a file that holds the images instead of memory. It has no name any more once it is made, so that it
            goes with the process, however that ends.
    """

    def __init__(
        self,
        slots: int,
        *,
        image_shape: tuple[int, int, int],
        action_size: int,
        device: torch.device | str,
        storage_device: torch.device | str | None = None,
        path: Path | None = None,
    ) -> None:
        storage = torch.device("cpu") if path is not None else torch.device(storage_device or device)
        self.device = torch.device(device)
        self.slots = slots
        self.count = 0  # images that were ever added
        self.images = image_memory((slots, *image_shape), storage, path)
        self._words = in_words(self.images)
        self._staging = Staging(image_shape, torch.uint8, storage)
        # Arrays of NumPy, which looks a few hundred numbers up in half of the time that a tensor takes.
        self.actions = np.zeros((slots, action_size), dtype=np.float32)
        self.rewards = np.zeros(slots, dtype=np.float32)

    @property
    def _oldest(self) -> int:
        """Number of the oldest image that is kept, counted from the first ever."""
        return max(0, self.count - self.slots)

    def _put(self, image: UInt8[Tensor, "c h w"], action: Float[np.ndarray, " a"] | float, reward: float) -> int:
        """Put an image in the place of the oldest, with what led to it, and return its slot."""
        slot = self.count % self.slots
        self._staging.send(image, self.images[slot])
        self.actions[slot], self.rewards[slot] = action, reward
        self.count += 1
        return slot

    def _restore(self, images: UInt8[np.ndarray, "t c h w"], steps: Shaped[np.ndarray, " t"]) -> Int[np.ndarray, " k"]:
        """Put all images that were ever added where they were, and return the numbers of those that are kept."""
        self.count = len(steps)
        kept = np.arange(self._oldest, self.count)
        for some in np.array_split(kept, max(1, len(kept) // IMAGES_PER_COPY)):
            self.images[torch.from_numpy(some % self.slots)] = torch.from_numpy(images[some]).to(self.images.device)
        self.actions[kept % self.slots] = steps["action"][kept]
        self.rewards[kept % self.slots] = steps["reward"][kept]
        return kept

    def _gather(self, slots: Int[Tensor, "*b"]) -> UInt8[Tensor, "*b c h w"]:
        """Return the images in some slots, which are on the host, or on the device of the images already."""
        # Copies to the host are synchronous: it would read them too early otherwise.
        there = slots.to(self._words.device, non_blocking=self._words.is_cuda)
        words = self._words.index_select(0, there.flatten())
        images = words.view(torch.uint8).view(*slots.shape, *self.images.shape[1:])
        return images.to(self.device, non_blocking=True)
