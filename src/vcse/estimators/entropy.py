"""State entropy: the Kozachenko-Leonenko estimate, Eq. (1), and the reward made of it, Eq. (2).

Equation numbers are those of Kim et al. 2023, "Accelerating Reinforcement Learning with Value-Conditional State
Entropy Exploration". Entropies are in nats.
"""

import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.estimators.checks import check_above_zero, check_pays, checks_run, is_finite
from vcse.estimators.neighbors.search import kth_neighbor_distance
from vcse.estimators.readings import ConditionalReading, StateEntropyReading, state_entropy_reading

# What helps where duplicates make an entropy minus infinity: of m equal points, each has m − 1 others at distance 0.
MORE_NEIGHBORS = "take a k of at least the number of points that are equal, or leave duplicates out"


def log_unit_ball(dimensions: int) -> float:
    """Return log c_d, the volume of the d-dimensional Euclidean ball of radius 1: c_d = π^(d/2) / Γ(1 + d/2)."""
    return dimensions / 2 * math.log(math.pi) - math.lgamma(1 + dimensions / 2)


def digamma(number: int) -> float:
    """Return ψ(n), for a whole number."""
    return float(torch.digamma(torch.tensor(float(number), dtype=torch.float64)))


@torch.no_grad()
def kl_entropy(features: Float[Tensor, "*batch n d"], *, k: int, check_finite: bool = True) -> Float[Tensor, "*batch"]:
    """Estimate the entropy of the features in nats (Kozachenko-Leonenko), Eq. (1).

    −ψ(k) + ψ(N) + log c_d + (d/N) Σ log r_i, where r_i is the distance from point i to its k-th neighbour. The paper
    writes twice that distance with the volume of the ball of unit radius, which is d·log 2 too much; here the radius
    and the ball belong together.

    Args:
        features: The points.
        k: Which neighbour, counted without the point itself.
        check_finite: Refuse NaN and infinity, and radii of 0; see `kth_neighbor_distance`.

    Example:
        >>> import torch
        >>> from vcse.estimators import kl_entropy
        >>> uniform = 2 * torch.rand(2000, 2, generator=torch.Generator().manual_seed(0))
        >>> print(f"{kl_entropy(uniform, k=3):.1f}")  # log(4) in theory
        1.4
    """
    radius = kth_neighbor_distance(features, k=k, check_finite=check_finite)
    if checks_run(check_finite, features):
        check_above_zero("features", radius, which="distances to the k-th neighbour", remedy=MORE_NEIGHBORS)
    count, dimensions = features.shape[-2:]
    return digamma(count) - digamma(k) + log_unit_ball(dimensions) + dimensions * radius.log().mean(-1)


class StateEntropyTerms(NamedTuple):
    """The state entropy reward and the distances it is made of."""

    reward: Float[Tensor, "*batch n"]
    distance: Float[Tensor, "*batch n"]  # to the k-th neighbour, or the mean to the k nearest


@torch.no_grad()
def state_entropy_terms(
    features: Float[Tensor, "*batch n d"],
    *,
    k: int,
    reading: str | StateEntropyReading = "paper",
    pool: Float[Tensor, "*batch m d"] | None = None,
    pool_holds_features: bool = False,
    pool_counts: Int[Tensor, "*batch m"] | None = None,
    feature_counts: Int[Tensor, "*batch n"] | None = None,
    check_finite: bool = True,
) -> StateEntropyTerms:
    """Compute `state_entropy_reward` and keep the distances."""
    rule = state_entropy_reading(reading)
    check_pays(k, self_in_k=rule.self_in_k and (pool is None or pool_holds_features))
    distance = kth_neighbor_distance(
        features,
        k=k,
        pool=pool,
        pool_holds_features=pool_holds_features,
        self_in_k=rule.self_in_k,
        average=rule.average,
        pool_counts=pool_counts,
        feature_counts=feature_counts,
        check_finite=check_finite,
    )
    return StateEntropyTerms(log_of_distance(distance, rule, check=checks_run(check_finite, features)), distance)


def state_entropy_reward(
    features: Float[Tensor, "*batch n d"],
    *,
    k: int,
    reading: str | StateEntropyReading = "paper",
    pool: Float[Tensor, "*batch m d"] | None = None,
    pool_holds_features: bool = False,
    self_in_k: bool | None = None,
    average: bool | None = None,
    doubled: bool | None = None,
    log_offset: float | None = None,
    check_finite: bool = True,
) -> Float[Tensor, "*batch n"]:
    """Compute the state entropy reward of each feature, Eq. (2): log(D_s(i) + 1).

    D_s(i) is twice the distance from feature i to its k-th neighbour. Normalising the reward belongs to the bonus.

    Args:
        features: The states, or features of them.
        k: Which neighbour, counted without the point itself unless the reading says otherwise.
        reading: Whose definition is followed: paper, clean, release-a2c, release-drqv2, release-sac,
            release-mwm or re3; or a custom `StateEntropyReading`.
        pool: Where neighbours are looked for, if not among the features themselves.
        pool_holds_features: The pool holds the features too.
        self_in_k: Deviation: the point itself counts as its first neighbour. None: as the reading says.
        average: Deviation: the mean distance to the k nearest instead of the k-th distance.
        doubled: Whether D_s is twice the distance, as in the paper, or the distance, as in the release.
        log_offset: What is added inside the logarithm: 1 in all readings.
        check_finite: Refuse NaN and infinity; on CUDA this waits for the device, and is left out while a
            CUDA graph is captured.

    Example:
        >>> import torch
        >>> from vcse.estimators import state_entropy_reward
        >>> state_entropy_reward(torch.tensor([[0.0], [1.0], [3.0]]), k=1)  # log(2 * distance + 1)
        tensor([1.0986, 1.0986, 1.6094])
    """
    rule = state_entropy_reading(reading, self_in_k=self_in_k, average=average, doubled=doubled, log_offset=log_offset)
    return state_entropy_terms(
        features, k=k, reading=rule, pool=pool, pool_holds_features=pool_holds_features, check_finite=check_finite
    ).reward


def log_of_distance(
    distance: Float[Tensor, "*batch n"],
    rule: StateEntropyReading | ConditionalReading,
    *,
    check: bool,
    which: str = "distances to the k-th neighbour",
) -> Float[Tensor, "*batch n"]:
    """Return log(2·distance + offset), or log(distance + offset) where the reading does not double."""
    if rule.log_offset == 0:
        if not check:
            raise ValueError(
                "log_offset=0 is minus infinity at a distance of 0, which must be looked for: "
                "it needs check_finite=True and cannot be captured in a CUDA graph"
            )
        check_above_zero(
            "log_offset=0", distance, which=which, remedy="a log_offset above 0 gives them a finite reward"
        )
    size = 2 * distance if rule.doubled else distance
    if check and not is_finite(size):
        raise ValueError(f"features or values lie so far apart that twice their distance overflows {size.dtype}")
    return torch.log(size + rule.log_offset)
