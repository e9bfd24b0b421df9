"""What a reading says beyond the formula: how the bonus is normalised, where it looks, how values are scaled."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from vcse.bonuses.normalizers import (
    BatchStandardized,
    BatchStd,
    NoNormalizer,
    Normalizer,
    ReleasedRunning,
    RunningMean,
    RunningStd,
    ValueNormalizer,
)
from vcse.bonuses.scaling import RewardScaling, ScalingName
from vcse.estimators.checks import check_instance
from vcse.estimators.readings import ConditionalReading

# What bonuses are by default: a duplicate earns log(0 + 1) = 0, and the mean of all rewards is 0 and their scale 1.
RECOMMENDED = "recommended"
RECOMMENDED_K = 12

NormalizerName = Literal["none", "batch-std", "running-std", "running-mean", "released-std", "released-mean"]


@dataclass(frozen=True)
class StateEntropyUse:
    """How a reading uses the state entropy reward."""

    normalizer: NormalizerName | None  # None: the reading is custom and does not say
    normalizes_before_log: bool = False  # log(1 + D/scale) instead of log(1 + D)/scale
    memory_capacity: int | None = None  # neighbours come from that many past features, the batch among them


STATE_ENTROPY_USES = {
    # In MiniGrid; for DrQ-v2 and SAC, where the paper divides by a running mean, pass RunningMean() with both.
    "paper": StateEntropyUse("batch-std"),
    "clean": StateEntropyUse("running-std"),
    "recommended": StateEntropyUse("none"),
    "release-a2c": StateEntropyUse("released-std", memory_capacity=10_000),
    "release-drqv2": StateEntropyUse("released-mean"),
    "release-sac": StateEntropyUse("released-mean"),
    # MWM normalises what it later predicts of the bonus, not the bonus: its agent holds the EmaAbs.
    "release-mwm": StateEntropyUse("none"),
    "re3": StateEntropyUse("released-std", normalizes_before_log=True, memory_capacity=10_000),
}

NORMALIZERS: dict[NormalizerName, Callable[[int | None], Normalizer]] = {
    "none": lambda learners: NoNormalizer(),
    "batch-std": lambda learners: BatchStd(),
    "running-std": lambda learners: RunningStd(learners=learners),
    "running-mean": lambda learners: RunningMean(learners=learners),
    "released-std": lambda learners: ReleasedRunning("std", learners=learners),
    "released-mean": lambda learners: ReleasedRunning("mean", learners=learners),
}

# The epsilon that is added to the value's variance.
VALUE_EPSILON = {
    "paper": 0.0,
    "clean": 0.0,
    "recommended": 0.0,
    "release-a2c": 1e-5,
    "release-drqv2": 1e-5,
    "release-sac": 1e-5,
    "release-mwm": 1e-3,
}


def make_normalizer(name: NormalizerName | None, *, learners: int | None) -> Normalizer:
    """Build the normaliser that a reading names."""
    if name is None:
        raise ValueError(
            "a StateEntropyReading does not say what the reward is divided by: "
            f"pass normalizer, such as RunningStd(learners={learners}) or NoNormalizer()"
        )
    return NORMALIZERS[name](learners)


def chosen_scaling(given: ScalingName | RewardScaling | None, reading: Any) -> ScalingName | RewardScaling:
    """Return the scaling that was passed, or else the reading's: all but the recommended one leave rewards raw."""
    if given is not None:
        return given
    return "standardized" if reading == RECOMMENDED else "raw"


def chosen_value_normalizer(
    given: ValueNormalizer | None, reading: str | ConditionalReading, *, argument: str
) -> ValueNormalizer:
    """Return the normaliser of values, or of what replaces them, that was passed, or else the reading's."""
    if given is not None:
        check_instance(argument, given, ValueNormalizer)
        return given
    if isinstance(reading, ConditionalReading):
        raise ValueError(
            f"a ConditionalReading does not say how what is conditioned on is scaled: pass {argument}, such as "
            "BatchStandardized() of the paper or BatchStandardized(epsilon=1e-5) of the release"
        )
    return BatchStandardized(epsilon=VALUE_EPSILON[reading])
