"""Precision of what must not be rounded to the numbers that products are computed in."""

import torch
from jaxtyping import Float
from torch import Tensor


def at_least_float32(numbers: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """Return numbers as float32, under `torch.autocast` too; float64 stays what it is."""
    return numbers.to(torch.promote_types(numbers.dtype, torch.float32))
