"""Training on several cores: runs are dealt out to processes, each of which trains a cohort on one core.

Networks this small do not gain from threads inside an operation. Half of the learners per process take half of
the time, and a run's numbers do not depend on whom it shares a process with.
"""

import contextlib
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any

from vcse.agents import agent_entry
from vcse.launch.cohorts import (
    StoppedError,
    alike,
    check_runs,
    room_for,
    saved_frame,
    stop_on_signals,
    telling_what_is_saved,
    train_runs,
    unfinished_runs,
    warn_of,
)
from vcse.runs.command import current_command, executing
from vcse.runs.config import RunConfig
from vcse.runs.directory import done_frame
from vcse.runs.divergence import Diverged, DivergedError
from vcse.runs.progress import Status, TrainingProgress, mean_of_known

ORPHAN_SECONDS = 10.0  # that a process has to save when the one that started it is gone


def suitable_jobs(agents: Iterable[str], *, device: str, cores: int) -> int:
    """Return how many processes to use: one per core, as long as there are enough runs; a GPU is shared badly."""
    filled = sum(runs // agent_entry(agent).least_runs for agent, runs in Counter(agents).items())
    return 1 if device == "cuda" else max(1, min(cores, filled))


def deal_out(configs: Sequence[RunConfig], jobs: int) -> list[list[RunConfig]]:
    """Deal runs out to so many processes, or to fewer where runs are fewer: to each some of every method."""
    in_order = sorted(configs, key=lambda config: (config.task, config.method, config.seed))
    return [in_order[job::jobs] for job in range(min(jobs, len(configs)))]


def train_in_jobs(
    configs: Sequence[RunConfig],
    out: Path,
    *,
    device: str,
    threads: int,
    jobs: int,
    progress: TrainingProgress,
    tensorboard: bool = False,
) -> list[Path]:
    """Train runs as `train_runs` does, dealt out to so many processes, and say how many are done before."""
    check_runs(configs, out)  # all of them, before anything is started
    paths = [out / config.name for config in configs]
    unfinished = unfinished_runs(configs, out)
    if len(unfinished) < len(configs):
        print(_done_before(paths, len(unfinished), out), file=sys.stderr)
    warn_of(unfinished)
    jobs = min(jobs, len(unfinished))
    settings: dict[str, Any] = {"device": device, "threads": threads, "tensorboard": tensorboard}
    with telling_what_is_saved(unfinished, out):
        if jobs > 1:
            _train_in_processes(unfinished, out, settings, jobs=jobs, progress=progress)
        elif unfinished:
            train_runs(unfinished, out, **settings, progress=progress)
    return paths


def _train_in_processes(
    unfinished: Sequence[RunConfig], out: Path, settings: dict[str, Any], *, jobs: int, progress: TrainingProgress
) -> None:
    """Deal runs out to processes, and follow these until all runs are done."""
    dealt = deal_out(unfinished, jobs)
    room = room_for([cohort for mine in dealt for cohort in alike(mine)], out, device=settings["device"], jobs=jobs)
    frames = sum(config.frames for config in unfinished) // len(unfinished)
    saved = sum(saved_frame(config, out) for config in unfinished) // len(unfinished)
    progress.start(f"{len(unfinished)} runs in {jobs} processes, on average", frames, saved)
    if said := room.describe():
        progress.note(said)
    with stop_on_signals(progress.say_stopping) as stopped:
        settings = settings | {"threads": max(1, settings["threads"] // jobs), "replay_place": room.place}
        started: list[Job] = []
        try:
            for mine in dealt:
                started.append(start_job(mine, out, settings))  # noqa: PERF401 - if one fails, the others are ended
            _follow(started, progress, stopped)
        finally:
            end_jobs(started)
    if stopped():
        raise StoppedError(stopped())


def _done_before(paths: Sequence[Path], unfinished: int, out: Path) -> str:
    if len(paths) == 1:
        return f"{paths[0]} is done: {done_frame(paths[0]):,} frames"
    if unfinished:
        return f"{len(paths) - unfinished} of {len(paths)} runs in {out} are done"
    frames = {done_frame(path) for path in paths}
    how_long = f"{min(frames):,}" if len(frames) == 1 else f"{min(frames):,} to {max(frames):,}"
    return f"all {len(paths)} runs in {out} are done, with {how_long} frames each: nothing to do"


@dataclass
class Job:
    """A process that trains, and what it last said."""

    process: SpawnProcess
    messages: Connection
    status: Status | None = None
    notes: list[str] = field(default_factory=list)
    is_over: bool = False


def start_job(configs: Sequence[RunConfig], out: Path, settings: dict[str, Any]) -> Job:
    """Train runs in a process of their own, which stops when this one dies."""
    context = multiprocessing.get_context("spawn")
    mine, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, list(configs), out, settings, current_command()))
    with _deaf_to_ctrl_c():
        process.start()
    theirs.close()
    return Job(process, mine)


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Shield a process that is started meanwhile from Ctrl-C until it can stop cleanly; this one forwards it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _follow(jobs: Sequence[Job], progress: TrainingProgress, stopped: Callable[[], int]) -> None:
    """Pass on what the processes say until all have ended; the first failure ends them all, unless a run diverged."""
    told = False
    given_up: dict[str, Diverged] = {}
    while running := [job for job in jobs if not job.is_over]:
        wait([job.messages for job in running], timeout=0.5)
        if stopped() and not told:
            told = True
            tell_to_stop(jobs)
        for job in running:
            try:
                _listen(job, progress, jobs, is_stopping=told)
            except DivergedError as error:  # the other runs of that process are done
                job.is_over = True
                given_up |= error.runs
    if given_up and not told:
        raise DivergedError(given_up)


def _listen(job: Job, progress: TrainingProgress, jobs: Sequence[Job], *, is_stopping: bool) -> None:
    while not job.is_over and job.messages.poll():
        try:
            message = job.messages.recv()
        except (EOFError, OSError):  # it ended, perhaps in the middle of a message, and did not say that it was done
            job.is_over = True
            job.process.join()
            if not is_stopping:
                raise RuntimeError(
                    f"a training process ended with exit code {job.process.exitcode}; the same command "
                    "continues from the last checkpoints"
                ) from None
            return
        if isinstance(message, Status):
            job.status = message
            if all(each.status is not None or each.is_over for each in jobs):
                progress.report(together([each.status for each in jobs if each.status is not None]))
        elif isinstance(message, str):  # what a process says once
            if not any(message in each.notes for each in jobs):  # others say the same
                progress.note(message)
            job.notes.append(message)
        elif isinstance(message, Exception):
            raise message
        else:
            job.is_over = True


def together(statuses: Sequence[Status]) -> Status:
    """Return the status of several processes: as far as their runs are on average, as fast as all."""
    runs = sum(status.runs for status in statuses)
    methods = dict.fromkeys(method for status in statuses for method in status.scores)
    return statuses[0]._replace(
        frame=sum(status.runs * status.frame for status in statuses) // runs,
        frames=sum(status.runs * status.frames for status in statuses) // runs,
        runs=runs,
        frames_per_s=sum(status.frames_per_s for status in statuses),
        scores={method: mean_of_known([each.scores.get(method, math.nan) for each in statuses]) for method in methods},
        bonus={method: mean_of_known([each.bonus.get(method, math.nan) for each in statuses]) for method in methods},
        learns=all(status.learns for status in statuses),
    )


def tell_to_stop(jobs: Sequence[Job]) -> None:
    """Ask processes to save and end."""
    for job in jobs:
        if job.process.is_alive():
            job.process.terminate()  # SIGTERM


def end_jobs(jobs: Sequence[Job]) -> None:
    """Leave no process behind."""
    tell_to_stop([job for job in jobs if not job.is_over])
    for job in jobs:
        job.process.join()
        job.messages.close()


class PipeProgress(TrainingProgress):
    """Tells the process that shows the progress how far all of this one's runs are, those that wait among them."""

    def __init__(self, messages: Connection, configs: Sequence[RunConfig], out: Path) -> None:
        super().__init__(quiet=True)
        self.messages = messages
        self.frames = {config.name: config.frames for config in configs}
        self.had = {config.name: saved_frame(config, out) for config in configs}
        self.cohort: Sequence[str] = ()

    def start(self, title: str, frames: int, frame: int, *, runs: Sequence[str] = ()) -> None:
        """Begin a cohort, of runs of these names, at a frame."""
        self.cohort = runs
        self._take(frame)  # which is before the newest checkpoint where that is damaged

    def drop(self, runs: Sequence[str]) -> None:
        """Count runs of these names no longer."""
        for name in runs:
            del self.had[name], self.frames[name]

    def note(self, text: str) -> None:
        """Send a line on."""
        _tell(self.messages, text)

    def say_stopping(self) -> None:
        """Print nothing: the process that started this one does."""

    def report(self, status: Status) -> None:
        """Send on how far all runs of this process are, on average."""
        self._take(min(status.frame, status.frames))
        runs = len(self.had)
        frame, frames = (sum(of_runs.values()) // runs for of_runs in (self.had, self.frames))
        _tell(self.messages, status._replace(frame=frame, frames=frames, runs=runs))

    def _take(self, frame: int) -> None:
        self.had |= dict.fromkeys(self.cohort, frame)


def _work(
    messages: Connection, configs: list[RunConfig], out: Path, settings: dict[str, Any], command: list[str] | None
) -> None:
    """Train, in a process of its own."""
    threading.Thread(target=_stop_with_parent, args=(messages,), daemon=True).start()
    try:
        with executing(command):
            train_runs(configs, out, progress=PipeProgress(messages, configs, out), **settings)
    except StoppedError as error:
        raise SystemExit(128 + error.number) from None
    except (ValueError, RuntimeError, OSError) as error:
        _tell(messages, error if isinstance(error, ValueError | DivergedError) else RuntimeError(str(error)))
        raise SystemExit(1) from None
    _tell(messages, None)


def _tell(messages: Connection, message: Any) -> None:
    """Send a message to the process that shows the progress; if it is gone, `_stop_with_parent` saves and ends."""
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        messages.send(message)


def _stop_with_parent(messages: Connection) -> None:
    """Wait for the end of the pipe, which comes when the other process dies, however it does."""
    try:
        messages.poll(None)
        messages.recv()
    except (EOFError, OSError):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(ORPHAN_SECONDS)
        os._exit(1)  # in the middle of an evaluation, which would be long; the last checkpoint is whole
