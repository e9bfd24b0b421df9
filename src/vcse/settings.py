"""Settings of agents: each is one field of a dataclass, which carries its help, its unit and what it may be.

The command line, `--set`, `config.json`, the tables of the documentation and error texts are derived from the fields,
under one name.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeVar, get_args, get_origin, get_type_hints

from vcse.bonuses.registry import BonusChoice

READINGS = ("release", "paper", "clean", "re3", "recommended")
Reading = Literal["release", "paper", "clean", "re3", "recommended"]
ValueCritic = Literal["online", "target"]  # whose value VCSE conditions on, where a critic has a target
Range = Literal["any", "count", "positive", "not negative", "share"]
Affects = Literal["all", "any bonus", "bonuses of values"]

S = TypeVar("S", bound="AgentSettings")


@dataclass(frozen=True)
class About:
    """What is known of a setting beside its name, its type and its default."""

    help: str
    range: Range = "any"
    unit: str = ""  # frames or count: may be written as 100k or 1M
    affects: Affects = "all"  # with which bonuses it has an effect; for others it is not recorded
    affects_with: str = ""  # a setting with which it has an effect whatever the bonus
    otherwise: str = ""  # what it is if it is not given, where that follows from the reading or the task
    is_option: bool = True  # has an option of its own on the command line; else --set sets it
    metavar: str = ""  # how the help writes its value, where the type alone would not say it


def setting(default: Any, help: str, **about: Any) -> Any:
    """Return a field of a settings class that describes itself; for the keywords see `About`."""
    return dataclasses.field(default=default, metadata={"about": About(help, **about)})


def described(settings: Any) -> dict[str, About]:
    """Return what is known of each setting that describes itself, by name."""
    fields = dataclasses.fields(settings)
    return {field.name: field.metadata["about"] for field in fields if "about" in field.metadata}


@dataclass(frozen=True)
class AgentSettings:
    """What the settings of every agent have in common: the bonus, checks, and how they are read back."""

    # Names of settings in schema 1 of config.json, and theirs now.
    renamed: ClassVar[Mapping[str, str]] = {}
    # Settings that came later, and what runs had before there was a choice.
    added: ClassVar[Mapping[str, Any]] = {}

    bonus: BonusChoice

    def __post_init__(self) -> None:
        for name, about in described(self).items():
            words, value = _words(type(self)).get(name, ()), getattr(self, name)
            if not words or not isinstance(value, str):
                _check_range(name, value, about.range)
            elif value not in words:
                raise ValueError(f"{name} must be one of {', '.join(words)}, got {value!r}")

    @property
    def has_bonus(self) -> bool:
        """Whether any bonus is paid."""
        return self.bonus.pays

    @property
    def has_extrinsic_critic(self) -> bool:
        """Whether the value of the task's own rewards is learned too."""
        return self.bonus.needs_values

    @classmethod
    def of(cls: type[S], settings: "AgentSettings") -> S:
        """Return settings that are of this class, and refuse others."""
        if not isinstance(settings, cls):
            raise ValueError(f"settings must be of the class {cls.__name__}, got {type(settings).__name__}")
        return settings

    @classmethod
    def upgraded(cls, values: Mapping[str, Any], of_run: Mapping[str, Any]) -> dict[str, Any]:
        """Return what schema 1 of `config.json` held under the names of this release.

        Args:
            values: Of the agent.
            of_run: Of the run, which no longer has them.
        """
        del of_run
        return {cls.renamed.get(name, name): value for name, value in values.items()}

    @classmethod
    def renewed(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return what any commit of schema 2 wrote, with the settings of today."""
        return {**cls.added, **values}

    @classmethod
    def from_json(cls: type[S], content: Mapping[str, Any]) -> S:
        """Return the settings that `config.json` holds."""
        fields = dict(content)
        bonus = BonusChoice(**fields.pop("bonus"))
        tuples = {name: tuple(each) for name, each in fields.items() if isinstance(each, list)}
        return cls(bonus=bonus, **{**fields, **tuples})


def _words(settings: type[AgentSettings]) -> dict[str, tuple[str, ...]]:
    """Return the words that each setting may be."""
    found = {}
    for name, hint in get_type_hints(settings).items():
        kinds = [hint] if get_origin(hint) is Literal else get_args(hint)
        found[name] = tuple(word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind))
    return found


def _check_range(name: str, number: Any, range_: Range) -> None:
    """Refuse a number outside of its range; None is left to the setting's default."""
    if range_ == "any" or number is None:
        return
    if range_ == "count" and number < 1:
        raise ValueError(f"{name} must be at least 1, got {number}")
    if range_ == "positive" and not 0 < number < math.inf:
        raise ValueError(f"{name} must be finite and above 0, got {number}")
    if range_ == "not negative" and not 0 <= number < math.inf:
        raise ValueError(f"{name} must be finite and not negative, got {number}")
    if range_ == "share" and not 0 <= number <= 1:
        raise ValueError(f"{name} must be from 0 to 1, got {number}")


def check_holds_batch(settings: Any, batch: int) -> None:
    """Refuse a replay that is smaller than what is sampled from it."""
    if settings.replay_capacity < batch:
        raise ValueError(
            f"replay_capacity must be at least {batch}, the transitions of a batch, got {settings.replay_capacity}"
        )


def check_cohort(settings: Sequence[Any], seeds: Sequence[int], shared: Sequence[str]) -> None:
    """Refuse learners that cannot be trained in one stack."""
    if not settings or len(settings) != len(seeds):
        raise ValueError(f"a cohort needs one seed per configuration, got {len(settings)} and {len(seeds)}")
    for name in shared:
        different = {getattr(each, name) for each in settings}
        if len(different) > 1:
            raise ValueError(f"learners of one cohort must have the same {name}, got {sorted(different)}")


def check_neighbors(k: int, states: int) -> None:
    """Refuse a neighbour that a batch of so many states does not have."""
    if k >= states:
        raise ValueError(
            f"k must be below {states}, the states of a batch, got {k}: a larger batch_size has room for it"
        )
