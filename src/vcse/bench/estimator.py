"""Time and memory of the whole VCSE reward against the plain broadcast formula, in one run.

The plain formula builds the N x N x d tensor of differences, as the released code does. On a CPU both run on one
thread, timed in turns in one process, and memory is the peak of the resident set of a fresh process, less its
start. On a GPU ours is replayed
as a captured CUDA graph, and memory is what PyTorch's allocator had to hand out.
"""

import multiprocessing
import resource
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from vcse.estimators import value_conditional_reward
from vcse.runs.resources import free_bytes

READING = "release-a2c"
MOST_SECONDS = 60  # of one way at one size on a CPU; then the median of fewer runs is given
RUNS_IN_A_TURN = 5
Measured = TypeVar("Measured")


class Size(NamedTuple):
    """A batch: N points of d dimensions, and which neighbour is looked for."""

    n: int
    d: int
    k: int

    @classmethod
    def parse(cls, text: str) -> "Size":
        """Read 1024x512x12."""
        parts = text.split("x")
        if len(parts) != 3 or not all(part.isdecimal() for part in parts):
            raise ValueError(f"a size is written NxDxK, such as 1024x512x12, got {text!r}")
        size = cls(*map(int, parts))
        if size.d < 1 or not 1 <= size.k < size.n:
            raise ValueError(f"a size NxDxK needs D of at least 1 and K from 1 to N - 1, got {text!r}")
        return size


CPU_SIZES = (
    Size(128, 64, 3),  # a rollout of A2C
    Size(256, 50, 12),  # a batch of DrQ-v2
    Size(1024, 15, 12),  # a batch of SAC from states
    Size(1024, 50, 5),
    Size(1024, 50, 12),
    Size(1024, 512, 12),
    Size(2500, 256, 12),  # a batch of Masked World Models
    Size(20000, 256, 12),
)
CUDA_SIZES = (
    Size(128, 64, 3),
    Size(256, 50, 12),
    Size(1024, 15, 12),
    Size(2500, 256, 12),
    Size(1024, 512, 12),
    Size(1024, 1024, 12),
    Size(4096, 1024, 12),
    Size(16384, 1024, 12),
)


@dataclass(frozen=True)
class Row:
    """One line of the answer; None where the plain formula does not fit in memory."""

    device: str
    n: int
    d: int
    k: int
    ms: float
    naive_ms: float | None
    peak_mib: float
    naive_peak_mib: float | None


def broadcast_reward(features: Float[Tensor, "n d"], values: Float[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
    """Compute the same reward as the released code writes it."""
    states = torch.norm(features[:, None] - features[None], dim=-1)
    by_value = (values[:, None] - values[None]).abs()
    joint = torch.maximum(states, by_value)
    radius = joint.topk(k + 1, largest=False).values[:, -1]
    count = (by_value < radius[:, None]).sum(-1)
    return torch.digamma(count.float() + 1) / features.shape[1] + torch.log(2 * radius + 1e-5)


def our_reward(features: Float[Tensor, "n d"], values: Float[Tensor, " n"], k: int) -> Float[Tensor, " n"]:
    """Compute the reward with this library, as an agent would."""
    return value_conditional_reward(features, values, k=k, reading=READING)


WAYS = {"ours": our_reward, "broadcast": broadcast_reward}


def measure(device: str, sizes: tuple[Size, ...], *, repeats: int) -> Iterator[Row]:
    """Measure size after size."""
    for size in sizes:
        yield _measure_cuda(size, repeats) if device == "cuda" else _measure_cpu(size, repeats)


def _inputs(size: Size, device: str) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    features = torch.randn(size.n, size.d, generator=generator)
    values = torch.randn(size.n, generator=generator)
    return features.to(device), values.to(device)


def broadcast_bytes(size: Size) -> int:
    """Bytes of the plain formula's largest tensor."""
    return 4 * size.n * size.n * size.d


def _measure_cpu(size: Size, repeats: int) -> Row:
    """Measure memory in a fresh process for each way, then time both in one process, in turns."""
    ways = ["ours", "broadcast"] if 1.5 * broadcast_bytes(size) < (free_bytes("cpu") or 8 << 30) else ["ours"]
    peaks = {way: _in_fresh_process(_peak_mib, [way], size) for way in ways}
    times = _in_fresh_process(_milliseconds, ways, size, repeats)
    return Row("cpu", *size, times["ours"], times.get("broadcast"), peaks["ours"], peaks.get("broadcast"))


def _in_fresh_process(measure: Callable[..., Measured], ways: list[str], size: Size, *arguments: int) -> Measured:
    """Return what is measured of some ways where nothing else ran before."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as pool:
        try:
            return pool.submit(measure, ways, size, *arguments).result()
        except (RuntimeError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}"
            raise RuntimeError(f"measuring {' and '.join(ways)} at {size} failed: {reason}") from error


def _inputs_when_ready(ways: list[str], size: Size) -> tuple[Tensor, Tensor, int]:
    """Return what is computed with, on one thread, once libraries have loaded what they need."""
    torch.set_num_threads(1)
    features, values = _inputs(size, "cpu")
    for way in ways:
        WAYS[way](*_inputs(Size(64, 4, 3), "cpu"), 3)
    return features, values, size.k


def _peak_mib(ways: list[str], size: Size) -> float:
    """Return by how much computing raises the peak of the resident set of this process."""
    inputs = _inputs_when_ready(ways, size)
    start_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for way in ways:
        WAYS[way](*inputs)
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - start_kib) / 1024


def _milliseconds(ways: list[str], size: Size, repeats: int) -> dict[str, float]:
    """Return the median duration of each way."""
    inputs = _inputs_when_ready(ways, size)
    times: dict[str, list[float]] = {way: [] for way in ways}
    while _asks_for_more(times, repeats):
        for way, mine in times.items():  # in turns, so that what else the machine does meets both
            WAYS[way](*inputs)  # the other one's turn has emptied the cache
            for _ in range(RUNS_IN_A_TURN):
                begin = time.perf_counter()
                WAYS[way](*inputs)
                mine.append(1e3 * (time.perf_counter() - begin))
    return {way: statistics.median(each) for way, each in times.items()}


def _asks_for_more(times: dict[str, list[float]], repeats: int) -> bool:
    done = min(map(len, times.values()))
    return done == 0 or (done < repeats and max(map(sum, times.values())) < 1e3 * MOST_SECONDS)


def _measure_cuda(size: Size, repeats: int) -> Row:
    features, values = _inputs(size, "cuda")
    our_reward(features, values, size.k)  # compiles the kernels
    torch.cuda.synchronize()
    start = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        our_reward(features, values, size.k)
    peak_mib = (torch.cuda.max_memory_allocated() - start) / 2**20
    milliseconds = _time_cuda(graph.replay, repeats)
    del graph
    torch.cuda.empty_cache()
    naive_ms, naive_peak = _measure_broadcast_cuda(features, values, size, repeats)
    return Row(torch.cuda.get_device_name(), *size, milliseconds, naive_ms, peak_mib, naive_peak)


def _measure_broadcast_cuda(
    features: Tensor, values: Tensor, size: Size, repeats: int
) -> tuple[float | None, float | None]:
    if 1.2 * broadcast_bytes(size) > torch.cuda.mem_get_info()[0]:
        return None, None
    start = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    milliseconds = _time_cuda(lambda: broadcast_reward(features, values, size.k), repeats)
    peak = torch.cuda.max_memory_allocated() - start
    torch.cuda.empty_cache()
    return milliseconds, peak / 2**20


def _time_cuda(work: Callable[[], object], repeats: int) -> float:
    for _ in range(3):
        work()
    times = []
    for _ in range(repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        begin.record()
        work()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end))
    return float(statistics.median(times))
