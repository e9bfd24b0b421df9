"""Bonuses by name: what a command line or a run's configuration says, made into a bonus."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Literal

from vcse.bonuses.base import Bonus, needed_by
from vcse.bonuses.counts import EpisodicCounts
from vcse.bonuses.icm import IntrinsicCuriosity
from vcse.bonuses.memory import FeatureMemory
from vcse.bonuses.none import NoBonus
from vcse.bonuses.normalizers import RunningStandardized
from vcse.bonuses.readings import STATE_ENTROPY_USES, NormalizerName, make_normalizer
from vcse.bonuses.rnd import RandomNetworkDistillation
from vcse.bonuses.scaling import ScalingName
from vcse.bonuses.state_entropy import MatchedStateEntropy, StateEntropy
from vcse.bonuses.value_conditional import RewardConditionalStateEntropy, ValueConditionalStateEntropy
from vcse.estimators.checks import whole_number
from vcse.nearest import did_you_mean
from vcse.plugins import OF_YOUR_OWN, UnknownNameError, load_plugins

ValueNormalization = Literal["batch", "running"]


@dataclass(frozen=True)
class BonusChoice:
    """Which bonus, and how it is computed: what a run's configuration says of it.

    Example:
        >>> from vcse.bonuses import BonusChoice
        >>> choice = BonusChoice("vcse", reading="paper", k=5)
        >>> (choice.pays, choice.needs_values, choice.memory_capacity)
        (True, True, None)
    """

    name: str  # one of bonus_names()
    reading: str  # of the bare functions: paper, clean, release-a2c, ...
    k: int
    log_offset: float | None = None  # None: the reading's
    value_normalization: ValueNormalization = "batch"  # of what VCSE and RCSE condition on
    normalizer: NormalizerName | None = None  # what the reward of SE is divided by; None: as the reading says
    scaling: ScalingName = "raw"  # mean and scale of the rewards

    def __post_init__(self) -> None:
        bonus_entry(self.name)
        whole_number("k", self.k, least=1)

    @property
    def pays(self) -> bool:
        """Whether it is a bonus at all."""
        return bonus_entry(self.name).pays

    @property
    def needs_values(self) -> bool:
        """Whether the bonus needs the extrinsic value of each state."""
        return "values" in bonus_entry(self.name).needs

    @property
    def needs_rewards(self) -> bool:
        """Whether the bonus needs the extrinsic reward of each transition."""
        return "rewards" in bonus_entry(self.name).needs

    @property
    def learns(self) -> bool:
        """Whether the bonus has networks of its own to train."""
        return bonus_entry(self.name).learns

    @property
    def memory_capacity(self) -> int | None:
        """How many features the bonus remembers, those of a batch among them; None where it has no memory."""
        return bonus_entry(self.name).memory_capacity(self)


@dataclass(frozen=True)
class BonusContext:
    """What bonuses may have to know of an agent before they are made.

    Example:
        >>> from vcse.bonuses import BonusChoice, BonusContext, make_bonus
        >>> context = BonusContext(seeds=(3,), actions=7, gives=frozenset(("actions", "next_features")))
        >>> make_bonus(BonusChoice("icm", "paper", 1), learners=1, dimensions=64, context=context).action_size
        7
    """

    seeds: tuple[int, ...] = ()  # of the networks of each learner; where there are none, all have the same
    environments: int | None = None  # of whose rollouts a batch consists, one after the other; None: rows have no order
    actions: int | None = None  # how many there are, where they are discrete
    action_size: int | None = None  # numbers of an action, where they are continuous
    gives: frozenset[str] = frozenset()  # values, rewards, actions, next_features, episode_starts

    @property
    def seed(self) -> int | tuple[int, ...]:
        """The seed argument of bonuses, one for all learners or one for each."""
        return self.seeds or 0

    def of(self, learners: Sequence[int]) -> "BonusContext":
        """Return the context of some of the learners."""
        return replace(self, seeds=tuple(self.seeds[learner] for learner in learners)) if self.seeds else self


@dataclass(frozen=True)
class BonusEntry:
    """What is known of a registered bonus before it is made. See `register_bonus`."""

    name: str
    make: Callable[..., Bonus]
    needs: frozenset[str]
    uses: frozenset[str]
    memory_capacity: Callable[[BonusChoice], int | None]
    pays: bool
    help: str
    has_neighbors: bool = True
    takes_context: bool = False
    learns: bool = False


_ENTRIES: dict[str, BonusEntry] = {}


def register_bonus(
    name: str,
    make: Callable[..., Bonus],
    *,
    kind: type[Bonus] | None = None,
    uses: Iterable[str] = (),
    memory_capacity: Callable[[BonusChoice], int | None] = lambda choice: None,
    pays: bool = True,
    help: str = "",
    has_neighbors: bool = True,
    takes_context: bool = False,
) -> BonusEntry:
    """Register a bonus under a name, by which runs and agents choose it.

    Args:
        name: The name; registering another bonus under it is an error.
        make: Called as `make(choice, learners=..., dimensions=..., check_finite=...)` with a `BonusChoice` to build the
            bonus: a function, or a class of bonuses whose constructor takes these arguments.
        kind: The class of the bonuses that `make` builds, which says what they need. May be left out where `make` is
            that class.
        uses: The fields of a `BonusChoice` besides name, reading and k that change the bonus: log_offset, ...
        memory_capacity: Returns how many features the bonus of a `BonusChoice` keeps; None where it has no memory.
        pays: Whether its rewards can differ from 0; only those of the baseline cannot.
        help: What it is, in one line.
        has_neighbors: Whether the k of a `BonusChoice` changes the bonus.
        takes_context: Whether `make` takes a keyword more: context, a `BonusContext`.

    Example:
        >>> from vcse.bonuses import BonusChoice, StateEntropy, make_bonus, register_bonus
        >>> def make(choice, *, learners, dimensions, check_finite):
        ...     formula = {"k": 2 * choice.k, "reading": choice.reading, "scaling": choice.scaling}
        ...     return StateEntropy(**formula, learners=learners, check_finite=check_finite)
        >>> entry = register_bonus("wider", make, kind=StateEntropy, help="state entropy of twice as many neighbours")
        >>> make_bonus(BonusChoice("wider", "paper", 3), learners=1, dimensions=2).k
        6
    """
    kind = make if kind is None and isinstance(make, type) else kind
    if kind is None:
        raise ValueError(f"bonus {name!r} is made by a function: pass kind, the class of the bonus that it makes")
    used = frozenset(uses)
    unknown = used - {field.name for field in fields(BonusChoice)}
    if unknown:
        raise ValueError(f"uses must name fields of a BonusChoice, got {', '.join(sorted(unknown))}")
    entry = BonusEntry(
        name,
        make,
        needs=frozenset(needed_by(kind)),
        uses=used,
        memory_capacity=memory_capacity,
        pays=pays,
        help=help,
        has_neighbors=has_neighbors,
        takes_context=takes_context,
        learns=kind.learns,
    )
    if _ENTRIES.setdefault(name, entry) != entry:
        raise ValueError(f"bonus {name!r} is registered already")
    return entry


def bonus_names() -> tuple[str, ...]:
    """Return the names of all registered bonuses, in the order of their registration."""
    load_plugins()
    return tuple(_ENTRIES)


def bonus_entry(name: str) -> BonusEntry:
    """Return a registered bonus by its name; plug-ins are loaded for one that is not known yet."""
    if name not in _ENTRIES and name not in bonus_names():
        names = bonus_names()
        hint = did_you_mean(name, names) or OF_YOUR_OWN
        message = f"bonus must be one of {', '.join(names)}, got {name!r}{hint}"
        raise UnknownNameError(message, kind="bonus", name=name)
    return _ENTRIES[name]


def make_bonus(
    choice: BonusChoice,
    *,
    learners: int,
    dimensions: int,
    check_finite: bool = True,
    context: BonusContext | None = None,
) -> Bonus:
    """Build the bonus of a choice for a number of learners and features of a number of dimensions.

    Args:
        choice: Which bonus.
        learners: How many it serves.
        dimensions: Of the features.
        check_finite: Refuse NaN and infinity; on CUDA this waits for the device.
        context: What else is known of the agent.

    Example:
        >>> from vcse.bonuses import BonusChoice, make_bonus
        >>> type(make_bonus(BonusChoice("vcse", "paper", 5), learners=1, dimensions=64)).__name__
        'ValueConditionalStateEntropy'
    """
    entry = bonus_entry(choice.name)
    options = {"context": context or BonusContext()} if entry.takes_context else {}
    return entry.make(choice, learners=learners, dimensions=dimensions, check_finite=check_finite, **options)


def _none(choice: BonusChoice, *, learners: int, **unused: Any) -> NoBonus:
    return NoBonus(learners=learners)


def _se_memory(choice: BonusChoice) -> int | None:
    use = STATE_ENTROPY_USES.get(choice.reading)
    return None if use is None else use.memory_capacity


def _se(choice: BonusChoice, *, learners: int, dimensions: int, check_finite: bool) -> StateEntropy:
    capacity = choice.memory_capacity
    return StateEntropy(
        k=choice.k,
        reading=choice.reading,
        memory=None if capacity is None else FeatureMemory(capacity, dimensions, learners=learners),
        normalizer=None if choice.normalizer is None else make_normalizer(choice.normalizer, learners=learners),
        learners=learners,
        scaling=choice.scaling,
        check_finite=check_finite,
    )


def _like_vcse(choice: BonusChoice, learners: int, check_finite: bool) -> dict[str, Any]:
    """Return the arguments of VCSE and of the bonuses that are made like it."""
    formula = {"k": choice.k, "reading": choice.reading, "log_offset": choice.log_offset}
    return {**formula, "learners": learners, "scaling": choice.scaling, "check_finite": check_finite}


def _condition(choice: BonusChoice, learners: int) -> RunningStandardized | None:
    return RunningStandardized(learners=learners) if choice.value_normalization == "running" else None


def _vcse(choice: BonusChoice, *, learners: int, dimensions: int, check_finite: bool) -> ValueConditionalStateEntropy:
    options = _like_vcse(choice, learners, check_finite)
    return ValueConditionalStateEntropy(value_normalizer=_condition(choice, learners), **options)


def _rcse(choice: BonusChoice, *, learners: int, dimensions: int, check_finite: bool) -> RewardConditionalStateEntropy:
    options = _like_vcse(choice, learners, check_finite)
    return RewardConditionalStateEntropy(reward_normalizer=_condition(choice, learners), **options)


def _se_matched(choice: BonusChoice, *, learners: int, dimensions: int, check_finite: bool) -> MatchedStateEntropy:
    return MatchedStateEntropy(**_like_vcse(choice, learners, check_finite))


def _rnd(
    choice: BonusChoice, *, learners: int, dimensions: int, check_finite: bool, context: BonusContext
) -> RandomNetworkDistillation:
    return RandomNetworkDistillation(
        dimensions,
        environments=context.environments,
        state="next" if "next_features" in context.gives else "present",
        epochs=1,  # as often as the agent itself sees a batch
        minibatches=1,
        seed=context.seed,
        learners=learners,
        scaling=choice.scaling,
        check_finite=check_finite,
    )


def _icm(
    choice: BonusChoice, *, learners: int, dimensions: int, check_finite: bool, context: BonusContext
) -> IntrinsicCuriosity:
    if context.actions is None and context.action_size is None:
        raise ValueError("the bonus icm must know the agent's actions: say actions or action_size of a BonusContext")
    return IntrinsicCuriosity(
        dimensions,
        actions=context.actions,
        action_size=context.action_size,
        seed=context.seed,
        learners=learners,
        scaling=choice.scaling,
        check_finite=check_finite,
    )


def _counts(
    choice: BonusChoice, *, learners: int, dimensions: int, check_finite: bool, context: BonusContext
) -> EpisodicCounts:
    if context.environments is None:
        raise ValueError("the bonus counts must know of whose rollouts batches are: say environments of a BonusContext")
    return EpisodicCounts(
        environments=context.environments, learners=learners, scaling=choice.scaling, check_finite=check_finite
    )


_CONDITIONAL = ("log_offset", "value_normalization")
register_bonus("none", _none, kind=NoBonus, pays=False, help="no bonus")
register_bonus("se", _se, kind=StateEntropy, uses=["normalizer"], memory_capacity=_se_memory, help="state entropy")
register_bonus(
    "vcse", _vcse, kind=ValueConditionalStateEntropy, uses=_CONDITIONAL, help="value-conditional state entropy"
)
register_bonus(
    "rcse", _rcse, kind=RewardConditionalStateEntropy, uses=_CONDITIONAL, help="reward-conditional state entropy"
)
register_bonus("se-matched", _se_matched, kind=MatchedStateEntropy, uses=["log_offset"], help="VCSE without the value")
_BASELINE: dict[str, Any] = {"has_neighbors": False, "takes_context": True}
register_bonus("rnd", _rnd, kind=RandomNetworkDistillation, help="random network distillation", **_BASELINE)
register_bonus("icm", _icm, kind=IntrinsicCuriosity, help="intrinsic curiosity module", **_BASELINE)
register_bonus("counts", _counts, kind=EpisodicCounts, help="episodic counts of equal states", **_BASELINE)

NO_BONUS = BonusChoice(name="none", reading="paper", k=1)
