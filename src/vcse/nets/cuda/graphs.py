"""CUDA graphs, fixed sequences of operations on fixed memory that the host starts in one go, and how it is filled."""

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Generic, TypeVar

import torch
from torch import Tensor

Output = TypeVar("Output")

_ALIGNED_BYTES = 16


class Captured(Generic[Output]):
    """A function without arguments, captured once and replayed at each call.

    It must read from and write to memory that stays where it is, wait for nothing, and have run before, so that
    libraries and kernels are loaded. What it gives is overwritten by the next call.

    Args:
        function: What is captured.
        generators: Of the device, from which it samples; a seed that they are given before a call counts in that call.
    """

    def __init__(self, function: Callable[[], Output], generators: Sequence[torch.Generator] = ()) -> None:
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        for each in generators:
            self._graph.register_generator_state(each)
        # Of its own: matrix products have scratch memory by stream, and two graphs may run at the same time.
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        with torch.cuda.graph(self._graph, stream=stream):
            self._output = function()

    def __call__(self) -> Output:
        """Start the operations."""
        self._graph.replay()
        return self._output


class Parcel:
    """Small tensors of the host that go to a device in one copy, always to the same memory.

    Args:
        contents: Whose shapes and types those of later parcels must have.
        device: Where they go.

    Attributes:
        received: What was sent last, on the device.
    """

    def __init__(self, contents: Sequence[Tensor], device: torch.device) -> None:
        begins = [0, *accumulate(-(-each.nbytes // _ALIGNED_BYTES) * _ALIGNED_BYTES for each in contents)]
        there = torch.zeros(begins[-1], dtype=torch.uint8, device=device)
        here = torch.zeros(begins[-1], dtype=torch.uint8, pin_memory=device.type == "cuda")
        self._here, self._there = here, there
        self._packed, self.received = (
            [
                memory[begin : begin + each.nbytes].view(each.dtype).view(each.shape)
                for begin, each in zip(begins, contents, strict=False)
            ]
            for memory in (here, there)
        )
        self._sent = torch.cuda.Event() if device.type == "cuda" else None  # type: ignore[no-untyped-call]

    def send(self, contents: Sequence[Tensor]) -> None:
        """Send tensors, without waiting until they have arrived."""
        if self._sent is not None:
            self._sent.synchronize()  # what is overwritten here must have been copied
        for mine, theirs in zip(self._packed, contents, strict=True):
            mine.copy_(theirs)
        self._there.copy_(self._here, non_blocking=True)
        if self._sent is not None:
            self._sent.record()


class CapturedCall(Generic[Output]):
    """A function of tensors, captured once; what it is called with is copied to memory of its own.

    Args:
        function: As for `Captured`, but for its arguments.
        inputs: On the host or the device; those of later calls must lie there too, and have the same shapes.
        device: Where the function runs.
    """

    def __init__(self, function: Callable[..., Output], *inputs: Tensor, device: torch.device) -> None:
        self._from_host = [each.device.type == "cpu" for each in inputs]
        self._parcel = Parcel([each for each in inputs if each.device.type == "cpu"], device)
        received = iter(self._parcel.received)
        self._inputs = [
            next(received) if here else each.clone() for each, here in zip(inputs, self._from_host, strict=True)
        ]
        self._send(inputs)
        function(*self._inputs)
        self._captured = Captured(lambda: function(*self._inputs))

    def __call__(self, *inputs: Tensor) -> Output:
        """Copy the inputs, and start the operations."""
        self._send(inputs)
        return self._captured()

    def _send(self, inputs: Sequence[Tensor]) -> None:
        self._parcel.send([each for each, here in zip(inputs, self._from_host, strict=True) if here])
        for mine, theirs, here in zip(self._inputs, inputs, self._from_host, strict=True):
            if not here:
                mine.copy_(theirs)
