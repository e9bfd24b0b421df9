"""Tasks by name: `family/name`, such as minigrid/LavaGapS7, and the environments behind each."""

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Literal

from vcse.envs import minigrid
from vcse.envs.interface import Environments
from vcse.envs.minigrid import names as minigrid_names
from vcse.envs.minigrid.crossing import TASK as TABLE
from vcse.envs.minigrid.crossing import TableCrossing, table_map
from vcse.envs.mujoco import dmc, metaworld, pixels
from vcse.envs.mujoco.dmc import StateSpec

ObservationKind = Literal["grid", "state", "image"]

# What the tasks of each family show.
FAMILIES: dict[str, ObservationKind] = {
    **dict.fromkeys(("minigrid", "minigrid-full", "minigrid-table"), "grid"),
    "dmc": "state",
    **dict.fromkeys(("dmc-pixels", "metaworld"), "image"),
}


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
    if family not in FAMILIES or not name:
        raise ValueError(
            f"task {task!r} does not exist; tasks are written family/name, {_meant(family, name)} (vcse tasks lists "
            "all)"
        )
    if family == "minigrid-table":
        table_map(name)
    elif family == "dmc":
        dmc.check_task(name)
    elif family in pixels.FAMILIES:
        pixels.check_task(family, name)
    else:
        minigrid_names.check_task(name, family=family)


def _meant(family: str, name: str) -> str:
    """Say how a task may have been meant whose family is none, or was left out."""
    if name and (nearest := difflib.get_close_matches(family.lower(), FAMILIES, n=1)):
        return f"and the nearest family is that of {nearest[0]}/{name}"
    meant = [] if name else [task for each in FAMILIES for task in _listed(each) if task == f"{each}/{family}"]
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
        names = (TABLE,)
    elif family == "metaworld":
        names = metaworld.TASKS
    elif family in ("dmc", "dmc-pixels"):
        names = dmc.registered_tasks()
    else:
        names = minigrid_names.buildable_tasks(full=family == "minigrid-full")
    return tuple(f"{family}/{name}" for name in names)


def observation_kind(task: str) -> ObservationKind:
    """Return what a task shows."""
    return FAMILIES[task.partition("/")[0]]


def backend_of(task: str, asked: str = "auto") -> str:
    """Return what simulates a task; a choice that cannot be served is refused."""
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
        return minigrid_names.fastest_backend() if asked == "auto" else asked
    return "metaworld" if family == "metaworld" else "dm_control"


def marker_of(task: str, asked: bool | None = None) -> bool | None:
    """Return whether images of a task show its goal, as Meta-World's own do; None where no task of a family has one."""
    if task.startswith("metaworld/"):
        return True if asked is None else asked
    if asked is not None:
        raise ValueError(f"goal_marker is for metaworld/..., whose tasks have one, not for {task}")
    return None


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


def make_environments(task: str, seeds: Sequence[int], *, backend: str = "auto", threads: int = 1) -> Environments:
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
        return TableCrossing(seeds, fixed_map=table_map(name))
    return minigrid.make(name, seeds, full=family == "minigrid-full", backend=backend, threads=threads)
