"""How policies with continuous actions play: with sampled actions, or their mean."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from vcse.agents import agent_entry
from vcse.agents.entry import Policies
from vcse.envs.interface import Environments
from vcse.envs.tasks import make_environments
from vcse.runs.config import RunConfig
from vcse.runs.evaluation import Evaluation, play_episodes
from vcse.streams import episode_seeds, numbers

Noise = Float[Tensor, "... a"] | None  # standard normal; None for the mean


class ContinuousPlayer(ABC):
    """What is alike in the players of agents with continuous actions, in training and afterwards."""

    @abstractmethod
    def policy(self, agent: Any, frame: int) -> Callable[[Tensor, Noise], Tensor]:
        """Return what chooses at a frame, from observations and noise of every learner, at the start of episodes."""

    @abstractmethod
    def first(self, policies: Policies, observations: Tensor, noise: Noise, state: Any) -> tuple[Tensor, Any]:
        """Choose actions of the first policy, and return its state.

        A state is None in the first step of episodes, and in all steps of a policy without memory. Otherwise it is
        tensors with a row for each environment, alone or in tuples, in which rows of zeros begin an episode.
        """

    def make(self, configs: Sequence[RunConfig], count: int, *, device: str, threads: int) -> Environments:
        """Make so many environments for each run, as its policy sees them."""
        tasks = [config.task for config in configs for _ in range(count)]
        making = agent_entry(configs[0].agent).making(configs[0], device=device, threads=min(threads, len(tasks)))
        return make_environments(tasks, making)

    def act(
        self,
        policies: Policies,
        observations: np.ndarray,
        generator: np.random.Generator | None,
        state: Any = None,
        episode_start: Bool[np.ndarray, " n"] | None = None,
    ) -> tuple[np.ndarray, Any]:
        """Return actions of the first policy, for any number of observations, and its state."""
        noise = None
        if generator is not None:
            shape = (len(observations), policies.agent.spec.action_size)
            noise = torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))
        if state is not None and episode_start is not None:
            state = None if episode_start.all() else restarted(state, torch.from_numpy(episode_start))
        actions, state = self.first(policies, torch.from_numpy(observations), noise, state)
        return actions.cpu().numpy(), state

    def evaluate(self, policies: Policies, *, episodes: int, threads: int) -> list[list[Evaluation]]:
        """Play episodes of every run with sampled actions, and again with the mean."""
        agent, configs = policies.agent, policies.configs
        with closing(self.make(configs, episodes, device=str(agent.device), threads=threads)) as environments:
            return [
                self.play(agent, configs, environments, frame=policies.frame, sampled=sampled)
                for sampled in (True, False)
            ]

    def play(
        self, agent: Any, configs: Sequence[RunConfig], environments: Environments, *, frame: int, sampled: bool
    ) -> list[Evaluation]:
        """Play an episode in each environment, of which every run has as many, side by side.

        Where episodes begin and which actions are sampled depends on the run's seed and the frame alone.
        """
        episodes = environments.count // len(configs)
        generators = [numbers(config.seed, "evaluation", frame) for config in configs]
        seeds = [seed for each in generators for seed in episode_seeds(each, episodes)]
        choose = self.policy(agent, frame)

        def act(observations: np.ndarray) -> np.ndarray:
            noise = None
            if sampled:
                shape = (episodes, agent.spec.action_size)
                rows = [each.standard_normal(shape, dtype=np.float32) for each in generators]
                noise = torch.from_numpy(np.stack(rows))
            shown = torch.from_numpy(observations).view(len(configs), episodes, *observations.shape[1:])
            actions: np.ndarray = choose(shown, noise).flatten(0, 1).cpu().numpy()
            return actions

        found = play_episodes(environments, act, seeds)
        mine = [slice(first, first + episodes) for first in range(0, len(seeds), episodes)]
        return [found.part(each) for each in mine]


def restarted(state: Any, starts: Bool[Tensor, " n"]) -> Any:
    """Return a state in which the rows of environments that begin an episode are zero; what is no tensor stays."""
    if isinstance(state, Tensor):
        return state.masked_fill(starts.to(state.device).view(-1, *[1] * (state.ndim - 1)), 0)
    if isinstance(state, tuple):
        parts = [restarted(part, starts) for part in state]
        return type(state)(*parts) if hasattr(state, "_fields") else tuple(parts)
    return state
