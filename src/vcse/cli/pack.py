"""`vcse study pack`: the curves of a study in a few small files."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import tyro

from vcse.cli.option_types import Names, if_given
from vcse.reports.archive import write_archive
from vcse.reports.loaded_run import GatheredRun, called
from vcse.reports.loaded_runs import gather, joined
from vcse.runs.checkpoint import write_atomically
from vcse.runs.directory import check_no_file
from vcse.runs.formatting import counted
from vcse.studies.manifest import ARCHIVED_CURVES, STUDY_FILE, StudyFile, asked_in, read_study_file

PUBLISHED_COLUMNS = (
    "episodes",
    "return_mean",
    "success_rate",
    "eval_return_mean",
    "eval_success_rate",
    "bonus_mean",
    "zero_radius_share",
    "decided_by_value_share",
    "policy_entropy",
)
PRIVATE_META = ("command", "platform")  # names folders and machines of whoever ran it


def pack_study(
    directories: Annotated[tuple[Path, ...], tyro.conf.Positional, if_given("DIRECTORY [DIRECTORY ...]")],
    /,
    out: Path,
    columns: Names = PUBLISHED_COLUMNS,
    commit: Annotated[str | None, if_given("HASH")] = None,
) -> int:
    """Pack the curves of a study into a few small files to publish; vcse report reads them like the runs.

    Args:
        directories: Directories that were given to vcse study run as --out; parts of one study are joined.
        out: Directory of the archive.
        columns: Columns of train.csv to keep, besides frame; all keeps every one.
        commit: Git commit of the code that made the runs, for runs that were not trained in a git checkout and did not
            record it.
    """
    check_no_file(out, "the archive")
    file = _joined_study(directories)
    found = joined([gather(directory) for directory in directories], directories)
    for problem in found.problems:
        print(f"vcse: {problem}", file=sys.stderr)
    _check_archive(out, file, found.runs)
    known = {name for run in found.runs for name in run.columns}
    if columns not in (PUBLISHED_COLUMNS, ("all",)) and (strange := [name for name in columns if name not in known]):
        raise ValueError(f"--columns must be of {', '.join(sorted(known))}, or all, got {strange[0]!r}")
    unfinished = sum(not run.done for run in found.runs)
    if unfinished:
        print(f"vcse: {unfinished} of {len(found.runs)} runs are not finished", file=sys.stderr)
    out.mkdir(parents=True, exist_ok=True)
    kept = [
        run._replace(
            columns={name: each for name, each in run.columns.items() if name in columns or columns == ("all",)},
            meta={name: each for name, each in run.meta.items() if name not in PRIVATE_META}
            | {"commit": run.meta.get("commit") or commit},
        )
        for run in found.runs
    ]
    write_archive(kept, out)
    write_atomically(out / STUDY_FILE, json.dumps(file.to_json(), indent=1).encode())
    taken = sum(each.stat().st_size for each in out.iterdir() if each.is_file())
    print(f"{counted(len(found.runs), 'run')} in {out}, {taken / 1e6:.2f} MB")
    return 0


def _check_archive(out: Path, file: StudyFile, runs: Sequence[GatheredRun]) -> None:
    """Refuse to hide runs behind an archive, and to write over one that holds others."""
    if not out.exists():
        return
    there = read_study_file(out)
    if there is not None and there.study != file.study:
        raise ValueError(f"{out} holds the study {there.study}, not {file.study}: choose another --out")
    if (out / ARCHIVED_CURVES).exists():
        others = {run.identity for run in gather(out).runs} - {run.identity for run in runs}
        if others:
            raise ValueError(
                f"{out} holds {counted(len(others), 'run')} that would be gone, such as {called(min(others))}: name it "
                "among the directories to keep them, or choose another --out"
            )
    elif any(out.rglob("config.json")):
        raise ValueError(f"{out} holds runs, which an archive beside them would hide: choose another --out")


def _joined_study(directories: Sequence[Path]) -> StudyFile:
    """Read what was asked for in each directory, as if it had been asked for in one."""
    if not directories:
        raise ValueError("vcse study pack needs at least one directory of runs")
    file, *others = (asked_in(directory) for directory in directories)
    for directory, other in zip(directories[1:], others, strict=True):
        if other.study != file.study:
            raise ValueError(f"{directories[0]} holds the study {file.study}, but {directory} holds {other.study}")
        for asked in other.requests:
            file = file.joined(asked)
    return file
