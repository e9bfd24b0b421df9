"""MiniGrid stepped by EnvPool, in C++ threads."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Int

from vcse.envs.interface import Observations, Positions, Step
from vcse.envs.minigrid import names

FORWARD = 2
CELL_AHEAD = (3, 5, 0)  # what kind of object is in front of the agent, in its view
LAVA = 9


class EnvPoolMiniGrid:
    """MiniGrid stepped by EnvPool.

    EnvPool resets a finished environment at the step after its end and ignores that step's action. Such a step is
    no frame: finished environments are stepped once more, alone, before an agent sees them.
    """

    observation_shape = names.VIEW

    def __init__(self, task: str, seeds: Sequence[int], *, threads: int = 1) -> None:
        if not names.is_installed("envpool"):
            raise RuntimeError(f"EnvPool is not installed: {names.INSTALL}")
        import envpool

        self.count = len(seeds)
        self._pool: Any = envpool.make(
            names.gymnasium_id(task),
            env_type="gymnasium",
            num_envs=self.count,
            seed=[int(seed) for seed in seeds],
            num_threads=min(threads, self.count),
        )
        self.actions = int(self._pool.action_space.n)
        self.most_steps = int(self._pool.spec.config.max_episode_steps)
        self._shown: Observations
        self.positions: Positions
        self._sent: Int[np.ndarray, " n"]

    def reset(self, seeds: Sequence[int | None] | None = None) -> Observations:
        """Start every environment's first episode, from the seed that it was made with."""
        del seeds
        observations, information = self._pool.reset()
        self._shown, self.positions = observations["image"], information["agent_pos"]
        return self._shown

    def send(self, actions: Int[np.ndarray, " n"]) -> None:
        """Begin a step of every environment."""
        self._sent = actions.astype(np.int32)
        self._pool.send(self._sent)

    def receive(self) -> Step:
        """Wait for the step, then reset what has finished."""
        observations, rewards, terminated, truncated, information = self._pool.recv()
        next_observations, next_positions = observations["image"], information["agent_pos"]
        # At the last step EnvPool calls a goal, a collision with an obstacle, and lava, a time-out.
        into_lava = (self._sent == FORWARD) & (self._shown[:, *CELL_AHEAD] == LAVA)
        terminated = terminated | (rewards != 0) | (truncated & into_lava)
        truncated = truncated & ~terminated
        finished = np.flatnonzero(terminated | truncated).astype(np.int32)
        self._shown, self.positions = next_observations, next_positions
        if finished.size:
            self._pool.send(np.zeros(finished.size, dtype=np.int32), finished)
            fresh, _, _, _, information = self._pool.recv()
            self._shown, self.positions = next_observations.copy(), next_positions.copy()
            self._shown[finished], self.positions[finished] = fresh["image"], information["agent_pos"]
        return Step(self._shown, next_observations, rewards, terminated, truncated, self.positions, next_positions)

    def close(self) -> None:
        """Stop the threads."""
        self._pool.close()
