"""What the rows of a run show to be wrong with it, said once while it trains."""

import csv
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory

Row = Mapping[str, Any]
Judge = Callable[[RunConfig, Sequence[Row]], str]


class Remark(str):
    """A warning about a run, which is passed on where other notes are not."""

    __slots__ = ()


class Remarks:
    """Judges the rows of runs as they come, and says once of each run what is wrong.

    Rows from before a restart count; what they showed was said then.

    Args:
        directories: Of the runs.
        judge: Returns a text about a run and all its rows so far; empty where all is well. None says nothing.
        note: Says it.
    """

    def __init__(self, directories: Sequence[RunDirectory], judge: Judge | None, note: Callable[[str], None]) -> None:
        self._configs = [directory.config for directory in directories]
        self._judge, self._note = judge, note
        self._rows = [[] if judge is None else _read_rows(directory) for directory in directories]
        self._is_said = [
            judge is None or any(judge(config, rows[:end]) for end in range(1, len(rows) + 1))
            for config, rows in zip(self._configs, self._rows, strict=True)
        ]

    def take(self, rows: Sequence[Row]) -> None:
        """Take the next row of every run in."""
        for run, row in enumerate(rows):
            if self._judge is None or self._is_said[run]:
                continue
            self._rows[run].append(row)
            if said := self._judge(self._configs[run], self._rows[run]):
                self._is_said[run] = True
                self._note(Remark(f"{self._configs[run].name}: {said}"))


def _read_rows(directory: RunDirectory) -> list[Row]:
    path = directory.path / "train.csv"
    if not path.is_file():
        return []
    with open(path, newline="") as file:
        return [{name: float(cell) if cell else math.nan for name, cell in row.items()} for row in csv.DictReader(file)]
