"""What a run is: everything that decides its numbers, as it stands in `config.json`."""

import dataclasses
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vcse.agents.a2c import A2CConfig, Injection, TimeLimit
from vcse.agents.drqv2 import CuriosityPair, DrQv2Config, ReturnInjection
from vcse.agents.sac import SACConfig
from vcse.bonuses.named import (
    BONUS_NAMES,
    READS_LOG_OFFSET,
    READS_VALUE_NORMALIZATION,
    BonusChoice,
    BonusName,
    ValueNormalization,
)
from vcse.bonuses.readings import NormalizerName
from vcse.envs.minigrid import fastest_backend
from vcse.envs.tasks import agent_of
from vcse.nets.pixels import Precision
from vcse.settings import ValueCritic

SCHEMA_VERSION = 1
LARGEST_SEED = 10**9  # those of a run's environments follow from it, and simulators take up to 2^31
AgentSettings = A2CConfig | SACConfig | DrQv2Config
_SETTINGS: dict[str, type[A2CConfig] | type[SACConfig] | type[DrQv2Config]] = {
    "a2c": A2CConfig,
    "sac": SACConfig,
    "drqv2": DrQv2Config,
}
AGENTS = tuple(_SETTINGS)
READINGS = ("release", "paper", "clean", "re3")
Reading = Literal["release", "paper", "clean", "re3"]
ValueSource = Literal["network", "exact", "exact-stationary"]


@dataclass(frozen=True)
class Schedule:
    """How often a run looks at itself."""

    row_every_frames: int
    eval_every_frames: int  # 0: only at the end
    eval_episodes: int


DEFAULT_SCHEDULES = {
    "a2c": Schedule(5_000, 0, 100),
    "sac": Schedule(10_000, 10_000, 10),
    "drqv2": Schedule(10_000, 10_000, 10),
}


@dataclass(frozen=True)
class RunConfig:
    """One learner's training. Two runs with the same configuration have the same numbers."""

    task: str
    agent: str
    method: str  # the label of the run in a comparison
    seed: int
    reading: Reading
    frames: int  # how long the run is; may grow
    settings: AgentSettings  # the agent's own; under its name in config.json
    backend: str = "envpool"  # what simulates the task
    values: ValueSource = "network"  # what VCSE conditions on; exact where the task is enumerated
    row_every_frames: int = 5_000
    eval_every_frames: int = 0  # 0: only at the end
    eval_episodes: int = 100
    checkpoint_every_frames: int = 50_000  # may change: no number depends on it
    rendering: str | None = None  # quality of pictures, where the agent sees some
    visits_every_frames: int = 0  # count visits of each cell, in slices of so many frames; 0: do not count

    def __post_init__(self) -> None:
        if self.agent not in AGENTS:
            raise ValueError(f"agent must be one of {', '.join(AGENTS)}, got {self.agent!r}")
        if not 0 <= self.seed <= LARGEST_SEED:
            raise ValueError(f"seed must be from 0 to {LARGEST_SEED:,}, got {self.seed}")
        if not self.method or self.method.startswith(".") or "/" in self.method:
            raise ValueError(f"method names a directory: it must not begin with . or hold /, got {self.method!r}")
        for name in ("frames", "row_every_frames", "checkpoint_every_frames"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1, got {getattr(self, name)}")
        for name in ("eval_every_frames", "eval_episodes", "visits_every_frames"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")
        offset = self.settings.bonus.log_offset
        if offset is not None and not offset > 0:
            raise ValueError(f"log_offset must be above 0 in training, where states may be equal, got {offset}")
        if not isinstance(self.settings, _SETTINGS[self.agent]):
            raise ValueError(f"agent {self.agent} takes other settings than {type(self.settings).__name__}")

    @property
    def name(self) -> str:
        """The run's directory below `--out`."""
        return f"{self.task.replace('/', '-')}/{self.method}/seed{self.seed}"

    @property
    def a2c(self) -> A2CConfig:
        """The settings of an A2C learner."""
        assert isinstance(self.settings, A2CConfig)
        return self.settings

    @property
    def sac(self) -> SACConfig:
        """The settings of a SAC learner."""
        assert isinstance(self.settings, SACConfig)
        return self.settings

    @property
    def drqv2(self) -> DrQv2Config:
        """The settings of a DrQ-v2 learner."""
        assert isinstance(self.settings, DrQv2Config)
        return self.settings

    def to_json(self) -> dict[str, Any]:
        """Give what `config.json` holds."""
        content = {self.agent if name == "settings" else name: each for name, each in dataclasses.asdict(self).items()}
        return {"schema_version": SCHEMA_VERSION, **content}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "RunConfig":
        """Read it back."""
        version = content.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(f"it has schema version {version}; this release reads {SCHEMA_VERSION}")
        fields = {name: value for name, value in content.items() if name != "schema_version"}
        agent = fields["agent"]
        if agent not in AGENTS:
            raise ValueError(f"agent must be one of {', '.join(AGENTS)}, got {agent!r}")
        settings = dict(fields.pop(agent))
        bonus = BonusChoice(**settings.pop("bonus"))
        if "noise_schedule" in settings:
            settings["noise_schedule"] = tuple(settings["noise_schedule"])
        return cls(settings=_SETTINGS[agent](bonus=bonus, **settings), **fields)


# What each reading says of A2C beyond the formula of the bonus. The paper's text has k = 5 for both; the release
# has 3 for VCSE and averages over 5, the point itself among them, for SE.
_INJECTION: dict[str, Injection] = {"release": "after_gae", "re3": "after_gae", "paper": "reward", "clean": "reward"}
_TIME_LIMIT: dict[str, TimeLimit] = {"release": "ends", "re3": "ends", "paper": "ends", "clean": "bootstraps"}
_K = {"release": {"vcse": 3, "se-matched": 3}, "re3": {}, "paper": {}, "clean": {}}
_K_OTHERWISE = 5


def a2c_config(
    bonus: str,
    reading: Reading = "release",
    *,
    k: int | None = None,
    beta: float | None = None,
    injection: Injection | None = None,
    time_limit: TimeLimit | None = None,
    log_offset: float | None = None,
    value_normalization: ValueNormalization = "batch",
    position_features: bool = False,
    keeps_extrinsic_critic: bool = False,
    environments: int = 16,
) -> A2CConfig:
    """Give the settings that a reading asks for, with deviations where they are named."""
    name = _checked_name(bonus, reading, READINGS)
    if reading == "re3" and bonus not in ("none", "se"):
        raise ValueError(f"reading 're3' is one of state entropy (se); the bonus is {bonus!r}")
    return A2CConfig(
        bonus=_choice(
            name,
            "release-a2c" if reading == "release" else reading,
            _K[reading].get(bonus, _K_OTHERWISE) if k is None else k,
            log_offset,
            value_normalization,
        ),
        beta=A2CConfig.beta if beta is None else beta,
        injection=_INJECTION[reading] if injection is None else injection,
        time_limit=_TIME_LIMIT[reading] if time_limit is None else time_limit,
        bonus_features="position" if position_features else "encoder",
        keeps_extrinsic_critic=keeps_extrinsic_critic,
        environments=environments,
    )


# What each reading says of SAC beyond the formula of the bonus. The release leaves the policy's entropy out of the
# extrinsic critic's target; the paper says that this critic is like the other. The paper divides SE by a running mean,
# which the release gets wrong.
_EXTRINSIC_ENTROPY = {"release": False, "paper": True, "clean": False}
_SE_NORMALIZER: dict[str, NormalizerName | None] = {"release": None, "paper": "running-mean", "clean": "running-mean"}
SAC_K = 12
SAC_BONUS_TEMPERATURE = 0.001  # paper and release: learning it gets in the way of a bonus


def sac_config(
    bonus: str,
    reading: Reading = "release",
    *,
    k: int | None = None,
    beta: float | None = None,
    temperature: float | Literal["learned"] | None = None,
    value_critic: ValueCritic = "target",
    extrinsic_entropy: bool | None = None,
    log_offset: float | None = None,
    value_normalization: ValueNormalization = "batch",
    hidden_units: int | None = None,
    batch_size: int | None = None,
    seed_frames: int | None = None,
    updates_per_step: float | None = None,
    replay_capacity: int | None = None,
) -> SACConfig:
    """Give the settings that a reading asks for, with deviations where they are named."""
    name = _checked_name(bonus, reading, _EXTRINSIC_ENTROPY, " for sac")
    if temperature is None and bonus != "none":
        temperature = SAC_BONUS_TEMPERATURE
    deviations = {
        "beta": beta,
        "hidden_units": hidden_units,
        "batch_size": batch_size,
        "seed_frames": seed_frames,
        "updates_per_step": updates_per_step,
        "replay_capacity": replay_capacity,
    }
    return SACConfig(
        bonus=_choice(
            name,
            "release-sac" if reading == "release" else reading,
            SAC_K if k is None else k,
            log_offset,
            value_normalization,
            normalizer=_SE_NORMALIZER[reading] if bonus == "se" else None,
        ),
        temperature=None if temperature == "learned" else temperature,
        value_critic=value_critic,
        extrinsic_entropy=_EXTRINSIC_ENTROPY[reading] if extrinsic_entropy is None else extrinsic_entropy,
        **{each: number for each, number in deviations.items() if number is not None},  # type: ignore[arg-type]
    )


# What each reading says of DrQ-v2 beyond the formula of the bonus. The paper takes values from the target critic, and
# its text has the bonus in the reward of every step; the release adds that of the first step to the summed rewards.
_PIXEL_VALUE_CRITIC: dict[str, ValueCritic] = {"release": "online", "paper": "target", "clean": "target"}
_CURIOSITY_PAIR: dict[str, CuriosityPair] = {"release": "n-step", "paper": "one-step", "clean": "one-step"}
_RETURN_INJECTION: dict[str, ReturnInjection] = {"release": "once", "paper": "every_step", "clean": "every_step"}
DRQV2_K = 12
BONUS_NOISE = 0.2  # of actions, where a bonus explores; and for everybody in Meta-World
# Tasks on which DrQ-v2 alone lowers its noise over 100,000 steps instead of 500,000; humanoids take 2,000,000.
_EASY_TASKS = (
    *("ball_in_cup_catch", "cartpole_balance", "cartpole_balance_sparse", "cartpole_swingup", "finger_spin"),
    *("hopper_stand", "pendulum_swingup", "walker_stand", "walker_walk", "walker_walk_sparse"),
)


def drqv2_config(
    bonus: str,
    reading: Reading = "release",
    *,
    task: str,
    k: int | None = None,
    beta: float | None = None,
    beta_decay: float | None = None,
    value_critic: ValueCritic | None = None,
    curiosity_pair: CuriosityPair | None = None,
    return_injection: ReturnInjection | None = None,
    action_noise: float | None = None,
    log_offset: float | None = None,
    value_normalization: ValueNormalization = "batch",
    normalizes_reward: bool | None = None,
    bonus_batch_size: int | None = None,
    n_step: int | None = None,
    batch_size: int | None = None,
    hidden_units: int | None = None,
    encoder_precision: Precision | None = None,
    seed_frames: int | None = None,
    replay_capacity: int | None = None,
) -> DrQv2Config:
    """Give the settings that a reading asks for on a task, with deviations where they are named."""
    name = _checked_name(bonus, reading, _PIXEL_VALUE_CRITIC, " for drqv2")
    family, _, short = task.partition("/")
    walks = short.startswith("walker_")
    if action_noise is not None and not 0 <= action_noise < math.inf:
        raise ValueError(f"action_noise must be finite and not negative, got {action_noise}")
    if action_noise is None and (bonus != "none" or family == "metaworld"):
        action_noise = BONUS_NOISE
    steps = 100_000 if short in _EASY_TASKS else 2_000_000 if short.startswith("humanoid") else 500_000
    deviations = {
        "beta": beta,
        "beta_decay": beta_decay,
        "bonus_batch_size": bonus_batch_size,
        "hidden_units": hidden_units,
        "encoder_precision": encoder_precision,
        "seed_frames": seed_frames,
        "replay_capacity": replay_capacity,
    }
    return DrQv2Config(
        bonus=_choice(
            name,
            "release-drqv2" if reading == "release" else reading,
            DRQV2_K if k is None else k,
            log_offset,
            value_normalization,
            normalizer=_SE_NORMALIZER[reading] if bonus == "se" else None,
        ),
        noise_schedule=(1.0, 0.1, steps) if action_noise is None else (action_noise, action_noise, 1),
        value_critic=value_critic or _PIXEL_VALUE_CRITIC[reading],
        curiosity_pair=curiosity_pair or _CURIOSITY_PAIR[reading],
        injection=return_injection or _RETURN_INJECTION[reading],
        normalizes_reward=family == "metaworld" if normalizes_reward is None else normalizes_reward,
        n_step=(1 if walks else 3) if n_step is None else n_step,
        batch_size=(512 if walks else 256) if batch_size is None else batch_size,
        **{each: value for each, value in deviations.items() if value is not None},  # type: ignore[arg-type]
    )


def settings_of(task: str, bonus: str, reading: Reading = "release", **deviations: Any) -> AgentSettings:
    """Give the settings of a task's agent as a reading asks for them, with deviations where they are named."""
    agent = agent_of(task)
    if agent == "sac":
        return sac_config(bonus, reading, **deviations)
    if agent == "drqv2":
        return drqv2_config(bonus, reading, task=task, **deviations)
    # On whole maps the bonus sees the agent's position.
    return a2c_config(bonus, reading, **{"position_features": task.startswith("minigrid-full/"), **deviations})


def backend_of(task: str, asked: str = "auto") -> str:
    """Give what simulates a task; a choice that cannot be served is refused."""
    family = task.partition("/")[0]
    if family == "minigrid-table":
        if asked != "auto":
            raise ValueError(f"backend {asked} does not step {task}, which is a table: leave it out")
        return "table"
    if family == "minigrid-full":
        if asked == "envpool":
            raise ValueError(f"backend envpool does not show the whole map of {task}: use minigrid")
        return "minigrid"
    if family == "minigrid":
        return fastest_backend() if asked == "auto" else asked
    return "metaworld" if family == "metaworld" else "dm_control"


def _choice(
    name: BonusName,
    reading: str,
    k: int,
    log_offset: float | None,
    value_normalization: ValueNormalization,
    *,
    normalizer: NormalizerName | None = None,
) -> BonusChoice:
    """Choose a bonus. Of what it does not heed nothing is recorded."""
    return BonusChoice(
        name=name,
        reading=reading,
        k=k,
        log_offset=log_offset if name in READS_LOG_OFFSET else None,
        value_normalization=value_normalization if name in READS_VALUE_NORMALIZATION else "batch",
        normalizer=normalizer,
    )


def _checked_name(bonus: str, reading: str, readings: Iterable[str], whose: str = "") -> BonusName:
    """Give the bonus by its name, if there is one and the agent has the reading."""
    if bonus not in BONUS_NAMES:
        raise ValueError(f"bonus must be one of {', '.join(BONUS_NAMES)}, got {bonus!r}")
    if reading not in readings:
        raise ValueError(f"reading must be one of {', '.join(readings)}{whose}, got {reading!r}")
    return bonus


# How long a run is and how often it is saved: no number up to a frame depends on either.
_MAY_CHANGE = ("frames", "checkpoint_every_frames")


def difference(mine: RunConfig, theirs: RunConfig) -> str:
    """Say in which settings that decide its numbers two configurations of a run differ; empty where in none."""
    found = []
    for name, value in flat(mine.to_json()).items():
        other = flat(theirs.to_json()).get(name)
        if other != value and name not in _MAY_CHANGE:
            found.append(f"{name} is {other!r} there and {value!r} here")
    return "; ".join(found)


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Give all settings in one level, those inside others under both names: `a2c.bonus.k`."""
    settings: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            settings |= flat(value, f"{prefix}{name}.")
        else:
            settings[prefix + name] = value
    return settings
