"""Parameters of many learners in one tensor.

All parameters of a learner are one row, so that clipping, the optimiser and checkpoints are a few operations on
one matrix however many layers there are. The layers see pieces of the rows.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
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
        """Return the parameters by name; gradients of all pieces come back to the rows in one operation."""
        parts = torch.split(rows, [math.prod(shape) for shape in self.shapes.values()], dim=1)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(len(rows), *shape) for (name, shape), part in named}


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


def uniform_fan_in(shape: tuple[int, ...], fan_in: int, generator: torch.Generator) -> Float[Tensor, "..."]:
    """PyTorch's default for convolutions: uniform within ± 1/√fan_in."""
    bound = 1 / math.sqrt(fan_in)
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)


def normal_unit_columns(shape: tuple[int, int], generator: torch.Generator) -> Float[Tensor, "i o"]:
    """Normal numbers; what leads to each output unit is scaled to length 1."""
    weight = torch.empty(shape).normal_(generator=generator)
    return nn.functional.normalize(weight, dim=0)


def rows_of(who: Int[Tensor, " m"], tensor: Shaped[Tensor, "l ..."]) -> Shaped[Tensor, "m ..."]:
    """Return the rows of some learners, without a copy where these are all."""
    return tensor if len(who) == len(tensor) else tensor[who]


def among_all(who: Int[Tensor, " m"], rows: Shaped[Tensor, "m ..."], learners: int) -> Shaped[Tensor, "l ..."]:
    """Return the rows of some learners with zeros for the others, without a copy where these are all."""
    if len(who) == learners:
        return rows
    return rows.new_zeros(learners, *rows.shape[1:]).index_copy(0, who, rows)


def per_learner(settings: Sequence[Any], name: str, device: torch.device) -> Float[Tensor, " l"]:
    """Return a number of each learner's settings."""
    return torch.tensor([float(getattr(each, name)) for each in settings], device=device)


def indices(learners: Iterable[int], device: torch.device) -> Int[Tensor, " m"]:
    """Return numbers of learners as a tensor."""
    return torch.tensor(list(learners), dtype=torch.int64, device=device)


def place_of(learner: int, who: Int[Tensor, " m"]) -> int | None:
    """Return the row of a learner among some; None where it is not one of them."""
    found = (who == learner).nonzero().flatten().tolist()
    return found[0] if found else None
