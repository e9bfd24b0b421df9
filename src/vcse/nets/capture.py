"""CUDA graphs: a fixed sequence of operations on fixed memory, started by the host in one go."""

from collections.abc import Callable
from typing import Generic, TypeVar

import torch

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
