"""The way of what an update from images learns from: chosen by the host, gathered on the learner's device."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.nets.cuda.graphs import CUDAGraph, PackedTransfer
from vcse.replay.images import Chosen, ImageBatch, ImageReplay


class Delivered(NamedTuple):
    """All that an update reads, on the learner's device."""

    batch: ImageBatch
    noise: Float[Tensor, "d n a"]
    shifts: Int[Tensor, "s m 2"]


class Delivery:
    """Brings batches to a device. On a GPU their numbers go there in one copy, and nobody waits for it.

    Args:
        replay: Where the frames lie.
        device: Of the learner.
    """

    def __init__(self, replay: ImageReplay, device: torch.device) -> None:
        self._replay = replay
        self._device = device
        self._transfer: PackedTransfer | None = None
        self._captured_gather: CUDAGraph[ImageBatch] | None = None
        self._kept_batch: ImageBatch | None = None  # where frames arrive that the host keeps

    @property
    def is_instant(self) -> bool:
        """Whether nobody waits for batches, as the frames lie on the GPU: the host gathers them itself otherwise."""
        return self._replay.images.is_cuda

    def bring(self, chosen: Chosen, noise: Float[Tensor, "d n a"], shifts: Int[Tensor, "s m 2"]) -> Delivered:
        """Return what was chosen and sampled, on the device. The one before may be overwritten."""
        if self._device.type == "cpu":
            return Delivered(self._replay.gather(chosen), noise, shifts)
        there, noise, shifts = self._sent(chosen, noise, shifts)
        if self._captured_gather is not None:
            return Delivered(self._captured_gather(), noise, shifts)
        batch = self._replay.gather(there)
        return Delivered(batch if self._kept_batch is None else _copied(batch, self._kept_batch), noise, shifts)

    def bring_to_stay(self, chosen: Chosen, noise: Float[Tensor, "d n a"], shifts: Int[Tensor, "s m 2"]) -> Delivered:
        """Do the same on a GPU, and use this memory for all that follow, so that an update can be captured from it."""
        there, noise, shifts = self._sent(chosen, noise, shifts)
        if self._replay.images.is_cuda:
            self._captured_gather = CUDAGraph(lambda: self._replay.gather(there))
            return Delivered(self._captured_gather(), noise, shifts)
        self._kept_batch = self._replay.gather(there)
        return Delivered(self._kept_batch, noise, shifts)

    def _sent(self, chosen: Chosen, noise: Tensor, shifts: Tensor) -> tuple[Chosen, Tensor, Tensor]:
        """Send the numbers, always to the same memory; slots stay on the host where the frames are there."""
        contents = [*chosen, noise, shifts]
        if self._transfer is None:
            self._transfer = PackedTransfer(contents, self._device)
        self._transfer.send(contents)
        *places, noise, shifts = self._transfer.received
        there = Chosen(*places)
        return (there if self._replay.images.is_cuda else there._replace(slots=chosen.slots)), noise, shifts


def _copied(batch: ImageBatch, kept: ImageBatch) -> ImageBatch:
    """Copy a batch to where an earlier one lies."""
    mine, theirs = ((*each[:-1], *(each.between or ())) for each in (kept, batch))
    for old, new in zip(mine, theirs, strict=True):
        if old is not None and new is not None:
            old.copy_(new)
    return kept
