"""MiniGrid: small grid worlds with a partial view of 7x7 cells, or the whole map, and one task as a table."""

from collections.abc import Sequence
from functools import cache, partial
from typing import Literal

from vcse.envs.interface import Environments, Family, Making, TaskSpec
from vcse.envs.minigrid import names
from vcse.envs.minigrid.crossing import TASK as TABLE
from vcse.envs.minigrid.crossing import TableCrossing, table_map
from vcse.envs.minigrid.envpool import EnvPoolMiniGrid
from vcse.envs.minigrid.recording import record_grids
from vcse.envs.minigrid.reference import ReferenceMiniGrid

Shown = Literal["view", "map", "table"]


def make(
    task: str, seeds: Sequence[int], *, full: bool = False, backend: str = "auto", threads: int = 1
) -> Environments:
    """Make one environment of a task per seed.

    Args:
        task: Such as LavaGapS7; one of `names.registered_tasks`.
        seeds: One per environment.
        full: Show the whole map as one-hot planes instead of the agent's view.
        backend: auto takes EnvPool where it is installed and can serve.
        threads: That EnvPool may use.
    """
    if len(seeds) < 1:
        raise ValueError("at least one environment is needed, got no seeds")
    names.check_task(task)
    if full:
        if backend == "envpool":
            raise ValueError("EnvPool does not show the whole map of a MiniGrid: use the backend minigrid")
        return ReferenceMiniGrid(task, seeds, full=True)
    if backend == "auto":
        backend = names.fastest_backend()
    return EnvPoolMiniGrid(task, seeds, threads=threads) if backend == "envpool" else ReferenceMiniGrid(task, seeds)


def _make(tasks: Sequence[str], making: Making, *, shown: Shown) -> Environments:
    """Make environments of one task."""
    if len(set(tasks)) > 1:
        raise ValueError(f"environments must be of one task, got {', '.join(sorted(set(tasks)))}")
    task = tasks[0]
    if shown == "table":
        return TableCrossing(making.seeds, fixed_map=table_map(task))
    return make(task, making.seeds, full=shown == "map", backend=making.backend, threads=making.threads)


@cache
def _spec(task: str, *, shown: Shown) -> TaskSpec:
    environments: EnvPoolMiniGrid | ReferenceMiniGrid | TableCrossing
    environments = _make([task], Making(seeds=[0]), shown=shown)  # type: ignore[assignment]  # which have shapes
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
    if shown == "table":
        if asked != "auto":
            raise ValueError(f"backend {asked} does not step minigrid-table/{task}, which is a table: leave it out")
        return "table"
    if shown == "map":
        if asked == "envpool":
            raise ValueError(f"backend envpool does not show the whole map of minigrid-full/{task}: use minigrid")
        return "minigrid"
    return names.fastest_backend() if asked == "auto" else asked


def _family(name: str, about: str, shown: Shown) -> Family:
    return Family(
        name,
        shows="grid",
        about=about,
        tasks=(lambda: (TABLE,)) if shown == "table" else partial(names.buildable_tasks, full=shown == "map"),
        check=table_map if shown == "table" else partial(names.check_task, family=name),
        spec=partial(_spec, shown=shown),
        make=partial(_make, shown=shown),
        record=partial(record_grids, shown=shown),
        resets_itself=True,
        backend=partial(_backend, shown=shown),
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
