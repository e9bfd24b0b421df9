"""Scales for the bonus, and the standardisation of the values that condition it.

A normaliser divides a batch of rewards by a statistic of theirs. Those with a memory keep it per learner, in
buffers, and update it at each call, before they divide. A scale of 0 (a batch of equal rewards, say) divides by
1 instead: nothing here makes a NaN of finite numbers.
"""

import math
from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vcse.estimators.checks import whole_number
from vcse.estimators.neighbors.differences import power_of_two_scale

PerLearner = Float[Tensor, "*learners"]
Batch = Float[Tensor, "*learners n"]


class Normalizer(nn.Module):
    """Base class of normalisers, which divide a batch of rewards by a scale."""

    def check_fits(self, shape: Sequence[int]) -> None:
        """Raise ValueError for the shape of a batch that `forward` would refuse; without statistics, any will do."""

    def forward(self, batch: Batch) -> Batch:
        """Update the statistics with the batch and divide it."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")


class NoNormalizer(Normalizer):
    """Normaliser that leaves the batch as it is.

    Example:
        >>> import torch
        >>> from vcse.bonuses import NoNormalizer
        >>> normalizer = NoNormalizer()
        >>> normalizer(torch.tensor([1.0, 2.0, 3.0]))
        tensor([1., 2., 3.])
    """

    def forward(self, batch: Batch) -> Batch:
        """Return the batch itself."""
        return batch


class BatchStd(Normalizer):
    """Normaliser by the standard deviation of the batch: the paper's state entropy in MiniGrid.

    Example:
        >>> import torch
        >>> from vcse.bonuses import BatchStd
        >>> normalizer = BatchStd()
        >>> normalizer(torch.tensor([1.0, 2.0, 3.0]))
        tensor([1., 2., 3.])
        >>> normalizer(torch.tensor([2.0, 4.0, 6.0]))
        tensor([1., 2., 3.])
    """

    def check_fits(self, shape: Sequence[int]) -> None:
        """Raise ValueError for a batch of one."""
        check_two(shape)

    def forward(self, batch: Batch) -> Batch:
        """Divide by the batch's own standard deviation."""
        self.check_fits(batch.shape)
        return divided(batch, batch.std(-1))


class RunningMoments(nn.Module):
    """Mean and variance of everything seen so far, by the parallel update of Chan et al. 1979.

    In float64, where the square of any float32 is in range.

    Args:
        learners: The size of the leading learner axis, or None where there is none.
        dimensions: Where each dimension has moments of its own: how many there are. Batches are then [..., d, n].
    """

    mean: PerLearner
    variance: PerLearner
    count: PerLearner

    def __init__(self, *, learners: int | None = None, dimensions: int | None = None) -> None:
        super().__init__()
        shape = learner_shape(learners) + (() if dimensions is None else (dimensions,))
        for name in ("mean", "variance", "count"):
            self.register_buffer(name, torch.zeros(shape, dtype=torch.float64))

    def check_fits(self, shape: Sequence[int]) -> None:
        """Raise ValueError for the shape of a batch of other learners."""
        check_learners(shape, self.mean)

    def update(self, batch: Batch) -> None:
        """Update the moments with a batch."""
        self.check_fits(batch.shape)
        size = batch.shape[-1]
        variance, mean = torch.var_mean(batch.double(), dim=-1, correction=0)
        total = self.count + size
        delta = mean - self.mean
        squares = self.variance * self.count + variance * size + delta**2 * self.count * size / total
        self.mean.add_(delta * (size / total))  # exact at first, so that equal numbers have no variance later
        self.variance.copy_(squares / total)
        self.count.copy_(total)


class _WithMoments(Normalizer):
    """Base class of normalisers by a statistic of everything seen so far."""

    def __init__(self, *, learners: int | None = None) -> None:
        super().__init__()
        self.moments = RunningMoments(learners=learners)

    def check_fits(self, shape: Sequence[int]) -> None:
        """Raise ValueError for the shape of a batch of other learners."""
        self.moments.check_fits(shape)


class RunningStd(_WithMoments):
    """Normaliser by the standard deviation of everything seen so far.

    Args:
        learners: The size of the leading learner axis, or None where there is none.

    Example:
        >>> import torch
        >>> from vcse.bonuses import RunningStd
        >>> normalizer = RunningStd()
        >>> normalizer(torch.tensor([1.0, 2.0, 3.0]))
        tensor([1.2247, 2.4495, 3.6742])
        >>> normalizer(torch.tensor([2.0, 4.0, 6.0]))
        tensor([1.2247, 2.4495, 3.6742])
    """

    def forward(self, batch: Batch) -> Batch:
        """Update and divide."""
        self.moments.update(batch)
        return divided(batch, self.moments.variance.sqrt())


class RunningMean(_WithMoments):
    """Normaliser by the mean of everything seen so far: the paper's state entropy in DrQ-v2 and SAC.

    Args:
        learners: The size of the leading learner axis, or None where there is none.

    Example:
        >>> import torch
        >>> from vcse.bonuses import RunningMean
        >>> normalizer = RunningMean()
        >>> normalizer(torch.tensor([1.0, 2.0, 3.0]))
        tensor([0.5000, 1.0000, 1.5000])
        >>> normalizer(torch.tensor([2.0, 4.0, 6.0]))
        tensor([0.6667, 1.3333, 2.0000])
    """

    def forward(self, batch: Batch) -> Batch:
        """Update and divide."""
        self.moments.update(batch)
        return divided(batch, self.moments.mean)


class EmaAbs(Normalizer):
    """Normaliser by an exponential moving average of the mean absolute value, which starts at 1.

    Args:
        momentum: The weight of the average so far; the batch has the rest.
        learners: The size of the leading learner axis, or None where there is none.

    Example:
        >>> import torch
        >>> from vcse.bonuses import EmaAbs
        >>> normalizer = EmaAbs(momentum=0.5)
        >>> normalizer(torch.tensor([1.0, 2.0, 3.0]))
        tensor([0.6667, 1.3333, 2.0000])
        >>> normalizer(torch.tensor([2.0, 4.0, 6.0]))
        tensor([0.7273, 1.4545, 2.1818])
    """

    magnitude: PerLearner

    def __init__(self, *, momentum: float = 0.99, learners: int | None = None) -> None:
        super().__init__()
        if not 0 <= momentum <= 1:
            raise ValueError(f"momentum must lie between 0 and 1, got {momentum}")
        self.momentum = momentum
        self.register_buffer("magnitude", torch.ones(learner_shape(learners)))

    def check_fits(self, shape: Sequence[int]) -> None:
        """Raise ValueError for the shape of a batch of other learners."""
        check_learners(shape, self.magnitude)

    def forward(self, batch: Batch) -> Batch:
        """Update and divide; the 1e-8 is the release's."""
        self.check_fits(batch.shape)
        self.magnitude.lerp_(batch.abs().mean(-1).to(self.magnitude.dtype), 1 - self.momentum)
        return divided(batch, self.magnitude + 1e-8)


class ReleasedRunning(Normalizer):
    """Normaliser by the running statistic of the released code, its mistake included, for release-* and re3.

    The release (after RE3) adds n/total to the running mean where it should multiply the difference by it. Its
    "mean" is therefore the current batch's plus 1/t at the t-th update, and its variance is inflated by about
    1/T, which weakens the bonus at first.

    Args:
        statistic: What rewards are divided by: the standard deviation ("std") or the mean ("mean").
        learners: The size of the leading learner axis, or None where there is none.

    Example:
        >>> import torch
        >>> from vcse.bonuses import ReleasedRunning
        >>> normalizer = ReleasedRunning("mean")
        >>> normalizer(torch.tensor([1.0, 2.0, 3.0]))
        tensor([0.3333, 0.6667, 1.0000])
        >>> normalizer(torch.tensor([2.0, 4.0, 6.0]))
        tensor([0.4444, 0.8889, 1.3333])
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

    def check_fits(self, shape: Sequence[int]) -> None:
        """Raise ValueError for a batch of one, and the shape of a batch of other learners."""
        check_two(shape)
        check_learners(shape, self.mean)

    def forward(self, batch: Batch) -> Batch:
        """Update, wrongly, and divide."""
        self.check_fits(batch.shape)
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
    """Base class of normalisers of values, applied before values meet the features in one norm."""

    def forward(self, values: Batch) -> Batch:
        """Shift and scale the values."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")


class RawValues(ValueNormalizer):
    """Normaliser that leaves the values as they are.

    Example:
        >>> import torch
        >>> from vcse.bonuses import RawValues
        >>> normalizer = RawValues()
        >>> normalizer(torch.tensor([1.0, 2.0, 3.0]))
        tensor([1., 2., 3.])
    """

    def forward(self, values: Batch) -> Batch:
        """Return the values themselves."""
        return values


class BatchStandardized(ValueNormalizer):
    """Standardisation of values over the batch: (v − mean) / √(variance + epsilon).

    The variance is the one that divides by n.

    Args:
        epsilon: The paper has none. The release has 1e-5, and 1e-3 in MWM, which shrinks values of little spread to
            nearly 0 instead of blowing them up.

    Example:
        >>> import torch
        >>> from vcse.bonuses import BatchStandardized
        >>> normalizer = BatchStandardized()
        >>> normalizer(torch.tensor([1.0, 2.0, 3.0]))
        tensor([-1.2247,  0.0000,  1.2247])
    """

    def __init__(self, *, epsilon: float = 0.0) -> None:
        super().__init__()
        if not 0 <= epsilon < math.inf:
            raise ValueError(f"epsilon must be finite and not negative, got {epsilon}")
        self.epsilon = epsilon

    def forward(self, values: Batch) -> Batch:
        """Standardise over the batch."""
        computed = values if values.dtype == torch.float64 else values.float()
        # By a power of two, which rounds nothing, to where squares of values of 1e25 or 1e-25 are in range.
        scale = power_of_two_scale(computed.reshape(-1, 1, values.shape[-1])).reshape(values.shape[:-1])
        scaled = computed * scale.unsqueeze(-1)
        variance, mean = torch.var_mean(scaled, dim=-1, correction=0)
        deviation = torch.hypot(variance.sqrt(), scale * math.sqrt(self.epsilon))
        return divided(scaled - mean.unsqueeze(-1), deviation).to(values.dtype)


class RunningStandardized(ValueNormalizer):
    """Standardisation of values with the moments of everything seen so far: (v − mean) / √variance.

    The paper saw no difference to that over the batch.

    Args:
        learners: The size of the leading learner axis, or None where there is none.

    Example:
        >>> import torch
        >>> from vcse.bonuses import RunningStandardized
        >>> normalizer = RunningStandardized()
        >>> normalizer(torch.tensor([1.0, 2.0, 3.0]))
        tensor([-1.2247,  0.0000,  1.2247])
        >>> normalizer(torch.tensor([2.0, 4.0, 6.0]))
        tensor([-0.6124,  0.6124,  1.8371])
    """

    def __init__(self, *, learners: int | None = None) -> None:
        super().__init__()
        self.moments = RunningMoments(learners=learners)

    def forward(self, values: Batch) -> Batch:
        """Update and standardise."""
        self.moments.update(values)
        centred = values.double() - self.moments.mean.unsqueeze(-1)
        return divided(centred, self.moments.variance.sqrt()).to(values.dtype)


def divided(batch: Batch, scale: PerLearner) -> Batch:
    """Divide each learner's batch by its scale, and by 1 where the scale is 0."""
    usable = scale.abs() > torch.finfo(scale.dtype).tiny
    return (batch / torch.where(usable, scale, torch.ones_like(scale)).unsqueeze(-1)).to(batch.dtype)


def check_two(shape: Sequence[int]) -> None:
    """Raise ValueError for a batch of one, which has no standard deviation."""
    if shape[-1] < 2:
        raise ValueError(f"a standard deviation needs a batch of at least 2, got {shape[-1]}")


def check_learners(shape: Sequence[int], statistic: PerLearner) -> None:
    """Raise ValueError for a batch whose leading axes are not the learners that statistics are kept for."""
    leading = tuple(shape[:-1])
    if leading != tuple(statistic.shape):
        remedy = f"learners={leading[0] if leading else None}" if len(leading) < 2 else "learners= and one leading axis"
        raise ValueError(
            f"a batch of shape {tuple(shape)} does not fit statistics of shape {tuple(statistic.shape)}, "
            f"one per learner: make the bonus or its normaliser with {remedy}"
        )


def learner_shape(learners: int | None) -> tuple[int, ...]:
    """Return the shape of one number per learner: none without a learner axis."""
    if learners is None:
        return ()
    return (whole_number("learners", learners, least=1),)
