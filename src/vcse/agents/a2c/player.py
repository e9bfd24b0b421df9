"""How trained policies of A2C are loaded and played."""

from collections.abc import Hashable, Sequence
from contextlib import closing
from functools import partial
from itertools import groupby
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool

from vcse.agents.a2c.agent import A2C, A2CSpec
from vcse.agents.a2c.settings import A2CSettings
from vcse.agents.entry import Policies, Saved
from vcse.bonuses.registry import NO_BONUS
from vcse.envs.interface import Making
from vcse.envs.tasks import make_environments, observation_kind, task_spec
from vcse.runs.checkpoint import fitting
from vcse.runs.config import RunConfig
from vcse.runs.evaluation import Evaluation
from vcse.streams import episode_seeds, numbers

MOST_ENVIRONMENTS = 25


class A2CPlayer:
    """Plays in grids; what only training needs is not loaded, so that runs with other bonuses fit the same agent."""

    def in_common(self, saved: Saved) -> tuple[Hashable, ...]:
        """Return the kind and the shapes of what a run sees and does, and the simulator of its task."""
        spec, kind = task_spec(saved.config.task), observation_kind(saved.config.task)
        return kind, spec.observation_shape, spec.actions, saved.config.backend

    def load(self, group: Sequence[Saved], device: str) -> A2C:
        """Return an agent with the policies of runs."""
        task = group[0].config.task
        spec = task_spec(task)
        seen = A2CSpec(spec.observation_shape, spec.actions, observation_kind(task))
        seeds = [saved.config.seed for saved in group]
        settings = [A2CSettings(bonus=NO_BONUS)] * len(group)
        agent = A2C(seen, settings, seeds, device=device)
        for learner, saved in enumerate(group):
            with fitting(saved.path):
                agent.load_policy(learner, saved.checkpoint.state["agent"])
        return agent

    def act(
        self,
        policies: Policies,
        observations: np.ndarray,
        generator: np.random.Generator | None,
        state: Any = None,
        episode_start: Bool[np.ndarray, " n"] | None = None,
    ) -> tuple[np.ndarray, None]:
        """Return actions of the first policy, for any number of observations; it has no state."""
        del state, episode_start
        agent: A2C = policies.agent
        shown = torch.from_numpy(observations)[None].to(agent.device)
        noise = None
        if generator is not None:
            noise = torch.from_numpy(generator.random((1, len(observations)), dtype=np.float32)).to(agent.device)
        actions: np.ndarray = agent.act(shown, noise, slice(0, 1))[0].cpu().numpy()
        return actions, None

    def evaluate(self, policies: Policies, *, episodes: int, threads: int) -> list[list[Evaluation]]:
        """Play episodes of every run with sampled actions, and again with greedy ones."""
        play = partial(play_grids, policies.agent, policies.configs, frame=policies.frame, episodes=episodes)
        return [play(sampled=sampled, threads=threads) for sampled in (True, False)]


def play_grids(
    agent: A2C, configs: Sequence[RunConfig], *, frame: int, episodes: int, sampled: bool, threads: int = 1
) -> list[Evaluation]:
    """Play episodes with every learner. Learners of one task are adjacent, and play together.

    Each environment plays a fixed number of episodes, so that short ones do not crowd out long ones. Layouts and
    actions depend on the run's seed and the frame alone.
    """
    results: list[Evaluation] = []
    play = partial(_play_task, agent, frame=frame, episodes=episodes, sampled=sampled, threads=threads)
    for _, group in groupby(configs, key=lambda config: config.task):
        results += play(list(group), first=len(results))
    return results


def _play_task(
    agent: A2C, configs: Sequence[RunConfig], *, first: int, frame: int, episodes: int, sampled: bool, threads: int
) -> list[Evaluation]:
    """Play episodes of one task with the learners that it belongs to, from the first one on."""
    by_return = not task_spec(configs[0].task).is_foreign
    results = [Evaluation([], [], by_return=by_return) for _ in configs]
    if episodes == 0:
        return results
    successes: list[list[bool]] = [[] for _ in configs]
    says_success = False
    width = min(MOST_ENVIRONMENTS, episodes)
    generators = [numbers(config.seed, "evaluation", frame) for config in configs]
    seeds = [seed for each in generators for seed in episode_seeds(each, width)]
    making = Making(seeds=seeds, backend=configs[0].backend, threads=threads)
    quota = np.array([episodes // width + (place < episodes % width) for place in range(width)])
    left = np.tile(quota, len(configs))
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), dtype=np.int64)
    succeeded = np.zeros(len(seeds), dtype=np.bool_)
    with closing(make_environments([configs[0].task] * len(seeds), making)) as environments:
        observations = environments.reset()
        while (left > 0).any():
            shown = torch.from_numpy(observations).view(len(configs), width, *observations.shape[1:]).to(agent.device)
            noise = None
            if sampled:
                sampled_uniforms = np.stack([each.random(width, dtype=np.float32) for each in generators])
                noise = torch.from_numpy(sampled_uniforms).to(agent.device)
            actions = agent.act(shown, noise, slice(first, first + len(configs)))
            environments.send(actions.flatten().cpu().numpy())
            step = environments.receive()
            returns += step.rewards
            lengths += 1
            if step.success is not None:
                succeeded |= step.success
                says_success |= step.success_reported is None or bool(step.success_reported.any())
            for place in np.flatnonzero(step.ended & (left > 0)):
                results[place // width].returns.append(float(returns[place]))
                results[place // width].lengths.append(int(lengths[place]))
                successes[place // width].append(bool(succeeded[place]))
            left -= step.ended
            returns[step.ended], lengths[step.ended], succeeded[step.ended] = 0, 0, False
            observations = step.observations
    found = zip(results, successes, strict=True)
    return [each._replace(successes=mine if says_success else None) for each, mine in found]
