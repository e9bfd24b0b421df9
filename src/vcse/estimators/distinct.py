"""The same neighbours where many points are equal: each different point is searched once, and counts.

In a grid world most states of a batch are duplicates. Distances between the different ones, with how often each
is there, give the neighbours of all, to the same bits.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.estimators.distances import Nearest, Search

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
    parts = [search.queries] if search.query_values is None else [search.queries, search.query_values]
    groups = equal_points(parts)
    if groups is None:
        return None
    queries, *values = (part.gather(1, groups.member[..., None].expand(-1, -1, part.shape[-1])) for part in parts)
    query_values = values[0] if values else None
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
        queries = search.queries.gather(1, rows[..., None].expand(-1, -1, search.queries.shape[-1]))
        radius.scatter_(1, rows, find(search._replace(queries=queries)).radius)
    return radius


def equal_points(parts: list[Float[Tensor, "b n _"]]) -> Groups | None:
    """Group points that agree in all parts, bit by bit; None where nearly all of them are different."""
    batch, points = parts[0].shape[:2]
    if points < LEAST_POINTS or _different(parts[0][..., -1].numpy()) > MOST_DIFFERENT * batch * points:
        return None
    keys = np.zeros((batch, points), dtype=np.int64)
    for part in parts:
        keys += row_keys(part)
    order = keys.argsort(-1, kind="stable")
    in_order = np.take_along_axis(keys, order, -1)
    opens = np.ones((batch, points), dtype=bool)
    np.not_equal(in_order[:, 1:], in_order[:, :-1], out=opens[:, 1:])
    number = opens.cumsum(-1) - 1
    most = int(number[:, -1].max()) + 1
    if most > MOST_DIFFERENT * points:
        return None
    group = np.empty_like(number)
    np.put_along_axis(group, order, number, -1)
    matrix = np.arange(batch)[:, None]
    count = np.bincount((group + most * matrix).ravel(), minlength=batch * most).reshape(batch, most)
    member = np.zeros((batch, most), dtype=np.int64)
    member[np.broadcast_to(matrix, opens.shape)[opens], number[opens]] = order[opens]
    groups = Groups(*map(torch.from_numpy, (group, member, count)))
    # Different points may have the same key, if hardly ever: then nothing is grouped.
    representative = groups.member.gather(1, groups.group)[..., None]
    for part in parts:
        if not torch.equal(part, part.gather(1, representative.expand(-1, -1, part.shape[-1]))):
            return None
    return groups


def row_keys(points: Float[Tensor, "*batch n d"]) -> Int[np.ndarray, "*batch n"]:
    """Give a number for each point, the same for equal bits and almost surely another for others."""
    bits = points.contiguous().numpy().view(np.int32).astype(np.int64)
    return bits @ np.resize(_MULTIPLIERS, bits.shape[-1])


def _different(column: Float[np.ndarray, "b n"]) -> int:
    """Count different numbers in each row, in all rows together: no fewer points are different than these."""
    in_order = np.sort(column, -1)
    return len(column) + int(np.count_nonzero(in_order[:, 1:] != in_order[:, :-1]))
