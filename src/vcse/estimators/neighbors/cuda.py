"""The same neighbours on a CUDA GPU, by three small Triton kernels and without any wait for the host.

Distances come from differences here too, summed in one fixed order, so that equal points are at distance 0, runs
repeat, and a learner's numbers do not depend on its company. The launches can be captured in a CUDA graph.
"""

import importlib
import importlib.util
from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.estimators.neighbors.differences import CUDA_TILE, Nearest, Search, chunks, scaled_points

# A row of this many floats is the most that fits the registers of one program.
MOST_POINTS = 1 << 14
# Measured on an H200: a warp per tile, of 32 x 32 and 16 coordinates at a time, or of 64 x 64 and 4 where there
# are tiles enough to fill the GPU many times; several warps would pass their operands through shared memory.
TILE, STEP = 32, 16
LARGE_TILE, LARGE_STEP = 64, 4
LARGE_POINTS = 8192
BUSY_TILES = 1 << 13
MOST_PARTS = 8


@cache
def triton_module(name: str) -> Any:
    """Return a module of kernels, which compile on first use, or None where Triton is not installed."""
    return None if importlib.util.find_spec("triton") is None else importlib.import_module(name)


def _device_code() -> Any:
    return triton_module("vcse.estimators.neighbors.triton_kernels")


def can_search(search: Search) -> bool:
    """Return whether the kernels serve this search."""
    scalar_values = search.query_values is None or search.query_values.shape[-1] == 1
    small_enough = search.pool.shape[1] <= MOST_POINTS
    return can_count(search.queries) and scalar_values and small_enough and search.pool_counts is None


def can_count(points: Tensor) -> bool:
    """Return whether the kernels serve this device and dtype."""
    return points.is_cuda and points.dtype == torch.float32 and _device_code() is not None


def nearest_by_kernels(search: Search, scale: Float[Tensor, "b 1 1"]) -> Nearest:
    """Find the neighbours; whole matrices at once where they fit, else as many rows as do."""
    queries, pool = scaled_points(search, scale)
    query_values, pool_values = search.query_values, search.pool_values
    (batch, rows, _), points = queries.shape, pool.shape[1]
    parts = _parts(rows, points, pool.shape[-1])
    symmetric = pool is queries and parts * rows * points <= CUDA_TILE
    pool_columns = _padded_columns(pool, parts)
    query_columns = pool_columns if pool is queries else _padded_columns(queries, parts)
    radius = queries.new_empty(batch, rows)
    value_distance = None if query_values is None else torch.empty_like(radius)
    for b, r in chunks(batch, rows, points * parts, CUDA_TILE):
        squares = _squares(query_columns[b, :, r], pool_columns[b], parts, symmetric=symmetric)
        found = _select(
            squares,
            scale[b],
            None if query_values is None else query_values[b, r].contiguous(),
            None if pool_values is None else pool_values[b].contiguous(),
            search,
        )
        radius[b, r] = found.radius
        if value_distance is not None and found.value_distance is not None:
            value_distance[b, r] = found.value_distance
    return Nearest(radius, value_distance)


def _parts(rows: int, points: int, dimensions: int) -> int:
    """Split the sum over the coordinates where one matrix has too few tiles to keep the GPU busy.

    How many matrices there are does not count: a learner's rewards must not depend on its company.
    """
    tiles = -(-rows // TILE) * -(-points // TILE)
    parts = 1
    while parts < MOST_PARTS and tiles * parts < BUSY_TILES and dimensions >= 2 * parts * 4 * STEP:
        parts *= 2
    return parts


def _padded_columns(points: Float[Tensor, "b n d"], parts: int) -> Float[Tensor, "b e n"]:
    """Lay the points out coordinate by coordinate; coordinates of 0 fill the last step and add nothing."""
    batch, count, dimensions = points.shape
    padded = -(-dimensions // (STEP * parts)) * STEP * parts
    columns = points.new_empty(batch, padded, count)
    columns[:, :dimensions] = points.transpose(-1, -2)
    columns[:, dimensions:] = 0
    return columns


def _squares(
    query_columns: Float[Tensor, "b e r"],
    pool_columns: Float[Tensor, "b e m"],
    parts: int,
    *,
    symmetric: bool,
) -> Float[Tensor, "b p r m"]:
    batch, dimensions, rows = query_columns.shape
    points = pool_columns.shape[-1]
    squares = query_columns.new_empty(batch, parts, rows, points)
    tile, step = (TILE, STEP) if points < LARGE_POINTS else (LARGE_TILE, LARGE_STEP)
    _device_code().square_kernel[(-(-rows // tile), -(-points // tile), batch * parts)](
        query_columns,
        pool_columns,
        squares,
        rows,
        points,
        dimensions,
        query_columns.stride(1),
        query_columns.stride(0),
        SYMMETRIC=symmetric,
        PARTS=parts,
        TILE=tile,
        STEP=step,
        num_warps=1,
    )
    return squares


def _select(
    squares: Float[Tensor, "b p r m"],
    scale: Float[Tensor, "b 1 1"],
    query_values: Float[Tensor, "b r 1"] | None,
    pool_values: Float[Tensor, "b m 1"] | None,
    search: Search,
) -> Nearest:
    batch, parts, rows, points = squares.shape
    radius = squares.new_empty(batch, rows)
    value_distance = None if query_values is None else torch.empty_like(radius)
    block = 1 << (points - 1).bit_length()
    _device_code().select_kernel[(batch * rows,)](
        squares,
        scale,
        query_values,
        pool_values,
        radius,
        value_distance,
        rows,
        points,
        search.rank,
        search.average_over,
        HAS_VALUES=query_values is not None,
        AVERAGE=search.average_over > 0,
        PARTS=parts,
        BLOCK=block,
        num_warps=max(1, block // 4096),
    )
    return Nearest(radius, value_distance)


def count_by_kernel(
    queries: Float[Tensor, "b n"], pool: Float[Tensor, "b m"], radius: Float[Tensor, "b n"]
) -> Int[Tensor, "b n"]:
    """Count the pool's values strictly inside the radius around each query."""
    count = torch.empty(queries.shape, dtype=torch.int64, device=queries.device)
    (batch, rows), points = queries.shape, pool.shape[1]
    block = min(4096, 1 << (points - 1).bit_length())
    _device_code().count_kernel[(batch * rows,)](
        queries.contiguous(), pool.contiguous(), radius.contiguous(), count, rows, points, BLOCK=block
    )
    return count
