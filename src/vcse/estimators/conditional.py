"""Conditional entropy: the Kraskov-Stögbauer-Grassberger estimates, Eq. (3) to (7), and the VCSE reward, Eq. (8).

Equation numbers are those of Kim et al. 2023. In the paper's symbols, with z = (x, y) under the norm
max(‖x − x'‖, ‖y − y'‖) and k-th neighbours found there:

    ε(i)/2 = joint radius      ε_x(i)/2 = the neighbour's distance in x      n_x(i) = #{j ≠ i : ‖x_j − x_i‖ < ε_x(i)/2}

VCSE has the value for x and the state for y. All entropies are in nats, with radius and unit-radius ball; the
paper's doubled distances with the same ball would be d·log 2 too much (see `kl_entropy`).
"""

from typing import NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.estimators.checks import checks_run
from vcse.estimators.entropy import digamma, log_of_distance, log_of_radius, log_unit_ball, with_overrides
from vcse.estimators.neighbors import count_within, joint_neighbors, values_as_points
from vcse.estimators.readings import ConditionalReading, RadiusOfCount, conditional_reading

Values = Float[Tensor, "..."]  # [*batch, n], or [*batch, n, v] for vectors


@torch.no_grad()
def ksg_joint_entropy(
    features: Float[Tensor, "*batch n d"], values: Values, *, k: int, check_finite: bool = True
) -> Float[Tensor, "*batch"]:
    """Joint entropy, Eq. (3): −ψ(k) + ψ(N) + log(c_dX c_dY) + (d_X + d_Y)/N Σ log(ε/2)."""
    neighbors = joint_neighbors(features, values, k=k, check_finite=check_finite)
    log_radius = log_of_radius("features and values", neighbors.radius, check=checks_run(check_finite, features))
    (count, d_y), d_x = features.shape[-2:], values_as_points(values, features).shape[-1]
    constant = digamma(count) - digamma(k) + log_unit_ball(d_x) + log_unit_ball(d_y)
    return constant + (d_x + d_y) * log_radius.mean(-1)


@torch.no_grad()
def ksg_marginal_entropy(
    features: Float[Tensor, "*batch n d"], values: Values, *, k: int, check_finite: bool = True
) -> Float[Tensor, "*batch"]:
    """Entropy of the values at the scale of their joint neighbours, Eq. (4).

    −(1/N) Σ ψ(n_x + 1) + ψ(N) + log c_dX + (d_X/N) Σ log(ε_x/2), with the values for x.
    """
    neighbors = joint_neighbors(features, values, k=k, check_finite=check_finite)
    value_distance = neighbors.value_distance
    log_radius = log_of_radius("values", value_distance, check=checks_run(check_finite, features))
    inside = torch.digamma(count_within(values, value_distance).to(value_distance.dtype) + 1)
    count, d_x = features.shape[-2], values_as_points(values, features).shape[-1]
    return -inside.mean(-1) + digamma(count) + log_unit_ball(d_x) + d_x * log_radius.mean(-1)


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
    """Entropy of the features given the values, H(S | V), Eq. (5) and (6).

    (1/N) Σ [ ψ(n_v + 1) + d_V (log ε − log ε_v) + d_S log(ε/2) ] − ψ(k) + log c_dS

    Args:
        features: The states, y in the paper's Eq. (5).
        values: The values, x in the paper's Eq. (5): a number or a vector per feature.
        k: Which neighbour in the joint space, counted without the point itself.
        nv_radius: Where n_v is counted: within ε_v/2 ("value", the paper) or within ε/2 ("joint"). The second is
            the first algorithm of Kraskov et al. 2004: ε takes the place of ε_v and the middle term vanishes.
        lower_bound: Drop the middle term, which is not negative: Eq. (7).
        self_in_nv: Count the point itself in n_v, as the release does.
        check_finite: Refuse NaN and infinity, and radii of 0; see `kth_neighbor_distance`.
    """
    check = checks_run(check_finite, features)
    neighbors = joint_neighbors(features, values, k=k, check_finite=check_finite)
    radius = neighbors.radius
    log_radius = log_of_radius("features and values", radius, check=check)
    counted = _radius_of_count(neighbors.value_distance, radius, nv_radius)
    inside = torch.digamma(count_within(values, counted, count_self=self_in_nv).to(radius.dtype) + 1)
    d_s, d_v = features.shape[-1], values_as_points(values, features).shape[-1]
    terms = inside + d_s * log_radius
    if not lower_bound:
        terms = terms + d_v * (log_radius - log_of_radius("values", counted, check=check))
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
    rule = conditional_reading(reading) if isinstance(reading, str) else reading
    neighbors = joint_neighbors(features, values, k=k, self_in_k=rule.self_in_k, check_finite=check_finite)
    counted = _radius_of_count(neighbors.value_distance, neighbors.radius, rule.nv_radius)
    value_count = count_within(values, counted, count_self=rule.self_in_nv)
    density = torch.digamma(value_count.to(neighbors.radius.dtype) + 1) / features.shape[-1]
    check = checks_run(check_finite, features)
    size = log_of_distance(neighbors.radius, rule.doubled, rule.log_offset, check=check)
    return ConditionalTerms(density + size, neighbors.radius, neighbors.value_distance, value_count)


def value_conditional_reward(
    features: Float[Tensor, "*batch n d"],
    values: Values,
    *,
    k: int,
    reading: str = "paper",
    nv_radius: RadiusOfCount | None = None,
    self_in_k: bool | None = None,
    self_in_nv: bool | None = None,
    doubled: bool | None = None,
    log_offset: float | None = None,
    check_finite: bool = True,
) -> Float[Tensor, "*batch n"]:
    """Value-conditional state entropy reward of each feature, Eq. (8): ψ(n_v(i) + 1)/d_S + log ε(i).

    The values are used as given: normalising them belongs to the bonus.

    Args:
        features: The states, or what stands for them.
        values: What the entropy is conditioned on: a number per feature, or a vector.
        k: Which neighbour, counted without the point itself unless the reading says otherwise.
        reading: Whose definition is followed: paper, clean, release-a2c, release-drqv2, release-sac or release-mwm.
        nv_radius: Deviation: n_v is counted within ε_v/2 ("value", the paper) or ε/2 ("joint", the release).
            None: as the reading says; so for all deviations.
        self_in_k: Deviation: the point itself counts as its first neighbour.
        self_in_nv: Deviation: the point itself is counted in n_v where the radius is above 0.
        doubled: Whether ε is twice the distance; it is in all readings.
        log_offset: What is added to ε inside the logarithm: 1e-5, and 1e-4 in release-mwm. With 0, as the paper
            prints it, a duplicate's reward would be minus infinity, and is refused.
        check_finite: Refuse NaN and infinity; on CUDA this waits for the device, and is left out while a
            CUDA graph is captured.
    """
    rule = with_overrides(
        conditional_reading(reading),
        nv_radius=nv_radius,
        self_in_k=self_in_k,
        self_in_nv=self_in_nv,
        doubled=doubled,
        log_offset=log_offset,
    )
    return value_conditional_terms(features, values, k=k, reading=rule, check_finite=check_finite).reward


def _radius_of_count(value_distance: Tensor, radius: Tensor, nv_radius: RadiusOfCount) -> Tensor:
    if nv_radius not in ("value", "joint"):
        raise ValueError(f"nv_radius must be 'value' or 'joint', got {nv_radius!r}")
    return value_distance if nv_radius == "value" else radius
