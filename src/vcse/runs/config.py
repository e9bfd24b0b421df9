"""What a run is: everything that decides its numbers, as it stands in `config.json`."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vcse.agents.a2c import A2CConfig, Injection, TimeLimit
from vcse.bonuses.named import BONUS_NAMES, BonusChoice, BonusName

SCHEMA_VERSION = 1
LARGEST_SEED = 10**9  # those of a run's environments follow from it, and simulators take up to 2^31
AGENTS = ("a2c",)
READINGS = ("release", "paper", "clean", "re3")
Reading = Literal["release", "paper", "clean", "re3"]
ValueSource = Literal["network", "exact", "exact-stationary"]


@dataclass(frozen=True)
class RunConfig:
    """One learner's training. Two runs with the same configuration have the same numbers."""

    task: str
    agent: str
    method: str  # the label of the run in a comparison
    seed: int
    reading: Reading
    frames: int  # how long the run is; may grow
    a2c: A2CConfig
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
        states = self.a2c.frames_per_update
        if self.a2c.has_bonus and self.a2c.bonus.k >= states:
            raise ValueError(f"k={self.a2c.bonus.k} needs more than the {states} states of an update")

    @property
    def name(self) -> str:
        """The run's directory below `--out`."""
        return f"{self.task.replace('/', '-')}/{self.method}/seed{self.seed}"

    def to_json(self) -> dict[str, Any]:
        """Give what `config.json` holds."""
        return {"schema_version": SCHEMA_VERSION, **dataclasses.asdict(self)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "RunConfig":
        """Read it back."""
        version = content.get("schema_version")
        if version != SCHEMA_VERSION:
            raise ValueError(f"config.json has schema version {version}; this release reads {SCHEMA_VERSION}")
        fields = {name: value for name, value in content.items() if name != "schema_version"}
        a2c = dict(fields.pop("a2c"))
        bonus = BonusChoice(**a2c.pop("bonus"))
        return cls(a2c=A2CConfig(bonus=bonus, **a2c), **fields)


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
