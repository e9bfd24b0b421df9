"""Verdicts: what a study's runs say of each of its claims, as differences with intervals and one word."""

import math
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vcse.reports.loaded_run import GatheredRun
from vcse.reports.statistics import FEWEST_RUNS, area_under_curve, middles, percentile_interval, resampled_middles
from vcse.runs.formatting import counted
from vcse.studies.catalog.minigrid import CROSSED_WALL
from vcse.studies.study import Claim, Study, ZeroClaim

Verdict = Literal["holds", "contradicted", "undecided", "not run"]
Curve = tuple[Int[np.ndarray, " _"], Float[np.ndarray, " _"]]  # frames and scores of one run

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
            judgements = _judge_zero(claim, tasks, runs)
        else:
            measure = _measure(claim)
            judgements = _judge_difference(claim, tasks, len(of_claim), entry.metric, runs)
        judged.append(JudgedClaim(claim, measure, judgements))
    return judged


def deciding(claim: JudgedClaim) -> Judgement:
    """Return what a claim comes to: all tasks together, or the only task."""
    for each in claim.judgements:
        if each.task == ALL_TASKS:
            return each
    # Where tasks are not pooled, one that contradicts is enough, and all must hold.
    order = ("contradicted", "undecided", "holds", "not run")
    return min(claim.judgements, key=lambda each: order.index(each.verdict))


def outcome(claim: JudgedClaim) -> str:
    """Return the word for what a claim comes to; that nothing but runs is missing is no finding, and has its own."""
    verdict = deciding(claim).verdict
    judged = [each for each in claim.judgements if each.task != ALL_TASKS and each.verdict != "not run"]
    is_pair = not isinstance(claim.claim, ZeroClaim)
    fewest = [min(each.runs, each.other_runs) if is_pair else each.runs for each in judged]
    # A task of which every run was left out has no number at all, and more runs might not help.
    if verdict == "undecided" and judged and all(0 < runs < FEWEST_RUNS for runs in fewest):
        return TOO_FEW
    return verdict


def curves_of(runs: Iterable[GatheredRun], task: str, method: str, metric: str) -> list[Curve]:
    """Return the curves of those runs of a task and a method that have the metric."""
    mine = (run for run in runs if (run.task, run.method) == (task, method))
    return [curve for run in mine if (curve := metric_curve(run, metric)) is not None]


def metric_curve(run: GatheredRun, metric: str) -> Curve | None:
    """Return a run's curve of a metric: a column of its training, or the share of visits beyond the wall.

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
    return metric in OF_EPISODES and run.agent is not None and run.agent.ends_at_goal


def _measure(claim: Claim) -> str:
    what = "area under the curve" if claim.at_frame is None else f"after {claim.at_frame:,} frames"
    return f"{claim.better} against {claim.than}: {what}"


def _judge_difference(
    claim: Claim, tasks: Sequence[str], of_tasks: int, metric: str, runs: Sequence[GatheredRun]
) -> list[Judgement]:
    """Judge a claim on some of the tasks that it is about."""
    measured: list[list[Float[np.ndarray, " runs"]]] = []
    judgements, cuts = [], 0
    for task in tasks:
        sides = [curves_of(runs, task, method, metric) for method in (claim.better, claim.than)]
        missing = [method for method, side in zip((claim.better, claim.than), sides, strict=True) if not side]
        if missing:
            judgements.append(_not_run(task, len(sides[0]), len(sides[1]), f"no run of {' and '.join(missing)}"))
            continue
        pair = _measured(sides, claim.at_frame)
        if not all(map(len, pair)):
            reason = f"no run reaches frame {claim.at_frame:,}"
            judgements.append(_not_run(task, len(pair[0]), len(pair[1]), reason))
            continue
        left_out = sum(map(len, sides)) - sum(map(len, pair))
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


def _cut_at(curves: Sequence[Curve], claim: Claim) -> str:
    """Return up to where areas were compared, if that is not where all runs end."""
    last = {int(frames[-1]) for frames, _ in curves}
    is_whole = claim.at_frame is not None or len(last) == 1
    return "" if is_whole else f"up to frame {min(last):,}, where the shortest run ends"


def scores_at(curves: Sequence[Curve], frame: int) -> Float[np.ndarray, " runs"]:
    """Return the scores of the runs that reach a frame, at their first row that is not before it."""
    reached = [score[np.searchsorted(frames, frame)] for frames, score in curves if frames[-1] >= frame]
    return np.array(reached, dtype=float)


def _measured(sides: Sequence[Sequence[Curve]], at_frame: int | None) -> list[Float[np.ndarray, " runs"]]:
    """Return a number for each run of each side: its score at a frame, or the area as far as all of them go."""
    if at_frame is not None:
        return [np.nan_to_num(scores_at(side, at_frame)) for side in sides]
    last = min(int(frames[-1]) for side in sides for frames, _ in side)
    return [np.array([_area(frames, score, last) for frames, score in side]) for side in sides]


def _area(frames: Int[np.ndarray, " points"], scores: Float[np.ndarray, " points"], last: int) -> float:
    """Return a curve's mean height up to a frame; what is not known yet counts as 0, so that all begin alike."""
    until = frames <= last
    if not until.any():
        return 0.0
    return float(area_under_curve(scores[until][None, None], frames[until], before_first=0.0)[0, 0])


def _compare(task: str, pairs: Sequence[Sequence[Float[np.ndarray, " _"]]], *, same: bool, note: str) -> Judgement:
    """Compare two methods on one task, or on several: then it is the mean of what they differ by on each."""
    generator = np.random.default_rng(SEED)
    sides = [[scores[:, None] for scores in side] for side in zip(*pairs, strict=True)]
    difference = float(np.mean([middles([one]) - middles([other]) for one, other in zip(*sides, strict=True)]))
    drawn, theirs = (np.mean([resampled_middles([each], generator) for each in side], axis=0) for side in sides)
    fewest = min(len(group) for side in sides for group in side)
    low, high = interval_ends(drawn - theirs, fewest)
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
        low, high = interval_ends(drawn, len(known))
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


def interval_ends(drawn: Float[np.ndarray, "resamples 1"], fewest: int) -> tuple[float, float]:
    """Return the ends of an interval; one run drawn again and again is no spread, and has none."""
    if fewest < 2:
        return math.nan, math.nan
    low, high = (float(each[0]) for each in percentile_interval(drawn))
    return low, high


def _before_success(run: GatheredRun, column: str) -> float:
    """Return the mean of a column over the rows before the first success; NaN where there is none."""
    succeeded = np.nan_to_num(run.columns.get("success_rate", np.zeros(len(run.frames)))) > 0
    before = run.columns[column][: int(succeeded.argmax()) if succeeded.any() else len(succeeded)]
    known = before[~np.isnan(before)]
    return float(known.mean()) if known.size else math.nan


def _not_run(task: str, runs: int, other_runs: int, reason: str) -> Judgement:
    return Judgement(task, math.nan, math.nan, math.nan, runs, other_runs, "not run", reason)
