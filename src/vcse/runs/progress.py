"""Progress of training: a bar on a terminal, plain lines in a pipe."""

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Literal, NamedTuple

from rich.console import Console, RenderableType
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
from rich.text import Text

from vcse.runs.config import RunConfig
from vcse.runs.formatting import duration
from vcse.runs.remarks import Remark

SECONDS_BETWEEN_LINES = 10
RECENT_SECONDS = 15.0  # over which the pace is taken,
FEWEST_REPORTS = 30  # and over so many reports: between two there may be an evaluation, which takes longer
Score = Literal["success", "return"]
_SCORE_FORMS: dict[Score, str] = {"success": "{:.0%}", "return": "{:.1f}"}


class Status(NamedTuple):
    """Where a cohort is, for a progress display."""

    frame: int
    frames: int
    runs: int
    frames_per_s: float  # of all runs together
    scores: dict[str, float]  # by method
    bonus: dict[str, float]  # by method, before beta
    score: Score = "success"  # what the scores are
    learns: bool = True  # and does not act at random yet, which is a hundred times faster


def by_method(configs: Sequence[RunConfig], numbers: Sequence[float]) -> dict[str, float]:
    """Return the mean over the runs of each method, of those whose number is known."""
    found: dict[str, list[float]] = {}
    for config, number in zip(configs, numbers, strict=True):
        found.setdefault(config.method, []).append(number)
    return {method: mean_of_known(each) for method, each in found.items()}


def mean_of_known(numbers: Sequence[float]) -> float:
    """Return the mean of what is not NaN."""
    known = [number for number in numbers if not math.isnan(number)]
    return math.fsum(known) / len(known) if known else math.nan


class Stopwatch:
    """How fast a cohort is since a frame."""

    def __init__(self, frame: int) -> None:
        self.begin, self.frame = time.monotonic(), frame

    def frames_per_s(self, frame: int) -> float:
        """Return the pace up to a frame, at which the cohort is now."""
        return (frame - self.frame) / max(time.monotonic() - self.begin, 1e-9)


class Timer:
    """Seconds that a cohort has spent, by what for."""

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(("env", "act", "update"), 0.0)
        self.start()

    def start(self) -> None:
        """Count from now on."""
        self._since = time.perf_counter()

    def lap(self, part: str) -> None:
        """Count the time since the last call for a part."""
        before, self._since = self._since, time.perf_counter()
        self.seconds[part] += self._since - before


class TrainingProgress:
    """Shows how far training is, how fast, and how well each method does."""

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self.console = Console(file=sys.stderr)
        self.bar: Progress | None = None
        self.last_line = 0.0
        self.pace = _Pace()

    def __enter__(self) -> "TrainingProgress":
        return self

    def __exit__(self, *error: object) -> None:
        if self.bar is not None:
            self.bar.stop()

    def start(self, title: str, frames: int, frame: int, *, runs: Sequence[str] = ()) -> None:
        """Begin a cohort, of runs of these names, at a frame."""
        del runs  # for those who keep account of each
        self.title = title
        self.pace = _Pace()
        if self.quiet:
            return
        if not self.console.is_terminal:
            print(f"{title}: {frame:,} of {frames:,} frames", file=sys.stderr, flush=True)
            return
        if self.bar is not None:
            self.bar.stop()
        columns = (
            BarColumn(bar_width=24),
            TextColumn("{task.completed:,.0f} of {task.total:,.0f} frames"),
            TimeElapsedColumn(),
            TextColumn("{task.fields[left]}"),
        )
        self.bar = _BarBelowItsTitle(*columns, console=self.console)
        self.bar.start()
        self.bar.add_task(title, total=frames, completed=frame, left="", note="")

    def drop(self, runs: Sequence[str]) -> None:
        """Count runs of these names no longer: they are given up."""

    def note(self, text: str) -> None:
        """Print a message once, above the progress; a warning even where nothing else is shown."""
        is_warning = isinstance(text, Remark)
        if is_warning or not self.quiet:
            told = f"vcse: warning, {text}" if is_warning else text
            self.console.print(told, highlight=False, soft_wrap=True, markup=False)

    def retitle(self, title: str) -> None:
        """Change the title of what has begun."""
        self.title = title
        if self.bar is not None:
            self.bar.update(self.bar.task_ids[0], description=title)

    def say_stopping(self) -> None:
        """Print at once that a signal was received.

        A signal may come while a line is being printed, hence the thread, which waits for the end of the line.
        """
        again = "; Ctrl-C again stops at once, without saving" if self.console.is_terminal else ""
        threading.Thread(target=self.note, args=(f"stopping: saving all runs{again}",)).start()

    def report(self, status: Status) -> None:
        """Show where a cohort is."""
        frames_per_s = self.pace.take(time.monotonic(), status)
        left = (status.frames - min(status.frame, status.frames)) / max(frames_per_s, 1e-9)
        if not status.learns and left > 0:
            left = math.inf
        self.show(status, frames_per_s * status.runs, left)

    def show(self, status: Status, frames_per_s: float, left: float) -> None:
        """Show how far runs are, how fast all of them together, and how many seconds are left."""
        if self.quiet:
            return
        now = time.monotonic()
        notes = [f"{_rate(frames_per_s)} frames/s"]
        notes += _by_method(status.score, status.scores, _SCORE_FORMS[status.score])
        notes += _by_method("bonus", status.bonus, "{:.3g}")
        note = ", ".join(notes)
        frame = min(status.frame, status.frames)
        if self.bar is not None:
            shown = f"{_clock(left)} left" if left > 0 else ""
            self.bar.update(self.bar.task_ids[0], completed=frame, left=shown, note=note)
            return
        if now - self.last_line >= SECONDS_BETWEEN_LINES or status.frame >= status.frames:
            self.last_line = now
            line = f"{self.title}: {frame:,} of {status.frames:,} frames, {note}, {duration(left)} left"
            print(line, file=sys.stderr, flush=True)


class _Pace:
    """How fast a run is at present: a mean over all that was done would promise an end that is hours too early."""

    def __init__(self) -> None:
        self.reports: deque[tuple[float, int]] = deque()
        self.learns = True

    def take(self, now: float, status: Status) -> float:
        """Add a report, and return the frames per second of one run over the last reports."""
        is_other = self.reports and status.frame < self.reports[-1][1]  # runs, from their start
        if is_other or status.learns != self.learns:
            self.reports.clear()
        self.learns = status.learns
        self.reports.append((now, status.frame))
        while len(self.reports) > FEWEST_REPORTS and self.reports[1][0] <= now - RECENT_SECONDS:
            self.reports.popleft()
        began, first = self.reports[0]
        if status.frame == first or now <= began:  # one report alone has no pace but its own
            return status.frames_per_s / max(status.runs, 1)
        return (status.frame - first) / (now - began)


class _BarBelowItsTitle(Progress):
    """A bar between two lines of words, so that no terminal is too narrow for how far it is and how long it takes."""

    def get_renderables(self) -> Iterable[RenderableType]:
        for task in self.tasks:
            yield Text(task.description)
            yield self.make_tasks_table([task])
            if task.fields["note"]:
                yield Text(task.fields["note"])


def _rate(frames_per_s: float) -> str:
    return f"{frames_per_s:,.0f}" if frames_per_s >= 10 else f"{frames_per_s:.1f}"


def _clock(seconds: float) -> str:
    try:
        return str(timedelta(seconds=math.ceil(seconds)))
    except OverflowError:  # nothing has happened yet
        return "-:--:--"


def _by_method(name: str, numbers: dict[str, float], form: str) -> list[str]:
    """Return a note of what is known by now; none where nothing is."""
    known = [f"{method} {form.format(number)}" for method, number in numbers.items() if not math.isnan(number)]
    return [" ".join([name, *known])] if known else []
