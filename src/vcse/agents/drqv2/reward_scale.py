"""Rewards as the critics learn them: divided by the running mean of their size, and perhaps centred."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

RewardNormalization = Literal["none", "mean", "n_step_mean", "centered"]
DECAY, EPSILON = 0.99, 1e-8


class RewardScale:
    """Divides rewards by a running mean of their size, and subtracts their running mean from the critics' returns.

    A constant c in the reward of every step adds c (1 - γ^m) / (1 - γ) to a return of m steps, and c / (1 - γ) to the
    value of any state. Centring subtracts the same, with γ^m the discount of what follows. Where the task ended that
    is 0, so that a terminal state is worth -c / (1 - γ) and not 0: all values move by one number, and no policy becomes
    better or worse than another, whether episodes end early or not.

    Args:
        normalization: none; mean: by the mean size of one step's reward; n_step_mean: by that of n-step returns;
            centered: as mean, less the mean of one step's reward.
        discount: γ.
        device: Where the means live, in memory that a CUDA graph can read.
    """

    def __init__(self, normalization: RewardNormalization, discount: float, device: torch.device) -> None:
        self.normalization, self.discount = normalization, discount
        self.magnitude = torch.ones((), device=device)
        # It begins at 0, and is divided by the weight of all rewards so far: a constant reward is centred at once.
        self._one = torch.ones((), device=device)
        self._mean = torch.zeros(2, device=device)  # of the reward, and its weight

    @property
    def mean(self) -> Float[Tensor, ""]:
        """The running mean of the task's reward of one step."""
        return self._mean[0] / self._mean[1]

    @torch.no_grad()
    def update(self, first_rewards: Float[Tensor, " n"], returns: Float[Tensor, " n"]) -> None:
        """Update the running means with a batch.

        Args:
            first_rewards: Of single steps.
            returns: Discounted sums over n steps.
        """
        if self.normalization == "none":
            return
        scaled = returns if self.normalization == "n_step_mean" else first_rewards
        self.magnitude.lerp_(scaled.abs().mean(), 1 - DECAY)
        if self.normalization == "centered":
            self._mean.lerp_(torch.stack((first_rewards.mean(), self._one)), 1 - DECAY)

    def scale(self, rewards: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return rewards of single steps, as a bonus sees them."""
        return rewards if self.normalization == "none" else rewards / (self.magnitude + EPSILON)

    def scale_returns(self, returns: Float[Tensor, " n"], discounts: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return n-step returns, as critics learn them.

        Args:
            returns: Sums over n steps, or fewer.
            discounts: Of the value of the state that follows; 0 after termination.
        """
        if self.normalization == "centered":
            returns = returns - self.mean * (1 - discounts) / (1 - self.discount)
        return self.scale(returns)

    def state_dict(self) -> dict[str, Any]:
        """Return the running means that this normalization has."""
        state = {"reward_scale": self.magnitude.cpu().clone()}
        return state | ({"reward_mean": self._mean.cpu().clone()} if self.normalization == "centered" else {})

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned, from a dict that may hold more."""
        self.magnitude.copy_(state["reward_scale"])
        if self.normalization == "centered":
            self._mean.copy_(state["reward_mean"])
