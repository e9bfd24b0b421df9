"""How many seeds a comparison needs, from the spread of runs at hand, by the normal approximation.

With σ the standard deviation of what one seed adds to the mean difference of two methods, δ the true difference, m the
margin, α = 0.05 the level, 1 - β the power and z_p the p-quantile of the normal distribution:

- a difference is found, two-sided, with n = ((z_{1-α/2} + z_{1-β}) σ / δ)² seeds of each method;
- that two methods without a difference are alike within m is shown, by two one-sided tests, with
  n = ((z_{1-α} + z_{1-β/2}) σ / m)² seeds of each.

This plans for means. A verdict compares interquartile means, whose spread is larger where runs are normal (by a fifth
in seeds) and smaller where a few of them fail.
"""

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float

from vcse.reports.comparisons import LEVEL, Pair, shared_scores
from vcse.reports.statistics import FEWEST_RUNS

Question = Literal["difference", "equivalence"]
POWER = 0.8
_NORMAL = NormalDist()


class Spread(NamedTuple):
    """The standard deviations of what one seed adds to the mean difference of two methods, which is over tasks."""

    paired: float  # of the seed's two runs on each task; NaN where methods share too few seeds
    unpaired: float  # of runs that have nothing to do with each other
    shared_seeds: int  # on the task where the two methods share the fewest


def spread_of(pairs: Sequence[Pair]) -> Spread:
    """Return how far the runs of two methods lie apart, from a number of each run on each task.

    σ² = Σ_t σ_t² / T² over T tasks, which have nothing in common but the seed's number, as the bootstrap of a verdict
    draws runs within tasks. Paired, σ_t² is the variance over seeds of what the two runs of a seed differ by; unpaired,
    the sum of both methods' variances over runs.
    """
    if not pairs or any(len(side) < 2 for pair in pairs for side in pair):
        raise ValueError("the spread of runs needs at least two runs of each method on each task")
    differences = [mine - theirs for mine, theirs in (shared_scores(pair).T for pair in pairs)]
    alone = [np.array(list(side.values())) for pair in pairs for side in pair]
    shared = min(map(len, differences))
    paired = _combined(differences, len(pairs)) if shared > 1 else math.nan
    return Spread(paired, _combined(alone, len(pairs)), shared)


def seeds_needed(question: Question, spread: float, size: float, *, power: float = POWER) -> int | None:
    """Return how many seeds of each method it takes; never fewer than decide anything, and none where it is not known.

    Args:
        question: Whether a difference is to be found, or two methods that do not differ are to be shown to be alike.
        spread: Standard deviation of what one seed adds to the difference.
        size: The difference, or the margin within which the methods are to be alike.
        power: How likely it is to succeed.
    """
    _check(size)
    if math.isnan(spread):
        return None
    quantiles = {
        "difference": (1 - LEVEL / 2, power),
        "equivalence": (1 - LEVEL, (1 + power) / 2),
    }[question]
    deviations = sum(map(_NORMAL.inv_cdf, quantiles))
    return max(math.ceil((deviations * spread / size) ** 2), FEWEST_RUNS)


def power_of(question: Question, spread: float, size: float, seeds: int) -> float:
    """Return how likely so many seeds of each method are to find a difference, or to show that there is none.

    Args:
        question: Which of the two.
        spread: Standard deviation of what one seed adds to the difference.
        size: The true difference, or the margin where there is none.
        seeds: Of each method.
    """
    _check(size)
    distance = size * math.sqrt(seeds) / spread if spread else math.inf
    if question == "equivalence":
        return max(0.0, 2 * _NORMAL.cdf(distance - _NORMAL.inv_cdf(1 - LEVEL)) - 1)
    critical = _NORMAL.inv_cdf(1 - LEVEL / 2)
    return _NORMAL.cdf(distance - critical) + _NORMAL.cdf(-distance - critical)


def _combined(groups: Sequence[Float[np.ndarray, " _"]], tasks: int) -> float:
    """Return the standard deviation of a mean over tasks."""
    return math.sqrt(sum(float(group.var(ddof=1)) for group in groups)) / tasks


def _check(size: float) -> None:
    if not 0 < size < math.inf:
        raise ValueError(f"a difference or margin must be a number above 0, got {size}")
