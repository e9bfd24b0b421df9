"""What a run of SAC takes of a machine: time, memory and disk."""

from vcse.agents.sac.networks import TWIN
from vcse.agents.sac.settings import SACSettings
from vcse.envs.tasks import task_spec
from vcse.nets.mlp import StackedMLP
from vcse.nets.optimizers import ADAM_AVERAGES
from vcse.replay.transitions import FLOAT_BYTES, transition_bytes
from vcse.runs.checkpoint import KEPT
from vcse.runs.config import RunConfig
from vcse.runs.resources import CHECKPOINT_COPIES, Needs

# Measured on two cores and on an H200.
UPDATES_PER_S = {"cpu": 1.3, "cuda": 2_500.0}  # per job, of networks of 1024 units with a bonus


def expected_seconds(config: RunConfig, device: str) -> float:
    """Return about how long a run takes."""
    settings = SACSettings.of(config.settings)
    size = settings.hidden_units**2 * settings.batch_size / (1024**2 * 1024)
    updates = max(0, config.frames - settings.seed_frames) * settings.updates_per_step
    return max(updates * size, 0.05 * config.frames) / UPDATES_PER_S[device]


def needs(config: RunConfig) -> Needs:
    """Return about what a run takes; on disk every transition, and two checkpoints."""
    spec, checkpoint = task_spec(config.task), _checkpoint_bytes(config)
    per_frame = transition_bytes(spec.observation_shape[0], spec.action_size)
    transitions = config.frames * per_frame
    return Needs(
        working=CHECKPOINT_COPIES * checkpoint,
        replay=min(SACSettings.of(config.settings).replay_capacity, config.frames) * per_frame,
        files=KEPT * checkpoint + (transitions if config.keep_replay else 0),
        until_done=0 if config.keep_replay else transitions,
    )


def _checkpoint_bytes(config: RunConfig) -> int:
    """Return about the bytes of a checkpoint: of every network, of what Adam keeps of it, and of the target critics."""
    spec, settings = task_spec(config.task), SACSettings.of(config.settings)
    actor = StackedMLP.parameter_count(spec.observation_shape[0], settings.hidden_units, 2 * spec.action_size)
    critic = StackedMLP.parameter_count(spec.observation_shape[0] + spec.action_size, settings.hidden_units, 1)
    critics = TWIN * critic * (2 if settings.has_extrinsic_critic else 1)
    return FLOAT_BYTES * ((1 + ADAM_AVERAGES) * (actor + critics) + critics)
