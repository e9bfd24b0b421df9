"""The whole map of a MiniGrid as one-hot planes."""

from typing import Any

import numpy as np

OBJECTS, COLOURS, STATES = 11, 6, 4
EMPTY_CELL = (1, 0, 0)
CHANGING_ACTIONS = (3, 4, 5)  # pick up, drop, toggle
_UNITS = {size: np.eye(size, dtype=np.uint8) for size in (OBJECTS, COLOURS, STATES)}
PLANES = OBJECTS + COLOURS + STATES + 1  # the last says whether the agent carries something
AGENT = 10  # the object that represents the agent in the code of a whole map


class MapPlanes:
    """`map_planes` of one world, faster: only pick-up, drop and toggle change a cell, the one in front of the agent."""

    def __init__(self, world: Any) -> None:
        from minigrid.minigrid_env import MiniGridEnv

        self.world = world
        # What an environment does beyond that, in a step of its own, is not known.
        self.is_static = type(world).step is MiniGridEnv.step
        world.gen_obs = dict  # the agent's own view, which takes half of the time and is not looked at
        self.empty: np.ndarray | None = None  # the map without the agent
        self.touched: tuple[int, int] | None = None

    def forget(self) -> None:
        """The map is another one."""
        self.empty = None

    def expect(self, action: int) -> None:
        """An action is about to be taken."""
        if not self.is_static:
            self.empty = None
        elif action in CHANGING_ACTIONS:
            x, y = self.world.front_pos
            self.touched = (int(x), int(y))

    def __call__(self) -> np.ndarray:
        """Return the planes as the world is now."""
        if self.empty is None:
            self.empty = _one_hot(self.world.grid.encode())
        elif self.touched is not None:
            there = self.world.grid.get(*self.touched)
            self.empty[self.touched] = _one_hot(np.array(EMPTY_CELL if there is None else there.encode()))
        self.touched = None
        return _with_agent(self.empty, self.world)


def map_planes(world: Any) -> np.ndarray:
    """Return the whole map as one-hot planes: objects, colours, states (the agent's is its direction), and carrying."""
    return _with_agent(_one_hot(world.grid.encode()), world)


def _with_agent(empty: np.ndarray, world: Any) -> np.ndarray:
    """Put the agent into a map without it, and return whether it carries something."""
    carries = np.full((*empty.shape[:2], 1), world.carrying is not None, dtype=np.uint8)
    planes = np.concatenate((empty, carries), -1)
    planes[*world.agent_pos, :-1] = _one_hot(np.array([AGENT, 0, world.agent_dir]))
    return planes


def _one_hot(cells: np.ndarray) -> np.ndarray:
    sizes = (OBJECTS, COLOURS, STATES)
    return np.concatenate([_UNITS[size][cells[..., channel]] for channel, size in enumerate(sizes)], -1)
