"""The report of a study, or of several: one page that needs nothing but itself, with its numbers as files beside it."""

import csv
import io
import math
import os
import re
import shlex
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from matplotlib import rc_context

from vcse.envs.crossing import MAPS
from vcse.runs.checkpoint import write_atomically
from vcse.runs.config import flat
from vcse.runs.words import counted
from vcse.studies import catalog, plots
from vcse.studies.curves import Line
from vcse.studies.foreign import ForeignCurves
from vcse.studies.gathered import CURVES as ARCHIVED_CURVES
from vcse.studies.gathered import GatheredRun, StudyFile, gather, read_study_file, study_directories
from vcse.studies.judge import (
    ALL_TASKS,
    FEWEST_EPISODES,
    OF_EPISODES,
    JudgedClaim,
    Judgement,
    judge,
    metric_curve,
)
from vcse.studies.making import all_of, commit, data_uri, machine, versions
from vcse.studies.statistics import FEWEST_RUNS, middles, percentile_interval, resampled_middles

RESAMPLES = 2000
SEED = 0  # of the bootstrap: the same runs give the same page
MOST_POINTS = 300  # of a line: more than a panel has pixels for
MOST_FILMS, MOST_FILM_BYTES = 3, 2_000_000
FILM_KINDS = {".gif": "image/gif", ".mp4": "video/mp4"}
ALL = "all tasks"
LABELS = {
    "success_rate": "success of the last 100 training episodes",
    "return_mean": "return of the last training episodes",
    "eval_return_mean": "return in evaluation",
    "eval_success_rate": "success in evaluation",
    "beyond_wall_share": "share of visits beyond the wall",
}
SHARES = ("success_rate", "eval_success_rate", "beyond_wall_share")
TOO_FEW = "too few runs"
WORDS = {  # for one claim, and for several
    "holds": ("holds", "hold"),
    "contradicted": ("contradicted", "contradicted"),
    "undecided": ("undecided", "undecided"),
    TOO_FEW: ("with too few runs", "with too few runs"),
    "not run": ("not run", "not run"),
}
# What is configured of a bonus, and says nothing of a run that has none.
OF_BONUS = (
    *("a2c.bonus.", "a2c.beta", "a2c.injection", "a2c.bonus_features", "values"),
    *("sac.bonus.", "sac.beta", "sac.value_critic", "sac.extrinsic_entropy"),
    *("drqv2.bonus.", "drqv2.beta", "drqv2.value_critic", "drqv2.curiosity_pair", "drqv2.injection"),
    "drqv2.bonus_batch_size",
)
BONUS_NAMES = ("a2c.bonus.name", "sac.bonus.name", "drqv2.bonus.name")


class Drawn(NamedTuple):
    """Runs as one line, with all that is said about it at each point; NaN where a run has no score yet."""

    frames: Int[np.ndarray, " points"]
    runs: Int[np.ndarray, " points"]
    iqm: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]
    mean: Float[np.ndarray, " points"]
    std: Float[np.ndarray, " points"]


class Series(NamedTuple):
    """A line's entry in the legend."""

    name: str
    explanation: str
    colour: str
    is_dashed: bool = False


class Panel(NamedTuple):
    """One task and its lines."""

    task: str
    lines: dict[str, Drawn]

    @property
    def family(self) -> str:
        """What comes before the task's own name."""
        family, slash, _ = self.task.rpartition("/")
        return family + slash

    @property
    def short(self) -> str:
        """The task's own name."""
        return _short(self.task)


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


class VisitMap(NamedTuple):
    """Where the agents went, as a picture for light and one for dark pages."""

    task: str
    light: bytes
    dark: bytes


class Film(NamedTuple):
    """A film of a policy."""

    name: str
    kind: str
    content: bytes


@dataclass(frozen=True)
class Section:
    """All that the page says about one study."""

    name: str
    title: str
    source: str
    extent: str  # how many runs of what
    metric: str
    label: str
    series: list[Series]
    panels: list[Panel]
    tables: list[TaskTable]
    claims: list[JudgedClaim]
    maps: list[VisitMap]
    films: list[Film]
    notes: list[str]
    problems: list[str]
    differences: dict[str, dict[str, str]]  # setting, method, value
    common: dict[str, str]
    versions: str
    commit: str
    machine: str
    commands: list[str]
    folder: str  # of its files, beside the page
    is_archive: bool  # the curves lie beside the page already

    @property
    def is_share(self) -> bool:
        """Whether the metric goes from 0 to 100 %."""
        return self.metric in SHARES

    @property
    def methods(self) -> list[Series]:
        """What was run here, not by others."""
        return [each for each in self.series if not each.is_dashed]

    @property
    def is_of_episodes(self) -> bool:
        """Whether the metric is known only when some episodes have ended."""
        return self.metric in OF_EPISODES

    @property
    def files(self) -> list[str]:
        """What lies beside the page."""
        names = ["table.csv", *(["claims.csv"] if self.claims else []), *(["curves.png"] if self.drawable else [])]
        if self.is_archive:
            return names
        return ["curves.csv", *names, *(["curves.svg"] if self.drawable else [])]

    @property
    def drawable(self) -> dict[str, dict[str, Line]]:
        """Our own lines that have at least one point, by task and method."""
        ours = [each.name for each in self.methods]
        lines = {
            panel.task: {
                method: Line(each.frames, each.iqm, each.low, each.high)
                for method, each in panel.lines.items()
                if method in ours and np.isfinite(each.iqm).any()
            }
            for panel in self.panels
        }
        return {task: mine for task, mine in lines.items() if mine}

    @property
    def verdicts(self) -> list[tuple[str, int, str]]:
        """How many claims came out how: the verdict, the number, the word for so many."""
        counted: Counter[str] = Counter(outcome(claim) for claim in self.claims)
        return [
            (verdict, counted[verdict], one if counted[verdict] == 1 else several)
            for verdict, (one, several) in WORDS.items()
            if counted[verdict]
        ]


class _Found(NamedTuple):
    """The runs of a directory, before anything is made of them."""

    directory: Path
    without: Sequence[Path]
    runs: list[GatheredRun]
    problems: list[str]
    asked: StudyFile | None
    entry: catalog.Study | None

    @property
    def tasks(self) -> list[str]:
        """What was run, in the order of the study."""
        return _ordered({run.task: None for run in self.runs}, self.entry.task_names if self.entry else ())

    @property
    def is_aggregated(self) -> bool:
        """Whether a panel shows all tasks together."""
        return self.entry is not None and self.entry.figure == "aggregate" and len(self.tasks) > 1


def write_report(
    directory: Path,
    out: Path | None = None,
    overlays: Sequence[ForeignCurves] = (),
    *,
    overlay_task: str | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the page about the runs below a directory, with its figures and tables beside it, and give its path.

    Args:
        directory: A study, a directory of studies, or any runs.
        out: Where the page goes; the folder `report` in the directory if it is not given.
        overlays: Other people's curves, drawn as dashed lines where the task is the same.
        overlay_task: The task that the overlays are said to be about; refused where it is none of those that were run.
        progress: Told what is being done, and what was found wrong.
    """
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a directory")
    out = directory / "report" if out is None else out
    # All that can be refused is, before the slow part.
    found = _find_all(directory, progress)
    if overlay_task is not None:
        _check_overlay_task(overlay_task, found)
    _check_writable(out)
    sections: list[Section] = []
    for each in found:
        sections.append(_section(each, overlays, taken=sections, progress=progress))
    if len(sections) > 1:
        titles = Counter(section.title for section in sections)
        places = [_place(each.directory, directory) for each in found]
        sections = [
            replace(
                section,
                folder=f"{section.name}/",
                title=f"{section.title} ({place})" if titles[section.title] > 1 else section.title,
            )
            for section, place in zip(sections, places, strict=True)
        ]
    for section in sections:
        progress(f"{section.title}: drawing {counted(len(section.panels), 'panel')}")
        _write_files(section, out / section.folder)
    page = out / "index.html"
    write_atomically(page, _render(sections, directory.resolve().name).encode())
    return page


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
    is_pair = not isinstance(claim.claim, catalog.ZeroClaim)
    fewest = [min(each.runs, each.other_runs) if is_pair else each.runs for each in judged]
    # A task of which every run was left out has no number at all, and more runs might not help.
    if verdict == "undecided" and judged and all(0 < runs < FEWEST_RUNS for runs in fewest):
        return TOO_FEW
    return verdict


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
    return Drawn(frames, present.sum(0), *numbers)


def _find_all(directory: Path, progress: Callable[[str], None]) -> list[_Found]:
    """Read each study below a directory, and then the runs that are of none."""
    studies = study_directories(directory)
    found = [_find(path, progress) for path in studies]
    if directory not in studies:
        try:
            found.append(_find(directory, progress, without=studies))
        except ValueError:  # no runs outside the studies
            if not studies:
                raise
    return found


def _find(directory: Path, progress: Callable[[str], None], without: Sequence[Path] = ()) -> _Found:
    progress(f"reading {directory}")
    runs, problems = gather(directory, without=without)
    if not runs:
        raise ValueError(f"{directory} holds no run that can be read: {problems[0]}")
    return _Found(directory, without, runs, problems, *_asked(directory, problems))


def _check_overlay_task(name: str, found: Sequence[_Found]) -> None:
    tasks = dict.fromkeys(task for each in found for task in each.tasks)
    shown = [*tasks, *([ALL] if any(each.is_aggregated for each in found) else [])]
    if not any(name in (task, _short(task)) for task in shown):
        raise ValueError(f"--overlay-task must be one of {', '.join(shown)}, got {name!r}")


def _check_writable(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        reason = "it is a file" if out.is_file() else error.strerror
        raise ValueError(
            f"the report cannot be written to {out}: {reason}; --out names the directory that it goes to"
        ) from error


def _section(
    found: _Found, overlays: Sequence[ForeignCurves], *, taken: Sequence[Section], progress: Callable[[str], None]
) -> Section:
    directory, without, runs, problems, asked, entry = found
    task_names = found.tasks
    methods = _ordered({run.method: None for run in runs}, entry.method_names if entry else tuple(plots.METHOD_COLOURS))
    metric = entry.metric if entry else _metric(runs)
    progress(_extent(runs, task_names, methods))
    problems += _gaps(runs, asked)
    panels = _panels(runs, task_names, methods, metric, problems)
    if found.is_aggregated:
        panels.insert(0, _aggregate(runs, task_names, methods, metric))
    explanations = {method.name: method.explanation for method in entry.methods} if entry else {}
    series = [Series(method, explanations.get(method, ""), plots.method_colour(method, methods)) for method in methods]
    series += _overlay(panels, overlays, methods, metric, problems)
    if entry and entry.claims:
        progress(f"judging {counted(len(entry.claims), 'claim')}")
    differences, common = _settings(runs, methods)
    section = Section(
        name=_unique(entry.name if entry else directory.resolve().name, [each.name for each in taken]),
        title=entry.title if entry else f"Runs in {directory.resolve().name}",
        source=_source(entry),
        extent=_extent(runs, task_names, methods),
        metric=metric,
        label=LABELS.get(metric, metric),
        series=series,
        panels=panels,
        tables=_tables(runs, task_names, methods, metric, entry),
        claims=judge(entry, runs) if entry else [],
        maps=_maps(runs, task_names, methods, problems) if entry and entry.figure == "visits" else [],
        films=_films(directory, without, problems),
        notes=list(entry.notes) if entry else [],
        problems=problems,
        differences=differences,
        common=common,
        versions=all_of(versions(run.meta) for run in runs),
        commit=all_of(commit(run.meta) for run in runs),
        machine=all_of(machine(run.meta) for run in runs),
        commands=asked.command.splitlines() if asked else _commands(runs),
        folder="",
        is_archive=(found.directory / ARCHIVED_CURVES).exists(),
    )
    for problem in problems:
        progress(problem)
    return section


def _asked(directory: Path, problems: list[str]) -> tuple[StudyFile | None, catalog.Study | None]:
    """Give what was asked for, and the entry of the catalogue; neither where the directory does not say."""
    try:
        asked = read_study_file(directory)
        entry = None if asked is None else catalog.study(asked.study)
    except ValueError as error:
        problems.append(f"No claim is judged: {str(error).replace(str(directory), directory.name)}.")
        return None, None
    if entry is not None and asked is not None and asked.frames is not None:
        entry = catalog.narrowed(entry, frames=asked.frames)
    return asked, entry


def _source(entry: catalog.Study | None) -> str:
    if entry is None:
        return ""
    is_ours = entry.source.startswith("ours")
    return f"O{entry.source[1:]}" if is_ours else f"In the paper: {entry.source}"


def _extent(runs: Sequence[GatheredRun], tasks: Sequence[str], methods: Sequence[str]) -> str:
    per_arm = Counter((run.task, run.method) for run in runs).values()
    fewest, most = min(per_arm), max(per_arm)
    seeds = counted(most, "seed") if fewest == most else f"{fewest} to {most} seeds"
    parts = (counted(len(tasks), "task"), counted(len(methods), "method"), f"{seeds} each")
    unfinished = sum(not run.done for run in runs)
    note = f"; {unfinished if unfinished < len(runs) else 'all'} of them not finished" if unfinished else ""
    return f"{counted(len(runs), 'run')}: {', '.join(parts)}{note}"


def _gaps(runs: Sequence[GatheredRun], asked: StudyFile | None) -> list[str]:
    """Say which runs are not whole or not there."""
    said = []
    unfinished = [run for run in runs if not run.done]
    if unfinished:
        said.append(f"{counted(len(unfinished), 'run')} of {len(runs)} not finished: their curves end early.")
    if asked is not None:
        there = {run.identity for run in runs}
        wanted = [
            (task, method, seed)
            for task in asked.tasks
            for method in asked.methods
            for seed in range(asked.first_seed, asked.first_seed + asked.seeds)
        ]
        missing = [each for each in wanted if each not in there]
        if missing:
            task, method, seed = missing[0]
            said.append(
                f"{len(missing)} of the {counted(len(wanted), 'run')} that were asked for are not here; "
                f"the first is {task} with {method}, seed {seed}."
            )
    return said


def _metric(runs: Sequence[GatheredRun]) -> str:
    """Give what is drawn where no study says it."""
    for metric in ("eval_success_rate", "success_rate", "eval_return_mean", "return_mean"):
        if all(np.isfinite(run.columns.get(metric, np.full(1, np.nan))).any() for run in runs):
            return metric
    return next(iter(runs[0].columns), "success_rate")


def _panels(
    runs: Sequence[GatheredRun], tasks: Sequence[str], methods: Sequence[str], metric: str, problems: list[str]
) -> list[Panel]:
    panels = []
    for task in tasks:
        lines = {}
        for method in methods:
            mine = [run for run in runs if (run.task, run.method) == (task, method)]
            curves = [curve for run in mine if (curve := metric_curve(run, metric)) is not None]
            if len(curves) < len(mine):
                missing = counted(len(mine) - len(curves), "run")
                problems.append(f"{task} with {method}: {missing} without {metric}, not drawn.")
            if curves:
                lines[method] = draw(*_side_by_side(curves))
                if metric in OF_EPISODES and np.isnan(lines[method].iqm).all():
                    few = f"at no point have {FEWEST_EPISODES} episodes of every run ended"
                    problems.append(f"{task} with {method}: no line, as {few}.")
        panels.append(Panel(task, lines))
    return panels


def _aggregate(runs: Sequence[GatheredRun], tasks: Sequence[str], methods: Sequence[str], metric: str) -> Panel:
    """Put the runs of all tasks into one line for each method, as far as the shortest task goes."""
    lines = {}
    for method in methods:
        curves, places = [], []
        for place, task in enumerate(tasks):
            for run in runs:
                if (run.task, run.method) == (task, method) and (curve := metric_curve(run, metric)) is not None:
                    curves.append(curve)
                    places.append(place)
        if len(set(places)) == len(tasks):
            frames, scores, present = _side_by_side(curves)
            everyone = present.all(0)
            lines[method] = draw(
                frames[everyone], scores[:, everyone], present[:, everyone], np.array(places, dtype=np.int64)
            )
    return Panel(ALL, {method: line for method, line in lines.items() if line.frames.size})


def _side_by_side(
    curves: Sequence[tuple[Int[np.ndarray, " _"], Float[np.ndarray, " _"]]],
) -> tuple[Int[np.ndarray, " points"], Float[np.ndarray, "runs points"], Bool[np.ndarray, "runs points"]]:
    """Put curves on the same frames, thinned out, and say which of them were there."""
    frames = max((frames for frames, _ in curves), key=len)
    if not all(np.array_equal(each, frames[: len(each)]) for each, _ in curves):
        frames = np.unique(np.concatenate([each for each, _ in curves]))
    if len(frames) > MOST_POINTS:
        frames = frames[np.linspace(0, len(frames) - 1, MOST_POINTS).round().astype(int)]
    scores = np.stack([np.interp(frames, each, score) for each, score in curves])
    present = np.stack([(each[0] <= frames) & (frames <= each[-1]) for each, _ in curves])
    return frames, np.where(present, scores, np.nan), present


def _overlay(
    panels: list[Panel], overlays: Sequence[ForeignCurves], methods: Sequence[str], metric: str, problems: list[str]
) -> list[Series]:
    """Add other people's lines to the panels of their tasks, and give their entries of the legend."""
    names = list(methods)
    added: dict[str, Series] = {}
    drawn: set[str] = set()
    undrawn: dict[str, list[ForeignCurves]] = {}
    for each in overlays:
        wanted = [panel for panel in panels if each.task in (panel.task, panel.short)]
        source = ", ".join(Path(part).name for part in each.source.split(", "))
        if not wanted or each.metric != metric.removeprefix("eval_"):  # others evaluate too
            undrawn.setdefault(source, []).append(each)
            continue
        if each.method not in names:
            names.append(each.method)
        frames, scores = each.frames, each.scores
        if len(frames) > MOST_POINTS:
            kept = np.linspace(0, len(frames) - 1, MOST_POINTS).round().astype(int)
            frames, scores = frames[kept], scores[:, kept]
        line = draw(frames.astype(np.int64), scores.astype(np.float64), ~np.isnan(scores))
        name = f"{each.method}, {source}" if each.method else source
        drawn.add(source)
        for panel in wanted:
            panel.lines[name] = line
        added[name] = Series(name, f"read from {source}", plots.method_colour(each.method, names), is_dashed=True)
    ours = [panel.task for panel in panels]
    for source, curves in undrawn.items():
        if source in drawn:
            continue
        tasks, metrics = (
            ", ".join(dict.fromkeys(each)) for each in zip(*((c.task, c.metric) for c in curves), strict=True)
        )
        here = metric
        if not any(each.task in (task, _short(task)) for each in curves for task in ours):
            here += f" on {', '.join(ours)}; --overlay-task says which of these tasks it is about"
        problems.append(f"Nothing of {source} is drawn: it has {metrics} on {tasks}, and here is {here}.")
    return list(added.values())


def _tables(
    runs: Sequence[GatheredRun],
    tasks: Sequence[str],
    methods: Sequence[str],
    metric: str,
    entry: catalog.Study | None,
) -> list[TaskTable]:
    planned = {task.name: task for task in entry.tasks} if entry else {}
    tables = []
    for task in tasks:
        curves = {
            method: [
                curve
                for run in runs
                if (run.task, run.method) == (task, method) and (curve := metric_curve(run, metric)) is not None
            ]
            for method in methods
        }
        last = max((int(frames[-1]) for mine in curves.values() for frames, _ in mine), default=0)
        end = min(last, planned[task].frames) if task in planned else last
        frames = [frame for frame in planned[task].table_frames if frame < end] if task in planned else []
        frames.append(end)
        rows = {
            method: [_cell(task, method, frame, mine) for frame in frames] for method, mine in curves.items() if mine
        }
        if rows:
            tables.append(TaskTable(task, frames, rows))
    return tables


def _cell(
    task: str,
    method: str,
    frame: int,
    curves: Sequence[tuple[Int[np.ndarray, " _"], Float[np.ndarray, " _"]]],
) -> Cell:
    """Aggregate the runs that reach a frame, at their first row that is not before it."""
    scores = np.array(
        [score[np.searchsorted(frames, frame)] for frames, score in curves if frames[-1] >= frame], dtype=float
    )
    if not scores.size or np.isnan(scores).any():
        return Cell(task, method, frame, scores.size, math.nan, math.nan, math.nan, math.nan)
    groups = [scores[:, None]]
    low = high = math.nan  # one run drawn again and again is no interval
    if scores.size > 1:
        interval = percentile_interval(resampled_middles(groups, np.random.default_rng(SEED)))
        low, high = (float(each[0]) for each in interval)
    return Cell(task, method, frame, scores.size, float(middles(groups)[0]), low, high, float(scores.mean()))


def _maps(
    runs: Sequence[GatheredRun], tasks: Sequence[str], methods: Sequence[str], problems: list[str]
) -> list[VisitMap]:
    """Draw the visits of all runs of a method together, on each task that counted them."""
    maps = []
    for task in tasks:
        counted = [run for run in runs if run.task == task and run.visits is not None and len(run.visits)]
        if not counted:
            continue
        slices = min(len(run.visits) for run in counted if run.visits is not None)
        walls = _walls(task, [run.visits for run in counted if run.visits is not None])
        width, height = walls.shape
        visits: dict[str, Shaped[np.ndarray, "slices x y"]] = {}
        for method in methods:
            mine = [
                run.visits[:slices, :width, :height]
                for run in counted
                if run.method == method and run.visits is not None
            ]
            if mine:
                visits[method] = np.sum(mine, axis=0)
        beyond = ~walls & (np.arange(width)[:, None] > catalog.CROSSED_WALL)
        every = int(counted[0].config.get("visits_every_frames", 0))
        try:
            light, dark = (
                plots.to_png(plots.visit_maps(visits, walls, beyond, frames_per_snapshot=every, theme=theme), 110)
                for theme in plots.THEMES
            )
        except ValueError as error:
            problems.append(f"The visits on {task} are not drawn: {error}.")
            continue
        maps.append(VisitMap(task, light, dark))
    return maps


def _walls(task: str, visits: Sequence[Shaped[np.ndarray, "_ x y"]]) -> Bool[np.ndarray, "width height"]:
    """Give the cells that cannot be entered: those of the task's map, or else those where nobody ever was."""
    numbered = re.search(r"-map(\d+)$", task)
    if numbered and int(numbered[1]) < len(MAPS):
        side = 9
        known = MAPS[int(numbered[1])]
        return np.array([[known.is_wall(x, y) for y in range(side)] for x in range(side)])
    entered = np.sum([each.sum(0) for each in visits], axis=0) > 0
    places = np.argwhere(entered)
    width, height = places.max(0) + 2 if len(places) else entered.shape
    return np.asarray(~entered[:width, :height])


def _films(directory: Path, without: Sequence[Path], problems: list[str]) -> list[Film]:
    """Read the small films that lie with the runs."""
    skipped = {each.resolve() for each in without}
    found = []
    for root, directories, files in os.walk(directory):
        directories[:] = sorted(
            each
            for each in directories
            if each not in ("report", "checkpoint") and (Path(root) / each).resolve() not in skipped
        )
        found += [Path(root) / name for name in sorted(files) if Path(name).suffix.lower() in FILM_KINDS]
    small = [path for path in found if path.stat().st_size < MOST_FILM_BYTES]
    if len(small) < len(found):
        large = counted(len(found) - len(small), "film")
        problems.append(f"{large} of {MOST_FILM_BYTES / 1e6:.0f} MB or more: not shown here.")
    return [
        Film(str(path.relative_to(directory)), FILM_KINDS[path.suffix.lower()], path.read_bytes())
        for path in small[:MOST_FILMS]
    ]


def _settings(runs: Sequence[GatheredRun], methods: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Split the settings of runs into those in which methods differ and those that all share.

    Settings of a bonus are those of the methods that have one.
    """
    found: dict[str, dict[str, dict[str, None]]] = {}
    paid = {run.method for run in runs if "none" not in map(flat(run.config).get, BONUS_NAMES)}
    for run in runs:
        for name, value in flat(run.config).items():
            if name not in ("schema_version", "task", "method", "seed"):
                found.setdefault(name, {}).setdefault(run.method, {})[_shown(name, value)] = None
    differences, common = {}, {}
    for name, by_method in found.items():
        is_of_bonus = name.startswith(OF_BONUS) and name not in BONUS_NAMES
        asked = [method for method in methods if method in paid or not is_of_bonus]
        told = {method: ", ".join(by_method.get(method, {"–": None})) for method in asked}
        if len(set(told.values())) == 1:
            common[name] = told[asked[0]]
        elif told:
            differences[name] = dict.fromkeys(methods, "–") | told
    return differences, common


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "learned" if name == "sac.temperature" else "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _commands(runs: Sequence[GatheredRun]) -> list[str]:
    """Give what the runs were made by; some may have been trained by one command and made longer by another."""
    told = dict.fromkeys(
        f"vcse {shlex.join(map(str, command))}" for run in runs if (command := run.meta.get("command"))
    )
    return list(told)


def _write_files(section: Section, out: Path) -> None:
    """Write a study's figure and numbers as files."""
    drawn = section.drawable
    if drawn:
        # Without these two, the same runs would give another file each time.
        with rc_context({"svg.hashsalt": "vcse"}):
            figure = plots.success_curves(
                drawn, label=section.label.replace("the last 100 ", ""), is_share=section.is_share
            )
            write_atomically(out / "curves.png", plots.to_png(figure, 130))
            if not section.is_archive:
                picture = io.BytesIO()
                figure.savefig(picture, format="svg", metadata={"Date": None})
                write_atomically(out / "curves.svg", picture.getvalue())
    for number, each in enumerate(section.maps):
        write_atomically(out / f"visits{number or ''}.png", each.light)
    points = (
        (panel.task, method, *point)
        for panel in section.panels
        for method, each in panel.lines.items()
        for point in zip(*(column.tolist() for column in each), strict=True)
    )
    if not section.is_archive:
        _write_csv(out / "curves.csv", ("task", "method", *_CURVE_COLUMNS), points)
    cells = (cell for table in section.tables for row in table.rows.values() for cell in row)
    _write_csv(out / "table.csv", Cell._fields, cells)
    judged = (
        (claim.claim.says, "ours" if claim.claim.ours else "paper", claim.measure, *judgement)
        for claim in section.claims
        for judgement in claim.judgements
    )
    if section.claims:
        _write_csv(out / "claims.csv", ("claim", "by", "measure", *Judgement._fields), judged)


_CURVE_COLUMNS = ("frame", "runs", "iqm", "low", "high", "mean", "std")


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    for row in rows:
        writer.writerow(["" if isinstance(cell, float) and math.isnan(cell) else cell for cell in row])
    write_atomically(path, text.getvalue().encode())


def _render(sections: Sequence[Section], title: str) -> str:
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("vcse.studies"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.filters |= {"data_uri": data_uri, "thousands": _thousands, "score": _score, "gain": _gain}
    templates.filters |= {"short": _short, "words": _words}
    templates.globals |= {"outcome": outcome, "deciding": deciding, "reach": _reach, "ALL_TASKS": ALL_TASKS}
    templates.globals |= {"FEWEST_EPISODES": FEWEST_EPISODES, "FEWEST_RUNS": FEWEST_RUNS}
    return templates.get_template("report.html").render(
        title=sections[0].title if len(sections) == 1 else title,
        sections=sections,
        drawing=[_drawing(section) for section in sections],
    )


def _drawing(section: Section) -> dict[str, Any]:
    """Give what the page draws from."""
    return {
        "name": section.name,
        "isShare": section.is_share,
        "series": [each._asdict() for each in section.series],
        "panels": [
            {
                "task": panel.task,
                "lines": {
                    method: {
                        "frames": line.frames.tolist(),
                        "runs": line.runs.tolist() if len(set(line.runs.tolist())) > 1 else int(line.runs[0]),
                        **{name: _rounded(getattr(line, name)) for name in ("iqm", "low", "high", "std")},
                    }
                    for method, line in panel.lines.items()
                    if line.frames.size
                },
            }
            for panel in section.panels
        ],
    }


def _rounded(numbers: Float[np.ndarray, " points"]) -> list[float | None]:
    """Keep as many digits as can be seen."""
    return [None if math.isnan(each) else float(f"{each:.5g}") for each in numbers.tolist()]


def _reach(claim: JudgedClaim) -> float:
    """Give how far from 0 the numbers and intervals of a claim go."""
    numbers = (end for each in claim.judgements for end in (each.difference, each.low, each.high))
    ends = [abs(end) for end in numbers if not math.isnan(end)]
    return max(ends, default=0.0) or 1.0


def _score(number: float, is_share: bool, digits: int = 1) -> str:
    if math.isnan(number):
        return "–"
    return f"{100 * number:.{digits}f}%" if is_share else f"{number:.3g}" if abs(number) < 100 else f"{number:,.0f}"


def _gain(number: float, is_share: bool) -> str:
    """Write a difference with its sign; of shares, in percentage points."""
    if math.isnan(number):
        return "–"
    told = f"{100 * number:+.1f}" if is_share else f"{number:+.3g}"
    return told.replace("-", "\N{MINUS SIGN}")


def _thousands(frames: int) -> str:
    if frames >= 1_000_000:
        return f"{frames / 1e6:.3g}M"
    return f"{frames / 1e3:.3g}K" if frames >= 1000 else str(frames)


def _ordered(found: Iterable[str], wanted: Sequence[str]) -> list[str]:
    """Give names in the order wanted, then what else was found."""
    names = list(found)
    return [name for name in wanted if name in names] + [name for name in names if name not in wanted]


def _short(task: str) -> str:
    """Give the task's own name, without that of its family."""
    return task.rpartition("/")[2]


def _words(name: str) -> list[str]:
    """Split a name such as SimpleCrossingS9N1 where it may go on in the next line."""
    return re.split(r"(?<=[a-z])(?=[A-Z])", name)


def _place(path: Path, directory: Path) -> str:
    """Give where a study lies as seen from the directory that the page is about."""
    return path.resolve().name if path == directory else str(path.relative_to(directory))


def _unique(name: str, taken: Sequence[str]) -> str:
    """Give a name that can stand in a link and name a folder, and that no other has."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "runs"
    number, free = 2, plain
    while free in taken:
        free, number = f"{plain}-{number}", number + 1
    return free
