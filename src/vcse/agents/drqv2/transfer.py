"""Transfer of the inputs of an update from images: chosen on the host, gathered on the learner's device."""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.nets.cuda.graphs import CUDAGraph, PackedTransfer
from vcse.replay.images import Chosen, ImageBatch, ImageReplay


class UpdateInputs(NamedTuple):
    """The inputs of an update, on the learner's device."""

    batch: ImageBatch
    noise: Float[Tensor, "d n a"]
    shifts: Int[Tensor, "s m 2"]


class BatchTransfer:
    """Gathers batches on a device. Their numbers go to a GPU in one asynchronous copy.

    Args:
        replay: Which holds the images.
        device: Of the learner.
    """

    def __init__(self, replay: ImageReplay, device: torch.device) -> None:
        self._replay = replay
        self._device = device
        self._transfer: PackedTransfer | None = None
        self._captured_gather: CUDAGraph[ImageBatch] | None = None
        self._kept_batch: ImageBatch | None = None  # where images go that are in the memory of the host

    @property
    def is_asynchronous(self) -> bool:
        """Whether the host does not wait for batches, as the images are on the GPU; otherwise it gathers them."""
        return self._replay.images.is_cuda

    def gather(self, chosen: Chosen, noise: Float[Tensor, "d n a"], shifts: Int[Tensor, "s m 2"]) -> UpdateInputs:
        """Return what was chosen and sampled, on the device; the last one may be overwritten."""
        if self._device.type == "cpu":
            return UpdateInputs(self._replay.gather(chosen), noise, shifts)
        there, noise, shifts = self._sent(chosen, noise, shifts)
        if self._captured_gather is not None:
            return UpdateInputs(self._captured_gather(), noise, shifts)
        batch = self._replay.gather(there)
        return UpdateInputs(batch if self._kept_batch is None else _copied(batch, self._kept_batch), noise, shifts)

    def gather_in_place(
        self, chosen: Chosen, noise: Float[Tensor, "d n a"], shifts: Int[Tensor, "s m 2"]
    ) -> UpdateInputs:
        """Return the same, always in one memory of the GPU from now on, so that an update can be captured."""
        there, noise, shifts = self._sent(chosen, noise, shifts)
        if self._replay.images.is_cuda:
            self._captured_gather = CUDAGraph(lambda: self._replay.gather(there))
            return UpdateInputs(self._captured_gather(), noise, shifts)
        self._kept_batch = self._replay.gather(there)
        return UpdateInputs(self._kept_batch, noise, shifts)

    def _sent(self, chosen: Chosen, noise: Tensor, shifts: Tensor) -> tuple[Chosen, Tensor, Tensor]:
        """Send the numbers, always to the same memory; slots stay on the host if the images are there."""
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
