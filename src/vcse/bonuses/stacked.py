"""The bonuses of several learners, each with its own: those with the same choice share one, with a state for each."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vcse.bonuses.base import Bonus, BonusBatch, BonusOutput, check_order, check_served, needed_by
from vcse.bonuses.registry import BonusChoice, BonusContext, make_bonus

LearnerState = dict[str, Any]  # tensors and numbers of one learner
Members = Int[Tensor, " _"]  # which learners a bonus serves


@dataclass(frozen=True)
class StackedOutput:
    """The rewards of all learners, and the diagnostics of each."""

    reward: Float[Tensor, "l n"]
    parts: Sequence[tuple[Members, BonusOutput]]

    def diagnostics(self) -> dict[str, Float[Tensor, " l"]]:
        """Return the numbers to log, one per learner; NaN where a learner's bonus has no such number."""
        return _of_all(((members, output.diagnostics()) for members, output in self.parts), self.reward)


class StackedBonus(nn.Module):
    """One bonus per learner, computed together where the choices agree.

    Args:
        choices: The bonus of each learner.
        dimensions: Of the features.
        check_finite: Refuse NaN and infinity; on CUDA this waits for the device.
        context: What else is known of the agent and of each learner.

    Example:
        >>> import torch
        >>> from vcse.bonuses import BonusChoice, StackedBonus
        >>> bonus = StackedBonus([BonusChoice("se", "paper", 3), BonusChoice("vcse", "paper", 3)], dimensions=2)
        >>> bonus(torch.rand(2, 8, 2), values=torch.rand(2, 8)).reward.shape
        torch.Size([2, 8])
    """

    __call__: Callable[..., StackedOutput]  # nn.Module says Any
    places: Members  # of the learners, in the concatenation of all parts

    def __init__(
        self,
        choices: Sequence[BonusChoice],
        *,
        dimensions: int,
        check_finite: bool = True,
        context: BonusContext | None = None,
    ) -> None:
        super().__init__()
        context = context or BonusContext()
        groups: dict[BonusChoice, list[int]] = {}
        for learner, choice in enumerate(choices):
            groups.setdefault(choice, []).append(learner)
        make = partial(make_bonus, dimensions=dimensions, check_finite=check_finite)
        parts = [(make(choice, learners=len(mine), context=context.of(mine)), mine) for choice, mine in groups.items()]
        self._stack(parts)

    @classmethod
    def of(cls, parts: Sequence[tuple[Bonus, Sequence[int]]]) -> "StackedBonus":
        """Stack bonuses that are made already, each with the numbers of the learners that it serves.

        A bonus made with learners=n serves n learners; every learner from 0 on has one.

        Example:
            >>> import torch
            >>> from vcse.bonuses import NoBonus, StackedBonus, StateEntropy
            >>> bonus = StackedBonus.of([(StateEntropy(k=1, learners=2), [0, 2]), (NoBonus(learners=1), [1])])
            >>> bonus(torch.rand(3, 8, 2)).reward.shape
            torch.Size([3, 8])
        """
        stacked = cls([], dimensions=1)
        stacked._stack(parts)
        return stacked

    @classmethod
    def for_agent(
        cls,
        bonus: Bonus | None,
        choices: Sequence[BonusChoice],
        context: BonusContext,
        *,
        agent: str,
        dimensions: int,
    ) -> "StackedBonus":
        """Stack a ready-made bonus for all learners, or else those that they choose, if an agent has their inputs.

        These do not look for NaN and infinity, which would wait for a GPU: losses show them too.

        Args:
            bonus: Made with as many learners as there are; None: the choices are.
            choices: The bonus of each learner.
            context: What the agent gives a bonus, and what else is known of it.
            agent: Its name.
            dimensions: Of the features.
        """
        if bonus is None:
            stacked = cls(choices, dimensions=dimensions, check_finite=False, context=context)
        else:
            stacked = cls.of([(bonus, range(len(choices)))])
        for part in stacked.parts:
            check_served(type(part).__name__, needed_by(part), agent, context.gives)
            check_order(part, context.environments)
        return stacked

    def _stack(self, parts: Sequence[tuple[Bonus, Sequence[int]]]) -> None:
        for bonus, mine in parts:
            if bonus.learner_shape != (len(mine),):
                name = type(bonus).__name__
                raise ValueError(f"{name} for learners {[*mine]} must be made with learners={len(mine)}")
        self.parts = cast(Sequence[Bonus], nn.ModuleList(bonus for bonus, _ in parts))
        self.members = [list(mine) for _, mine in parts]
        served = [learner for mine in self.members for learner in mine]
        self.learners = len(served)
        if sorted(served) != list(range(self.learners)):
            raise ValueError(f"each learner from 0 on must have one bonus, got bonuses for learners {served}")
        self.is_one = self.members == [list(range(self.learners))]  # one bonus serves all, in their order
        for number, mine in enumerate(self.members):
            self.register_buffer(f"members{number}", torch.tensor(mine), persistent=False)
        self.register_buffer("places", torch.tensor(served, dtype=torch.int64).argsort(), persistent=False)

    @property
    def needs(self) -> frozenset[str]:
        """The inputs that the bonuses need beside the features, such as "values", "rewards" or "actions"."""
        return frozenset(name for part in self.parts for name in needed_by(part))

    def needs_of(self, learner: int) -> tuple[str, ...]:
        """Return what the bonus of one learner needs besides the features."""
        return needed_by(self._place(learner)[0])

    @property
    def learns(self) -> bool:
        """Whether any of the bonuses has networks of its own to train."""
        return any(part.learns for part in self.parts)

    @property
    def is_capturable(self) -> bool:
        """Whether shapes no longer change, so that a call can be captured in a CUDA graph."""
        return all(part.is_capturable for part in self.parts)

    def forward(self, features: Float[Tensor, "l n d"], **others: Tensor | None) -> StackedOutput:
        """Compute each learner's reward by its own bonus, which gets what it needs of `values`, `rewards`, ..."""
        outputs = [
            (members, part(mine.features, **{name: getattr(mine, name) for name in needed_by(part)}))
            for members, part, mine in self._shares(BonusBatch(features, **others))
        ]
        rewards = [output.reward for _, output in outputs]
        return StackedOutput(rewards[0] if self.is_one else torch.cat(rewards)[self.places], outputs)

    def compute_and_learn(self, features: Float[Tensor, "l n d"], **others: Tensor | None) -> StackedOutput:
        """Compute each learner's reward; then train the bonuses that learn on the same batch."""
        output = self(features, **others)
        if self.learns:
            self.learn(BonusBatch(features, **others))
        return output

    def learn(self, batch: BonusBatch) -> dict[str, Float[Tensor, " l"]]:
        """Train the bonuses that learn, and return the numbers to log; NaN where a learner's has no such number."""
        shares = self._shares(batch, learning=True)
        return _of_all(((members, part.learn(mine)) for members, part, mine in shares), batch.features)

    def _shares(self, batch: BonusBatch, *, learning: bool = False) -> Iterator[tuple[Members, Bonus, BonusBatch]]:
        """Return for each part its learners and what it needs of a batch, without a copy where one serves all."""
        for number, part in enumerate(self.parts):
            if learning and not part.learns:
                continue
            members = self.get_buffer(f"members{number}")
            needed = {name: getattr(batch, name) for name in ("features", *needed_by(part))}
            for name, tensor in needed.items():
                if tensor is None:
                    raise ValueError(f"{name} is needed by {type(part).__name__}")
                needed[name] = tensor if self.is_one else tensor[members]
            yield members, part, BonusBatch(**needed)

    def learner_state(self, learner: int) -> LearnerState:
        """Return all that one learner's bonus remembers."""
        part, row = self._place(learner)
        return {name: _row(entry, row) for name, entry in part.state_dict().items()}

    def load_learner_state(self, learner: int, state: Mapping[str, Any]) -> None:
        """Load what `learner_state` returned into one learner's bonus."""
        part, row = self._place(learner)
        entries = dict(part.state_dict())
        if entries.keys() != state.keys():
            raise ValueError(f"the bonus holds {sorted(entries)}, but the checkpoint has {sorted(state)}")
        for name, entry in entries.items():
            if isinstance(entry, Tensor):
                (entry[row] if entry.ndim > 0 else entry).copy_(state[name])
            else:
                entries[name] = state[name]
        part.load_state_dict(entries)

    def _place(self, learner: int) -> tuple[Bonus, int]:
        for members, part in zip(self.members, self.parts, strict=True):
            if learner in members:
                return part, members.index(learner)
        raise IndexError(f"learner {learner} of {self.learners}")


def _of_all(parts: Iterable[tuple[Members, Mapping[str, Tensor]]], like: Float[Tensor, "l ..."]) -> dict[str, Tensor]:
    """Put numbers of some learners each, by their names, into rows of all learners; NaN where there is none."""
    whole: dict[str, Tensor] = {}
    for members, numbers in parts:
        for name, each in numbers.items():
            whole.setdefault(name, like.new_full((len(like),), torch.nan))[members] = each
    return whole


def _row(entry: Any, row: int) -> Any:
    """Return one learner's part of a state: what has no learner axis is the same for all, as they go in lockstep."""
    if isinstance(entry, Tensor):
        return (entry[row] if entry.ndim > 0 else entry).detach().cpu().clone()
    return entry
