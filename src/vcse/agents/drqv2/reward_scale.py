"""Rewards as the critics learn them: divided by the running mean of their size, and perhaps centred."""

from typing import Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor

RewardNormalization = Literal["none", "mean", "n_step_mean", "centered"]
DECAY, EPSILON = 0.99, 1e-8


class RewardScale:
    """Divides rewards by a running mean of their size, and takes their running mean off the critics' returns.

    A constant c in the reward of every step adds c (1 - γ^m) / (1 - γ) to a return of m steps, and c / (1 - γ) to the
    value of any state. Centring takes the same off, with γ^m the discount of what follows. Where the task ended that
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
        self.size = torch.ones((), device=device)
        # Begun at 0, and divided by the weight of what was taken in: a constant reward is centred from the first
        # update on.
        self._one = torch.ones((), device=device)
        self._mean = torch.zeros(2, device=device)  # of the reward, and its weight

    @property
    def mean(self) -> Float[Tensor, ""]:
        """The running mean of one step's reward, as the task pays it."""
        return self._mean[0] / self._mean[1]

    @torch.no_grad()
    def take(self, first_rewards: Float[Tensor, " n"], returns: Float[Tensor, " n"]) -> None:
        """Update the running means with a batch.

        Args:
            first_rewards: Of single steps.
            returns: Discounted sums over n steps.
        """
        if self.normalization == "none":
            return
        sized = returns if self.normalization == "n_step_mean" else first_rewards
        self.size.lerp_(sized.abs().mean(), 1 - DECAY)
        if self.normalization == "centered":
            self._mean.lerp_(torch.stack((first_rewards.mean(), self._one)), 1 - DECAY)

    def scaled(self, rewards: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return rewards divided, as a bonus sees them."""
        return rewards if self.normalization == "none" else rewards / (self.size + EPSILON)

    def returns(self, returns: Float[Tensor, " n"], discounts: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return discounted sums of rewards as critics learn them.

        Args:
            returns: Sums over n steps, or fewer.
            discounts: What the value of what comes after counts; 0 where nothing does.
        """
        if self.normalization == "centered":
            returns = returns - self.mean * (1 - discounts) / (1 - self.discount)
        return self.scaled(returns)

    def state_dict(self) -> dict[str, Any]:
        """Return the running means that this normalization has."""
        state = {"reward_scale": self.size.cpu().clone()}
        return state | ({"reward_mean": self._mean.cpu().clone()} if self.normalization == "centered" else {})

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned, from a dict that may hold more."""
        self.size.copy_(state["reward_scale"])
        if self.normalization == "centered":
            self._mean.copy_(state["reward_mean"])
