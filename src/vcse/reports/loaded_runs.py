"""All runs below a directory, in memory: what is whole is read, and what is not is named and left out."""

import csv
import io
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vcse.play.export import is_exported
from vcse.reports.archive import read_archive
from vcse.reports.loaded_run import KEYS, GatheredRun, called, in_names_of_today, read_json, reason_of, to_columns
from vcse.runs.config import SCHEMA_VERSION, flat
from vcse.runs.directory import done_frame
from vcse.runs.formatting import counted
from vcse.studies.manifest import ARCHIVED_CURVES, STUDY_FILE, Identity


class NoRunError(ValueError):
    """There is no run where one was looked for."""


class _NoRowError(ValueError):
    """A curve that has no row yet."""


class Gathered(NamedTuple):
    """What was found below a directory."""

    runs: list[GatheredRun]
    problems: list[str]  # a sentence each


def study_directories(directory: Path) -> list[Path]:
    """Return the studies below a directory, or the one that it is."""
    return [path for path, names in _walk(directory) if STUDY_FILE in names]


def gather(directory: Path, *, without: Collection[Path] = ()) -> Gathered:
    """Read all runs below a directory, or the archive that lies there.

    What cannot be read is named and left out, so that one torn file does not hide a night of runs.

    Args:
        directory: A run, a directory of runs, or an archive.
        without: Directories below it that are left alone.
    """
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a directory")
    found: dict[Identity, tuple[str, GatheredRun]] = {}
    problems: list[str] = []
    without_row: dict[str, list[str]] = {}  # why, and the runs, of which there may be very many
    for path, names in _walk(directory, without):
        name = str(path.relative_to(directory)) if path != directory else path.resolve().name
        if ARCHIVED_CURVES in names:
            read = read_archive(path, name, problems)
        elif "config.json" in names or "train.csv" in names:
            run = _read_run(path, name, problems, without_row)
            read = [] if run is None else [(name, run)]
        else:
            continue
        for label, run in read:
            if run.identity in found:
                problems.append(_told_twice(label, run, *found[run.identity]))
            else:
                found[run.identity] = (label, run)
    if not (found or problems or without_row):
        raise NoRunError(f"{directory} holds no run: there is no config.json and no {ARCHIVED_CURVES} below it")
    for reason, labels in without_row.items():
        more = f" and {counted(len(labels) - 1, 'other')} are" if len(labels) > 1 else " is"
        problems.append(f"{labels[0]}{more} left out: {reason}.")
    return Gathered([run for _, run in found.values()], problems)


def joined(parts: Sequence[Gathered], directories: Sequence[Path]) -> Gathered:
    """Put the runs of one study together that were trained in different places.

    Args:
        parts: What was gathered in each place.
        directories: Their names.
    """
    found: dict[Identity, tuple[GatheredRun, Path]] = {}
    # By setting and task, and where each value was found first; images must be of one quality on all tasks.
    places: dict[tuple[str, str], dict[Any, Path]] = {}
    for directory, part in zip(directories, parts, strict=True):
        for run in part.runs:
            if run.identity in found:
                both = f"{found[run.identity][1]} and {directory} both hold {called(run.identity)}"
                raise ValueError(f"{both}: one of them must be left out")
            found[run.identity] = run, directory
            for setting, task in (("rendering", ""), ("frames", run.task), ("eval_every_frames", run.task)):
                places.setdefault((setting, task), {}).setdefault(run.config.get(setting), directory)
    problems = [problem for part in parts for problem in part.problems]
    for (setting, task), values in places.items():
        shown = " and ".join(f"{value} in {directory}" for value, directory in values.items())
        if len(values) > 1 and setting == "rendering":
            raise ValueError(f"the runs of a study must see images of one quality, got {shown}")
        if len(values) > 1:
            problems.append(f"The runs of {task} differ in {setting}: {shown}.")
    return Gathered([run for run, _ in found.values()], problems)


def likely_metric(runs: Sequence[GatheredRun]) -> str:
    """Return what is drawn where no study says it: what most runs know, and of several the first."""
    metrics = ("eval_success_rate", "success_rate", "eval_return_mean", "return_mean")
    known = {
        metric: sum(np.isfinite(run.columns.get(metric, np.full(1, np.nan))).any() for run in runs)
        for metric in metrics
    }
    most = max(metrics, key=lambda metric: known[metric])
    return most if known[most] else next(iter(runs[0].columns), "success_rate")


def _walk(directory: Path, without: Collection[Path] = ()) -> Iterator[tuple[Path, set[str]]]:
    """Return directories from the top, in order; what lies inside a run or an archive is its own business."""
    for root, directories, files in os.walk(directory):
        path = Path(root)
        if path in without:
            directories.clear()
            continue
        names = set(files)
        if names & {"config.json", "train.csv", ARCHIVED_CURVES}:
            directories.clear()
        directories.sort(key=_in_order)
        yield path, names


def _in_order(name: str) -> tuple[str, int, str]:
    """Sort seed10 after seed9."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1), name


def _read_run(path: Path, name: str, problems: list[str], without_row: dict[str, list[str]]) -> GatheredRun | None:
    """Read a run's directory; None, and a sentence or a run without a row more, where there is nothing to show."""
    config: dict[str, Any] = {}
    try:
        config = read_json(path / "config.json")
        identity = _identity(config)
        config = in_names_of_today(config)
        frames, columns, text = _read_curve(path / "train.csv", name, problems)
    except _NoRowError as error:
        without_row.setdefault(f"{error}{_first_row(config)}", []).append(name)
        return None
    except (OSError, ValueError) as error:
        problems.append(f"{name} is left out: {reason_of(error)}.")
        return None
    meta: dict[str, Any] = {}
    evaluation: dict[str, float] = {}
    visits = None
    try:
        meta = read_json(path / "meta.json")
    except (OSError, ValueError) as error:
        problems.append(f"{name} does not say how it was made: {reason_of(error)}.")
    try:
        if (path / "eval.csv").exists():
            evaluated, measured, _ = _read_curve(path / "eval.csv", name, problems)
            evaluation = {column: float(each[-1]) for column, each in {"frame": evaluated, **measured}.items()}
    except (OSError, ValueError) as error:
        problems.append(f"{name} is shown without its evaluation: {reason_of(error)}.")
    try:
        if (path / "visits.npy").exists():
            visits = _checked_visits(np.load(path / "visits.npy", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        problems.append(f"{name} is shown without its visits: visits.npy cannot be read ({error}).")
    done = done_frame(path) >= config.get("frames", 0)
    return GatheredRun(*identity, frames, columns, evaluation, config, meta, visits, done, text)


def _first_row(config: Mapping[str, Any]) -> str:
    """Return when the first row of a run comes, where its configuration states it."""
    pauses = [config.get(name) for name in ("row_every_frames", "frames")]
    known = [pause for pause in pauses if isinstance(pause, int)]
    return f", the first comes after about {min(known):,} frames" if len(known) == len(pauses) else ""


def _identity(config: Mapping[str, Any]) -> Identity:
    version = config.get("schema_version")
    if version not in (1, SCHEMA_VERSION):
        raise ValueError(f"config.json has schema version {version}; this release reads {SCHEMA_VERSION} and 1")
    task, method, seed = (config.get(name) for name in KEYS)
    if not (isinstance(task, str) and isinstance(method, str) and isinstance(seed, int)):
        raise ValueError("config.json does not say which task, method and seed")
    if not isinstance(config.get("frames", 0), int):
        raise ValueError(f"config.json must say of how many frames, got {config['frames']!r}")
    return task, method, seed


def _read_curve(
    path: Path, name: str, problems: list[str]
) -> tuple[Int[np.ndarray, " rows"], dict[str, Float[np.ndarray, " rows"]], str]:
    """Read a CSV file of numbers up to its last whole row."""
    try:
        whole, _, torn = path.read_bytes().decode().rpartition("\n")
        header, *rows = csv.reader(io.StringIO(whole)) if whole else [[]]
    except FileNotFoundError:
        if done_frame(path.parent) < 0:  # the first row makes the file
            raise _NoRowError(f"{path.name} has no row yet") from None
        if is_exported(path.parent):
            raise ValueError("it is an exported policy, without curves") from None
        raise ValueError(f"there is no {path.name}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"{path.name} cannot be read ({error})") from error
    if torn:
        problems.append(f"{name}: the last row of {path.name} is half written and is left out.")
    if not rows:
        raise _NoRowError(f"{path.name} has no row yet")
    if "frame" not in header:
        raise ValueError(f"{path.name} has no column frame")
    return to_columns(header, rows, f"{name}: {path.name}", problems)


def _checked_visits(visits: np.ndarray) -> np.ndarray:
    if visits.ndim != 3:
        raise ValueError(f"it has {visits.ndim} axes instead of slices, x and y")
    return visits


def _told_twice(label: str, run: GatheredRun, first_label: str, first: GatheredRun) -> str:
    """Return an error for two runs of one name, and whether they are the same run."""
    mine, theirs = flat(run.config), flat(first.config)
    names = [
        name for name in (*mine, *(theirs.keys() - mine)) if name != "frames" and mine.get(name) != theirs.get(name)
    ]
    changes = [f"{name} is {theirs.get(name)} there and {mine.get(name)} here" for name in names]
    if not changes:
        return f"{label} is the same run as {first_label}, {called(run.identity)}: the second is left out."
    return (
        f"{label} has the name of {first_label}, {called(run.identity)}, but {'; '.join(changes)}: the second is left "
        "out. Train each with a --method of its own to see both."
    )
