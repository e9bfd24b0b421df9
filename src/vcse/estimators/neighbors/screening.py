"""The same neighbours, faster on a CPU: screen by a matrix product, decide by differences.

A matrix product tells for each point which few others can be its nearest. Their distances are then computed
by differences. The product's error is bounded, so it is known for which points the few were enough; the
others, with more ties than places or with neighbours closer than the bound, are searched in full. The result
has the bits of `nearest_by_differences`.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vcse.estimators.neighbors.differences import (
    FEW_DIMENSIONS,
    Nearest,
    Search,
    chunks,
    kth_smallest,
    nearest_by_differences,
    radius_in_order,
    radius_of,
    repeated,
    scaled_points,
    scratch,
    sum_of_squares,
)
from vcse.estimators.neighbors.rows import flat_places

# Screening wins once there are enough points to choose from and a difference is dear enough to save: enough queries
# to pay for preparing the pool, and enough differences in all to pay for the operations.
LEAST_DIMENSIONS = FEW_DIMENSIONS + 1  # with few, `squared_distances` sums in another order
LEAST_POINTS = 32
LEAST_QUERIES = 5
LEAST_DIFFERENCES = 5 << 17  # of coordinates
# Places beyond the wanted rank: enough to tell the k-th neighbour from the next where there are no ties.
SPARE_PLACES = 3
# Entries of the product that exist at once: a tile should stay in the cache, but with fewer rows than this
# the product spends its time on rearranging the pool.
PRODUCT_TILE = 1 << 17
LEAST_ROWS = 96
CANDIDATES_TILE = 1 << 18  # of coordinates of candidates
LEAST_POINTS_IN_GROUPS = 128  # per place


def is_worthwhile(search: Search) -> bool:
    """Return whether screening is expected to be faster than computing every difference."""
    (batch, rows, _), (_, points, dimensions) = search.queries.shape, search.pool.shape
    scalar_values = search.query_values is None or search.query_values.shape[-1] == 1
    enough_points = points >= max(LEAST_POINTS, 4 * search.rank) and rows >= LEAST_QUERIES
    enough_differences = dimensions >= LEAST_DIMENSIONS and batch * rows * points * dimensions >= LEAST_DIFFERENCES
    return scalar_values and enough_points and enough_differences


class Screened(NamedTuple):
    """The nearest of each query, by matrix product."""

    places: Int[Tensor, "b n c"]  # in the pool
    squares: Float[Tensor, "b n c"]  # their squared distances, a little cut
    error: Float[Tensor, "b n"]  # bound of the product's error
    cut: float  # the share of the squares that may be cut off


def nearest_by_screening(search: Search, scale: Float[Tensor, "b 1 1"]) -> Nearest:
    """Find the neighbours, in one space or under the joint max-norm with scalar values."""
    rank, points = search.rank, search.pool.shape[1]
    query_values, pool_values = search.query_values, search.pool_values
    # The screen works on the numbers as they are. Where their squares leave the range, it decides nothing.
    index, screened, error, cut = _screen(search, min(rank + SPARE_PLACES, points))
    queries, pool = scaled_points(search, scale)
    flat_index = flat_places(index, points)
    distance = _candidate_distances(queries, pool, flat_index).div_(scale)
    by_value = value_distance = None
    if query_values is not None and pool_values is not None:
        by_value = (query_values - pool_values.take(flat_index)).abs_()
        torch.maximum(distance, by_value, out=distance)
    absent = None
    if search.pool_counts is None:
        radius = radius_of(distance, search)
        reached = kth_smallest(distance, rank) if search.average_over else radius
    else:
        counts = search.pool_counts.take(flat_index)
        absent = counts == 0
        distance.masked_fill_(absent, torch.inf)
        screened.masked_fill_(absent, torch.inf)
        in_order, order = distance.sort(-1)
        nearest = repeated(in_order, counts.gather(-1, order), search)
        radius, reached = radius_in_order(nearest, search), nearest[..., -1]
    if by_value is not None:
        value_distance = by_value.mul_(distance == radius.unsqueeze(-1)).amax(-1)
    # Whoever was left out must be farther than the radius by more than the error, so that no place is missing
    # and no tie is cut; and the errors that can be seen must keep to their bound, which they do not where
    # the user allows matrix products in bfloat16. Radius 0 needs no proof: nobody is nearer.
    farthest = screened.amax(-1)
    decided = farthest - error > reached.square()
    seen_error = (screened - distance.square()).abs_()
    if absent is not None:
        seen_error.masked_fill_(absent, 0)
    kept_to_bound = seen_error.amax(-1) <= torch.add(error, farthest, alpha=cut)
    uncertain = (reached > 0) & ~(decided & kept_to_bound)
    found = Nearest(radius, value_distance)
    if uncertain.any():
        _search_in_full(uncertain, search, scale, found)
    return found


def _screen(search: Search, places: int) -> Screened:
    """Find the nearest by matrix product.

    |a|² + |b|² − 2 a·b is one product of (−2a, |a|², 1) and (b, 1, |b|²).
    """
    (batch, rows, _), points = search.queries.shape, search.pool.shape[1]
    group = _group(points, places)
    width = -(-points // group) * group
    left, right, error = _factors(search, width)
    value_row = None
    if search.pool_values is not None:
        value_row = search.pool_values.transpose(-1, -2)
        if width > points:
            value_row = nn.functional.pad(value_row, (0, width - points))
    index = torch.empty(batch, rows, places, dtype=torch.int64)
    squares = right.new_empty(batch, rows, places)
    tile = min(max(PRODUCT_TILE, LEAST_ROWS * width), batch * rows * width)
    memory = scratch(right, 2 * tile).view(2, tile)
    for b, r in chunks(batch, rows, width, tile):
        shape = (*index[b, r].shape[:2], width)
        product, gap = (piece[: math.prod(shape)].view(shape) for piece in memory)
        torch.bmm(left[b, r], right[b].transpose(-1, -2), out=product)
        if search.query_values is not None and value_row is not None:
            torch.sub(search.query_values[b, r], value_row[b], out=gap)
            torch.maximum(product, gap.mul_(gap), out=product)
        else:
            product.clamp_(min=0)
        squares[b, r], index[b, r] = _nearest_columns(product, places, group, gap)
    return Screened(index, squares, error, cut=2.0 ** _place_bits(width, places, group) * torch.finfo(right.dtype).eps)


def _nearest_columns(
    squares: Float[Tensor, "b r w"], count: int, group: int, memory: Float[Tensor, "b r w"]
) -> tuple[Float[Tensor, "b r c"], Int[Tensor, "b r c"]]:
    """Return the `count` smallest of each row, in no order and cut, and their columns. Both tensors are used up.

    The bits of positive floats are ordered as they are. So the last bits are given up for the column, and one
    partition of integers, for which NumPy has vector instructions, moves values and columns together. Cutting
    makes nothing larger: all that was left out is at least as far as the farthest that is given.

    In wide rows the nearest lie in the groups with the smallest minima: looking at these first leaves few to
    compare.
    """
    width = squares.shape[-1]
    bits = _place_bits(width, count, group)
    if group == 1:
        return _smallest_with_places(squares, count, bits)
    groups = width // group
    minima = squares
    while minima.shape[-1] > groups:
        lower, upper = minima.chunk(2, -1)
        minima = torch.minimum(lower, upper, out=memory[..., : lower.shape[-1]])
    _, winners = _smallest_with_places(minima, count, bits)
    members = (winners.unsqueeze(-1) + torch.arange(0, width, groups)).flatten(-2)
    values, among_members = _smallest_with_places(squares.gather(-1, members), count, bits)
    return values, members.gather(-1, among_members)


def _smallest_with_places(
    matrix: Float[Tensor, "b r m"], count: int, bits: int
) -> tuple[Float[Tensor, "b r c"], Int[Tensor, "b r c"]]:
    integer = torch.int64 if matrix.dtype == torch.float64 else torch.int32
    value_mask, place_mask = -1 << bits, (1 << bits) - 1
    keys = matrix.view(integer)
    keys.bitwise_and_(value_mask).bitwise_or_(torch.arange(keys.shape[-1], dtype=integer))
    in_numpy = keys.numpy()
    in_numpy.partition(count - 1, axis=-1)
    nearest = torch.from_numpy(in_numpy[..., :count].copy())
    return (nearest & value_mask).view(matrix.dtype), (nearest & place_mask).long()


def _place_bits(width: int, count: int, group: int) -> int:
    """Return the bits that a place takes: among the groups of a row, and among the members of the nearest."""
    return (max(width // group, count * group) - 1).bit_length()


def _group(points: int, count: int) -> int:
    """Return the power of two that leaves about as many minima as members, or 1 where groups do not pay."""
    return 1 << round(math.log2(points / count) / 2) if points >= LEAST_POINTS_IN_GROUPS * count else 1


def _factors(search: Search, width: int) -> tuple[Float[Tensor, "b n e"], Float[Tensor, "b w e"], Float[Tensor, "b n"]]:
    """Return (−2a, |a|², 1), (b, 1, |b|²) with far points up to the width, and the error of their product.

    The error: centring is exact to one unit of its result, a sum of d products in any order to d units of the
    product of the norms, and the differences it is held against to d units of theirs; eight times that covers
    everything together.
    """
    points, dimensions = search.pool.shape[1:]
    center = search.pool.mean(1, keepdim=True)
    b = search.pool - center
    b_squared = torch.linalg.vector_norm(b, dim=-1, keepdim=True).square_()
    if search.pool is search.queries:
        a, a_squared = b, b_squared
    else:
        a = search.queries - center
        a_squared = torch.linalg.vector_norm(a, dim=-1, keepdim=True).square_()
    left = torch.cat((a * -2, a_squared, torch.ones_like(a_squared)), -1)
    right = torch.cat((b, torch.ones_like(b_squared), b_squared), -1)
    if search.pool_counts is not None:
        right[..., -1].masked_fill_(search.pool_counts == 0, torch.finfo(right.dtype).max / 8)
    if width > points:
        right = nn.functional.pad(right, (0, 0, 0, width - points))
        right[:, points:, -1] = torch.finfo(right.dtype).max / 8
    units = 8 * (dimensions + 8) * torch.finfo(right.dtype).eps
    return left, right, (a_squared.squeeze(-1) + b_squared.amax(1)).mul_(units)


def _candidate_distances(
    queries: Float[Tensor, "b n d"], pool: Float[Tensor, "b m d"], flat_index: Int[Tensor, "b n c"]
) -> Float[Tensor, "b n c"]:
    """Distances to the candidates, to the bits of `squared_distances`."""
    dimensions, flat_pool = pool.shape[-1], pool.flatten(0, 1)
    squares = queries.new_empty(flat_index.shape)
    tile = max(flat_index.shape[-1], CANDIDATES_TILE // dimensions)
    memory = scratch(queries, min(tile, flat_index.numel()) * dimensions).view(-1, dimensions)
    batch, rows, places = flat_index.shape
    for b, r in chunks(batch, rows, places, tile):
        wanted = flat_index[b, r]
        there = memory[: wanted.numel()]
        torch.index_select(flat_pool, 0, wanted.flatten(), out=there)
        differences = there.view(*wanted.shape, dimensions)
        torch.sub(queries[b, r].unsqueeze(-2), differences, out=differences)
        sum_of_squares(differences, out=squares[b, r])
    return squares.sqrt_()


def _search_in_full(
    uncertain: Bool[Tensor, "b n"], search: Search, scale: Float[Tensor, "b 1 1"], found: Nearest
) -> None:
    """Replace what screening could not decide, in place."""
    for matrix in uncertain.any(-1).nonzero().flatten().tolist():
        rows = uncertain[matrix].nonzero().flatten()
        one = slice(matrix, matrix + 1)
        these = search._replace(
            queries=search.queries[one, rows],
            pool=search.pool[one],
            query_values=None if search.query_values is None else search.query_values[one, rows],
            pool_values=None if search.pool_values is None else search.pool_values[one],
            pool_counts=None if search.pool_counts is None else search.pool_counts[one],
        )
        exact = nearest_by_differences(these, scale[one])
        found.radius[matrix, rows] = exact.radius[0]
        if found.value_distance is not None and exact.value_distance is not None:
            found.value_distance[matrix, rows] = exact.value_distance[0]
