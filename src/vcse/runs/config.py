"""What a run is: everything that decides its numbers, as in `config.json`."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from vcse.envs.interface import Rendering
from vcse.settings import AgentSettings, Reading

SCHEMA_VERSION = 2
LARGEST_SEED = 10**9  # those of a run's environments follow from it, and simulators take up to 2^31


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
    row_every_frames: int = 5_000
    eval_every_frames: int = 0  # 0: only at the end
    eval_episodes: int = 100
    checkpoint_every_frames: int = 50_000  # may change: no number depends on it
    rendering: Rendering | None = None  # quality of images, where the agent sees some
    goal_marker: bool | None = None  # whether images have a dot where the goal is, where the family renders one
    visits_every_frames: int = 0  # count visits of each cell, in slices of so many frames; 0: do not count
    keep_replay: bool = True  # when it is done, to be made longer; may change: no number depends on it

    def __post_init__(self) -> None:
        for name in (field.name for field in dataclasses.fields(self) if field.type is int):
            number = getattr(self, name)
            is_whole = isinstance(number, Real) and number % 1 == 0
            if not is_whole:
                raise ValueError(f"{name} must be a whole number, got {number!r}")
            object.__setattr__(self, name, int(number))  # 1e5 and numbers of NumPy are written to config.json as others
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

    @property
    def name(self) -> str:
        """The run's directory below `--out`."""
        return f"{self.task.replace('/', '-').replace(':', '-')}/{self.method}/seed{self.seed}"

    @property
    def image_quality(self) -> Rendering:
        """How images are rendered: faithfully by default."""
        return self.rendering or "faithful"

    def to_json(self) -> dict[str, Any]:
        """Return what `config.json` holds."""
        content = {self.agent if name == "settings" else name: each for name, each in dataclasses.asdict(self).items()}
        return {"schema_version": SCHEMA_VERSION, **content}

    @classmethod
    def from_json(cls, content: Mapping[str, Any], settings: type[AgentSettings]) -> "RunConfig":
        """Read it back, with the class of the agent's settings, from this schema or an earlier one."""
        fields = upgraded(content, settings)
        del fields["schema_version"]
        return cls(settings=settings.from_json(fields.pop(fields["agent"])), **fields)


def upgraded(content: Mapping[str, Any], settings: type[AgentSettings]) -> dict[str, Any]:
    """Return what `config.json` holds under the names of this release's schema, whichever wrote it.

    Args:
        content: What the file holds.
        settings: The class of the agent's settings, which knows its earlier names.
    """
    version = content.get("schema_version")
    if version not in (1, SCHEMA_VERSION):
        raise ValueError(f"it has schema version {version}; this release reads {SCHEMA_VERSION} and 1")
    agent = content["agent"]
    bonus = {"scaling": "raw", **content[agent]["bonus"]}  # as it was before there was a choice
    fields = {**content, agent: {**content[agent], "bonus": bonus}}
    if version == SCHEMA_VERSION:
        return {**fields, agent: settings.renewed(fields[agent])}
    fields["schema_version"] = SCHEMA_VERSION
    fields["keep_replay"] = fields.pop("keeps_replay", True)
    if "goal_marker" not in fields:  # there was no choice before there was a field
        fields["goal_marker"] = True if fields["task"].startswith("metaworld/") else None
    of_run = {"values": fields.pop("values", "network")}
    return {**fields, agent: settings.renewed(settings.upgraded(fields[agent], of_run))}


# How long a run is, how often it is saved and what it leaves behind: no number up to a frame depends on them.
# The row and the evaluation of an earlier end stay where they are when a run is made longer.
_MAY_CHANGE = ("frames", "checkpoint_every_frames", "keep_replay")


def difference(mine: RunConfig, theirs: RunConfig) -> str:
    """Return in which settings that decide its numbers two configurations of a run differ; empty where in none."""
    found = []
    others = flat(theirs.to_json())
    for name, value in flat(mine.to_json()).items():
        if others.get(name) != value and name not in _MAY_CHANGE:
            found.append(f"{name} is {others.get(name)!r} there and {value!r} here")
    return "; ".join(found)


def flat(content: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return all settings in one level, those inside others under both names: `agent.bonus.k`."""
    settings: dict[str, Any] = {}
    for name, value in content.items():
        if isinstance(value, Mapping):
            settings |= flat(value, f"{prefix}{name}.")
        else:
            settings[prefix + name] = value
    return settings
