"""Settings of Masked World Models, and what each reading makes of them."""

from dataclasses import dataclass
from typing import Any, Literal

from vcse.agents.presets import check_reading, with_deviations
from vcse.bonuses.readings import NormalizerName
from vcse.nets.masked_autoencoder import kept_patches, patches_of_a_side
from vcse.replay.sequences import SequenceSampling
from vcse.settings import READINGS, AgentSettings, Reading, check_neighbors, setting

RewardToken = Literal["token", "pixels"]
Precision = Literal["float32", "bfloat16"]
ProjectionPrecision = Literal["float32", "float16"]
IMAGE_SIZE = 64
ACTION_REPEAT = 2
PADDED_ACTIONS = 50  # numbers that the dynamics read of an action, most of them zeros, whatever the task


@dataclass(frozen=True)
class MWMSettings(AgentSettings):
    """A learner's settings. Defaults are the release's."""

    beta: float = setting(1.0, "Weight of the bonus.", range="not negative", affects="any bonus")
    reward_token: RewardToken = setting(
        "pixels",
        "What the autoencoder predicts the reward from: a token of its own, or, as by a bug of the release, the "
        "pixels of the last patch.",
        otherwise="pixels in release, else token",
    )
    sequence_sampling: SequenceSampling = setting(
        "ends",
        "How sequences are sampled: uniform; or ends, those at the ends of episodes about ten times as often, "
        "from complete episodes alone.",
        otherwise="ends in release and paper, else uniform",
    )
    projection_std: float = setting(
        1 / 256,
        "Standard deviation of the random projection to features of the bonus; 1/16 keeps distances.",
        range="positive",
        affects="any bonus",
        otherwise="1/256 in release and paper, else 1/16",
    )
    projection_precision: ProjectionPrecision = setting(
        "float16",
        "Precision to which projected features and values are rounded for the bonus.",
        affects="any bonus",
        otherwise="float16 in release, else float32",
    )
    image_size: int = setting(IMAGE_SIZE, "Pixels of each side of an image, a multiple of 8.", range="count")
    batch_size: int = setting(50, "Sequences of an update of the world model.", range="count")
    sequence_length: int = setting(50, "Images of each sequence.", range="count")
    autoencoder_batch_size: int = setting(32, "Sequences of an update of the autoencoder.", range="count")
    autoencoder_sequence_length: int = setting(32, "Images of each sequence.", range="count", is_option=False)
    pretraining_updates: int = setting(
        5_000, "Updates of the autoencoder alone after the random actions, before all else is learned.", unit="count"
    )
    horizon: int = setting(15, "Steps that are imagined from every state of a batch, at least 2.", range="count")
    seed_frames: int = setting(
        10_000, "Frames of random actions before the first update.", range="count", unit="frames"
    )
    steps_per_update: int = setting(5, "Steps between two updates.", range="count", is_option=False)
    replay_capacity: int = setting(2_000_000, "Transitions that are kept; never more than the run has.", unit="count")
    precision: Precision = setting(
        "bfloat16", "Precision of products; parameters, latent states and losses are float32 in any case."
    )

    mask_ratio: float = setting(0.75, "Share of an image's patches that the autoencoder does not see.", range="share")
    token_dimensions: int = setting(256, "Size of the autoencoder's tokens.", range="count", is_option=False)
    encoder_blocks: int = setting(4, "Blocks of the autoencoder's encoder.", range="count", is_option=False)
    decoder_blocks: int = setting(3, "Blocks of the autoencoder's decoder.", range="count", is_option=False)
    model_dimensions: int = setting(128, "Size of the world model's tokens.", range="count", is_option=False)
    model_blocks: int = setting(2, "Blocks of the world model's encoder and decoder.", range="count", is_option=False)
    heads: int = setting(4, "Attention heads of all blocks.", range="count", is_option=False)
    deterministic: int = setting(1024, "Size of the deterministic state.", range="count")
    variables: int = setting(32, "Categorical variables of the stochastic state.", range="count", is_option=False)
    classes: int = setting(32, "Classes of each variable.", range="count", is_option=False)
    hidden_units: int = setting(512, "Units of each hidden layer of actor, critics and rewards.", range="count")
    projection_size: int = setting(256, "Features of the bonus.", range="count", affects="any bonus", is_option=False)

    model_learning_rate: float = setting(3e-4, "Learning rate of the world model.", range="positive", is_option=False)
    autoencoder_learning_rate: float = setting(
        3e-4, "The autoencoder's learning rate.", range="positive", is_option=False
    )
    warm_up_updates: int = setting(2_500, "Updates of the autoencoder's warm-up.", range="count", is_option=False)
    learning_rate: float = setting(1e-4, "Learning rate of actor and critics.", range="positive", is_option=False)
    adam_epsilon: float = setting(1e-5, "Epsilon of all optimisers.", range="positive", is_option=False)
    most_gradient_norm: float = setting(
        100.0, "Norm to which gradients are clipped.", range="positive", is_option=False
    )
    weight_decay: float = setting(1e-6, "Share that weights lose at each update.", range="share", is_option=False)
    discount: float = setting(0.99, "Discount of rewards.", range="share", is_option=False)
    return_lambda: float = setting(0.95, "Lambda of the returns.", range="share", is_option=False)
    entropy_weight: float = setting(1e-4, "Weight of the policy's entropy.", range="not negative", is_option=False)
    kl_balance: float = setting(0.8, "Share of the KL divergence that trains the prior.", range="share")
    kl_scale: float = setting(
        1.0,
        "Weight of the KL divergence, before it is clipped; 0.1 in the code of MWM's own authors.",
        range="not negative",
    )
    kl_least: float = setting(0.01, "Free nats of the KL divergence.", range="not negative", is_option=False)
    target_updates: int = setting(100, "Updates between copies to the slow critics.", range="count", is_option=False)
    reward_momentum: float = setting(
        0.99, "Of the running mean of the size of rewards that they are divided by.", range="share", is_option=False
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        kept_patches(patches_of_a_side(self.image_size) ** 2, self.mask_ratio)  # which refuse what cannot be
        if self.horizon < 2:
            raise ValueError(
                f"horizon must be at least 2, as the actor learns from what comes next, got {self.horizon}"
            )
        if self.pretraining_updates < 0:
            raise ValueError(f"pretraining_updates must not be negative, got {self.pretraining_updates}")
        for name in ("token_dimensions", "model_dimensions"):
            if getattr(self, name) % (4 * self.heads):
                raise ValueError(
                    f"{name} must be a multiple of {4 * self.heads}, four for each of {self.heads} heads, "
                    f"got {getattr(self, name)}"
                )
        longest = max(self.sequence_length, self.autoencoder_sequence_length)
        if self.replay_capacity < longest:
            raise ValueError(f"replay_capacity must be at least {longest}, a sequence, got {self.replay_capacity}")
        if self.has_bonus:
            check_neighbors(self.bonus.k, self.batch_size * self.sequence_length)

    @property
    def feature_size(self) -> int:
        """Numbers of a latent state."""
        return self.deterministic + self.variables * self.classes

    def learns_at(self, step: int) -> bool:
        """Whether an update is due at a step."""
        return ACTION_REPEAT * step >= self.seed_frames and step % self.steps_per_update == 0


K = 12
# What is learned of a bonus is divided by the running mean of its size: the bonus itself is not.
NORMALIZERS: dict[str, NormalizerName] = dict.fromkeys(READINGS, "none")
# Of the settings, whose defaults are the release's. According to the text rewards are predicted and states projected;
# all else is as by the authors of MWM.
_PAPER = {"reward_token": "token", "projection_precision": "float32"}
_CLEAN = {**_PAPER, "sequence_sampling": "uniform", "projection_std": 1 / 16}  # of 256 features: keeps distances
_OF_READING: dict[str, dict[str, Any]] = {"release": {}, "paper": _PAPER, "clean": _CLEAN, "recommended": _CLEAN}


def mwm_settings(bonus: str, reading: Reading = "release", *, task: str = "", **deviations: Any) -> MWMSettings:
    """Return the settings that a reading asks for, with deviations where they are named."""
    del task  # nothing follows from it
    check_reading("mwm", bonus, reading, tuple(_OF_READING))
    chosen = _OF_READING[reading]
    return with_deviations(
        MWMSettings, bonus, reading, chosen, deviations, k=K, release="release-mwm", normalizers=NORMALIZERS
    )
