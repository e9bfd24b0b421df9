"""SimpleCrossingS9N1 as a table: every state and every observation.

One wall line, vertical or horizontal, with one opening divides a room of 7x7 cells: 42 maps, equally likely. The
agent starts in one corner and looks for the goal in the opposite one. There is nothing to pick up or open, so that
map, cell and direction are the whole state, and the step index is all that the reward needs beyond it.
"""

import functools
import importlib.util
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, UInt8

from vcse.envs.interface import Observations, Positions, Step
from vcse.envs.minigrid.names import INSTALL, VIEW

TASK = "SimpleCrossingS9N1"
ACTIONS = 7  # left, right, forward, pick up, drop, toggle, done
SIDE = 9  # of the map, with the walls around it
START, GOAL = (1, 1), (7, 7)
MOST_STEPS = 324
INSIDE = range(1, SIDE - 1)
WALLS = (2, 4, 6)
DIRECTIONS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # right, down, left, up, as steps of x and y
OUTCOMES = ("left", "right", "forward", "stay")  # the last is what the other four actions lead to
LEFT, RIGHT, FORWARD, STAY = range(4)

Orientation = Literal["vertical", "horizontal"]


class CrossingMap(NamedTuple):
    """One map: a vertical wall at x = wall with an opening at y = opening, a horizontal one the other way round."""

    orientation: Orientation
    wall: int
    opening: int

    def is_wall(self, x: int, y: int) -> bool:
        """Whether a cell is part of the wall line or of the walls around the room."""
        if x not in INSIDE or y not in INSIDE:
            return True
        along, across = (x, y) if self.orientation == "vertical" else (y, x)
        return along == self.wall and across != self.opening

    def place_on(self, grid: Any) -> None:
        """Put the walls and the goal of this map into a grid of the `minigrid` package, and take all else out."""
        from minigrid.core.world_object import Goal, Wall

        for x in range(SIDE):
            for y in range(SIDE):
                grid.set(x, y, Wall() if self.is_wall(x, y) else None)
        grid.set(*GOAL, Goal())


_ORIENTATIONS: tuple[Orientation, ...] = ("vertical", "horizontal")
MAPS = tuple(
    CrossingMap(orientation, wall, opening) for orientation in _ORIENTATIONS for wall in WALLS for opening in INSIDE
)


def map_number(orientation: Orientation, wall: int, opening: int) -> int:
    """Return the number of a map, such as the one with a vertical wall at x = 4 that opens at y = 1."""
    found = CrossingMap(orientation, wall, opening)
    if found not in MAPS:
        raise ValueError(
            f"no map has orientation={orientation!r}, wall={wall}, opening={opening}; there are "
            f"{' and '.join(_ORIENTATIONS)} walls at {WALLS} with openings from {INSIDE[0]} to {INSIDE[-1]}"
        )
    return MAPS.index(found)


@dataclass(frozen=True, eq=False)
class CrossingTables:
    """All states in which the agent could act, map by map, and what each outcome of an action leads to.

    48 of them lie behind the goal, on the two maps whose opening is next to it, and are never reached. The arrays
    are shared and cannot be written to: copy them for torch, with `torch.tensor`.
    """

    successor: Int[np.ndarray, "states 4"]  # by outcome; the state itself where forward is blocked or enters the goal
    enters_goal: Bool[np.ndarray, " states"]  # whether forward does, which ends the episode
    observation_index: Int[np.ndarray, " states"]
    observations: UInt8[np.ndarray, "observations 7 7 3"]
    positions: Int[np.ndarray, "states 2"]
    directions: Int[np.ndarray, " states"]
    maps: Int[np.ndarray, " states"]
    starts: Int[np.ndarray, " maps"]
    first_states: Int[np.ndarray, "maps 9 9"]  # at [x, y], of the four directions; -1 on walls and the goal
    goal_observations: UInt8[np.ndarray, "maps 4 7 7 3"]  # from the goal itself, by direction

    def __post_init__(self) -> None:
        for field in fields(self):
            getattr(self, field.name).setflags(write=False)

    @property
    def states(self) -> int:
        """How many there are."""
        return len(self.successor)

    @property
    def states_per_map(self) -> int:
        """How many follow each other before the next map's."""
        return self.states // len(self.starts)


@functools.cache
def crossing_tables() -> CrossingTables:
    """Enumerate the task. The observations are those of the `minigrid` package, which is asked for each state's."""
    cells = [(x, y) for x in INSIDE for y in INSIDE if (x, y) != GOAL]
    placed = [(number, x, y) for number, each in enumerate(MAPS) for x, y in cells if not each.is_wall(x, y)]
    first_states = np.full((len(MAPS), SIDE, SIDE), -1, dtype=np.int64)
    for index, (number, x, y) in enumerate(placed):
        first_states[number, x, y] = index * len(DIRECTIONS)
    number, x, y, direction = np.array([(*place, d) for place in placed for d in range(len(DIRECTIONS))]).T

    states = np.arange(len(number))
    first = states - direction
    ahead = np.stack((x, y), -1) + np.array(DIRECTIONS)[direction]
    enters_goal = (ahead == GOAL).all(-1)
    reached = first_states[number, ahead[:, 0], ahead[:, 1]]
    forward = np.where(reached < 0, states, reached + direction)
    successor = np.stack((first + (direction - 1) % 4, first + (direction + 1) % 4, forward, states), -1)

    seen, goal_observations = _observed(placed)
    observations, observation_index = np.unique(seen.reshape(len(states), -1), axis=0, return_inverse=True)
    return CrossingTables(
        successor=successor,
        enters_goal=enters_goal,
        observation_index=observation_index.reshape(-1),
        observations=observations.reshape(-1, *VIEW),
        positions=np.stack((x, y), -1).astype(np.int32),
        directions=direction,
        maps=number,
        starts=first_states[:, START[0], START[1]].copy(),
        first_states=first_states,
        goal_observations=goal_observations,
    )


def _observed(
    placed: Sequence[tuple[int, int, int]],
) -> tuple[UInt8[np.ndarray, "states 7 7 3"], UInt8[np.ndarray, "maps 4 7 7 3"]]:
    """Return what a world of the `minigrid` package shows from each place, and from each map's goal."""
    if importlib.util.find_spec("minigrid") is None:
        raise RuntimeError(f"the minigrid package is not installed: {INSTALL}")
    import gymnasium
    import minigrid  # noqa: F401 - registers its environments
    from minigrid.core.grid import Grid

    world: Any = gymnasium.make(f"MiniGrid-{TASK}-v0").unwrapped
    world.reset(seed=0)
    grids = [Grid(SIDE, SIDE) for _ in MAPS]
    for each, grid in zip(MAPS, grids, strict=True):
        each.place_on(grid)

    def look(number: int, x: int, y: int, direction: int) -> np.ndarray:
        world.grid, world.agent_pos, world.agent_dir = grids[number], (x, y), direction
        image: np.ndarray = world.gen_obs()["image"]
        return image

    turns = range(len(DIRECTIONS))
    seen = np.stack([look(*place, direction) for place in placed for direction in turns])
    at_goal = np.stack([[look(number, *GOAL, direction) for direction in turns] for number in range(len(MAPS))])
    world.close()
    return seen, at_goal


def goal_rewards(steps_used: Int[np.ndarray, " n"]) -> Float[np.ndarray, " n"]:
    """Return the reward for entering the goal with the step of this index, the first being 0."""
    return 1 - 0.9 * (steps_used + 1) / MOST_STEPS


class TableCrossing:
    """SimpleCrossingS9N1 stepped by looking it up, with the exact state of every environment in reach.

    Args:
        seeds: One per environment; what an environment does depends on its own seed and actions only.
        fixed_map: The number of the only map to be shown, instead of a new one in each episode.
    """

    observation_shape = VIEW
    actions = ACTIONS
    most_steps = MOST_STEPS

    def __init__(self, seeds: Sequence[int], *, fixed_map: int | None = None) -> None:
        if fixed_map is not None and not 0 <= fixed_map < len(MAPS):
            raise ValueError(f"fixed_map must be from 0 to {len(MAPS) - 1}, got {fixed_map}")
        self.count = len(seeds)
        self.seeds = tuple(seeds)
        self.fixed_map = fixed_map
        self.tables = crossing_tables()
        self._outcome_of = np.array([LEFT, RIGHT, FORWARD, *[STAY] * (ACTIONS - 3)])
        self._generators: list[np.random.Generator] = []
        self._states: Int[np.ndarray, " n"] = np.zeros(self.count, dtype=np.int64)
        self._steps_used: Int[np.ndarray, " n"] = np.zeros(self.count, dtype=np.int64)
        self._sent: Int[np.ndarray, " n"] | None = None  # outcomes of the actions under way

    @property
    def states(self) -> Int[np.ndarray, " n"]:
        """The state of each environment, at the observations that were given last."""
        return self._states.copy()

    @property
    def steps_used(self) -> Int[np.ndarray, " n"]:
        """The index of the step that each environment takes next: the steps of its episode so far."""
        return self._steps_used.copy()

    def reset(self, seeds: Sequence[int | None] | None = None) -> Observations:
        """Start every environment's first episode, from the seed that it was made with."""
        del seeds
        self._generators = [np.random.default_rng(seed) for seed in self.seeds]
        self._sent = None
        self._begin(np.arange(self.count))
        return self._observations()

    @property
    def positions(self) -> Positions:
        """Return the positions of the agents."""
        positions: Positions = self.tables.positions[self._states]
        return positions

    def send(self, actions: Int[np.ndarray, " n"]) -> None:
        """Remember the actions; the work is done when the step is received."""
        if not self._generators:
            raise RuntimeError("send() before reset()")
        if actions.shape != (self.count,):
            raise ValueError(f"actions must be one for each of {self.count} environments, got shape {actions.shape}")
        if actions.min() < 0 or actions.max() >= ACTIONS:
            raise ValueError(
                f"actions must be from 0 to {ACTIONS - 1}, got numbers from {actions.min()} to {actions.max()}"
            )
        self._sent = self._outcome_of[actions]

    def receive(self) -> Step:
        """Step every environment and reset what has finished."""
        if self._sent is None:
            raise RuntimeError("receive() without send()")
        tables, before, outcomes = self.tables, self._states, self._sent
        self._sent = None
        terminated = tables.enters_goal[before] & (outcomes == FORWARD)
        rewards = np.where(terminated, goal_rewards(self._steps_used), 0).astype(np.float32)
        self._states = tables.successor[before, outcomes]
        self._steps_used = self._steps_used + 1
        truncated = (self._steps_used >= MOST_STEPS) & ~terminated
        next_observations, next_positions = self._observations(), self.positions
        at_goal = before[terminated]
        next_observations[terminated] = tables.goal_observations[tables.maps[at_goal], tables.directions[at_goal]]
        next_positions[terminated] = GOAL
        self._begin(np.flatnonzero(terminated | truncated))
        return Step(
            self._observations(), next_observations, rewards, terminated, truncated, self.positions, next_positions
        )

    def close(self) -> None:
        """Nothing is held."""

    def _begin(self, which: Int[np.ndarray, " m"]) -> None:
        """Start the next episode of some environments, each with its own sample of a map."""
        if self.fixed_map is None:
            numbers = np.array([self._generators[index].integers(len(MAPS)) for index in which], dtype=np.int64)
        else:
            numbers = np.full(len(which), self.fixed_map)
        self._states[which] = self.tables.starts[numbers]
        self._steps_used[which] = 0

    def _observations(self) -> Observations:
        shown: Observations = self.tables.observations[self.tables.observation_index[self._states]]
        return shown


def table_map(name: str) -> int | None:
    """Return the number of the map on which alone a task is played; None: on all. Refuse what does not exist."""
    base, found, number = name.partition("-map")
    if base != TASK or (found and not (number.isdigit() and int(number) < len(MAPS))):
        raise ValueError(
            f"task 'minigrid-table/{name}' does not exist; there are minigrid-table/{TASK} and, on one map alone, "
            f"minigrid-table/{TASK}-map0 to -map{len(MAPS) - 1}"
        )
    return int(number) if found else None
