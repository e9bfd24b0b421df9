"""What a run that learns from images takes of a machine: time, memory and disk, reckoned before it begins."""

from vcse.agents.drqv2.networks import FEATURES, TWIN
from vcse.agents.drqv2.settings import ACTION_REPEAT, IMAGE_SHAPE, DrQv2Settings
from vcse.agents.image_environments import most_steps, played_steps, steps_of
from vcse.envs.interface import Rendering
from vcse.envs.tasks import task_spec
from vcse.nets.mlp import StackedMLP
from vcse.nets.optimizers import ADAM_AVERAGES
from vcse.replay.images import STACK, image_bytes
from vcse.replay.transitions import FLOAT_BYTES
from vcse.runs.checkpoint import KEPT
from vcse.runs.config import RunConfig
from vcse.runs.resources import CHECKPOINT_COPIES, Needs

GPU_FRAMES_PER_S = 500.0  # measured on an H200, with evaluations
# Measured on one core, where updates take most of the time.
LEARNED_SECONDS = 6.2e-3  # of an update, for each of its transitions
TIMES_WITH_BONUS = {"none": 1.0, "vcse": 1.25}
TIMES_WITH_OTHER_BONUS = 1.13
LOOKED_AT_SECONDS = 1.5e-3  # of an update, for each that serves the bonus alone
ACT_SECONDS = 5e-3
RENDER_SECONDS: dict[Rendering, float] = {"faithful": 20e-3, "light": 6e-3, "fast": 1e-3}  # of a step
TIMES_IN_METAWORLD = 6.0
SAMPLED_BYTES = 2_000_000  # of a transition in an update: its images, what the encoder makes of them, and gradients


def capacity_of(config: RunConfig) -> int:
    """Return the steps that the replay keeps."""
    return min(DrQv2Settings.of(config.settings).replay_capacity, steps_of(config))


def expected_seconds(config: RunConfig, device: str) -> float:
    """Return about how long a run takes: updates, and what is played and rendered; on a GPU, by one pace for all."""
    if device == "cuda":
        return config.frames / GPU_FRAMES_PER_S
    settings = DrQv2Settings.of(config.settings)
    updates = max(0, steps_of(config) - settings.seed_frames // ACTION_REPEAT) // settings.steps_per_update
    update = settings.batch_size * LEARNED_SECONDS
    update *= TIMES_WITH_BONUS.get(settings.bonus.name, TIMES_WITH_OTHER_BONUS)
    update += (settings.sampled_transitions - settings.batch_size) * LOOKED_AT_SECONDS
    render_s = RENDER_SECONDS[config.image_quality]
    render_s *= TIMES_IN_METAWORLD if config.task.startswith("metaworld/") else 1
    return updates * update + played_steps(config) * (render_s + ACT_SECONDS)


def needs(config: RunConfig) -> Needs:
    """Return about what a run takes of memory and disk: on disk every frame, and two checkpoints."""
    checkpoint = _checkpoint_bytes(config)
    frames = image_bytes(steps_of(config), most_steps(config), IMAGE_SHAPE)
    return Needs(
        working=CHECKPOINT_COPIES * checkpoint + DrQv2Settings.of(config.settings).sampled_transitions * SAMPLED_BYTES,
        replay=image_bytes(capacity_of(config), most_steps(config), IMAGE_SHAPE),
        files=KEPT * checkpoint + (frames if config.keep_replay else 0),
        until_done=0 if config.keep_replay else frames,
        may_use_disk=True,
    )


def _checkpoint_bytes(config: RunConfig) -> int:
    """Return about the bytes of a checkpoint: networks, what Adam keeps of them, target critics, acting policy."""
    settings, action_size = DrQv2Settings.of(config.settings), task_spec(config.task).action_size
    features, hidden = settings.features, settings.hidden_units
    encoder = 9 * 32 * (STACK * IMAGE_SHAPE[0] + 3 * 32)  # weights of four convolutions, 3 x 3
    trunk = (FEATURES + 3) * features
    actor = trunk + StackedMLP.parameter_count(features, hidden, action_size)
    critic = trunk + TWIN * StackedMLP.parameter_count(features + action_size, hidden, 1)
    curiosity = trunk + hidden * (4 * features + 2 * action_size)  # two networks of one hidden layer
    learned = encoder + actor + critic + critic * settings.has_extrinsic_critic + curiosity * settings.has_bonus
    targets = critic + critic * settings.has_extrinsic_critic
    acting = encoder + actor
    return FLOAT_BYTES * ((1 + ADAM_AVERAGES) * learned + targets + acting)
