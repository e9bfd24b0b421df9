"""How exactly a GPU multiplies: settings of the whole process, which follow from the agent that is trained."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch


class Arithmetic(NamedTuple):
    """Settings of PyTorch."""

    float32_matmul_precision: Literal["high", "highest"]  # high: products of TF32 numbers, on a GPU
    cudnn_benchmark: bool  # look for the fastest convolution, once for every shape


EXACT = Arithmetic("highest", cudnn_benchmark=False)  # as on every CPU


@contextmanager
def computing_with(arithmetic: Arithmetic) -> Iterator[None]:
    """Set how exactly PyTorch computes, as in training, and restore it afterwards."""
    before = (
        torch.get_num_threads(),
        torch.get_float32_matmul_precision(),
        torch.backends.cudnn.benchmark,
    )
    _tell(1, *arithmetic)  # for networks this small, more threads wait for each other longer than they help
    try:
        yield
    finally:
        _tell(*before)


def _tell(threads: int, precision: str, benchmark: bool) -> None:
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.benchmark = benchmark
