"""What a run is: everything that decides its numbers, as it stands in `config.json`."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from vcse.agents.a2c.agent import A2CConfig
from vcse.agents.drqv2.agent import DrQv2Config
from vcse.agents.entry import AGENTS, AgentSettings
from vcse.agents.sac.agent import SACConfig
from vcse.agents.settings import Reading
from vcse.bonuses.registry import BonusChoice
from vcse.envs.minigrid.names import fastest_backend
from vcse.envs.mujoco.rendering import Rendering
from vcse.envs.tasks import agent_of

SCHEMA_VERSION = 1
LARGEST_SEED = 10**9  # those of a run's environments follow from it, and simulators take up to 2^31
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
    settings: AgentSettings  # the agent's own; under its name in config.json
    backend: str = "envpool"  # what simulates the task
    values: ValueSource = "network"  # what VCSE conditions on; exact where the task is enumerated
    row_every_frames: int = 5_000
    eval_every_frames: int = 0  # 0: only at the end
    eval_episodes: int = 100
    checkpoint_every_frames: int = 50_000  # may change: no number depends on it
    rendering: Rendering | None = None  # quality of pictures, where the agent sees some
    goal_marker: bool | None = None  # whether pictures of Meta-World have a dot where the goal is
    visits_every_frames: int = 0  # count visits of each cell, in slices of so many frames; 0: do not count
    keeps_replay: bool = True  # when it is done, to be made longer; may change: no number depends on it

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
        if not isinstance(self.settings, AGENTS[self.agent].settings):
            raise ValueError(f"agent {self.agent} takes other settings than {type(self.settings).__name__}")

    @property
    def name(self) -> str:
        """The run's directory below `--out`."""
        return f"{self.task.replace('/', '-')}/{self.method}/seed{self.seed}"

    @property
    def picture_quality(self) -> Rendering:
        """How pictures are drawn: faithfully where nothing else is said."""
        return self.rendering or "faithful"

    @property
    def shows_goal(self) -> bool:
        """Whether pictures show the goal of a task, where it has one to show."""
        return self.goal_marker is not False

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
        fields.setdefault("goal_marker", marker_of(fields["task"]))  # there was no choice before there was a field
        settings = dict(fields.pop(agent))
        bonus = BonusChoice(**settings.pop("bonus"))
        if "noise_schedule" in settings:
            settings["noise_schedule"] = tuple(settings["noise_schedule"])
        return cls(settings=AGENTS[agent].settings(bonus=bonus, **settings), **fields)


def settings_of(task: str, bonus: str, reading: Reading = "release", **deviations: Any) -> AgentSettings:
    """Give the settings of a task's agent as a reading asks for them, with deviations where they are named."""
    return AGENTS[agent_of(task)].settings_for(bonus, reading, task=task, **deviations)


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


def marker_of(task: str, asked: bool | None = None) -> bool | None:
    """Give whether pictures of a task show its goal, as Meta-World's own do; None where no task of a family has one."""
    if task.startswith("metaworld/"):
        return True if asked is None else asked
    if asked is not None:
        raise ValueError(f"goal_marker is for metaworld/..., whose tasks have one, not for {task}")
    return None


# How long a run is, how often it is saved and what it leaves behind: no number up to a frame depends on them.
# The row and the evaluation of an earlier end stay where they are when a run is made longer.
_MAY_CHANGE = ("frames", "checkpoint_every_frames", "keeps_replay")


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
