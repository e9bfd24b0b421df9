"""Layers with Glorot uniform weights and biases of 0, and learnable tokens, all from a generator."""

import math

import torch
from torch import nn

TOKEN_STD = 0.02


def linear(inputs: int, outputs: int, generator: torch.Generator, *, scale: float = 1.0) -> nn.Linear:
    """Return a linear layer.

    Args:
        inputs: Numbers that come in.
        outputs: Numbers that go out.
        generator: Source of the weights.
        scale: Variance of the weights times the mean of inputs and outputs; 1 is Glorot's.
    """
    # PyTorch's own initialisation, which is skipped, would use global random numbers.
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
    nn.init.xavier_uniform_(layer.weight, math.sqrt(scale), generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


def convolution(inputs: int, outputs: int, kernel: int, stride: int, generator: torch.Generator) -> nn.Conv2d:
    """Return a convolution whose outputs are the inputs' height and width over the stride.

    Args:
        inputs: Channels that come in.
        outputs: Channels that go out.
        kernel: Height and width of the kernel.
        stride: Pixels from one output to the next.
        generator: Source of the weights.
    """
    size = {"kernel_size": kernel, "stride": stride, "padding": (kernel - stride) // 2}
    layer: nn.Conv2d = nn.utils.skip_init(nn.Conv2d, inputs, outputs, **size)  # type: ignore[no-untyped-call]
    nn.init.xavier_uniform_(layer.weight, generator=generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def learnable_token(dimensions: int, generator: torch.Generator) -> nn.Parameter:
    """Return a token with normal numbers of deviation 0.02."""
    return nn.Parameter(TOKEN_STD * torch.randn(dimensions, generator=generator))
