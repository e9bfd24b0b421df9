"""How exactly a GPU multiplies: settings of the whole process, which follow from the agent that is trained."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from vcse.agents.entry import AGENTS, Arithmetic

ON_CPU = Arithmetic("highest", cudnn_benchmark=False)


def arithmetic_of(agent: str, device: str) -> Arithmetic:
    """Give how an agent is trained."""
    return AGENTS[agent].on_gpu if device == "cuda" else ON_CPU


@contextmanager
def computing_as(agent: str, device: str) -> Iterator[None]:
    """Let PyTorch compute as it does when an agent is trained, and afterwards as before."""
    before = (
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
    )
    wanted = arithmetic_of(agent, device)
    _tell(1, *wanted)  # for networks this small, more threads wait for each other longer than they help
    try:
        yield
    finally:
        _tell(*before)


def _tell(threads: int, precision: str, benchmark: bool) -> None:
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark = benchmark
