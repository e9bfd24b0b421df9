"""Rows of matrices: taken by their place, looked up by their bytes."""

from typing import Any

import numpy as np
import torch
from jaxtyping import Int, Shaped
from torch import Tensor


def flat_places(places: Int[Tensor, "b ..."], rows: int) -> Int[Tensor, "b ..."]:
    """Return places in matrices of so many rows as places in all of them, one below the other."""
    if len(places) == 1:
        return places
    starts = torch.arange(0, len(places) * rows, rows, device=places.device)
    return places + starts.view(-1, *(1,) * (places.ndim - 1))


def rows_at(matrices: Shaped[Tensor, "b n d"], places: Int[Tensor, "b m"]) -> Shaped[Tensor, "b m d"]:
    """Return the rows at some places of each matrix; as whole rows, where `gather` would go number by number."""
    flat = flat_places(places, matrices.shape[1]).flatten()
    return matrices.flatten(0, 1).index_select(0, flat).view(*places.shape, matrices.shape[-1])


def row_bytes(matrix: Shaped[np.ndarray, "n d"]) -> list[bytes]:
    """Return the bytes of each row, by which it can be looked up."""
    whole_row = np.dtype((np.void, matrix.shape[1] * matrix.itemsize))
    keys: Any = np.ascontiguousarray(matrix).view(whole_row).ravel()
    return keys.tolist()  # type: ignore[no-any-return]
