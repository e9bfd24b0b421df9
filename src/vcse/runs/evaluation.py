"""What episodes of a policy gave."""

from typing import NamedTuple

import numpy as np


class Evaluation(NamedTuple):
    """What one learner reached, episode by episode."""

    returns: list[float]
    lengths: list[int]
    successes: list[bool] | None = None  # where the task says so itself; else a return above 0 is one

    @property
    def return_mean(self) -> float:
        """Mean return; NaN where there were no episodes."""
        return float(np.mean(self.returns)) if self.returns else float("nan")

    @property
    def success_rate(self) -> float:
        """Share of episodes that reached the goal."""
        reached = [each > 0 for each in self.returns] if self.successes is None else self.successes
        return float(np.mean(reached)) if reached else float("nan")


class TwoEvaluations(NamedTuple):
    """What one run reached with each of the two ways to act."""

    sampled: Evaluation
    likeliest: Evaluation  # where actions are continuous, the mean
