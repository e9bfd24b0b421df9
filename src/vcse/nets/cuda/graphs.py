"""CUDA graphs, fixed sequences of operations on fixed memory that the host starts in one go, and how it is filled."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

Output = TypeVar("Output")
Batch = TypeVar("Batch", bound=tuple[Tensor, ...])

_ALIGNED_BYTES = 16


class CUDAGraph(Generic[Output]):
    """A function without arguments, captured once and replayed at each call.

    It must read from and write to memory that stays where it is, wait for nothing, and have run before, so that
    libraries and kernels are loaded. What it returns is overwritten by the next call.

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


class BatchGraph(Generic[Batch, Output]):
    """A function of a batch, captured once and replayed at each call, on a copy of the batch.

    Args:
        function: As for `CUDAGraph`, but for its argument.
        batch: A named tuple of tensors, of the shapes that all batches have.
        generator: From which it samples.
    """

    def __init__(self, function: Callable[[Batch], Output], batch: Batch, generator: torch.Generator) -> None:
        kept = type(batch)(*(each.clone() for each in batch))
        self._batch = kept
        self._graph = CUDAGraph(lambda: function(kept), [generator])

    def __call__(self, batch: Batch) -> Output:
        """Copy the batch, and start the operations."""
        for mine, theirs in zip(self._batch, batch, strict=True):
            mine.copy_(theirs)
        return self._graph()


class PackedTransfer:
    """Copies small tensors of the host to a device in one transfer, always to the same memory.

    Args:
        contents: Tensors of the shapes and types that all later ones must have.
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
        """Send tensors asynchronously."""
        if self._sent is not None:
            self._sent.synchronize()  # what is overwritten here must have been copied
        for mine, theirs in zip(self._packed, contents, strict=True):
            mine.copy_(theirs)
        self._there.copy_(self._here, non_blocking=True)
        if self._sent is not None:
            self._sent.record()


class CUDAGraphs(Generic[Output]):
    """Calls functions of tensors: operation by operation until `enable`, then as CUDA graphs, one for all equal shapes.

    Args:
        device: Where the functions run.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self._is_enabled = False
        self._graphs: dict[str, _GraphWithInputs[Output]] = {}

    def enable(self) -> None:
        """Capture and replay CUDA graphs from now on; what a call returns is overwritten by the next."""
        self._is_enabled = True

    def disable(self) -> None:
        """Run operation by operation again."""
        self._is_enabled = False
        self._graphs.clear()

    def __call__(self, function: Callable[..., Output], *inputs: Tensor, **constants: Any) -> Output:
        """Call a function.

        Args:
            function: Always the same; it waits for nothing.
            inputs: On the host or the device.
            constants: What is not a tensor; each has graphs of its own.
        """
        if not self._is_enabled:
            return function(*(each.to(self.device) for each in inputs), **constants)
        key = str(([each.shape for each in inputs], constants))
        if key not in self._graphs:
            self._graphs[key] = _GraphWithInputs(partial(function, **constants), inputs, self.device)
        return self._graphs[key](inputs)


class _GraphWithInputs(Generic[Output]):
    """A CUDA graph of a function, and the memory that its inputs are copied to."""

    def __init__(self, function: Callable[..., Output], inputs: Sequence[Tensor], device: torch.device) -> None:
        self._from_host = [each.device.type == "cpu" for each in inputs]
        self._transfer = PackedTransfer([each for each in inputs if each.device.type == "cpu"], device)
        received = iter(self._transfer.received)
        self._inputs = [
            next(received) if here else each.clone() for each, here in zip(inputs, self._from_host, strict=True)
        ]
        self._copy(inputs)
        function(*self._inputs)
        self._graph = CUDAGraph(lambda: function(*self._inputs))

    def __call__(self, inputs: Sequence[Tensor]) -> Output:
        self._copy(inputs)
        return self._graph()

    def _copy(self, inputs: Sequence[Tensor]) -> None:
        self._transfer.send([each for each, here in zip(inputs, self._from_host, strict=True) if here])
        for mine, theirs, here in zip(self._inputs, inputs, self._from_host, strict=True):
            if not here:
                mine.copy_(theirs)
