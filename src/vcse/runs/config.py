"""What a run is: everything that decides its numbers, as it stands in `config.json`."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vcse.agents.a2c import A2CConfig, Injection, TimeLimit
from vcse.agents.sac import SACConfig, ValueCritic
from vcse.bonuses.named import BONUS_NAMES, BonusChoice, BonusName
from vcse.bonuses.readings import NormalizerName

SCHEMA_VERSION = 1
LARGEST_SEED = 10**9  # those of a run's environments follow from it, and simulators take up to 2^31
AgentSettings = A2CConfig | SACConfig
_SETTINGS: dict[str, type[A2CConfig] | type[SACConfig]] = {"a2c": A2CConfig, "sac": SACConfig}
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


DEFAULT_SCHEDULES = {"a2c": Schedule(5_000, 0, 100), "sac": Schedule(10_000, 10_000, 10)}


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
    checkpoint_every_frames: int = 50_000
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

    def to_json(self) -> dict[str, Any]:
        """Give what `config.json` holds."""
        content = {self.agent if name == "settings" else name: each for name, each in dataclasses.asdict(self).items()}
        return {"schema_version": SCHEMA_VERSION, **content}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "RunConfig":
        """Read it back."""
        version = content.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(f"config.json has schema version {version}; this release reads {SCHEMA_VERSION}")
        fields = {name: value for name, value in content.items() if name != "schema_version"}
        agent = fields["agent"]
        if agent not in AGENTS:
            raise ValueError(f"agent must be one of {', '.join(AGENTS)}, got {agent!r}")
        settings = dict(fields.pop(agent))
        bonus = BonusChoice(**settings.pop("bonus"))
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
    value_normalization: Literal["batch", "running"] = "batch",
    position_features: bool = False,
    keeps_extrinsic_critic: bool = False,
    environments: int = 16,
) -> A2CConfig:
    """Give the settings that a reading asks for, with deviations where they are named."""
    if bonus not in BONUS_NAMES:
        raise ValueError(f"bonus must be one of {', '.join(BONUS_NAMES)}, got {bonus!r}")
    if reading not in READINGS:
        raise ValueError(f"reading must be one of {', '.join(READINGS)}, got {reading!r}")
    if reading == "re3" and bonus not in ("none", "se"):
        raise ValueError(f"reading 're3' is one of state entropy (se); the bonus is {bonus!r}")
    name: BonusName = bonus
    return A2CConfig(
        bonus=BonusChoice(
            name=name,
            reading="release-a2c" if reading == "release" else reading,
            k=_K[reading].get(bonus, _K_OTHERWISE) if k is None else k,
            log_offset=log_offset,
            value_normalization=value_normalization,
        ),
        beta=A2CConfig.beta if beta is None else beta,
        injection=_INJECTION[reading] if injection is None else injection,
        time_limit=_TIME_LIMIT[reading] if time_limit is None else time_limit,
        bonus_features="position" if position_features else "encoder",
        keeps_extrinsic_critic=keeps_extrinsic_critic,
        environments=environments,
    )


# What each reading says of SAC beyond the formula of the bonus. The release leaves the policy's entropy out of the
# extrinsic critic's target; the paper says that this critic is like the other. The paper divides SE by a running mean.
_EXTRINSIC_ENTROPY = {"release": False, "paper": True, "clean": False}
_SE_NORMALIZER: dict[str, NormalizerName | None] = {"release": None, "paper": "running-mean", "clean": None}
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
    value_normalization: Literal["batch", "running"] = "batch",
    hidden_units: int | None = None,
    batch_size: int | None = None,
    seed_frames: int | None = None,
    updates_per_step: float | None = None,
    replay_capacity: int | None = None,
) -> SACConfig:
    """Give the settings that a reading asks for, with deviations where they are named."""
    if bonus not in BONUS_NAMES:
        raise ValueError(f"bonus must be one of {', '.join(BONUS_NAMES)}, got {bonus!r}")
    if reading not in _EXTRINSIC_ENTROPY:
        raise ValueError(f"reading must be one of {', '.join(_EXTRINSIC_ENTROPY)} for sac, got {reading!r}")
    name: BonusName = bonus
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
        bonus=BonusChoice(
            name=name,
            reading="release-sac" if reading == "release" else reading,
            k=SAC_K if k is None else k,
            log_offset=log_offset,
            value_normalization=value_normalization,
            normalizer=_SE_NORMALIZER[reading] if bonus == "se" else None,
        ),
        temperature=None if temperature == "learned" else temperature,
        value_critic=value_critic,
        extrinsic_entropy=_EXTRINSIC_ENTROPY[reading] if extrinsic_entropy is None else extrinsic_entropy,
        **{each: number for each, number in deviations.items() if number is not None},  # type: ignore[arg-type]
    )


def difference(mine: RunConfig, theirs: RunConfig) -> str:
    """Say in which settings, other than how long they are, two configurations differ; empty where in none."""
    found = []
    for name, value in flat(mine.to_json()).items():
        other = flat(theirs.to_json()).get(name)
        if other != value and name != "frames":
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
