"""Parameters of many learners in one tensor.

All parameters of a learner are one row, so that clipping, the optimiser and checkpoints are a few operations on
one matrix however many layers there are. The layers see pieces of the rows.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

Stack = Float[Tensor, "l p"]  # one row of parameters per learner
Pieces = Mapping[str, Float[Tensor, "l ..."]]  # the same by name, each with the learner axis first

ALIGNED_FLOATS = 16  # 64 bytes, where all memory that PyTorch hands out begins


@dataclass(frozen=True)
class Layout:
    """Which piece of a row is which parameter."""

    shapes: Mapping[str, tuple[int, ...]]

    @property
    def size(self) -> int:
        """Numbers in a row."""
        return sum(map(math.prod, self.shapes.values()))

    def pieces(self, rows: Stack) -> dict[str, Float[Tensor, "l ..."]]:
        """Give the parameters by name; gradients of all pieces come back to the rows in one operation."""
        parts = torch.split(rows, [math.prod(shape) for shape in self.shapes.values()], dim=1)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(len(rows), *shape) for (name, shape), part in named}


def linear(
    inputs: Float[Tensor, "l n i"], weight: Float[Tensor, "l i o"], bias: Float[Tensor, "l o"]
) -> Float[Tensor, "l n o"]:
    """Apply each learner's own layer to its own inputs, to the same bits however many learners there are."""
    rows, padded = inputs.shape[1], _padded(inputs, weight)
    if _is_single(inputs):
        return torch.baddbmm(*(each.expand(2, -1, -1) for each in (bias.unsqueeze(1), padded, weight)))[:1, :rows]
    return torch.baddbmm(bias.unsqueeze(1), padded, weight)[:, :rows]


def product(left: Float[Tensor, "l n i"], right: Float[Tensor, "l i o"]) -> Float[Tensor, "l n o"]:
    """Multiply each learner's own matrices, to the same bits however many learners there are."""
    rows, padded = left.shape[1], _padded(left, right)
    if _is_single(left):
        return torch.bmm(padded.expand(2, -1, -1), right.expand(2, -1, -1))[:1, :rows]
    return torch.bmm(padded, right)[:, :rows]


def _is_single(stack: Float[Tensor, "l n i"]) -> bool:
    """Whether BLAS would sum in another order than for a stack of several, and should be given two instead."""
    return len(stack) == 1 and not stack.is_cuda


def _padded(left: Float[Tensor, "l n i"], right: Float[Tensor, "l i o"]) -> Float[Tensor, "l more_n i"]:
    """Add rows where else BLAS would sum in another order for some learners: by where the product of each begins."""
    rows_at_once = ALIGNED_FLOATS // math.gcd(ALIGNED_FLOATS, right.shape[-1])
    extra = -left.shape[1] % rows_at_once
    return left if extra == 0 or left.is_cuda else nn.functional.pad(left, (0, 0, 0, extra))


def uniform_fan_in(shape: tuple[int, ...], fan_in: int, generator: torch.Generator) -> Float[Tensor, "..."]:
    """PyTorch's default for convolutions: uniform within ± 1/√fan_in."""
    bound = 1 / math.sqrt(fan_in)
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)


def normal_unit_columns(shape: tuple[int, int], generator: torch.Generator) -> Float[Tensor, "i o"]:
    """Normal numbers; what leads to each output unit is scaled to length 1."""
    weight = torch.empty(shape).normal_(generator=generator)
    return nn.functional.normalize(weight, dim=0)
