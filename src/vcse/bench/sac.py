"""Updates per second of training SAC, and where the time goes.

The update alone is timed with all that belongs to it, on random transitions; the bonus of the same batch is timed
alone beside it. What a VCSE update takes beyond a plain one and the bonus is the cost of the extrinsic critic. Then
whole training is timed on Hopper Stand: acting, simulating and learning.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from vcse.agents import agent_entry
from vcse.agents.sac.agent import ACTION_SAMPLES, SAC, SACSpec
from vcse.agents.sac.cohort import SACCohort
from vcse.agents.sac.settings import SACSettings
from vcse.bench.training import begun, duration, speed
from vcse.launch.configs import run_configs
from vcse.nets.cuda.graphs import CUDAGraph
from vcse.replay.transitions import Batch
from vcse.runs.arithmetic import computing_with
from vcse.runs.config import RunConfig

SECONDS = 4.0  # for each of the three measurements of a case
TASK = "dmc/hopper_stand"
OBSERVATION_SIZE, ACTION_SIZE = 15, 4  # of that task
WARM_UP = 5
CAPACITY = 100_000


class Case(NamedTuple):
    """A cohort to measure."""

    learners: int
    bonus: str
    hidden_units: int
    batch_size: int = 1024


BONUSES = ("none", "se", "vcse")  # none first: the others are held against it
CPU_CASES = tuple(Case(1, bonus, units) for units in (256, 1024) for bonus in BONUSES)
CUDA_CASES = tuple(Case(learners, bonus, 1024) for learners in (1, 4, 16) for bonus in BONUSES)


@dataclass(frozen=True)
class Row:
    """One line of the answer."""

    device: str
    learners: int
    bonus: str
    hidden_units: int
    batch_size: int
    updates_per_s: float  # of all learners together, without environments
    times_plain: float  # duration of an update against one without a bonus
    share_bonus: float  # of an update: features, neighbours and reward
    share_extrinsic_critic: float  # of an update
    frames_per_s: float  # of all learners together, in training
    share_env: float  # of training: waiting for environments, and keeping what they gave
    share_act: float
    share_update: float


def measure(device: str, cases: Sequence[Case], *, threads: int, seconds: float = SECONDS) -> Iterator[Row]:
    """Measure cases one after the other."""
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    seconds_of: dict[Case, float] = {}
    for case in cases:
        options = case._asdict()
        seeds = range(options.pop("learners"))
        configs = run_configs(TASK, agent="sac", seeds=seeds, frames=CAPACITY, seed_frames=1, **options)
        settings = SACSettings.of(configs[0].settings)
        with computing_with(agent_entry("sac").arithmetic(device)):
            update_s, bonus_s = _update_seconds(settings, case.learners, device, seconds)
            frames_per_s, shares = _train(configs, device, threads, seconds)
        seconds_of[case] = update_s
        plain_s = seconds_of.get(case._replace(bonus="none"), float("nan"))
        extrinsic_s = max(update_s - bonus_s - plain_s, 0.0) if settings.has_extrinsic_critic else 0.0
        yield Row(
            device=name,
            **case._asdict() | shares,
            updates_per_s=case.learners / update_s,
            times_plain=update_s / plain_s,
            share_bonus=bonus_s / update_s,
            share_extrinsic_critic=extrinsic_s / update_s,
            frames_per_s=frames_per_s,
        )


def _update_seconds(settings: SACSettings, learners: int, device: str, seconds: float) -> tuple[float, float]:
    """Return the duration of an update of all learners, and of its bonus alone."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(learners, *shape, generator=generator).to(device)

    n = settings.batch_size
    agent = SAC(SACSpec(OBSERVATION_SIZE, ACTION_SIZE), [settings] * learners, range(learners), device=device)
    batch = Batch(
        observations=random(n, OBSERVATION_SIZE),
        actions=random(n, ACTION_SIZE).tanh(),
        rewards=random(n).sigmoid(),
        terminated=torch.zeros(learners, n, device=device),
        next_observations=random(n, OBSERVATION_SIZE),
    )
    noise, values = random(ACTION_SAMPLES, n, ACTION_SIZE), random(n)
    for _ in range(WARM_UP):
        agent.update(batch, noise)
    if device == "cuda":
        agent.capture(batch, noise)
    update_s = duration(lambda: agent.update(batch, noise), device, seconds)
    if not settings.has_bonus:
        return update_s, 0.0
    pay: Callable[[], Any] = torch.no_grad()(lambda: agent.weighted_bonus(batch, values))
    return update_s, duration(CUDAGraph(pay) if device == "cuda" else pay, device, seconds)


def _train(configs: Sequence[RunConfig], device: str, threads: int, seconds: float) -> tuple[float, dict[str, float]]:
    """Return frames/s of training, and the shares of the time of its parts."""
    with begun(SACCohort, configs, device=device, threads=threads) as cohort:
        # Half full of random transitions, as if training had gone on for a while.
        width = cohort.transition_bytes // 4
        draws = np.random.default_rng(0)
        cohort.replay.restore([draws.standard_normal((CAPACITY // 2, width), dtype=np.float32) for _ in configs])
        cohort.begin()
        cohort.frame = 1
        for _ in range(WARM_UP):
            cohort.step()
        return speed(cohort, device, seconds, after_step=cohort.new_rows.clear)
