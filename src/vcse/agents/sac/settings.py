"""Settings of SAC, and what each reading makes of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from vcse.agents.presets import NORMALIZERS_OF_REPLAY, RECOMMENDED_BETA, check_reading, with_deviations
from vcse.bonuses.registry import bonus_entry
from vcse.settings import AgentSettings, Reading, ValueCritic, check_holds_batch, check_neighbors, setting

Temperature = float | Literal["learned"]
ValueSource = Literal["network", "permuted", "frozen"]


@dataclass(frozen=True)
class SACSettings(AgentSettings):
    """One learner's settings. Defaults are the release's; there, learners with a bonus have a temperature of 0.001."""

    added: ClassVar = {"step_cost": 0.0, "values": "network"}

    beta: float = setting(
        0.1,
        "Weight of the bonus.",
        range="not negative",
        affects="any bonus",
        otherwise="0.02 in recommended, else 0.1",
    )
    temperature: Temperature = setting(
        "learned",
        "Weight of the policy's entropy, or learned.",
        range="positive",
        otherwise="learned without a bonus, 0.001 with one, as in paper and release",
    )
    step_cost: float = setting(
        0.0,
        "Cost of each decision, in units of the task's reward, subtracted where the bonus is added; logged returns and "
        "the extrinsic critic do not include it.",
        range="not negative",
    )
    values: ValueSource = setting(
        "network",
        "As in a2c, but without exact values.",
        affects="bonuses of values",
    )
    value_critic: ValueCritic = setting(
        "target",
        "vcse conditions on the value of the target or of the online extrinsic critic.",
        affects="bonuses of values",
    )
    extrinsic_entropy: bool = setting(
        False,
        "The extrinsic critic's target counts the policy's entropy.",
        affects="bonuses of values",
        otherwise="True in paper, else False",
    )
    hidden_units: int = setting(
        1024,
        "Units of each of the two hidden layers of every network.",
        range="count",
        otherwise="256 for gymnasium/..., else 1024",
    )
    batch_size: int = setting(
        1024, "Transitions of an update.", range="count", otherwise="256 for gymnasium/..., else 1024"
    )
    learning_rate: float = setting(
        1e-4,
        "Learning rate of actor, critics and temperature.",
        range="positive",
        is_option=False,
        otherwise="3e-4 for gymnasium/..., else 1e-4",
    )
    discount: float = setting(0.99, "Discount of rewards.", range="share", is_option=False)
    target_rate: float = setting(
        0.005, "Rate at which the target critics follow the critics.", range="share", is_option=False
    )
    target_every_updates: int = setting(
        2,
        "Updates between two steps of the target critics.",
        range="count",
        is_option=False,
        otherwise="1 for gymnasium/..., else 2",
    )
    initial_temperature: float = setting(0.1, "Initial value, where learned.", range="positive", is_option=False)
    seed_frames: int = setting(
        5_000,
        "Frames of random actions before the first update.",
        range="count",
        unit="frames",
        otherwise="1k for gymnasium/..., else 5k",
    )
    updates_per_step: float = setting(1.0, "Updates per step; 0.5 is one at every other step.", range="not negative")
    replay_capacity: int = setting(600_000, "Transitions that are kept; never more than the run has.", unit="count")

    def __post_init__(self) -> None:
        super().__post_init__()
        check_holds_batch(self, self.batch_size)
        if self.has_bonus:
            check_neighbors(self.bonus.k, self.batch_size)

    @classmethod
    def upgraded(cls, values: Mapping[str, Any], of_run: Mapping[str, Any]) -> dict[str, Any]:
        """Return what schema 1 held; there, a temperature that is learned was none."""
        temperature = values["temperature"]
        values = super().upgraded(values, of_run)
        return {**values, "temperature": "learned" if temperature is None else temperature}


K = 12
BONUS_TEMPERATURE = 0.001  # paper and release: learning it gets in the way of a bonus
# The release leaves the policy's entropy out of the extrinsic critic's target; according to the paper it is in
# both.
_EXTRINSIC_ENTROPY = {"release": False, "paper": True, "clean": False, "recommended": False}


# The release's networks are for DeepMind Control on a GPU. Elsewhere they are those of others (Haarnoja et al. 2018),
# and an update takes a sixtieth of the time.
_OF_GYMNASIUM: dict[str, Any] = {
    "hidden_units": 256,
    "batch_size": 256,
    "learning_rate": 3e-4,
    "target_every_updates": 1,
    "seed_frames": 1_000,
}


def sac_settings(bonus: str, reading: Reading = "release", *, task: str = "", **deviations: Any) -> SACSettings:
    """Return the settings that a reading asks for on a task, with deviations where they are named."""
    check_reading("sac", bonus, reading, tuple(_EXTRINSIC_ENTROPY))
    pays = bonus_entry(bonus).pays
    chosen = {
        "extrinsic_entropy": _EXTRINSIC_ENTROPY[reading],
        "temperature": BONUS_TEMPERATURE if pays else "learned",
        **(_OF_GYMNASIUM if task.startswith("gymnasium/") else {}),
        **({"beta": RECOMMENDED_BETA} if pays and reading == "recommended" else {}),
    }
    return with_deviations(
        SACSettings, bonus, reading, chosen, deviations, k=K, release="release-sac", normalizers=NORMALIZERS_OF_REPLAY
    )
