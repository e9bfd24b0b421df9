"""All runs below a directory, in memory: what is whole is read, and what is not is named and left out.

A study is published as an archive, three files instead of hundreds of directories, and read back the same way:

runs.csv.xz   task, method, seed and the columns of train.csv, digit by digit as they were
runs.json     configuration, machine and last evaluation of each run; what runs share stands there once
visits.npz    visits of those that counted them
"""

import csv
import io
import json
import lzma
import math
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from vcse.runs.checkpoint import write_atomically
from vcse.runs.config import SCHEMA_VERSION, flat
from vcse.runs.store import done_frame
from vcse.runs.words import counted
from vcse.studies.study_file import STUDY_FILE, Identity

CURVES, DESCRIPTIONS, VISITS = "runs.csv.xz", "runs.json", "visits.npz"
ARCHIVE_SCHEMA_VERSION = 1
KEYS = ("task", "method", "seed")
PARTS = ("config", "meta", "columns")  # of a run's description: many runs share each


class NoRunError(ValueError):
    """There is no run where one was looked for."""


class _NoRowError(ValueError):
    """A curve that has no row yet."""


class GatheredRun(NamedTuple):
    """One run, read whole."""

    task: str
    method: str
    seed: int
    frames: Int[np.ndarray, " rows"]
    columns: dict[str, Float[np.ndarray, " rows"]]  # of train.csv, without the frame; NaN where a cell is empty
    evaluation: dict[str, float]  # the last row of eval.csv; empty where there is none
    config: dict[str, Any]
    meta: dict[str, Any]  # empty where it could not be read
    visits: Shaped[np.ndarray, "slices x y"] | None
    done: bool
    text: str  # the rows as they were written, header first

    @property
    def identity(self) -> Identity:
        """What no two runs of a study share."""
        return self.task, self.method, self.seed


class Gathered(NamedTuple):
    """What was found below a directory."""

    runs: list[GatheredRun]
    problems: list[str]  # a sentence each


def study_directories(directory: Path) -> list[Path]:
    """Give the studies below a directory, or the one that it is."""
    found = []
    for path, names in _walk(directory):
        if STUDY_FILE in names:
            found.append(path)
    return found


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
    is_empty = True
    for path, names in _walk(directory, without):
        name = str(path.relative_to(directory)) if path != directory else path.resolve().name
        if CURVES in names:
            read = _read_archive(path, name, problems)
        elif "config.json" in names or "train.csv" in names:
            run = _read_run(path, name, problems, without_row)
            read = [] if run is None else [(name, run)]
        else:
            continue
        is_empty = False
        for label, run in read:
            if run.identity in found:
                problems.append(_told_twice(label, run, *found[run.identity]))
            else:
                found[run.identity] = (label, run)
    if is_empty:
        raise NoRunError(f"{directory} holds no run: there is no config.json and no {CURVES} below it")
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
    found: dict[Identity, GatheredRun] = {}
    where: dict[Identity, Path] = {}
    quality: dict[Any, Path] = {}  # of pictures, and where it was found first
    for directory, part in zip(directories, parts, strict=True):
        for run in part.runs:
            if run.identity in found:
                both = f"{where[run.identity]} and {directory} both hold {called(run.identity)}"
                raise ValueError(f"{both}: one of them must be left out")
            found[run.identity], where[run.identity] = run, directory
            quality.setdefault(run.config.get("rendering"), directory)
    if len(quality) > 1:
        shown = " and ".join(f"{name} in {directory}" for name, directory in quality.items())
        raise ValueError(f"the runs of a study must see pictures of one quality, got {shown}")
    problems = [problem for part in parts for problem in part.problems]
    for setting in ("frames", "eval_every_frames"):
        by_task: dict[str, dict[Any, Path]] = {}
        for identity, run in found.items():
            by_task.setdefault(run.task, {}).setdefault(run.config.get(setting), where[identity])
        for task, values in by_task.items():
            if len(values) > 1:
                shown = " and ".join(f"{value} in {directory}" for value, directory in values.items())
                problems.append(f"The runs of {task} differ in {setting}: {shown}.")
    return Gathered(list(found.values()), problems)


def write_archive(runs: Sequence[GatheredRun], out: Path) -> None:
    """Write runs as an archive, which `gather` reads back as they are.

    Args:
        runs: No two of the same task, method and seed.
        out: The directory of the archive's files.
    """
    if not runs:
        raise ValueError("runs must hold at least one run, got none")
    if len({run.identity for run in runs}) < len(runs):
        raise ValueError("runs must differ in task, method or seed")
    shared: dict[str, list[Any]] = {part: [] for part in PARTS}
    described = []
    for run in runs:
        parts = {
            "config": {name: value for name, value in run.config.items() if name not in KEYS},
            "meta": run.meta,
            "columns": list(run.columns),
        }
        described.append(
            dict(zip(KEYS, run.identity, strict=True))
            | {part: _place(shared[part], content) for part, content in parts.items()}
            | {
                "done": run.done,
                "evaluation": {name: None if math.isnan(each) else each for name, each in run.evaluation.items()},
            }
        )
    content = {"schema_version": ARCHIVE_SCHEMA_VERSION, **shared, "runs": described}
    lines = "\n".join(json.dumps(each) for each in described).replace("\n", ",\n  ")
    head = json.dumps({name: value for name, value in content.items() if name != "runs"}, indent=1)
    write_atomically(out / DESCRIPTIONS, f'{head[:-2]},\n "runs": [\n  {lines}\n ]\n}}\n'.encode())
    write_atomically(out / CURVES, lzma.compress(_archive_rows(runs).encode(), preset=6))
    visits = {str(number): run.visits for number, run in enumerate(runs) if run.visits is not None}
    if visits:
        packed = io.BytesIO()
        np.savez_compressed(packed, **visits)  # type: ignore[arg-type] # its stub takes names for options
        write_atomically(out / VISITS, packed.getvalue())
    else:
        (out / VISITS).unlink(missing_ok=True)


def _walk(directory: Path, without: Collection[Path] = ()) -> Iterator[tuple[Path, set[str]]]:
    """Give directories from the top, in order; what lies inside a run or an archive is its own business."""
    skipped = {each.resolve() for each in without}
    for root, directories, files in os.walk(directory):
        path = Path(root)
        if skipped and path.resolve() in skipped:
            directories.clear()
            continue
        names = set(files)
        if names & {"config.json", "train.csv", CURVES}:
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
        config = _read_json(path / "config.json")
        identity = _identity(config)
        frames, columns, text = _read_curve(path / "train.csv", name, problems)
    except _NoRowError as error:
        without_row.setdefault(f"{error}{_first_row(config)}", []).append(name)
        return None
    except (OSError, ValueError) as error:
        problems.append(f"{name} is left out: {_reason(error)}.")
        return None
    meta: dict[str, Any] = {}
    evaluation: dict[str, float] = {}
    visits = None
    try:
        meta = _read_json(path / "meta.json")
    except (OSError, ValueError) as error:
        problems.append(f"{name} does not say how it was made: {_reason(error)}.")
    try:
        if (path / "eval.csv").exists():
            evaluated, measured, _ = _read_curve(path / "eval.csv", name, problems)
            evaluation = {"frame": float(evaluated[-1])} | {
                column: float(each[-1]) for column, each in measured.items()
            }
    except (OSError, ValueError) as error:
        problems.append(f"{name} is shown without its evaluation: {_reason(error)}.")
    try:
        if (path / "visits.npy").exists():
            visits = _checked_visits(np.load(path / "visits.npy", allow_pickle=False))
    except (OSError, ValueError, EOFError) as error:
        problems.append(f"{name} is shown without its visits: visits.npy cannot be read ({error}).")
    done = done_frame(path) >= config.get("frames", 0)
    return GatheredRun(*identity, frames, columns, evaluation, config, meta, visits, done, text)


def _first_row(config: Mapping[str, Any]) -> str:
    """Say when the first row of a run comes, where its configuration does."""
    pauses = [config.get(name) for name in ("row_every_frames", "frames")]
    known = [pause for pause in pauses if isinstance(pause, int)]
    return f", the first comes after about {min(known):,} frames" if len(known) == len(pauses) else ""


class _Archive(NamedTuple):
    """An archive's files, before its runs are put together."""

    described: dict[Identity, tuple[int, dict[str, Any]]]  # with the place that names a run's visits
    header: list[str]
    rows: list[list[str]]
    visits: dict[str, Shaped[np.ndarray, "slices x y"]]


def _open_archive(path: Path) -> _Archive:
    content = _read_json(path / DESCRIPTIONS)
    version = content.get("schema_version")
    if version != ARCHIVE_SCHEMA_VERSION:
        raise ValueError(f"{DESCRIPTIONS} has schema version {version}; this release reads {ARCHIVE_SCHEMA_VERSION}")
    described = {
        (each["task"], each["method"], each["seed"]): (number, _whole(each, content))
        for number, each in enumerate(content["runs"])
    }
    with lzma.open(path / CURVES, "rt", newline="") as file:
        header, *rows = csv.reader(file)
    if tuple(header[:3]) != KEYS:
        raise ValueError(f"{CURVES} must begin with the columns {', '.join(KEYS)}")
    return _Archive(described, header, rows, _archived_visits(path / VISITS))


def _read_archive(path: Path, name: str, problems: list[str]) -> list[tuple[str, GatheredRun]]:
    """Read an archive; runs that its two files do not agree on are named."""
    try:
        described, header, rows, visits = _open_archive(path)
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, lzma.LZMAError) as error:
        problems.append(f"The archive {name} is left out: {_reason(error)}.")
        return []
    read: list[tuple[str, GatheredRun]] = []
    for key, mine in groupby(rows, lambda row: tuple(row[:3])):
        label = f"{name}: {' '.join(key)}"
        identity = (key[0], key[1], int(key[2])) if len(key) == 3 and key[2].isdigit() else None
        if identity not in described:
            problems.append(f"{label} is left out: {DESCRIPTIONS} does not describe it.")
            continue
        number, run = described.pop(identity)
        try:
            places = [header.index(column) for column in ("frame", *run["columns"])]
            cells = [[row[place] if place < len(row) else "torn" for place in places] for row in mine]
            frames, columns, text = _numbers(["frame", *run["columns"]], cells, label, problems)
        except ValueError as error:
            problems.append(f"{label} is left out: {_reason(error)}.")
            continue
        config = run["config"] | dict(zip(KEYS, identity, strict=True))
        evaluation = {each: math.nan if value is None else value for each, value in run["evaluation"].items()}
        read.append(
            (
                label,
                GatheredRun(
                    *identity,
                    frames,
                    columns,
                    evaluation,
                    config,
                    run["meta"],
                    visits.get(str(number)),
                    run["done"],
                    text,
                ),
            )
        )
    problems.extend(f"{name}: {called(identity)} is left out: {CURVES} has no row of it." for identity in described)
    return read


def _whole(described: Mapping[str, Any], content: Mapping[str, Any]) -> dict[str, Any]:
    """Put what a run shares with others back into its description."""
    return dict(described) | {part: content[part][described[part]] for part in PARTS}


def _archived_visits(path: Path) -> dict[str, Shaped[np.ndarray, "slices x y"]]:
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as packed:
        return {name: packed[name] for name in packed.files}


def _archive_rows(runs: Sequence[GatheredRun]) -> str:
    """Give the rows of all runs under one header; a column that a run does not have stays empty."""
    columns = list(dict.fromkeys(column for run in runs for column in ("frame", *run.columns)))
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*KEYS, *columns])
    for run in runs:
        header, *rows = csv.reader(io.StringIO(run.text))
        places = [header.index(column) if column in header else None for column in columns]
        writer.writerows([*run.identity, *("" if place is None else row[place] for place in places)] for row in rows)
    return text.getvalue()


def _place(known: list[Any], content: Any) -> int:
    """Give where a content stands among those known, which it joins if it is new."""
    if content not in known:
        known.append(content)
    return known.index(content)


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"there is no {path.name}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} does not hold an object")
    return content


def _identity(config: Mapping[str, Any]) -> Identity:
    version = config.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(f"config.json has schema version {version}; this release reads {SCHEMA_VERSION}")
    task, method, seed = (config.get(name) for name in KEYS)
    if not (isinstance(task, str) and isinstance(method, str) and isinstance(seed, int)):
        raise ValueError("config.json does not say which task, method and seed")
    return task, method, seed


def _read_curve(
    path: Path, name: str, problems: list[str]
) -> tuple[Int[np.ndarray, " rows"], dict[str, Float[np.ndarray, " rows"]], str]:
    """Read a CSV file of numbers up to its last whole row."""
    try:
        content = path.read_bytes().decode()
    except FileNotFoundError:
        if done_frame(path.parent) < 0:  # the first row makes the file
            raise _NoRowError(f"{path.name} has no row yet") from None
        raise ValueError(f"there is no {path.name}") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{path.name} cannot be read ({error})") from error
    whole, _, torn = content.rpartition("\n")
    if torn:
        problems.append(f"{name}: the last row of {path.name} is half written and is left out.")
    header, *rows = csv.reader(io.StringIO(whole)) if whole else [[]]
    if not rows:
        raise _NoRowError(f"{path.name} has no row yet")
    if "frame" not in header:
        raise ValueError(f"{path.name} has no column frame")
    return _numbers(header, rows, f"{name}: {path.name}", problems)


def _numbers(
    header: Sequence[str], rows: Iterable[Sequence[str]], name: str, problems: list[str]
) -> tuple[Int[np.ndarray, " rows"], dict[str, Float[np.ndarray, " rows"]], str]:
    """Turn cells into columns, up to the first row that is not one of numbers or goes back in frames."""
    place = header.index("frame")
    numbers: list[list[float]] = []
    kept = [",".join(header)]
    for row in rows:
        try:
            cells = [float(cell) if cell else math.nan for cell in row]
            in_order = float(row[place]).is_integer() and (not numbers or cells[place] > numbers[-1][place])
            is_whole = len(cells) == len(header) and in_order
        except (ValueError, IndexError):
            is_whole = False
        if not is_whole:
            problems.append(f"{name} cannot be read after row {len(numbers)}: the rest is left out.")
            break
        numbers.append(cells)
        kept.append(",".join(row))
    if not numbers:
        raise ValueError("not one row is whole")
    table = np.array(numbers)
    columns = {column: table[:, each] for each, column in enumerate(header) if column != "frame"}
    return table[:, place].astype(np.int64), columns, "\n".join(kept) + "\n"


def _checked_visits(visits: np.ndarray) -> np.ndarray:
    if visits.ndim != 3:
        raise ValueError(f"it has {visits.ndim} axes instead of slices, x and y")
    return visits


def _told_twice(label: str, run: GatheredRun, first_label: str, first: GatheredRun) -> str:
    """Say that two runs have one name, and whether they are one run."""
    mine, theirs = flat(run.config), flat(first.config)
    different = [name for name in (*mine, *(theirs.keys() - mine)) if mine.get(name) != theirs.get(name)]
    told = [f"{name} is {theirs.get(name)} there and {mine.get(name)} here" for name in different if name != "frames"]
    if not told:
        return f"{label} is the same run as {first_label}, {called(run.identity)}: the second is left out."
    return (
        f"{label} has the name of {first_label}, {called(run.identity)}, but {'; '.join(told)}: the second is left "
        "out. Train each with a --method of its own to see both."
    )


def called(identity: Identity) -> str:
    """Name a run in a sentence."""
    task, method, seed = identity
    return f"{task} with {method}, seed {seed}"


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{Path(error.filename).name}: {error.strerror}"
    return str(error) or type(error).__name__
