"""A study as it is published: three files instead of hundreds of directories.

runs.csv.xz   task, method, seed and the columns of train.csv, digit by digit as they were
runs.json     configuration, machine and last evaluation of each run; what runs share stands there once
visits.npz    visits of those that counted them
"""

import csv
import io
import json
import lzma
import math
import zlib
from collections.abc import Sequence
from itertools import groupby
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from jaxtyping import Shaped

from vcse.reports.loaded_run import KEYS, GatheredRun, called, in_names_of_today, read_json, reason_of, to_columns
from vcse.runs.checkpoint import write_atomically
from vcse.studies.manifest import ARCHIVED_CURVES, Identity

DESCRIPTIONS, VISITS = "runs.json", "visits.npz"
ARCHIVE_SCHEMA_VERSION = 1
PARTS = ("config", "meta", "columns")  # of a run's description: many runs share each


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
        evaluation = {name: None if math.isnan(each) else each for name, each in run.evaluation.items()}
        described.append(
            dict(zip(KEYS, run.identity, strict=True))
            | {part: _place(shared[part], content) for part, content in parts.items()}
            | {"done": run.done, "evaluation": evaluation}
        )
    lines = ",\n  ".join(json.dumps(each) for each in described)
    head = json.dumps({"schema_version": ARCHIVE_SCHEMA_VERSION, **shared}, indent=1)
    write_atomically(out / DESCRIPTIONS, f'{head[:-2]},\n "runs": [\n  {lines}\n ]\n}}\n'.encode())
    write_atomically(out / ARCHIVED_CURVES, lzma.compress(_archive_rows(runs).encode(), preset=6))
    visits = {str(number): run.visits for number, run in enumerate(runs) if run.visits is not None}
    if visits:
        packed = io.BytesIO()
        np.savez_compressed(packed, **visits)  # type: ignore[arg-type] # its stub takes names for options
        write_atomically(out / VISITS, packed.getvalue())
    else:
        (out / VISITS).unlink(missing_ok=True)


def _open_archive(path: Path) -> tuple[dict[Identity, tuple[int, dict[str, Any]]], list[str], list[list[str]]]:
    """Return the runs as they are described, each with the place that names its visits, the header and the rows."""
    content = read_json(path / DESCRIPTIONS)
    version = content.get("schema_version")
    if version != ARCHIVE_SCHEMA_VERSION:
        raise ValueError(f"{DESCRIPTIONS} has schema version {version}; this release reads {ARCHIVE_SCHEMA_VERSION}")
    described = {
        (run["task"], run["method"], run["seed"]): (number, run | {part: content[part][run[part]] for part in PARTS})
        for number, run in enumerate(content["runs"])
    }
    with lzma.open(path / ARCHIVED_CURVES, "rt", newline="") as file:
        header, *rows = csv.reader(file)
    if tuple(header[:3]) != KEYS:
        raise ValueError(f"{ARCHIVED_CURVES} must begin with the columns {', '.join(KEYS)}")
    return described, header, rows


def read_archive(path: Path, name: str, problems: list[str]) -> list[tuple[str, GatheredRun]]:
    """Read an archive; runs that its two files do not agree on are named."""
    try:
        described, header, rows = _open_archive(path)
    except (OSError, ValueError, KeyError, TypeError, IndexError, EOFError, csv.Error, lzma.LZMAError) as error:
        problems.append(f"The archive {name} is left out: {reason_of(error)}.")
        return []
    visits: dict[str, Shaped[np.ndarray, "slices x y"]] = {}
    try:
        if (path / VISITS).exists():
            with np.load(path / VISITS, allow_pickle=False) as packed:
                visits = dict(packed)
    except (OSError, ValueError, KeyError, EOFError, BadZipFile, zlib.error) as error:
        problems.append(f"The archive {name} is shown without its visits: {VISITS} cannot be read ({error}).")
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
            frames, columns, text = to_columns(["frame", *run["columns"]], cells, label, problems)
            config = in_names_of_today(run["config"] | dict(zip(KEYS, identity, strict=True)))
        except ValueError as error:
            problems.append(f"{label} is left out: {reason_of(error)}.")
            continue
        evaluation = {each: math.nan if value is None else value for each, value in run["evaluation"].items()}
        meta, done, seen = run["meta"], run["done"], visits.get(str(number))
        read.append((label, GatheredRun(*identity, frames, columns, evaluation, config, meta, seen, done, text)))
    problems.extend(f"{name}: {called(each)} is left out: {ARCHIVED_CURVES} has no row of it." for each in described)
    return read


def _archive_rows(runs: Sequence[GatheredRun]) -> str:
    """Return the rows of all runs under one header; a column that a run does not have stays empty."""
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
    """Return where a content stands among those known, which it joins if it is new."""
    if content not in known:
        known.append(content)
    return known.index(content)
