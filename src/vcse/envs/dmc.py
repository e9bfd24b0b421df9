"""DeepMind Control from states: joint positions and velocities in, forces out, rewards from 0 to 1.

All tasks of `dm_control.suite` are here, named `domain_task` as in hopper_stand, and two whose rewards are 0 below a
threshold. Every episode lasts at most 1000 steps of the simulator's control loop, and depends on its seed and on its
actions alone: not on what was played before, nor on the other environments, nor on how many processes simulate them.

The simulator takes most of a step's time and holds Python's lock for much of it, so that threads would not help:
environments can be dealt to worker processes instead, which share one table with this one.
"""

import contextlib
import difflib
import importlib.util
import math
import multiprocessing
import os
import signal
import types
import warnings
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from ctypes import c_char
from dataclasses import dataclass
from functools import cache
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

MOST_STEPS = 1000
MOST_SEED = 2**32 - 1
INSTALL = "pip install 'vcse[dmc]'"
# Tasks that pay nothing where the task that they are made of pays less than this in one control step.
SPARSE = {"walker_walk_sparse": ("walker_walk", 0.7), "cheetah_run_sparse": ("cheetah_run", 0.25)}

# lqr draws the stiffness of its springs when it is built: with one seed for all, it is always the same system.
_BUILDING_SEED = 0
_LEAVE_ALONE = -1  # in place of a seed
_RESET, _STEP, _DONE, _FAILED = b"r", b"s", b"d", b"f"  # what processes say to each other
_PATIENCE_SECONDS = 5.0  # with a worker that was told to end


@dataclass(frozen=True)
class StateSpec:
    """What is known of a task before it runs."""

    observation_size: int
    action_size: int
    most_steps: int  # the time limit of an episode


class StateStep(NamedTuple):
    """What one action of every environment led to. Nothing is reset: that is up to whoever acts."""

    arrived: Float[np.ndarray, "n d"]
    rewards: Float[np.ndarray, " n"]
    terminated: Bool[np.ndarray, " n"]  # the task is over
    truncated: Bool[np.ndarray, " n"]  # the time limit, and nothing else, ended the episode


def registered_tasks() -> tuple[str, ...]:
    """Give the names of all tasks, without their family."""
    if not _installed():
        raise RuntimeError(f"dm_control is not installed: {INSTALL}")
    return tuple(_tasks())


def check_task(name: str) -> None:
    """Refuse a task that does not exist, and name those that are written most like it."""
    if not _installed():
        raise RuntimeError(f"dm_control, which simulates dmc/{name}, is not installed: {INSTALL}")
    known = registered_tasks()
    if name not in known:
        nearest = ", ".join(f"dmc/{each}" for each in difflib.get_close_matches(name, known, n=3, cutoff=0))
        raise ValueError(f"task 'dmc/{name}' does not exist; nearest are {nearest} (there are {len(known)})")


@cache
def state_spec(name: str) -> StateSpec:
    """Look a task up."""
    check_task(name)
    environment = _Environment(name)
    return StateSpec(environment.begin(0).size, environment.action_size, MOST_STEPS)


class DMCStates:
    """A batch of environments, each with a task and episodes of its own, seen as states.

    Args:
        tasks: One name per environment, without family, such as hopper_stand. They may differ, as long as their
            observations and their actions are of the same size.
        processes: That simulate. With 1 it is this one; with more, each is a new one, and this one waits.
    """

    most_steps = MOST_STEPS

    def __init__(self, tasks: Sequence[str], *, processes: int = 1) -> None:
        if len(tasks) < 1:
            raise ValueError("at least one environment is needed, got no tasks")
        if processes < 1:
            raise ValueError(f"processes must be at least 1, got {processes}")
        self.tasks = tuple(tasks)
        self.count = len(tasks)
        first = state_spec(tasks[0])
        for name in tasks:
            spec = state_spec(name)
            if spec != first:
                raise ValueError(
                    f"tasks must agree in size, but dmc/{tasks[0]} has observations of {first.observation_size} and "
                    f"actions of {first.action_size} numbers, and dmc/{name} of {spec.observation_size} and "
                    f"{spec.action_size}"
                )
        self.observation_size = first.observation_size
        self.action_size = first.action_size
        self._needs_reset: Bool[np.ndarray, " n"] = np.ones(self.count, dtype=np.bool_)
        self._has_begun: Bool[np.ndarray, " n"] = np.zeros(self.count, dtype=np.bool_)
        self._is_closed = self._is_stepping = False
        row = _row(self.observation_size, self.action_size)
        self._simulators: _InThisProcess | _InWorkers
        if processes == 1:
            self._simulators = _InThisProcess(self.tasks, np.zeros(self.count, dtype=row))
        else:
            self._simulators = _InWorkers(self.tasks, row, min(processes, self.count))
        self._table = self._simulators.table

    def reset(self, seeds: Sequence[int | None]) -> Float[np.ndarray, "n d"]:
        """Begin an episode with each seed; None leaves an environment as it is, and shows what it showed last."""
        self._check_is_free("reset")
        if len(seeds) != self.count:
            raise ValueError(f"seeds must be one for each of {self.count} environments, got {len(seeds)}")
        for place, seed in enumerate(seeds):
            if seed is None and not self._has_begun[place]:
                raise ValueError(f"environment {place} (dmc/{self.tasks[place]}) has had no episode: it needs a seed")
            if seed is not None and not 0 <= seed <= MOST_SEED:
                raise ValueError(f"seeds must be from 0 to 2**32 - 1, got {seed} for environment {place}")
        self._table["seed"] = [_LEAVE_ALONE if seed is None else seed for seed in seeds]
        begins = self._table["seed"] != _LEAVE_ALONE
        if begins.any():
            self._order(_RESET)
            self._wait()
        self._has_begun |= begins
        self._needs_reset &= ~begins
        shown: Float[np.ndarray, "n d"] = self._table["observation"].copy()
        return shown

    def send(self, actions: Float[np.ndarray, "n a"]) -> None:
        """Begin a step of every environment, with actions from -1 to 1. What is beyond is not cut off here."""
        self._check_is_free("send")
        if actions.shape != (self.count, self.action_size):
            raise ValueError(
                f"actions must be {self.action_size} numbers for each of {self.count} environments, "
                f"got shape {actions.shape}"
            )
        if not np.isfinite(actions).all():
            place = int(np.argmin(np.isfinite(actions).all(-1)))
            raise ValueError(f"actions must be finite, got {actions[place].tolist()} for environment {place}")
        if self._needs_reset.any():
            place = int(np.argmax(self._needs_reset))
            why = "has ended" if self._has_begun[place] else "has not begun"
            raise ValueError(
                f"environment {place} (dmc/{self.tasks[place]}) must be reset before its next action: its episode {why}"
            )
        self._table["action"] = actions
        self._order(_STEP)
        self._is_stepping = True

    def receive(self) -> StateStep:
        """Wait until the step is done."""
        if not self._is_stepping:
            raise RuntimeError("receive() without send()")
        self._wait()
        self._is_stepping = False
        table = self._table
        step = StateStep(
            table["observation"].copy(), table["reward"].copy(), table["terminated"].copy(), table["truncated"].copy()
        )
        self._needs_reset = step.terminated | step.truncated
        return step

    def close(self) -> None:
        """End the processes that simulate, if there are any."""
        self._is_closed, self._is_stepping = True, False
        self._simulators.close()

    def _check_is_free(self, what: str) -> None:
        if self._is_closed:
            raise RuntimeError(f"{what}() after close()")
        if self._is_stepping:
            raise RuntimeError(f"{what}() between send() and receive()")

    def _order(self, what: bytes) -> None:
        try:
            self._simulators.order(what)
        except _WorkerEndedError:
            self.close()
            raise

    def _wait(self) -> None:
        """Wait for what was ordered. Where it fails, some environments have moved on and others have not."""
        try:
            self._simulators.wait()
        except _WorkerEndedError:
            self.close()
            raise
        except RuntimeError:
            self._is_stepping = False
            self._needs_reset[:] = True
            raise


class _WorkerEndedError(RuntimeError):
    """A process that simulates is no more."""


def _row(observation_size: int, action_size: int) -> np.dtype[Any]:
    """Lay out all that goes into one environment and comes out of it."""
    return np.dtype(
        [
            ("action", np.float64, (action_size,)),
            ("seed", np.int64),
            ("observation", np.float32, (observation_size,)),
            ("reward", np.float32),
            ("terminated", np.bool_),
            ("truncated", np.bool_),
        ],
        align=True,
    )


def _failure(place: int, name: str, error: Exception) -> RuntimeError:
    """Say which environment failed: above all, one whose simulation diverges."""
    return RuntimeError(f"environment {place} (dmc/{name}) failed: {type(error).__name__}: {error}")


class _InThisProcess:
    """Some environments, that find their seeds and actions in the rows of a table and write there what comes of it."""

    def __init__(self, names: Sequence[str], table: np.ndarray, places: Sequence[int] | None = None) -> None:
        self.table = table
        self._columns = {column: table[column] for column in table.dtype.names or ()}
        self._environments: dict[int, _Environment] = {}
        for place in places or range(len(names)):
            try:
                self._environments[place] = _Environment(names[place])
            except Exception as error:
                raise _failure(place, names[place], error) from error
        self._ordered = b""

    def order(self, what: bytes) -> None:
        """Remember what is to be done; the work is done when it is waited for."""
        self._ordered = what

    def wait(self) -> None:
        """Do what was ordered."""
        do = self._reset if self._ordered == _RESET else self._step
        for place, environment in self._environments.items():
            try:
                do(place, environment)
            except Exception as error:
                raise _failure(place, environment.name, error) from error

    def close(self) -> None:
        """Nothing is held."""

    def _reset(self, place: int, environment: "_Environment") -> None:
        seed = int(self._columns["seed"][place])
        if seed != _LEAVE_ALONE:
            self._columns["observation"][place] = environment.begin(seed)

    def _step(self, place: int, environment: "_Environment") -> None:
        columns = self._columns
        (
            columns["observation"][place],
            columns["reward"][place],
            columns["terminated"][place],
            columns["truncated"][place],
        ) = environment.step(columns["action"][place])


class _InWorkers:
    """Environments dealt to worker processes. The table is in shared memory, and a step is one word to and fro.

    The memory has no name: it is gone when no process holds it any more, however these came to their end.
    """

    def __init__(self, names: Sequence[str], row: np.dtype[Any], processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        memory: Any = context.RawArray(c_char, len(names) * row.itemsize)
        self.table = np.frombuffer(memory, dtype=row)
        self._workers: list[_Worker] = []
        self.close = weakref.finalize(self, _end, self._workers)
        try:
            for number in range(processes):
                places = range(number, len(names), processes)
                here, there = context.Pipe()
                process = context.Process(target=_work, args=(there, names, places, memory, row), daemon=True)
                self._workers.append(_Worker(process, here, places))
                process.start()
                there.close()  # or its end would not be noticed when the worker has ended
            self._awaited = deque(self._workers)
            self.wait()  # until all are built
        except BaseException:
            self.close()
            raise

    def order(self, what: bytes) -> None:
        """Tell every worker."""
        for worker in self._workers:
            try:
                os.write(worker.connection.fileno(), what)
            except OSError as error:
                raise _WorkerEndedError(worker.obituary()) from error
            self._awaited.append(worker)

    def wait(self) -> None:
        """Wait until every worker has answered, then tell of the first failure."""
        failures = []
        while self._awaited:
            worker = self._awaited[0]
            try:
                answer = _read(worker.connection)
                if answer == _FAILED:
                    failures.append(worker.connection.recv_bytes().decode())
            except (EOFError, OSError) as error:
                raise _WorkerEndedError(worker.obituary()) from error
            self._awaited.popleft()
        if failures:
            raise RuntimeError(failures[0])


@dataclass(frozen=True)
class _Worker:
    """A process, the way to talk to it, and the places of its environments."""

    process: SpawnProcess
    connection: Connection
    places: range

    def obituary(self) -> str:
        """Say that the worker has ended, and how."""
        self.process.join(_PATIENCE_SECONDS)
        return (
            f"the worker process of environments {', '.join(map(str, self.places))} ended unexpectedly, "
            f"with exit code {self.process.exitcode} (a negative one is the signal that killed it)"
        )


def _end(workers: list[_Worker]) -> None:
    """End the workers: they do so by themselves when nobody is left to talk to."""
    for worker in workers:
        worker.connection.close()
    for worker in workers:
        if worker.process.pid is None:  # it could not be started
            continue
        worker.process.join(_PATIENCE_SECONDS)
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
        worker.process.close()
    workers.clear()


def _work(connection: Connection, names: Sequence[str], places: range, memory: Any, row: np.dtype[Any]) -> None:
    """Simulate some environments until the process that wants them closes the connection, or ends in any way."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches all processes; the one that waits decides
    simulators: _InThisProcess | None = None
    with contextlib.suppress(EOFError, OSError):
        while True:
            failure = ""
            try:
                if simulators is None:
                    simulators = _InThisProcess(names, np.frombuffer(memory, dtype=row), places)
                else:
                    simulators.wait()
            except Exception as error:  # whatever it is, it is told
                failure = str(error) or type(error).__name__
            os.write(connection.fileno(), _FAILED if failure else _DONE)
            if failure:
                connection.send_bytes(failure.encode())
            what = _read(connection)
            if simulators is not None:
                simulators.order(what)


def _read(connection: Connection) -> bytes:
    """Read one byte, which takes less than half of the time of a message of the connection's own kind."""
    word = os.read(connection.fileno(), 1)
    if not word:
        raise EOFError
    return word


class _Environment:
    """One environment of the suite, with this library's range of actions, time limit and sparse rewards."""

    def __init__(self, name: str) -> None:
        import mujoco

        self.name = name
        domain, task, self._least_reward = _tasks()[name]
        self._simulator: Any = _suite().load(domain, task, task_kwargs={"random": _BUILDING_SEED})
        physics = self._simulator.physics
        physics.__class__ = _without_pictures(type(physics))
        bounds = self._simulator.action_spec()
        [self.action_size] = bounds.shape
        is_bounded = (bounds.minimum > -mujoco.mjMAXVAL) & (bounds.maximum < mujoco.mjMAXVAL)
        self._middle = np.where(is_bounded, (bounds.minimum + bounds.maximum) / 2, 0)
        self._reach = np.where(is_bounded, (bounds.maximum - bounds.minimum) / 2, 1)
        self._steps = 0

    def begin(self, seed: int) -> Float[np.ndarray, " d"]:
        """Begin the episode of a seed. The simulator resets all else that an episode depends on."""
        self._steps = 0
        self._simulator.task.random.seed(seed)
        return _flat(self._simulator.reset().observation)

    def step(self, action: Float[np.ndarray, " a"]) -> tuple[Float[np.ndarray, " d"], float, bool, bool]:
        """Act, and give the observation, the reward, and whether the episode was terminated or truncated."""
        told = self._simulator.step(self._middle + self._reach * action)
        self._steps += 1
        reward = float(told.reward)
        terminated = bool(told.last() and told.discount == 0)
        truncated = not terminated and (told.last() or self._steps >= MOST_STEPS)  # lqr has no time limit of its own
        return _flat(told.observation), reward if reward >= self._least_reward else 0.0, terminated, truncated


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
    """Give all tasks. Domains and tasks both have names with `_`, so that a name cannot be taken apart."""
    tasks = {f"{domain}_{task}": _Task(domain, task, -math.inf) for domain, task in _suite().ALL_TASKS}
    for name, (dense, least_reward) in SPARSE.items():
        tasks[name] = tasks[dense]._replace(least_reward=least_reward)
    return tasks


@cache
def _suite() -> Any:
    """Import the suite, which takes a second."""
    with warnings.catch_warnings():
        # It looks for a display, to draw on, and warns where there is none. Nothing is drawn here.
        warnings.filterwarnings("ignore", module="glfw")
        from dm_control import suite
    if not hasattr(np, "in1d"):
        # NumPy 2.4 has no in1d any more, which dm_control 1.0.28 uses in this place alone.
        suite.quadruped.np = types.SimpleNamespace(**{**vars(np), "in1d": np.isin})
    return suite


def _without_pictures(physics: type) -> type:
    """Derive physics that cannot draw.

    quadruped_escape asks at each reset whether its terrain must be drawn anew, and asking alone would open a window
    of OpenGL, which fails where there is no display.
    """
    return type(physics.__name__, (physics,), {"contexts": None})


def _installed() -> bool:
    return importlib.util.find_spec("dm_control") is not None
