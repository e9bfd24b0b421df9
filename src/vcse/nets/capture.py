"""CUDA graphs: a fixed sequence of operations on fixed memory, started by the host in one go."""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch
from torch import Tensor

Output = TypeVar("Output")


class Captured(Generic[Output]):
    """A function without arguments, captured once and replayed at each call.

    It must read from and write to memory that stays where it is, wait for nothing, and have run before, so that
    libraries and kernels are loaded. What it gives is overwritten by the next call.
    """

    def __init__(self, function: Callable[[], Output]) -> None:
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            self._output = function()

    def __call__(self) -> Output:
        """Start the operations."""
        self._graph.replay()
        return self._output


class CapturedCall(Generic[Output]):
    """A function of tensors, captured once; what it is called with is copied to memory of its own.

    Args:
        function: As for `Captured`, but for its arguments.
        inputs: On the host or the device; those of later calls must have the same shapes.
        device: Where the function runs.
    """

    def __init__(self, function: Callable[..., Output], *inputs: Tensor, device: torch.device) -> None:
        self._inputs = [each.to(device, copy=True) for each in inputs]
        function(*self._inputs)
        self._captured = Captured(lambda: function(*self._inputs))

    def __call__(self, *inputs: Tensor) -> Output:
        """Copy the inputs, and start the operations."""
        for mine, theirs in zip(self._inputs, inputs, strict=True):
            mine.copy_(theirs, non_blocking=True)
        return self._captured()
