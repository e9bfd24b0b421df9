"""Verdicts: what a study's runs say of each of its claims, as differences with intervals and one word."""

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vcse.reports.loaded_run import GatheredRun
from vcse.reports.statistics import FEWEST_RUNS, area_under_curve, middles, percentile_interval, resampled_middles
from vcse.runs.formatting import counted
from vcse.studies.catalog.minigrid import CROSSED_WALL
from vcse.studies.study import Claim, Study, ZeroClaim

Verdict = Literal["holds", "contradicted", "undecided", "not run"]

FEWEST_EPISODES = 16  # as many as a run has environments; fewer tell nothing of its policy
OF_EPISODES = ("success_rate", "return_mean")  # what is averaged over the last episodes
SEED = 0  # of the bootstrap: the same runs give the same verdicts
NOISE = 1e-9  # what two ways to add up the same numbers may differ by
ALL_TASKS = "all tasks together"
TOO_FEW = "too few runs"


class Judgement(NamedTuple):
    """What the runs of one task, or of all together, say of a claim. Numbers are NaN where there are none."""

    task: str
    difference: float  # of interquartile means; of a column said to be 0, its interquartile mean
    low: float  # NaN too where there is one run, which has no interval
    high: float
    runs: int
    other_runs: int  # of the method that is said to be worse; 0 where the claim is about one
    verdict: Verdict
    reason: str = ""  # why nothing is decided, or what was left out


class JudgedClaim(NamedTuple):
    """A claim and what became of it, task by task."""

    claim: Claim | ZeroClaim
    measure: str  # what was compared
    judgements: list[Judgement]


class _Measured(NamedTuple):
    """Two sides of a claim on one task: a number for each run."""

    better: Float[np.ndarray, " runs"]
    than: Float[np.ndarray, " others"]


def judge(entry: Study, runs: Sequence[GatheredRun], asked: Sequence[str] = ()) -> list[JudgedClaim]:
    """Hold each claim of a study against its runs.

    Args:
        entry: The study.
        runs: Those that were made of it; some or all may be missing.
        asked: Tasks that were asked for, if not all of the study: of the others a claim says nothing, unless it is
            about no task that was.
    """
    judged = []
    for claim in entry.claims:
        of_claim = claim.tasks or entry.task_names
        tasks = [task for task in of_claim if task in asked] or of_claim
        if isinstance(claim, ZeroClaim):
            measure = f"mean of {claim.column} until the first success"
            judged.append(JudgedClaim(claim, measure, _judge_zero(claim, tasks, runs)))
        else:
            judgements = _judge_difference(claim, tasks, len(of_claim), entry.metric, runs)
            judged.append(JudgedClaim(claim, _measure(claim), judgements))
    return judged


def deciding(claim: JudgedClaim) -> Judgement:
    """Give what a claim comes to: all tasks together, or the only task."""
    together = [each for each in claim.judgements if each.task == ALL_TASKS]
    if together or len(claim.judgements) == 1:
        return (together or claim.judgements)[0]
    # Where tasks are not pooled, one that contradicts is enough, and all must hold.
    for verdict in ("contradicted", "undecided", "holds", "not run"):
        found = [each for each in claim.judgements if each.verdict == verdict]
        if found:
            return found[0]
    raise ValueError("judgements must hold at least one task, got none")


def outcome(claim: JudgedClaim) -> str:
    """Give the word for what a claim comes to; that nothing but runs is missing is no finding, and has its own."""
    verdict = deciding(claim).verdict
    judged = [each for each in claim.judgements if each.task != ALL_TASKS and each.verdict != "not run"]
    is_pair = not isinstance(claim.claim, ZeroClaim)
    fewest = [min(each.runs, each.other_runs) if is_pair else each.runs for each in judged]
    # A task of which every run was left out has no number at all, and more runs might not help.
    if verdict == "undecided" and judged and all(0 < runs < FEWEST_RUNS for runs in fewest):
        return TOO_FEW
    return verdict


def metric_curve(
    run: GatheredRun, metric: str
) -> tuple[Int[np.ndarray, " points"], Float[np.ndarray, " points"]] | None:
    """Give a run's curve of a metric: a column of its training, or the share of visits beyond the wall.

    Success and return are not known (NaN) before `FEWEST_EPISODES` episodes have ended where these are of different
    lengths. Those that end first are the short ones, and in most tasks these are the successes. What is known at some
    rows alone, as evaluations are, is a curve of these.
    """
    if metric == "beyond_wall_share":
        every = run.config.get("visits_every_frames", 0)
        if run.visits is None or not every:
            return None
        visits = run.visits.sum(2)
        total = visits.sum(1)
        frames = every * np.arange(1, len(visits) + 1)
        scores = np.where(total > 0, visits[:, CROSSED_WALL + 1 :].sum(1) / np.maximum(total, 1), np.nan)
    elif metric in run.columns:
        frames, scores = run.frames, run.columns[metric]
    else:
        return None
    if waits_for_episodes(run, metric):
        if "episodes" in run.columns:
            scores = np.where(run.columns["episodes"] >= FEWEST_EPISODES, scores, np.nan)
        return frames, scores
    known = ~np.isnan(scores)
    return (frames[known], scores[known]) if known.any() else None


def waits_for_episodes(run: GatheredRun, metric: str) -> bool:
    """Whether a metric is a mean over episodes of different lengths, as they are in MiniGrid."""
    return metric in OF_EPISODES and run.agent.ends_at_goal


def _measure(claim: Claim) -> str:
    what = "area under the curve" if claim.at_frame is None else f"after {claim.at_frame:,} frames"
    return f"{claim.better} against {claim.than}: {what}"


def _judge_difference(
    claim: Claim, tasks: Sequence[str], of_tasks: int, metric: str, runs: Sequence[GatheredRun]
) -> list[Judgement]:
    """Judge a claim on some of the tasks that it is about."""
    measured: list[_Measured] = []
    judgements, cuts = [], 0
    for task in tasks:
        sides = [
            [curve for run in runs if (run.task, run.method) == (task, method) if (curve := metric_curve(run, metric))]
            for method in (claim.better, claim.than)
        ]
        missing = [method for method, side in zip((claim.better, claim.than), sides, strict=True) if not side]
        if missing:
            judgements.append(_not_run(task, len(sides[0]), len(sides[1]), f"no run of {' and '.join(missing)}"))
            continue
        pair = _scores(sides[0], sides[1], claim.at_frame)
        if not (pair.better.size and pair.than.size):
            reason = f"no run reaches frame {claim.at_frame:,}"
            judgements.append(_not_run(task, pair.better.size, pair.than.size, reason))
            continue
        left_out = sum(map(len, sides)) - pair.better.size - pair.than.size
        cut = _cut_at([*sides[0], *sides[1]], claim)
        note = f"{counted(left_out, 'run')} left out, too short" if left_out else cut
        cuts += bool(cut)
        measured.append(pair)
        judgements.append(_compare(task, [pair], same=claim.same, note=note))
    if of_tasks > 1 and measured:
        notes = [f"{len(measured)} of {of_tasks} tasks"] if len(measured) < of_tasks else []
        notes += [f"{counted(cuts, 'task')} up to where the shortest run ends"] if cuts else []
        note = "; ".join(notes)
        judgements.append(_compare(ALL_TASKS, measured, same=claim.same, note=note))
    return judgements


def _cut_at(curves: Sequence[tuple[Int[np.ndarray, " _"], Float[np.ndarray, " _"]]], claim: Claim) -> str:
    """Say up to where areas were compared, if that is not where all runs end."""
    last = {int(frames[-1]) for frames, _ in curves}
    return (
        ""
        if claim.at_frame is not None or len(last) == 1
        else f"up to frame {min(last):,}, where the shortest run ends"
    )


def _scores(
    better: Sequence[tuple[Int[np.ndarray, " _"], Float[np.ndarray, " _"]]],
    than: Sequence[tuple[Int[np.ndarray, " _"], Float[np.ndarray, " _"]]],
    at_frame: int | None,
) -> _Measured:
    """Give a number for each run: its score at a frame, or the area up to the last frame that all have."""
    if at_frame is not None:
        reached = [
            [
                float(np.nan_to_num(score[np.searchsorted(frames, at_frame)]))
                for frames, score in side
                if frames[-1] >= at_frame
            ]
            for side in (better, than)
        ]
        return _Measured(np.array(reached[0], dtype=float), np.array(reached[1], dtype=float))
    last = min(int(frames[-1]) for frames, _ in (*better, *than))
    areas = [np.array([_area(frames, score, last) for frames, score in side]) for side in (better, than)]
    return _Measured(areas[0], areas[1])


def _area(frames: Int[np.ndarray, " points"], scores: Float[np.ndarray, " points"], last: int) -> float:
    """Give a curve's mean height up to a frame; what is not known yet counts as 0, so that all begin alike."""
    until = frames <= last
    if not until.any():
        return 0.0
    return float(area_under_curve(scores[until][None, None], frames[until], before_first=0.0)[0, 0])


def _compare(task: str, pairs: Sequence[_Measured], *, same: bool, note: str) -> Judgement:
    """Compare two methods on one task, or on several: then it is the mean of what they differ by on each."""
    generator = np.random.default_rng(SEED)
    sides = [[getattr(pair, side)[:, None] for pair in pairs] for side in ("better", "than")]
    difference = float(np.mean([middles([one]) - middles([other]) for one, other in zip(*sides, strict=True)]))
    drawn_sides = [np.mean([resampled_middles([each], generator) for each in side], axis=0) for side in sides]
    drawn = drawn_sides[0] - drawn_sides[1]
    fewest = min(len(group) for side in sides for group in side)
    low, high = _ends(drawn, fewest)
    verdict: Verdict = "undecided"
    if fewest < FEWEST_RUNS:
        few = f"{counted(fewest, 'run')} of a method{' on a task' if len(pairs) > 1 else ''}; {FEWEST_RUNS} are needed"
        note = f"{few}; {note}" if note else few
    elif low > NOISE:
        verdict = "contradicted" if same else "holds"
    elif high < -NOISE:
        verdict = "contradicted"
    runs, others = (sum(len(group) for group in side) for side in sides)
    return Judgement(task, difference, low, high, runs, others, verdict, note)


def _judge_zero(claim: ZeroClaim, tasks: Sequence[str], runs: Sequence[GatheredRun]) -> list[Judgement]:
    judgements = []
    for task in tasks:
        mine = [run for run in runs if (run.task, run.method) == (task, claim.method) and claim.column in run.columns]
        if not mine:
            judgements.append(_not_run(task, 0, 0, f"no run of {claim.method} with the column {claim.column}"))
            continue
        scores = np.array([_before_success(run, claim.column) for run in mine])
        known = scores[~np.isnan(scores)][:, None]
        left_out = len(scores) - len(known)
        note = f"{counted(left_out, 'run')} left out with success from the first row on" if left_out else ""
        if not len(known):
            judgements.append(Judgement(task, math.nan, math.nan, math.nan, 0, 0, "undecided", note))
            continue
        drawn = resampled_middles([known], np.random.default_rng(SEED))
        low, high = _ends(drawn, len(known))
        verdict: Verdict = "undecided"
        if len(known) < FEWEST_RUNS:
            few = f"{counted(len(known), 'run')}; {FEWEST_RUNS} are needed"
            note = f"{few}; {note}" if note else few
        elif low > NOISE:
            verdict = "contradicted"
        elif not known.any():
            verdict = "holds"
        judgements.append(Judgement(task, float(middles([known])[0]), low, high, len(known), 0, verdict, note))
    return judgements


def _ends(drawn: Float[np.ndarray, "resamples 1"], fewest: int) -> tuple[float, float]:
    """Give the ends of an interval; one run drawn again and again is no spread, and has none."""
    if fewest < 2:
        return math.nan, math.nan
    low, high = (float(each[0]) for each in percentile_interval(drawn))
    return low, high


def _before_success(run: GatheredRun, column: str) -> float:
    """Give the mean of a column over the rows before the first success; NaN where there is none."""
    succeeded = np.nan_to_num(run.columns.get("success_rate", np.zeros(len(run.frames)))) > 0
    before = run.columns[column][: int(succeeded.argmax()) if succeeded.any() else len(succeeded)]
    known = before[~np.isnan(before)]
    return float(known.mean()) if known.size else math.nan


def _not_run(task: str, runs: int, other_runs: int, reason: str) -> Judgement:
    return Judgement(task, math.nan, math.nan, math.nan, runs, other_runs, "not run", reason)
