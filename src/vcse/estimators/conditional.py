"""Conditional entropy: the Kraskov-Stögbauer-Grassberger estimates, Eq. (3) to (7), and the VCSE reward, Eq. (8).

Equation numbers are those of Kim et al. 2023. With pairs of a state s and a value v under the norm
max(‖s − s'‖, ‖v − v'‖), k-th neighbours found there, and d_s and d_v the dimensions of the two spaces:

    ε(i)/2   = the joint radius
    ε_v(i)/2 = the neighbour's distance in value
    n_v(i)   = #{j ≠ i : ‖v_j − v_i‖ < ε_v(i)/2}

(Eq. (3) to (5) call them y and x.) All entropies are in nats, with radius and unit-radius ball; the paper's doubled
distances with the same ball would be d·log 2 too much (see `kl_entropy`).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.estimators.checks import check_above_zero, check_nv_radius, check_pays, checks_run
from vcse.estimators.entropy import MORE_NEIGHBORS, digamma, log_of_distance, log_unit_ball
from vcse.estimators.neighbors.search import JointNeighbors, count_within, joint_neighbors, values_as_points
from vcse.estimators.readings import ConditionalReading, RadiusOfCount, conditional_reading

JOINT_DISTANCES = "joint distances to the k-th neighbour"  # in errors
Values = Float[Tensor, "..."]  # [*batch, n], or [*batch, n, v] for vectors


@torch.no_grad()
def ksg_joint_entropy(
    features: Float[Tensor, "*batch n d"], values: Values, *, k: int, check_finite: bool = True
) -> Float[Tensor, "*batch"]:
    """Estimate the entropy of features and values together in nats, H(S, V), Eq. (3).

    −ψ(k) + ψ(N) + log(c_ds c_dv) + (d_s + d_v)/N Σ log(ε/2)

    Example:
        >>> import torch
        >>> from vcse.estimators import ksg_joint_entropy
        >>> features, values = torch.rand(2, 2000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> print(f"{ksg_joint_entropy(2 * features[:, None], values, k=3):.1f}")  # log(2) in theory
        0.7
    """
    radius = joint_neighbors(features, values, k=k, check_finite=check_finite).radius
    if checks_run(check_finite, features):
        _check_joint_radius(radius)
    (count, d_s), d_v = features.shape[-2:], values_as_points(values, features).shape[-1]
    constant = digamma(count) - digamma(k) + log_unit_ball(d_s) + log_unit_ball(d_v)
    return constant + (d_s + d_v) * radius.log().mean(-1)


@torch.no_grad()
def ksg_marginal_entropy(
    features: Float[Tensor, "*batch n d"], values: Values, *, k: int, check_finite: bool = True
) -> Float[Tensor, "*batch"]:
    """Estimate the entropy of the values alone in nats, H(V), Eq. (4).

    The features only set the scale: distances reach as far in value as the k-th joint neighbour, so that the errors
    of H(S, V) and H(V) cancel in their difference, H(S | V).

    −(1/N) Σ ψ(n_v + 1) + ψ(N) + log c_dv + (d_v/N) Σ log(ε_v/2)

    Example:
        >>> import torch
        >>> from vcse.estimators import ksg_marginal_entropy
        >>> features, values = torch.rand(2, 2000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> print(f"{ksg_marginal_entropy(features[:, None], 2 * values, k=3):.1f}")  # log(2) in theory
        0.7
    """
    value_distance = joint_neighbors(features, values, k=k, check_finite=check_finite).value_distance
    if checks_run(check_finite, features):
        _check_value_distance(
            value_distance, remedy="discrete values have no finite H(V) (an H(S | V) they have, at nv_radius='joint')"
        )
    digamma_count = _digamma_count(count_within(values, value_distance), value_distance)
    count, d_v = features.shape[-2], values_as_points(values, features).shape[-1]
    return -digamma_count.mean(-1) + digamma(count) + log_unit_ball(d_v) + d_v * value_distance.log().mean(-1)


@torch.no_grad()
def ksg_conditional_entropy(
    features: Float[Tensor, "*batch n d"],
    values: Values,
    *,
    k: int,
    nv_radius: RadiusOfCount = "value",
    lower_bound: bool = False,
    self_in_nv: bool = False,
    check_finite: bool = True,
) -> Float[Tensor, "*batch"]:
    """Estimate the entropy of the features given the values in nats, H(S | V), Eq. (5) and (6).

    (1/N) Σ [ ψ(n_v + 1) + d_v (log ε − log ε_v) + d_s log(ε/2) ] − ψ(k) + log c_ds

    Args:
        features: The states.
        values: The values: a number or a vector per feature.
        k: Which neighbour in the joint space, counted without the point itself.
        nv_radius: Where n_v is counted: within ε_v/2 ("value", the paper) or within ε/2 ("joint"). The second is
            the first algorithm of Kraskov et al. 2004: ε takes the place of ε_v and the middle term vanishes.
        lower_bound: Drop the middle term, which is not negative: Eq. (7).
        self_in_nv: Count the point itself in n_v, as the release does.
        check_finite: Refuse NaN and infinity, and radii of 0; see `kth_neighbor_distance`.

    Example:
        >>> import torch
        >>> from vcse.estimators import ksg_conditional_entropy
        >>> noise, values = torch.rand(2, 2000, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
        >>> print(f"{ksg_conditional_entropy((values + 2 * noise)[:, None], values, k=3):.1f}")  # log(2) in theory
        0.7
    """
    check_nv_radius(nv_radius)
    neighbors = joint_neighbors(features, values, k=k, check_finite=check_finite)
    count_radius = _count_radius(neighbors, nv_radius)
    if checks_run(check_finite, features):
        _check_joint_radius(neighbors.radius)
        if not lower_bound:
            _check_value_distance(count_radius, remedy="for discrete values take nv_radius='joint'")
    digamma_count = _digamma_count(count_within(values, count_radius, count_self=self_in_nv), count_radius)
    d_s, d_v = features.shape[-1], values_as_points(values, features).shape[-1]
    log_radius = neighbors.radius.log()
    terms = digamma_count + d_s * log_radius
    if not lower_bound:
        terms = terms + d_v * (log_radius - count_radius.log())
    return terms.mean(-1) - digamma(k) + log_unit_ball(d_s)


class ConditionalTerms(NamedTuple):
    """The value-conditional reward and the parts it is made of."""

    reward: Float[Tensor, "*batch n"]
    radius: Float[Tensor, "*batch n"]  # ε/2
    value_distance: Float[Tensor, "*batch n"]  # ε_v/2
    value_count: Int[Tensor, "*batch n"]  # n_v


@torch.no_grad()
def value_conditional_terms(
    features: Float[Tensor, "*batch n d"],
    values: Values,
    *,
    k: int,
    reading: str | ConditionalReading = "paper",
    check_finite: bool = True,
) -> ConditionalTerms:
    """Compute `value_conditional_reward` and keep its parts."""
    rule = conditional_reading(reading)
    check_pays(k, self_in_k=rule.self_in_k)
    neighbors = joint_neighbors(features, values, k=k, self_in_k=rule.self_in_k, check_finite=check_finite)
    count_radius = _count_radius(neighbors, rule.nv_radius)
    value_count = count_within(values, count_radius, count_self=rule.self_in_nv)
    d_s = features.shape[-1]
    count_term = _digamma_count(value_count, count_radius) / d_s
    check = checks_run(check_finite, features)
    log_epsilon = log_of_distance(neighbors.radius, rule, check=check, which=JOINT_DISTANCES)
    reward = count_term + log_epsilon  # Eq. (8): ψ(n_v + 1)/d_s + log ε
    return ConditionalTerms(reward, neighbors.radius, neighbors.value_distance, value_count)


def value_conditional_reward(
    features: Float[Tensor, "*batch n d"],
    values: Values,
    *,
    k: int,
    reading: str | ConditionalReading = "paper",
    nv_radius: RadiusOfCount | None = None,
    self_in_k: bool | None = None,
    self_in_nv: bool | None = None,
    doubled: bool | None = None,
    log_offset: float | None = None,
    check_finite: bool = True,
) -> Float[Tensor, "*batch n"]:
    """Compute the value-conditional state entropy reward of each feature, Eq. (8): ψ(n_v(i) + 1)/d_s + log ε(i).

    The values are used as given: normalising them belongs to the bonus.

    Args:
        features: The states, or features of them.
        values: What the entropy is conditioned on: a number per feature, or a vector.
        k: Which neighbour, counted without the point itself unless the reading says otherwise.
        reading: Whose definition is followed: paper, clean, release-a2c, release-drqv2, release-sac or release-mwm;
            or a custom `ConditionalReading`.
        nv_radius: Deviation: n_v is counted within ε_v/2 ("value", the paper) or ε/2 ("joint", the release).
            None: as the reading says; so for all deviations.
        self_in_k: Deviation: the point itself counts as its first neighbour.
        self_in_nv: Deviation: the point itself is counted in n_v where the radius is above 0.
        doubled: Whether ε is twice the distance; it is in all readings.
        log_offset: What is added to ε inside the logarithm: 1e-5, and 1e-4 in release-mwm. With 0, as the paper
            prints it, a duplicate's reward would be minus infinity, and is refused.
        check_finite: Refuse NaN and infinity; on CUDA this waits for the device, and is left out while a
            CUDA graph is captured.

    Example:
        >>> import torch
        >>> from vcse.estimators import value_conditional_reward
        >>> features, values = torch.tensor([[0.0], [1.0], [3.0]]), torch.tensor([0.0, 0.0, 4.0])
        >>> value_conditional_reward(features, values, k=1)
        tensor([0.1159, 0.1159, 1.5022])
    """
    rule = conditional_reading(
        reading, nv_radius=nv_radius, self_in_k=self_in_k, self_in_nv=self_in_nv, doubled=doubled, log_offset=log_offset
    )
    return value_conditional_terms(features, values, k=k, reading=rule, check_finite=check_finite).reward


def _count_radius(neighbors: JointNeighbors, nv_radius: RadiusOfCount) -> Float[Tensor, "*batch n"]:
    return neighbors.value_distance if nv_radius == "value" else neighbors.radius


def _digamma_count(value_count: Int[Tensor, "*batch n"], like: Float[Tensor, "*batch n"]) -> Float[Tensor, "*batch n"]:
    """Return ψ(n_v + 1), in the type of the distances."""
    return torch.digamma(value_count.to(like.dtype) + 1)


def _check_joint_radius(radius: Tensor) -> None:
    check_above_zero("features and values", radius, which=JOINT_DISTANCES, remedy=MORE_NEIGHBORS)


def _check_value_distance(value_distance: Tensor, *, remedy: str) -> None:
    which = "distances in value to the k-th joint neighbour"
    check_above_zero("values", value_distance, which=which, remedy=remedy)
