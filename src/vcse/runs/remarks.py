"""Problems that the rows of a run show, reported once while it trains."""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory

Row = Mapping[str, Any]
FindProblem = Callable[[RunConfig, Sequence[Row]], str]


class Remark(str):
    """A warning about a run, which is passed on where other notes are not."""

    __slots__ = ()


class Remarks:
    """Looks for problems in the rows of runs, and reports the first of each run.

    Rows from before a restart count; what they showed was reported then.

    Args:
        directories: Of the runs.
        find_problem: Returns a text about a run and all its rows so far; empty where all is well. None: no reports.
        note: Called with each report.
        called: Returns how a run is named in a report.
    """

    def __init__(
        self,
        directories: Sequence[RunDirectory],
        find_problem: FindProblem | None,
        note: Callable[[str], None],
        *,
        called: Callable[[RunConfig], str] = lambda config: config.name,
    ) -> None:
        self._called = called
        self._configs = [directory.config for directory in directories]
        self._find_problem, self._note = find_problem, note
        self._rows = [[] if find_problem is None else _read_rows(directory) for directory in directories]
        self._is_said = [
            find_problem is None or any(find_problem(config, rows[:end]) for end in range(1, len(rows) + 1))
            for config, rows in zip(self._configs, self._rows, strict=True)
        ]

    def take(self, rows: Sequence[Row]) -> None:
        """Add the next row of every run."""
        for run, row in enumerate(rows):
            if self._find_problem is None or self._is_said[run]:
                continue
            self._rows[run].append(row)
            if problem := self._find_problem(self._configs[run], self._rows[run]):
                self._is_said[run] = True
                self._note(Remark(f"{self._called(self._configs[run])}: {problem}"))


def _read_rows(directory: RunDirectory) -> list[Row]:
    path = directory.path / "train.csv"
    if not path.is_file():
        return []
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        return [{name: float(cell) if cell else math.nan for name, cell in row.items()} for row in rows]
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
