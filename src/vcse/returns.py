"""Advantages and returns: pure functions of rewards, values and where episodes end."""

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor


def gae(
    rewards: Float[Tensor, "*envs t"],
    values: Float[Tensor, "*envs t"],
    next_values: Float[Tensor, "*envs t"],
    terminated: Bool[Tensor, "*envs t"],
    ended: Bool[Tensor, "*envs t"],
    *,
    discount: Float[Tensor, "..."] | float,
    gae_lambda: Float[Tensor, "..."] | float,
) -> Float[Tensor, "*envs t"]:
    """Generalised advantage estimates (Schulman et al. 2016), over the last axis.

    A_t = δ_t + γλ A_{t+1} with δ_t = r_t + γ V(s_{t+1}) − V(s_t).

    Args:
        rewards: r_t.
        values: V(s_t).
        next_values: V of the state that the action led to, before any reset.
        terminated: Nothing comes after: V(s_{t+1}) counts as 0.
        ended: The episode ends here, for whatever reason: A_{t+1} belongs to another one.
        discount: γ, a number or one per learner that broadcasts against `rewards[..., 0]`.
        gae_lambda: λ, likewise.
    """
    deltas = rewards + _last_axis(discount) * next_values * ~terminated - values
    decay = _last_axis(discount) * _last_axis(gae_lambda) * ~ended
    if deltas.device.type == "cpu" and deltas.dtype in (torch.float32, torch.float64) and not deltas.requires_grad:
        return _summed(deltas, decay)
    advantage = torch.zeros_like(deltas[..., 0])
    advantages = []
    for delta, kept in zip(reversed(deltas.unbind(-1)), reversed(decay.unbind(-1)), strict=True):
        advantage = delta + kept * advantage
        advantages.append(advantage)
    return torch.stack(advantages[::-1], -1)


def _summed(deltas: Float[Tensor, "*envs t"], decay: Float[Tensor, "*envs t"]) -> Float[Tensor, "*envs t"]:
    """Sum by NumPy, to the same bits: of a long rollout of few environments, PyTorch would take five times as long."""
    by_step, kept = (np.moveaxis(each.numpy(), -1, 0) for each in (deltas, decay))
    advantage = np.zeros_like(by_step[0])
    advantages = np.empty(deltas.shape, by_step.dtype)
    for t in reversed(range(len(by_step))):
        advantage = by_step[t] + kept[t] * advantage
        advantages[..., t] = advantage
    return torch.from_numpy(advantages)


def _last_axis(number: Float[Tensor, "..."] | float) -> Float[Tensor, "..."] | float:
    return number.unsqueeze(-1) if isinstance(number, Tensor) else number


def lambda_returns(
    rewards: Float[Tensor, "t n"],
    values: Float[Tensor, "t n"],
    discounts: Float[Tensor, "t n"],
    bootstrap: Float[Tensor, " n"],
    decay: float,
) -> Float[Tensor, "t n"]:
    """λ-returns of trajectories, over the first axis, differentiable in all but λ.

    R_t = r_t + γ_t ((1 − λ) V(s_{t+1}) + λ R_{t+1}), and V(s_T) = R_T is the bootstrap.

    Args:
        rewards: r_t.
        values: V(s_t).
        discounts: γ_t; 0 where nothing comes after.
        bootstrap: V(s_T).
        decay: λ.
    """
    next_values = torch.cat((values[1:], bootstrap[None]))
    one_step = rewards + (1 - decay) * discounts * next_values
    kept = decay * discounts
    following = bootstrap
    returns = []
    for reward, weight in zip(reversed(one_step.unbind()), reversed(kept.unbind()), strict=True):
        following = reward + weight * following
        returns.append(following)
    return torch.stack(returns[::-1])
