"""Nearest neighbours: the k-th distance in one space or under the joint max-norm of two, and strict counts.

Every estimator of this package stands on these three functions. They take any leading batch axes, which never
see each other, give distance exactly 0 to equal points, and choose the fastest of three ways to the same
answer: all differences (`differences`), a matrix product that leaves few of them (`screening`), CUDA kernels.
"""

import sys
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.estimators.checks import (
    check_alike,
    check_all_finite,
    check_computed_alike,
    check_k,
    check_numbers,
    check_points,
    checks_run,
    is_finite,
    wrong_shape,
)
from vcse.estimators.neighbors.cuda import can_count, can_search, count_by_kernel, nearest_by_kernels
from vcse.estimators.neighbors.differences import (
    CPU_TILE,
    CUDA_TILE,
    Nearest,
    Search,
    chunks,
    nearest_by_differences,
    power_of_two_scale,
    value_distances,
)
from vcse.estimators.neighbors.distinct import nearest_of_distinct, radius_of_rare
from vcse.estimators.neighbors.screening import is_worthwhile, nearest_by_screening


class JointNeighbors(NamedTuple):
    """The k-th neighbour of each (feature, value) pair under max(‖s − s'‖, ‖v − v'‖)."""

    radius: Float[Tensor, "*batch n"]  # the joint distance to it: ε/2 of the paper
    value_distance: Float[Tensor, "*batch n"]  # its distance in value: ε_v/2 of the paper


@torch.no_grad()
def kth_neighbor_distance(
    features: Float[Tensor, "*batch n d"],
    *,
    k: int,
    pool: Float[Tensor, "*batch m d"] | None = None,
    pool_holds_features: bool = False,
    self_in_k: bool = False,
    average: bool = False,
    pool_counts: Int[Tensor, "*batch m"] | None = None,
    feature_counts: Int[Tensor, "*batch n"] | None = None,
    check_finite: bool = True,
) -> Float[Tensor, "*batch n"]:
    """Compute the distance of each feature to its k-th nearest neighbour.

    Equal features are at distance exactly 0, and different ones are not as long as the largest coordinate of a
    batch is no more than 2¹¹³ (about 1e34) times the smallest difference, in float32.

    Args:
        features: The points, in any floating-point type (half precision is computed in float32).
        k: Which neighbour, counted without the point itself.
        pool: Where neighbours are looked for; the features themselves if not given.
        pool_holds_features: The pool holds the features too, so that each finds itself there.
        self_in_k: Count the point itself, at distance 0, as its first neighbour, as the release does.
        average: Give the mean distance to the k nearest instead.
        pool_counts: How often each point of the pool is there: a pool with many equal points is searched faster as
            the different ones and their counts. A point with count 0 is not there.
        feature_counts: How often each feature is in the pool, where that is known: on a CPU, those that are there
            often enough for a distance of 0 are not searched.
        check_finite: Refuse NaN and infinity; on CUDA this waits for the device, and is left out while a
            CUDA graph is captured.

    Example:
        >>> import torch
        >>> from vcse.estimators import kth_neighbor_distance
        >>> kth_neighbor_distance(torch.tensor([[0.0], [1.0], [3.0]]), k=1)
        tensor([1., 1., 2.])
    """
    finds_itself = pool is None or pool_holds_features
    searched = features if pool is None else pool
    k = _checked_k(k, features, pool, pool_counts, within_points=finds_itself, check_finite=check_finite)
    queries = _flat_points(features)
    # Where the point itself is left out of k, its distance of 0 is still in the sum and adds nothing.
    search = Search(
        queries,
        queries if pool is None else _flat_points(pool),
        _rank(k, finds_itself=finds_itself, self_in_k=self_in_k),
        average_over=k if average else 0,
        pool_counts=None if pool_counts is None else pool_counts.reshape(-1, searched.shape[-2]),
    )
    if feature_counts is None or features.device.type != "cpu":
        radius = _nearest(search).radius
    else:
        _check_counts("feature_counts", feature_counts, features)
        radius = radius_of_rare(search, feature_counts.reshape(queries.shape[:-1]), _nearest)
    if checks_run(check_finite, features):
        _check_span("features", radius)
    return radius.view(features.shape[:-1])


@torch.no_grad()
def joint_neighbors(
    features: Float[Tensor, "*batch n d"],
    values: Float[Tensor, "..."],
    *,
    k: int,
    self_in_k: bool = False,
    check_finite: bool = True,
) -> JointNeighbors:
    """Find the k-th neighbour of each (feature, value) pair under the max-norm of the two distances.

    Of several pairs at the same joint distance, the one farthest in value is the k-th, so that the answer does
    not depend on their order.

    Args:
        features: The points of the first space.
        values: One number per feature, or a vector per feature for a second space of several dimensions; in any
            floating-point type, as the features are, but both or neither in float64.
        k: Which neighbour, counted without the pair itself.
        self_in_k: Count the pair itself, at distance 0, as its first neighbour, as the release does.
        check_finite: As in `kth_neighbor_distance`.

    Example:
        >>> import torch
        >>> from vcse.estimators import joint_neighbors
        >>> features, values = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0.0, 0.0, 4.0])
        >>> joint_neighbors(features, values, k=1)
        JointNeighbors(radius=tensor([1., 1., 4.]), value_distance=tensor([0., 0., 4.]))
    """
    check_points("features", features)
    check_values("values", values, features)
    k = check_k(k, points=features.shape[-2], within_points=True, name="features")
    if checks_run(check_finite, features):
        check_all_finite("features", features)
        check_all_finite("values", values)
    points = _flat_points(features)
    flat_values = _flat_points(values_as_points(values, features))
    rank = _rank(k, finds_itself=True, self_in_k=self_in_k)
    found = _nearest(Search(points, points, rank, flat_values, flat_values))
    assert found.value_distance is not None, "a search with values gives value distances"
    if checks_run(check_finite, features):
        _check_span("features and values", found.radius)
    shape = features.shape[:-1]
    return JointNeighbors(found.radius.view(shape), found.value_distance.view(shape))


@torch.no_grad()
def count_within(
    values: Float[Tensor, "..."],
    radius: Float[Tensor, "*batch n"],
    *,
    count_self: bool = False,
) -> Int[Tensor, "*batch n"]:
    """Count the values at a distance strictly below the radius, from each of them.

    Args:
        values: One number, or one vector, per point; vectors where there is one axis more than in `radius`.
        radius: The radius around each.
        count_self: Count the value itself too, at distance 0, where the radius is above 0.

    Example:
        >>> import torch
        >>> from vcse.estimators import count_within
        >>> count_within(torch.tensor([0.0, 1.0, 3.0]), radius=torch.tensor([2.0, 2.5, 2.0]))
        tensor([1, 2, 0])
    """
    check_numbers("values", values)
    check_numbers("radius", radius)
    if radius.ndim < 1 or radius.shape not in (values.shape, values.shape[:-1]):
        raise ValueError(
            f"radius must have one entry per value: got shape {tuple(radius.shape)} for values of {tuple(values.shape)}"
        )
    rows = radius.shape[-1]
    points, flat_radius = _flat_points(values.reshape(*radius.shape, -1)), _computed(radius).reshape(-1, rows)
    scalars = points.squeeze(-1)
    if scalars.ndim == 2 and can_count(scalars):
        count = count_by_kernel(scalars, scalars, flat_radius)
    elif scalars.ndim == 2 and rows * rows > CPU_TILE:
        count = _count_by_bisection(scalars, flat_radius)
    else:
        count = _count_pairwise(points, flat_radius)
    count = count.view(radius.shape)
    return count if count_self else count - (radius > 0).to(count.dtype)


def check_values(name: str, values: Tensor, features: Tensor) -> None:
    """Raise ValueError for values that are not one number or one vector per feature."""
    check_numbers(name, values)
    shape = features.shape[:-1]
    is_vector = values.ndim == features.ndim and values.shape[:-1] == shape and values.shape[-1] > 0
    if values.shape != shape and not is_vector:
        one_vector_each = f"({', '.join(map(str, shape))}, v)"
        raise wrong_shape(name, values, f"{tuple(shape)} or {one_vector_each}", "features", features)
    check_computed_alike(name, values, "features", features)


def values_as_points(values: Tensor, features: Tensor) -> Float[Tensor, "*batch n v"]:
    """Add the axis of a one-dimensional space to scalar values."""
    return values if values.ndim == features.ndim else values.unsqueeze(-1)


def _checked_k(
    k: int,
    features: Tensor,
    pool: Tensor | None,
    pool_counts: Tensor | None,
    *,
    within_points: bool,
    check_finite: bool,
) -> int:
    """Return k, once it and the points among which neighbours are looked for are found to be in order."""
    check_points("features", features)
    if pool is not None:
        check_points("pool", pool)
        wanted = (*features.shape[:-2], pool.shape[-2], features.shape[-1])  # it differs in how many points it holds
        if pool.shape != wanted:
            raise wrong_shape("pool", pool, str(wanted), "features", features)
        check_alike("pool", pool, "features", features)
    searched, name = (features, "features") if pool is None else (pool, "pool")
    points = searched.shape[-2] if pool_counts is None else _fewest(pool_counts, searched, check_finite)
    k = check_k(k, points=points, within_points=within_points, name=name)
    if checks_run(check_finite, features):
        check_all_finite("features", features)
        if pool is not None:
            check_all_finite("pool", pool)
    return k


def _rank(k: int, *, finds_itself: bool, self_in_k: bool) -> int:
    """Which smallest distance is meant. A point that is searched too is its own nearest, at distance exactly 0."""
    return k + 1 if finds_itself and not self_in_k else k


def _fewest(pool_counts: Int[Tensor, "*batch m"], pool: Tensor, check: bool) -> int:
    """Return how many points the smallest pool has, counted as often as each is there."""
    _check_counts("pool_counts", pool_counts, pool)
    if pool.is_cuda and not checks_run(check, pool):
        return sys.maxsize  # counting would wait for the device
    least = int(pool_counts.min())
    if least < 0:
        raise ValueError(f"pool_counts must not be negative, got {least}")
    return int(pool_counts.sum(-1).min())


def _check_counts(name: str, counts: Tensor, points: Tensor) -> None:
    if counts.shape != points.shape[:-1] or counts.is_floating_point():
        raise ValueError(
            f"{name} must be integers of shape {tuple(points.shape[:-1])}, got {counts.dtype} of shape "
            f"{tuple(counts.shape)}"
        )


def _computed(tensor: Tensor) -> Tensor:
    """Bring a tensor to the type that is computed in: float64 stays, all else becomes float32."""
    detached = tensor.detach()
    return detached if detached.dtype == torch.float64 else detached.float()


def _flat_points(points: Float[Tensor, "*batch n d"]) -> Float[Tensor, "b n d"]:
    return _computed(points).reshape(-1, *points.shape[-2:])


def _nearest(search: Search) -> Nearest:
    found = nearest_of_distinct(search, _search) if search.queries.device.type == "cpu" else None
    return _search(search) if found is None else found


def _search(search: Search) -> Nearest:
    scale = power_of_two_scale(search.queries, search.pool)
    if can_search(search):
        return nearest_by_kernels(search, scale)
    if search.queries.device.type == "cpu" and is_worthwhile(search):
        return nearest_by_screening(search, scale)
    return nearest_by_differences(search, scale)


def _check_span(name: str, radius: Tensor) -> None:
    if not is_finite(radius):
        raise ValueError(f"{name} lie so far apart that a distance between them overflows {radius.dtype}")


def _count_by_bisection(values: Float[Tensor, "b n"], radius: Float[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    """Count in the sorted values. v' − v grows with v', so those inside the radius stand side by side.

    The bisection asks for |v' − v| < radius itself, not for v' < v + radius, whose sum would round otherwise.
    """
    points = values.shape[-1]
    # Two searches at once: where v' − v reaches the radius, and where v − v' stops reaching it.
    sign = torch.tensor([1.0, -1.0], dtype=values.dtype, device=values.device)[:, None, None]
    is_start = sign < 0
    low = torch.zeros(2, *values.shape, dtype=torch.int64, device=values.device)
    high = torch.full_like(low, points)
    sorted_twice = values.sort(-1).values.expand(2, -1, -1)
    for _ in range(points.bit_length()):
        middle = (low + high) // 2
        there = sorted_twice.gather(-1, middle.clamp(max=points - 1))
        beyond = ~(((there - values) * sign) < radius) ^ is_start
        high = torch.where(beyond, middle, high)
        low = torch.where(beyond, low, torch.minimum(middle + 1, high))
    return (low[0] - low[1]).clamp(min=0)


def _count_pairwise(values: Float[Tensor, "b n v"], radius: Float[Tensor, "b n"]) -> Int[Tensor, "b n"]:
    # Ones and zeros are added as floats, exactly up to 2²⁴ of them: sums of other types are not vectorised.
    count = torch.empty_like(radius)
    batch, rows = radius.shape
    for b, r in chunks(batch, rows, rows, CUDA_TILE if values.is_cuda else CPU_TILE):
        distances = value_distances(values[b, r], values[b])
        torch.sum(torch.lt(distances, radius[b, r].unsqueeze(-1), out=distances), -1, out=count[b, r])
    return count.long()
