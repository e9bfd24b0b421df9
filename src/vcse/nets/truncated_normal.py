"""The truncated Gaussian policy: actions in [-1, 1], with the density of a normal number up to a factor."""

import math

import torch
from jaxtyping import Float
from torch import Tensor
from torch.special import ndtri

from vcse.nets.precision import at_least_float32

LEAST_STD, MOST_STD = 0.1, 1.0


def mean_and_std(outputs: Float[Tensor, "*b two_a"]) -> tuple[Float[Tensor, "*b a"], Float[Tensor, "*b a"]]:
    """Return the mean and standard deviation of a network's outputs, both before the truncation."""
    mean, spread = at_least_float32(outputs).chunk(2, dim=-1)
    return mean.tanh(), LEAST_STD + (MOST_STD - LEAST_STD) * spread.sigmoid()


def truncated_normal_sample(
    mean: Float[Tensor, "*b a"], std: Float[Tensor, "*b a"], uniforms: Float[Tensor, "*b a"]
) -> Float[Tensor, "*b a"]:
    """Sample actions by the inverse of their distribution function, with gradients for mean and deviation.

    With z = (x − μ) / σ between α = (−1 − μ) / σ and β = (1 − μ) / σ, it solves Φ(z) = (1 − u) Φ(α) + u Φ(β). The same
    equation, differentiated, says what moves z: φ(z) dz = (1 − u) φ(α) dα + u φ(β) dβ.

    Args:
        mean: μ, in [-1, 1].
        std: σ.
        uniforms: u, one for each number of an action.
    """
    mean, std, uniforms = at_least_float32(mean), at_least_float32(std), at_least_float32(uniforms)
    low, high = (-1 - mean) / std, (1 - mean) / std
    with torch.no_grad():
        place = _quantile(low, high, uniforms)
        by_low = (1 - uniforms) * (0.5 * (place.square() - low.square())).exp()
        by_high = uniforms * (0.5 * (place.square() - high.square())).exp()
    moved = place + by_low * (low - low.detach()) + by_high * (high - high.detach())
    actions = mean + std * moved
    return actions + (actions.clamp(-1, 1) - actions).detach()  # rounding may lead outside


def _quantile(
    low: Float[Tensor, "*b a"], high: Float[Tensor, "*b a"], uniforms: Float[Tensor, "*b a"]
) -> Float[Tensor, "*b a"]:
    """Compute z, each half of it from the tail that it lies in, where probabilities have all their digits."""
    below = (1 - uniforms) * _probability(low) + uniforms * _probability(high)
    above = (1 - uniforms) * _probability(-low) + uniforms * _probability(-high)
    least = torch.finfo(below.dtype).tiny  # that of a uniform of 0 far from the bound, which has no z otherwise
    return torch.where(below < above, ndtri(below.clamp(min=least)), -ndtri(above.clamp(min=least)))


def truncated_normal_entropy(mean: Float[Tensor, "*b a"], std: Float[Tensor, "*b a"]) -> Float[Tensor, "*b"]:
    """Compute the differential entropy of actions, in nats, summed over the numbers of an action.

    H = log(√(2πe) σ Z) + (α φ(α) − β φ(β)) / 2Z with Z = Φ(β) − Φ(α).

    Args:
        mean: μ, in [-1, 1].
        std: σ.
    """
    mean, std = at_least_float32(mean), at_least_float32(std)
    low, high = (-1 - mean) / std, (1 - mean) / std
    inside = _probability(high) - _probability(low)
    tails = (low * _density(low) - high * _density(high)) / (2 * inside)
    entropies: Tensor = 0.5 * math.log(2 * math.pi * math.e) + (std * inside).log() + tails
    return entropies.sum(-1)


def _probability(z: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """Compute Φ(z). PyTorch's own `ndtr` has no digits left below -5, in float32."""
    return 0.5 * torch.erfc(-math.sqrt(0.5) * z)


def _density(z: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    return (-0.5 * z.square()).exp() / math.sqrt(2 * math.pi)
