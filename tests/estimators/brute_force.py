"""The formulas once more, in float64 and plain loops, to hold the library against."""

import math

from torch import Tensor

EULER = 0.57721566490153286


def digamma(number: int) -> float:
    return -EULER + sum(1 / m for m in range(1, number))


def log_ball(dimensions: int) -> float:
    return math.log(math.pi ** (dimensions / 2) / math.gamma(1 + dimensions / 2))


def as_rows(points: Tensor) -> list[list[float]]:
    rows = points.double().tolist()
    return rows if points.ndim == 2 else [[number] for number in rows]


def distance(here: list[float], there: list[float]) -> float:
    return math.sqrt(sum((a - b) ** 2 for a, b in zip(here, there, strict=True)))


def mean(numbers: list[float]) -> float:
    return math.fsum(numbers) / len(numbers)


def kth_distances(
    features: Tensor,
    k: int,
    *,
    pool: Tensor | None = None,
    pool_holds_features: bool = False,
    self_in_k: bool = False,
    average: bool = False,
) -> list[float]:
    finds_itself = pool is None or pool_holds_features
    found = []
    for here in as_rows(features):
        in_order = sorted(distance(here, there) for there in as_rows(features if pool is None else pool))
        if finds_itself and not self_in_k:
            in_order = in_order[1:]  # the first, at distance 0, is the point itself
        found.append(mean(in_order[:k]) if average else in_order[k - 1])
    return found


def joint_neighbors(
    features: Tensor, values: Tensor, k: int, *, self_in_k: bool = False
) -> tuple[list[float], list[float]]:
    """Radius and value distance of the k-th neighbour: of those tied for it, the farthest in value."""
    pairs = list(zip(as_rows(features), as_rows(values), strict=True))
    radii, value_distances = [], []
    for feature, value in pairs:
        by_value = [distance(value, other) for _, other in pairs]
        joint = [max(distance(feature, other), v) for (other, _), v in zip(pairs, by_value, strict=True)]
        radius = sorted(joint)[k - 1 if self_in_k else k]
        radii.append(radius)
        value_distances.append(max(v for v, z in zip(by_value, joint, strict=True) if z == radius))
    return radii, value_distances


def count_within(values: Tensor, radii: list[float], *, count_self: bool = False) -> list[int]:
    rows = as_rows(values)
    return [
        sum(distance(here, there) < radius for j, there in enumerate(rows) if count_self or j != i)
        for i, (here, radius) in enumerate(zip(rows, radii, strict=True))
    ]


def log_reward(distances: list[float], *, doubled: bool, log_offset: float) -> list[float]:
    return [math.log((2 if doubled else 1) * each + log_offset) for each in distances]


def value_conditional_reward(
    features: Tensor,
    values: Tensor,
    k: int,
    *,
    nv_radius: str,
    self_in_k: bool,
    self_in_nv: bool,
    doubled: bool,
    log_offset: float,
) -> list[float]:
    radii, value_distances = joint_neighbors(features, values, k, self_in_k=self_in_k)
    counted = radii if nv_radius == "joint" else value_distances
    counts = count_within(values, counted, count_self=self_in_nv)
    sizes = log_reward(radii, doubled=doubled, log_offset=log_offset)
    dimensions = features.shape[-1]
    return [digamma(count + 1) / dimensions + size for count, size in zip(counts, sizes, strict=True)]


def kl_entropy(points: Tensor, k: int) -> float:
    count, dimensions = points.shape
    mean_log = mean([math.log(radius) for radius in kth_distances(points, k)])
    return -digamma(k) + digamma(count) + log_ball(dimensions) + dimensions * mean_log


def ksg_joint_entropy(features: Tensor, values: Tensor, k: int) -> float:
    (count, d_s), d_v = features.shape, len(as_rows(values)[0])
    radii, _ = joint_neighbors(features, values, k)
    balls = log_ball(d_s) + log_ball(d_v)
    return -digamma(k) + digamma(count) + balls + (d_s + d_v) * mean([math.log(r) for r in radii])


def ksg_marginal_entropy(features: Tensor, values: Tensor, k: int) -> float:
    count, d_v = len(features), len(as_rows(values)[0])
    _, value_distances = joint_neighbors(features, values, k)
    inside = mean([digamma(n + 1) for n in count_within(values, value_distances)])
    return -inside + digamma(count) + log_ball(d_v) + d_v * mean([math.log(r) for r in value_distances])
