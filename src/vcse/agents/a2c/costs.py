"""What a run of A2C takes of a machine: time, memory and disk. Measured on two cores and on an H200."""

import math

import torch

from vcse.agents.a2c.settings import A2CSettings
from vcse.envs.interface import ObservationKind
from vcse.envs.tasks import observation_kind, task_spec
from vcse.nets.observers import make_encoder
from vcse.runs.checkpoint import KEPT
from vcse.runs.config import RunConfig
from vcse.runs.resources import CHECKPOINT_COPIES, Needs

FRAMES_PER_S = {"cpu": 17_000, "cuda": 500_000}  # per job
SLOWDOWN = {"minigrid-full": 8.0, "minigrid-table": 1.5, "fork": 0.6}  # families that EnvPool does not step
# Of tasks from outside, whose simulators may be fast or slow.
SLOWDOWN_OF_KIND: dict[ObservationKind, float] = {"state": 1.5, "grid": 8.0, "image": 30.0}
EXACT_SLOWDOWN = 12.0
EVALUATION_FRAMES = 30_000  # 200 episodes of a few hundred frames, without learning
BYTES_PER_FRAME = 1.1  # a byte for the action, and the rows
BYTES_PER_STATE = 17_000  # of an update: what was seen, and what the encoder makes of it, for gradients
BYTES_PER_PIXEL = 60  # of an image in an update
BYTES_PER_RUN = 500_000  # two checkpoints
BYTES_PER_PARAMETER = 24  # of an encoder of images, in two checkpoints: itself, its average of squares, the bonus' own
MEMORY_BYTES = 5_200_000  # of the features that SE remembers, in two checkpoints; about as much are networks of a bonus
LEARNED_SLOWDOWN = 1.6  # of a bonus with networks, on a CPU


def expected_seconds(config: RunConfig, device: str) -> float:
    """Return about how long a run takes."""
    settings = A2CSettings.of(config.settings)
    slow = SLOWDOWN.get(config.task.partition("/")[0], 1.0)
    slow *= SLOWDOWN_OF_KIND[observation_kind(config.task)] if _sees_otherwise(config) else 1.0
    slow *= EXACT_SLOWDOWN if settings.has_exact_values else 1.0
    whole = math.ceil(config.frames / settings.frames_per_update) * settings.frames_per_update
    frames = whole + EVALUATION_FRAMES
    seconds = frames * slow / (FRAMES_PER_S[device] if slow == 1 else FRAMES_PER_S["cpu"])
    return seconds * (LEARNED_SLOWDOWN if settings.bonus.learns and device == "cpu" else 1.0)


def needs(config: RunConfig) -> Needs:
    """Return about what a run takes; it has no replay."""
    settings = A2CSettings.of(config.settings)
    remembers = settings.bonus.memory_capacity is not None or settings.bonus.learns
    checkpoints = BYTES_PER_RUN + MEMORY_BYTES * remembers
    per_state = BYTES_PER_STATE
    if _sees_otherwise(config) and observation_kind(config.task) == "image":
        shape = task_spec(config.task).observation_shape
        per_state += BYTES_PER_PIXEL * math.prod(shape)
        encoder = make_encoder("image", shape, [torch.Generator()])
        checkpoints += BYTES_PER_PARAMETER * sum(each.numel() for each in encoder.parameters())
        checkpoints += KEPT * settings.environments * math.prod(shape)
    files = math.ceil(config.frames * BYTES_PER_FRAME) + checkpoints
    working = CHECKPOINT_COPIES * checkpoints // KEPT + settings.frames_per_update * per_state
    return Needs(working=working, replay=0, files=files)


def _sees_otherwise(config: RunConfig) -> bool:
    """Whether a run is of a task from outside, of a family that may show other things than grids."""
    return config.task.startswith("gymnasium")
