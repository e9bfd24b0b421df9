"""Settings of A2C, and what each reading makes of them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from vcse.agents.presets import RECOMMENDED_BETA, check_reading, with_deviations
from vcse.bonuses.registry import bonus_entry
from vcse.settings import READINGS, AgentSettings, Reading, setting

Injection = Literal["after_gae", "reward"]
TimeLimit = Literal["ends", "bootstraps"]
BonusFeatures = Literal["encoder", "position"]
ValueSource = Literal["network", "permuted", "frozen", "exact", "exact-stationary"]


@dataclass(frozen=True)
class A2CSettings(AgentSettings):
    """One learner's settings. Defaults are the release's, which made the paper's curves."""

    renamed: ClassVar = {"keeps_extrinsic_critic": "keep_extrinsic_critic"}
    added: ClassVar = {"step_cost": 0.0}

    beta: float = setting(
        0.005,
        "Weight of the bonus.",
        range="not negative",
        affects="any bonus",
        otherwise="0.02 in recommended, else 0.005",
    )
    injection: Injection = setting(
        "after_gae",
        "Add bonus and step cost to advantages and returns (after_gae), or to the reward.",
        affects="any bonus",
        affects_with="step_cost",
        otherwise="after_gae in release and re3, else reward; reward for a step cost without a bonus",
    )
    step_cost: float = setting(
        0.0,
        "Cost of each decision, in units of the task's reward, subtracted where the bonus is added; logged returns and "
        "the extrinsic critic do not include it.",
        range="not negative",
    )
    time_limit: TimeLimit = setting(
        "ends",
        "A time limit ends the return (ends), or the return bootstraps from the value there (bootstraps).",
        otherwise="bootstraps in clean and recommended, and for gymnasium/..., else ends",
    )
    values: ValueSource = setting(
        "network",
        "What vcse conditions on: the extrinsic critic's value (network); as controls, the values of a batch in random "
        "order (permuted) or those of a critic that is never trained (frozen); exact values (minigrid-table/... only).",
        affects="bonuses of values",
    )
    bonus_features: BonusFeatures = setting(
        "encoder",
        "What the bonus sees: a random encoder's features or the agent's position.",
        otherwise="the position for minigrid-full/..., else the encoder",
    )
    keep_extrinsic_critic: bool = setting(False, "Build the extrinsic critic without a bonus too, as the release does.")
    environments: int = setting(16, "Environments that each run steps at once.", range="count")
    rollout_steps: int = setting(8, "Steps of each environment between two updates.", range="count", is_option=False)
    discount: float = setting(0.99, "Discount of rewards.", range="share", is_option=False)
    gae_lambda: float = setting(0.95, "Lambda of generalised advantage estimation.", range="share", is_option=False)
    learning_rate: float = setting(1e-3, "Learning rate of RMSprop.", range="positive", is_option=False)
    rms_decay: float = setting(0.99, "Decay of RMSprop's average of squared gradients.", range="share", is_option=False)
    rms_epsilon: float = setting(1e-8, "Epsilon of RMSprop.", range="not negative", is_option=False)
    entropy_coefficient: float = setting(
        0.01, "Weight of the policy's entropy in the loss.", range="not negative", is_option=False
    )
    value_coefficient: float = setting(
        0.5, "Weight of the critics' errors in the loss.", range="not negative", is_option=False
    )
    most_gradient_norm: float = setting(0.5, "Norm to which gradients are clipped.", range="positive", is_option=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        states = self.frames_per_update
        if self.has_bonus and self.bonus.k >= states:
            raise ValueError(f"k must be below {states}, the states of an update, got {self.bonus.k}")
        remembered = self.bonus.memory_capacity
        if remembered is not None and states > remembered:
            raise ValueError(
                f"environments={self.environments} with rollout_steps={self.rollout_steps} is {states} states "
                f"an update, but the memory of {self.bonus.name} holds {remembered}"
            )

    @classmethod
    def upgraded(cls, values: Mapping[str, Any], of_run: Mapping[str, Any]) -> dict[str, Any]:
        """Return what schema 1 held; there, where values come from was a setting of the run."""
        return {**super().upgraded(values, of_run), "values": of_run["values"]}

    @property
    def has_extrinsic_critic(self) -> bool:
        """Whether the value of the task's own rewards is learned too."""
        return self.has_bonus or self.keep_extrinsic_critic

    @property
    def has_exact_values(self) -> bool:
        """Whether the bonus conditions on exact values, of a task that is enumerated."""
        return self.values in ("exact", "exact-stationary")

    @property
    def frames_per_update(self) -> int:
        """Frames between two updates; MiniGrid repeats no actions."""
        return self.environments * self.rollout_steps


# The paper's text has k = 5 for both; the release has 3 for VCSE and averages over 5, the point itself among them,
# for SE.
_K = {"release": {"vcse": 3, "se-matched": 3}}
_K_OTHERWISE = 5
_OF_READING: dict[str, dict[str, Any]] = {
    "release": {"injection": "after_gae", "time_limit": "ends"},
    "re3": {"injection": "after_gae", "time_limit": "ends"},
    "paper": {"injection": "reward", "time_limit": "ends"},
    "clean": {"injection": "reward", "time_limit": "bootstraps"},
    "recommended": {"injection": "reward", "time_limit": "bootstraps"},
}


def a2c_settings(bonus: str, reading: Reading = "release", *, task: str = "", **deviations: Any) -> A2CSettings:
    """Return the settings that a reading asks for on a task, with deviations where they are named."""
    check_reading("a2c", bonus, reading, READINGS)
    if reading == "re3" and bonus not in ("none", "se"):
        raise ValueError(f"reading 're3' is one of state entropy (se); the bonus is {bonus!r}")
    # On whole maps the bonus sees the agent's position.
    features: BonusFeatures = "position" if task.startswith("minigrid-full/") else "encoder"
    # In tasks of Gymnasium, a time limit does not end the task itself.
    limit = {"time_limit": "bootstraps"} if task.startswith("gymnasium") else {}
    pays = bonus_entry(bonus).pays
    beta = {"beta": RECOMMENDED_BETA} if pays and reading == "recommended" else {}
    # Without a bonus a step cost is what one would expect of it: so much less reward.
    injection = {"injection": "reward"} if deviations.get("step_cost") and not pays else {}
    chosen = {**_OF_READING[reading], "bonus_features": features, **beta, **injection, **limit}
    k = _K.get(reading, {}).get(bonus, _K_OTHERWISE)
    return with_deviations(A2CSettings, bonus, reading, chosen, deviations, k=k, release="release-a2c")
