"""Exploration bonuses: modules that turn features, and values where they need them, into intrinsic rewards."""

from vcse.bonuses.base import Bonus, BonusBatch, BonusOutput
from vcse.bonuses.memory import FeatureMemory
from vcse.bonuses.none import NoBonus
from vcse.bonuses.normalizers import (
    BatchStandardized,
    BatchStd,
    EmaAbs,
    NoNormalizer,
    Normalizer,
    RawValues,
    ReleasedRunning,
    RunningMean,
    RunningStandardized,
    RunningStd,
    ValueNormalizer,
)
from vcse.bonuses.state_entropy import MatchedStateEntropy, StateEntropy
from vcse.bonuses.value_conditional import RewardConditionalStateEntropy, ValueConditionalStateEntropy

__all__ = [
    "BatchStandardized",
    "BatchStd",
    "Bonus",
    "BonusBatch",
    "BonusOutput",
    "EmaAbs",
    "FeatureMemory",
    "MatchedStateEntropy",
    "NoBonus",
    "NoNormalizer",
    "Normalizer",
    "RawValues",
    "ReleasedRunning",
    "RewardConditionalStateEntropy",
    "RunningMean",
    "RunningStandardized",
    "RunningStd",
    "StateEntropy",
    "ValueConditionalStateEntropy",
    "ValueNormalizer",
]
