"""The running mean of the size of rewards, by which they are divided."""

import torch
from jaxtyping import Float
from torch import Tensor

DECAY, EPSILON = 0.99, 1e-8


class RewardScale:
    """Divides rewards by the running mean of their size, or leaves them as they are.

    Args:
        device: Where the mean lives, in memory that a CUDA graph can read.
        is_on: Whether it divides.
    """

    def __init__(self, device: torch.device, *, is_on: bool) -> None:
        self.mean = torch.ones((), device=device)
        self.is_on = is_on

    @torch.no_grad()
    def take(self, rewards: Float[Tensor, " n"]) -> None:
        """Take the rewards of single steps in."""
        if self.is_on:
            self.mean.lerp_(rewards.abs().mean(), 1 - DECAY)

    def __call__(self, rewards: Float[Tensor, " n"]) -> Float[Tensor, " n"]:
        """Return rewards divided."""
        return rewards / (self.mean + EPSILON) if self.is_on else rewards
