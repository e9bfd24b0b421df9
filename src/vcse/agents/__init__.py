"""The agents: one folder each, and one line in the table."""

from importlib import import_module
from pathlib import Path
from typing import Any

from vcse.agents.entry import AgentEntry
from vcse.envs.interface import ObservationKind
from vcse.envs.tasks import check_task, families, observation_kind, task_spec
from vcse.nearest import did_you_mean
from vcse.plugins import OF_YOUR_OWN, UnknownNameError, load_plugins
from vcse.runs import directory
from vcse.runs.config import RunConfig, upgraded

__all__ = [
    "agent_entry",
    "agent_names",
    "agents_for",
    "agents_of",
    "read_config",
    "readable_runs",
    "register_agent",
    "upgraded_content",
]

# Name, and the module that has its ENTRY. Of several that can train on a task the first is taken.
_AGENTS: dict[str, str | AgentEntry] = {
    "a2c": "vcse.agents.a2c",
    "sac": "vcse.agents.sac",
    "drqv2": "vcse.agents.drqv2",
    "mwm": "vcse.agents.mwm",
}


def register_agent(entry: AgentEntry) -> None:
    """Make an agent known by its name, from outside of the package.

    It is found by `vcse train --agent NAME` and everything else if the module that calls this is a plug-in: an entry
    point of the group `vcse.plugins`, or named in the environment variable `VCSE_PLUGINS`.
    """
    if _AGENTS.get(entry.name, entry) is not entry:
        raise ValueError(f"agent {entry.name!r} is registered already")
    _AGENTS[entry.name] = entry


def agent_names() -> tuple[str, ...]:
    """Return the names of all agents."""
    load_plugins()
    return tuple(_AGENTS)


def agent_entry(name: str) -> AgentEntry:
    """Return an agent by its name."""
    if name not in agent_names():
        names = agent_names()
        hint = did_you_mean(name, names) or OF_YOUR_OWN
        message = f"agent must be one of {', '.join(names)}, got {name!r}{hint}"
        raise UnknownNameError(message, kind="agent", name=name)
    found = _AGENTS[name]
    entry: AgentEntry = import_module(found).ENTRY if isinstance(found, str) else found
    return entry


def agents_for(task: str) -> tuple[str, ...]:
    """Return the agents that can train on a task; the first is the default."""
    check_task(task)
    family = task.partition("/")[0]
    if not isinstance(families()[family].shows, tuple):
        return agents_of(family)
    return _agents_observing((observation_kind(task),), is_discrete=task_spec(task).actions > 0)


def agents_of(family: str) -> tuple[str, ...]:
    """Return the agents that can train on tasks of a family: on all of them, where it shows one kind of observation."""
    shows = families()[family].shows
    if not isinstance(shows, tuple):
        return tuple(name for name in agent_names() if agent_entry(name).observes == shows)
    return _agents_observing(shows, is_discrete=families()[family].has_discrete_actions)


def _agents_observing(kinds: tuple[ObservationKind, ...], *, is_discrete: bool | None) -> tuple[str, ...]:
    """Return the agents for families that show several things, whose episodes may end at any time.

    Args:
        kinds: Of which an agent observes one at least.
        is_discrete: Whether its actions are; None: either.
    """
    entries = [agent_entry(name) for name in agent_names() if not agent_entry(name).needs_time_limits]
    return tuple(
        each.name
        for each in entries
        if {each.observes, *each.observes_too} & set(kinds) and is_discrete in (None, each.has_discrete_actions)
    )


def read_config(path: Path) -> RunConfig:
    """Read the configuration of a run's directory."""
    config = directory.read_config(path, lambda agent: agent_entry(agent).settings)
    family = config.task.partition("/")[0]
    if family not in families():
        raise UnknownNameError.of_run(path, "family of tasks", family)
    return config


def readable_runs(path: Path) -> dict[Path, RunConfig]:
    """Return the runs below a directory and their configurations; what cannot be read is named and left out."""
    return directory.those_without_problems(directory.run_directories(path), read_config)


def upgraded_content(content: dict[str, Any]) -> dict[str, Any]:
    """Return what a `config.json` of any release holds, under the names of this one; as it is for unknown agents."""
    agent = content.get("agent")
    return upgraded(content, agent_entry(agent).settings) if agent in agent_names() else content
