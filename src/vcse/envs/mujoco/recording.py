"""One simulated environment to make a film of: what its policy sees, and a larger picture for people.

It is a policy's own environment, whichever that was trained in: dmc/NAME shows states, dmc-pixels/NAME and
metaworld/NAME show small pictures. The camera for people is the one that those pictures are taken with.
"""

import types
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, UInt8

from vcse.envs.moments import Moment, Outcome
from vcse.envs.mujoco import dmc
from vcse.envs.mujoco.dmc import StateSpec
from vcse.envs.mujoco.pixels import ACTION_REPEAT, Pixels, PixelSpec, build, camera_of, pixel_spec
from vcse.envs.mujoco.rendering import PictureTaker, Rendering, choose_gl_backend, gl_backend_for
from vcse.envs.processes import Batch
from vcse.streams import episode_seeds

SIDE = 320  # pixels of a picture for people
FRAMES_PER_PICTURE = 4


class Sight(NamedTuple):
    """What is to be seen."""

    observation: np.ndarray  # a state or a small picture, for the policy
    picture: UInt8[np.ndarray, "s s 3"]  # for people; a new one every `FRAMES_PER_PICTURE` frames, and at the end


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
        rendering: Quality of the pictures that the policy sees. Those for people are always faithful.
        goal_marker: Draw the dot that shows the goal of metaworld's tasks, for the policy and for people.
    """

    def __init__(self, task: str, *, rendering: Rendering = "faithful", goal_marker: bool = True) -> None:
        gl_backend_for("cpu")  # as for Pixels
        family, _, name = task.partition("/")
        spec: StateSpec | PixelSpec = dmc.state_spec(name) if family == "dmc" else pixel_spec(task)
        self.action_repeat = 1 if isinstance(spec, StateSpec) else ACTION_REPEAT
        self.has_success = isinstance(spec, PixelSpec) and spec.has_success
        observation = (
            ("observation", np.float32, (spec.observation_size,))
            if isinstance(spec, StateSpec)
            else ("observation", np.uint8, Pixels.frame_shape)
        )
        super().__init__(
            [task],
            partial(_build, rendering=rendering, goal_marker=goal_marker),
            action_size=spec.action_size,
            outcome=[
                ("sight", [observation, ("picture", np.uint8, (SIDE, SIDE, 3))]),
                ("reward", np.float32),
                ("terminated", np.bool_),
                ("truncated", np.bool_),
                ("success", np.bool_),
            ],
            processes=1,
            always_workers=True,
        )

    def reset(self, seed: int) -> Sight:
        """Begin an episode."""
        return _sight(self._begin([seed]))

    def step(self, action: Float[np.ndarray, " a"]) -> FilmedStep:
        """Act, and wait for what comes of it."""
        self.send(action[None])
        sight, reward, terminated, truncated, success = self._arrive()
        return FilmedStep(_sight(sight), float(reward[0]), bool(terminated[0]), bool(truncated[0]), bool(success[0]))


def record_simulation(
    task: str,
    choose: Callable[[Sequence[np.ndarray], np.random.Generator], np.ndarray],
    *,
    episodes: int,
    seed: int,
    recent: int = 1,
    rendering: Rendering = "faithful",
    goal_marker: bool = True,
) -> Iterator[Moment]:
    """Play episodes of a simulated robot, and render some frames of them for people.

    Args:
        task: With its family.
        choose: The policy: from the last observations, the newest last, and a generator to an action.
        episodes: How many.
        seed: Of the generator, from which the seeds of the episodes come too.
        recent: Observations that the policy is shown; the first of an episode stands for those before it.
        rendering: Quality of the images that the policy sees.
        goal_marker: Render the dot that shows the goal of metaworld's tasks.
    """
    world = Filmed(task, rendering=rendering, goal_marker=goal_marker)
    generator = np.random.default_rng(seed)
    try:
        for episode in range(1, episodes + 1):
            sight = world.reset(episode_seeds(generator, 1)[0])
            stack = deque([sight.observation] * recent, maxlen=recent)
            step, return_so_far, has_succeeded = 0, 0.0, False
            outcome: Outcome = ""
            yield Moment(sight.picture, episode, step, return_so_far, outcome)
            while not outcome:
                told = world.step(choose(stack, generator))
                stack.append(told.sight.observation)
                step, return_so_far = step + 1, return_so_far + told.reward
                has_succeeded |= told.success
                if told.terminated or told.truncated:
                    outcome = "goal" if has_succeeded else "over" if told.terminated else "out of time"
                if outcome or step * world.action_repeat % FRAMES_PER_PICTURE == 0:
                    yield Moment(told.sight.picture, episode, step, return_so_far, outcome)
    finally:
        world.close()


class _Environment:
    """An environment, and a second camera on its simulation."""

    constants: Mapping[str, Any] = types.MappingProxyType({})

    def __init__(self, environment: Any, simulation: Any, camera: PictureTaker, action_repeat: int) -> None:
        self._environment, self._simulation, self._camera = environment, simulation, camera
        self._action_repeat = action_repeat
        self._frames = 0
        self._picture: UInt8[np.ndarray, "s s 3"]

    def begin(self, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Begin the episode of a seed."""
        observation = self._environment.begin(seed)
        self._frames = 0
        self._camera.renew_terrain()
        self._take_picture()
        return observation, self._picture

    def step(self, action: Float[np.ndarray, " a"]) -> tuple[Any, ...]:
        """Act."""
        observation, reward, terminated, truncated, *success = self._environment.step(action)
        self._frames += self._action_repeat
        if terminated or truncated or self._frames % FRAMES_PER_PICTURE == 0:
            self._take_picture()
        return (observation, self._picture), reward, terminated, truncated, any(success)

    def close(self) -> None:
        """Close the cameras."""
        self._camera.close()
        self._environment.close()

    def _take_picture(self) -> None:
        self._picture = self._camera.draw(self._simulation.data).transpose(1, 2, 0)


def _build(task: str, *, rendering: Rendering, goal_marker: bool) -> _Environment:
    """Make the environment in its process."""
    family, _, name = task.partition("/")
    if family == "dmc":
        choose_gl_backend("cpu")
        environment: Any = dmc.simulate(name)
        camera = PictureTaker(environment.model, camera_of(name), (SIDE, SIDE), "faithful")
        return _Environment(environment, environment, camera, action_repeat=1)
    environment = build(task, rendering=rendering, goal_marker=goal_marker)
    simulation = environment.simulation
    camera = PictureTaker(
        simulation.model, simulation.camera, (SIDE, SIDE), "faithful", is_upside_down=simulation.is_upside_down
    )
    return _Environment(environment, simulation, camera, ACTION_REPEAT)


def _sight(seen: np.ndarray) -> Sight:
    return Sight(seen["observation"][0], seen["picture"][0])
