"""Environments of one's own, which this registers with Gymnasium: gymnasium/runs.small_gymnasium:Walk-v0."""

import gymnasium
import numpy as np
from gymnasium import spaces
from minigrid.envs import EmptyEnv

MODULE = "runs.small_gymnasium"
LENGTH = 6


def task(name, family="gymnasium"):
    """Return the task of an environment of this module."""
    return f"{family}/{MODULE}:{name}-v0"


class Walk(gymnasium.Env):
    """A walk from a random place to the right end of a line, which is success; a time limit ends it otherwise."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 10}  # noqa: RUF012
    observation_space = spaces.Box(-1.0, float(LENGTH), (2,), np.float64)
    action_space = spaces.Discrete(2, start=1)  # 1 goes to the left, 2 to the right

    def __init__(self, render_mode=None, says_success=True):
        self.render_mode, self.says_success = render_mode, says_success
        self.steps, self.last_reset_had_seed = 0, False

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.last_reset_had_seed = seed is not None
        self.place, self.slip = int(self.np_random.integers(LENGTH - 1)), 0.0
        return self.shown(), {}

    def shown(self):
        return np.array([self.place, self.slip])

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"action must be 1 or 2, got {action!r}")
        self.slip = float(self.np_random.random())
        if self.slip > 0.1:
            self.place = max(0, self.place + (1 if action == 2 else -1))
        next_observations = self.place >= LENGTH
        told = {"is_success": next_observations} if self.says_success else {}
        return self.shown(), float(next_observations), next_observations, False, told

    def render(self):
        image = np.zeros((20, 40, 3), dtype=np.uint8)
        image[:, 5 * self.place : 5 * self.place + 5] = 255
        return image


class Image(Walk):
    """The same, seen as a small image."""

    observation_space = spaces.Box(0, 255, (12, 14, 3), np.uint8)

    def shown(self):
        image = np.zeros((12, 14, 3), dtype=np.uint8)
        image[:, 2 * self.place : 2 * self.place + 2, int(self.slip * 3)] = 200
        return image


class Steered(Walk):
    """The same, with an action that is a number from 0 to 4: above 2 goes to the right."""

    action_space = spaces.Box(0.0, 4.0, (1,), np.float32)

    def step(self, action):
        if not self.action_space.contains(action):
            raise ValueError(f"action must be in {self.action_space}, got {action!r}")
        self.action_space, between = Walk.action_space, self.action_space
        told = super().step(2 if action[0] > 2 else 1)
        self.action_space = between
        return told


class SteeredImage(Steered):
    """Seen as an image with channels first, of numbers from 0 to 1."""

    observation_space = spaces.Box(0.0, 1.0, (3, 30, 40), np.float32)

    def shown(self):
        image = np.zeros((3, 30, 40), dtype=np.float32)
        image[:, :, 5 * self.place : 5 * self.place + 5] = 1
        return image


class Noisy(Walk):
    """A walk whose observations come from nowhere; it is quiet for as many steps as are looked at before a run."""

    quiet_steps = 0
    observation_space = spaces.Box(-1.0, 10.0, (2,), np.float32)

    def reset(self, *, seed=None, options=None):
        self.taken = 0
        return super().reset(seed=seed, options=options)

    def step(self, action):
        self.taken += 1
        return super().step(action)

    def shown(self):
        noise = np.random.random() if getattr(self, "taken", 0) >= self.quiet_steps else 0  # noqa: NPY002 - the point
        return np.array([self.place + noise, self.slip], dtype=np.float32)


class LateNoise(Noisy):
    """A walk of which it is not seen at once that it is not deterministic, and that nobody ends before its time."""

    quiet_steps = 9

    def step(self, action):
        return super().step(1)


class Broken(Walk):
    """A walk that fails after some steps."""

    def step(self, action):
        self.steps += 1
        if self.steps == 40:
            raise KeyError("the robot\nis gone")
        return super().step(action)


class Mine(EmptyEnv):
    """A MiniGrid of one's own: a smaller room."""

    def __init__(self, **options):
        super().__init__(size=6, max_steps=15, **options)


def _register():
    limits = {"max_episode_steps": 20}
    for made in (Walk, Image, Steered, SteeredImage, Noisy, LateNoise, Broken):
        gymnasium.register(f"{made.__name__}-v0", entry_point=made, **limits)
    gymnasium.register("QuietWalk-v0", entry_point=Walk, kwargs={"says_success": False}, **limits)
    gymnasium.register("MiniGrid-Mine-v0", entry_point=Mine)


_register()
