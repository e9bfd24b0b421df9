"""One simulated environment to make a film of: what its policy sees, and a larger image for people.

It is a policy's own environment, whichever that was trained in: dmc/NAME shows states, dmc-pixels/NAME and
metaworld/NAME show small images. The camera for people is the one that those images are taken with.
"""

import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from vcse.envs.interface import Making, Rendering
from vcse.envs.moments import Moment, Outcome
from vcse.envs.mujoco import dmc
from vcse.envs.mujoco.pixels import build, task_spec
from vcse.envs.mujoco.rendering import Renderer, choose_gl_backend, gl_backend_for
from vcse.envs.processes import Batch
from vcse.streams import episode_seeds

SIDE = 320  # pixels of an image for people
FRAMES_PER_IMAGE = 4


class Sight(NamedTuple):
    """What is to be seen."""

    observation: np.ndarray  # a state or a small image, for the policy
    image: UInt8[np.ndarray, "s s 3"]  # for people; a new one every `FRAMES_PER_IMAGE` frames, and at the end


class FilmedStep(NamedTuple):
    """What one action led to."""

    sight: Sight
    reward: float
    terminated: bool
    truncated: bool
    success: bool


class Filmed(Batch):
    """An environment that is filmed, in a process of its own.

    Args:
        task: With its family.
        rendering: Quality of the images that the policy sees. Those for people are always faithful.
        goal_marker: Render the dot that shows the goal of metaworld's tasks, for the policy and for people.
        image_size: Pixels of each side of an image that the policy sees.
        action_repeat: Frames for which an action is played; dmc/... repeats none.
    """

    def __init__(
        self,
        task: str,
        *,
        rendering: Rendering = "faithful",
        goal_marker: bool = True,
        image_size: int = 84,
        action_repeat: int = 2,
    ) -> None:
        gl_backend_for("cpu")  # as for Pixels
        family, _, name = task.partition("/")
        shows_state = family == "dmc"
        spec = dmc.task_spec(name) if shows_state else task_spec(family, name)
        self.action_repeat = 1 if shows_state else action_repeat
        shape = spec.observation_shape if shows_state else (3, image_size, image_size)
        observation = ("observation", np.float32 if shows_state else np.uint8, shape)
        sizes: dict[str, Any] = {"image_size": image_size, "action_repeat": self.action_repeat}
        super().__init__(
            [task],
            partial(_build, rendering=rendering, goal_marker=goal_marker, **sizes),
            action_size=spec.action_size,
            seen=("sight", [observation, ("image", np.uint8, (SIDE, SIDE, 3))]),
            has_success=spec.has_success,
            processes=1,
            always_workers=True,
        )

    def begin(self, seed: int) -> Sight:
        """Begin an episode."""
        return _sight(self.reset([seed]))

    def step(self, action: Float[np.ndarray, " a"]) -> FilmedStep:
        """Act, and wait for what comes of it."""
        self.send(action[None])
        step = self.receive()
        success = step.success is not None and bool(step.success[0])
        ends = bool(step.terminated[0]), bool(step.truncated[0]), success
        return FilmedStep(_sight(step.observations), float(step.rewards[0]), *ends)


def record_simulation(
    task: str,
    choose: Callable[[Sequence[np.ndarray], np.random.Generator], np.ndarray],
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
        choose: The policy: from the last observations, the newest last, and a generator to an action.
        episodes: How many.
        seed: Of the generator, from which the seeds of the episodes come too.
        recent: Observations that the policy is shown; the first of an episode is repeated before it.
        family: Of the task.
        making: How the environment is made that the policy sees.
    """
    world = Filmed(
        f"{family}/{task}",
        rendering=making.rendering,
        goal_marker=making.goal_marker,
        image_size=making.image_size,
        action_repeat=making.action_repeat,
    )
    generator = np.random.default_rng(seed)
    try:
        for episode in range(1, episodes + 1):
            sight = world.begin(episode_seeds(generator, 1)[0])
            stack = deque([sight.observation] * recent, maxlen=recent)
            step, return_so_far, has_succeeded = 0, 0.0, False
            outcome: Outcome = ""
            yield Moment(sight.image, episode, step, return_so_far, outcome)
            while not outcome:
                filmed = world.step(choose(stack, generator))
                stack.append(filmed.sight.observation)
                step, return_so_far = step + 1, return_so_far + filmed.reward
                has_succeeded |= filmed.success
                if filmed.terminated or filmed.truncated:
                    outcome = "goal" if has_succeeded else "over" if filmed.terminated else "out of time"
                if outcome or step * world.action_repeat % FRAMES_PER_IMAGE == 0:
                    yield Moment(filmed.sight.image, episode, step, return_so_far, outcome)
    finally:
        world.close()


class _Environment:
    """An environment, and a second camera on its simulation."""

    constants: Mapping[str, Any] = types.MappingProxyType({})

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


def _build(task: str, *, rendering: Rendering, goal_marker: bool, image_size: int, action_repeat: int) -> _Environment:
    """Make the environment in its process."""
    family, _, name = task.partition("/")
    if family == "dmc":
        choose_gl_backend("cpu")
        states = dmc.simulate(name)
        return _Environment(states, states, action_repeat)
    sizes: dict[str, Any] = {"image_size": image_size, "action_repeat": action_repeat}
    images = build(task, rendering=rendering, goal_marker=goal_marker, **sizes)
    return _Environment(images, images.simulation, action_repeat)


def _sight(seen: np.ndarray) -> Sight:
    return Sight(seen["observation"][0], seen["image"][0])
