"""`vcse.load_policy`: a trained policy that acts, from Python."""

from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Bool

from vcse.agents import agent_entry
from vcse.agents.entry import Policies
from vcse.envs.tasks import observation_kind, task_spec
from vcse.play.load import load_policies
from vcse.play.shipped import find_policies
from vcse.runs.config import RunConfig

__all__ = ["Policy", "load_policy"]


class Policy:
    """The policy of one run.

    Args:
        policies: As they are loaded, of which the first is meant.
        seed: Of the actions that are sampled.
    """

    def __init__(self, policies: Policies, seed: int = 0) -> None:
        self._policies = policies
        self._entry = agent_entry(policies.configs[0].agent)
        self._generator = np.random.default_rng(seed)

    @property
    def config(self) -> RunConfig:
        """The run's configuration."""
        return self._policies.configs[0]

    @property
    def frame(self) -> int:
        """The frame at which the policy was saved."""
        return self._policies.frame

    @property
    def observation_shape(self) -> tuple[int, ...]:
        """The shape of one observation; images of the last steps are stacked along the first axis, the newest last."""
        size, stacked = self._entry.image_size_of(self.config), self._entry.stacked_images
        return task_spec(self.config.task).observation_shape or (3 * stacked, size, size)

    def predict(
        self,
        observation: np.ndarray,
        state: Any = None,
        episode_start: bool | Bool[np.ndarray, " n"] | None = None,
        *,
        deterministic: bool = True,
    ) -> tuple[np.ndarray, Any]:
        """Return the action for one observation, or the actions for a batch of them, and the state of the policy.

        The state of a policy without memory is None. That of one with a memory is passed back with the next
        observations of the same environments; without it their episodes begin.

        Args:
            observation: Of `observation_shape`, with or without an axis of several before.
            state: As it was returned for the observations before; None where the episodes begin.
            episode_start: Whether these observations are the first of an episode, for all or for each environment: the
                state of those is reset.
            deterministic: Take the greedy action (the most probable, or the mean) instead of sampling from the policy.
        """
        shape = self.observation_shape
        if observation_kind(self.config.task) == "state":
            observation = observation.astype(np.float32, copy=False)
        is_single = observation.shape == shape
        if not is_single and (observation.shape[1:] != shape or len(observation) == 0):
            raise ValueError(f"observation must be of shape {shape}, or several of them, got {observation.shape}")
        batch = observation[None] if is_single else observation
        starts = None if episode_start is None else _starts(episode_start, len(batch))
        generator = None if deterministic else self._generator
        actions, state = self._entry.player.act(self._policies, batch, generator, state, starts)
        return (actions.squeeze(0) if is_single else actions), state


def _starts(episode_start: bool | Bool[np.ndarray, " n"], count: int) -> Bool[np.ndarray, " n"]:
    """Return which environments begin an episode."""
    starts = np.array(episode_start, dtype=np.bool_)
    if starts.shape not in ((), (count,)):
        raise ValueError(f"episode_start must be one bool, or one for each of {count}, got shape {starts.shape}")
    return np.full(count, starts)


def load_policy(path: str | Path, *, device: str = "cpu", seed: int = 0) -> Policy:
    """Return the newest policy of a run, or one of those that ship with the package vcse-policies.

    Args:
        path: The run's directory, or an --out directory that holds one run; or the name of a policy that ships, such as
            minigrid/LavaGapS7/vcse.
        device: Where its networks live.
        seed: Of the actions that are sampled.

    Example:
        >>> import tempfile, numpy, vcse
        >>> [run] = vcse.train("minigrid/Empty-5x5", out=tempfile.mkdtemp(), frames=256, eval_episodes=2, quiet=True)
        >>> policy = vcse.load_policy(run)
        >>> action, _ = policy.predict(numpy.zeros((7, 7, 3), dtype=numpy.uint8))
        >>> 0 <= int(action) < 7
        True
    """
    runs = sorted(each.parent for each in find_policies(path).rglob("config.json"))
    if len(runs) != 1:
        raise ValueError(f"{path} must be one run, or hold one, got {len(runs)} runs below it")
    [policies] = load_policies(runs, device)
    return Policy(policies, seed)
