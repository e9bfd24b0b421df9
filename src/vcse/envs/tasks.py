"""Tasks by name: `family/name`, such as minigrid/LavaGapS7, and the environments behind each."""

import difflib
from collections.abc import Sequence

from vcse.envs import fork, gymnasium, minigrid, mujoco
from vcse.envs.interface import Environments, Family, Making, ObservationKind, TaskSpec
from vcse.envs.minigrid.names import ID_PREFIX
from vcse.nearest import check_known
from vcse.plugins import OF_YOUR_OWN, load_plugins

__all__ = [
    "backend_of",
    "check_task",
    "families",
    "family_of",
    "is_rendered",
    "known_tasks",
    "make_environments",
    "marker_of",
    "observation_kind",
    "register_family",
    "task_spec",
    "task_warning",
]

_FAMILIES: dict[str, Family] = {
    family.name: family for family in (*minigrid.FAMILIES, *mujoco.FAMILIES, *gymnasium.FAMILIES, *fork.FAMILIES)
}


def register_family(family: Family) -> None:
    """Make a family of tasks known by its name, from outside of the package.

    Every agent that observes what the family shows can train on its tasks. The command line finds them if the module
    that calls this is a plug-in: an entry point of the group `vcse.plugins`, or named in `VCSE_PLUGINS`.
    """
    if _FAMILIES.get(family.name, family) is not family:
        raise ValueError(f"family {family.name!r} is registered already")
    _FAMILIES[family.name] = family


def families() -> dict[str, Family]:
    """Return all families, by name."""
    load_plugins()
    return dict(_FAMILIES)


def family_of(task: str) -> Family:
    """Return the family of a task, whose name must exist."""
    family, _, name = task.partition("/")
    if task.startswith(ID_PREFIX):
        minigrid.names.check_task(task)
    if family not in families() or not name:
        raise ValueError(f"task {task!r} does not exist; tasks are written family/name, {_meant(family, name)}")
    found = _FAMILIES[family]
    if found.check is not None:
        found.check(name)
    else:
        check_known(family, name, found.tasks())
    return found


def check_task(task: str) -> None:
    """Refuse a task that does not exist, and list those that do."""
    family_of(task)


def _meant(family: str, name: str) -> str:
    """Return how a task may have been meant whose family is none, or was left out."""
    if name and (likest := difflib.get_close_matches(family.lower(), families(), n=1)):
        return f"and the nearest family is that of {likest[0]}/{name} (vcse tasks lists all)"
    meant = [] if name else [task for each in families() for task in _listed(each) if task == f"{each}/{family}"]
    of_robots = ("dmc/hopper_stand", "dmc-pixels/hopper_stand", "metaworld/door-open")
    examples = ("minigrid/LavaGapS7", *of_robots, "gymnasium/CartPole-v1")
    return f"such as {', '.join(meant or examples)} (vcse tasks lists all){OF_YOUR_OWN if name else ''}"


def _listed(family: str) -> tuple[str, ...]:
    """Return the tasks of a family; none where what simulates them is not installed."""
    try:
        return known_tasks(family)
    except RuntimeError:
        return ()


def known_tasks(family: str) -> tuple[str, ...]:
    """Return the names of all tasks of a family, with it.

    Of minigrid-full these are all of minigrid that the minigrid package can build here, though some maps are too small
    for it; of minigrid-table they are without the maps that may be at the end of a name.
    """
    return tuple(f"{family}/{name}" for name in families()[family].tasks())


def observation_kind(task: str) -> ObservationKind:
    """Return what a task shows."""
    shows = families()[task.partition("/")[0]].shows
    if not isinstance(shows, tuple):
        return shows
    kind = task_spec(task).shows
    if kind is None:
        raise ValueError(f"the spec of {task}, whose family shows {' or '.join(shows)}, must say what it shows")
    return kind


def is_rendered(task: str) -> bool:
    """Return whether a task shows images that its family renders, in a quality and on a device that one may choose."""
    return families()[task.partition("/")[0]].shows == "image"


def backend_of(task: str, asked: str = "auto") -> str:
    """Return what simulates a task; a choice that cannot be served is refused."""
    backend = family_of(task).backend
    if not isinstance(backend, str):
        return backend(task.partition("/")[2], asked)
    if asked not in ("auto", backend):
        raise ValueError(f"backend {asked} does not step {task}: leave it out")
    return backend


def marker_of(task: str, asked: bool | None = None) -> bool | None:
    """Return whether images of a task show its goal, as Meta-World's own do; None where no task of a family has one."""
    if family_of(task).has_goal_marker:
        return True if asked is None else asked
    if asked is not None:
        raise ValueError(f"goal_marker is for metaworld/..., whose tasks have one, not for {task}")
    return None


def task_spec(task: str) -> TaskSpec:
    """Return the spec of a task."""
    return family_of(task).spec(task.partition("/")[2])


def task_warning(task: str) -> str:
    """Return why a run of a task may not be as intended; empty where all is well, and where tasks are all known."""
    return task_spec(task).warning if isinstance(family_of(task).shows, tuple) else ""


def make_environments(tasks: Sequence[str], making: Making) -> Environments:
    """Make environments, one for each task; they may differ, as far as their family allows.

    Args:
        tasks: With their family, of which there is one.
        making: How they are made.
    """
    if not tasks:
        raise ValueError("at least one environment is needed, got no tasks")
    for task in tasks:
        if task.partition("/")[0] != tasks[0].partition("/")[0]:
            raise ValueError(f"tasks must be of one family, got {tasks[0]} and {task}")
    for task in set(tasks):
        check_task(task)
    if len(making.seeds) not in (0, len(tasks)):  # not all need them
        raise ValueError(f"seeds must be one for each of {len(tasks)} environments, got {len(making.seeds)}")
    environments: Environments = family_of(tasks[0]).make([task.partition("/")[2] for task in tasks], making)
    return environments
