"""Statistics over runs: arrays `[runs, tasks, evaluations]` and a generator in, numbers with intervals out.

Those that give a number per evaluation take leading axes too, so that many resamples are aggregated at once.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

Scores = Float[np.ndarray, "runs tasks evaluations"]
FEWEST_RUNS = 5  # of a method: fewer decide nothing

Aggregate = Float[np.ndarray, " evaluations"]
ManyScores = Float[np.ndarray, "*resamples runs tasks evaluations"]
ManyAggregates = Float[np.ndarray, "*resamples evaluations"]

Groups = Sequence[Float[np.ndarray, "_ points"]]  # the runs of one task each

RESAMPLES = 10_000  # of groups: all of a report's intervals
CHUNK_BYTES = 2**21  # of resampled scores at a time: as much as stays in a processor's cache
CELLS_AT_ONCE = 20_000_000  # of resamples of groups: 160 MB


class Interval(NamedTuple):
    """Where an aggregate lies, at each evaluation."""

    low: Aggregate
    high: Aggregate


def interquartile_mean(scores: ManyScores) -> ManyAggregates:
    """Return the mean of the middle half of all runs of all tasks; NaN where a run has no score yet.

    A quarter of an uneven number is rounded down, so that no fewer than half are averaged.
    """
    return _middle_half(_pooled(scores), axis=-2)


def mean(scores: ManyScores) -> ManyAggregates:
    """Return the mean of all runs of all tasks."""
    return np.asarray(scores.mean((-3, -2)))


def median(scores: ManyScores) -> ManyAggregates:
    """Return the median of all runs of all tasks; `median_of_tasks` is another number."""
    return np.asarray(np.median(_pooled(scores), axis=-2))


def median_of_tasks(scores: ManyScores) -> ManyAggregates:
    """Return the median over tasks of the mean over runs, which the literature on many games calls the median."""
    return np.asarray(np.median(scores.mean(-3), axis=-2))


def standard_deviation(scores: ManyScores) -> ManyAggregates:
    """Return the standard deviation of all runs of all tasks, as shaded around their `mean`.

    It is divided by the number of runs and not by one less, which is what NumPy gives unless told otherwise and what
    most plots show. Of several tasks it holds their differences too: the spread over runs alone is that of one task.
    """
    return np.asarray(scores.std((-3, -2)))


def optimality_gap(scores: ManyScores, *, optimum: float = 1.0) -> ManyAggregates:
    """Return by how much runs of all tasks fall short of the optimum on average; more than the optimum counts as it."""
    return np.asarray(np.maximum(optimum - scores, 0).mean((-3, -2)))


def performance_profile(
    scores: ManyScores, thresholds: Float[np.ndarray, " thresholds"]
) -> Float[np.ndarray, "*resamples thresholds evaluations"]:
    """Return the share of all runs of all tasks above each threshold, all tasks weighted alike.

    Its interval is that of `functools.partial(performance_profile, thresholds=...)`.
    """
    pooled = _pooled(scores)
    above = np.stack([(pooled > threshold).mean(-2) for threshold in thresholds], axis=-2)
    return np.where(np.isnan(pooled).any(-2)[..., None, :], np.nan, above)


def probability_of_improvement(
    scores: ManyScores, others: Float[np.ndarray, "*resamples other_runs tasks evaluations"]
) -> ManyAggregates:
    """Return how likely a run has a higher score than one of the others on the same task, as a mean over tasks.

    An equal score counts as half. Its interval is that of `bootstrap_pair`.
    """
    _check_alike(scores, others)
    twice = np.zeros(scores.shape, dtype=np.int32)
    for other in range(others.shape[-3]):  # one at a time: all pairs at once need runs times the memory
        theirs = others[..., other : other + 1, :, :]
        twice += scores > theirs
        twice += scores >= theirs
    likely = twice.mean((-3, -2)) / (2 * others.shape[-3])
    return np.where(np.isnan(scores).any((-3, -2)) | np.isnan(others).any((-3, -2)), np.nan, likely)


def area_under_curve(
    scores: Scores, frames: Int[np.ndarray, " evaluations"], *, before_first: float | None = None
) -> Float[np.ndarray, "runs tasks"]:
    """Return the mean height of each run's curve over frames, by the trapezoid rule.

    A run without a score at first is measured from its first score on, unless something else is said: before its first
    episode has ended nothing is known of it. One that lacks a score later on has no mean: NaN.

    Args:
        scores: Runs, tasks, evaluations.
        frames: Of the evaluations, rising.
        before_first: What counts until a run's first score, so that the curves of all runs are equally long.
    """
    _check_frames(scores, frames)
    if before_first is not None:
        is_before = ~np.logical_or.accumulate(~np.isnan(scores), axis=-1)
        scores = np.where(is_before, before_first, scores)
    started = np.logical_or.accumulate(~np.isnan(scores), axis=-1)[..., :-1]
    widths = np.where(started, np.diff(frames), 0)
    areas = np.where(started, (scores[..., 1:] + scores[..., :-1]) / 2 * widths, 0).sum(-1)
    total = widths.sum(-1)
    # Known at the last evaluation alone, or not even there: its score is all there is.
    return np.where(total > 0, areas / np.maximum(total, 1), scores[..., -1])


def frames_to_threshold(
    scores: Scores, frames: Int[np.ndarray, " evaluations"], threshold: float
) -> Float[np.ndarray, "runs tasks"]:
    """Return the frame of the first evaluation at which each run is at the threshold or above; infinity where none is.

    Args:
        scores: Runs, tasks, evaluations. One without a score (NaN) is not at the threshold.
        frames: Of the evaluations, rising.
        threshold: What is to be reached.
    """
    _check_frames(scores, frames)
    reached = scores >= threshold
    return np.where(reached.any(-1), frames[reached.argmax(-1)].astype(float), np.inf)


def bootstrap_interval(
    scores: Scores,
    generator: np.random.Generator,
    *,
    statistic: Callable[[Scores], Aggregate] = interquartile_mean,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """Return the interval in which a statistic lies when runs are drawn anew, with replacement.

    Runs are drawn within each task, so that every task keeps its weight, and with all of their evaluations, so
    that a run's good luck lasts as long as it did. The interval is that of percentiles. Statistics of this module
    are computed for many resamples at once, those of one's own for one after the other.

    Args:
        scores: Runs, tasks, evaluations.
        generator: Draws the runs.
        statistic: What is aggregated how. Its last axis is that of the evaluations.
        confidence: Share of the resamples that lie inside.
        resamples: How many are drawn.
    """
    return _interval(_resampled(statistic, (scores,), generator, resamples), (scores,), confidence)


def bootstrap_difference(
    scores: Scores,
    others: Float[np.ndarray, "other_runs tasks evaluations"],
    generator: np.random.Generator,
    *,
    statistic: Callable[[Scores], Aggregate] = interquartile_mean,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """Return the interval in which a statistic of some runs, less that of others, lies when both are drawn anew.

    Each side is drawn as in `bootstrap_interval`, without regard to the other.

    Args:
        scores: Runs, tasks, evaluations.
        others: Other runs of the same tasks and evaluations; how many may differ.
        generator: Draws the runs.
        statistic: What is aggregated how.
        confidence: Share of the resamples that lie inside.
        resamples: How many are drawn of each side.
    """
    _check_alike(scores, others)
    mine, theirs = (_resampled(statistic, (each,), generator, resamples) for each in (scores, others))
    return _interval(mine - theirs, (scores, others), confidence)


def bootstrap_pair(
    scores: Scores,
    others: Float[np.ndarray, "other_runs tasks evaluations"],
    generator: np.random.Generator,
    *,
    statistic: Callable[[Scores, Scores], Aggregate] = probability_of_improvement,
    confidence: float = 0.95,
    resamples: int = 2000,
) -> Interval:
    """Return the interval in which a statistic of two sets of runs lies when both are drawn anew.

    Each side is drawn as in `bootstrap_interval`, without regard to the other.

    Args:
        scores: Runs, tasks, evaluations.
        others: Other runs of the same tasks and evaluations; how many may differ.
        generator: Draws the runs.
        statistic: What is made of the two.
        confidence: Share of the resamples that lie inside.
        resamples: How many are drawn of each side.
    """
    _check_alike(scores, others)
    return _interval(_resampled(statistic, (scores, others), generator, resamples), (scores, others), confidence)


def middles(groups: Groups) -> Float[np.ndarray, " points"]:
    """Return the interquartile mean of all runs of all groups, which may differ in size."""
    return _middle_half(np.concatenate(groups), axis=0)


def resampled_middles(
    groups: Groups, generator: np.random.Generator, resamples: int = RESAMPLES
) -> Float[np.ndarray, "resamples points"]:
    """Return interquartile means of runs that are drawn anew within each group, with all of their points.

    The same as `bootstrap_interval` draws, of groups that may differ in size, and much faster where there are many
    resamples.

    Args:
        groups: The runs of each task.
        generator: Draws the runs.
        resamples: How many times.
    """
    for group in groups:
        _check_holds("groups", group)
    pooled = np.concatenate(groups)
    ends = np.cumsum([len(group) for group in groups])
    chosen = [
        generator.integers(end - len(group), end, size=(resamples, len(group)))
        for end, group in zip(ends, groups, strict=True)
    ]
    places = np.concatenate(chosen, axis=1)
    runs, points = pooled.shape
    # Contiguous runs sort several times faster.
    by_point = np.ascontiguousarray(pooled.T)
    at_once = max(1, CELLS_AT_ONCE // (resamples * runs))
    drawn = np.empty((resamples, points))
    for begin in range(0, points, at_once):
        some = by_point[begin : begin + at_once]
        drawn[:, begin : begin + at_once] = _middle_half(some[:, places], axis=-1).T
    return drawn


def percentile_interval(drawn: Float[np.ndarray, " resamples *values"], confidence: float = 0.95) -> Interval:
    """Return the interval that holds the middle of what was drawn."""
    outside = (1 - confidence) / 2
    if np.isinf(drawn).any():  # there is nothing between a number and infinity: the next one outwards
        low = np.quantile(drawn, outside, axis=0, method="lower")
        return Interval(low, np.quantile(drawn, 1 - outside, axis=0, method="higher"))
    return Interval(*np.quantile(drawn, [outside, 1 - outside], axis=0))


def permutation_p_value(
    pairs: Sequence[tuple[Float[np.ndarray, " _"], Float[np.ndarray, " _"]]],
    generator: np.random.Generator,
    *,
    by_seed: bool = False,
    resamples: int = 20_000,
) -> float:
    """Return how likely two means would differ by at least as much if it were chance which run is of which side.

    Two-sided; of several tasks, of the mean of what the sides differ by on each. The given assignment is counted as one
    of the resamples, so that no p-value is 0.

    Args:
        pairs: A number of each run of the one side and of the other, for each task. Runs are assigned within tasks.
        generator: Assigns the runs.
        by_seed: Exchange the two runs of a seed, or do not: each flips the sign of what they differ by. Both sides have
            the same seeds in the same order then. Else any run may be of either side, and how many each has may differ.
        resamples: How often they are assigned anew.
    """
    given, drawn, largest = 0.0, np.zeros(resamples), 0.0
    for scores, others in pairs:
        _check_holds("scores", scores)
        _check_holds("others", others)
        if by_seed:
            if len(scores) != len(others):
                raise ValueError(f"by_seed needs as many others as scores, got {len(scores)} and {len(others)}")
            is_exchanged = generator.random((resamples, len(scores))) < 0.5
            sides = np.where(is_exchanged, others, scores), np.where(is_exchanged, scores, others)
        else:
            pooled = np.concatenate((scores, others))
            assigned = generator.permuted(np.broadcast_to(pooled, (resamples, len(pooled))), axis=1)
            sides = assigned[:, : len(scores)], assigned[:, len(scores) :]
        given += float(scores.mean() - others.mean())
        drawn += sides[0].mean(1) - sides[1].mean(1)
        largest = max(largest, float(np.abs(np.concatenate((scores, others))).max()))
    # What two ways to add up the same numbers may differ by is no difference.
    at_least = np.count_nonzero(np.abs(drawn) >= abs(given) - 1e-12 * len(pairs) * largest)
    return float((1 + at_least) / (1 + resamples))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for how many there are, by Holm's step-down method.

    Those below 0.05 are the findings of a family of which, with probability 0.95, none is by chance.
    """
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) - np.arange(len(p_values))
    steps = np.minimum(np.maximum.accumulate(factors * np.asarray(p_values, dtype=float)[order]), 1)
    return _unsorted(steps, order)


def benjamini_hochberg(p_values: Sequence[float]) -> list[float]:
    """Return p-values corrected for how many there are, by the step-up method of Benjamini and Hochberg (1995).

    Of those below 0.05, 5 % are by chance on average: fewer true differences are missed than with `holm`, at the price
    of some false ones.
    """
    order = np.argsort(p_values, kind="stable")
    factors = len(p_values) / np.arange(1, len(p_values) + 1)
    steps = np.minimum.accumulate((factors * np.asarray(p_values, dtype=float)[order])[::-1])[::-1]
    return _unsorted(np.minimum(steps, 1), order)


MANY_AT_ONCE: frozenset[Callable[..., np.ndarray]] = frozenset(
    {interquartile_mean, mean, median, median_of_tasks, standard_deviation, optimality_gap}
    | {performance_profile, probability_of_improvement}
)


def _unsorted(ordered: Float[np.ndarray, " n"], order: Int[np.ndarray, " n"]) -> list[float]:
    """Return what was sorted in the order from which it came."""
    return list(map(float, ordered[np.argsort(order)]))


def _middle_half(scores: Float[np.ndarray, "..."], axis: int) -> Float[np.ndarray, "..."]:
    """Return the mean without the lowest and highest quarter; a quarter of an uneven number is rounded down."""
    ordered = np.moveaxis(np.sort(scores, axis=axis), axis, -1)
    runs = ordered.shape[-1]
    cut = runs // 4
    middle = ordered[..., cut : runs - cut].mean(-1)
    return np.where(np.isnan(ordered[..., -1]), np.nan, middle)  # NaN is sorted last


def _resampled(
    statistic: Callable[..., np.ndarray], sides: tuple[np.ndarray, ...], generator: np.random.Generator, resamples: int
) -> Float[np.ndarray, " resamples *values"]:
    """Return the statistic of runs that are drawn anew within each task of each side, once for each resample."""
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    for side in sides:
        if min(side.shape) < 1:
            raise ValueError(f"scores must hold runs, tasks and evaluations, got shape {side.shape}")
    chosen = [generator.integers(side.shape[0], size=(resamples, *side.shape[:2])) for side in sides]

    def statistic_of(drawn: int | slice) -> np.ndarray:
        return statistic(
            *(side[each[drawn], np.arange(side.shape[1])] for side, each in zip(sides, chosen, strict=True))
        )

    # A partial holds the settings of the function below it.
    if getattr(statistic, "func", statistic) not in MANY_AT_ONCE:
        return np.stack([statistic_of(number) for number in range(resamples)])
    step = max(1, CHUNK_BYTES // sum(side.nbytes for side in sides))
    return np.concatenate([statistic_of(slice(first, first + step)) for first in range(0, resamples, step)])


def _interval(
    drawn: Float[np.ndarray, " resamples *values"], sides: tuple[np.ndarray, ...], confidence: float
) -> Interval:
    """Return where the middle of what was drawn lies; unknown where a run has no score yet, drawn or not."""
    if not 0 < confidence < 1:
        raise ValueError(f"confidence must be between 0 and 1, got {confidence}")
    unknown = np.any([np.isnan(side).any((0, 1)) for side in sides], axis=0)
    return Interval(*(np.where(unknown, np.nan, end) for end in percentile_interval(drawn, confidence)))


def _pooled(scores: ManyScores) -> Float[np.ndarray, "*resamples runs_and_tasks evaluations"]:
    _check_holds("scores", scores)
    return scores.reshape(*scores.shape[:-3], -1, scores.shape[-1])


def _check_alike(scores: np.ndarray, others: np.ndarray) -> None:
    if scores.shape[-2:] != others.shape[-2:]:
        raise ValueError(
            f"scores and others must have the same tasks and evaluations, got shapes {scores.shape} and {others.shape}"
        )


def _check_holds(name: str, scores: np.ndarray) -> None:
    if scores.size == 0:
        raise ValueError(f"{name} must hold at least one score, got shape {scores.shape}")


def _check_frames(scores: np.ndarray, frames: np.ndarray) -> None:
    _check_holds("scores", scores)
    if frames.shape != scores.shape[-1:]:
        raise ValueError(f"frames must be those of {scores.shape[-1]} evaluations, got shape {frames.shape}")
    falls = np.flatnonzero(np.diff(frames) <= 0)
    if len(falls):
        before, after = frames[falls[0]], frames[falls[0] + 1]
        raise ValueError(f"frames must rise, got {after:,} after {before:,}")
