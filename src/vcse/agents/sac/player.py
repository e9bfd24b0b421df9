"""How trained policies of SAC are loaded and played."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import closing

import numpy as np
import torch

from vcse.agents.entry import Policies, Saved
from vcse.agents.sac.agent import SAC, SACSpec
from vcse.agents.sac.settings import SACSettings
from vcse.bonuses.registry import NO_BONUS
from vcse.envs.moments import Moment
from vcse.envs.mujoco.dmc import DMCStates
from vcse.envs.mujoco.recording import record_simulation
from vcse.envs.tasks import state_spec
from vcse.runs.checkpoint import fitting
from vcse.runs.config import RunConfig
from vcse.runs.evaluation import Evaluation
from vcse.streams import episode_seeds, numbers


class SACPlayer:
    """Plays in simulations, from states; runs with other batches and bonuses fit the same agent."""

    def in_common(self, saved: Saved) -> tuple[Hashable, ...]:
        """Return the sizes of a run's task and networks."""
        return state_spec(saved.config.task), SACSettings.of(saved.config.settings).hidden_units

    def load(self, group: Sequence[Saved], device: str) -> SAC:
        """Return an agent with the policies of runs."""
        spec = state_spec(group[0].config.task)
        trained = SACSettings.of(group[0].config.settings)
        settings = [SACSettings(bonus=NO_BONUS, hidden_units=trained.hidden_units)] * len(group)
        seeds = [saved.config.seed for saved in group]
        agent = SAC(SACSpec(spec.observation_size, spec.action_size), settings, seeds, device=device)
        for learner, saved in enumerate(group):
            with fitting(saved.path):
                agent.load_policy(learner, saved.checkpoint.state["agent"])
        return agent

    def act(self, policies: Policies, observations: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
        """Return actions of the first policy, for any number of observations."""
        agent: SAC = policies.agent
        noise = None
        if generator is not None:
            shape = (len(observations), agent.spec.action_size)
            noise = torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))[None]
        shown = torch.from_numpy(observations)[None].expand(agent.learners, -1, -1)
        noise = None if noise is None else noise.expand(agent.learners, -1, -1)
        actions: np.ndarray = agent.act(shown, noise)[0].cpu().numpy()
        return actions

    def evaluate(self, policies: Policies, *, episodes: int, threads: int) -> list[list[Evaluation]]:
        """Play episodes of every run with sampled actions, and again with the mean."""
        tasks = [config.task.partition("/")[2] for config in policies.configs for _ in range(episodes)]
        with closing(DMCStates(tasks, processes=min(threads, len(tasks)))) as states:
            return [
                play_states(
                    policies.agent, policies.configs, states, frame=policies.frame, episodes=episodes, sampled=sampled
                )
                for sampled in (True, False)
            ]

    def record(self, policies: Policies, *, episodes: int, sampled: bool, seed: int) -> Iterator[Moment]:
        """Play episodes of the first run, and render some frames of them."""

        def choose(recent: Sequence[np.ndarray], generator: np.random.Generator) -> np.ndarray:
            action: np.ndarray = self.act(policies, recent[-1][None], generator if sampled else None)[0]
            return action

        config = policies.configs[0]
        return record_simulation(config.task, choose, episodes=episodes, seed=seed)


def play_states(
    agent: SAC,
    configs: Sequence[RunConfig],
    environments: DMCStates,
    *,
    frame: int,
    episodes: int,
    sampled: bool,
) -> list[Evaluation]:
    """Play an episode in each environment, of which every learner has so many, side by side.

    Where episodes begin and which actions are drawn depends on the run's seed and the frame alone.
    """
    learners = len(configs)
    generators = [numbers(config.seed, "evaluation", frame) for config in configs]
    seeds = [seed for each in generators for seed in episode_seeds(each, episodes)]
    observations = environments.reset(seeds)
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), dtype=np.int64)
    goes_on = np.ones(len(seeds), dtype=np.bool_)
    while goes_on.any():
        shown = torch.from_numpy(observations).view(learners, episodes, -1)
        noise = None
        if sampled:
            shape = (episodes, environments.action_size)
            drawn = [each.standard_normal(shape, dtype=np.float32) for each in generators]
            noise = torch.from_numpy(np.stack(drawn))
        environments.send(agent.act(shown, noise).flatten(0, 1).cpu().numpy())
        step = environments.receive()
        returns += step.rewards * goes_on
        lengths += goes_on
        goes_on &= ~step.ended
        # Where an episode is over before the others, another is played that does not count.
        again = [seed if over and goes_on.any() else None for seed, over in zip(seeds, step.ended, strict=True)]
        observations = environments.reset(again) if any(each is not None for each in again) else step.arrived
    return [
        Evaluation(mine.tolist(), steps.tolist())
        for mine, steps in zip(returns.reshape(learners, -1), lengths.reshape(learners, -1), strict=True)
    ]
