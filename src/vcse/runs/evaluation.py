"""What episodes of a policy gave."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from vcse.envs.interface import Environments


class Evaluation(NamedTuple):
    """What one learner reached, episode by episode."""

    returns: list[float]
    lengths: list[int]
    successes: list[bool] | None = None  # where the task says so itself
    by_return: bool = True  # else a return above 0 is one

    @property
    def return_mean(self) -> float:
        """Mean return; NaN where there were no episodes."""
        return float(np.mean(self.returns)) if self.returns else float("nan")

    @property
    def success_rate(self) -> float:
        """Share of episodes that reached the goal; NaN where the task does not report it."""
        if self.successes is None and not self.by_return:
            return float("nan")
        reached = [each > 0 for each in self.returns] if self.successes is None else self.successes
        return float(np.mean(reached)) if reached else float("nan")

    def part(self, episodes: slice) -> "Evaluation":
        """Return some of the episodes."""
        successes = None if self.successes is None else self.successes[episodes]
        return Evaluation(self.returns[episodes], self.lengths[episodes], successes, self.by_return)


class TwoEvaluations(NamedTuple):
    """What one run reached with each of the two ways to act."""

    sampled: Evaluation
    greedy: Evaluation  # where actions are continuous, the mean


def play_episodes(
    environments: Environments, act: Callable[[np.ndarray], np.ndarray], seeds: Sequence[int]
) -> Evaluation:
    """Play an episode in each environment, side by side, and return what came of them.

    Args:
        environments: That begin no episodes by themselves.
        act: From what all of them show to an action for each.
        seeds: Of the episodes, one for each environment.
    """
    observations = environments.reset(seeds)
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), dtype=np.int64)
    running, succeeded = np.ones(len(seeds), dtype=np.bool_), np.zeros(len(seeds), dtype=np.bool_)
    says_success, by_return = False, True
    while running.any():
        environments.send(act(observations))
        step = environments.receive()
        returns += step.rewards * running
        lengths += running
        if step.success is not None:
            says_success |= step.success_reported is None or bool(step.success_reported.any())
            by_return, succeeded = step.success_reported is None, succeeded | (step.success & running)
        running &= ~step.ended
        # Where an episode is over before the others, another is played that does not count.
        again = [seed if over and running.any() else None for seed, over in zip(seeds, step.ended, strict=True)]
        observations = environments.reset(again) if any(each is not None for each in again) else step.next_observations
    successes = succeeded.tolist() if says_success else None
    return Evaluation(returns.tolist(), lengths.tolist(), successes, by_return)
