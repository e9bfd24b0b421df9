"""A batch of simulated environments, played in this process or dealt to worker processes.

A simulator takes most of a step's time and holds Python's lock for much of it, so that threads would not help. Worker
processes share one table with this one, which has a row per environment: its seed, its action, and what came of them.
"""

import contextlib
import multiprocessing
import os
import select
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from ctypes import c_char
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from multiprocessing.util import Finalize
from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float

from vcse.envs.interface import Step

MOST_SEED = 2**32 - 1

_LEAVE_ALONE = -1  # in place of a seed
# Columns of the outcome of an action, other than the observation.
_ENDS = (("reward", np.float32), ("terminated", np.bool_), ("truncated", np.bool_), ("success", np.int8))
_RESET, _STEP, _DONE, _FAILED = b"r", b"s", b"d", b"f"  # what processes say to each other
_PATIENCE_SECONDS = 5.0  # with a worker that was asked to end
_SPIN_SECONDS = 0.05  # after which those sleep too that wait without sleeping


@runtime_checkable
class Environment(Protocol):
    """One environment, as a batch plays it."""

    def begin(self, seed: int) -> Any:
        """Begin an episode, and return what is seen."""

    def step(self, action: Float[np.ndarray, " a"]) -> tuple[Any, float, bool, bool, int]:
        """Act, and give what is seen, the reward, and whether that was the end, the time limit, and the goal.

        Of the goal, -1 means that it is not reported.
        """

    def close(self) -> None:
        """Release what is held."""


class Batch:
    """Environments that are played together. What they show is up to those who derive from this.

    Args:
        names: One per environment, with family, such as dmc/hopper_stand.
        build: Makes an environment of a name. Worker processes import it, so that it must not be a local function.
        action_size: Of every environment.
        seen: The column of what is seen, as NumPy writes a field of a row.
        has_success: Tasks say themselves whether the goal is reached; None: that shows as they are played.
        processes: That simulate. With 1 it is this one, unless always_workers; with more, each is a new one.
        always_workers: Simulate in a new process also where it is the only one.
        spins: Wait for each other without sleeping, for a while. A process that sleeps wakes up late, on a core that
            has slowed down and has other things in its cache: on a virtual machine a step took 1.31 ms, not 0.78.
    """

    def __init__(
        self,
        names: Sequence[str],
        build: Callable[[str], Environment],
        *,
        action_size: int,
        seen: tuple[Any, ...],
        has_success: bool | None = False,
        processes: int,
        always_workers: bool = False,
        spins: bool = False,
    ) -> None:
        if processes < 1:
            raise ValueError(f"processes must be at least 1, got {processes}")
        self.count = len(names)
        self.action_size, self.has_success = action_size, has_success
        self._names = tuple(names)
        self._outcome = tuple(field[0] for field in (seen, *_ENDS))
        self._needs_reset: Bool[np.ndarray, " n"] = np.ones(self.count, dtype=np.bool_)
        self._has_begun: Bool[np.ndarray, " n"] = np.zeros(self.count, dtype=np.bool_)
        self._is_closed = self._is_stepping = False
        fields = [("action", np.float64, (action_size,)), ("seed", np.int64), seen, *_ENDS]
        plan = _Plan(self._names, build, self._outcome, np.dtype(fields, align=True))
        self._simulators: _InThisProcess | _InWorkers
        if processes == 1 and not always_workers:
            self._simulators = _InThisProcess(plan, np.zeros(self.count, dtype=plan.row), range(self.count))
        else:
            self._simulators = _InWorkers(plan, min(processes, self.count), spins=spins)
        self._table = self._simulators.table

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
                f"environment {place} ({self._names[place]}) must be reset before its next action: its episode {why}"
            )
        self._table["action"] = actions
        self._order(_STEP)
        self._is_stepping = True

    def close(self) -> None:
        """End the processes that simulate, if there are any."""
        self._is_closed, self._is_stepping = True, False
        self._simulators.close()

    def reset(self, seeds: Sequence[int | None] | None = None) -> np.ndarray:
        """Begin an episode with each seed; None leaves an environment as it is, and shows what it showed last."""
        self._check_is_free("reset")
        if seeds is None:
            raise ValueError(f"seeds must be one for each of {self.count} environments, got none")
        if len(seeds) != self.count:
            raise ValueError(f"seeds must be one for each of {self.count} environments, got {len(seeds)}")
        for place, seed in enumerate(seeds):
            if seed is None and not self._has_begun[place]:
                raise ValueError(f"environment {place} ({self._names[place]}) has had no episode: it needs a seed")
            if seed is not None and not 0 <= seed <= MOST_SEED:
                raise ValueError(f"seeds must be from 0 to 2**32 - 1, got {seed} for environment {place}")
        self._table["seed"] = [_LEAVE_ALONE if seed is None else seed for seed in seeds]
        begins = self._table["seed"] != _LEAVE_ALONE
        if begins.any():
            self._order(_RESET)
            self._wait()
        self._has_begun |= begins
        self._needs_reset &= ~begins
        shown: np.ndarray = self._table[self._outcome[0]].copy()
        return shown

    def receive(self) -> Step:
        """Wait until the step is done."""
        if not self._is_stepping:
            raise RuntimeError("receive() without send()")
        self._wait()
        self._is_stepping = False
        self._needs_reset = self._table["terminated"] | self._table["truncated"]
        seen, rewards, terminated, truncated, success = (self._table[column].copy() for column in self._outcome)
        if self.has_success is False:
            return Step(seen, seen, rewards, terminated, truncated)
        reported = success >= 0 if self.has_success is None else None
        return Step(seen, seen, rewards, terminated, truncated, success=success > 0, success_reported=reported)

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


@dataclass(frozen=True)
class _Plan:
    """All that a process must know to simulate some of the environments."""

    names: tuple[str, ...]
    build: Callable[[str], Environment]
    outcome: tuple[str, ...]
    row: np.dtype[Any]

    def failure(self, place: int, error: Exception) -> RuntimeError:
        """Return an error that names the environment that failed: above all, one whose simulation diverges."""
        return RuntimeError(f"environment {place} ({self.names[place]}) failed: {type(error).__name__}: {error}")


class _InThisProcess:
    """Some environments, that find their seeds and actions in the rows of a table and write there what comes of it."""

    def __init__(self, plan: _Plan, table: np.ndarray, places: range) -> None:
        self.table = table
        self._plan = plan
        self._columns = {column: table[column] for column in plan.row.names or ()}
        self._environments: dict[int, Environment] = {}
        with contextlib.ExitStack() as built:  # those before one that fails are closed
            for place in places:
                try:
                    environment = plan.build(plan.names[place])
                except Exception as error:
                    raise plan.failure(place, error) from error
                self._environments[place] = built.enter_context(contextlib.closing(environment))
            self.close = built.pop_all().close  # of every environment
        self._ordered = b""

    def order(self, what: bytes) -> None:
        """Remember what is to be done; the work is done when it is waited for."""
        self._ordered = what

    def wait(self) -> None:
        """Execute the commands."""
        do = self._reset if self._ordered == _RESET else self._step
        for place, environment in self._environments.items():
            try:
                do(place, environment)
            except Exception as error:
                raise self._plan.failure(place, error) from error

    def _reset(self, place: int, environment: Environment) -> None:
        seed = int(self._columns["seed"][place])
        if seed != _LEAVE_ALONE:
            self._columns[self._plan.outcome[0]][place] = environment.begin(seed)

    def _step(self, place: int, environment: Environment) -> None:
        outcome = environment.step(self._columns["action"][place])
        for column, value in zip(self._plan.outcome, outcome, strict=True):
            self._columns[column][place] = value


class _InWorkers:
    """Environments dealt to worker processes. The table is in shared memory, and a step is one word to and fro.

    The memory has no name: it is gone when no process holds it any more, however these came to their end.
    """

    def __init__(self, plan: _Plan, processes: int, *, spins: bool) -> None:
        self._spins = spins
        context = multiprocessing.get_context("spawn")
        memory: Any = context.RawArray(c_char, len(plan.names) * plan.row.itemsize)
        self.table = np.frombuffer(memory, dtype=plan.row)
        self._workers: list[_Worker] = []
        # Of multiprocessing's own kind, which runs before it waits for its processes when this one ends.
        self.close = Finalize(self, _end, args=(self._workers,), exitpriority=10)
        try:
            for number in range(processes):
                places = range(number, len(plan.names), processes)
                here, there = context.Pipe()
                process = context.Process(target=_work, args=(there, plan, places, memory, spins), daemon=True)
                self._workers.append(_Worker(process, here, places))
                with _signals_held_back():
                    process.start()
                there.close()  # or its end would not be noticed when the worker has ended
            self._awaited = deque(self._workers)
            self.wait()  # until all are built
        except BaseException:
            self.close()
            raise

    def order(self, what: bytes) -> None:
        """Send a command to every worker."""
        for worker in self._workers:
            try:
                os.write(worker.connection.fileno(), what)
            except OSError as error:
                raise _WorkerEndedError(worker.obituary()) from error
            self._awaited.append(worker)

    def wait(self) -> None:
        """Wait until every worker has answered, then raise the first failure."""
        failures = []
        while self._awaited:
            worker = self._awaited[0]
            try:
                answer = _read(worker.connection, spins=self._spins)
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
        """Return the error of a worker that has ended."""
        self.process.join(_PATIENCE_SECONDS)
        return (
            f"the worker process of environments {', '.join(map(str, self.places))} ended unexpectedly, "
            f"with exit code {self.process.exitcode} (a negative one is the signal that killed it)"
        )


def _end(workers: list[_Worker]) -> None:
    """End the workers: they do so by themselves when the connection is closed."""
    for worker in workers:
        worker.connection.close()
    until = time.monotonic() + _PATIENCE_SECONDS  # with all of them
    for worker in workers:
        if worker.process.pid is None:  # it could not be started
            continue
        worker.process.join(max(0.0, until - time.monotonic()))
        if worker.process.exitcode is None:
            worker.process.kill()
            worker.process.join()
        worker.process.close()
    workers.clear()


@contextlib.contextmanager
def _signals_held_back() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back, here and in a process that is started meanwhile, which cannot handle them yet."""
    resource_tracker.ensure_running()  # it would be started with the process, and not hold them back
    before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _work(connection: Connection, plan: _Plan, places: range, memory: Any, spins: bool) -> None:
    """Simulate some environments until the process that uses them closes the connection, or ends in any way."""
    # Ctrl-C, and signals to a whole group, reach all processes: the main one decides, and closes the connection.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    simulators: _InThisProcess | None = None
    with contextlib.suppress(EOFError, OSError):
        while True:
            failure = ""
            try:
                if simulators is None:
                    simulators = _InThisProcess(plan, np.frombuffer(memory, dtype=plan.row), places)
                else:
                    simulators.wait()
            except Exception as error:  # whatever it is, it is reported
                failure = str(error) or type(error).__name__
            os.write(connection.fileno(), _FAILED if failure else _DONE)
            if failure:
                connection.send_bytes(failure.encode())
            what = _read(connection, spins=spins)
            if simulators is not None:
                simulators.order(what)
    if simulators is not None:
        simulators.close()


def _read(connection: Connection, *, spins: bool) -> bytes:
    """Read one byte, which takes less than half of the time of a message of the connection's own kind."""
    if spins:
        asking, latest = select.poll(), time.monotonic() + _SPIN_SECONDS
        asking.register(connection.fileno(), select.POLLIN)
        while not asking.poll(0) and time.monotonic() < latest:
            os.sched_yield()  # to processes without a core
    word = os.read(connection.fileno(), 1)
    if not word:
        raise EOFError
    return word
