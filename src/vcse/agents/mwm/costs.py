"""What a run of Masked World Models takes of a machine: time, memory and disk, reckoned before it begins."""

from itertools import pairwise
from typing import NamedTuple

from vcse.agents.image_environments import most_steps, played_steps, steps_of
from vcse.agents.mwm.settings import ACTION_REPEAT, PADDED_ACTIONS, MWMSettings
from vcse.envs.interface import Rendering
from vcse.nets.masked_autoencoder import PIXELS, kept_patches, patches_of_a_side
from vcse.nets.optimizers import ADAM_AVERAGES
from vcse.replay.sequences import sequence_bytes
from vcse.replay.transitions import FLOAT_BYTES
from vcse.runs.checkpoint import KEPT
from vcse.runs.config import RunConfig
from vcse.runs.resources import CHECKPOINT_COPIES, Needs

HEAD_LAYERS = 4
CONVOLUTIONS, KERNEL = (32, 64, 128), 4  # of the autoencoder: channels, and pixels of a side
GPU_FRAMES_PER_S = 150.0  # reckoned from the operations of an update, and not measured yet
# Measured on one core at full size, the updates with fewer sequences, in float32.
OPERATIONS_PER_S = 3.5e10
ACT_SECONDS = 0.013
RENDERED_SECONDS: dict[Rendering, float] = {"faithful": 120e-3, "light": 36e-3, "fast": 6e-3}  # of a step
TOKEN_COPIES = 20  # of a block's tokens, that the gradient needs
FORTH_AND_BACK = 3  # operations of a step with its gradient, against those of the step


def capacity_of(config: RunConfig) -> int:
    """Return the steps that the replay keeps."""
    settings = MWMSettings.of(config.settings)
    # Shorter runs learn nothing, but have room for a sequence all the same.
    return min(settings.replay_capacity, max(steps_of(config), settings.sequence_length))


def _block(dimensions: int) -> int:
    """Return the weights of a transformer's block."""
    return 12 * dimensions**2


def _autoencoder_weights(settings: MWMSettings) -> int:
    blocks = settings.encoder_blocks + settings.decoder_blocks
    return blocks * _block(settings.token_dimensions) + settings.token_dimensions * (PIXELS + 512)


def _dynamics_weights(settings: MWMSettings) -> tuple[int, int]:
    """Return the weights from a state and an action to the next, and what an observation adds to those."""
    latent, stochastic = settings.deterministic, settings.variables * settings.classes
    advance = latent * (stochastic + PADDED_ACTIONS) + 2 * latent * 3 * latent
    posterior = latent * (latent + settings.model_dimensions + stochastic)
    return advance + latent * (latent + stochastic), posterior


def _model_weights(settings: MWMSettings) -> int:
    tokens, inner = settings.token_dimensions, settings.model_dimensions
    transformers = 2 * (settings.model_blocks * _block(inner) + tokens * inner) + settings.feature_size * inner
    return transformers + sum(_dynamics_weights(settings))


def _head_weights(settings: MWMSettings) -> int:
    return settings.feature_size * settings.hidden_units + (HEAD_LAYERS - 1) * settings.hidden_units**2


class Operations(NamedTuple):
    """About the multiplications of matrix products and convolutions in an update of everything, gradients included."""

    autoencoder: float
    model: float  # with the bonus, but for its search of neighbours
    actor_critic: float  # with imagination

    @property
    def total(self) -> float:
        """All of them."""
        return sum(self)


def operations(settings: MWMSettings) -> Operations:
    """Return the multiplications of an update, part by part."""
    images = settings.autoencoder_batch_size * settings.autoencoder_sequence_length
    states = settings.batch_size * settings.sequence_length
    encoded, masked, inner = _image_operations(settings)
    (prior, posterior), head = _dynamics_weights(settings), _head_weights(settings)
    hidden_gradient = head + (HEAD_LAYERS - 1) * settings.hidden_units**2  # of weights, and of all but the inputs
    pays, conditions = settings.has_bonus, settings.has_extrinsic_critic
    # The bonus of a state: its projection, its value, and the head that learns to predict the bonus.
    paid = pays * (settings.feature_size * settings.projection_size + head + hidden_gradient) + conditions * head
    seen = encoded + FORTH_AND_BACK * (inner + prior + posterior + head) + paid
    # Rewards and slow critic have the gradient of their inputs alone, as the dynamics have; an extrinsic slow critic
    # has none. They see one state more than there are steps.
    steps, read = settings.horizon, settings.horizon + 1
    imagined = steps * (2 * prior + 2 * (head + hidden_gradient)) + read * 2 * head * (2 + pays)
    imagined += conditions * (steps * (head + hidden_gradient) + read * head)
    return Operations(
        autoencoder=float(FORTH_AND_BACK * images * masked),
        model=float(states * seen),
        actor_critic=float(states * imagined),
    )


def _image_operations(settings: MWMSettings) -> tuple[int, int, int]:
    """Return the multiplications for an image, without gradients.

    The first are of the autoencoder, where nothing is masked, the second as it learns; the others are of the
    transformers of the world model.
    """
    patches = patches_of_a_side(settings.image_size) ** 2
    outer, inner = settings.token_dimensions, settings.model_dimensions
    kept = kept_patches(patches, settings.mask_ratio) + 1  # with the class token
    channels = (3, *CONVOLUTIONS)
    embedded = patches * CONVOLUTIONS[-1] * outer
    for halvings, (before, after) in enumerate(pairwise(channels), start=1):
        embedded += (settings.image_size // 2**halvings) ** 2 * KERNEL**2 * before * after
    decoded = kept * outer**2 + _blocks(settings.decoder_blocks, patches + 2, outer) + patches * outer * PIXELS
    to_features = patches * outer * inner + _blocks(settings.model_blocks, patches + 1, inner)
    from_features = settings.feature_size * inner + _blocks(settings.model_blocks, patches + 2, inner)
    encoded = embedded + _blocks(settings.encoder_blocks, patches + 1, outer)
    masked = embedded + _blocks(settings.encoder_blocks, kept, outer) + decoded
    return encoded, masked, to_features + from_features + patches * inner * outer


def _blocks(blocks: int, tokens: int, dimensions: int) -> int:
    """Return the multiplications of a transformer: its weights, and attention between all tokens."""
    return blocks * tokens * (_block(dimensions) + 2 * tokens * dimensions)


def expected_seconds(config: RunConfig, device: str) -> float:
    """Return about how long a run takes: updates, and all that is played and rendered; on a GPU, by one pace."""
    if device == "cuda":
        return config.frames / GPU_FRAMES_PER_S
    settings = MWMSettings.of(config.settings)
    updates = max(0, steps_of(config) - settings.seed_frames // ACTION_REPEAT) // settings.steps_per_update
    multiplied = operations(settings)
    pretrained = settings.pretraining_updates * multiplied.autoencoder if updates else 0.0
    learned = (pretrained + updates * multiplied.total) / OPERATIONS_PER_S
    return learned + played_steps(config) * (RENDERED_SECONDS[config.image_quality] + ACT_SECONDS)


def needs(config: RunConfig) -> Needs:
    """Return about what a run takes of memory and disk: on disk every image, and two checkpoints."""
    settings = MWMSettings.of(config.settings)
    checkpoint = _checkpoint_bytes(settings)
    shape = (3, settings.image_size, settings.image_size)
    images = sequence_bytes(steps_of(config), most_steps(config), shape)
    return Needs(
        working=CHECKPOINT_COPIES * checkpoint + _update_bytes(settings),
        replay=sequence_bytes(capacity_of(config), most_steps(config), shape),
        files=KEPT * checkpoint + (images if config.keep_replay else 0),
        until_done=0 if config.keep_replay else images,
        may_use_disk=True,
    )


def _update_bytes(settings: MWMSettings) -> int:
    """Return about the memory of an update: tokens of images with what their gradient needs, and imagined states."""
    states = settings.batch_size * settings.sequence_length
    tokens = patches_of_a_side(settings.image_size) ** 2 + 1
    of_blocks = states * tokens * settings.model_dimensions * 2 * settings.model_blocks * TOKEN_COPIES
    imagined = settings.horizon * states * 8 * settings.feature_size
    return FLOAT_BYTES * (of_blocks + imagined)


def _checkpoint_bytes(settings: MWMSettings) -> int:
    """Return about the bytes of a checkpoint: networks, what Adam keeps of them, slow critics, acting policy."""
    head = _head_weights(settings)
    policy = _autoencoder_weights(settings) + _model_weights(settings) + 2 * head  # rewards, and the actor
    critics = head * (1 + settings.has_extrinsic_critic)
    learned = policy + critics + head * settings.has_bonus
    return FLOAT_BYTES * ((1 + ADAM_AVERAGES) * learned + critics + policy)
