"""The squashed Gaussian policy: tanh of a normal number, so that actions lie in (-1, 1)."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

LEAST_LOG_STD, MOST_LOG_STD = -5.0, 2.0


def mean_and_log_std(outputs: Float[Tensor, "*b two_a"]) -> tuple[Float[Tensor, "*b a"], Float[Tensor, "*b a"]]:
    """Read a network's outputs: the mean before the tanh, and a logarithm that stays between its bounds."""
    mean, unbounded = outputs.chunk(2, dim=-1)
    return mean, LEAST_LOG_STD + 0.5 * (MOST_LOG_STD - LEAST_LOG_STD) * (unbounded.tanh() + 1)


def squashed_sample(
    mean: Float[Tensor, "*b a"], log_std: Float[Tensor, "*b a"], noise: Float[Tensor, "*b a"]
) -> tuple[Float[Tensor, "*b a"], Float[Tensor, "*b"]]:
    """Return the action that standard normal noise leads to, and the logarithm of its density."""
    before = mean + log_std.exp() * noise
    log_normal = -0.5 * noise.square() - log_std - 0.5 * math.log(2 * math.pi)
    # log(1 - tanh²) in a form that does not run out of digits where the tanh is near ±1.
    log_slope = 2 * (math.log(2) - before - torch.nn.functional.softplus(-2 * before))
    return before.tanh(), (log_normal - log_slope).sum(-1)
