"""The same neighbours on a CUDA GPU, in three small Triton kernels without any wait for the host.

1. `square_kernel`: squared distances by differences, a tile of the matrix per program. Where the pool is the
   queries, the matrix is symmetric and only half of it is computed.
2. `select_kernel`: a row per program, held in registers. The bits of a non-negative float are ordered like
   the float, so the k-th smallest is found by halving their range, counting each time how many are below.
3. `count_kernel`: how many values lie strictly inside a radius.

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
# Measured on an H200: a warp per tile, of 32 x 32 and 16 coordinates at a time, or of 64 x 64 and 4 where there
# are tiles enough to fill the GPU many times; several warps would pass their operands through shared memory.
TILE, STEP = 32, 16
LARGE_TILE, LARGE_STEP = 64, 4
LARGE_POINTS = 8192
BUSY_TILES = 1 << 13
MOST_PARTS = 8


@cache
def _triton() -> Any:  # noqa: ANN401 - a namespace of compiled kernels, or None
    """Compile-on-use kernels, or None where Triton is not installed (it comes with PyTorch for CUDA)."""
    try:
        import triton  # noqa: PLC0415
    except ImportError:
        return None
    import triton.language as tl  # noqa: PLC0415

    @triton.jit
    def square_kernel(
        query_ptr,
        point_ptr,
        out_ptr,
        rows,
        points,
        dimensions,
        query_stride,
        query_matrix_stride,
        SYMMETRIC: tl.constexpr,
        PARTS: tl.constexpr,
        TILE: tl.constexpr,
        STEP: tl.constexpr,
    ):
        row_tile, column_tile = tl.program_id(0), tl.program_id(1)
        if SYMMETRIC and column_tile < row_tile:
            return
        matrix, part = (tl.program_id(2) // PARTS).to(tl.int64), tl.program_id(2) % PARTS
        row = row_tile * TILE + tl.arange(0, TILE)
        column = column_tile * TILE + tl.arange(0, TILE)
        coordinates = dimensions // PARTS
        first = part * coordinates
        query_ptr += matrix * query_matrix_stride + first * query_stride + tl.minimum(row, rows - 1)
        point_ptr += (matrix * dimensions + first) * points + tl.minimum(column, points - 1)
        total = tl.zeros((TILE, TILE), dtype=tl.float32)
        for _ in range(coordinates // STEP):
            for step in tl.static_range(STEP):
                query = tl.load(query_ptr + step * query_stride)
                point = tl.load(point_ptr + step * points)
                difference = query[:, None] - point[None, :]
                total += difference * difference
            query_ptr += STEP * query_stride
            point_ptr += STEP * points
        out_ptr += (matrix * PARTS + part) * rows * points
        inside = (row < rows)[:, None] & (column < points)[None, :]
        tl.store(out_ptr + row[:, None] * points + column[None, :], total, mask=inside)
        if SYMMETRIC and column_tile > row_tile:
            inside = (column < points)[:, None] & (row < rows)[None, :]
            tl.store(out_ptr + column[:, None] * points + row[None, :], tl.trans(total), mask=inside)

    @triton.jit
    def select_kernel(
        square_ptr,
        query_value_ptr,
        pool_value_ptr,
        radius_ptr,
        value_distance_ptr,
        rows,
        points,
        rank,
        HAS_VALUES: tl.constexpr,
        AVERAGE: tl.constexpr,
        PARTS: tl.constexpr,
        BLOCK: tl.constexpr,
    ):
        row = tl.program_id(0).to(tl.int64)
        matrix = row // rows
        column = tl.arange(0, BLOCK)
        inside = column < points
        square_ptr += (matrix * PARTS * rows + row % rows) * points + column
        square = tl.load(square_ptr, mask=inside, other=float("inf"))
        for part in tl.static_range(1, PARTS):
            square += tl.load(square_ptr + part * rows * points, mask=inside, other=0.0)
        distance = tl.sqrt_rn(square)
        if HAS_VALUES:
            here = tl.load(query_value_ptr + row)
            there = tl.load(pool_value_ptr + matrix * points + column, mask=inside, other=0.0)
            distance = tl.where(inside, tl.maximum(distance, tl.abs(here - there)), float("inf"))
        bits = distance.to(tl.int32, bitcast=True)
        # The wanted one is the only, or any, of those from `low` to below `low + step`.
        low, step, below_low, below_high = 0, 1 << 30, 0, BLOCK
        while (below_high - below_low > 1) & (step > 0):
            below = tl.sum((bits < low + step).to(tl.int32))
            is_above = below < rank
            low = tl.where(is_above, low + step, low)
            below_low = tl.where(is_above, below, below_low)
            below_high = tl.where(is_above, below_high, below)
            step = step // 2
        reached = tl.min(tl.where(bits >= low, bits, 0x7F800000))
        radius = reached.to(tl.float32, bitcast=True)
        if HAS_VALUES:
            # Read again rather than kept: the registers hold one row, not two.
            there = tl.load(pool_value_ptr + matrix * points + column, mask=inside, other=0.0)
            tied = (bits == reached) & inside
            tl.store(value_distance_ptr + row, tl.max(tl.where(tied, tl.abs(here - there), 0.0)))
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

    return triton, square_kernel, select_kernel, count_kernel


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
            None if query_values is None else query_values[b, r].contiguous(),
            None if pool_values is None else pool_values[b].contiguous(),
            search,
        )
        radius[b, r] = found.radius
        if value_distance is not None and found.value_distance is not None:
            value_distance[b, r] = found.value_distance
    return unscaled(radius, value_distance, scale)


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
    query_columns: Float[Tensor, "b e r"], pool_columns: Float[Tensor, "b e m"], parts: int, *, symmetric: bool
) -> Float[Tensor, "b p r m"]:
    triton, square_kernel, _, _ = _triton()
    batch, dimensions, rows = query_columns.shape
    points = pool_columns.shape[-1]
    squares = query_columns.new_empty(batch, parts, rows, points)
    tile, step = (TILE, STEP) if points < LARGE_POINTS else (LARGE_TILE, LARGE_STEP)
    square_kernel[(triton.cdiv(rows, tile), triton.cdiv(points, tile), batch * parts)](
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
    query_values: Float[Tensor, "b r 1"] | None,
    pool_values: Float[Tensor, "b m 1"] | None,
    search: Search,
) -> Nearest:
    triton, _, select_kernel, _ = _triton()
    batch, parts, rows, points = squares.shape
    radius = squares.new_empty(batch, rows)
    value_distance = None if query_values is None else torch.empty_like(radius)
    block = triton.next_power_of_2(points)
    select_kernel[(batch * rows,)](
        squares,
        query_values,
        pool_values,
        radius,
        value_distance,
        rows,
        points,
        search.rank,
        HAS_VALUES=query_values is not None,
        AVERAGE=search.average,
        PARTS=parts,
        BLOCK=block,
        num_warps=max(1, block // 4096),
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
