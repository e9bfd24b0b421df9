"""Exploration bonuses: modules that turn features, and values where they need them, into intrinsic rewards."""

from vcse.bonuses.base import Bonus, BonusBatch, BonusOutput
from vcse.bonuses.counts import EpisodicCounts
from vcse.bonuses.icm import IntrinsicCuriosity
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
from vcse.bonuses.payments import BonusWarning, PaymentMonitor
from vcse.bonuses.registry import (
    BonusChoice,
    BonusContext,
    BonusEntry,
    bonus_entry,
    bonus_names,
    make_bonus,
    register_bonus,
)
from vcse.bonuses.rnd import RandomNetworkDistillation
from vcse.bonuses.scaling import RewardScaling, ScalingName
from vcse.bonuses.stacked import StackedBonus, StackedOutput
from vcse.bonuses.state_entropy import MatchedStateEntropy, StateEntropy
from vcse.bonuses.value_conditional import RewardConditionalStateEntropy, ValueConditionalStateEntropy

__all__ = [
    "BatchStandardized",
    "BatchStd",
    "Bonus",
    "BonusBatch",
    "BonusChoice",
    "BonusContext",
    "BonusEntry",
    "BonusOutput",
    "BonusWarning",
    "EmaAbs",
    "EpisodicCounts",
    "FeatureMemory",
    "IntrinsicCuriosity",
    "MatchedStateEntropy",
    "NoBonus",
    "NoNormalizer",
    "Normalizer",
    "PaymentMonitor",
    "RandomNetworkDistillation",
    "RawValues",
    "ReleasedRunning",
    "RewardConditionalStateEntropy",
    "RewardScaling",
    "RunningMean",
    "RunningStandardized",
    "RunningStd",
    "ScalingName",
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
