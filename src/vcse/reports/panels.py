"""Lines and tables of a page: the runs of a task and a method as one line, with its interval at each point."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vcse.reports.comparisons import interval_ends
from vcse.reports.external_curves import ForeignCurves
from vcse.reports.figures import MOST_RUNS, Drawn, Panel, method_colour, short_name
from vcse.reports.loaded_run import GatheredRun
from vcse.reports.statistics import middles, percentile_interval, resampled_middles
from vcse.reports.verdicts import FEWEST_EPISODES, Curve, curves_of, scores_at, waits_for_episodes
from vcse.runs.formatting import counted
from vcse.studies.study import Study, Task

RESAMPLES = 2000
SEED = 0  # of the bootstrap: the same runs give the same page
MOST_POINTS = 300  # of a line: more than a panel has pixels for
ALL = "all tasks"
LABELS = {
    "success_rate": "success rate over the last {recent} training episodes",
    "return_mean": "mean return over the last {recent} training episodes",
    "eval_return_mean": "mean return in evaluation",
    "eval_success_rate": "success rate in evaluation",
    "beyond_wall_share": "share of visits beyond the wall",
}


class Series(NamedTuple):
    """A line's entry in the legend."""

    name: str
    label: str  # in words
    explanation: str
    colour: str
    is_dashed: bool = False


class Cell(NamedTuple):
    """One method at one frame."""

    task: str
    method: str
    frame: int
    runs: int
    iqm: float
    low: float
    high: float
    mean: float


class TaskTable(NamedTuple):
    """A task's part of the table: cells by method, in the order of frames."""

    task: str
    frames: list[int]
    rows: dict[str, list[Cell]]


def draw(
    frames: Int[np.ndarray, " points"],
    scores: Float[np.ndarray, "runs points"],
    present: Bool[np.ndarray, "runs points"],
    tasks: Int[np.ndarray, " runs"] | None = None,
) -> Drawn:
    """Aggregate runs, at each point those that were there.

    Args:
        frames: Where the points are.
        scores: NaN where a run has no score; if it was there, the point is unknown.
        present: Which runs had begun and not ended.
        tasks: The task of each run, where there are several; runs are drawn anew within their task.
    """
    tasks = np.zeros(len(scores), dtype=np.int64) if tasks is None else tasks
    numbers = np.full((5, len(frames)), np.nan)
    patterns, which = np.unique(present, axis=1, return_inverse=True)
    generator = np.random.default_rng(SEED)
    for number, there in enumerate(patterns.T):
        points = np.flatnonzero(which.reshape(-1) == number)
        points = points[~np.isnan(scores[there][:, points]).any(0)]
        if not there.any() or not points.size:
            continue
        mine = scores[there][:, points]
        groups = [mine[tasks[there] == task] for task in np.unique(tasks[there])]
        interval = percentile_interval(resampled_middles(groups, generator, RESAMPLES))
        numbers[:, points] = middles(groups), *interval, mine.mean(0), mine.std(0)
    line = Drawn(frames, present.sum(0), *numbers)
    return line._replace(scores=scores[:MOST_RUNS]) if len(scores) > 1 and not tasks.any() else line


def make_panels(
    runs: Sequence[GatheredRun],
    tasks: Sequence[str],
    methods: Sequence[str],
    metric: str,
    problems: list[str],
) -> list[Panel]:
    """Make a panel of every task, with a line for each method; what cannot be drawn is added to the problems.

    Success that is 0 in every run tells no methods apart: there a panel of the returns follows, which may.
    """
    panels = []
    for task in tasks:
        lines = {}
        for method in methods:
            mine = [run for run in runs if (run.task, run.method) == (task, method)]
            curves = curves_of((run for run in mine if _knows(run, metric)), task, method, metric)
            if len(curves) < len(mine):
                missing = counted(len(mine) - len(curves), "run")
                problems.append(f"{task} with {method}: {missing} without {metric}, not drawn.")
            if curves:
                lines[method] = draw(*_side_by_side(curves))
                if waits_for_episodes(mine[0], metric) and np.isnan(lines[method].iqm).all():
                    few = f"at no point have {FEWEST_EPISODES} episodes of every run ended"
                    problems.append(f"{task} with {method}: no line, as {few}.")
        panels.append(Panel(task, lines, label_of(metric, runs), is_share(metric)))
        returns = metric.replace("success_rate", "return_mean")
        if panels[-1].is_zero and returns != metric:
            panels += [each for each in make_panels(runs, [task], methods, returns, []) if not each.is_zero]
    return panels


def label_of(metric: str, runs: Sequence[GatheredRun]) -> str:
    """Return what a metric is."""
    recent = {run.agent.recent_episodes for run in runs if run.agent is not None}
    return LABELS.get(metric, f"column {metric}").format(recent=" or ".join(map(str, sorted(recent))) or "few")


def is_share(metric: str) -> bool:
    """Return whether a metric goes from 0 to 100 %."""
    return metric.endswith(("_rate", "_share"))


def _knows(run: GatheredRun, metric: str) -> bool:
    """Return whether a column has any number in it, where it is there."""
    return metric not in run.columns or bool(np.isfinite(run.columns[metric]).any())


def make_aggregate(runs: Sequence[GatheredRun], tasks: Sequence[str], methods: Sequence[str], metric: str) -> Panel:
    """Put the runs of all tasks into one line for each method, as far as the shortest task goes."""
    lines = {}
    for method in methods:
        by_task = [curves_of(runs, task, method, metric) for task in tasks]
        if not all(by_task):
            continue
        frames, scores, present = _side_by_side([curve for mine in by_task for curve in mine])
        everyone = present.all(0)
        if everyone.any():
            places = np.repeat(np.arange(len(tasks)), [len(mine) for mine in by_task])
            lines[method] = draw(frames[everyone], scores[:, everyone], present[:, everyone], places)
    return Panel(ALL, lines, label_of(metric, runs), is_share(metric))


def _side_by_side(
    curves: Sequence[Curve],
) -> tuple[Int[np.ndarray, " points"], Float[np.ndarray, "runs points"], Bool[np.ndarray, "runs points"]]:
    """Put curves on the same frames, thinned out, and say which of them were there."""
    frames = max((frames for frames, _ in curves), key=len)
    if not all(np.array_equal(each, frames[: len(each)]) for each, _ in curves):
        frames = np.unique(np.concatenate([each for each, _ in curves]))
    frames = frames[_thinned(len(frames))]
    scores = np.stack([np.interp(frames, each, score) for each, score in curves])
    present = np.stack([(each[0] <= frames) & (frames <= each[-1]) for each, _ in curves])
    return frames, np.where(present, scores, np.nan), present


def _thinned(points: int) -> Int[np.ndarray, " kept"]:
    """Return the places of the points that are drawn: all, or some of very many."""
    return np.linspace(0, points - 1, min(points, MOST_POINTS)).round().astype(np.int64)


def lay_over(
    panels: list[Panel],
    overlays: Sequence[ForeignCurves],
    methods: Sequence[str],
    names: Mapping[str, str],
    metric: str,
    problems: list[str],
) -> list[Series]:
    """Add other people's lines to the panels of their tasks, and give their entries of the legend."""
    added: dict[str, Series] = {}
    shown: list[tuple[ForeignCurves, list[Panel]]] = []
    undrawn: dict[str, list[ForeignCurves]] = {}
    for each in overlays:
        wanted = [panel for panel in panels if each.task in (panel.task, panel.short)]
        if wanted and each.metric == metric.removeprefix("eval_"):  # others evaluate too
            shown.append((each, wanted))
        else:
            undrawn.setdefault(each.source, []).append(each)
    drawn = {source for each, _ in shown for source in each.source.split(", ")}
    methods = list(dict.fromkeys((*methods, *(each.method for each, _ in shown))))
    for each, wanted in shown:
        # Curves of one method are one entry of the legend, also where a file each is about another task.
        sources = [other.source for other, _ in shown if other.method == each.method] if each.method else [each.source]
        files = _file_names(", ".join(sources))
        source = files if files == _file_names(each.source) else "several files"
        called = names.get(each.method, each.method)
        name, label = (f"{method}, {source}" if method else source for method in (each.method, called))
        for panel in wanted:
            panel.lines[name] = _foreign_line(each, panel)
        added[name] = Series(name, label, f"read from {files}", method_colour(each.method, methods), is_dashed=True)
    ours = [panel.task for panel in panels]
    for source, curves in undrawn.items():
        if drawn.issuperset(source.split(", ")):
            continue
        tasks = ", ".join(dict.fromkeys(each.task for each in curves))
        metrics = ", ".join(dict.fromkeys(each.metric for each in curves))
        here = metric
        if not any(each.task in (task, short_name(task)) for each in curves for task in ours):
            here += f" on {', '.join(ours)}; --overlay-task says which of these tasks it is about"
        problems.append(f"Nothing of {_file_names(source)} is drawn: it has {metrics} on {tasks}, and here is {here}.")
    return list(added.values())


def _foreign_line(curves: ForeignCurves, panel: Panel) -> Drawn:
    """Draw other people's runs as far as ours go, which would else be hard to see; all where that is nothing."""
    last = max((int(line.frames[-1]) for line in panel.lines.values() if line.frames.size), default=0)
    kept = np.flatnonzero(curves.frames <= last)
    kept = kept if kept.size else np.arange(len(curves.frames))
    kept = kept[_thinned(len(kept))]
    scores = curves.scores[:, kept].astype(np.float64)
    return draw(curves.frames[kept].astype(np.int64), scores, ~np.isnan(scores))


def _file_names(source: str) -> str:
    """Name files without their folders, and those of the same name once: every run may have a monitor.csv."""
    return ", ".join(dict.fromkeys(Path(part).name for part in source.split(", ")))


def make_tables(
    runs: Sequence[GatheredRun],
    tasks: Sequence[str],
    methods: Sequence[str],
    metric: str,
    entry: Study | None,
) -> list[TaskTable]:
    """Make the part of the table that is about each task."""
    planned = {task.name: task for task in entry.tasks} if entry else {}
    tables = []
    for task in tasks:
        curves = {method: curves_of(runs, task, method, metric) for method in methods}
        last = max((int(frames[-1]) for mine in curves.values() for frames, _ in mine), default=0)
        plan = planned.get(task, Task(task, last))
        end = min(last, plan.frames)
        frames = [*(frame for frame in plan.table_frames if frame < end), end]
        rows = {
            method: [_cell(task, method, frame, mine) for frame in frames] for method, mine in curves.items() if mine
        }
        if rows:
            tables.append(TaskTable(task, frames, rows))
    return tables


def _cell(task: str, method: str, frame: int, curves: Sequence[Curve]) -> Cell:
    """Aggregate the runs that reach a frame."""
    scores = scores_at(curves, frame)
    if not scores.size or np.isnan(scores).any():
        return Cell(task, method, frame, scores.size, math.nan, math.nan, math.nan, math.nan)
    groups = [scores[:, None]]
    low, high = interval_ends(resampled_middles(groups, np.random.default_rng(SEED)), scores.size)
    return Cell(task, method, frame, scores.size, float(middles(groups)[0]), low, high, float(scores.mean()))
