"""What the benchmarks of training share: a cohort for a moment, how fast it is, and how long a call takes."""

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from vcse.agents.drqv2.cohort import DrQv2Cohort
from vcse.agents.image_environments import gl_backend
from vcse.agents.mwm.cohort import MWMCohort
from vcse.runs.cohort import Cohort
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.progress import Timer

WARM_UP = {"cpu": 1, "cuda": 6}  # updates on images, after which all that is captured on a GPU has been


class TimedCohort(Cohort, Protocol):
    """A cohort that knows what it spends its time on."""

    timer: Timer


Begun = TypeVar("Begun", bound=TimedCohort)


@contextmanager
def begun(kind: type[Begun], configs: Iterable[RunConfig], *, device: str, threads: int) -> Iterator[Begun]:
    """Make a cohort of runs whose files are gone afterwards."""
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as opened:
        directories = [
            opened.enter_context(closing(RunDirectory(Path(scratch) / config.name, config))) for config in configs
        ]
        yield opened.enter_context(closing(kind(directories, device=device, threads=threads)))


def speed(
    cohort: TimedCohort, device: str, seconds: float, after_step: Callable[[], object] = lambda: None
) -> tuple[float, dict[str, float]]:
    """Return frames/s of training, of all learners together, and the shares of the time of its parts."""
    wait(device)
    before = dict(cohort.timer.seconds)
    begin, first = time.perf_counter(), cohort.frame
    while time.perf_counter() - begin < seconds:
        cohort.step()
        after_step()
    wait(device)
    frames_per_s = (cohort.frame - first) * len(cohort.directories) / (time.perf_counter() - begin)
    spent = {part: cohort.timer.seconds[part] - before[part] for part in before}
    return frames_per_s, {f"share_{part}": each / sum(spent.values()) for part, each in spent.items()}


def train_on_images(
    kind: type[DrQv2Cohort] | type[MWMCohort], config: RunConfig, device: str, threads: int, seconds: float
) -> tuple[float, dict[str, float], str]:
    """Return frames/s of training, the shares of the time of its parts, and what rendered the images."""
    with begun(kind, [config], device=device, threads=threads) as cohort:
        cohort.begin()
        while cohort.agent.updates < WARM_UP[device]:
            cohort.step()
        return *speed(cohort, device, seconds), gl_backend(cohort.environment)


def duration(call: Callable[[], Any], device: str, seconds: float) -> float:
    """Return how long a call takes: the median over groups of calls, each of which the host waits for."""
    call()
    wait(device)
    begin = time.perf_counter()
    call()
    wait(device)
    group = max(1, int(seconds / 10 / (time.perf_counter() - begin)))
    found: list[float] = []
    begin = time.perf_counter()
    while not found or time.perf_counter() - begin < seconds:
        start = time.perf_counter()
        for _ in range(group):
            call()
        wait(device)
        found.append((time.perf_counter() - start) / group)
    return statistics.median(found)


def wait(device: str) -> None:
    """Wait until a GPU has done what it was asked for."""
    if device == "cuda":
        torch.cuda.synchronize()
