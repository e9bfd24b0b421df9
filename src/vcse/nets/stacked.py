"""Parameters with a leading learner axis, and layers that give a learner the same bits alone and in a cohort.

All parameters of a learner may be one row of a matrix underneath, so that clipping, the optimiser and checkpoints are a
few operations however many layers there are.
"""

import math
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from vcse.nets.optimizers import parameters_of

Learners = slice | Sequence[int] | Int[Tensor, " m"]  # some of a cohort

ALIGNED_FLOATS = 16  # 64 bytes, where all memory that PyTorch hands out begins


class StackedLayer(nn.Module):
    """A linear layer for each learner; the parameters of convolutions are kept in the same form.

    Args:
        weights: Of each learner.
        biases: Of each learner.
    """

    def __init__(self, weights: Sequence[Float[Tensor, "..."]], biases: Sequence[Float[Tensor, " o"]]) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.stack(list(weights))), nn.Parameter(torch.stack(list(biases)))

    @classmethod
    def uniform(
        cls, shape: tuple[int, ...], outputs: int, fan_in: int, generators: Sequence[torch.Generator]
    ) -> "StackedLayer":
        """Sample the parameters of each learner uniformly within ± 1/√fan_in, as PyTorch does by default."""
        bound = 1 / math.sqrt(fan_in)
        sampled = [
            [torch.empty(size).uniform_(-bound, bound, generator=generator) for size in (shape, (outputs,))]
            for generator in generators
        ]
        return cls(*zip(*sampled, strict=True))

    @classmethod
    def normal_unit_columns(cls, inputs: int, outputs: int, generators: Sequence[torch.Generator]) -> "StackedLayer":
        """Sample normal weights, scaled so that those of each output have length 1; biases are 0."""
        weights = [torch.empty(inputs, outputs).normal_(generator=generator) for generator in generators]
        return cls([nn.functional.normalize(each, dim=0) for each in weights], [torch.zeros(outputs)] * len(weights))

    def forward(self, inputs: Float[Tensor, "m n i"], learners: Learners | None = None) -> Float[Tensor, "m n o"]:
        """Apply each learner's own layer to its own inputs; all learners if not given."""
        if learners is None:
            return linear(inputs, self.weight, self.bias)
        return linear(inputs, self.weight[learners], self.bias[learners])


def flatten_parameters(*modules: nn.Module | None) -> Float[Tensor, "l p"]:
    """Move the parameters of modules to one matrix, a row per learner, of which they are views from now on."""
    parameters = parameters_of(*modules)
    if not parameters:
        return torch.zeros(0, 0)
    rows = torch.cat([each.detach().flatten(1) for each in parameters], 1)
    pieces = torch.split(rows, [each[0].numel() for each in parameters], 1)
    for parameter, piece in zip(parameters, pieces, strict=True):
        parameter.data = piece.view(parameter.shape)
    return rows


def linear(
    inputs: Float[Tensor, "l n i"], weight: Float[Tensor, "l i o"], bias: Float[Tensor, "l o"]
) -> Float[Tensor, "l n o"]:
    """Apply each learner's own layer to its own inputs, to the same bits however many learners there are."""
    operands = _in_company(bias.unsqueeze(1), _padded(inputs, weight), weight)
    return torch.baddbmm(*operands)[: len(inputs), : inputs.shape[1]]


def product(left: Float[Tensor, "l n i"], right: Float[Tensor, "l i o"]) -> Float[Tensor, "l n o"]:
    """Multiply each learner's own matrices, to the same bits however many learners there are."""
    return torch.bmm(*_in_company(_padded(left, right), right))[: len(left), : left.shape[1]]


def _in_company(*stacks: Float[Tensor, "l _ _"]) -> Sequence[Float[Tensor, "_ _ _"]]:
    """Return two of each stack of one, for which BLAS would sum in another order than for a stack of several."""
    if len(stacks[0]) != 1 or stacks[0].is_cuda:
        return stacks
    return [each.expand(2, -1, -1) for each in stacks]


def _padded(left: Float[Tensor, "l n i"], right: Float[Tensor, "l i o"]) -> Float[Tensor, "l more_n i"]:
    """Add rows where else BLAS would sum in another order for some learners: by where the product of each begins."""
    rows_at_once = ALIGNED_FLOATS // math.gcd(ALIGNED_FLOATS, right.shape[-1])
    extra = -left.shape[1] % rows_at_once
    return left if extra == 0 or left.is_cuda else nn.functional.pad(left, (0, 0, 0, extra))


def gather_rows(tensor: Shaped[Tensor, "l ..."], index: Int[Tensor, " m"]) -> Shaped[Tensor, "m ..."]:
    """Return some rows of a tensor, without a copy where these are all."""
    return tensor if len(index) == len(tensor) else tensor[index]


def scatter_rows(rows: Shaped[Tensor, "m ..."], index: Int[Tensor, " m"], count: int) -> Shaped[Tensor, "l ..."]:
    """Return a tensor of so many rows: some are given, the others are zeros. There is no copy where all are given."""
    if len(index) == count:
        return rows
    return rows.new_zeros(count, *rows.shape[1:]).index_copy(0, index, rows)


def per_learner(settings: Sequence[Any], name: str, device: torch.device) -> Float[Tensor, " l"]:
    """Return a number of each learner's settings."""
    return torch.tensor([float(getattr(each, name)) for each in settings], device=device)


def index_tensor(learners: Iterable[int], device: torch.device) -> Int[Tensor, " m"]:
    """Return numbers of learners as a tensor, which may be empty."""
    return torch.tensor(list(learners), dtype=torch.int64, device=device)


def index_of(learner: int, learners: Int[Tensor, " m"]) -> int | None:
    """Return the place of a learner among some; None where it is not one of them."""
    found = (learners == learner).nonzero().flatten().tolist()
    return found[0] if found else None
