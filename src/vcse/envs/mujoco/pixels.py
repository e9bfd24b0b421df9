"""Environments that show pictures: DeepMind Control as dmc-pixels/NAME, and Meta-World as metaworld/NAME.

An action is played for two frames of the simulator, whose rewards are summed, and the picture is drawn after that.
Pictures are drawn in worker processes alone, each of which chooses a library that draws before anything is imported
that would choose another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from jaxtyping import Bool, Float, UInt8

from vcse.envs.mujoco import dmc, metaworld
from vcse.envs.mujoco.rendering import PictureTaker, Rendering, choose_gl_backend, gl_backend_for
from vcse.envs.processes import Batch

FAMILIES = ("dmc-pixels", "metaworld")
ACTION_REPEAT = 2
SIZE = 84

# Camera 0 of a quadruped looks from afar, and camera 2 from its side.
_CAMERA_OF_DOMAIN = {"quadruped": 2}


@dataclass(frozen=True)
class PixelSpec:
    """What is known of a task before it runs."""

    action_size: int
    most_steps: int  # actions of an episode
    has_success: bool


class PixelStep(NamedTuple):
    """What one action of every environment led to. Nothing is reset: that is up to whoever acts."""

    arrived: UInt8[np.ndarray, "n 3 84 84"]
    rewards: Float[np.ndarray, " n"]  # summed over the frames of the action
    terminated: Bool[np.ndarray, " n"]  # the task is over
    truncated: Bool[np.ndarray, " n"]  # the time limit, and nothing else, ended the episode
    success: Bool[np.ndarray, " n"]  # the goal was reached in one of the frames; False where the family has no goals

    @property
    def ended(self) -> Bool[np.ndarray, " n"]:
        """Whether an episode ended here, for whatever reason."""
        ended: Bool[np.ndarray, " n"] = np.logical_or(self.terminated, self.truncated)
        return ended


def check_task(family: str, name: str) -> None:
    """Refuse a task that does not exist, and name those that are written most like it."""
    if family == "dmc-pixels":
        dmc.check_task(name, family=family)
    elif family == "metaworld":
        metaworld.check_task(name)
    else:
        raise ValueError(f"family must be {' or '.join(FAMILIES)}, got {family!r}")


@cache
def pixel_spec(task: str) -> PixelSpec:
    """Look a task up, such as dmc-pixels/hopper_stand or metaworld/door-open. Nothing is drawn."""
    family, _, name = task.partition("/")
    check_task(family, name)
    if family == "metaworld":
        return PixelSpec(metaworld.ACTION_SIZE, metaworld.MOST_FRAMES // ACTION_REPEAT, has_success=True)
    states = dmc.state_spec(name)
    return PixelSpec(states.action_size, states.most_steps // ACTION_REPEAT, has_success=False)


def camera_of(name: str) -> int:
    """Give the camera through which a task of DeepMind Control is seen."""
    return _CAMERA_OF_DOMAIN.get(name.partition("_")[0], 0)


class Pixels(Batch):
    """A batch of environments, each with a task and episodes of its own, seen as pictures.

    Args:
        tasks: One name per environment, such as dmc-pixels/hopper_stand. They may differ, as long as they are of one
            family and their actions are of the same size.
        rendering: Quality of pictures: faithful is what everyone else draws; light is hardly different, and much
            faster on a CPU; fast has no shadows, no reflections and no smooth edges.
        device: That draws: cpu, or a GPU as in cuda or cuda:1.
        processes: That simulate and draw. Each is a new one, also where there is only one.
        goal_marker: Draw the dot that shows the goal of metaworld's tasks.
        spins: Wait for each other without sleeping, for a few hundredths of a second, which saves time and takes a core
            for each process.
    """

    frame_shape = (3, SIZE, SIZE)
    action_repeat = ACTION_REPEAT

    def __init__(
        self,
        tasks: Sequence[str],
        *,
        rendering: Rendering = "faithful",
        device: str = "cpu",
        processes: int = 1,
        goal_marker: bool = True,
        spins: bool = False,
    ) -> None:
        if len(tasks) < 1:
            raise ValueError("at least one environment is needed, got no tasks")
        if processes < 1:
            raise ValueError(f"processes must be at least 1, got {processes}")
        if rendering not in get_args(Rendering):
            raise ValueError(f"rendering must be one of {', '.join(get_args(Rendering))}, got {rendering!r}")
        family, spec = tasks[0].partition("/")[0], pixel_spec(tasks[0])
        for task in tasks:
            if task.partition("/")[0] != family:
                raise ValueError(f"tasks must be of one family, got {tasks[0]} and {task}")
            if pixel_spec(task).action_size != spec.action_size:
                raise ValueError(
                    f"tasks must agree in size, but {tasks[0]} has actions of {spec.action_size} numbers, and {task} "
                    f"of {pixel_spec(task).action_size}"
                )
        kind, index = _device(device)
        gl_backend_for(kind)  # what cannot draw is refused here, in words of its own, before a process meets it
        self.most_steps, self.has_success = spec.most_steps, spec.has_success
        super().__init__(
            tasks,
            partial(build, rendering=rendering, device=kind, index=index, goal_marker=goal_marker),
            action_size=spec.action_size,
            outcome=[
                ("picture", np.uint8, self.frame_shape),
                ("reward", np.float32),
                ("terminated", np.bool_),
                ("truncated", np.bool_),
                ("success", np.bool_),
            ],
            constants=[("gl_backend", "S8")],
            processes=processes,
            always_workers=True,
            spins=spins,
        )
        self.gl_backend: str = self._table["gl_backend"][0].decode()

    def reset(self, seeds: Sequence[int | None]) -> UInt8[np.ndarray, "n 3 84 84"]:
        """Begin an episode with each seed; None leaves an environment as it is, and shows what it showed last."""
        return self._begin(seeds)

    def receive(self) -> PixelStep:
        """Wait until the step is done."""
        return PixelStep(*self._arrive())


class _Frame(NamedTuple):
    """What one frame of a simulation led to."""

    reward: float
    terminated: bool
    truncated: bool
    success: bool


class _Suite:
    """A task of DeepMind Control, frame by frame."""

    def __init__(self, name: str) -> None:
        self._simulation = dmc.simulate(name, observes=False)
        self.model, self.data = self._simulation.model, self._simulation.data
        self.camera: int | str = camera_of(name)
        self.is_upside_down = False

    def begin(self, seed: int) -> None:
        self._simulation.begin(seed)

    def step(self, action: Float[np.ndarray, " a"]) -> _Frame:
        _, reward, terminated, truncated = self._simulation.step(action)
        return _Frame(reward, terminated, truncated, success=False)


class _Arm:
    """A task of Meta-World, frame by frame."""

    def __init__(self, name: str, *, goal_marker: bool) -> None:
        self._simulation = metaworld.Arm(name, goal_marker=goal_marker)
        self.model, self.data = self._simulation.model, self._simulation.data
        self.camera: int | str = metaworld.CAMERA
        self.is_upside_down = True

    def begin(self, seed: int) -> None:
        self._simulation.begin(seed)

    def step(self, action: Float[np.ndarray, " a"]) -> _Frame:
        reward, truncated, success = self._simulation.step(action)
        return _Frame(reward, False, truncated, success)


class _Environment:
    """One simulation, and the camera that is on it."""

    def __init__(self, simulation: _Suite | _Arm, rendering: Rendering, gl_backend: str) -> None:
        self.constants: Mapping[str, Any] = {"gl_backend": gl_backend.encode()}
        self.simulation = simulation
        self._camera = PictureTaker(
            simulation.model,
            simulation.camera,
            (SIZE, SIZE),
            rendering,
            is_upside_down=simulation.is_upside_down,
        )

    def begin(self, seed: int) -> UInt8[np.ndarray, "3 84 84"]:
        """Begin the episode of a seed."""
        self.simulation.begin(seed)
        self._camera.renew_terrain()
        return self._camera.draw(self.simulation.data)

    def step(self, action: Float[np.ndarray, " a"]) -> tuple[UInt8[np.ndarray, "3 84 84"], float, bool, bool, bool]:
        """Play an action until its frames or the episode are over."""
        rewards, success = 0.0, False
        for _ in range(ACTION_REPEAT):
            frame = self.simulation.step(action)
            rewards += frame.reward
            success |= frame.success
            if frame.terminated or frame.truncated:
                break
        return self._camera.draw(self.simulation.data), rewards, frame.terminated, frame.truncated, success

    def close(self) -> None:
        """Close the camera."""
        self._camera.close()


def build(
    task: str,
    *,
    rendering: Rendering,
    device: Literal["cpu", "cuda"] = "cpu",
    index: int = 0,
    goal_marker: bool = True,
) -> _Environment:
    """Make an environment in a worker process."""
    gl_backend = choose_gl_backend(device, index)
    family, _, name = task.partition("/")
    simulation = _Arm(name, goal_marker=goal_marker) if family == "metaworld" else _Suite(name)
    return _Environment(simulation, rendering, gl_backend)


def _device(device: str) -> tuple[Literal["cpu", "cuda"], int]:
    """Read cpu, cuda or cuda:1."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise ValueError(f"device must be cpu, cuda, or one of several GPUs as in cuda:1, got {device!r}")
    return ("cuda" if kind == "cuda" else "cpu"), int(index or 0)
