"""How far the runs of a study are, read from their directories: from any terminal, whoever trains them and where."""

import csv
import fcntl
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from rich.table import Table

from vcse.runs.checkpoint import write_atomically
from vcse.runs.config import RunConfig
from vcse.runs.directory import done_frame
from vcse.runs.formatting import counted, duration

State = Literal["done", "running", "waiting", "failed"]
STATES: tuple[State, ...] = ("done", "running", "waiting", "failed")
FAILURES = "failures.json"
FRESH_SECONDS = 300.0  # a speed that was written longer ago says nothing of the present


@dataclass(frozen=True)
class RunStatus:
    """One run: where it is, how fast it goes, and why it failed."""

    task: str
    state: State
    frame: int
    frames: int
    frames_per_s: float = 0.0  # where it runs and learns
    problem: str = ""


@dataclass(frozen=True)
class StudyStatus:
    """All runs of a study."""

    runs: Sequence[RunStatus]

    def count(self, state: State) -> int:
        """Runs in a state."""
        return sum(run.state == state for run in self.runs)

    @property
    def frame(self) -> int:
        """Frames of all runs together."""
        return sum(run.frame for run in self.runs)

    @property
    def share(self) -> float:
        """How much of all frames is there."""
        return self.frame / max(1, sum(run.frames for run in self.runs))

    @property
    def frames_per_s(self) -> float:
        """Of all runs together."""
        return math.fsum(run.frames_per_s for run in self.runs)

    @property
    def seconds_left(self) -> float:
        """At the present speed; infinity where nothing runs, 0 where all is done.

        A run whose speed is not known yet is taken to be as fast as the others.
        """
        left = sum(run.frames - run.frame for run in self.runs if run.state in ("running", "waiting"))
        known = sum(run.frames_per_s > 0 for run in self.runs)
        if not known:
            return math.inf if left else 0.0
        return left / (self.frames_per_s * max(self.count("running"), known) / known)

    @property
    def is_evaluating(self) -> bool:
        """Whether all that runs has had its frames: what is left is to play episodes."""
        running = [run for run in self.runs if run.state == "running"]
        return bool(running) and all(run.frame == run.frames for run in running)

    def counts(self) -> str:
        """Return how many runs there are in each state, as a phrase."""
        counts = [f"{number} {state}" for state in STATES if (number := self.count(state))]
        return ", ".join([counted(len(self.runs), "run"), *counts, *(["evaluating"] if self.is_evaluating else [])])

    def table(self, title: str) -> Table:
        """Return a table, a line per task and one for all."""
        table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
        table.add_column("task", overflow="fold")
        for heading in (*STATES, "frames", "frames/s", "left"):
            table.add_column(heading, justify="right", no_wrap=True)
        tasks = dict.fromkeys(run.task for run in self.runs)
        parts = {task: StudyStatus([run for run in self.runs if run.task == task]) for task in tasks}
        for name, part in [*parts.items(), *([("all", self)] if len(parts) > 1 else [])]:
            speed = f"{part.frames_per_s:,.0f}" if part.frames_per_s else "-"
            # The tasks share the machine: only the whole has a time left.
            left = duration(self.seconds_left) if part is self or len(parts) == 1 else ""
            if part.is_evaluating:
                left = "evaluating"
            table.add_row(
                name.partition("/")[2] or name,
                *(str(part.count(state)) for state in STATES),
                f"{part.share:.0%}",
                speed,
                left,
            )
        return table


def study_status(out: Path, configs: Sequence[RunConfig]) -> StudyStatus:
    """Look at every run's directory.

    Args:
        out: Where the study is written.
        configs: The runs that it has.
    """
    failures = read_failures(out)
    return StudyStatus([_run_status(out / config.name, config, failures) for config in configs])


def read_failures(out: Path) -> dict[str, str]:
    """Return the runs that failed for good, and why."""
    try:
        content = json.loads((out / FAILURES).read_text())
    except (FileNotFoundError, json.JSONDecodeError):
        return {}
    return {str(name): str(reason) for name, reason in content.items()}


def add_failures(out: Path, failures: Mapping[str, str]) -> None:
    """Keep why runs failed, beside what is known of others."""
    with locked(out):
        _write_failures(out, read_failures(out) | dict(failures))


def forget_failures(out: Path, runs: Iterable[str]) -> None:
    """Forget that runs failed, which are tried again; what is known of others, of another command, stays."""
    again = set(runs)
    with locked(out):
        _write_failures(out, {name: why for name, why in read_failures(out).items() if name not in again})


def _write_failures(out: Path, failures: Mapping[str, str]) -> None:
    if failures:
        write_atomically(out / FAILURES, json.dumps(dict(failures), indent=1).encode())
    else:
        (out / FAILURES).unlink(missing_ok=True)


@contextmanager
def locked(out: Path) -> Iterator[None]:
    """Lock a study's directory against other writers: two commands may share it."""
    with open(out / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def is_being_written(path: Path) -> bool:
    """Return whether a process holds the lock of a run's directory."""
    try:
        with open(path / ".lock") as lock:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    return False


def wait_until_free(paths: Sequence[Path], seconds: float) -> None:
    """Wait while processes of a command that was killed save what they have; refuse after so many seconds."""
    until = time.monotonic() + seconds
    for path in paths:
        while is_being_written(path):
            if time.monotonic() > until:
                raise RuntimeError(f"{path} is being written by another process")
            time.sleep(0.1)


def _run_status(path: Path, config: RunConfig, failures: Mapping[str, str]) -> RunStatus:
    if done_frame(path) >= config.frames:
        return RunStatus(config.task, "done", config.frames, config.frames)
    frame, frames_per_s = _last_timing(path / "timing.csv")
    waiting = RunStatus(config.task, "waiting", min(frame, config.frames), config.frames)
    if is_being_written(path):
        # Random frames, before the first update, are much faster than those that come.
        is_learning = frame > getattr(config.settings, "seed_frames", 0)
        return replace(waiting, state="running", frames_per_s=frames_per_s if is_learning else 0.0)
    if config.name in failures:
        return replace(waiting, state="failed", problem=failures[config.name])
    return waiting


def _last_timing(path: Path) -> tuple[int, float]:
    """Return the frame of the last row, and the speed if that is recent."""
    try:
        with open(path, "rb") as file:
            header = file.readline().decode()
            file.seek(max(len(header), os.fstat(file.fileno()).st_size - 400))
            lines = file.read().decode().splitlines(keepends=True)
        whole = [line for line in lines if line.endswith("\n")]
        rows = list(csv.DictReader([header, *whole[-2:]]))
        frame, written, speed = int(rows[-1]["frame"]), float(rows[-1]["unix_time"]), float(rows[-1]["frames_per_s"])
        pause = written - float(rows[0]["unix_time"])  # on a CPU rows of DrQ-v2 are far apart
    except (OSError, IndexError, KeyError, ValueError, TypeError):
        return 0, 0.0
    return frame, speed if time.time() - written < max(FRESH_SECONDS, 2 * pause) else 0.0
