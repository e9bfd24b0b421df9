"""Settings of DrQ-v2, and what each reading makes of them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from vcse.agents.drqv2.networks import Precision
from vcse.agents.drqv2.reward_scale import RewardNormalization
from vcse.agents.presets import NORMALIZERS_OF_REPLAY, check_reading, with_deviations
from vcse.bonuses.registry import bonus_entry
from vcse.settings import AgentSettings, Reading, ValueCritic, check_holds_batch, check_neighbors, setting

CuriosityPair = Literal["n-step", "one-step"]
ReturnInjection = Literal["once", "every_step"]
NoiseSchedule = tuple[float, float, int]  # standard deviation of actions: from, to, over so many steps
IMAGE_SHAPE = (3, 84, 84)
ACTION_REPEAT = 2
MOST_SAMPLED = 16_384  # states of an update: kernels count the numbers of all images in 32 bits


@dataclass(frozen=True)
class DrQv2Settings(AgentSettings):
    """A learner's settings. Defaults are the release's."""

    renamed: ClassVar = {
        "noise_schedule": "action_noise",
        "injection": "return_injection",
        "normalizes_reward": "normalize_reward",
    }
    added: ClassVar = {"actor_normalization": False, "pre_activation_penalty": 0.0}

    beta: float = setting(0.1, "Weight of the bonus.", range="not negative", affects="any bonus")
    beta_decay: float = setting(0.0, "Share by which beta decays at every step.", affects="any bonus")
    action_noise: float | NoiseSchedule = setting(
        (0.2, 0.2, 1),
        "Standard deviation of the noise of actions: a number such as 0.2, or a linear schedule from one to another "
        "over so many steps, such as 1 0.1 500k.",
        otherwise="0.2 with a bonus and in Meta-World, else from 1 to 0.1 over 100k, 500k or 2M steps by task",
        metavar="FLOAT | FROM TO STEPS",
    )
    noise_clip: float = setting(0.3, "Bound of the noise in updates.", range="not negative", is_option=False)
    value_critic: ValueCritic = setting(
        "online",
        "vcse conditions on the value of the target or of the online extrinsic critic.",
        affects="bonuses of values",
        otherwise="online in release, else the target",
    )
    curiosity_pair: CuriosityPair = setting(
        "n-step",
        "The curiosity module, whose features the bonus sees, predicts one step ahead, or n.",
        affects="any bonus",
        otherwise="n-step in release, else one-step",
    )
    return_injection: ReturnInjection = setting(
        "once",
        "The bonus is added to an n-step return once, or at every_step.",
        affects="any bonus",
        otherwise="once in release, else every_step",
    )
    reward_normalization: RewardNormalization = setting(
        "none",
        "Divide the task's reward by a running mean of its size: that of one step (mean) or of n-step returns "
        "(n_step_mean); centered also subtracts its running mean.",
        otherwise="mean in Meta-World, else none",
    )
    actor_normalization: bool = setting(
        False, "Divide the actor's last hidden layer by its norm, against actions stuck at the ends of their range."
    )
    pre_activation_penalty: float = setting(
        0.0,
        "Weight, in the actor's loss, of the mean square of its output before tanh, also against saturated actions.",
        range="not negative",
    )
    bonus_batch_size: int | None = setting(
        None,
        "States among which the bonus looks for neighbours.",
        affects="any bonus",
        otherwise="those of the batch",
    )
    n_step: int = setting(3, "Steps of an n-step return.", range="count", otherwise="3, and 1 for walkers")
    batch_size: int = setting(256, "Transitions of an update.", range="count", otherwise="256, and 512 for walkers")
    features: int = setting(50, "Output size of every trunk.", range="count", is_option=False)
    hidden_units: int = setting(1024, "Units of each of the two hidden layers of every network.", range="count")
    encoder_precision: Precision = setting(
        "float32", "Precision of the encoder's convolutions: float32, or bfloat16, which is for GPUs."
    )
    learning_rate: float = setting(1e-4, "Learning rate of all networks.", range="positive", is_option=False)
    discount: float = setting(0.99, "Discount of rewards.", range="share", is_option=False)
    target_rate: float = setting(
        0.01, "Rate at which the target critics follow the critics.", range="share", is_option=False
    )
    seed_frames: int = setting(4_000, "Frames of random actions before the first update.", range="count", unit="frames")
    steps_per_update: int = setting(2, "Steps between two updates.", range="count", is_option=False)
    replay_capacity: int = setting(1_000_000, "Transitions that are kept; never more than the run has.", unit="count")

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.action_noise, tuple):  # it stays as it is
            object.__setattr__(self, "action_noise", (self.action_noise, self.action_noise, 1))
        *deviations, steps = cast(NoiseSchedule, self.action_noise)
        for deviation in deviations:
            if not 0 <= deviation < math.inf:
                raise ValueError(f"action_noise must be finite and not negative, got {deviation}")
        if steps < 1:
            raise ValueError(f"action_noise must change over at least 1 step, got {steps}")
        if not 0 <= self.beta_decay < 1:
            raise ValueError(f"beta_decay must be from 0 to below 1, got {self.beta_decay}")
        if self.reward_normalization == "centered" and self.discount == 1:
            raise ValueError("discount must be below 1 with reward_normalization centered, got 1")
        self._check_batches()

    @classmethod
    def renewed(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return them with what took the place of `normalize_reward`."""
        found = super().renewed(values)
        if "normalize_reward" in found:
            found["reward_normalization"] = "mean" if found.pop("normalize_reward") else "none"
        return found

    def _check_batches(self) -> None:
        check_holds_batch(self, self.sampled_transitions)
        if self.sampled_transitions > MOST_SAMPLED:
            name = "batch_size" if self.sampled_transitions == self.batch_size else "bonus_batch_size"
            raise ValueError(f"{name} must be at most {MOST_SAMPLED}, got {self.sampled_transitions}")
        if self.replay_capacity <= self.n_step:
            raise ValueError(f"replay_capacity must be above n_step, {self.n_step}, got {self.replay_capacity}")
        if self.bonus_batch_size is not None and self.bonus_batch_size < self.batch_size:
            raise ValueError(
                f"bonus_batch_size must be at least batch_size, {self.batch_size}, got {self.bonus_batch_size}"
            )
        # The images of later steps are looked at with the batch alone.
        fewest = (
            self.batch_size if self.return_injection == "every_step" and self.n_step > 1 else self.sampled_transitions
        )
        if self.has_bonus:
            check_neighbors(self.bonus.k, fewest)

    @property
    def sampled_transitions(self) -> int:
        """Transitions that are sampled for an update."""
        return self.bonus_batch_size if self.bonus_batch_size is not None and self.has_bonus else self.batch_size

    def learns_at(self, step: int) -> bool:
        """Whether an update is due at a step: actions after it follow from it."""
        return ACTION_REPEAT * step >= self.seed_frames and step % self.steps_per_update == 0

    def noise(self, step: int) -> float:
        """Return the standard deviation of actions at a step."""
        first, last, steps = cast(NoiseSchedule, self.action_noise)
        return first + (last - first) * min(step / steps, 1.0)

    def weight(self, step: int) -> float:
        """Return the weight of a bonus at a step."""
        return self.beta * (1 - self.beta_decay) ** step


K = 12
BONUS_NOISE = 0.2  # of actions, where a bonus explores, and for all methods in Meta-World
# The paper takes values from the target critic, and its text has the bonus in the reward of every step; the release
# adds that of the first step to the summed rewards.
_OF_TEXT = {"value_critic": "target", "curiosity_pair": "one-step", "return_injection": "every_step"}
_OF_READING: dict[str, dict[str, Any]] = {
    "release": {"value_critic": "online", "curiosity_pair": "n-step", "return_injection": "once"},
    "paper": _OF_TEXT,
    "clean": _OF_TEXT,
    # With the paper's weight: rewards of Meta-World are divided to a size of 1, so that a standard deviation of a
    # bonus is a tenth of one.
    "recommended": _OF_TEXT,
}
# Tasks on which DrQ-v2 alone lowers its noise over 100,000 steps.
_EASY_TASKS = (
    *("ball_in_cup_catch", "cartpole_balance", "cartpole_balance_sparse", "cartpole_swingup", "finger_spin"),
    *("hopper_stand", "pendulum_swingup", "walker_stand", "walker_walk", "walker_walk_sparse"),
)


def drqv2_settings(bonus: str, reading: Reading = "release", *, task: str, **deviations: Any) -> DrQv2Settings:
    """Return the settings that a reading asks for on a task, with deviations where they are named."""
    check_reading("drqv2", bonus, reading, tuple(_OF_READING))
    family, _, name = task.partition("/")
    explores = bonus_entry(bonus).pays or family == "metaworld"
    chosen = {
        "action_noise": BONUS_NOISE if explores else (1.0, 0.1, _noise_steps(name)),
        "reward_normalization": "mean" if family == "metaworld" else "none",
        **_OF_READING[reading],
        **_of_task(name),
    }
    return with_deviations(
        DrQv2Settings,
        bonus,
        reading,
        chosen,
        deviations,
        k=K,
        release="release-drqv2",
        normalizers=NORMALIZERS_OF_REPLAY,
    )


def _noise_steps(task: str) -> int:
    """Return the steps over which DrQ-v2 alone lowers its noise."""
    return 100_000 if task in _EASY_TASKS else 2_000_000 if task.startswith("humanoid") else 500_000


def _of_task(task: str) -> dict[str, Any]:
    """Return in which settings DrQ-v2's authors deviate on a task of DeepMind Control."""
    if task.startswith("walker_"):
        return {"n_step": 1, "batch_size": 512}
    if task.startswith("humanoid_"):
        return {"learning_rate": 8e-5, "features": 100}
    return {"replay_capacity": 100_000} if task == "quadruped_run" else {}
