"""Environments that show images: DeepMind Control as dmc-pixels/NAME, and Meta-World as metaworld/NAME.

An action is played for some frames of the simulator, whose rewards are summed, and the image is rendered after that.
Images are rendered in worker processes alone, each of which chooses a rendering library before anything is imported
that would choose another.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, UInt8

from vcse.envs.interface import Rendering, TaskSpec
from vcse.envs.mujoco import dmc, metaworld
from vcse.envs.mujoco.rendering import Renderer, choose_gl_backend, gl_backend_for
from vcse.envs.processes import Batch

FAMILIES = ("dmc-pixels", "metaworld")


def task_spec(family: str, name: str) -> TaskSpec:
    """Return the spec of a task. Nothing is rendered."""
    if family == "metaworld":
        return metaworld.task_spec(name)
    dmc.check_task(name, family=family)
    return replace(dmc.task_spec(name), observation_shape=())


def _spec(task: str) -> TaskSpec:
    family, _, name = task.partition("/")
    if family not in FAMILIES:
        raise ValueError(f"family must be {' or '.join(FAMILIES)}, got {family!r}")
    return task_spec(family, name)


class Pixels(Batch):
    """A batch of environments, each with a task and episodes of its own, seen as images.

    Args:
        tasks: One name per environment, such as dmc-pixels/hopper_stand. They may differ, as long as they are of one
            family and their actions are of the same size.
        rendering: Quality of images: faithful is what other libraries render; light is almost the same, and much
            faster on a CPU; fast has no shadows, no reflections and no smooth edges.
        device: That renders: cpu, or a GPU as in cuda or cuda:1.
        processes: That simulate and render. Each is a new one, also where there is only one.
        goal_marker: Render the dot that shows the goal of metaworld's tasks.
        spins: Wait for each other without sleeping, for a few hundredths of a second, which saves time and takes a core
            for each process.
        image_size: Pixels of each side of an image.
        action_repeat: Frames for which an action is played.
    """

    def __init__(
        self,
        tasks: Sequence[str],
        *,
        rendering: Rendering = "faithful",
        device: str = "cpu",
        processes: int = 1,
        goal_marker: bool = True,
        spins: bool = False,
        image_size: int = 84,
        action_repeat: int = 2,
    ) -> None:
        if len(tasks) < 1:
            raise ValueError("at least one environment is needed, got no tasks")
        for argument, number in (("image_size", image_size), ("action_repeat", action_repeat)):
            if number < 1:
                raise ValueError(f"{argument} must be at least 1, got {number}")
        if rendering not in get_args(Rendering):
            raise ValueError(f"rendering must be one of {', '.join(get_args(Rendering))}, got {rendering!r}")
        family, specs = tasks[0].partition("/")[0], [_spec(task) for task in tasks]
        spec = specs[0]
        for task, other in zip(tasks, specs, strict=True):
            if task.partition("/")[0] != family:
                raise ValueError(f"tasks must be of one family, got {tasks[0]} and {task}")
            if other.action_size != spec.action_size:
                raise ValueError(
                    f"tasks must agree in size, but {tasks[0]} has actions of {spec.action_size} numbers, and {task} "
                    f"of {other.action_size}"
                )
        kind, index = _device(device)
        gl_backend_for(kind)  # what cannot render is refused here, with a clear message, before a process is started
        self.image_shape = (3, image_size, image_size)
        self.action_repeat = action_repeat
        self.most_steps = spec.most_frames // action_repeat
        sizes: dict[str, Any] = {"image_size": image_size, "action_repeat": action_repeat}
        super().__init__(
            tasks,
            partial(build, rendering=rendering, device=kind, index=index, goal_marker=goal_marker, **sizes),
            action_size=spec.action_size,
            seen=("image", np.uint8, self.image_shape),
            has_success=spec.has_success,
            constants=[("gl_backend", "S8")],
            processes=processes,
            always_workers=True,
            spins=spins,
        )
        self.gl_backend: str = self._table["gl_backend"][0].decode()


class _Environment:
    """One simulation, and the camera that is on it."""

    def __init__(
        self, simulation: Any, rendering: Rendering, gl_backend: str, *, image_size: int, action_repeat: int
    ) -> None:
        self.constants: Mapping[str, Any] = {"gl_backend": gl_backend.encode()}
        self.simulation = simulation
        self._action_repeat = action_repeat
        self._camera = Renderer(
            simulation.model,
            simulation.camera,
            (image_size, image_size),
            rendering,
            is_upside_down=simulation.is_upside_down,
        )

    def begin(self, seed: int) -> UInt8[np.ndarray, "3 s s"]:
        """Begin the episode of a seed."""
        self.simulation.begin(seed)
        self._camera.renew_terrain()
        return self._camera.render(self.simulation.data)

    def step(self, action: Float[np.ndarray, " a"]) -> tuple[UInt8[np.ndarray, "3 s s"], float, bool, bool, bool]:
        """Play an action until its frames or the episode are over."""
        rewards, success = 0.0, False
        for _ in range(self._action_repeat):
            *_, reward, terminated, truncated, reached = self.simulation.step(action)
            rewards += reward
            success |= reached
            if terminated or truncated:
                break
        return self._camera.render(self.simulation.data), rewards, terminated, truncated, success

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
    image_size: int = 84,
    action_repeat: int = 2,
) -> _Environment:
    """Make an environment in a worker process."""
    gl_backend = choose_gl_backend(device, index)
    family, _, name = task.partition("/")
    is_arm = family == "metaworld"
    simulation = metaworld.Arm(name, goal_marker=goal_marker) if is_arm else dmc.simulate(name, observes=False)
    return _Environment(simulation, rendering, gl_backend, image_size=image_size, action_repeat=action_repeat)


def _device(device: str) -> tuple[Literal["cpu", "cuda"], int]:
    """Read cpu, cuda or cuda:1."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise ValueError(f"device must be cpu, cuda, or one of several GPUs as in cuda:1, got {device!r}")
    return ("cuda" if kind == "cuda" else "cpu"), int(index or 0)
