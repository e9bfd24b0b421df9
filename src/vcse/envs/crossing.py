"""SimpleCrossingS9N1 in full: every state, every observation, and exact values of a policy.

One wall line, vertical or horizontal, with one opening divides a room of 7x7 cells: 42 maps, equally likely. The
agent starts in one corner and looks for the goal in the opposite one. There is nothing to pick up or open, so that
map, cell and direction are the whole state, and the step index is all that the reward needs beyond it.
"""

import functools
import importlib.util
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor

from vcse.envs.minigrid import ACTIONS, INSTALL, VIEW
from vcse.envs.protocol import Observations, Positions, Step

TASK = "SimpleCrossingS9N1"
SIDE = 9  # of the map, with the walls around it
START, GOAL = (1, 1), (7, 7)
MOST_STEPS = 324
INSIDE = range(1, SIDE - 1)
WALLS = (2, 4, 6)
DIRECTIONS = ((1, 0), (0, 1), (-1, 0), (0, -1))  # right, down, left, up, as steps of x and y
OUTCOMES = ("left", "right", "forward", "stay")  # the last is what the other four actions lead to
LEFT, RIGHT, FORWARD, STAY = range(4)
SYSTEMS_AT_ONCE = 512  # of 168 unknowns: 115 MB

Orientation = Literal["vertical", "horizontal"]


class CrossingMap(NamedTuple):
    """One map: a vertical wall stands at x = wall and opens at y = opening, a horizontal one the other way round."""

    orientation: Orientation
    wall: int
    opening: int

    @property
    def name(self) -> str:
        """What a figure calls the map."""
        along, across = ("x", "y") if self.orientation == "vertical" else ("y", "x")
        return f"{self.orientation} wall {along}={self.wall}, opening {across}={self.opening}"

    def is_wall(self, x: int, y: int) -> bool:
        """Whether a cell is part of the wall line or of the walls around the room."""
        if x not in INSIDE or y not in INSIDE:
            return True
        along, across = (x, y) if self.orientation == "vertical" else (y, x)
        return along == self.wall and across != self.opening


_ORIENTATIONS: tuple[Orientation, ...] = ("vertical", "horizontal")
MAPS = tuple(
    CrossingMap(orientation, wall, opening) for orientation in _ORIENTATIONS for wall in WALLS for opening in INSIDE
)


def map_number(orientation: Orientation, wall: int, opening: int) -> int:
    """Give the number of a map, such as the one with a vertical wall at x = 4 that opens at y = 1."""
    wanted = CrossingMap(orientation, wall, opening)
    if wanted not in MAPS:
        raise ValueError(
            f"no map has orientation={orientation!r}, wall={wall}, opening={opening}; there are "
            f"{' and '.join(_ORIENTATIONS)} walls at {WALLS} with openings from {INSIDE[0]} to {INSIDE[-1]}"
        )
    return MAPS.index(wanted)


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

    def state(self, number: int, x: int, y: int, direction: int) -> int:
        """Look a state up by its map's number, its cell and its direction."""
        if not (0 <= number < len(MAPS) and 0 <= direction < len(DIRECTIONS)):
            raise ValueError(
                f"number must be from 0 to {len(MAPS) - 1} and direction from 0 to {len(DIRECTIONS) - 1}, "
                f"got {number} and {direction}"
            )
        inside = x in INSIDE and y in INSIDE
        first = int(self.first_states[number, x, y]) if inside else -1
        if first < 0:
            raise ValueError(
                f"x={x}, y={y} is a wall or the goal of map {number} ({MAPS[number].name}), where no action is taken"
            )
        return first + direction


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
    """Ask a world of the `minigrid` package what is seen from each place, and from each map's goal."""
    if importlib.util.find_spec("minigrid") is None:
        raise RuntimeError(f"the minigrid package is not installed: {INSTALL}")
    import gymnasium
    import minigrid  # noqa: F401 - registers its environments
    from minigrid.core.grid import Grid
    from minigrid.core.world_object import Goal, Wall

    world: Any = gymnasium.make(f"MiniGrid-{TASK}-v0").unwrapped
    world.reset(seed=0)
    grids = []
    for each in MAPS:
        grid = Grid(SIDE, SIDE)
        for x in range(SIDE):
            for y in range(SIDE):
                grid.set(x, y, Wall() if each.is_wall(x, y) else None)
        grid.set(*GOAL, Goal())
        grids.append(grid)

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
    """Give the reward for entering the goal with the step of this index, the first being 0."""
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
        if len(seeds) < 1:
            raise ValueError("at least one environment is needed, got no seeds")
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

    def reset(self) -> tuple[Observations, Positions]:
        """Start every environment's first episode."""
        self._generators = [np.random.default_rng(seed) for seed in self.seeds]
        self._sent = None
        self._begin(np.arange(self.count))
        return self._observations(), self.tables.positions[self._states]

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
        arrived, arrived_positions = self._observations(), tables.positions[self._states]
        finished = np.flatnonzero(terminated | truncated)
        if finished.size == 0:
            return Step(arrived, arrived, rewards, terminated, truncated, arrived_positions, arrived_positions)
        at_goal = before[terminated]
        arrived[terminated] = tables.goal_observations[tables.maps[at_goal], tables.directions[at_goal]]
        arrived_positions[terminated] = GOAL
        self._begin(finished)
        shown, positions = arrived.copy(), arrived_positions.copy()
        shown[finished] = self._observations(finished)
        positions[finished] = tables.positions[self._states[finished]]
        return Step(shown, arrived, rewards, terminated, truncated, positions, arrived_positions)

    def close(self) -> None:
        """Nothing is held."""

    def _begin(self, which: Int[np.ndarray, " m"]) -> None:
        """Start the next episode of some environments, each with its own draw of a map."""
        if self.fixed_map is None:
            numbers = np.array([self._generators[index].integers(len(MAPS)) for index in which])
        else:
            numbers = np.full(len(which), self.fixed_map)
        self._states[which] = self.tables.starts[numbers]
        self._steps_used[which] = 0

    def _observations(self, which: Int[np.ndarray, " m"] | slice = slice(None)) -> Observations:
        shown: Observations = self.tables.observations[self.tables.observation_index[self._states[which]]]
        return shown


Probabilities = Float[Tensor, "*learners observations actions"]


@torch.no_grad()
def time_exact_values(
    tables: CrossingTables, probabilities: Probabilities, discount: float
) -> Float[Tensor, "*learners 324 states"]:
    """Give the value of every state at every step index under a policy: discounted reward up to the time limit.

    This is 18 MB per learner in float64; `time_exact_values_at` keeps only what is asked for.

    Args:
        tables: From `crossing_tables`.
        probabilities: The policy: of each action, for each of the distinct observations.
        discount: From 0 to 1.
    """
    _check_policy(tables, probabilities, discount)
    flat = probabilities.reshape(-1, *probabilities.shape[-2:])
    learners, maps = len(flat), len(tables.starts)
    learner = torch.arange(learners, device=flat.device).repeat_interleave(maps)
    number = torch.arange(maps, device=flat.device).repeat(learners)
    values = flat.new_empty(learners, MOST_STEPS, tables.states)
    for step, now in _backward(_Problems(tables, flat, learner, number), discount):
        values[:, step] = now.view(learners, tables.states)
    return values.view(*probabilities.shape[:-2], MOST_STEPS, tables.states)


@torch.no_grad()
def time_exact_values_at(
    tables: CrossingTables,
    probabilities: Probabilities,
    discount: float,
    states: Int[Tensor, "*learners n"],
    steps_used: Int[Tensor, "*learners n"],
) -> Float[Tensor, "*learners n"]:
    """Give what `time_exact_values` has at some states and step indices, from the maps that these states are on.

    Args:
        tables: From `crossing_tables`.
        probabilities: The policy: of each action, for each of the distinct observations.
        discount: From 0 to 1.
        states: As `TableCrossing.states` counts them.
        steps_used: The step index at each.
    """
    _check_policy(tables, probabilities, discount)
    _check_range("states", states, tables.states, probabilities)
    _check_range("steps_used", steps_used, MOST_STEPS, probabilities)
    if states.numel() == 0:
        return probabilities.new_empty(states.shape)
    flat = probabilities.reshape(-1, *probabilities.shape[-2:])
    maps, per_map = len(tables.starts), tables.states_per_map
    asked = states.reshape(len(flat), -1).long()
    owner = torch.arange(len(flat), device=flat.device)[:, None]
    problem, row = torch.unique(owner * maps + asked // per_map, return_inverse=True)
    place = row * per_map + asked % per_map
    step_of = steps_used.reshape(len(flat), -1)
    values = flat.new_empty(asked.shape)
    problems = _Problems(tables, flat, problem // maps, problem % maps)
    for step, now in _backward(problems, discount, last=int(step_of.min())):
        values = torch.where(step_of == step, now.view(-1)[place], values)
    return values.view(states.shape)


@torch.no_grad()
def stationary_values(
    tables: CrossingTables, probabilities: Probabilities, discount: float
) -> Float[Tensor, "*learners states"]:
    """Give the value of every state if there were no time limit and the goal always paid 1.

    V = G + discount · T V, with G the probability of entering the goal now and T that of moving on: one linear
    system per map, solved in float64.

    Args:
        tables: From `crossing_tables`.
        probabilities: The policy: of each action, for each of the distinct observations.
        discount: From 0 to below 1.
    """
    _check_policy(tables, probabilities, discount)
    if discount == 1:
        raise ValueError("discount must be below 1 where nothing ends an episode but the goal, got 1")
    flat = probabilities.reshape(-1, *probabilities.shape[-2:])
    maps, per_map = len(tables.starts), tables.states_per_map
    values = torch.empty(len(flat) * maps, per_map, dtype=torch.float64, device=flat.device)
    unit = torch.eye(per_map, dtype=torch.float64, device=flat.device)
    for begin in range(0, len(values), SYSTEMS_AT_ONCE):
        some = torch.arange(begin, min(begin + SYSTEMS_AT_ONCE, len(values)), device=flat.device)
        problems = _Problems(tables, flat.double(), some // maps, some % maps)
        moves = problems.continuing.new_zeros(len(some), per_map, per_map)
        for outcome in range(len(OUTCOMES)):
            target = problems.successor[outcome, :, :, None] % per_map
            moves.scatter_add_(2, target, problems.continuing[outcome, :, :, None])
        values[some] = torch.linalg.solve(unit - discount * moves, problems.entering)
    return values.to(probabilities.dtype).view(*probabilities.shape[:-2], tables.states)


class _Problems:
    """Maps under policies: what happens next in each state of map `number[p]` under the policy of `learner[p]`.

    Maps never lead into each other, so that each is a problem of its own.
    """

    continuing: Float[Tensor, "4 p s"]  # probability of each outcome that does not end the episode
    entering: Float[Tensor, "p s"]  # of entering the goal
    successor: Int[Tensor, "4 p s"]  # where each outcome leads, counted through all problems

    def __init__(
        self,
        tables: CrossingTables,
        probabilities: Float[Tensor, "l observations actions"],
        learner: Int[Tensor, " p"],
        number: Int[Tensor, " p"],
    ) -> None:
        fixed = _on_device(tables, probabilities.device)
        policy = probabilities[learner[:, None], fixed.observation_index[number]].movedim(-1, 0)
        self.continuing = torch.cat((policy[:STAY], policy[STAY:].sum(0, keepdim=True)))
        enters = fixed.enters_goal[number]
        self.entering = self.continuing[FORWARD] * enters
        self.continuing[FORWARD] -= self.entering
        offset = torch.arange(len(number), device=number.device) * tables.states_per_map
        self.successor = fixed.successor[:, number] + offset[:, None]


def _backward(problems: _Problems, discount: float, last: int = 0) -> Iterator[tuple[int, Float[Tensor, "p s"]]]:
    """Go through the step indices from the time limit, after which nothing is earned, back to `last`."""
    weights = problems.continuing * discount
    leads_to = problems.successor[:STAY].flatten()  # to stay leads nowhere
    values = torch.zeros_like(problems.entering)
    for step in range(MOST_STEPS - 1, last - 1, -1):
        reward = float(goal_rewards(np.array([step]))[0])
        after = values.view(-1).index_select(0, leads_to).view(STAY, *values.shape)
        values = problems.entering * reward + weights[STAY] * values
        for outcome in (LEFT, RIGHT, FORWARD):
            values.addcmul_(weights[outcome], after[outcome])
        yield step, values


class _Fixed(NamedTuple):
    """Tables by map, for torch."""

    observation_index: Int[Tensor, "maps s"]
    enters_goal: Bool[Tensor, "maps s"]
    successor: Int[Tensor, "4 maps s"]  # within the map


@functools.cache
def _on_device(tables: CrossingTables, device: torch.device) -> _Fixed:
    maps, per_map = len(tables.starts), tables.states_per_map
    successor = (tables.successor % per_map).reshape(maps, per_map, len(OUTCOMES)).transpose(2, 0, 1)
    by_map = (tables.observation_index.reshape(maps, -1), tables.enters_goal.reshape(maps, -1), successor)
    return _Fixed(*(torch.tensor(each, device=device) for each in by_map))


def _check_policy(tables: CrossingTables, probabilities: Tensor, discount: float) -> None:
    expected = (len(tables.observations), ACTIONS)
    if not probabilities.is_floating_point() or probabilities.shape[-2:] != expected:
        raise ValueError(
            f"probabilities must be floating-point numbers for {expected[0]} observations and {expected[1]} actions, "
            f"got {probabilities.dtype} of shape {tuple(probabilities.shape)}"
        )
    error = (probabilities.sum(-1) - 1).abs().max() if probabilities.numel() else 0
    if not error <= 1e-3 or not (probabilities >= 0).all():
        raise ValueError(
            f"probabilities must not be negative and sum to 1, got a sum that is off by {float(error):.3g} "
            f"and a smallest of {float(probabilities.min()):.3g}"
        )
    if not 0 <= discount <= 1:
        raise ValueError(f"discount must be from 0 to 1, got {discount}")


def _check_range(name: str, numbers: Tensor, limit: int, probabilities: Tensor) -> None:
    if numbers.shape[:-1] != probabilities.shape[:-2]:
        raise ValueError(
            f"{name} must have the learner axes of probabilities, {tuple(probabilities.shape[:-2])}, and one more, "
            f"got shape {tuple(numbers.shape)}"
        )
    if numbers.numel() and (int(numbers.min()) < 0 or int(numbers.max()) >= limit):
        raise ValueError(
            f"{name} must be from 0 to {limit - 1}, got numbers from {int(numbers.min())} to {int(numbers.max())}"
        )
