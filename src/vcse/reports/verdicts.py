"""Verdicts: what a study's runs say of each of its claims, as differences with intervals and one word."""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeVar

import numpy as np
from jaxtyping import Float, Int

from vcse.reports.comparisons import (
    EQUIVALENCE_CONFIDENCE,
    LEVEL,
    NOISE,
    SEED,
    Pair,
    Scored,
    Verdict,
    compare_paired,
    compare_unpaired,
    decide,
    interval_ends,
    mean_paired_difference,
    p_value_of,
    shared_scores,
)
from vcse.reports.loaded_run import GatheredRun
from vcse.reports.statistics import (
    FEWEST_RUNS,
    area_under_curve,
    benjamini_hochberg,
    holm,
    middles,
    resampled_middles,
)
from vcse.runs.formatting import counted
from vcse.studies.catalog.minigrid import CROSSED_WALL
from vcse.studies.study import Claim, Study, ZeroClaim

Curve = tuple[Int[np.ndarray, " _"], Float[np.ndarray, " _"]]  # frames and scores of one run

FEWEST_EPISODES = 16  # as many as a run has environments; fewer tell nothing of its policy
OF_EPISODES = ("success_rate", "return_mean")  # what is averaged over the last episodes
DECIDED = ("holds", "contradicted")
ALL_TASKS = "all tasks together"
Value = TypeVar("Value")
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
    pairing: Literal["paired by seed", "unpaired", ""] = ""  # by what the verdict is; empty where it compares nothing
    shared_seeds: int = 0  # on all tasks
    paired_difference: float = math.nan  # of interquartile means of the seeds that both methods have, drawn together
    paired_low: float = math.nan
    paired_high: float = math.nan
    mean_paired_difference: float = math.nan
    low_90: float = math.nan  # of the interval that decides whether a difference is within a margin
    high_90: float = math.nan
    p_value: float = math.nan  # of what is decided by enough runs alone, as are those that follow
    p_holm: float = math.nan  # corrected for all comparisons of the page on single tasks, or on all tasks together
    p_benjamini_hochberg: float = math.nan
    by_holm: Verdict | Literal[""] = ""  # what is left of the verdict
    by_benjamini_hochberg: Verdict | Literal[""] = ""


class JudgedClaim(NamedTuple):
    """A claim and what became of it, task by task."""

    claim: Claim | ZeroClaim
    measure: str  # what was compared
    judgements: list[Judgement]


class Corrected(NamedTuple):
    """How many of some comparisons are decided, before and after they are corrected for their number."""

    where: str
    comparisons: int
    decided: int
    by_holm: int
    by_benjamini_hochberg: int


def judge(entry: Study, runs: Sequence[GatheredRun], asked: Sequence[str] = ()) -> list[JudgedClaim]:
    """Hold each claim of a study against its runs.

    Args:
        entry: The study.
        runs: Those that were made of it; some or all may be missing.
        asked: Tasks that were asked for, if not all of the study: of the others a claim says nothing, unless it is
            about no task that was.
    """
    judged = []
    methods = {run.method for run in runs}
    for claim in entry.claims:
        if not is_judged(claim, methods):
            continue
        of_claim = claim.tasks or entry.task_names
        tasks = [task for task in of_claim if task in asked] or of_claim
        if isinstance(claim, ZeroClaim):
            measure = f"mean of {claim.column} until the first success"
            judgements = _judge_zero(claim, tasks, runs)
        else:
            measure = _measure(claim)
            judgements = _judge_difference(claim, tasks, len(of_claim), entry.metric, runs)
        judged.append(JudgedClaim(claim, measure, judgements))
    return _corrected(_corrected(judged, together=False), together=True)


def is_judged(claim: Claim | ZeroClaim, methods: Collection[str]) -> bool:
    """Return whether a claim is judged where these methods were run: some are only where both of theirs were."""
    return isinstance(claim, ZeroClaim) or not claim.where_run or {claim.better, claim.than} <= set(methods)


def _corrected(judged: Sequence[JudgedClaim], *, together: bool) -> list[JudgedClaim]:
    """Correct for the number of comparisons, those on single tasks or those on all tasks together."""

    def is_meant(judgement: Judgement) -> bool:
        return (judgement.task == ALL_TASKS) == together and not math.isnan(judgement.p_value)

    p_values = [each.p_value for claim in judged for each in claim.judgements if is_meant(each)]
    corrected = iter(zip(holm(p_values), benjamini_hochberg(p_values), strict=True))

    def replaced(judgement: Judgement) -> Judgement:
        if not is_meant(judgement):
            return judgement
        by_holm, by_false_discoveries = next(corrected)
        return judgement._replace(
            p_holm=by_holm,
            p_benjamini_hochberg=by_false_discoveries,
            by_holm=judgement.verdict if by_holm < LEVEL else "undecided",
            by_benjamini_hochberg=judgement.verdict if by_false_discoveries < LEVEL else "undecided",
        )

    return [claim._replace(judgements=[replaced(each) for each in claim.judgements]) for claim in judged]


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


def decided_otherwise(claim: JudgedClaim) -> dict[str, list[str]]:
    """Return single tasks that are decided where all together are not, or in another way: the verdict, the tasks."""
    verdict = deciding(claim).verdict
    tasks: dict[str, list[str]] = {}
    for each in claim.judgements:
        if each.task != ALL_TASKS and each.verdict in DECIDED and each.verdict != verdict:
            tasks.setdefault(each.verdict, []).append(each.task)
    return tasks if any(each.task == ALL_TASKS for each in claim.judgements) else {}


def count_corrected(claims: Sequence[JudgedClaim]) -> list[Corrected]:
    """Count the decided comparisons on single tasks, and those on all tasks together, where there are several."""
    compared = [each for claim in claims for each in claim.judgements if not math.isnan(each.p_value)]
    families = {
        "on single tasks": [each for each in compared if each.task != ALL_TASKS],
        "on all tasks together": [each for each in compared if each.task == ALL_TASKS],
    }
    return [
        Corrected(
            where,
            len(family),
            sum(each.verdict in DECIDED for each in family),
            sum(each.by_holm in DECIDED for each in family),
            sum(each.by_benjamini_hochberg in DECIDED for each in family),
        )
        for where, family in families.items()
        if len(family) > 1
    ]


def curves_of(runs: Iterable[GatheredRun], task: str, method: str, metric: str) -> list[Curve]:
    """Return the curves of those runs of a task and a method that have the metric."""
    return list(curves_by_seed(runs, task, method, metric).values())


def curves_by_seed(runs: Iterable[GatheredRun], task: str, method: str, metric: str) -> dict[int, Curve]:
    """Return the curves of those runs of a task and a method that have the metric, by seed."""
    mine = (run for run in runs if (run.task, run.method) == (task, method))
    return {run.seed: curve for run in mine if (curve := metric_curve(run, metric)) is not None}


def metric_curve(run: GatheredRun, metric: str) -> Curve | None:
    """Return a run's curve of a metric: a column of its training, or the share of visits beyond the wall.

    Success and return are not known (NaN) before `FEWEST_EPISODES` episodes have ended where these are of different
    lengths: those that end first are short, and where reaching the goal ends an episode, their mean is too high. What
    is known at some rows alone, as evaluations are, is a curve of these.
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
    margin = f", within {claim.within:g}" if claim.within else ""
    return f"{claim.better} against {claim.than}: {what}{margin}{', paired by seed' if claim.paired else ''}"


def _judge_difference(
    claim: Claim, tasks: Sequence[str], of_tasks: int, metric: str, runs: Sequence[GatheredRun]
) -> list[Judgement]:
    """Judge a claim on some of the tasks that it is about."""
    measured: list[Pair] = []
    judgements, cuts = [], 0
    for task in tasks:
        sides = curves_by_seed(runs, task, claim.better, metric), curves_by_seed(runs, task, claim.than, metric)
        missing = [method for method, side in zip((claim.better, claim.than), sides, strict=True) if not side]
        found = sum(map(len, sides))
        notes = []
        if claim.paired and not missing:
            sides = _on_shared_seeds(sides)
            if alone := found - sum(map(len, sides)):
                notes.append(f"{counted(alone, 'run')} left out, of a seed that the other method lacks")
        if not all(sides):
            reason = f"no run of {' and '.join(missing)}" if missing else "no seed that both have"
            judgements.append(_not_run(task, len(sides[0]), len(sides[1]), reason))
            continue
        pair = measure_runs(sides, claim.at_frame)
        pair = _on_shared_seeds(pair) if claim.paired else pair
        if not all(pair):
            reason = f"no run reaches frame {claim.at_frame:,}"
            judgements.append(_not_run(task, len(pair[0]), len(pair[1]), reason))
            continue
        cut = _cut_at([*sides[0].values(), *sides[1].values()], claim)
        if too_short := sum(map(len, sides)) - sum(map(len, pair)):
            notes.append(f"{counted(too_short, 'run')} left out, too short")
        elif cut:
            notes.append(cut)
        cuts += bool(cut)
        measured.append(pair)
        judgements.append(_compare(task, [pair], claim, notes))
    if of_tasks > 1 and measured:
        notes = [f"{len(measured)} of {of_tasks} tasks"] if len(measured) < of_tasks else []
        notes += [f"{counted(cuts, 'task')} up to where the shortest run ends"] if cuts else []
        judgements.append(_compare(ALL_TASKS, measured, claim, notes))
    return judgements


def _on_shared_seeds(
    sides: tuple[Mapping[int, Value], Mapping[int, Value]],
) -> tuple[dict[int, Value], dict[int, Value]]:
    """Leave out the runs of seeds that the other side has not."""
    mine, theirs = sides
    shared = [seed for seed in mine if seed in theirs]
    return {seed: mine[seed] for seed in shared}, {seed: theirs[seed] for seed in shared}


def _cut_at(curves: Sequence[Curve], claim: Claim) -> str:
    """Return up to where areas were compared, if that is not where all runs end."""
    last = {int(frames[-1]) for frames, _ in curves}
    is_whole = claim.at_frame is not None or len(last) == 1
    return "" if is_whole else f"up to frame {min(last):,}, where the shortest run ends"


def scores_at(curves: Sequence[Curve], frame: int) -> Float[np.ndarray, " runs"]:
    """Return the scores of the runs that reach a frame, at their first row that is not before it."""
    reached = [score[np.searchsorted(frames, frame)] for frames, score in curves if frames[-1] >= frame]
    return np.array(reached, dtype=float)


def measure_runs(
    sides: tuple[Mapping[int, Curve], Mapping[int, Curve]], at_frame: int | None = None
) -> tuple[Scored, Scored]:
    """Return a number for each run of each side: its score at a frame, or the area as far as all of them go."""
    if at_frame is None:
        last = min(int(frames[-1]) for side in sides for frames, _ in side.values())
        first, second = ({seed: _area(*curve, last) for seed, curve in side.items()} for side in sides)
    else:
        first, second = (
            {seed: float(np.nan_to_num(each)) for seed, curve in side.items() for each in scores_at([curve], at_frame)}
            for side in sides
        )
    return first, second


def _area(frames: Int[np.ndarray, " points"], scores: Float[np.ndarray, " points"], last: int) -> float:
    """Return a curve's mean height up to a frame; what is not known yet counts as 0, so that all begin alike."""
    until = frames <= last
    if not until.any():
        return 0.0
    return float(area_under_curve(scores[until][None, None], frames[until], before_first=0.0)[0, 0])


def _compare(task: str, pairs: Sequence[Pair], claim: Claim, notes: Sequence[str]) -> Judgement:
    """Compare two methods on one task, or on several: then it is the mean of what they differ by on each."""
    shared = [len(shared_scores(pair)) for pair in pairs]
    paired = compare_paired(pairs) if min(shared) > 1 or claim.paired else None
    comparison = paired if claim.paired and paired else compare_unpaired(pairs)
    low, high = comparison.interval()
    fewest = comparison.fewest
    verdict: Verdict = "undecided"
    p_value = math.nan
    if fewest < FEWEST_RUNS:
        where = " on a task" if len(pairs) > 1 else ""
        notes = [f"{counted(fewest, 'run')} of a method{where}; {FEWEST_RUNS} are needed", *notes]
    else:
        verdict = decide(comparison, claim.within)
        p_value = p_value_of(comparison, pairs, claim.within, by_seed=claim.paired)
    runs, others = (sum(len(side) for side in sides) for sides in zip(*pairs, strict=True))
    low_90, high_90 = comparison.interval(EQUIVALENCE_CONFIDENCE) if claim.within else (math.nan, math.nan)
    paired_low, paired_high = paired.interval() if paired else (math.nan, math.nan)
    return Judgement(
        *(task, comparison.difference, low, high, runs, others, verdict, "; ".join(notes)),
        pairing="paired by seed" if claim.paired else "unpaired",
        shared_seeds=sum(shared),
        paired_difference=paired.difference if paired else math.nan,
        paired_low=paired_low,
        paired_high=paired_high,
        mean_paired_difference=mean_paired_difference(pairs) if paired else math.nan,
        low_90=low_90,
        high_90=high_90,
        p_value=p_value,
    )


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
        notes = [f"{counted(left_out, 'run')} left out with success from the first row on"] if left_out else []
        if not len(known):
            judgements.append(Judgement(task, math.nan, math.nan, math.nan, 0, 0, "undecided", "; ".join(notes)))
            continue
        low, high = interval_ends(resampled_middles([known], np.random.default_rng(SEED)), len(known))
        verdict: Verdict = "contradicted" if low > NOISE else "undecided" if known.any() else "holds"
        if len(known) < FEWEST_RUNS:
            verdict, notes = "undecided", [f"{counted(len(known), 'run')}; {FEWEST_RUNS} are needed", *notes]
        middle = float(middles([known])[0])
        judgements.append(Judgement(task, middle, low, high, len(known), 0, verdict, "; ".join(notes)))
    return judgements


def _before_success(run: GatheredRun, column: str) -> float:
    """Return the mean of a column over the rows before the first success; NaN where there is none."""
    succeeded = np.nan_to_num(run.columns.get("success_rate", np.zeros(len(run.frames)))) > 0
    before = run.columns[column][: int(succeeded.argmax()) if succeeded.any() else len(succeeded)]
    known = before[~np.isnan(before)]
    return float(known.mean()) if known.size else math.nan


def _not_run(task: str, runs: int, other_runs: int, reason: str) -> Judgement:
    return Judgement(task, math.nan, math.nan, math.nan, runs, other_runs, "not run", reason)
