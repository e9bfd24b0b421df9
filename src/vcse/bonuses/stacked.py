"""The bonuses of a cohort: learners with the same choice share one bonus, each learner keeps its own state."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vcse.bonuses.base import Bonus, BonusOutput
from vcse.bonuses.registry import BonusChoice, make_bonus

LearnerState = dict[str, Any]  # tensors and numbers of one learner


class CohortOutput:
    """The rewards of all learners, and the diagnostics of each."""

    def __init__(self, reward: Float[Tensor, "l n"], parts: Sequence[tuple[Int[Tensor, " _"], BonusOutput]]) -> None:
        self.reward = reward
        self.parts = parts

    def diagnostics(self) -> dict[str, Float[Tensor, " l"]]:
        """Give the numbers to log, one per learner; NaN where a learner's bonus has no such number."""
        shown: dict[str, Tensor] = {}
        for members, output in self.parts:
            for name, numbers in output.diagnostics().items():
                whole = shown.setdefault(name, self.reward.new_full((len(self.reward),), torch.nan))
                whole[members] = numbers
        return shown


class CohortBonus(nn.Module):
    """One bonus per learner, computed together where the choices agree.

    Args:
        choices: The bonus of each learner.
        dimensions: Of the features.
        check_finite: Refuse NaN and infinity; on CUDA this waits for the device.
    """

    def __init__(self, choices: Sequence[BonusChoice], *, dimensions: int, check_finite: bool = True) -> None:
        super().__init__()
        groups: dict[BonusChoice, list[int]] = {}
        for learner, choice in enumerate(choices):
            groups.setdefault(choice, []).append(learner)
        self.learners = len(choices)
        self.members = list(groups.values())
        self.parts = nn.ModuleList(
            make_bonus(choice, learners=len(members), dimensions=dimensions, check_finite=check_finite)
            for choice, members in groups.items()
        )
        for number, members in enumerate(self.members):
            self.register_buffer(f"members{number}", torch.tensor(members), persistent=False)

    @property
    def is_capturable(self) -> bool:
        """Whether shapes no longer change, so that a call can be captured in a CUDA graph."""
        memories = (getattr(part, "memory", None) for part in self.parts)
        return all(memory is None or memory.filled == memory.capacity for memory in memories)

    def forward(
        self,
        features: Float[Tensor, "l n d"],
        *,
        values: Float[Tensor, "l n"],
        rewards: Float[Tensor, "l n"],
    ) -> CohortOutput:
        """Give each learner the reward of its own bonus."""
        outputs = []
        for number, part in enumerate(self.parts):
            members = self.get_buffer(f"members{number}")
            everyone = len(members) == self.learners
            mine = [tensor if everyone else tensor[members] for tensor in (features, values, rewards)]
            assert isinstance(part, Bonus)
            output = part(
                mine[0],
                values=mine[1] if part.needs_values else None,
                rewards=mine[2] if part.needs_rewards else None,
            )
            outputs.append((members, output))
        return CohortOutput(self._rewards(outputs, values), outputs)

    def _rewards(
        self, outputs: Sequence[tuple[Int[Tensor, " _"], BonusOutput]], like: Float[Tensor, "l n"]
    ) -> Float[Tensor, "l n"]:
        """Put the rewards of all learners into their order, without a copy where one bonus serves all."""
        if len(outputs) == 1:
            return outputs[0][1].reward
        reward = torch.empty_like(like)
        for members, output in outputs:
            reward[members] = output.reward
        return reward

    def learner_state(self, learner: int) -> LearnerState:
        """Give all that one learner's bonus remembers."""
        part, row = self._place(learner)
        return {name: _row(entry, row) for name, entry in part.state_dict().items()}

    def load_learner_state(self, learner: int, state: Mapping[str, Any]) -> None:
        """Take it back."""
        part, row = self._place(learner)
        entries = dict(part.state_dict())
        if entries.keys() != state.keys():
            raise ValueError(f"the bonus holds {sorted(entries)}, but the checkpoint has {sorted(state)}")
        for name, entry in entries.items():
            if isinstance(entry, Tensor) and entry.ndim > 0:
                entry[row].copy_(state[name])
            elif isinstance(entry, Tensor):
                entry.copy_(state[name])
            else:
                entries[name] = state[name]
        part.load_state_dict(entries)

    def _place(self, learner: int) -> tuple[nn.Module, int]:
        for members, part in zip(self.members, self.parts, strict=True):
            if learner in members:
                return part, members.index(learner)
        raise IndexError(f"learner {learner} of {self.learners}")


def _row(entry: Any, row: int) -> Any:
    """Give one learner's part of a state: what has no learner axis is the same for all, as they go in lockstep."""
    if isinstance(entry, Tensor):
        return (entry[row] if entry.ndim > 0 else entry).detach().cpu().clone()
    return entry
