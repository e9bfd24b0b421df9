"""Milliseconds per update of DrQ-v2, and frames per second of whole training.

The update alone is timed with all that belongs to it, on random images; then whole training on the same task: acting,
simulating, drawing and learning.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, get_args

import torch

from vcse.agents import agent_entry
from vcse.agents.drqv2.agent import NOISE_SAMPLES, SHIFT_SAMPLES, DrQv2, DrQv2Spec
from vcse.agents.drqv2.cohort import DrQv2Cohort
from vcse.agents.drqv2.settings import IMAGE_SHAPE, DrQv2Settings
from vcse.bench.training import WARM_UP, duration, train_on_images
from vcse.envs.interface import Rendering
from vcse.envs.tasks import task_spec
from vcse.launch.configs import run_configs
from vcse.nets.random_shift import SHIFTS
from vcse.replay.images import STACK, ImageBatch
from vcse.runs.arithmetic import computing_with

SECONDS = 4.0  # for each of the two measurements of a case
FRAMES, SEED_FRAMES = 20_000, 1_000  # of the run that is begun


class Case(NamedTuple):
    """A run to measure."""

    task: str
    bonus: str
    rendering: Rendering
    batch_size: int | None = None  # None: the task's


BONUSES = ("none", "se", "vcse")  # none first: the others are held against it
HOPPER, WALKER = "dmc-pixels/hopper_stand", "dmc-pixels/walker_walk"
CPU_CASES = tuple(Case(HOPPER, bonus, "fast", 32) for bonus in BONUSES)
CUDA_CASES = tuple(
    Case(task, bonus, rendering) for task in (HOPPER, WALKER) for rendering in get_args(Rendering) for bonus in BONUSES
)


def cases_for(device: str, rendering: Rendering | None = None) -> tuple[Case, ...]:
    """Return what is measured on a device, with images of one quality where one is named."""
    cases = CUDA_CASES if device == "cuda" else CPU_CASES
    if rendering is None:
        return cases
    return tuple(dict.fromkeys(case._replace(rendering=rendering) for case in cases))


@dataclass(frozen=True)
class Row:
    """One line of the answer."""

    device: str
    task: str
    bonus: str
    rendering: str
    drawn_by: str  # egl or osmesa
    batch_size: int
    ms_per_update: float
    times_plain: float  # duration of an update against one without a bonus
    frames_per_s: float  # of training, with an update every second step
    share_env: float  # of training: waiting for the simulator, and keeping what it gave
    share_act: float
    share_update: float


def measure(device: str, cases: Sequence[Case], *, threads: int, seconds: float = SECONDS) -> Iterator[Row]:
    """Measure cases one after the other."""
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    seconds_of: dict[Case, float] = {}
    for case in cases:
        [config] = run_configs(**case._asdict(), agent="drqv2", frames=FRAMES, seed_frames=SEED_FRAMES)
        settings = DrQv2Settings.of(config.settings)
        with computing_with(agent_entry("drqv2").arithmetic(device)):
            update_s = _update_seconds(case.task, settings, device, seconds)
            frames_per_s, shares, drawn_by = train_on_images(DrQv2Cohort, config, device, threads, seconds)
        seconds_of[case] = update_s
        yield Row(
            device=name,
            **case._asdict() | shares | {"batch_size": settings.batch_size},
            drawn_by=drawn_by,
            ms_per_update=1000 * update_s,
            times_plain=update_s / seconds_of.get(case._replace(bonus="none"), float("nan")),
            frames_per_s=frames_per_s,
        )


def _update_seconds(task: str, settings: DrQv2Settings, device: str, seconds: float) -> float:
    """Return the duration of an update."""
    n, actions = settings.batch_size, task_spec(task).action_size
    generator = torch.Generator().manual_seed(0)
    shape = (n, STACK * IMAGE_SHAPE[0], *IMAGE_SHAPE[1:])
    images = [torch.randint(256, shape, dtype=torch.uint8, generator=generator).to(device) for _ in range(2)]
    numbers = [torch.rand(n, generator=generator).to(device) for _ in range(2)]
    batch = ImageBatch(
        observations=images[0],
        actions=(2 * torch.rand(n, actions, generator=generator) - 1).to(device),
        rewards=numbers[0],
        first_rewards=numbers[1],
        discounts=torch.full((n,), settings.discount**settings.n_step, device=device),
        next_observations=images[1],
    )
    noise = torch.randn(NOISE_SAMPLES, n, actions, generator=generator).to(device)
    shifts = torch.randint(SHIFTS, (SHIFT_SAMPLES, n, 2), generator=generator).to(device)
    agent = DrQv2(DrQv2Spec(shape[1], actions), settings, 0, device=device)
    for _ in range(WARM_UP[device]):
        agent.update(batch, noise, shifts, step=0)
    if device == "cuda":
        agent.capture(batch, noise, shifts)
    return duration(lambda: agent.update(batch, noise, shifts, step=0), device, seconds)
