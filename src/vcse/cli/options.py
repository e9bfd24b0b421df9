"""Options of `vcse train` that not every agent has, made of the fields of the agents' settings.

A box of the help has the options of one agent, or of several that share them.
"""

import dataclasses
import re
import types
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

import tyro

from vcse.agents import agent_entry, agent_names, agents_of
from vcse.cli.flags import flag
from vcse.cli.option_types import (
    Frames,
    TruthIfGiven,
    count_of,
    if_given,
    number_of,
    number_or_word,
    numbers_of,
    one_of,
    read_by,
    read_together_by,
    truth_of,
    whole_of,
)
from vcse.envs.interface import ObservationKind, Rendering
from vcse.envs.tasks import families, observation_kind, task_spec
from vcse.settings import About, AgentSettings, described

# Options of runs that go with what tasks show.
KINDS_OF_OPTION: dict[str, tuple[ObservationKind, ...]] = {
    **dict.fromkeys(("backend", "visits_every_frames"), ("grid",)),
    **dict.fromkeys(("rendering", "goal_marker"), ("image",)),
    "keep_replay": ("state", "image"),
}


@dataclass(frozen=True)
class EnvironmentOptions:
    """Of what runs see, and of what they leave behind.

    Attributes:
        backend: Simulator of MiniGrid; auto is EnvPool if it is installed.
        visits_every_frames: Record how often each cell of a MiniGrid is visited, in slices of so many frames; 0 records
            nothing.
        rendering: Quality of images: faithful (what everyone renders), light (nearly the same, several times faster) or
            fast (no shadows, reflections or smooth edges). Default: faithful.
        goal_marker: Show the goal as a dot in images of metaworld/.... Default: True, as in Meta-World itself.
        keep_replay: Keep the replay files of a finished run. Without them it takes far less disk space, but cannot be
            extended.
    """

    backend: Literal["auto", "envpool", "minigrid"] = "auto"
    visits_every_frames: Frames = 0
    rendering: Annotated[Rendering | None, one_of(Rendering), if_given()] = None
    goal_marker: TruthIfGiven = None
    keep_replay: bool = True


def agent_options() -> dict[tuple[str, ...], dict[str, tuple[str, Any, Any]]]:
    """Return the options, by the agents that share each, and by name: what a dataclass is made of.

    They are in the order of the agents, those that more of them share first.
    """
    owners: dict[str, dict[str, type[AgentSettings]]] = {}
    for agent in agent_names():
        settings = agent_entry(agent).settings
        for name, about in described(settings).items():
            if about.is_option:
                owners.setdefault(name, {})[agent] = settings
    groups: dict[tuple[str, ...], dict[str, tuple[str, Any, Any]]] = {}
    for name, classes in owners.items():
        groups.setdefault(tuple(classes), {})[name] = _option(name, classes)
    places = {agent: place for place, agent in enumerate(agent_names())}
    return dict(sorted(groups.items(), key=lambda group: (places[group[0][0]], -len(group[0]))))


def _option(name: str, classes: Mapping[str, type[AgentSettings]]) -> tuple[str, Any, Any]:
    """Return the name, the annotated type and the default of one option, which some agents share."""
    abouts = {agent: described(settings)[name] for agent, settings in classes.items()}
    defaults: dict[str, list[str]] = {}  # what it is if it is not given, and in which agents
    for agent, settings in classes.items():
        defaults.setdefault(abouts[agent].otherwise or _shown(getattr(settings, name), abouts[agent]), []).append(agent)
    default = "; ".join(
        f"in {' and '.join(agents)} {value}" if len(defaults) > 1 else value for value, agents in defaults.items()
    )
    hint, about = get_type_hints(next(iter(classes.values())))[name], next(iter(abouts.values()))
    helps = {agent: each.help for agent, each in abouts.items() if each.help != about.help}
    others = [f" In {agent}: {text[0].lower()}{text[1:]}" for agent, text in helps.items()]
    shown = tyro.conf.arg(help=f"{about.help}{''.join(others)} (default: {default})", help_behavior_hint="")
    if hint is bool and not about.otherwise:
        return name, Annotated[bool, shown], dataclasses.field(default=False)
    return name, Annotated[Any, _reader(hint, about), shown], dataclasses.field(default=None)


def _shown(value: Any, about: About) -> str:
    """Return a default as one would type it."""
    for factor, letter in ((1_000_000, "M"), (1_000, "k")) if about.unit else ():
        if value % factor == 0:
            return f"{value // factor}{letter}"
    return str(value)


def _reader(hint: Any, about: About) -> Any:
    """Return how an option of a type is read."""
    if about.unit:
        return read_by(count_of, about.unit.upper())
    if hint is bool:
        return read_by(truth_of, "{True,False}")
    if get_origin(hint) is Literal:
        return one_of(hint)
    several = next((kind for kind in get_args(hint) if get_origin(kind) is tuple), None)
    if several is not None:
        parts, written = get_args(several), about.metavar.rpartition("| ")[2]
        return read_together_by(lambda texts: numbers_of(texts, parts, written), about.metavar, (1, len(parts)))
    kinds = [kind for kind in get_args(hint) if kind is not types.NoneType] or [hint]
    words = [word for kind in kinds if get_origin(kind) is Literal for word in get_args(kind)]
    if words:
        return read_by(lambda text: number_or_word(text, words), "|".join(["FLOAT", *words]))
    return read_by(whole_of, "INT") if kinds[0] is int else read_by(number_of, "FLOAT")


def families_of(agents: Iterable[str]) -> str:
    """Return the families of tasks that some agents train on, as a phrase."""
    names = [f"{family}/..." for family in families() if set(agents) & set(agents_of(family))]
    return " and ".join([", ".join(names[:-1]), names[-1]]) if len(names) > 1 else names[0]


def agent_options_class() -> Any:
    """Return a dataclass for tyro of the options of all agents, in which a box of the help is a dataclass."""
    boxes = {}
    for agents, options in agent_options().items():
        title = "_and_".join(agents).replace("-", "_")
        box = dataclasses.make_dataclass(title, options.values(), frozen=True)
        box.__doc__ = f"For {families_of(agents)}"
        # The options of all agents are among the common ones, without a box of their own.
        shown = "" if agents == agent_names() else " and ".join(", ".join(agents).rsplit(", ", 1))
        boxes[title] = Annotated[tyro.conf.OmitArgPrefixes[box], tyro.conf.arg(name=shown)]  # type: ignore[misc, valid-type]
    return dataclasses.make_dataclass("AgentOptions", boxes.items(), frozen=True)


def given_options(options: Any) -> dict[str, Any]:
    """Return the options of a dataclass, and of those inside it, that are not as they are without."""
    given: dict[str, Any] = {}
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            given |= given_options(value)
        elif value != field.default:
            given[field.name] = value
    return given


def option_agents() -> dict[str, tuple[str, ...]]:
    """Return the agents of each option."""
    return {name: agents for agents, options in agent_options().items() for name in options}


def check_agent_options(options: Iterable[str], agent: str, task: str) -> None:
    """Refuse options that are for other agents."""
    owners = option_agents()
    for option in options:
        if agent not in owners[option]:
            known_by = " or ".join(", ".join(owners[option]).rsplit(", ", 1))
            raise ValueError(f"{flag(option)} is for the agent {known_by}, but {task} is trained by {agent}")


def check_task_options(options: Iterable[str], task: str) -> None:
    """Refuse options that are for tasks that show something else."""
    for option in options:
        kinds = KINDS_OF_OPTION[option]
        if not _has_option(task, option):
            of_one_kind = [family for family in families().values() if not isinstance(family.shows, tuple)]
            names = [f"{family.name}/..." for family in of_one_kind if family.shows in kinds]
            raise ValueError(f"{flag(option)} is for {', '.join(names)}, not for {task}")


def _has_option(task: str, option: str) -> bool:
    """Whether an option makes a difference to a task; of families that show several things, where there is a replay."""
    if isinstance(families()[task.partition("/")[0]].shows, tuple):
        return option == "keep_replay" and task_spec(task).action_size > 0
    return observation_kind(task) in KINDS_OF_OPTION[option]


def with_numbers(settings: AgentSettings, texts: Iterable[str], *, agent: str) -> AgentSettings:
    """Set numbers of an agent by their names.

    Args:
        settings: Of the agent.
        texts: Such as discount=0.97.
        agent: Its name.
    """
    fields = dataclasses.fields(settings)
    numbers = {field.name: field.default for field in fields if type(field.default) in (int, float)}
    options = {name for name, about in described(settings).items() if about.is_option}
    free = [name for name in numbers if name not in options]
    asked: dict[str, float] = {}
    for text in texts:
        name, _, number = text.partition("=")
        if not number:
            raise ValueError(f"--set must be NAME=NUMBER, got {text!r}")
        if name in numbers and name not in free:
            raise ValueError(f"--set {text}: {name} has an option of its own, {flag(name)}")
        if name not in free:
            raise ValueError(f"--set {text}: the agent {agent} has no {name}; it has {', '.join(free)}")
        if name in asked:
            raise ValueError(f"--set has {name} more than once")
        try:
            asked[name] = (whole_of if isinstance(numbers[name], int) else number_of)(number)
        except ValueError as error:
            raise ValueError(f"--set {text}: {error}") from None
    changes: dict[str, Any] = asked
    return dataclasses.replace(settings, **changes)


@contextmanager
def naming_options(names: Iterable[str]) -> Iterator[None]:
    """Rewrite errors of settings, which name a field, so that they name its option.

    Args:
        names: Of the options, as arguments.
    """
    try:
        yield
    except ValueError as error:
        # A name of one word may be a word of the sentence: it is the option's where the sentence begins with it.
        known = "|".join(names)
        message = re.sub(rf"^({known})(?=[ =])|\b(?=\w+_)({known})\b", lambda found: flag(found[0]), str(error))
        raise ValueError(message) from error
