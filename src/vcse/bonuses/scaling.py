"""The mean and the scale of a bonus."""

from typing import Literal, get_args

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vcse.bonuses.normalizers import RunningMoments, divided

ScalingName = Literal["raw", "centered", "standardized"]
Statistics = Literal["batch", "running"]
LEAST_SPREAD = 1e-5  # of the largest reward: below it a standard deviation is rounding


class RewardScaling(nn.Module):
    """Shifts and scales the rewards that a formula gives.

    A bonus with a negative mean costs something at every step, and so rewards ending the episode; one with a positive
    mean rewards prolonging it. With its mean subtracted it does neither. If it is also divided by its standard
    deviation, beta alone sets its size, in units of the task's reward.

    Args:
        name: "raw" (as the formula gives them), "centered" (minus the mean) or "standardized" (also divided by the
            standard deviation).
        statistics: Mean and deviation of the "batch", or "running" ones of all batches so far. With the latter, a
            bonus that shrinks as states become familiar counts less and less.
        learners: The size of the leading learner axis, or None where there is none; running statistics are kept for
            each.

    Example:
        >>> import torch
        >>> from vcse.bonuses import RewardScaling
        >>> RewardScaling("standardized")(torch.tensor([-11.0, -11.0, -8.0, -10.0]))
        tensor([-0.8165, -0.8165,  1.6330,  0.0000])
    """

    def __init__(
        self, name: ScalingName = "raw", *, statistics: Statistics = "batch", learners: int | None = None
    ) -> None:
        super().__init__()
        for argument, given, words in (("scaling", name, ScalingName), ("statistics", statistics, Statistics)):
            if given not in get_args(words):
                raise ValueError(f"{argument} must be one of {', '.join(get_args(words))}, got {given!r}")
        self.name, self.learners = name, learners
        needs_moments = statistics == "running" and name != "raw"
        self.moments = RunningMoments(learners=learners) if needs_moments else None

    def check_learners(self, learners: int | None) -> None:
        """Raise ValueError for running statistics of other learners than those of a bonus."""
        if self.moments is not None and self.learners != learners:
            raise ValueError(
                f"scaling has statistics of learners={self.learners}, but the bonus has learners={learners}"
            )

    def forward(self, rewards: Float[Tensor, "*learners n"]) -> Float[Tensor, "*learners n"]:
        """Scale the rewards of a batch, after any running statistics have seen it."""
        if self.name == "raw":
            return rewards
        if self.moments is None:
            spread, mean = torch.std_mean(rewards.double(), dim=-1, correction=0)
        else:
            self.moments.update(rewards)
            spread, mean = self.moments.variance.sqrt(), self.moments.mean
        centered = rewards.double() - mean.unsqueeze(-1)
        if self.name == "standardized":
            is_rounding = spread <= LEAST_SPREAD * rewards.abs().amax(-1)
            centered = divided(centered, spread.masked_fill(is_rounding, 1.0))
        return centered.to(rewards.dtype)
