"""Episodes of MiniGrid, rendered step by step for people."""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from vcse.envs.minigrid.crossing import GOAL, MAPS, TASK, CrossingMap, table_map
from vcse.envs.minigrid.full_map import map_planes
from vcse.envs.minigrid.reference import ReferenceMiniGrid
from vcse.envs.moments import Moment, Outcome

MAP_PIXELS = 384  # about as wide as a map is drawn


def record_grids(task: str, choose: Callable[[np.ndarray], int], *, episodes: int, seed: int) -> Iterator[Moment]:
    """Play episodes of a task, and render every step of them.

    Args:
        task: With its family.
        choose: The policy: from one observation to an action.
        episodes: How many.
        seed: Of the layouts.
    """
    world, full, fixed_map = _world(task, seed)
    for episode in range(1, episodes + 1):
        # Only the first reset is seeded: later layouts follow from it.
        shown = world.reset(seed=seed if episode == 1 else None)[0]
        if fixed_map is not None:
            _build(world, fixed_map)
            shown = world.gen_obs()
        step, return_so_far = 0, 0.0
        outcome: Outcome = ""
        yield Moment(world.render(), episode, step, return_so_far, outcome)
        while not outcome:
            action = choose(map_planes(world) if full else shown["image"])
            shown, reward, terminated, truncated, _ = world.step(action)
            step, return_so_far = step + 1, return_so_far + float(reward)
            outcome = _outcome(terminated, truncated, return_so_far)
            yield Moment(world.render(), episode, step, return_so_far, outcome)
    world.close()


def _world(task: str, seed: int) -> tuple[Any, bool, CrossingMap | None]:
    """Make the world that is drawn, and say whether the policy sees all of it and on which map alone it stays."""
    family, _, name = task.partition("/")
    fixed_map: CrossingMap | None = None
    if family == "minigrid-table":
        number = table_map(name)
        fixed_map = None if number is None else MAPS[number]
        name = TASK
    full = family == "minigrid-full"
    world = ReferenceMiniGrid(name, [seed], full=full, pictures=True).worlds[0]
    world.highlight = not full  # what the policy sees is drawn brighter
    world.tile_size = max(8, MAP_PIXELS // max(world.width, world.height))
    return world, full, fixed_map


def _build(world: Any, fixed_map: CrossingMap) -> None:
    """Put the wall of one map in the place of the one that was drawn by chance."""
    from minigrid.core.world_object import Goal, Wall

    for x in range(world.width):
        for y in range(world.height):
            world.grid.set(x, y, Wall() if fixed_map.is_wall(x, y) else None)
    world.grid.set(*GOAL, Goal())


def _outcome(terminated: bool, truncated: bool, return_so_far: float) -> Outcome:
    if return_so_far > 0:
        return "goal"
    if terminated:
        return "failed"
    return "out of time" if truncated else ""
