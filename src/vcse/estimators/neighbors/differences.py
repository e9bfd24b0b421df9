"""Exact distances, by differences, and the k-th smallest of them.

The matrix-product form |a|² + |b|² − 2 a·b is fast but not exact: it gives equal points a distance of about
1e-3 instead of 0, and the logarithm of the reward makes that error large. Here every distance that leaves
comes from differences, summed over the coordinates in one fixed order, so that

- equal points are at distance exactly 0,
- a distance has the same bits whichever points, chunks or learners it is computed beside.

`screening` and `cuda` find the same neighbours faster; `screening` to the same bits.
"""

import math
import threading
from collections.abc import Iterator
from functools import reduce
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

# Numbers that exist at once on the way. On a CPU a tile should stay in the cache; on a GPU, 1 GiB of float32
# is the most that a bonus may cost an agent.
CPU_TILE = 1 << 17
MOST_SCRATCH = 1 << 20  # of numbers that are kept in memory between calls
CUDA_TILE = 1 << 28
CUDA_DIFFERENCES = 1 << 24
# Up to here the coordinates are taken one by one: rows this short are slow to subtract and sum.
FEW_DIMENSIONS = 8


class _Scratch(threading.local):
    """Memory of this thread, by type, that is kept between calls."""

    def __init__(self) -> None:
        self.held: dict[torch.dtype, Tensor] = {}


_SCRATCH = _Scratch()


def scratch(like: Tensor, size: int) -> Float[Tensor, " size"]:
    """Lend memory that the next call of this function, in the same thread and dtype, lends again.

    So never hold two at once: ask for one piece of the sum of the sizes and divide it. On a CPU fresh pages can
    cost more than the arithmetic on them. (The allocator for CUDA keeps its own.)
    """
    if like.device.type != "cpu" or size > MOST_SCRATCH:
        return like.new_empty(size)
    held = _SCRATCH.held.get(like.dtype)
    if held is None or held.numel() < size:
        with torch.inference_mode(False):  # else a first call in that mode would spoil it for all others
            held = _SCRATCH.held[like.dtype] = torch.empty(size, dtype=like.dtype)
    return held[:size]


class Nearest(NamedTuple):
    """The neighbour of the wanted rank, for every point.

    Of several points at the same joint distance, the one farthest in value is taken, so that the answer
    does not depend on the order of the points.
    """

    radius: Float[Tensor, "b n"]  # its distance; under the joint max-norm where there are values
    value_distance: Float[Tensor, "b n"] | None  # its distance in value; None where there are no values


class Search(NamedTuple):
    """What is searched: for every query the neighbour of a rank among the points of a pool."""

    queries: Float[Tensor, "b n d"]
    pool: Float[Tensor, "b m d"]
    rank: int  # 1 is the nearest, which is the point itself where the pool holds it
    query_values: Float[Tensor, "b n v"] | None = None
    pool_values: Float[Tensor, "b m v"] | None = None
    # Without values only: give the sum of the `rank` smallest distances over this number instead of the last.
    average_over: int = 0
    pool_counts: Int[Tensor, "b m"] | None = None  # how often each point of the pool is there, where not once


def power_of_two_scale(*points: Float[Tensor, "b _ _"]) -> Float[Tensor, "b 1 1"]:
    """Return the factor that keeps squares in range; a power of two, so multiplying by it rounds nothing.

    The largest coordinate is brought near 2⁵⁰ (in float32), so that differences down to 2⁻¹¹³ of it have
    squares that are still normal numbers, and sums of the largest squares stay far from overflow.

    For example, in float32 with d = 3 coordinates and the largest 1e20 = 2⁶⁶·1.36: the largest is wanted at
    2^((127 − 20 − 2) // 2) = 2⁵² and up, so the factor is 2⁵²⁻⁶⁶ = 2⁻¹⁴, and 1e20 becomes 2⁵²·1.36.
    """
    different = {id(each): each for each in points}.values()
    # Not `aminmax` along an axis, which is not vectorised.
    extremes = [(each.amax((-2, -1), keepdim=True), each.amin((-2, -1), keepdim=True)) for each in different]
    largest = reduce(torch.maximum, [torch.maximum(most, -least) for most, least in extremes])
    integer, mantissa, bias = {
        torch.float32: (torch.int32, 23, 127),
        torch.float64: (torch.int64, 52, 1023),
    }[largest.dtype]
    # The bits of a positive float, shifted right by its mantissa, are its exponent plus the bias.
    wanted = (bias - 20 - points[0].shape[-1].bit_length()) // 2
    exponent = (wanted + 2 * bias - (largest.view(integer) >> mantissa)).clamp(1, 2 * bias - 1)
    return (exponent << mantissa).view(largest.dtype)


def sum_of_squares(differences: Float[Tensor, "*shape d"], out: Float[Tensor, "*shape"]) -> None:
    """Σ x² over the last axis; the differences are used up. The order of the sum depends on d alone."""
    torch.sum(differences.mul_(differences), -1, out=out)


def squared_distances(
    queries: Float[Tensor, "b r d"], pool: Float[Tensor, "b m d"], out: Float[Tensor, "b r m"]
) -> Float[Tensor, "b r m"]:
    """Σ (a − b)² over the coordinates."""
    batch, points, dimensions = pool.shape
    if dimensions <= FEW_DIMENSIONS:
        out.zero_()
        for coordinate in range(dimensions):
            difference = queries[..., coordinate, None] - pool[:, None, :, coordinate]
            out.add_(difference.mul_(difference))
        return out
    height = max(1, (CUDA_DIFFERENCES if out.is_cuda else CPU_TILE) // (batch * points * dimensions))
    memory = scratch(out, batch * min(height, out.shape[1]) * points * dimensions)
    for some, squares in zip(torch.split(queries, height, 1), torch.split(out, height, 1), strict=True):
        shape = (*squares.shape, dimensions)
        differences = memory[: math.prod(shape)].view(shape)
        torch.sub(some.unsqueeze(2), pool.unsqueeze(1), out=differences)
        sum_of_squares(differences, out=squares)
    return out


def value_distances(
    query_values: Float[Tensor, "b r v"], pool_values: Float[Tensor, "b m v"]
) -> Float[Tensor, "b r m"]:
    """Distances in the space of the values; a plain absolute difference where values are scalars."""
    if query_values.shape[-1] == 1:
        return (query_values - pool_values.transpose(-1, -2)).abs_()
    scale = power_of_two_scale(query_values, pool_values)
    squares = query_values.new_empty(*query_values.shape[:-1], pool_values.shape[-2])
    return squared_distances(query_values * scale, pool_values * scale, out=squares).sqrt_().div_(scale)


def smallest(matrix: Float[Tensor, "b r m"], count: int) -> Float[Tensor, "b r c"]:
    """Return the `count` smallest entries of each row, in no order."""
    if matrix.device.type != "cpu":
        return matrix.topk(count, largest=False, sorted=False).values
    # NumPy partitions with vector instructions where `topk` does not.
    return torch.from_numpy(np.partition(matrix.numpy(), count - 1, axis=-1)[..., :count])


def chunks(batch: int, rows: int, columns: int, tile: int) -> Iterator[tuple[slice, slice]]:
    """Cut [batch, rows, columns] into pieces of about `tile` entries: whole matrices, else rows of one."""
    entries = rows * columns
    if entries <= tile:
        matrices = tile // entries
        for start in range(0, batch, matrices):
            yield slice(start, start + matrices), slice(0, rows)
        return
    height = max(1, tile // columns)
    for matrix in range(batch):
        for start in range(0, rows, height):
            yield slice(matrix, matrix + 1), slice(start, start + height)


def repeated(in_order: Float[Tensor, "b r c"], counts: Int[Tensor, "b r c"], search: Search) -> Float[Tensor, "b r _"]:
    """Return distances up to the wanted rank, each as often as its point is there; the last alone if none is averaged.

    They must be in order, from the smallest, and stay so.
    """
    first = 0 if search.average_over else search.rank - 1
    ranks = torch.arange(first, search.rank, device=in_order.device)[:, None]
    places = (counts.cumsum(-1).unsqueeze(-2) <= ranks).sum(-1)
    return in_order.gather(-1, places.clamp_(max=in_order.shape[-1] - 1))


def radius_of(nearest: Float[Tensor, "b r c"], search: Search) -> Float[Tensor, "b r"]:
    """The distance of the wanted rank among the nearest, or the average up to there."""
    if search.average_over:
        return radius_in_order(nearest.sort(-1).values[..., : search.rank], search)
    return nearest.amax(-1) if nearest.shape[-1] == search.rank else kth_smallest(nearest, search.rank)


def radius_in_order(in_order: Float[Tensor, "b r c"], search: Search) -> Float[Tensor, "b r"]:
    """The same among distances in order, of which the last has the wanted rank."""
    if not search.average_over:
        return in_order[..., -1]
    total = in_order[..., 0]
    for distance in in_order.unbind(-1)[1:]:  # one after the other: the order of a sum decides its last bits
        total = total + distance
    return total / search.average_over


def kth_smallest(matrix: Float[Tensor, "b r c"], k: int) -> Float[Tensor, "b r"]:
    """Return the k-th smallest entry of each row, on a CPU; faster than `kthvalue`."""
    return torch.from_numpy(np.partition(matrix.numpy(), k - 1, axis=-1)[..., k - 1].copy())


def nearest_by_differences(search: Search, scale: Float[Tensor, "b 1 1"]) -> Nearest:
    """Find the neighbours by computing every distance; the reference for the faster ways."""
    queries, pool = scaled_points(search, scale)
    (batch, rows, _), points = queries.shape, pool.shape[1]
    radius = queries.new_empty(batch, rows)
    value_distance = None if search.query_values is None else torch.empty_like(radius)
    for b, r in chunks(batch, rows, points, CUDA_TILE if queries.is_cuda else CPU_TILE):
        some = queries[b, r]
        squares = queries.new_empty(*some.shape[:2], points)
        joint = squared_distances(some, pool[b], out=squares).sqrt_().div_(scale[b])
        if search.query_values is None or search.pool_values is None or value_distance is None:
            radius[b, r] = _radius_among(joint, search, b)
            continue
        by_value = value_distances(search.query_values[b, r], search.pool_values[b])
        torch.maximum(joint, by_value, out=joint)
        radius[b, r] = _radius_among(joint, search, b)
        value_distance[b, r] = by_value.mul_(joint == radius[b, r].unsqueeze(-1)).amax(-1)
    return Nearest(radius, value_distance)


def _radius_among(distances: Float[Tensor, "b r m"], search: Search, batch: slice) -> Float[Tensor, "b r"]:
    """Return the radius among the distances to all points."""
    if search.pool_counts is None:
        return radius_of(smallest(distances, search.rank), search)
    counts = search.pool_counts[batch].unsqueeze(1)
    distances.masked_fill_(counts == 0, torch.inf)
    in_order, places = distances.topk(min(search.rank, distances.shape[-1]), largest=False)
    counts = counts.expand(-1, in_order.shape[1], -1).gather(-1, places)
    return radius_in_order(repeated(in_order, counts, search), search)


def scaled_points(
    search: Search, scale: Float[Tensor, "b 1 1"]
) -> tuple[Float[Tensor, "b n d"], Float[Tensor, "b m d"]]:
    """Return queries and pool, scaled; where the pool is the queries, they stay one tensor."""
    queries = search.queries * scale
    return queries, queries if search.pool is search.queries else search.pool * scale
