"""Running a study on a Ray cluster: each cohort is a task, which Ray starts again elsewhere when a node is lost.

Runs are written to storage that all nodes see. What a lost node had saved is where the next goes on; a run's directory
is locked while it is written, so that none is trained twice.
"""

import os
import socket
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from vcse.extras import install
from vcse.launch.cohorts import StoppedError, stop_on_signals, train_runs, unfinished_runs
from vcse.runs.command import current_command, executing
from vcse.runs.config import RunConfig
from vcse.runs.divergence import DivergedError
from vcse.runs.progress import TrainingProgress
from vcse.studies.status import add_failures, wait_until_free

ATTEMPTS = 2  # of a cohort that fails by itself
LOST_WORKERS = 20  # that a cohort outlives: they are not its fault
LOST_NODE_SECONDS = 60.0  # that the processes of a lost node may go on holding its runs
SECONDS_BETWEEN_LOOKS = 1.0
CONNECTION_SECONDS = 5.0
SAVING_SECONDS = 30.0


def run_on_ray(
    cohorts: Sequence[Sequence[RunConfig]],
    out: Path,
    *,
    device: str,
    watch: Callable[[], None],
    say_stopping: Callable[[], None] = lambda: None,
) -> dict[str, str]:
    """Train cohorts as tasks of the cluster that `connect` reached, and give the runs that failed, with the reason.

    Args:
        cohorts: The runs that are not done, in the order in which they start.
        out: Where they are written; every node must see it under this path.
        device: Where the networks live: a task asks for one core, and on cuda for a GPU too.
        watch: Called about once a second.
        say_stopping: Called when a signal asks to stop.
    """
    ray = _ray()
    place, command = out.resolve(), current_command()
    train = ray.remote(_train).options(
        num_cpus=1, num_gpus=1 if device == "cuda" else 0, max_retries=LOST_WORKERS, retry_exceptions=False
    )
    failures: dict[str, str] = {}
    try:
        with stop_on_signals(say_stopping) as stopped:
            # The task of each cohort, and the number of the attempt.
            running: dict[Any, tuple[Sequence[RunConfig], int]] = {
                train.remote(list(cohort), place, device, command): (cohort, 1) for cohort in cohorts
            }
            while running and not stopped():
                over, _ = ray.wait(list(running), num_returns=1, timeout=SECONDS_BETWEEN_LOOKS)
                for reference in over:
                    cohort, attempt = running.pop(reference)
                    failure = _failure(ray, reference)
                    problem = "" if failure is None else str(failure) or repr(failure)
                    # A run that diverged would do so again, from the same numbers.
                    if problem and attempt < ATTEMPTS and not isinstance(failure, DivergedError):
                        print(f"vcse: {problem}; trying once more", file=sys.stderr)
                        running[train.remote(list(cohort), place, device, command)] = cohort, attempt + 1
                    elif problem:
                        failures |= {run.name: problem for run in unfinished_runs(cohort, place)}
                        add_failures(place, failures)
                watch()
            if stopped():
                _stop(ray, list(running))
                raise StoppedError(stopped())
    finally:
        ray.shutdown()
    return failures


def _stop(ray: Any, references: list[Any]) -> None:
    """Ask tasks to save and stop; those that do not in time, in the middle of an evaluation, are killed."""
    for reference in references:
        ray.cancel(reference, force=False)  # reaches them as Ctrl-C would
    _, left = ray.wait(references, num_returns=len(references), timeout=SAVING_SECONDS)
    for reference in left:
        ray.cancel(reference, force=True)


def _ray() -> Any:
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nothing is sent to anybody
    try:
        import ray
    except ImportError as error:
        raise RuntimeError(f"Ray is not installed: {install('ray')}") from error
    return ray


def connect(address: str) -> None:
    """Reach a cluster.

    Args:
        address: Of the cluster; auto for the one that runs here, local to start one for this command.
    """
    ray = _ray()
    host, found, port = address.rpartition(":")
    where: dict[str, Any] = {"include_dashboard": False} if address == "local" else {"address": address}
    try:
        if found and port.isdecimal():  # Ray itself would try for a minute
            socket.create_connection((host.removeprefix("ray://"), int(port)), CONNECTION_SECONDS).close()
        ray.init(**where, log_to_driver=False, logging_level="error")
    except (OSError, RuntimeError, ValueError) as error:
        first, *_ = str(error).splitlines() or [type(error).__name__]
        raise RuntimeError(f"--ray {address}: no cluster there ({first})") from error


def _train(configs: list[RunConfig], out: Path, device: str, command: list[str] | None) -> None:
    """Train a cohort, on whichever node this runs."""
    wait_until_free([out / config.name for config in configs], LOST_NODE_SECONDS)
    with executing(command):
        train_runs(configs, out, device=device, threads=1, progress=TrainingProgress(quiet=True))


def _failure(ray: Any, reference: Any) -> Exception | None:
    """Return what a task failed by, if it did."""
    try:
        ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        cause: Exception = error.cause
        return cause
    except ray.exceptions.RayError as error:
        first, *_ = str(error).splitlines()
        return RuntimeError(first)
    return None
