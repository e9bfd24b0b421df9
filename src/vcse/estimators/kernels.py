"""The same neighbours on a CUDA GPU, in three small Triton kernels without any wait for the host.

1. `_distance_kernel`: distances by differences, a tile of the matrix per program. Where the pool is the
   queries, the matrix is symmetric and only half of it is computed.
2. `_select_kernel`: a row per program, held in registers. The bits of a non-negative float are ordered like
   the float, so the k-th smallest is built bit by bit, counting at each bit how many are below.
3. `_count_kernel`: how many values lie strictly inside a radius.

Each number is computed by one program in a fixed order: the result is deterministic, does not depend on what
else is in the batch, and the launches can be captured in a CUDA graph.
"""

from functools import cache
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.estimators.distances import CUDA_TILE, Nearest, Search, chunks, scaled_points, unscaled

# A row of this many floats is the most that fits the registers of one program.
MOST_POINTS = 1 << 14


@cache
def _triton() -> Any:  # noqa: ANN401 - a namespace of compiled kernels, or None
    """Compile-on-use kernels, or None where Triton is not installed (it comes with PyTorch for CUDA)."""
    try:
        import triton  # noqa: PLC0415
    except ImportError:
        return None
    import triton.language as tl  # noqa: PLC0415

    @triton.jit
    def distance_kernel(
        query_ptr,
        point_ptr,
        out_ptr,
        rows,
        points,
        dimensions,
        query_columns,
        SYMMETRIC: tl.constexpr,
        TILE: tl.constexpr,
    ):
        row_tile, column_tile = tl.program_id(0), tl.program_id(1)
        if SYMMETRIC and column_tile < row_tile:
            return
        matrix = tl.program_id(2).to(tl.int64)
        row = row_tile * TILE + tl.arange(0, TILE)
        column = column_tile * TILE + tl.arange(0, TILE)
        query_ptr += matrix * dimensions * query_columns + tl.minimum(row, rows - 1)
        point_ptr += matrix * dimensions * points + tl.minimum(column, points - 1)
        total = tl.zeros((TILE, TILE), dtype=tl.float32)
        for _ in range(dimensions):
            difference = tl.load(query_ptr)[:, None] - tl.load(point_ptr)[None, :]
            total += difference * difference
            query_ptr += query_columns
            point_ptr += points
        distance = tl.sqrt_rn(total)
        out_ptr += matrix * rows * points
        inside = (row < rows)[:, None] & (column < points)[None, :]
        tl.store(out_ptr + row[:, None] * points + column[None, :], distance, mask=inside)
        if SYMMETRIC and column_tile > row_tile:
            inside = (column < points)[:, None] & (row < rows)[None, :]
            tl.store(out_ptr + column[:, None] * points + row[None, :], tl.trans(distance), mask=inside)

    @triton.jit
    def select_kernel(
        distance_ptr,
        query_value_ptr,
        pool_value_ptr,
        radius_ptr,
        value_distance_ptr,
        rows,
        points,
        rank,
        HAS_VALUES: tl.constexpr,
        AVERAGE: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)
        column = tl.arange(0, BLOCK)
        inside = column < points
        distance = tl.load(distance_ptr + row * points + column, mask=inside, other=float("inf"))
        if HAS_VALUES:
            here = tl.load(query_value_ptr + row)
            there = tl.load(pool_value_ptr + (row // rows) * points + column, mask=inside, other=0.0)
            by_value = tl.abs(here - there)
            distance = tl.where(inside, tl.maximum(distance, by_value), float("inf"))
        bits = distance.to(tl.int32, bitcast=True)
        reached = tl.zeros((), dtype=tl.int32)
        for bit in range(31):
            trial = reached | (1 << (30 - bit))
            below = tl.sum((bits < trial).to(tl.int32))
            reached = tl.where(below < rank, trial, reached)
        radius = reached.to(tl.float32, bitcast=True)
        if HAS_VALUES:
            tl.store(value_distance_ptr + row, tl.max(tl.where(bits == reached, by_value, 0.0)))
        if AVERAGE:
            nearer = bits < reached
            ties = rank - tl.sum(nearer.to(tl.int32))
            radius = (tl.sum(tl.where(nearer, distance, 0.0)) + ties * radius) / rank
        tl.store(radius_ptr + row, radius)

    @triton.jit
    def count_kernel(query_ptr, pool_ptr, radius_ptr, count_ptr, rows, points, BLOCK: tl.constexpr):
        row = tl.program_id(0).to(tl.int64)
        here, radius = tl.load(query_ptr + row), tl.load(radius_ptr + row)
        pool_ptr += (row // rows) * points
        count = tl.zeros((BLOCK,), dtype=tl.int32)
        for start in range(0, points, BLOCK):
            column = start + tl.arange(0, BLOCK)
            there = tl.load(pool_ptr + column, mask=column < points, other=float("inf"))
            count += (tl.abs(here - there) < radius).to(tl.int32)
        tl.store(count_ptr + row, tl.sum(count))

    return triton, distance_kernel, select_kernel, count_kernel


def can_search(search: Search) -> bool:
    """Tell whether the kernels serve this search."""
    scalar_values = search.query_values is None or search.query_values.shape[-1] == 1
    small_enough = search.pool.shape[1] <= MOST_POINTS
    return can_count(search.queries) and scalar_values and small_enough


def can_count(points: Tensor) -> bool:
    """Tell whether the kernels serve this device and dtype."""
    return points.is_cuda and points.dtype == torch.float32 and _triton() is not None


def nearest_by_kernels(search: Search, scale: Float[Tensor, "b 1 1"]) -> Nearest:
    """Find the neighbours; whole matrices at once where they fit, else as many rows as do."""
    queries, pool, query_values, pool_values = scaled_points(search, scale)
    (batch, rows, _), points = queries.shape, pool.shape[1]
    symmetric = pool is queries and batch * rows * points <= CUDA_TILE
    pool_columns = pool.transpose(-1, -2).contiguous()
    query_columns = pool_columns if pool is queries else queries.transpose(-1, -2).contiguous()
    radius = queries.new_empty(batch, rows)
    value_distance = None if query_values is None else torch.empty_like(radius)
    for b, r in chunks(batch, rows, points, CUDA_TILE):
        distance = _distances(query_columns[b, :, r], pool_columns[b], symmetric=symmetric)
        found = _select(
            distance,
            None if query_values is None else query_values[b, r].contiguous(),
            None if pool_values is None else pool_values[b].contiguous(),
            search,
        )
        radius[b, r] = found.radius
        if value_distance is not None and found.value_distance is not None:
            value_distance[b, r] = found.value_distance
    return unscaled(radius, value_distance, scale)


def _distances(
    query_columns: Float[Tensor, "b d r"], pool_columns: Float[Tensor, "b d m"], *, symmetric: bool
) -> Float[Tensor, "b r m"]:
    triton, distance_kernel, _, _ = _triton()
    batch, dimensions, rows = query_columns.shape
    points = pool_columns.shape[-1]
    distance = query_columns.new_empty(batch, rows, points)
    tile = 64 if rows > 512 else 32
    grid = (triton.cdiv(rows, tile), triton.cdiv(points, tile), batch)
    distance_kernel[grid](
        query_columns,
        pool_columns,
        distance,
        rows,
        points,
        dimensions,
        query_columns.stride(1),
        SYMMETRIC=symmetric,
        TILE=tile,
        num_warps=4,
    )
    return distance


def _select(
    distance: Float[Tensor, "b r m"],
    query_values: Float[Tensor, "b r 1"] | None,
    pool_values: Float[Tensor, "b m 1"] | None,
    search: Search,
) -> Nearest:
    triton, _, select_kernel, _ = _triton()
    batch, rows, points = distance.shape
    radius = distance.new_empty(batch, rows)
    value_distance = None if query_values is None else torch.empty_like(radius)
    block = triton.next_power_of_2(points)
    select_kernel[(batch * rows,)](
        distance,
        query_values,
        pool_values,
        radius,
        value_distance,
        rows,
        points,
        search.rank,
        HAS_VALUES=query_values is not None,
        AVERAGE=search.average,
        BLOCK=block,
        num_warps=min(16, max(1, block // 512)),
    )
    return Nearest(radius, value_distance)


def count_by_kernel(
    queries: Float[Tensor, "b n"], pool: Float[Tensor, "b m"], radius: Float[Tensor, "b n"]
) -> Int[Tensor, "b n"]:
    """Count the pool's values strictly inside the radius around each query."""
    triton, _, _, count_kernel = _triton()
    count = torch.empty(queries.shape, dtype=torch.int32, device=queries.device)
    (batch, rows), points = queries.shape, pool.shape[1]
    block = min(4096, triton.next_power_of_2(points))
    count_kernel[(batch * rows,)](
        queries.contiguous(), pool.contiguous(), radius.contiguous(), count, rows, points, BLOCK=block
    )
    return count
