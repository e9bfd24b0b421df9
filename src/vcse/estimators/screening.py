"""The same neighbours, faster on a CPU: screen by a matrix product, decide by differences.

A matrix product tells for each point which few others can be its nearest. Their distances are then computed
by differences. The product's error is bounded, so it is known for which points the few were enough; the
others, with more ties than places or with neighbours closer than the bound, are searched in full. The result
has the bits of `nearest_by_differences`.
"""

import math

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vcse.estimators.distances import (
    CPU_TILE,
    FEW_DIMENSIONS,
    Nearest,
    Search,
    chunks,
    kth_smallest,
    nearest_by_differences,
    padded_width,
    radius_of,
    repeated,
    scaled_points,
    scratch,
    smallest,
    sum_of_squares,
)

# Screening wins once there are enough points to choose from and a difference is dear enough to save.
LEAST_DIMENSIONS = FEW_DIMENSIONS + 1  # with few, `squared_distances` sums in another order
LEAST_POINTS = 64
# Places beyond the wanted rank: enough to tell the k-th neighbour from the next where there are no ties.
SPARE_PLACES = 3
# Entries of the product that exist at once: a tile should stay in the cache, but with fewer rows than this
# the product spends its time on rearranging the pool.
PRODUCT_TILE = 1 << 17
LEAST_ROWS = 96


def is_worthwhile(search: Search) -> bool:
    """Tell whether screening is expected to be faster than computing every difference."""
    _, points, dimensions = search.pool.shape
    scalar_values = search.query_values is None or search.query_values.shape[-1] == 1
    enough_points = points >= max(LEAST_POINTS, 4 * search.rank)
    return scalar_values and enough_points and dimensions >= LEAST_DIMENSIONS


def nearest_by_screening(search: Search, scale: Float[Tensor, "b 1 1"]) -> Nearest:
    """Find the neighbours, in one space or under the joint max-norm with scalar values."""
    rank, points = search.rank, search.pool.shape[1]
    query_values, pool_values = search.query_values, search.pool_values
    # The screen works on the numbers as they are. Where their squares leave the range, it decides nothing.
    index, screened, error = _screen(search, min(rank + SPARE_PLACES, points))
    queries, pool = scaled_points(search, scale)
    offsets = torch.arange(0, len(index) * points, points)[:, None, None]
    flat_index = index + offsets if len(index) > 1 else index
    distance = _candidate_distances(queries, pool, flat_index).div_(scale)
    by_value = value_distance = None
    if query_values is not None and pool_values is not None:
        by_value = (query_values - pool_values.take(flat_index)).abs_()
        torch.maximum(distance, by_value, out=distance)
    nearest = distance
    if search.pool_counts is not None:
        counts = search.pool_counts.take(flat_index)
        distance.masked_fill_(counts == 0, torch.inf)
        screened.masked_fill_(counts == 0, torch.inf)
        nearest = repeated(distance, counts, rank)
    radius = radius_of(nearest, search)
    reached = kth_smallest(nearest, rank) if search.average_over else radius
    if by_value is not None:
        value_distance = by_value.mul_(distance == radius.unsqueeze(-1)).amax(-1)
    # Whoever was left out must be farther than the radius by more than the error, so that no place is missing
    # and no tie is cut; and the errors that can be seen must keep to their bound, which they do not where
    # the user allows matrix products in bfloat16. Radius 0 needs no proof: nobody is nearer.
    decided = screened.amax(-1) - error > reached.square()
    seen_error = (screened - distance.square()).abs_()
    if search.pool_counts is not None:
        seen_error.masked_fill_(counts == 0, 0)
    kept_to_bound = seen_error.amax(-1) <= error
    uncertain = (reached > 0) & ~(decided & kept_to_bound)
    found = Nearest(radius, value_distance)
    if uncertain.any():
        _search_in_full(uncertain, search, scale, found)
    return found


def _screen(search: Search, places: int) -> tuple[Int[Tensor, "b n c"], Float[Tensor, "b n c"], Float[Tensor, "b n"]]:
    """Give the nearest by matrix product: which, their squared distances, the error of these.

    |a|² + |b|² − 2 a·b is one product of (−2a, |a|², 1) and (b, 1, |b|²).
    """
    (batch, rows, _), points = search.queries.shape, search.pool.shape[1]
    width = padded_width(points, places)
    left, right, error = _factors(search, width)
    value_row = None
    if search.pool_values is not None:
        value_row = right.new_zeros(batch, 1, width)
        value_row[..., :points] = search.pool_values.transpose(-1, -2)
    index = torch.empty(batch, rows, places, dtype=torch.int64)
    screened = right.new_empty(batch, rows, places)
    tile = min(max(PRODUCT_TILE, LEAST_ROWS * width), batch * rows * width)
    memory = scratch(right, 2 * tile).view(2, tile)
    for b, r in chunks(batch, rows, width, tile):
        shape = (*index[b, r].shape[:2], width)
        product, gap = (piece[: math.prod(shape)].view(shape) for piece in memory)
        torch.bmm(left[b, r], right[b].transpose(-1, -2), out=product)
        if search.query_values is not None and value_row is not None:
            torch.sub(search.query_values[b, r], value_row[b], out=gap)
            torch.maximum(product, gap.mul_(gap), out=product)
        screened[b, r], index[b, r] = smallest(product, places, gap)
    return index, screened, error


def _factors(search: Search, width: int) -> tuple[Float[Tensor, "b n e"], Float[Tensor, "b w e"], Float[Tensor, "b n"]]:
    """Give (−2a, |a|², 1), (b, 1, |b|²) with far points up to the width, and the error of their product.

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
    tile = max(flat_index.shape[-1], CPU_TILE // dimensions)
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
