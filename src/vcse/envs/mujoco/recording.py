"""One simulated environment to make a film of: what its policy sees, and a larger image for people.

It is a policy's own environment, whichever that was trained in: dmc/NAME shows states, dmc-pixels/NAME and
metaworld/NAME show small images. The camera for people is the one that those images are taken with.
"""

import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import numpy as np
from jaxtyping import Float, UInt8

from vcse.envs.interface import Making
from vcse.envs.moments import Moment
from vcse.envs.mujoco import dmc
from vcse.envs.mujoco.pixels import build, task_spec
from vcse.envs.mujoco.rendering import Renderer, choose_gl_backend, gl_backend_for
from vcse.envs.processes import Batch
from vcse.envs.recording import Choose, record_episodes

SIDE = 320  # pixels of an image for people
FRAMES_PER_IMAGE = 4


class Filmed(Batch):
    """An environment that is filmed, in a process of its own.

    Args:
        task: With its family.
        making: How the environment is made that the policy sees; dmc/... repeats no actions. Images for people are
            always faithful.
    """

    def __init__(self, task: str, making: Making) -> None:
        gl_backend_for("cpu")  # as for Pixels
        shows_state = task.startswith("dmc/")
        spec = dmc.task_spec(task.removeprefix("dmc/")) if shows_state else task_spec(task)
        self.action_repeat = 1 if shows_state else making.action_repeat
        shape = spec.observation_shape if shows_state else (3, making.image_size, making.image_size)
        observation = ("observation", np.float32 if shows_state else np.uint8, shape)
        super().__init__(
            [task],
            partial(_build, making=making),
            action_size=spec.action_size,
            seen=("sight", [observation, ("image", np.uint8, (SIDE, SIDE, 3))]),
            has_success=spec.has_success,
            processes=1,
            always_workers=True,
        )

    def begin(self, seed: int) -> np.ndarray:
        """Begin an episode."""
        return self._seen(self.reset([seed]))

    def step(self, action: Float[np.ndarray, " a"]) -> tuple[np.ndarray, float, bool, bool, bool]:
        """Act, and wait for what comes of it."""
        self.send(action[None])
        step = self.receive()
        success = step.success is not None and bool(step.success[0])
        seen = self._seen(step.observations)
        return seen, float(step.rewards[0]), bool(step.terminated[0]), bool(step.truncated[0]), success

    def image(self) -> UInt8[np.ndarray, "s s 3"]:
        """Return the last image for people; there is a new one every `FRAMES_PER_IMAGE` frames, and at the end."""
        return self._image

    def _seen(self, sight: np.ndarray) -> np.ndarray:
        self._image: UInt8[np.ndarray, "s s 3"] = sight["image"][0]
        seen: np.ndarray = sight["observation"][0]
        return seen


def record_simulation(
    task: str,
    choose: Choose,
    *,
    episodes: int,
    seed: int,
    recent: int = 1,
    family: str = "dmc",
    making: Making,
) -> Iterator[Moment]:
    """Play episodes of a simulated robot, and render some frames of them for people.

    Args:
        task: Its name.
        choose: The policy; this and the next three as in `record_episodes`.
        episodes: How many.
        seed: Of the generator.
        recent: Observations that the policy is shown.
        family: Of the task.
        making: How the environment is made that the policy sees.
    """
    world = Filmed(f"{family}/{task}", making)
    every = FRAMES_PER_IMAGE // math.gcd(FRAMES_PER_IMAGE, world.action_repeat)
    yield from record_episodes(world, choose, episodes=episodes, seed=seed, recent=recent, every=every)


class _Environment:
    """An environment, and a second camera on its simulation."""

    def __init__(self, environment: Any, simulation: Any, action_repeat: int) -> None:
        self._environment, self._simulation, self._action_repeat = environment, simulation, action_repeat
        self._camera = Renderer(
            simulation.model, simulation.camera, (SIDE, SIDE), "faithful", is_upside_down=simulation.is_upside_down
        )
        self._frames = 0
        self._image: UInt8[np.ndarray, "s s 3"]

    def begin(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Begin the episode of a seed."""
        observation = self._environment.begin(seed)
        self._frames = 0
        self._camera.renew_terrain()
        self._render()
        return observation, self._image

    def step(self, action: Float[np.ndarray, " a"]) -> tuple[Any, ...]:
        """Act."""
        observation, reward, terminated, truncated, success = self._environment.step(action)
        self._frames += self._action_repeat
        if terminated or truncated or self._frames % FRAMES_PER_IMAGE == 0:
            self._render()
        return (observation, self._image), reward, terminated, truncated, success

    def close(self) -> None:
        """Close the cameras."""
        self._camera.close()
        self._environment.close()

    def _render(self) -> None:
        self._image = self._camera.render(self._simulation.data).transpose(1, 2, 0)


def _build(task: str, *, making: Making) -> _Environment:
    """Make the environment in its process."""
    if task.startswith("dmc/"):
        choose_gl_backend("cpu")
        states = dmc.simulate(task)
        return _Environment(states, states, action_repeat=1)
    images = build(task, making=making)
    return _Environment(images, images.simulation, making.action_repeat)
