"""What a run of A2C takes of a machine: time, memory and disk. Measured on two cores and on an H200."""

import math

from vcse.agents.a2c.settings import A2CSettings
from vcse.runs.checkpoint import KEPT
from vcse.runs.config import RunConfig
from vcse.runs.resources import CHECKPOINT_COPIES, Needs

FRAMES_PER_S = {"cpu": 17_000, "cuda": 500_000}  # per job
SLOWDOWN = {"minigrid-full": 8.0, "minigrid-table": 1.5}  # families that are stepped in Python
EXACT_SLOWDOWN = 12.0
EVALUATION_FRAMES = 30_000  # 200 episodes of a few hundred frames, without learning
BYTES_PER_FRAME = 1.1  # a byte for the action, and the rows
BYTES_PER_STATE = 17_000  # of an update: what was seen, and what the encoder makes of it, for gradients
BYTES_PER_RUN = 500_000  # two checkpoints
MEMORY_BYTES = 5_200_000  # of the features that SE remembers, in two checkpoints


def expected_seconds(config: RunConfig, device: str) -> float:
    """Return about how long a run takes."""
    settings = A2CSettings.of(config.settings)
    slow = SLOWDOWN.get(config.task.partition("/")[0], 1.0)
    slow *= 1.0 if settings.values == "network" else EXACT_SLOWDOWN
    whole = math.ceil(config.frames / settings.frames_per_update) * settings.frames_per_update
    frames = whole + EVALUATION_FRAMES
    return frames * slow / (FRAMES_PER_S[device] if slow == 1 else FRAMES_PER_S["cpu"])


def needs(config: RunConfig) -> Needs:
    """Return about what a run takes; it has no replay."""
    settings = A2CSettings.of(config.settings)
    checkpoints = BYTES_PER_RUN + MEMORY_BYTES * (settings.bonus.memory_capacity is not None)
    files = math.ceil(config.frames * BYTES_PER_FRAME) + checkpoints
    working = CHECKPOINT_COPIES * checkpoints // KEPT + settings.frames_per_update * BYTES_PER_STATE
    return Needs(working=working, replay=0, files=files)
