"""Kernels of this package that are written in Triton, which comes with PyTorch for CUDA."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

from vcse.estimators.neighbors.cuda import triton_module

TILE_NUMBERS = 8192  # of a hidden layer, that one program takes on the way back
MOST_UNITS = 128  # of them side by side
MODULES = {"mlp": "triton_mlp", "images": "triton_images"}


def device_code(of: Literal["mlp", "images"]) -> Any:
    """Return the module of some kernels, or None where Triton is not installed."""
    return triton_module(f"vcse.nets.cuda.{MODULES[of]}")


def product_size(numbers: int) -> int:
    """Return how many numbers kernels that multiply take for so many: a power of two, and no fewer than 16."""
    return max(16, 1 << (numbers - 1).bit_length())


def product_precision() -> Literal["ieee", "tf32"]:
    """Return how exactly kernels multiply float32: as PyTorch is set to multiply matrices."""
    return "ieee" if torch.get_float32_matmul_precision() == "highest" else "tf32"


def masked_gradient(
    gradient: Float[Tensor, "b n u"], hidden: Float[Tensor, "b n u"]
) -> tuple[Float[Tensor, "b n u"], Float[Tensor, "b u"]]:
    """Return the gradient where units of a rectified layer were on, and its sum over the rows, in one pass on CUDA."""
    networks, rows, units = hidden.shape
    tile_units = min(MOST_UNITS, 1 << (units - 1).bit_length())
    tile_rows = TILE_NUMBERS // tile_units
    tiles = -(-rows // tile_rows)
    masked = torch.empty_like(hidden)
    sums = hidden.new_empty(networks, tiles, units, dtype=torch.float32)
    programs = (tiles, -(-units // tile_units), networks)
    device_code("mlp").mask_kernel[programs](
        *(gradient.contiguous(), hidden, masked, sums), rows, units, ROWS=tile_rows, UNITS=tile_units, num_warps=8
    )
    return masked, sums.sum(1)
