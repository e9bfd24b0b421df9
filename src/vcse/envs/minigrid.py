"""MiniGrid: small grid worlds with a partial view of 7x7 cells.

Two backends give the same worlds. EnvPool steps thousands of grids in C++ threads and is what training uses. The
`minigrid` package is the reference: it shows the whole map, draws pictures, and serves where EnvPool is not
installed, at about a tenth of the speed. A seed gives other layouts in the one than in the other.
"""

import importlib.util
import re
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from jaxtyping import Bool, Float, Int

from vcse.envs.nearest import nearest
from vcse.envs.protocol import Environments, Observations, Positions, Step
from vcse.extras import install

TASKS = ("LavaGapS7", "Empty-16x16", "DoorKey-6x6", "DoorKey-8x8", "Unlock", "SimpleCrossingS9N1")
ID_PREFIX = "MiniGrid-"  # of the names under which Gymnasium knows the tasks
ACTIONS = 7  # of most tasks: left, right, forward, pick up, drop, toggle, done
FROM_PATTERNS = "WFC-"  # how the tasks begin whose maps the minigrid package makes from pictures
COSTLY_COLLISIONS = "Dynamic-Obstacles-"  # how the tasks begin that give -1 for walking into something
FORWARD = 2
VIEW = (7, 7, 3)
CELL_AHEAD = (3, 5, 0)  # what kind of object is in front of the agent, in its view
LAVA = 9
INSTALL = install("minigrid")
Backend = Literal["auto", "envpool", "minigrid", "table"]
Mission = Literal["constant", "names", "chooses"]

# A mission is a text beside the image, which no agent here is shown. How the tasks begin in which it changes from
# episode to episode: there it names the only thing of its kind, or chooses among several.
NAMING_MISSIONS = ("BlockedUnlockPickup", "KeyCorridor", "LockedRoom", "UnlockPickup")
CHOOSING_MISSIONS = ("Fetch-", "GoToDoor-", "GoToObject-", "PutNear-")

OBJECTS, COLOURS, STATES = 11, 6, 4
EMPTY_CELL = (1, 0, 0)
CHANGING_ACTIONS = (3, 4, 5)  # pick up, drop, toggle
_UNITS = {size: np.eye(size, dtype=np.uint8) for size in (OBJECTS, COLOURS, STATES)}
PLANES = OBJECTS + COLOURS + STATES + 1  # the last says whether the agent carries something
AGENT = 10  # the object that stands for the agent in the code of a whole map


def make(
    task: str, seeds: Sequence[int], *, full: bool = False, backend: Backend = "auto", threads: int = 1
) -> Environments:
    """Make one environment of a task per seed.

    Args:
        task: Such as LavaGapS7; one of `registered_tasks`.
        seeds: One per environment.
        full: Show the whole map as one-hot planes instead of the agent's view.
        backend: auto takes EnvPool where it is installed and can serve.
        threads: That EnvPool may use.
    """
    if len(seeds) < 1:
        raise ValueError("at least one environment is needed, got no seeds")
    check_task(task)
    if full:
        if backend == "envpool":
            raise ValueError("EnvPool does not show the whole map of a MiniGrid: use the backend minigrid")
        return ReferenceMiniGrid(task, seeds, full=True)
    if backend == "auto":
        backend = fastest_backend()
    return EnvPoolMiniGrid(task, seeds, threads=threads) if backend == "envpool" else ReferenceMiniGrid(task, seeds)


@cache
def fastest_backend() -> Literal["envpool", "minigrid"]:
    """Give EnvPool where it is installed; else say, once, what doing without it costs."""
    if _installed("envpool"):
        return "envpool"
    print(
        f"vcse: EnvPool is not installed; the minigrid package steps about ten times slower ({INSTALL})",
        file=sys.stderr,
    )
    return "minigrid"


def check_task(name: str, *, family: str = "minigrid") -> None:
    """Refuse a task that MiniGrid does not have, and name those that are written most like it and the paper's."""
    known = registered_tasks()
    if name in known:
        return
    plain = _plain(name)
    if plain in known:
        raise ValueError(f"task {name!r} is spelt as in Gymnasium: write {family}/{plain}")
    likest, paper = (", ".join(f"{family}/{each}" for each in some) for some in (nearest(plain, known), TASKS))
    raise ValueError(
        f"task '{family}/{name}' does not exist; nearest are {likest} (vcse tasks lists all {len(known)}); the "
        f"paper's are {paper}"
    )


def _plain(name: str) -> str:
    """Take off what Gymnasium writes around the name of a task: MiniGrid-NAME-v0."""
    return name.removeprefix(ID_PREFIX).removesuffix("-v0")


def registered_tasks() -> tuple[str, ...]:
    """Give the names of all tasks of the faster backend that is installed, without MiniGrid- and -v0 around them."""
    if _installed("envpool"):
        import envpool

        ids = envpool.list_all_envs()
    elif _installed("minigrid"):
        import gymnasium
        import minigrid  # noqa: F401 - registers its environments

        ids = list(gymnasium.registry)
    else:
        raise RuntimeError(f"neither EnvPool nor minigrid is installed: {INSTALL}")
    return tuple(sorted(_plain(name) for name in ids if name.startswith(ID_PREFIX)))


def buildable_tasks(*, full: bool) -> tuple[str, ...]:
    """Give those of all tasks that can be stepped here, with the agent's view or the whole map."""
    known = registered_tasks()
    if not full and _installed("envpool"):
        return known
    return tuple(name for name in known if not (name.startswith(FROM_PATTERNS) and lacks_patterns()))


def lacks_patterns() -> bool:
    """Whether the minigrid package came without the pictures that some of its maps are made from."""
    return not _patterns().is_dir()


def _patterns() -> Path:
    package = importlib.util.find_spec("minigrid")
    return Path(package.origin if package and package.origin else "minigrid").parent / "envs" / "wfc" / "patterns"


def rewards_only_the_goal(task: str) -> bool:
    """Whether every reward of a task but the one that ends it well is 0."""
    return not task.startswith(COSTLY_COLLISIONS)


def mission_of(task: str) -> Mission:
    """Say whether the mission of a task is always the same, or names or chooses what the goal of an episode is."""
    if task.startswith(CHOOSING_MISSIONS):
        return "chooses"
    return "names" if task.startswith(NAMING_MISSIONS) else "constant"


class EnvPoolMiniGrid:
    """MiniGrid stepped by EnvPool.

    EnvPool resets a finished environment at the step after its end and ignores that step's action. Such a step is
    no frame: finished environments are stepped once more, alone, before anybody sees them.
    """

    observation_shape = VIEW

    def __init__(self, task: str, seeds: Sequence[int], *, threads: int = 1) -> None:
        if not _installed("envpool"):
            raise RuntimeError(f"EnvPool is not installed: {INSTALL}")
        import envpool

        self.count = len(seeds)
        self._pool: Any = envpool.make(
            _id(task),
            env_type="gymnasium",
            num_envs=self.count,
            seed=[int(seed) for seed in seeds],
            num_threads=min(threads, self.count),
        )
        self.actions = int(self._pool.action_space.n)
        self.most_steps = int(self._pool.spec.config.max_episode_steps)
        self._shown: Observations
        self._sent: Int[np.ndarray, " n"]

    def reset(self) -> tuple[Observations, Positions]:
        """Start every environment's first episode."""
        observations, information = self._pool.reset()
        self._shown = observations["image"]
        return self._shown, information["agent_pos"]

    def send(self, actions: Int[np.ndarray, " n"]) -> None:
        """Begin a step of every environment."""
        self._sent = actions.astype(np.int32)
        self._pool.send(self._sent)

    def receive(self) -> Step:
        """Wait for the step, then reset what has finished."""
        observations, rewards, terminated, truncated, information = self._pool.recv()
        arrived, arrived_positions = observations["image"], information["agent_pos"]
        # At the last step EnvPool calls a goal, a collision with an obstacle, and lava, a time-out.
        into_lava = (self._sent == FORWARD) & (self._shown[:, *CELL_AHEAD] == LAVA)
        terminated = terminated | (rewards != 0) | (truncated & into_lava)
        truncated = truncated & ~terminated
        finished = np.flatnonzero(terminated | truncated).astype(np.int32)
        if finished.size == 0:
            self._shown = arrived
            return Step(arrived, arrived, rewards, terminated, truncated, arrived_positions, arrived_positions)
        self._pool.send(np.zeros(finished.size, dtype=np.int32), finished)
        fresh, _, _, _, fresh_information = self._pool.recv()
        shown, positions = arrived.copy(), arrived_positions.copy()
        shown[finished], positions[finished] = fresh["image"], fresh_information["agent_pos"]
        self._shown = shown
        return Step(shown, arrived, rewards, terminated, truncated, positions, arrived_positions)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.close()


class ReferenceMiniGrid:
    """MiniGrid stepped by the `minigrid` package, one environment after the other."""

    def __init__(self, task: str, seeds: Sequence[int], *, full: bool = False, pictures: bool = False) -> None:
        if not _installed("minigrid"):
            raise RuntimeError(f"the minigrid package is not installed: {INSTALL}")
        if task.startswith(FROM_PATTERNS) and lacks_patterns():
            raise RuntimeError(
                f"{task} cannot be filmed, shown whole or stepped by the minigrid package: this installation of it "
                f"lacks the files in {_patterns()}; EnvPool can step minigrid/{task}"
            )
        import gymnasium
        import minigrid  # noqa: F401 - registers its environments

        self.count = len(seeds)
        self.full = full
        self.seeds = tuple(seeds)
        mode = "rgb_array" if pictures else None
        self.worlds: list[Any] = [gymnasium.make(_id(task), render_mode=mode).unwrapped for _ in seeds]
        world = self.worlds[0]
        self.actions = int(world.action_space.n)
        self.most_steps = int(world.max_steps)
        self.observation_shape = (world.width, world.height, PLANES) if full else VIEW
        self._sent: Int[np.ndarray, " n"] | None = None
        self._maps = [_MapPlanes(each) for each in self.worlds] if full else []

    def reset(self) -> tuple[Observations, Positions]:
        """Start every environment's first episode."""
        for planes in self._maps:
            planes.forget()
        shown = [world.reset(seed=int(seed))[0] for world, seed in zip(self.worlds, self.seeds, strict=True)]
        return self._observations(shown), self.positions()

    def positions(self) -> Positions:
        """Give where the agents stand."""
        return np.array([world.agent_pos for world in self.worlds], dtype=np.int32)

    def pictures(self) -> list[np.ndarray]:
        """Draw every environment."""
        return [world.render() for world in self.worlds]

    def send(self, actions: Int[np.ndarray, " n"]) -> None:
        """Remember the actions; the work is done when the step is received."""
        self._sent = actions

    def receive(self) -> Step:
        """Step every environment and reset what has finished."""
        if self._sent is None:
            raise RuntimeError("receive() without send()")
        for planes, action in zip(self._maps, self._sent, strict=False):
            planes.expect(int(action))
        taken = [world.step(int(action)) for world, action in zip(self.worlds, self._sent, strict=True)]
        self._sent = None
        rewards: Float[np.ndarray, " n"] = np.array([each[1] for each in taken], dtype=np.float32)
        terminated: Bool[np.ndarray, " n"] = np.array([each[2] for each in taken])
        truncated: Bool[np.ndarray, " n"] = np.array([each[3] for each in taken]) & ~terminated
        arrived, arrived_positions = self._observations([each[0] for each in taken]), self.positions()
        finished = np.flatnonzero(terminated | truncated)
        if finished.size == 0:
            return Step(arrived, arrived, rewards, terminated, truncated, arrived_positions, arrived_positions)
        fresh = [self.worlds[index].reset()[0] for index in finished]
        for index in finished if self.full else ():
            self._maps[index].forget()
        shown = arrived.copy()
        shown[finished] = self._observations(fresh, finished)
        return Step(shown, arrived, rewards, terminated, truncated, self.positions(), arrived_positions)

    def close(self) -> None:
        """Close every environment."""
        for world in self.worlds:
            world.close()

    def _observations(self, shown: list[Any], which: Sequence[int] | np.ndarray | None = None) -> Observations:
        if not self.full:
            return np.stack([each["image"] for each in shown])
        maps = self._maps if which is None else [self._maps[index] for index in which]
        return np.stack([each() for each in maps])


class _MapPlanes:
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
        if self.empty is None:
            self.empty = _one_hot(self.world.grid.encode())
        elif self.touched is not None:
            there = self.world.grid.get(*self.touched)
            self.empty[self.touched] = _one_hot(np.array(EMPTY_CELL if there is None else there.encode()))
        self.touched = None
        x, y = self.world.agent_pos
        planes = np.concatenate(
            (self.empty, np.full((*self.empty.shape[:2], 1), self.world.carrying is not None, dtype=np.uint8)), -1
        )
        planes[x, y, :-1] = _one_hot(np.array([AGENT, 0, self.world.agent_dir]))
        return planes


def map_planes(world: Any) -> np.ndarray:
    """Give the whole map as one-hot planes: objects, colours, states (the agent's is its direction), and carrying."""
    cells = world.grid.encode()
    x, y = world.agent_pos
    cells[x, y] = (AGENT, 0, world.agent_dir)
    carries = np.full((*cells.shape[:2], 1), world.carrying is not None, dtype=np.uint8)
    return np.concatenate([_one_hot(cells), carries], -1)


def _one_hot(cells: np.ndarray) -> np.ndarray:
    sizes = (OBJECTS, COLOURS, STATES)
    return np.concatenate([_UNITS[size][cells[..., channel]] for channel, size in enumerate(sizes)], -1)


def _id(task: str) -> str:
    return f"MiniGrid-{task}" if re.search(r"-v\d+$", task) else f"MiniGrid-{task}-v0"


def _installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None
