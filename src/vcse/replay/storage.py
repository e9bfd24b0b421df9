"""Memory for images, on a GPU, on the host or in a file on disk, and the record of what led to each image."""

import math
import os
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Int, Shaped, UInt8
from torch import Tensor

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
            os.posix_fallocate(file.fileno(), 0, math.prod(shape))
        return torch.from_numpy(np.memmap(file, dtype=np.uint8, mode="r+", shape=shape))


def in_words(images: UInt8[Tensor, "s c h w"]) -> Shaped[Tensor, "s b"]:
    """Return the same memory as few large numbers for each image, which are gathered faster than many small ones."""
    flat = images.flatten(1)
    fits = (dtype for dtype in (torch.int64, torch.int32, torch.int16) if flat.shape[1] % dtype.itemsize == 0)
    return flat.view(next(fits, torch.uint8))


def restore_images(
    memory: UInt8[Tensor, "s c h w"], images: UInt8[np.ndarray, "t c h w"], kept: Int[np.ndarray, " k"]
) -> None:
    """Copy images into memory that is used as a ring.

    Args:
        memory: Slots of the ring.
        images: All that were ever added, in order.
        kept: Numbers of those to copy, in order.
    """
    for some in np.array_split(kept, max(1, len(kept) // IMAGES_PER_COPY)):
        memory[torch.from_numpy(some % len(memory))] = torch.from_numpy(images[some]).to(memory.device)
