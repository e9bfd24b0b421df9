"""Scales for the bonus, and the standardisation of the values that condition it.

A normaliser divides a batch of rewards by a statistic of theirs. Those with a memory keep it per learner, in
buffers, and update it at each call, before they divide. A scale of 0 (a batch of equal rewards, say) divides by
1 instead: nothing here makes a NaN of finite numbers.
"""

from abc import abstractmethod
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vcse.bonuses.bonus import learner_shape

PerLearner = Float[Tensor, "*learners"]
Batch = Float[Tensor, "*learners n"]


class Normalizer(nn.Module):
    """Interface of a normaliser: a batch in, the batch divided by its scale out."""

    @abstractmethod
    def forward(self, batch: Batch) -> Batch:
        """Update the statistics with the batch and divide it."""


class NoNormalizer(Normalizer):
    """Leaves the batch as it is."""

    def forward(self, batch: Batch) -> Batch:
        """Give the batch."""
        return batch


class BatchStd(Normalizer):
    """Divides by the standard deviation of the batch: the paper's state entropy in MiniGrid."""

    def forward(self, batch: Batch) -> Batch:
        """Divide by the batch's own standard deviation."""
        check_two(batch)
        return divided(batch, batch.std(-1))


class RunningMoments(nn.Module):
    """Mean and variance of everything seen so far, by the parallel update of Chan et al. 1979."""

    mean: PerLearner
    variance: PerLearner
    count: PerLearner

    def __init__(self, *, learners: int | None = None) -> None:
        super().__init__()
        shape = learner_shape(learners)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("variance", torch.zeros(shape))
        self.register_buffer("count", torch.zeros(shape))

    def update(self, batch: Batch) -> None:
        """Take a batch in."""
        size = batch.shape[-1]
        variance, mean = torch.var_mean(batch, dim=-1, correction=0)
        total = self.count + size
        delta = mean - self.mean
        squares = self.variance * self.count + variance * size + delta**2 * self.count * size / total
        self.mean.add_(delta * size / total)
        self.variance.copy_(squares / total)
        self.count.copy_(total)


class RunningStd(Normalizer):
    """Divides by the standard deviation of everything seen so far."""

    def __init__(self, *, learners: int | None = None) -> None:
        super().__init__()
        self.moments = RunningMoments(learners=learners)

    def forward(self, batch: Batch) -> Batch:
        """Update and divide."""
        self.moments.update(batch)
        return divided(batch, self.moments.variance.sqrt())


class RunningMean(Normalizer):
    """Divides by the mean of everything seen so far: the paper's state entropy in DrQ-v2 and SAC."""

    def __init__(self, *, learners: int | None = None) -> None:
        super().__init__()
        self.moments = RunningMoments(learners=learners)

    def forward(self, batch: Batch) -> Batch:
        """Update and divide."""
        self.moments.update(batch)
        return divided(batch, self.moments.mean)


class EmaAbs(Normalizer):
    """Divides by an exponential moving average of the mean absolute value, which starts at 1."""

    magnitude: PerLearner

    def __init__(self, *, momentum: float = 0.99, learners: int | None = None) -> None:
        super().__init__()
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must lie between 0 and 1, got {momentum}")
        self.momentum = momentum
        self.register_buffer("magnitude", torch.ones(learner_shape(learners)))

    def forward(self, batch: Batch) -> Batch:
        """Update and divide; the 1e-8 is the release's."""
        self.magnitude.lerp_(batch.abs().mean(-1), 1 - self.momentum)
        return divided(batch, self.magnitude + 1e-8)


class ReleasedRunning(Normalizer):
    """Divides by the running statistic of the released code, its mistake included. For `release` readings only.

    The release (after RE3) adds n/total to the running mean where it should multiply the difference by it. Its
    "mean" is therefore the current batch's plus 1/t at the t-th update, and its variance is inflated by about
    1/T, which weakens the bonus at first.
    """

    mean: PerLearner
    variance: PerLearner
    count: PerLearner

    def __init__(self, statistic: Literal["std", "mean"], *, learners: int | None = None) -> None:
        super().__init__()
        if statistic not in ("std", "mean"):
            raise ValueError(f"statistic must be 'std' or 'mean', got {statistic!r}")
        self.statistic = statistic
        shape = learner_shape(learners)
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("variance", torch.ones(shape))
        self.register_buffer("count", torch.full(shape, 1e-4))

    def forward(self, batch: Batch) -> Batch:
        """Update, wrongly, and divide."""
        check_two(batch)
        size = batch.shape[-1]
        variance, mean = torch.var_mean(batch, dim=-1)
        total = self.count + size
        delta = mean - self.mean
        squares = self.variance * self.count + variance * size + delta**2 * self.count * size / total
        self.mean.add_(delta + size / total)
        self.variance.copy_(squares / total)
        self.count.copy_(total)
        return divided(batch, self.variance.sqrt() if self.statistic == "std" else self.mean)


class ValueNormalizer(nn.Module):
    """Interface of what is done to the values before they meet the features in one norm."""

    @abstractmethod
    def forward(self, values: Batch) -> Batch:
        """Give the values, shifted and scaled."""


class RawValues(ValueNormalizer):
    """Leaves the values as they are."""

    def forward(self, values: Batch) -> Batch:
        """Give the values."""
        return values


class BatchStandardized(ValueNormalizer):
    """(v − mean) / √(variance + epsilon) over the batch, with the variance that divides by n.

    The paper has no epsilon. The release has 1e-5, and 1e-3 in MWM, which shrinks values of little spread to
    nearly 0 instead of blowing them up.
    """

    def __init__(self, *, epsilon: float = 0.0) -> None:
        super().__init__()
        if not epsilon >= 0:
            raise ValueError(f"epsilon must not be negative, got {epsilon}")
        self.epsilon = epsilon

    def forward(self, values: Batch) -> Batch:
        """Standardise over the batch."""
        variance, mean = torch.var_mean(values, dim=-1, correction=0)
        return divided(values - mean.unsqueeze(-1), (variance + self.epsilon).sqrt())


class RunningStandardized(ValueNormalizer):
    """(v − mean) / √variance with the moments of everything seen so far. The paper saw no difference."""

    def __init__(self, *, learners: int | None = None) -> None:
        super().__init__()
        self.moments = RunningMoments(learners=learners)

    def forward(self, values: Batch) -> Batch:
        """Update and standardise."""
        self.moments.update(values)
        return divided(values - self.moments.mean.unsqueeze(-1), self.moments.variance.sqrt())


def divided(batch: Batch, scale: PerLearner) -> Batch:
    """Divide each learner's batch by its scale, and by 1 where the scale is 0."""
    usable = scale.abs() > torch.finfo(scale.dtype).tiny
    return batch / torch.where(usable, scale, torch.ones_like(scale)).unsqueeze(-1)


def check_two(batch: Batch) -> None:
    """Refuse a batch of one, which has no standard deviation."""
    if batch.shape[-1] < 2:
        raise ValueError(f"a standard deviation needs a batch of at least 2, got {batch.shape[-1]}")
