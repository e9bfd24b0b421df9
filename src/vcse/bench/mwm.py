"""Milliseconds per update of Masked World Models, part by part, and frames per second of whole training.

The update alone is timed with all that belongs to it, on random images, and then the autoencoder's and the world
model's part of it by themselves; what is left is imagination, actor and critics. How far that is from the least that
the device could need follows from the operations of matrix products. Then whole training on Drawer Open is timed:
acting, simulating, rendering and learning.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import torch

from vcse.agents import agent_entry
from vcse.agents.mwm.agent import MWM, MWMSpec
from vcse.agents.mwm.cohort import MWMCohort
from vcse.agents.mwm.costs import operations
from vcse.agents.mwm.settings import MWMSettings, Precision
from vcse.bench.training import WARM_UP, duration, train_on_images
from vcse.envs.interface import Rendering
from vcse.envs.tasks import task_spec
from vcse.launch.configs import run_configs
from vcse.nets.cuda.graphs import CUDAGraph
from vcse.replay.sequences import SequenceBatch
from vcse.runs.arithmetic import computing_with

SECONDS = 4.0  # for each of the four measurements of a case
TASK = "metaworld/drawer-open"
RENDERING: Rendering = "light"
FRAMES, SEED_FRAMES = 20_000, 500  # of the run that is begun; an episode must be complete before an update
PRETRAINING_UPDATES = 5
FLOP_PER_MULTIPLICATION = 2  # as a sum goes with each
# Dense products, in 10^12 operations per second, as the manufacturer says; float32 is multiplied as TF32.
PEAKS: dict[str, dict[Precision, float]] = {"NVIDIA H200": {"bfloat16": 989.0, "float32": 494.5}}

Sizes = Literal["full", "small"]
SETTINGS: dict[Sizes, dict[str, Any]] = {
    "full": {},
    # On a CPU a full update takes minutes.
    "small": {
        "batch_size": 8,
        "sequence_length": 10,
        "autoencoder_batch_size": 4,
        "autoencoder_sequence_length": 8,
        "horizon": 5,
        "token_dimensions": 32,
        "encoder_blocks": 1,
        "decoder_blocks": 1,
        "model_dimensions": 32,
        "model_blocks": 1,
        "deterministic": 64,
        "variables": 8,
        "classes": 8,
        "hidden_units": 64,
        "projection_size": 32,
    },
}


class Case(NamedTuple):
    """A run to measure."""

    bonus: str
    sizes: Sizes
    precision: Precision


BONUSES = ("none", "se", "vcse")  # none first: the others are held against it
CPU_CASES = tuple(Case(bonus, "small", "float32") for bonus in BONUSES)
CUDA_CASES = (
    *(Case(bonus, "full", "bfloat16") for bonus in BONUSES),
    *(Case(bonus, "full", "float32") for bonus in ("none", "vcse")),
)


@dataclass(frozen=True)
class Row:
    """One line of the answer."""

    device: str
    bonus: str
    sizes: str
    precision: str
    rendered_by: str  # egl or osmesa
    ms_per_autoencoder_update: float
    ms_per_model_update: float  # of the world model, with the bonus
    ms_per_actor_critic_update: float  # with imagination: what is left of the whole
    ms_per_update: float  # of everything
    times_plain: float  # duration of an update against one without a bonus, of the same sizes and precision
    tflop_per_update: float  # of matrix products and convolutions
    share_of_peak: float | None  # of the products that the device could compute meanwhile, where that is known
    frames_per_s: float  # of training, with an update every fifth step
    share_env: float  # of training: waiting for the simulator, and keeping what it gave
    share_act: float
    share_update: float


def measure(device: str, cases: Sequence[Case], *, threads: int, seconds: float = SECONDS) -> Iterator[Row]:
    """Measure cases one after the other."""
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    seconds_of: dict[Case, float] = {}
    for case in cases:
        [config] = run_configs(
            TASK,
            case.bonus,
            agent="mwm",
            frames=FRAMES,
            rendering=RENDERING,
            precision=case.precision,
            seed_frames=SEED_FRAMES,
            pretraining_updates=PRETRAINING_UPDATES,
            **SETTINGS[case.sizes],
        )
        settings = MWMSettings.of(config.settings)
        with computing_with(agent_entry("mwm").arithmetic(device)):
            autoencoder_s, model_s, update_s = _update_seconds(settings, device, seconds)
            frames_per_s, shares, rendered_by = train_on_images(MWMCohort, config, device, threads, seconds)
        seconds_of[case] = update_s
        tflop = FLOP_PER_MULTIPLICATION * operations(settings).total / 1e12
        peak = PEAKS.get(name, {}).get(case.precision)
        yield Row(
            device=name,
            **case._asdict() | shares,
            rendered_by=rendered_by,
            ms_per_autoencoder_update=1000 * autoencoder_s,
            ms_per_model_update=1000 * model_s,
            ms_per_actor_critic_update=1000 * max(update_s - autoencoder_s - model_s, 0.0),
            ms_per_update=1000 * update_s,
            times_plain=update_s / seconds_of.get(case._replace(bonus="none"), float("nan")),
            tflop_per_update=tflop,
            share_of_peak=None if peak is None else tflop / update_s / peak,
            frames_per_s=frames_per_s,
        )


def _update_seconds(settings: MWMSettings, device: str, seconds: float) -> tuple[float, float, float]:
    """Return the durations of an update's parts of the autoencoder and of the world model, and that of all of it."""
    of_autoencoder = _random_batch(
        settings.autoencoder_batch_size, settings.autoencoder_sequence_length, settings.image_size, device
    )
    batch = _random_batch(settings.batch_size, settings.sequence_length, settings.image_size, device)
    agent = MWM(MWMSpec(task_spec(TASK).action_size), settings, 0, device=device)

    def update() -> None:
        agent.update_autoencoder(of_autoencoder)
        agent.update(batch)

    def update_world_model() -> Any:
        return agent.update_world_model(batch)

    for _ in range(WARM_UP[device]):
        update()
    if device == "cuda":
        agent.capture_autoencoder(of_autoencoder)
        agent.capture(batch)
        update_world_model = CUDAGraph(update_world_model, [agent.generator])
    return (
        duration(lambda: agent.update_autoencoder(of_autoencoder), device, seconds),
        duration(update_world_model, device, seconds),
        duration(update, device, seconds),
    )


def _random_batch(count: int, length: int, size: int, device: str) -> SequenceBatch:
    """Return sequences of noise, of the shapes that the replay of the task has."""
    generator = torch.Generator().manual_seed(0)
    is_first = torch.zeros(count, length, dtype=torch.bool)
    is_first[:, 0] = True
    batch = SequenceBatch(
        images=torch.randint(256, (count, length, 3, size, size), dtype=torch.uint8, generator=generator),
        actions=2 * torch.rand(count, length, task_spec(TASK).action_size, generator=generator) - 1,
        rewards=torch.rand(count, length, generator=generator),
        is_first=is_first,
    )
    return SequenceBatch(*(each.to(device) for each in batch))
