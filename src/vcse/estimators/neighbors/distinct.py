"""The same neighbours where many points are equal: each different point is searched once, and counts.

In a grid world most states of a batch are duplicates. Distances between the different ones, with how often each
is there, give the neighbours of all, to the same bits.
"""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.estimators.neighbors.differences import Nearest, Search
from vcse.estimators.neighbors.rows import rows_at

# Finding out which points are equal pays where a tenth of them are: ties are slow to search.
LEAST_POINTS = 64
MOST_DIFFERENT = 0.9
_MULTIPLIERS = np.random.default_rng(0x5EED).integers(2**62, size=4096, dtype=np.int64) * 2 + 1


class Groups(NamedTuple):
    """Which points of each matrix are equal."""

    group: Int[Tensor, "b n"]  # of each point
    member: Int[Tensor, "b g"]  # one point of each group; any where there is none
    size: Int[Tensor, "b g"]  # points of each group; 0 where there is none, because others have more groups


def nearest_of_distinct(search: Search, find: Callable[[Search], Nearest]) -> Nearest | None:
    """Search the different points alone, by `find`; None where too few are equal for that to pay."""
    if not may_be_equal(search.queries):
        return None
    pairs = search.queries if search.query_values is None else torch.cat((search.queries, search.query_values), -1)
    groups = equal_points(pairs)
    if groups is None:
        return None
    different, dimensions = rows_at(pairs, groups.member), search.queries.shape[-1]
    queries = different[..., :dimensions]
    query_values = None if search.query_values is None else different[..., dimensions:]
    fewer = search._replace(queries=queries, query_values=query_values)
    if search.pool is search.queries:
        fewer = fewer._replace(pool=queries, pool_values=query_values, pool_counts=groups.size)
    found = find(fewer)
    value_distance = None if found.value_distance is None else found.value_distance.gather(1, groups.group)
    return Nearest(found.radius.gather(1, groups.group), value_distance)


def radius_of_rare(
    search: Search, query_counts: Int[Tensor, "b n"], find: Callable[[Search], Nearest]
) -> Float[Tensor, "b n"]:
    """Search the queries that are in the pool less often than the rank; the others find nothing but themselves."""
    rare = int((query_counts < search.rank).sum(-1).max())
    # Not plain zeros: a point that is not finite has no distance from itself.
    radius = (search.queries - search.queries).sum(-1)
    if rare:
        rows = query_counts.topk(rare, largest=False, sorted=False).indices
        radius.scatter_(1, rows, find(search._replace(queries=rows_at(search.queries, rows))).radius)
    return radius


def may_be_equal(points: Float[Tensor, "b n d"]) -> bool:
    """Return, by the last coordinate alone, whether there are enough equal points to look for them."""
    batch, count = points.shape[:2]
    return count >= LEAST_POINTS and _different(points[..., -1].numpy()) <= MOST_DIFFERENT * batch * count


def equal_points(points: Float[Tensor, "b n d"]) -> Groups | None:
    """Group points that agree, bit by bit; None where nearly all of them are different."""
    batch, count = points.shape[:2]
    keys = row_keys(points)
    matrix = np.arange(batch)[:, None]
    order = keys.argsort(-1)
    places = order + count * matrix  # in all matrices, one below the other
    in_order = keys.take(places)
    opens = np.ones((batch, count), dtype=bool)
    np.not_equal(in_order[:, 1:], in_order[:, :-1], out=opens[:, 1:])
    number = opens.cumsum(-1) - 1
    most = int(number[:, -1].max()) + 1
    if most > MOST_DIFFERENT * count:
        return None
    group = np.empty_like(number)
    group.put(places, number)
    size = np.bincount((group + most * matrix).ravel(), minlength=batch * most).reshape(batch, most)
    first = np.flatnonzero(opens)
    member = np.zeros((batch, most), dtype=np.int64)
    member.put((number + most * matrix).take(first), order.take(first))
    groups = Groups(*map(torch.from_numpy, (group, member, size)))
    # Different points may have the same key, if hardly ever: then nothing is grouped.
    representative = groups.member.gather(1, groups.group)
    return groups if torch.equal(points, rows_at(points, representative)) else None


def row_keys(points: Float[Tensor, "*batch n d"]) -> Int[np.ndarray, "*batch n"]:
    """Return a number for each point, the same for equal bits and almost surely another for others."""
    rows = points.contiguous().numpy()
    word = np.int64 if rows.shape[-1] * rows.itemsize % 8 == 0 else np.int32
    bits = rows.view(word).astype(np.int64, copy=False)
    keys: Int[np.ndarray, "*batch n"] = bits @ _multipliers(bits.shape[-1])
    return keys


@cache
def _multipliers(dimensions: int) -> Int[np.ndarray, " {dimensions}"]:
    return np.resize(_MULTIPLIERS, dimensions)


def _different(column: Float[np.ndarray, "b n"]) -> int:
    """Count different numbers in each row, in all rows together: no fewer points are different than these."""
    in_order = np.sort(column, -1)
    return len(column) + int(np.count_nonzero(in_order[:, 1:] != in_order[:, :-1]))
