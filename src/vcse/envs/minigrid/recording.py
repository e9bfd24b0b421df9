"""Episodes of MiniGrid, rendered step by step for people."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from vcse.envs.minigrid.crossing import MAPS, TASK, table_map
from vcse.envs.minigrid.full_map import map_planes
from vcse.envs.minigrid.reference import ReferenceMiniGrid
from vcse.envs.moments import Moment, Outcome

MAP_PIXELS = 384  # about as wide as a map is rendered


def record_grids(
    task: str,
    choose: Callable[[Sequence[np.ndarray], np.random.Generator], Any],
    *,
    episodes: int,
    seed: int,
    shown: str = "view",
    **unused: Any,
) -> Iterator[Moment]:
    """Play episodes of a task, and render every step of them.

    Args:
        task: Its name.
        choose: The policy: from the last observations, the newest last, and a generator to an action.
        episodes: How many.
        seed: Of the layouts, and of the generator.
        shown: The agent's view, the whole map, or a table's.
        unused: Options of other families.
    """
    del unused
    generator = np.random.default_rng(seed)
    full = shown == "map"
    fixed_map = None
    if shown == "table":
        number = table_map(task)
        fixed_map = None if number is None else MAPS[number]
        task = TASK
    with closing(ReferenceMiniGrid(task, [seed], full=full, images=True).worlds[0]) as world:
        world.highlight = not full  # what the policy sees is brighter
        world.tile_size = max(8, MAP_PIXELS // max(world.width, world.height))
        for episode in range(1, episodes + 1):
            # Only the first reset is seeded: later layouts follow from it.
            view = world.reset(seed=seed if episode == 1 else None)[0]
            if fixed_map is not None:
                fixed_map.place_on(world.grid)
                view = world.gen_obs()
            step, return_so_far = 0, 0.0
            outcome: Outcome = ""
            yield Moment(world.render(), episode, step, return_so_far, outcome)
            while not outcome:
                action = int(choose([map_planes(world) if full else view["image"]], generator))
                view, reward, terminated, truncated, _ = world.step(action)
                step, return_so_far = step + 1, return_so_far + float(reward)
                outcome = _outcome(terminated, truncated, return_so_far)
                yield Moment(world.render(), episode, step, return_so_far, outcome)


def _outcome(terminated: bool, truncated: bool, return_so_far: float) -> Outcome:
    if return_so_far > 0:
        return "goal"
    if terminated:
        return "failed"
    return "out of time" if truncated else ""
