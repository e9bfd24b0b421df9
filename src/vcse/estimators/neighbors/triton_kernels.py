"""The device code of `cuda`; imported only where Triton is installed, which comes with PyTorch for CUDA.

1. `square_kernel`: squared distances by differences, a tile of the matrix per program. Where the pool is the
   queries, the matrix is symmetric and only half of it is computed.
2. `select_kernel`: a row per program, held in registers. The bits of a non-negative float are ordered like the
   float, so the k-th smallest is found by halving their range, counting each time how many are below.
3. `count_kernel`: how many values lie strictly inside a radius.

Each number is computed by one program in a fixed order, so results are deterministic.
"""

from typing import no_type_check

import triton
import triton.language as tl


@triton.jit
@no_type_check  # or the checks of shapes that the tests switch on would wrap what Triton compiles
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
    """Write the squared distances of one tile, summed over one part of the coordinates."""
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
@no_type_check  # or the checks of shapes that the tests switch on would wrap what Triton compiles
def select_kernel(
    square_ptr,
    scale_ptr,
    query_value_ptr,
    pool_value_ptr,
    radius_ptr,
    value_distance_ptr,
    rows,
    points,
    rank,
    average_over,
    HAS_VALUES: tl.constexpr,
    AVERAGE: tl.constexpr,
    PARTS: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Find the neighbour of the wanted rank in one row."""
    row = tl.program_id(0).to(tl.int64)
    matrix = row // rows
    column = tl.arange(0, BLOCK)
    inside = column < points
    square_ptr += (matrix * PARTS * rows + row % rows) * points + column
    square = tl.load(square_ptr, mask=inside, other=float("inf"))
    for part in tl.static_range(1, PARTS):
        square += tl.load(square_ptr + part * rows * points, mask=inside, other=0.0)
    distance = tl.sqrt_rn(square) / tl.load(scale_ptr + matrix)  # by a power of two: exact
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
        radius = (tl.sum(tl.where(nearer, distance, 0.0)) + ties * radius) / average_over
    tl.store(radius_ptr + row, radius)


@triton.jit
@no_type_check  # or the checks of shapes that the tests switch on would wrap what Triton compiles
def count_kernel(query_ptr, pool_ptr, radius_ptr, count_ptr, rows, points, BLOCK: tl.constexpr):
    """Count the values strictly inside the radius around one."""
    row = tl.program_id(0).to(tl.int64)
    here, radius = tl.load(query_ptr + row), tl.load(radius_ptr + row)
    pool_ptr += (row // rows) * points
    count = tl.zeros((BLOCK,), dtype=tl.int32)
    for start in range(0, points, BLOCK):
        column = start + tl.arange(0, BLOCK)
        there = tl.load(pool_ptr + column, mask=column < points, other=float("inf"))
        count += (tl.abs(here - there) < radius).to(tl.int32)
    tl.store(count_ptr + row, tl.sum(count))
