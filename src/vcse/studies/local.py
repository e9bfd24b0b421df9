"""Running a study on this machine: cohorts in processes of their own, as many at once as there are cores.

A cohort that fails is tried once more, from its checkpoints, and then named; the others go on. A run's numbers do not
depend on its cohort, so a study that was stopped can go on with other cohorts.
"""

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from multiprocessing.connection import wait
from pathlib import Path

from vcse.agents import agent_entry, readable_runs
from vcse.launch.cohorts import StoppedError, alike, stop_on_signals, unfinished_runs
from vcse.launch.processes import Job, deal_out, end_jobs, start_job, together
from vcse.runs.checkpoint import write_atomically
from vcse.runs.config import RunConfig
from vcse.runs.directory import check_config, check_no_file, has_saved
from vcse.runs.divergence import DivergedError
from vcse.runs.formatting import counted
from vcse.runs.progress import Status, TrainingProgress
from vcse.runs.remarks import Remark
from vcse.studies.manifest import ARCHIVED_CURVES, STUDY_FILE, StudyFile, read_study_file
from vcse.studies.status import add_failures, forget_failures, locked, study_status, wait_until_free

ATTEMPTS = 2
SECONDS_BETWEEN_LOOKS = 1.0
SAVING_SECONDS = 20.0  # that processes of a command that was killed may need to save


Training = tuple[Sequence[RunConfig], Status]  # the runs of a process, and how far it is


@dataclass
class CohortJob:
    """Runs that are trained in one process."""

    configs: list[RunConfig]
    attempts: int = 0
    problem: str = ""
    has_diverged: bool = False  # and would again, from the same numbers


def check_out(file: StudyFile, configs: Sequence[RunConfig], out: Path) -> list[RunConfig]:
    """Refuse a directory that holds something else than this study, and give the runs that are not done."""
    check_no_file(out, "the runs")
    if (out / ARCHIVED_CURVES).exists():
        raise ValueError(f"{out} is an archive of a study: vcse report reads it; choose another --out to train")
    before = read_study_file(out)
    if before is not None and before.study != file.study:
        raise ValueError(f"{out} holds the study {before.study}, not {file.study}: choose another --out")
    for config in configs:
        check_config(out / config.name, config)
    _check_rendering(configs, out)
    return unfinished_runs(configs, out)


def _check_rendering(configs: Sequence[RunConfig], out: Path) -> None:
    """Refuse images of another quality than those that runs in a directory have learned from."""
    wanted = configs[0].rendering if configs else None
    if wanted is None or not any(out.rglob("config.json")):
        return
    for path, there in readable_runs(out).items():
        if there.rendering != wanted and has_saved(path):
            raise ValueError(
                f"{path} has rendering {there.rendering}, not {wanted}, and a study has one: choose another --out"
            )


def take_out(file: StudyFile, configs: Sequence[RunConfig], out: Path) -> None:
    """Write what is asked for into the study's directory, once nobody else trains these runs."""
    wait_until_free([out / config.name for config in configs], SAVING_SECONDS)
    out.mkdir(parents=True, exist_ok=True)
    with locked(out):
        before = read_study_file(out)
        file = file if before is None else before.joined(file)
        write_atomically(out / STUDY_FILE, json.dumps(file.to_json(), indent=1).encode())
    forget_failures(out, [config.name for config in configs])


def form_cohorts(configs: Sequence[RunConfig], *, jobs: int, device: str) -> list[list[RunConfig]]:
    """Deal runs out to cohorts: as few as keep all jobs busy, the longest first."""
    cohorts: list[list[RunConfig]] = []
    for group in alike(configs):
        pieces = -(-len(group) // agent_entry(group[0].agent).most_runs[device])
        cohorts += deal_out(group, -(-pieces // jobs) * jobs)  # so that no job is left alone with the last
    return sorted(cohorts, key=lambda cohort: -sum(config.frames for config in cohort))


def run_locally(
    cohorts: Sequence[Sequence[RunConfig]],
    out: Path,
    *,
    device: str,
    threads: int,
    jobs: int,
    replay_place: str,
    watch: Callable[[Sequence[Training]], None],
    say_stopping: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Train cohorts, so many at a time, and return the runs that failed with the reason.

    Args:
        cohorts: The runs that are not done, in the order in which they start.
        out: Where they are written.
        device: Where the networks live.
        threads: Of all jobs together, for the environments.
        jobs: Processes at the same time.
        replay_place: Where their replays lie, as `room_for` all of them has found it.
        watch: Called about once a second, with how far the cohorts are that are being trained.
        say_stopping: Called when a signal asks to stop.
    """
    waiting = [CohortJob(list(cohort)) for cohort in cohorts]
    running: list[tuple[CohortJob, Job]] = []
    failures: dict[str, str] = {}
    settings = {"device": device, "threads": max(1, threads // jobs), "replay_place": replay_place}
    with stop_on_signals(say_stopping) as stopped:
        try:
            while (waiting or running) and not stopped():
                while waiting and len(running) < jobs:
                    cohort = waiting.pop(0)
                    cohort.attempts += 1
                    running.append((cohort, start_job(cohort.configs, out, settings)))
                wait([job.messages for _, job in running], timeout=SECONDS_BETWEEN_LOOKS)
                if stopped():  # a signal to the whole group has told the processes too
                    break
                for cohort, job in running:
                    _listen(cohort, job)
                over = [(cohort, job) for cohort, job in running if job.is_over]
                running = [(cohort, job) for cohort, job in running if not job.is_over]
                for cohort, job in over:
                    end_jobs([job])
                    if cohort.problem and cohort.attempts < ATTEMPTS and not cohort.has_diverged:
                        print(f"vcse: {cohort.problem}; trying once more", file=sys.stderr)
                        cohort.problem = ""
                        waiting.append(cohort)
                    elif cohort.problem:
                        failures |= {run.name: cohort.problem for run in unfinished_runs(cohort.configs, out)}
                        add_failures(out, failures)
                watch([(cohort.configs, job.status) for cohort, job in running if job.status is not None])
        finally:
            end_jobs([job for _, job in running])  # which first asks them to save
        if stopped() and any(unfinished_runs(cohort, out) for cohort in cohorts):
            raise StoppedError(stopped())
    return failures


def _listen(cohort: CohortJob, job: Job) -> None:
    """Take what a process says: where it is, why it failed, that it is done."""
    while not job.is_over and job.messages.poll():
        try:
            message = job.messages.recv()
        except (EOFError, OSError):  # it died, perhaps in the middle of a message
            job.process.join()
            code = job.process.exitcode or 0
            how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
            cohort.problem = f"the process of {_what(cohort.configs)} {how}"
            job.is_over = True
            return
        if isinstance(message, Exception):
            cohort.has_diverged = isinstance(message, DivergedError)
            cohort.problem = str(message) if cohort.has_diverged else f"{_what(cohort.configs)}: {message}"
            job.is_over = True
        elif isinstance(message, Remark):
            print(f"vcse: {message}", file=sys.stderr, flush=True)
        elif isinstance(message, Status):
            job.status = message
        elif not isinstance(message, str):
            job.is_over = True


def _what(configs: Sequence[RunConfig]) -> str:
    tasks = dict.fromkeys(config.task for config in configs)
    return f"{counted(len(configs), 'run')} of {', '.join(tasks)}"


class StudyProgress:
    """The progress of a study as `vcse train` shows that of runs: all frames in one bar, and states in its title."""

    def __init__(self, title: str, out: Path, configs: Sequence[RunConfig], *, quiet: bool = False) -> None:
        self.title, self.out, self.configs = title, out, configs
        self.training = TrainingProgress(quiet=quiet)
        self.frames = sum(config.frames for config in configs)
        self.shown: tuple[str, int] = ("", 0)

    def __enter__(self) -> "StudyProgress":
        status = study_status(self.out, self.configs)
        self.shown = (f"{self.title}: {status.counts()}", status.frame)
        self.training.start(self.shown[0], self.frames, status.frame)
        return self

    def __exit__(self, *error: object) -> None:
        self.show()
        self.training.__exit__(*error)

    def show(self, training: Sequence[Training] = ()) -> None:
        """Show where the study is, of which what is being trained knows more than its files."""
        if self.training.quiet:
            return
        status = study_status(self.out, self.configs)
        live = {config.name for configs, _ in training for config in configs}
        runs = zip(self.configs, status.runs, strict=True)
        frame = sum(run.frame for config, run in runs if config.name not in live)
        frame += sum(each.frame * each.runs for _, each in training)
        title = f"{self.title}: {status.counts()}"
        if (title, frame) == self.shown:
            return
        self.shown = (title, frame)
        self.training.retitle(title)
        known = [each for _, each in training]
        last = together(known) if known else Status(0, 0, 1, 0.0, {}, {})
        now = last._replace(frame=frame, frames=self.frames, runs=1)
        self.training.show(now, status.frames_per_s or last.frames_per_s, status.seconds_left)
