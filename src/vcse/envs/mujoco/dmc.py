"""DeepMind Control from states: joint positions and velocities in, forces out, rewards from 0 to 1.

All tasks of `dm_control.suite` are here, named `domain_task` as in hopper_stand, and two whose rewards are 0 below a
threshold. Every episode lasts at most 1000 steps of the simulator's control loop, and depends on its seed and on its
actions alone: not on what was played before, nor on the other environments, nor on how many processes simulate them.

The simulator takes most of a step's time and holds Python's lock for much of it, so that threads would not help:
environments can be dealt to worker processes instead, which share one table with this one.
"""

import importlib.util
import math
import os
import types
import warnings
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from vcse.envs.interface import TaskSpec
from vcse.envs.mujoco.rendering import named_backend
from vcse.envs.processes import Batch
from vcse.extras import install
from vcse.nearest import check_known

MOST_STEPS = 1000
INSTALL = install("dmc")
# Tasks that pay nothing where the task that they are made of pays less than this in one control step.
SPARSE = {"walker_walk_sparse": ("walker_walk", 0.7), "cheetah_run_sparse": ("cheetah_run", 0.25)}

# Camera 0 of a quadruped looks from afar, and camera 2 from its side.
_CAMERA_OF_DOMAIN = {"quadruped": 2}

# lqr samples the stiffness of its springs when it is built: with one seed for all, it is always the same system.
_BUILDING_SEED = 0


def registered_tasks() -> tuple[str, ...]:
    """Return the names of all tasks, without their family."""
    if not _installed():
        raise RuntimeError(f"dm_control is not installed: {INSTALL}")
    return tuple(_tasks())


def check_task(name: str, *, family: str = "dmc") -> None:
    """Refuse a task that does not exist, and name those that are written most like it."""
    if not _installed():
        raise RuntimeError(f"dm_control, which simulates {family}/{name}, is not installed: {INSTALL}")
    check_known(family, name, registered_tasks())


@cache
def task_spec(name: str) -> TaskSpec:
    """Return the spec of a task."""
    check_task(name)
    environment = simulate(name)
    shape = environment.begin(0).shape
    return TaskSpec(MOST_STEPS, observation_shape=shape, action_size=environment.action_size)


def simulate(task: str, *, observes: bool = True) -> "_Environment":
    """Build the simulation of a task, whose name may have a family before it.

    Args:
        task: The name.
        observes: Return the state at each step; agents that learn from images do without, which saves time.
    """
    return _Environment(task.rpartition("/")[2], observes=observes)


class DMCStates(Batch):
    """A batch of environments, each with a task and episodes of its own, seen as states.

    Args:
        tasks: One name per environment, without family, such as hopper_stand. They may differ, as long as their
            observations and their actions are of the same size.
        processes: That simulate. With 1 it is this one; with more, each is a new one, and this one waits.
    """

    most_steps = MOST_STEPS

    def __init__(self, tasks: Sequence[str], *, processes: int = 1) -> None:
        first = task_spec(tasks[0])
        [size] = first.observation_shape
        for name in tasks:
            spec = task_spec(name)
            if spec != first:
                raise ValueError(
                    f"tasks must agree in size, but dmc/{tasks[0]} has observations of {size} and "
                    f"actions of {first.action_size} numbers, and dmc/{name} of {spec.observation_shape[0]} and "
                    f"{spec.action_size}"
                )
        self.observation_size = size
        super().__init__(
            [f"dmc/{name}" for name in tasks],
            simulate,
            action_size=first.action_size,
            seen=("observation", np.float32, (size,)),
            processes=processes,
        )


class _Environment:
    """One environment of the suite, with this library's range of actions, time limit and sparse rewards."""

    is_upside_down = False

    def __init__(self, name: str, *, observes: bool = True) -> None:
        import mujoco

        domain, task, self._least_reward = _tasks()[name]
        self.camera = _CAMERA_OF_DOMAIN.get(domain, 0)
        self._simulator: Any = _suite().load(domain, task, task_kwargs={"random": _BUILDING_SEED})
        physics = self._simulator.physics
        physics.__class__ = _without_images(type(physics))
        if not observes:
            self._simulator.task.get_observation = _nothing
        bounds = self._simulator.action_spec()
        [self.action_size] = bounds.shape
        is_bounded = (bounds.minimum > -mujoco.mjMAXVAL) & (bounds.maximum < mujoco.mjMAXVAL)
        self._middle = np.where(is_bounded, (bounds.minimum + bounds.maximum) / 2, 0)
        self._reach = np.where(is_bounded, (bounds.maximum - bounds.minimum) / 2, 1)
        self._steps = 0

    @property
    def model(self) -> Any:
        """MuJoCo's own model, for rendering."""
        return self._simulator.physics.model.ptr

    @property
    def data(self) -> Any:
        """MuJoCo's own data, for rendering."""
        return self._simulator.physics.data.ptr

    def begin(self, seed: int) -> Float[np.ndarray, " d"]:
        """Begin the episode of a seed. The simulator resets all else that an episode depends on."""
        self._steps = 0
        self._simulator.task.random.seed(seed)
        return _flat(self._simulator.reset().observation)

    def step(self, action: Float[np.ndarray, " a"]) -> tuple[Float[np.ndarray, " d"], float, bool, bool, bool]:
        """Act for one frame; there is no goal of which the suite would say that it is reached."""
        step = self._simulator.step(self._middle + self._reach * action)
        self._steps += 1
        reward = float(step.reward)
        terminated = bool(step.last() and step.discount == 0)
        truncated = not terminated and (step.last() or self._steps >= MOST_STEPS)  # lqr has no time limit of its own
        sparse_reward = reward if reward >= self._least_reward else 0.0
        return _flat(step.observation), sparse_reward, terminated, truncated, False

    def close(self) -> None:
        """Nothing is held."""


def _nothing(physics: Any) -> dict[str, np.ndarray]:
    """Observe nothing."""
    del physics
    return {"nothing": np.zeros(0)}


def _flat(observation: Mapping[str, np.ndarray]) -> Float[np.ndarray, " d"]:
    parts = [np.ravel(part) for part in observation.values()]
    flat: Float[np.ndarray, " d"] = np.concatenate(parts, dtype=np.float32, casting="same_kind")
    return flat


class _Task(NamedTuple):
    """A task as the suite knows it, and below which reward of a step it pays nothing."""

    domain: str
    task: str
    least_reward: float


@cache
def _tasks() -> dict[str, _Task]:
    """Return all tasks. Domains and tasks both have names with `_`, so that a name cannot be taken apart."""
    tasks = {f"{domain}_{task}": _Task(domain, task, -math.inf) for domain, task in _suite().ALL_TASKS}
    for name, (dense, least_reward) in SPARSE.items():
        tasks[name] = tasks[dense]._replace(least_reward=least_reward)
    return tasks


@cache
def _suite() -> Any:
    """Import the suite, which takes a second."""
    backend = named_backend()  # which refuses, in our words, what the suite would not import with
    if backend is not None:
        os.environ["MUJOCO_GL"] = backend  # as the suite writes it
    with warnings.catch_warnings():
        # It looks for a display to render on, and warns where there is none. Nothing is rendered here.
        warnings.filterwarnings("ignore", module="glfw")
        from dm_control import suite
    if not hasattr(np, "in1d"):
        # NumPy 2.4 has no in1d any more, which dm_control 1.0.28 uses in this place alone.
        suite.quadruped.np = types.SimpleNamespace(**{**vars(np), "in1d": np.isin})
    return suite


def _without_images(physics: type) -> type:
    """Derive physics that cannot render.

    quadruped_escape asks at each reset whether its terrain must be rendered anew, and asking alone would open a window
    of OpenGL, which fails where there is no display.
    """
    return type(physics.__name__, (physics,), {"contexts": None})


def _installed() -> bool:
    return importlib.util.find_spec("dm_control") is not None
