"""Frames per second of training A2C on MiniGrid, and where the time goes.

Frames/s are measured while everything runs as in training. Shares are measured after that, in updates of their own,
in which the device is waited for between the parts.
"""

import multiprocessing
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from threading import Barrier
from typing import Any, NamedTuple

import torch

from vcse.agents.a2c.cohort import A2CCohort
from vcse.bench.training import begun, speed, wait
from vcse.envs.minigrid.names import TASKS
from vcse.launch.configs import run_configs
from vcse.launch.processes import suitable_jobs

WARM_UP_UPDATES = 84  # fills the memory of 10,000 features that SE has, and captures what is captured
SECONDS = 10.0  # for frames/s; a tenth of it for the shares
SHARES = ("share_env", "share_act", "share_bonus", "share_update")


class Case(NamedTuple):
    """A cohort to measure: every task with every bonus and so many seeds."""

    bonuses: tuple[str, ...]
    seeds: int
    tasks: tuple[str, ...] = ("LavaGapS7",)

    @property
    def learners(self) -> int:
        """Learners of the cohort."""
        return len(self.bonuses) * self.seeds * len(self.tasks)


CPU_CASES = tuple(Case((bonus,), seeds) for seeds in (1, 16, 48) for bonus in ("none", "se", "vcse"))
CUDA_CASES = (
    *(Case((bonus,), seeds) for seeds in (16, 48) for bonus in ("none", "se", "vcse")),
    Case(("none", "se", "vcse"), 16, TASKS),
)


@dataclass(frozen=True)
class Row:
    """One line of the answer. The shares add up to 1."""

    device: str
    learners: int
    bonus: str
    frames_per_s: float
    share_env: float  # waiting for environments, and keeping what they gave
    share_act: float
    share_bonus: float  # features, neighbours, reward
    share_update: float  # the rest of the update


def measure(device: str, cases: Sequence[Case], *, threads: int, seconds: float = SECONDS) -> Iterator[Row]:
    """Measure case after case, each in as many processes as training would use."""
    for case in cases:
        jobs = suitable_jobs(["a2c"] * case.learners, device=device, cores=threads)
        name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
        parts = (
            _in_processes(device, case, jobs, threads, seconds)
            if jobs > 1
            else [_measure(device, case, threads, seconds)]
        )
        shares = {share: sum(part[share] for part in parts) / jobs for share in SHARES}
        frames_per_s = sum(part["frames_per_s"] for part in parts)
        yield Row(name, case.learners, "+".join(case.bonuses), frames_per_s, **shares)


def _in_processes(device: str, case: Case, jobs: int, threads: int, seconds: float) -> list[dict[str, float]]:
    """Deal the seeds of a case out to processes that are timed at the same moment."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, ProcessPoolExecutor(jobs, context) as pool:
        start = manager.Barrier(jobs)
        parts = [case._replace(seeds=len(range(job, case.seeds, jobs))) for job in range(jobs)]
        measured = [pool.submit(_measure, device, part, max(1, threads // jobs), seconds, start) for part in parts]
        return [each.result() for each in measured]


def _measure(device: str, case: Case, threads: int, seconds: float, start: Barrier | None = None) -> dict[str, float]:
    """Return frames/s and shares of one process."""
    torch.set_num_threads(1)
    configs = [
        config
        for task in case.tasks
        for bonus in case.bonuses
        for config in run_configs(f"minigrid/{task}", bonus, agent="a2c", seeds=range(case.seeds), frames=1_000_000)
    ]
    with begun(A2CCohort, configs, device=device, threads=threads) as cohort:
        for _ in range(WARM_UP_UPDATES):
            cohort.step()
        if start is not None:
            start.wait()
        frames_per_s, _ = speed(cohort, device, seconds, after_step=cohort.new_actions.clear)
        return {"frames_per_s": frames_per_s, **_shares(cohort, device, seconds / 10)}


def _shares(cohort: A2CCohort, device: str, seconds: float) -> dict[str, float]:
    agent, spent = cohort.agent, cohort.timer.seconds
    agent.release_capture()
    cohort.captures = False
    bonus = agent.weighted_bonus
    spent["bonus"] = 0.0

    def timed_bonus(*arguments: Any) -> Any:
        wait(device)
        begin = time.perf_counter()
        output = bonus(*arguments)
        wait(device)
        duration = time.perf_counter() - begin
        spent["bonus"] += duration
        spent["update"] -= duration
        return output

    agent.weighted_bonus = timed_bonus  # type: ignore[method-assign, assignment]
    _, shares = speed(cohort, device, seconds, after_step=lambda: wait(device))
    return shares
