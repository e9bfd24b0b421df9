"""Environments that show images: DeepMind Control as dmc-pixels/NAME, and Meta-World as metaworld/NAME.

An action is played for some frames of the simulator, whose rewards are summed, and the image is rendered after that.
Images are rendered in worker processes alone, each of which chooses a rendering library before anything is imported
that would choose another.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Literal, get_args

import numpy as np
from jaxtyping import Float, UInt8

from vcse.envs.interface import Making, Rendering, TaskSpec
from vcse.envs.mujoco import dmc, metaworld
from vcse.envs.mujoco.rendering import Renderer, choose_gl_backend, gl_backend_for
from vcse.envs.processes import Batch


def task_spec(task: str) -> TaskSpec:
    """Return the spec of a task, which has its family before it. Nothing is rendered."""
    family, _, name = task.partition("/")
    if family == "metaworld":
        return metaworld.task_spec(name)
    dmc.check_task(name, family=family)
    return replace(dmc.task_spec(name), observation_shape=())


class Pixels(Batch):
    """A batch of environments, each with a task and episodes of its own, seen as images.

    Args:
        tasks: One name per environment, such as dmc-pixels/hopper_stand. They may differ, as long as they are of one
            family and their actions are of the same size.
        making: How: its threads are the processes that simulate and render. Each is a new one, also where there is only
            one.
    """

    def __init__(self, tasks: Sequence[str], making: Making) -> None:
        for argument in ("image_size", "action_repeat"):
            if getattr(making, argument) < 1:
                raise ValueError(f"{argument} must be at least 1, got {getattr(making, argument)}")
        if making.rendering not in get_args(Rendering):
            raise ValueError(f"rendering must be one of {', '.join(get_args(Rendering))}, got {making.rendering!r}")
        spec = task_spec(tasks[0])
        for task in tasks:
            action_size = task_spec(task).action_size
            if action_size != spec.action_size:
                raise ValueError(
                    f"tasks must agree in size, but {tasks[0]} has actions of {spec.action_size} numbers, and {task} "
                    f"of {action_size}"
                )
        # What cannot render is refused here, with a clear message, before a process is started.
        self.gl_backend = gl_backend_for(_device(making.device)[0])
        self.image_shape = (3, making.image_size, making.image_size)
        self.action_repeat = making.action_repeat
        self.most_steps = spec.most_frames // making.action_repeat
        super().__init__(
            tasks,
            partial(build, making=making),
            action_size=spec.action_size,
            seen=("image", np.uint8, self.image_shape),
            has_success=spec.has_success,
            processes=making.threads,
            always_workers=True,
            spins=making.spins,
        )


class _Environment:
    """One simulation, and the camera that is on it."""

    def __init__(self, simulation: Any, making: Making) -> None:
        self.simulation = simulation
        self._action_repeat = making.action_repeat
        self._camera = Renderer(
            simulation.model,
            simulation.camera,
            (making.image_size, making.image_size),
            making.rendering,
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


def build(task: str, *, making: Making) -> _Environment:
    """Make an environment in a worker process."""
    choose_gl_backend(*_device(making.device))
    family, _, name = task.partition("/")
    is_arm = family == "metaworld"
    simulation = metaworld.Arm(name, goal_marker=making.goal_marker) if is_arm else dmc.simulate(name, observes=False)
    return _Environment(simulation, making)


def _device(device: str) -> tuple[Literal["cpu", "cuda"], int]:
    """Read cpu, cuda or cuda:1."""
    kind, _, index = device.partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise ValueError(f"device must be cpu, cuda, or one of several GPUs as in cuda:1, got {device!r}")
    return ("cuda" if kind == "cuda" else "cpu"), int(index or 0)
