"""Metrics of a row: the number of episodes, the mean of the last hundred or so, and the mean bonus."""

import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vcse.bonuses.stacked import StackedOutput

# What train.csv shows of the bonus in the last batch.
BONUS_COLUMNS = (
    "bonus_std",
    "bonus_min",
    "bonus_max",
    "radius_mean",
    "zero_radius_share",
    "decided_by_value_share",
    "value_count_mean",
    "value_mean",
    "value_std",
)
# RCSE has the reward where VCSE has the value.
REWARD_COLUMNS = ("decided_by_reward_share", "reward_count_mean", "reward_mean", "reward_std")
SHOWN_OF_BONUS = (*BONUS_COLUMNS, *REWARD_COLUMNS)


class Episodes:
    """Training episodes of every learner: how many, and returns and success of the last hundred or so.

    Args:
        learners: How many there are.
        environments: Of each learner.
        recent: Episodes of which means are shown.
        by_return: A return above 0 is success where tasks do not report whether the goal was reached.
    """

    def __init__(self, learners: int, environments: int, *, recent: int, by_return: bool = True) -> None:
        self.finished = [0] * learners
        self.recent: list[deque[float]] = [deque(maxlen=recent) for _ in range(learners)]
        self.running = np.zeros((learners, environments))
        self.by_return = by_return
        # Where tasks report whether the goal was reached.
        self.successes: list[deque[bool]] = [deque(maxlen=recent) for _ in range(learners)]
        self.succeeded = np.zeros((learners, environments), dtype=np.bool_)  # the running ones
        self.reports_success = [False] * learners  # where that is not known before: one of them has

    def add(
        self,
        learners: slice,
        rewards: Float[np.ndarray, " n"],
        ended: Bool[np.ndarray, " n"],
        success: Bool[np.ndarray, " n"] | None = None,
        success_reported: Bool[np.ndarray, " n"] | None = None,
    ) -> None:
        """Add a step of some learners, whose environments are in one order with them.

        Args:
            learners: Which.
            rewards: Of the step.
            ended: Whether it was the last of its episode.
            success: Whether it reached the goal, at which an episode need not end; None where tasks do not report it.
            success_reported: Whether the task reported it; None where all tasks do.
        """
        start, _, _ = learners.indices(len(self.finished))
        running, succeeded = self.running[learners], self.succeeded[learners]
        running += rewards.reshape(running.shape)
        if success is not None:
            succeeded |= success.reshape(succeeded.shape)
        if success_reported is not None and success_reported.any():
            for learner in np.flatnonzero(success_reported.reshape(running.shape).any(1)):
                self.reports_success[start + int(learner)] = True
        for place in np.flatnonzero(ended):
            learner, environment = divmod(int(place), running.shape[1])
            self.finished[start + learner] += 1
            self.recent[start + learner].append(float(running[learner, environment]))
            running[learner, environment] = 0
            if success is not None:
                self.successes[start + learner].append(bool(succeeded[learner, environment]))
                succeeded[learner, environment] = False

    def return_mean(self, learner: int) -> float:
        """Mean return of the last episodes."""
        recent = self.recent[learner]
        return math.fsum(recent) / len(recent) if recent else math.nan

    def success_rate(self, learner: int) -> float:
        """Share of the last episodes that reached the goal; NaN where the task does not report it."""
        if not self.by_return and not self.reports_success[learner]:
            return math.nan
        reached: Sequence[bool] = self.successes[learner]
        if self.by_return and not reached:
            reached = [each > 0 for each in self.recent[learner]]
        return sum(reached) / len(reached) if reached else math.nan

    def row(self, frame: int, learner: int, bonus_mean: float, *, knows_success: bool = True) -> dict[str, Any]:
        """Return the columns with which every row of train.csv begins."""
        return {
            "frame": frame,
            "episodes": self.finished[learner],
            "return_mean": self.return_mean(learner),
            "success_rate": self.success_rate(learner) if knows_success else math.nan,
            "bonus_mean": bonus_mean,
        }

    def learner_state(self, learner: int) -> dict[str, Any]:
        """Return one learner's part."""
        running = torch.from_numpy(self.running[learner].copy())
        return {"finished": self.finished[learner], "recent": list(self.recent[learner]), "running": running}

    def load_learner_state(self, learner: int, state: dict[str, Any]) -> None:
        """Load one learner's part."""
        self.finished[learner] = state["finished"]
        self.recent[learner] = deque(state["recent"], maxlen=self.recent[learner].maxlen)
        self.running[learner] = state["running"].numpy()

    def success_state(self, learner: int) -> dict[str, Any]:
        """Return what tasks reported of success to one learner: in its running episodes, or one, and in the last."""
        succeeded = self.succeeded[learner].tolist()
        return {
            "has_succeeded": succeeded[0] if len(succeeded) == 1 else succeeded,
            "successes": list(self.successes[learner]),
            **({} if self.by_return else {"says_success": self.reports_success[learner]}),
        }

    def load_success_state(self, learner: int, state: dict[str, Any]) -> None:
        """Load what `success_state` returned."""
        self.succeeded[learner] = state["has_succeeded"]
        self.reports_success[learner] = state.get("says_success", False)
        self.successes[learner] = deque(state["successes"], maxlen=self.successes[learner].maxlen)


class LatestMetrics:
    """What the last update of every learner showed, which may have been before a restart.

    Args:
        learners: How many.
        with_bonus: The learners that have a bonus.
    """

    def __init__(self, learners: int, with_bonus: Int[Tensor, " p"]) -> None:
        self.with_bonus = with_bonus
        self.loaded: list[dict[str, float]] = [{} for _ in range(learners)]

    def of(self, metrics: Mapping[str, Tensor], bonus: StackedOutput | None) -> list[dict[str, float]]:
        """Return the numbers of each learner, and of its bonus those that are columns of train.csv."""
        if not metrics:
            return self.loaded
        latest: list[dict[str, float]] = [{} for _ in self.loaded]
        for name, shown in metrics.items():
            for learner, number in enumerate(shown.reshape(-1).tolist()):
                latest[learner][name] = number
        for name, shown in ({} if bonus is None else bonus.diagnostics()).items():
            for learner, number in zip(self.with_bonus.tolist(), shown.tolist(), strict=True):
                if name in SHOWN_OF_BONUS and not math.isnan(number):
                    latest[learner][name] = number
        return latest


class BonusMean:
    """The mean bonus of every learner over the updates since the last row.

    Args:
        learners: How many.
        with_bonus: The learners that have a bonus; the mean of the others is 0.
    """

    def __init__(self, learners: int, with_bonus: Int[Tensor, " p"]) -> None:
        self.with_bonus = with_bonus
        self.sum = torch.zeros(learners, device=with_bonus.device)
        self.updates = 0
        self.of_last_row = [math.nan] * learners

    def add(self, bonus: StackedOutput | None) -> None:
        """Add an update: the bonus of the learners that have one; None if there is none."""
        if bonus is not None:
            self.sum.index_add_(0, self.with_bonus, bonus.reward.mean(-1))
        self.updates += 1

    def of_row(self) -> list[float]:
        """Return the mean of each learner for a row, and begin anew; NaN where there was no update."""
        self.of_last_row = (self.sum / self.updates if self.updates else self.sum + math.nan).tolist()
        self.sum.zero_()
        self.updates = 0
        return self.of_last_row

    def learner_state(self, learner: int) -> dict[str, Any]:
        """Return one learner's part."""
        return {"bonus_sum": float(self.sum[learner]), "bonus_updates": self.updates}

    def load_learner_state(self, learner: int, state: dict[str, Any]) -> None:
        """Load one learner's part; all had as many updates."""
        self.sum[learner] = state["bonus_sum"]
        self.updates = state["bonus_updates"]
