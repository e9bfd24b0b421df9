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
from vcse.bonuses.registry import BonusChoice, BonusEntry, bonus_entry, bonus_names, make_bonus, register_bonus
from vcse.bonuses.stacked import StackedBonus, StackedOutput
from vcse.bonuses.state_entropy import MatchedStateEntropy, StateEntropy
from vcse.bonuses.value_conditional import RewardConditionalStateEntropy, ValueConditionalStateEntropy

__all__ = [
    "BatchStandardized",
    "BatchStd",
    "Bonus",
    "BonusBatch",
    "BonusChoice",
    "BonusEntry",
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
    "StackedBonus",
    "StackedOutput",
    "StateEntropy",
    "ValueConditionalStateEntropy",
    "ValueNormalizer",
    "bonus_entry",
    "bonus_names",
    "make_bonus",
    "register_bonus",
]
