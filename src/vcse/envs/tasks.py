"""Tasks by name: `family/name`, such as minigrid/LavaGapS7, and the environments behind each."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from vcse.envs import minigrid
from vcse.envs.interface import Environments
from vcse.envs.minigrid import names as minigrid_names
from vcse.envs.mujoco import dmc, metaworld, pixels
from vcse.envs.mujoco.dmc import StateSpec

# Which agent each family of tasks is for.
AGENT_OF_FAMILY = {
    **{"minigrid": "a2c", "minigrid-full": "a2c", "minigrid-table": "a2c"},
    **{"dmc": "sac", "dmc-pixels": "drqv2", "metaworld": "drqv2"},
}

_TABLE, _MAPS = "SimpleCrossingS9N1", 42  # the task that is enumerated, and how many maps it has


@dataclass(frozen=True)
class TaskSpec:
    """What is known of a task before it runs."""

    observation_shape: tuple[int, int, int]
    actions: int
    most_steps: int
    rewards_only_the_goal: bool  # conditioning on the reward says nothing there
    mission: minigrid_names.Mission  # what its text, which is not shown, says that the image does not


def check_task(task: str) -> None:
    """Refuse a task that does not exist, and say which do."""
    family, _, name = task.partition("/")
    if task.startswith(minigrid_names.ID_PREFIX):
        minigrid_names.check_task(task)
    if family not in AGENT_OF_FAMILY or not name:
        raise ValueError(
            f"task {task!r} does not exist; tasks are written family/name, {_meant(family, name)} (vcse tasks lists "
            "all)"
        )
    if family == "minigrid-table":
        _table_map(name)
    elif family == "dmc":
        dmc.check_task(name)
    elif family in pixels.FAMILIES:
        pixels.check_task(family, name)
    else:
        minigrid_names.check_task(name, family=family)


def _meant(family: str, name: str) -> str:
    """Say how a task may have been meant whose family is none, or was left out."""
    if name and (nearest := difflib.get_close_matches(family.lower(), AGENT_OF_FAMILY, n=1)):
        return f"and the nearest family is that of {nearest[0]}/{name}"
    meant = [] if name else [task for each in AGENT_OF_FAMILY for task in _listed(each) if task == f"{each}/{family}"]
    examples = ("minigrid/LavaGapS7", "dmc/hopper_stand", "dmc-pixels/hopper_stand", "metaworld/door-open")
    return f"such as {', '.join(meant or examples)}"


def _listed(family: str) -> tuple[str, ...]:
    """Give the tasks of a family; none where what simulates them is not installed."""
    try:
        return known_tasks(family)
    except RuntimeError:
        return ()


def known_tasks(family: str) -> tuple[str, ...]:
    """Give the names of all tasks of a family, with it.

    Of minigrid-full these are all of minigrid that the minigrid package can build here, though some maps are too small
    for it; of minigrid-table they are without the maps that may stand at the end of a name.
    """
    names: Sequence[str]
    if family == "minigrid-table":
        names = (_TABLE,)
    elif family == "metaworld":
        names = metaworld.TASKS
    elif family in ("dmc", "dmc-pixels"):
        names = dmc.registered_tasks()
    else:
        names = minigrid_names.buildable_tasks(full=family == "minigrid-full")
    return tuple(f"{family}/{name}" for name in names)


def agent_of(task: str) -> str:
    """Give the agent that a task is for."""
    check_task(task)
    return AGENT_OF_FAMILY[task.partition("/")[0]]


def state_spec(task: str) -> StateSpec:
    """Look a task up that shows states: dmc/NAME."""
    return dmc.state_spec(task.partition("/")[2])


@cache
def task_spec(task: str) -> TaskSpec:
    """Look a task up that shows grids: minigrid/NAME and its variants."""
    environments = make_environments(task, [0])
    name = task.partition("/")[2]
    spec = TaskSpec(
        observation_shape=environments.observation_shape,
        actions=environments.actions,
        most_steps=environments.most_steps,
        rewards_only_the_goal=minigrid_names.rewards_only_the_goal(name),
        mission=minigrid_names.mission_of(name),
    )
    environments.close()
    return spec


def make_environments(
    task: str, seeds: Sequence[int], *, backend: minigrid_names.Backend = "auto", threads: int = 1
) -> Environments:
    """Make one environment of a task per seed.

    Args:
        task: minigrid/NAME shows the agent's view, minigrid-full/NAME the whole map; minigrid-table/NAME steps
            an enumeration of all states, with NAME-mapN on one map alone.
        seeds: One per environment.
        backend: What steps minigrid/NAME: envpool, minigrid, or auto for the faster that is installed.
        threads: That stepping may use.
    """
    check_task(task)
    family, _, name = task.partition("/")
    if family == "minigrid-table":
        from vcse.envs.minigrid.crossing import TableCrossing

        return TableCrossing(seeds, fixed_map=_table_map(name))
    return minigrid.make(name, seeds, full=family == "minigrid-full", backend=backend, threads=threads)


def _table_map(name: str) -> int | None:
    base, found, number = name.partition("-map")
    if base != _TABLE or (found and not (number.isdigit() and int(number) < _MAPS)):
        raise ValueError(
            f"task 'minigrid-table/{name}' does not exist; there are minigrid-table/{_TABLE} and, on one map alone, "
            f"minigrid-table/{_TABLE}-map0 to -map{_MAPS - 1}"
        )
    return int(number) if found else None
