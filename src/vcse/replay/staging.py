"""The way of small tensors from the host into large memory, which may lie on a GPU."""

import torch
from torch import Tensor


class Staging:
    """Memory in which a tensor lies on its way to a GPU, so that the host does not wait for the GPU.

    Args:
        shape: Of each tensor.
        dtype: Of each tensor.
        device: Where they go; to the memory of the host they are simply copied.
    """

    def __init__(self, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self._is_needed = device.type == "cuda"
        if self._is_needed:
            self._memory = torch.zeros(shape, dtype=dtype).pin_memory()
            self._copied = torch.cuda.Event()  # type: ignore[no-untyped-call]

    def send(self, tensor: Tensor, place: Tensor) -> None:
        """Copy a tensor to its place asynchronously."""
        if not self._is_needed:
            place.copy_(tensor)
            return
        self._copied.synchronize()  # what is overwritten here must have been copied
        self._memory.copy_(tensor)
        place.copy_(self._memory, non_blocking=True)
        self._copied.record()
