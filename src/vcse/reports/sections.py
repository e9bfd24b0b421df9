"""What a page says about one study: found in its directory, judged, and put into lines, tables, maps and words."""

import math
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from vcse.agents import agent_entry, agent_names
from vcse.agents.presets import has_effect
from vcse.bonuses.registry import bonus_names
from vcse.reports import figures
from vcse.reports.external_curves import ForeignCurves
from vcse.reports.loaded_run import GatheredRun
from vcse.reports.loaded_runs import NoRunError, gather, likely_metric, study_directories
from vcse.reports.media import Film, VisitMap, find_films, visit_maps
from vcse.reports.panels import (
    ALL,
    Cell,
    Series,
    TaskTable,
    is_share,
    label_of,
    lay_over,
    make_aggregate,
    make_panels,
    make_tables,
)
from vcse.reports.provenance import all_of, commit, machine, versions
from vcse.reports.verdicts import (
    TOO_FEW,
    Corrected,
    JudgedClaim,
    count_corrected,
    is_judged,
    judge,
    outcome,
    waits_for_episodes,
)
from vcse.runs.command import TRAINING_VERBS
from vcse.runs.config import flat
from vcse.runs.formatting import counted
from vcse.studies.catalog import study
from vcse.studies.manifest import ARCHIVED_CURVES, StudyFile, read_study_file
from vcse.studies.study import BONUSES_IN_WORDS, Study, narrowed

MOST_OF_FEW = 4  # runs: more than 2.5 % of all resamples have nothing but the lowest in their middle half
WORDS = {  # for one claim, and for several
    "holds": ("holds", "hold"),
    "contradicted": ("contradicted", "contradicted"),
    "undecided": ("undecided", "undecided"),
    TOO_FEW: ("with too few runs", "with too few runs"),
    "not run": ("not run", "not run"),
}
NO_SETTINGS = ("schema_version", "task", "method", "seed", "keep_replay")
BONUS_NAME = ".bonus.name"  # behind the name of the agent


@dataclass(frozen=True)
class Section:
    """All that the page says about one study."""

    name: str
    title: str
    source: str
    extent: str  # how many runs of what
    metric: str
    label: str
    names: dict[str, str]  # of methods, in words
    series: list[Series]
    panels: list[figures.Panel]
    tables: list[TaskTable]
    claims: list[JudgedClaim]
    claims_left_out: int  # of the study, about methods that were not run
    of_control: list[JudgedClaim]  # those that compare VCSE with what differs from it in the value alone
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
    is_archive: bool  # the curves lie beside the page already
    is_of_episodes: bool  # the metric is known only when some episodes have ended
    folder: str = ""  # of its files, beside the page

    @property
    def is_share(self) -> bool:
        """Return whether the metric goes from 0 to 100 %."""
        return is_share(self.metric)

    @property
    def methods(self) -> list[Series]:
        """What was run here, not by others."""
        return [each for each in self.series if not each.is_dashed]

    @property
    def has_few_runs(self) -> bool:
        """Return whether an interval of the table is of so few runs that it goes from the lowest to the highest."""
        cells = (cell for table in self.tables for cells in table.rows.values() for cell in cells)
        return any(1 < cell.runs <= MOST_OF_FEW for cell in cells)

    @property
    def files(self) -> list[str]:
        """What lies beside the page."""
        names = ["table.csv", *(["claims.csv"] if self.claims else []), *(["curves.png"] if self.drawable else [])]
        if self.is_archive:
            return names
        return ["curves.csv", *names, *(["curves.svg"] if self.drawable else [])]

    @property
    def has_fewer_somewhere(self) -> bool:
        """Return whether a line of ours has fewer runs at some points than at others."""
        return not all(line.is_of_all.all() for panel in self.drawable for line in panel.lines.values())

    @property
    def has_hidden_runs(self) -> bool:
        """Return whether some method has more runs than are drawn one by one."""
        lines = [line for panel in self.drawable for line in panel.lines.values()]
        return any(0 < len(line.scores) < line.runs.max() for line in lines)

    @property
    def drawable(self) -> list[figures.Panel]:
        """Our own lines that have at least one point, on the panels that have any."""
        ours = [each.name for each in self.methods]
        kept = [
            {name: line for name, line in panel.lines.items() if name in ours and np.isfinite(line.iqm).any()}
            for panel in self.panels
        ]
        return [panel._replace(lines=lines) for panel, lines in zip(self.panels, kept, strict=True) if lines]

    @property
    def highest_first(self) -> list[Cell]:
        """Return how the methods of the only task ended, by their mean; nothing where there are several tasks."""
        ends = [cells[-1] for cells in self.tables[0].rows.values()] if len(self.tables) == 1 else []
        return sorted(ends, key=lambda cell: math.inf if math.isnan(cell.mean) else -cell.mean)

    @property
    def keys(self) -> dict[str, int]:
        """Return a number for each method where their names do not fit beside the lines; else nothing."""
        if figures.fit_beside([each.label for each in self.methods]):
            return {}
        return {each.name: number for number, each in enumerate(self.methods, 1)}

    @property
    def control_first(self) -> list[JudgedClaim]:
        """Return all claims, those about the control without the value before the others."""
        return [*self.of_control, *(each for each in self.claims if each not in self.of_control)]

    @property
    def has_paired(self) -> bool:
        """Return whether two methods of a claim share seeds."""
        return any(not math.isnan(each.paired_low) for claim in self.claims for each in claim.judgements)

    @property
    def corrected(self) -> list[Corrected]:
        """Return what is left of the verdicts when they are corrected for how many they are."""
        return count_corrected(self.claims)

    @property
    def verdicts(self) -> list[tuple[str, int, str]]:
        """How many claims came out how: the verdict, the number, the word for so many."""
        counted: Counter[str] = Counter(outcome(claim) for claim in self.claims)
        return [
            (verdict, counted[verdict], one if counted[verdict] == 1 else several)
            for verdict, (one, several) in WORDS.items()
            if counted[verdict]
        ]


class Found(NamedTuple):
    """The runs of a directory, before anything is made of them."""

    directory: Path
    without: Sequence[Path]
    runs: list[GatheredRun]
    problems: list[str]
    asked: StudyFile | None
    entry: Study | None

    @property
    def tasks(self) -> list[str]:
        """What was run, in the order of the study."""
        return _ordered({run.task: None for run in self.runs}, self.entry.task_names if self.entry else ())

    @property
    def is_aggregated(self) -> bool:
        """Return whether a panel shows all tasks together."""
        return self.entry is not None and self.entry.figure == "aggregate" and len(self.tasks) > 1


def find_all(directory: Path, entry: Study | None, progress: Callable[[str], None]) -> list[Found]:
    """Read each study below a directory, and then the runs that are of none; an entry is taken for the catalogue's."""
    studies = study_directories(directory)
    found: list[Found] = []
    unreadable: list[ValueError] = []  # such as a study that has not begun, which does not hide the others
    for path in studies if directory in studies else [*studies, directory]:
        without = studies if path not in studies else ()
        progress(f"reading {path}")
        try:
            found.append(_find(path, without, entry))
        except ValueError as error:
            if not (without and isinstance(error, NoRunError)):  # beside studies there need be no other runs
                unreadable.append(error)
    if not found:
        raise unreadable[0]
    for each in unreadable:
        progress(str(each))
    return found


def _find(directory: Path, without: Sequence[Path], entry: Study | None) -> Found:
    runs, problems = gather(directory, without=without)
    if not runs:
        raise ValueError(f"{directory} holds no run that can be read: {problems[0]}")
    return Found(directory, without, runs, problems, *_asked(directory, entry, problems))


def check_overlay_task(name: str, found: Sequence[Found]) -> None:
    """Refuse a task for other people's curves that was not run here."""
    tasks = dict.fromkeys(task for each in found for task in each.tasks)
    shown = [*tasks, *([ALL] if any(each.is_aggregated for each in found) else [])]
    if not any(name in (task, figures.short_name(task)) for task in shown):
        raise ValueError(f"--overlay-task must be one of {', '.join(shown)}, got {name!r}")


def check_column(name: str, found: Sequence[Found]) -> None:
    """Refuse a column that no run has, or that is empty in all of them."""
    runs = [run for each in found for run in each.runs]
    names = dict.fromkeys(column for run in runs for column in run.columns)
    if name not in names:
        raise ValueError(f"--column must be one of {', '.join(names)}, got {name!r}")
    if not any(np.isfinite(run.columns[name]).any() for run in runs if name in run.columns):
        raise ValueError(f"--column {name} holds no number in any of {counted(len(runs), 'run')}")


def make_section(
    found: Found,
    overlays: Sequence[ForeignCurves],
    *,
    column: str | None,
    taken: Sequence[Section],
    progress: Callable[[str], None],
) -> Section:
    """Put together all that is said about one study; its claims are about what it is judged by, and no other column."""
    directory, without, runs, problems, asked, entry = found
    task_names = found.tasks
    methods = _ordered(
        {run.method: None for run in runs}, entry.method_names if entry else tuple(figures.METHOD_COLOURS)
    )
    metric = column or (entry.metric if entry else likely_metric(runs))
    claimed = entry if entry and entry.claims and entry.metric == metric else None
    extent = _extent(runs, task_names, methods)
    progress(extent)
    problems += _gaps(runs, asked)
    panels = make_panels(runs, task_names, methods, metric, problems)
    if found.is_aggregated:
        panels.insert(0, make_aggregate(runs, task_names, methods, metric))
    names, series = _in_words(entry, methods)
    drawn = [each for each in series if any(each.name in panel.lines for panel in panels)] or series
    series = drawn + lay_over(panels, overlays, methods, names, metric, problems)
    differences, common = _settings(runs, methods)
    claims, left_out = [], 0
    if claimed:
        left_out = sum(not is_judged(each, methods) for each in claimed.claims)
        progress(f"judging {counted(len(claimed.claims) - left_out, 'claim')}")
        claims = judge(claimed, runs, asked.wanted_tasks if asked else ())
    section = Section(
        name=_unique(entry.name if entry else directory.resolve().name, [each.name for each in taken]),
        title=entry.title if entry else f"Runs in {directory.resolve().name}",
        source=_source(entry),
        extent=extent + ("" if column is None else f". Shown is the column {column}"),
        metric=metric,
        label=label_of(metric, runs),
        names=names,
        series=series,
        panels=panels,
        tables=make_tables(runs, task_names, [each.name for each in drawn], metric, entry),
        claims=claims,
        claims_left_out=left_out,
        of_control=[each for each in claims if entry and entry.is_about_control(each.claim)],
        maps=visit_maps(runs, task_names, methods, names, problems) if entry and entry.figure == "visits" else [],
        films=find_films(directory, without, problems),
        notes=list(entry.notes) if entry else [],
        problems=problems,
        differences=differences,
        common=common,
        versions=all_of(versions(run.meta) for run in runs),
        commit=all_of(commit(run.meta) for run in runs),
        machine=all_of(machine(run.meta) for run in runs),
        commands=asked.commands if asked else _commands(runs),
        is_archive=(directory / ARCHIVED_CURVES).exists(),
        is_of_episodes=any(waits_for_episodes(run, metric) for run in runs),
    )
    for problem in problems:
        progress(problem)
    return section


def _in_words(entry: Study | None, methods: Sequence[str]) -> tuple[dict[str, str], list[Series]]:
    """Return what methods are called, those of the study that were not run included, and the entries of the legend."""
    known = {method.name: method for method in (*entry.methods, *entry.beside)} if entry else {}
    names = BONUSES_IN_WORDS | {name: method.in_words for name, method in known.items()}
    explanations = {name: method.explanation for name, method in known.items()}
    return names, [
        Series(name, names.get(name, name), explanations.get(name, ""), figures.method_colour(name, methods))
        for name in methods
    ]


def _asked(directory: Path, entry: Study | None, problems: list[str]) -> tuple[StudyFile | None, Study | None]:
    """Return what was asked for, and the entry of the catalogue if none is given; neither where nothing says it."""
    try:
        asked = read_study_file(directory)
        if asked is None or entry is not None:
            return asked, entry
        entry = study(asked.study)
    except ValueError as error:
        problems.append(f"No claim is judged: {str(error).replace(str(directory), directory.name)}.")
        return None, entry
    return asked, entry if asked.longest is None else narrowed(entry, frames=asked.longest)


def _source(entry: Study | None) -> str:
    if entry is None:
        return ""
    return f"O{entry.source[1:]}" if entry.source.startswith("ours") else f"In the paper: {entry.source}"


def _extent(runs: Sequence[GatheredRun], tasks: Sequence[str], methods: Sequence[str]) -> str:
    per_arm = Counter((run.task, run.method) for run in runs).values()
    fewest, most = min(per_arm), max(per_arm)
    seeds = counted(most, "seed") if fewest == most else f"{fewest} to {most} seeds"
    parts = [counted(len(tasks), "task"), counted(len(methods), "method"), f"{seeds} each"]
    if len(per_arm) < len(tasks) * len(methods):
        parts.append("not every method on every task")
    unfinished = sum(not run.done for run in runs)
    note = f"; {unfinished if unfinished < len(runs) else 'all'} of them not finished" if unfinished else ""
    return f"{counted(len(runs), 'run')}: {', '.join(parts)}{note}"


def _gaps(runs: Sequence[GatheredRun], asked: StudyFile | None) -> list[str]:
    """Return which runs are incomplete or missing."""
    said = []
    unfinished = [run for run in runs if not run.done]
    if unfinished:
        one = len(unfinished) == 1
        early = "is not finished: its curve ends early" if one else "are not finished: their curves end early"
        said.append(f"{counted(len(unfinished), 'run')} of {len(runs)} {early}.")
    if asked is not None:
        there = {run.identity for run in runs}
        missing = [each for each in asked.wanted if each not in there]
        if missing:
            task, method, seed = missing[0]
            said.append(
                f"{len(missing)} of the {counted(len(asked.wanted), 'run')} that were asked for are not here; "
                f"the first is {task} with {method}, seed {seed}."
            )
    return said


def _settings(runs: Sequence[GatheredRun], methods: Sequence[str]) -> tuple[dict[str, dict[str, str]], dict[str, str]]:
    """Split the settings of runs into those in which methods differ and those that all share.

    Of a setting that makes no difference to some methods, such as those of a bonus, it is the others that count.
    """
    found: dict[str, dict[str, dict[str, None]]] = {}  # no values where a setting makes no difference to a method
    for run in runs:
        config = flat(run.config)
        for name, value in config.items():
            is_of_images = name in ("rendering", "goal_marker")
            if name in NO_SETTINGS or (is_of_images and value is None):
                continue
            values = found.setdefault(name, {}).setdefault(run.method, {})
            if _matters(name, config):
                values[_shown(value)] = None
    differences, common = {}, {}
    for name, by_method in found.items():
        by_arm = {method: ", ".join(by_method.get(method, "–")) for method in methods if by_method.get(method, "–")}
        if len(set(by_arm.values())) == 1:
            [common[name]] = set(by_arm.values())
        elif by_arm:
            differences[name] = dict.fromkeys(methods, "–") | by_arm
    return differences, common


def _matters(name: str, config: Mapping[str, Any]) -> bool:
    """Return whether a setting makes a difference to runs of a configuration."""
    agent, _, setting = name.partition(".")
    bonus = next((value for key, value in config.items() if key.endswith(BONUS_NAME)), "")
    if name.endswith(BONUS_NAME):
        return True
    if setting.startswith("bonus") and bonus == "none":
        return False
    if agent not in agent_names() or bonus not in bonus_names():
        return True
    others = [key.removeprefix(f"{agent}.") for key, value in config.items() if value]
    return has_effect(bonus, setting.removeprefix("bonus."), agent_entry(agent).settings, others=others)


def _shown(value: Any) -> str:
    if value is None:
        return "default"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:g}" if isinstance(value, float) else str(value)


def _commands(runs: Sequence[GatheredRun]) -> list[str]:
    """Return what the runs were made by; some may have been trained by one command and made longer by another."""
    commands = [command for run in runs if (command := run.meta.get("command")) and command[0] in TRAINING_VERBS]
    return list(dict.fromkeys(f"vcse {shlex.join(map(str, each))}" for each in commands))


def _ordered(found: Iterable[str], wanted: Sequence[str]) -> list[str]:
    """Return names in the order wanted, then what else was found."""
    names = list(found)
    return [name for name in wanted if name in names] + [name for name in names if name not in wanted]


def _unique(name: str, taken: Sequence[str]) -> str:
    """Return a name that can stand in a link and name a folder, and that no other has."""
    plain = re.sub(r"[^A-Za-z0-9_-]+", "-", name).strip("-") or "runs"
    number, free = 2, plain
    while free in taken:
        free, number = f"{plain}-{number}", number + 1
    return free
