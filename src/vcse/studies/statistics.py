"""Statistics over runs: arrays `[runs, tasks, evaluations]` and a generator in, numbers with intervals out."""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float

Scores = Float[np.ndarray, "runs tasks evaluations"]
Aggregate = Float[np.ndarray, " evaluations"]


class Interval(NamedTuple):
    """Where an aggregate lies, at each evaluation."""

    low: Aggregate
    high: Aggregate


def interquartile_mean(scores: Scores) -> Aggregate:
    """Give the mean of the middle half of all runs of all tasks; NaN where a run has no score yet."""
    pooled = np.sort(scores.reshape(-1, scores.shape[-1]), axis=0)
    cut = len(pooled) // 4
    middle: Aggregate = pooled[cut : len(pooled) - cut].mean(0)
    return np.where(np.isnan(pooled).any(0), np.nan, middle)


def mean(scores: Scores) -> Aggregate:
    """Give the mean of all runs of all tasks."""
    return np.asarray(scores.mean((0, 1)))


def bootstrap_interval(
    scores: Scores,
    generator: np.random.Generator,
    *,
    statistic: Callable[[Scores], Aggregate] = interquartile_mean,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """Give the interval in which a statistic lies when runs are drawn anew, with replacement.

    Runs are drawn within each task, so that every task keeps its weight, and with all of their evaluations, so
    that a run's good luck lasts as long as it did. The interval is that of percentiles.

    Args:
        scores: Runs, tasks, evaluations.
        generator: Draws the runs.
        statistic: What is aggregated how.
        confidence: Share of the resamples that lie inside.
        resamples: How many are drawn.
    """
    drawn = _resampled(scores, generator, statistic, confidence=confidence, resamples=resamples)
    return _percentiles(drawn, confidence, unknown=np.isnan(scores).any((0, 1)))


def bootstrap_difference(
    scores: Scores,
    others: Float[np.ndarray, "other_runs tasks evaluations"],
    generator: np.random.Generator,
    *,
    statistic: Callable[[Scores], Aggregate] = interquartile_mean,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """Give the interval in which a statistic of some runs, less that of others, lies when both are drawn anew.

    Each side is drawn as in `bootstrap_interval`, without regard to the other.

    Args:
        scores: Runs, tasks, evaluations.
        others: Other runs of the same tasks and evaluations; how many may differ.
        generator: Draws the runs.
        statistic: What is aggregated how.
        confidence: Share of the resamples that lie inside.
        resamples: How many are drawn of each side.
    """
    if scores.shape[1:] != others.shape[1:]:
        raise ValueError(
            f"scores and others must have the same tasks and evaluations, got shapes {scores.shape} and {others.shape}"
        )
    mine, theirs = (
        _resampled(each, generator, statistic, confidence=confidence, resamples=resamples) for each in (scores, others)
    )
    unknown = np.isnan(scores).any((0, 1)) | np.isnan(others).any((0, 1))
    return _percentiles(mine - theirs, confidence, unknown=unknown)


def _resampled(
    scores: Scores,
    generator: np.random.Generator,
    statistic: Callable[[Scores], Aggregate],
    *,
    confidence: float,
    resamples: int,
) -> Float[np.ndarray, "resamples evaluations"]:
    """Give the statistic of runs that are drawn anew within each task, once for each resample."""
    if min(scores.shape) < 1:
        raise ValueError(f"scores must hold runs, tasks and evaluations, got shape {scores.shape}")
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    runs, tasks, evaluations = scores.shape
    drawn = np.empty((resamples, evaluations))
    for resample in range(resamples):
        chosen = generator.integers(runs, size=(runs, tasks))
        drawn[resample] = statistic(scores[chosen, np.arange(tasks)])
    return drawn


def _percentiles(
    drawn: Float[np.ndarray, "resamples evaluations"], confidence: float, unknown: Bool[np.ndarray, " evaluations"]
) -> Interval:
    outside = (1 - confidence) / 2
    low, high = np.quantile(drawn, [outside, 1 - outside], axis=0)
    # A run without a score yet leaves the aggregate unknown, whether or not it was drawn.
    return Interval(np.where(unknown, np.nan, low), np.where(unknown, np.nan, high))
