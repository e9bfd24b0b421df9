"""Two methods compared on one task or several: differences with intervals, p-values, and what they decide.

On several tasks, a difference is the mean of the differences on each, and runs are drawn within tasks.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from vcse.reports.statistics import middles, percentile_interval, permutation_p_value, resampled_middles

Verdict = Literal["holds", "contradicted", "undecided", "not run"]
Scored = Mapping[int, float]  # a number of each run, by seed
Pair = tuple[Scored, Scored]  # the runs of two methods on one task

SEED = 0  # of the bootstrap and the permutations: the same runs give the same verdicts
NOISE = 1e-9  # what two ways to add up the same numbers may differ by
LEVEL = 0.05
EQUIVALENCE_CONFIDENCE = 1 - 2 * LEVEL  # of the interval that is as strict as two one-sided tests


class Comparison(NamedTuple):
    """By how much two methods differ."""

    difference: float  # of interquartile means
    drawn: Float[np.ndarray, "resamples 1"]  # the same of runs that were drawn anew
    fewest: int  # runs of a method on a task

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """Return the ends of its interval."""
        return interval_ends(self.drawn, self.fewest, confidence)


def compare_unpaired(pairs: Sequence[Pair]) -> Comparison:
    """Compare two methods whose runs are drawn anew without regard to each other."""
    generator = np.random.default_rng(SEED)
    sides = [[_numbers(scored)[:, None] for scored in side] for side in zip(*pairs, strict=True)]
    difference = float(np.mean([middles([one]) - middles([other]) for one, other in zip(*sides, strict=True)]))
    mine, theirs = (np.mean([resampled_middles([each], generator) for each in side], axis=0) for side in sides)
    return Comparison(difference, mine - theirs, min(len(group) for side in sides for group in side))


def compare_paired(pairs: Sequence[Pair]) -> Comparison:
    """Compare two methods on the seeds that both have, which are drawn anew for both together."""
    generator = np.random.default_rng(SEED)
    groups = [shared_scores(pair) for pair in pairs]
    mine, theirs = np.mean([middles([group]) for group in groups], axis=0)
    drawn = np.mean([resampled_middles([group], generator) for group in groups], axis=0)
    return Comparison(float(mine - theirs), drawn[:, :1] - drawn[:, 1:], min(map(len, groups)))


def shared_scores(pair: Pair) -> Float[np.ndarray, "seeds 2"]:
    """Return the numbers of both methods at the seeds that both have."""
    mine, theirs = pair
    return np.array([(mine[seed], theirs[seed]) for seed in mine if seed in theirs], dtype=float).reshape(-1, 2)


def mean_paired_difference(pairs: Sequence[Pair]) -> float:
    """Return the mean over seeds of what two methods differ by at a seed that both have, as a mean over tasks."""
    return float(np.mean([np.diff(shared_scores(pair)[:, ::-1]).mean() for pair in pairs]))


def decide(comparison: Comparison, within: float | None) -> Verdict:
    """Return whether a difference is above 0, or, where one is said to be within a margin, whether it is.

    That holds where the 90 % interval lies inside the margin, and is contradicted where the 95 % interval lies outside
    of it. A margin of 0 can be contradicted and never holds.
    """
    low, high = comparison.interval()
    if within is None:
        return "holds" if low > NOISE else "contradicted" if high < -NOISE else "undecided"
    if max(map(abs, comparison.interval(EQUIVALENCE_CONFIDENCE))) < within:
        return "holds"
    return "contradicted" if low > within + NOISE or high < -within - NOISE else "undecided"


def p_value_of(comparison: Comparison, pairs: Sequence[Pair], within: float | None, *, by_seed: bool) -> float:
    """Return the p-value that belongs to a verdict.

    Of a difference it is that of means whose runs are exchanged, or whose seeds' differences change their signs: with
    few runs, exchanging those that an interquartile mean leaves out would change nothing. Within a margin it is the
    larger of the two one-sided tails of the bootstrap that reach out of it; where the difference itself lies outside,
    twice the tail that reaches in.
    """
    if not within:
        numbers = [shared_scores(pair).T if by_seed else map(_numbers, pair) for pair in pairs]
        sides = [(mine, theirs) for mine, theirs in numbers]
        return permutation_p_value(sides, np.random.default_rng(SEED), by_seed=by_seed)
    drawn = comparison.drawn if comparison.difference >= 0 else -comparison.drawn
    if abs(comparison.difference) < within:
        return max(_tail(drawn >= within), _tail(drawn <= -within))
    return min(2 * _tail(drawn <= within), 1.0)


def interval_ends(
    drawn: Float[np.ndarray, "resamples 1"], fewest: int, confidence: float = 0.95
) -> tuple[float, float]:
    """Return the ends of an interval; one run drawn again and again is no spread, and has none."""
    if fewest < 2:
        return math.nan, math.nan
    low, high = (float(each[0]) for each in percentile_interval(drawn, confidence))
    return low, high


def _tail(reached: Bool[np.ndarray, "resamples 1"]) -> float:
    return (1 + np.count_nonzero(reached)) / (1 + reached.size)


def _numbers(scored: Scored) -> Float[np.ndarray, " runs"]:
    return np.array(list(scored.values()), dtype=float)
