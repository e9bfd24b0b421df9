"""MiniGrid: small grid worlds with a partial view of 7x7 cells, or the whole map."""

from collections.abc import Sequence

from vcse.envs.interface import Environments
from vcse.envs.minigrid import names
from vcse.envs.minigrid.envpool import EnvPoolMiniGrid
from vcse.envs.minigrid.reference import ReferenceMiniGrid


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
