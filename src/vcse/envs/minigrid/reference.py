"""MiniGrid stepped by the `minigrid` package, which also shows the whole map and renders images."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

from vcse.envs.interface import Observations, Positions, Step
from vcse.envs.minigrid import names
from vcse.envs.minigrid.full_map import PLANES, MapPlanes


class ReferenceMiniGrid:
    """MiniGrid stepped by the `minigrid` package, one environment after the other."""

    def __init__(self, task: str, seeds: Sequence[int], *, full: bool = False, images: bool = False) -> None:
        if not names.is_installed("minigrid"):
            raise RuntimeError(f"the minigrid package is not installed: {names.INSTALL}")
        if task.startswith(names.FROM_PATTERNS) and names.lacks_patterns():
            raise RuntimeError(
                f"{task} cannot be filmed, shown whole or stepped by the minigrid package: this installation of it "
                f"lacks the files in {names.patterns()}; EnvPool can step minigrid/{task}"
            )
        import gymnasium
        import minigrid  # noqa: F401 - registers its environments

        self.count = len(seeds)
        self.full = full
        self.seeds = tuple(seeds)
        mode = "rgb_array" if images else None
        self.worlds: list[Any] = [gymnasium.make(names.gymnasium_id(task), render_mode=mode).unwrapped for _ in seeds]
        world = self.worlds[0]
        self.actions = int(world.action_space.n)
        self.most_steps = int(world.max_steps)
        self.observation_shape = (world.width, world.height, PLANES) if full else names.VIEW
        self._sent: Int[np.ndarray, " n"] | None = None
        self._maps = [MapPlanes(each) for each in self.worlds] if full else []

    def reset(self, seeds: Sequence[int | None] | None = None) -> Observations:
        """Start every environment's first episode, from the seed that it was made with."""
        del seeds
        for planes in self._maps:
            planes.forget()
        shown = [world.reset(seed=int(seed))[0] for world, seed in zip(self.worlds, self.seeds, strict=True)]
        return self._observations(shown)

    @property
    def positions(self) -> Positions:
        """Return the positions of the agents."""
        return np.array([world.agent_pos for world in self.worlds], dtype=np.int32)

    def send(self, actions: Int[np.ndarray, " n"]) -> None:
        """Remember the actions; the work is done when the step is received."""
        self._sent = actions

    def receive(self) -> Step:
        """Step every environment and reset what has finished."""
        if self._sent is None:
            raise RuntimeError("receive() without send()")
        for planes, action in zip(self._maps, self._sent, strict=False):
            planes.expect(int(action))
        taken = [world.step(int(action)) for world, action in zip(self.worlds, self._sent, strict=True)]
        self._sent = None
        rewards: Float[np.ndarray, " n"] = np.array([each[1] for each in taken], dtype=np.float32)
        terminated: Bool[np.ndarray, " n"] = np.array([each[2] for each in taken])
        truncated: Bool[np.ndarray, " n"] = np.array([each[3] for each in taken]) & ~terminated
        next_observations, next_positions = self._observations([each[0] for each in taken]), self.positions
        finished = np.flatnonzero(terminated | truncated)
        shown, positions = next_observations, next_positions
        if finished.size:
            fresh = [self.worlds[index].reset()[0] for index in finished]
            for index in finished if self.full else ():
                self._maps[index].forget()
            shown, positions = next_observations.copy(), self.positions
            shown[finished] = self._observations(fresh, finished)
        return Step(shown, next_observations, rewards, terminated, truncated, positions, next_positions)

    def close(self) -> None:
        """Close every environment."""
        for world in self.worlds:
            world.close()

    def _observations(self, shown: list[Any], which: Sequence[int] | np.ndarray | None = None) -> Observations:
        if not self.full:
            return np.stack([each["image"] for each in shown])
        maps = self._maps if which is None else [self._maps[index] for index in which]
        return np.stack([each() for each in maps])
