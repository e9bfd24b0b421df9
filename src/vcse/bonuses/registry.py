"""Bonuses by name: what a command line or a run's configuration says, made into a bonus."""

from dataclasses import dataclass
from typing import Literal, get_args

from vcse.bonuses.base import Bonus
from vcse.bonuses.memory import FeatureMemory
from vcse.bonuses.none import NoBonus
from vcse.bonuses.normalizers import RunningStandardized
from vcse.bonuses.readings import STATE_ENTROPY_USES, NormalizerName, make_normalizer
from vcse.bonuses.state_entropy import MatchedStateEntropy, StateEntropy
from vcse.bonuses.value_conditional import RewardConditionalStateEntropy, ValueConditionalStateEntropy

BonusName = Literal["none", "se", "vcse", "rcse", "se-matched"]
BONUS_NAMES: tuple[BonusName, ...] = get_args(BonusName)
ValueNormalization = Literal["batch", "running"]
_CLASSES: dict[BonusName, type[Bonus]] = {
    "none": NoBonus,
    "se": StateEntropy,
    "vcse": ValueConditionalStateEntropy,
    "rcse": RewardConditionalStateEntropy,
    "se-matched": MatchedStateEntropy,
}
PAYING: tuple[BonusName, ...] = tuple(name for name in BONUS_NAMES if name != "none")
NEEDING_VALUES: tuple[BonusName, ...] = tuple(name for name in BONUS_NAMES if _CLASSES[name].needs_values)
# Which bonuses heed these fields of a choice.
READS_LOG_OFFSET: tuple[BonusName, ...] = ("vcse", "rcse", "se-matched")
READS_VALUE_NORMALIZATION: tuple[BonusName, ...] = ("vcse", "rcse")


@dataclass(frozen=True)
class BonusChoice:
    """Which bonus, and how it is computed."""

    name: BonusName
    reading: str  # of the bare functions: paper, clean, release-a2c, ...
    k: int
    log_offset: float | None = None  # None: the reading's
    value_normalization: ValueNormalization = "batch"  # of what VCSE and RCSE condition on
    normalizer: NormalizerName | None = None  # what the reward of SE is divided by; None: as the reading says

    def __post_init__(self) -> None:
        if self.name not in BONUS_NAMES:
            raise ValueError(f"bonus must be one of {', '.join(BONUS_NAMES)}, got {self.name!r}")
        if self.k < 1:
            raise ValueError(f"k must be at least 1, got {self.k}")

    @property
    def pays(self) -> bool:
        """Whether it is a bonus at all."""
        return self.name in PAYING

    @property
    def needs_values(self) -> bool:
        """Whether the bonus wants the extrinsic value of each state."""
        return self.name in NEEDING_VALUES

    @property
    def memory_capacity(self) -> int | None:
        """How many features the bonus remembers, those of a batch among them; None where it has no memory."""
        use = STATE_ENTROPY_USES.get(self.reading) if self.name == "se" else None
        return None if use is None else use.memory_capacity


def make_bonus(choice: BonusChoice, *, learners: int, dimensions: int, check_finite: bool = True) -> Bonus:
    """Build a bonus for so many learners with features of so many dimensions."""
    match choice.name:
        case "none":
            return NoBonus(learners=learners)
        case "se":
            capacity = choice.memory_capacity
            memory = None if capacity is None else FeatureMemory(capacity, dimensions, learners=learners)
            return StateEntropy(
                k=choice.k,
                reading=choice.reading,
                memory=memory,
                normalizer=None if choice.normalizer is None else make_normalizer(choice.normalizer, learners=learners),
                learners=learners,
                check_finite=check_finite,
            )
        case "se-matched":
            return MatchedStateEntropy(
                k=choice.k,
                reading=choice.reading,
                log_offset=choice.log_offset,
                learners=learners,
                check_finite=check_finite,
            )
        case "vcse":
            return ValueConditionalStateEntropy(
                k=choice.k,
                reading=choice.reading,
                log_offset=choice.log_offset,
                value_normalizer=_normalizer_of_condition(choice, learners),
                learners=learners,
                check_finite=check_finite,
            )
        case "rcse":
            return RewardConditionalStateEntropy(
                k=choice.k,
                reading=choice.reading,
                log_offset=choice.log_offset,
                reward_normalizer=_normalizer_of_condition(choice, learners),
                learners=learners,
                check_finite=check_finite,
            )


def _normalizer_of_condition(choice: BonusChoice, learners: int) -> RunningStandardized | None:
    return RunningStandardized(learners=learners) if choice.value_normalization == "running" else None
