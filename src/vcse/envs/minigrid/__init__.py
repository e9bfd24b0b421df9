"""MiniGrid: small grid worlds with a partial view of 7x7 cells, or the whole map, and one task as a table."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Literal

from vcse.envs.interface import Environments, Family, Making, TaskSpec, one_task
from vcse.envs.minigrid import names
from vcse.envs.minigrid.crossing import TASK as TABLE
from vcse.envs.minigrid.crossing import TableCrossing, table_map
from vcse.envs.minigrid.envpool import EnvPoolMiniGrid
from vcse.envs.minigrid.recording import record_grids
from vcse.envs.minigrid.reference import ReferenceMiniGrid

Shown = Literal["view", "map", "table"]


def make(tasks: Sequence[str], making: Making, *, shown: Shown = "view") -> Environments:
    """Make environments of one task, one per seed.

    Args:
        tasks: Their names, such as LavaGapS7, which are all the same.
        making: How: the backend auto is EnvPool where it is installed and can serve.
        shown: The agent's view, the whole map as one-hot planes, or the view of a table.
    """
    task, seeds = one_task(tasks), making.seeds
    if len(seeds) < 1:
        raise ValueError("at least one environment is needed, got no seeds")
    if shown == "table":
        return TableCrossing(seeds, fixed_map=table_map(task))
    if _backend(task, making.backend, shown=shown) == "envpool":
        return EnvPoolMiniGrid(task, seeds, threads=making.threads)
    return ReferenceMiniGrid(task, seeds, full=shown == "map")


@cache
def _spec(task: str, *, shown: Shown) -> TaskSpec:
    environments: EnvPoolMiniGrid | ReferenceMiniGrid | TableCrossing
    environments = make([task], Making(seeds=[0]), shown=shown)  # type: ignore[assignment]  # which have shapes
    spec = TaskSpec(
        most_frames=environments.most_steps,
        observation_shape=environments.observation_shape,
        actions=environments.actions,
        rewards_only_the_goal=names.rewards_only_the_goal(task),
        mission=names.mission_of(task),
    )
    environments.close()
    return spec


def _backend(task: str, asked: str, *, shown: Shown) -> str:
    """Return what simulates a task; a choice that cannot be served is refused."""
    if shown == "map" and asked == "envpool":
        raise ValueError(f"backend envpool does not show the whole map of minigrid-full/{task}: use minigrid")
    if asked == "auto":
        return "minigrid" if shown == "map" else names.fastest_backend()
    return asked


def _family(name: str, about: str, shown: Shown) -> Family:
    return Family(
        name,
        shows="grid",
        about=about,
        tasks=(lambda: (TABLE,)) if shown == "table" else partial(names.buildable_tasks, full=shown == "map"),
        check=table_map if shown == "table" else partial(names.check_task, family=name),
        spec=partial(_spec, shown=shown),
        make=partial(make, shown=shown),
        record=partial(record_grids, shown=shown),
        resets_itself=True,
        backend="table" if shown == "table" else partial(_backend, shown=shown),
    )


FAMILIES = (
    _family("minigrid", "the agent's view", "view"),
    _family("minigrid-full", "the whole map, where it has 7x7 cells or more", "map"),
    _family(
        "minigrid-table",
        "the agent's view, all states enumerated; -map0 to -map41 after the name is one map alone",
        "table",
    ),
)
