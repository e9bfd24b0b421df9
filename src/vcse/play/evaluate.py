"""Evaluation: whole episodes of a policy in environments of their own, sampled or by the likeliest action."""

from collections.abc import Sequence
from contextlib import closing
from itertools import groupby
from typing import Any, NamedTuple

import numpy as np
import torch

from vcse.agents.a2c.agent import A2C
from vcse.agents.drqv2.agent import DrQv2
from vcse.agents.sac.agent import SAC
from vcse.envs.mujoco.dmc import DMCStates
from vcse.envs.mujoco.pixels import Pixels
from vcse.envs.tasks import make_environments
from vcse.play.load import Policies
from vcse.replay.images import STACK
from vcse.runs.arithmetic import computing_as
from vcse.runs.config import RunConfig
from vcse.streams import episode_seeds, numbers

MOST_ENVIRONMENTS = 25


class Evaluation(NamedTuple):
    """What one learner reached, episode by episode."""

    returns: list[float]
    lengths: list[int]
    successes: list[bool] | None = None  # where the task says so itself; else a return above 0 is one

    @property
    def return_mean(self) -> float:
        """Mean return; NaN where there were no episodes."""
        return float(np.mean(self.returns)) if self.returns else float("nan")

    @property
    def success_rate(self) -> float:
        """Share of episodes that reached the goal."""
        reached = [each > 0 for each in self.returns] if self.successes is None else self.successes
        return float(np.mean(reached)) if reached else float("nan")


class TwoEvaluations(NamedTuple):
    """What one run reached with each of the two ways to act."""

    sampled: Evaluation
    likeliest: Evaluation  # where actions are continuous, the mean


def evaluate_policies(policies: Policies, *, episodes: int, threads: int = 1) -> list[TwoEvaluations]:
    """Play episodes with loaded policies, in environments that are made for this, and give what each run reached.

    With as many episodes as in training, the numbers are those of the evaluation that the run made at this frame.

    Args:
        policies: Of one agent.
        episodes: For each run, and each of the two ways to act.
        threads: That step the environments; processes, where those are simulated in processes.
    """
    if episodes < 1:
        raise ValueError(f"episodes must be at least 1, got {episodes}")
    with computing_as(policies.configs[0].agent, policies.agent.device.type):
        sampled, likeliest = _play_both_ways(policies, episodes, threads)
    return [TwoEvaluations(*each) for each in zip(sampled, likeliest, strict=True)]


def _play_both_ways(policies: Policies, episodes: int, threads: int) -> list[list[Evaluation]]:
    agent, configs, frame = policies.agent, policies.configs, policies.frame
    ways = (True, False)  # sampled, then likeliest
    if isinstance(agent, A2C):
        return [
            play_grids(agent, configs, frame=frame, episodes=episodes, sampled=way, threads=threads) for way in ways
        ]
    if isinstance(agent, SAC):
        tasks = [config.task.partition("/")[2] for config in configs for _ in range(episodes)]
        with closing(DMCStates(tasks, processes=min(threads, len(tasks)))) as states:
            return [play_states(agent, configs, states, frame=frame, episodes=episodes, sampled=way) for way in ways]
    (config,) = configs
    world = Pixels(
        [config.task] * episodes,
        rendering=config.picture_quality,
        goal_marker=config.shows_goal,
        device=str(agent.device),
        processes=min(threads, episodes),
    )
    with closing(world) as pictures:
        return [[play_pictures(agent, config, pictures, frame=frame, sampled=way)] for way in ways]


def play_grids(
    agent: A2C, configs: Sequence[RunConfig], *, frame: int, episodes: int, sampled: bool, threads: int = 1
) -> list[Evaluation]:
    """Play episodes with every learner. Learners of one task stand side by side, and play together.

    Each environment plays a fixed number of episodes, so that short ones do not crowd out long ones. Layouts and
    actions depend on the run's seed and the frame alone.
    """
    results: list[Evaluation] = []
    for _, group in groupby(configs, key=lambda config: config.task):
        mine = list(group)
        learners = slice(len(results), len(results) + len(mine))
        results += _play_task(agent, learners, mine, frame=frame, episodes=episodes, sampled=sampled, threads=threads)
    return results


def _play_task(
    agent: A2C,
    learners: slice,
    configs: Sequence[RunConfig],
    *,
    frame: int,
    episodes: int,
    sampled: bool,
    threads: int,
) -> list[Evaluation]:
    """Play episodes of one task with the learners that it belongs to."""
    results = [Evaluation([], []) for _ in configs]
    if episodes == 0:
        return results
    width = min(MOST_ENVIRONMENTS, episodes)
    generators = [numbers(config.seed, "evaluation", frame) for config in configs]
    seeds = [seed for each in generators for seed in episode_seeds(each, width)]
    backend: Any = configs[0].backend
    environments = make_environments(configs[0].task, seeds, backend=backend, threads=threads)
    quota = np.array([episodes // width + (place < episodes % width) for place in range(width)])
    left = np.tile(quota, len(configs))
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), dtype=np.int64)
    observations, _ = environments.reset()
    while (left > 0).any():
        shown = torch.from_numpy(observations).view(len(configs), width, *observations.shape[1:]).to(agent.device)
        noise = None
        if sampled:
            drawn = np.stack([each.random(width, dtype=np.float32) for each in generators])
            noise = torch.from_numpy(drawn).to(agent.device)
        environments.send(agent.act(shown, noise, learners).flatten().cpu().numpy())
        step = environments.receive()
        returns += step.rewards
        lengths += 1
        for place in np.flatnonzero(step.ended & (left > 0)):
            results[place // width].returns.append(float(returns[place]))
            results[place // width].lengths.append(int(lengths[place]))
        left -= step.ended
        returns[step.ended], lengths[step.ended] = 0, 0
        observations = step.observations
    environments.close()
    return results


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


def play_pictures(agent: DrQv2, config: RunConfig, environments: Pixels, *, frame: int, sampled: bool) -> Evaluation:
    """Play an episode in each environment.

    Where episodes begin and which actions are drawn depends on the run's seed and the frame alone.
    """
    generator = numbers(config.seed, "evaluation", frame)
    count, channels = environments.count, environments.frame_shape[0]
    seeds = episode_seeds(generator, count)
    shown = np.tile(environments.reset(seeds), (1, STACK, 1, 1))
    returns, lengths = np.zeros(count), np.zeros(count, dtype=np.int64)
    goes_on, succeeded = np.ones(count, dtype=np.bool_), np.zeros(count, dtype=np.bool_)
    while goes_on.any():
        noise = None
        if sampled:
            noise = torch.from_numpy(generator.standard_normal((count, environments.action_size), dtype=np.float32))
        actions = agent.act(torch.from_numpy(shown), noise, step=frame // environments.action_repeat)
        environments.send(actions.cpu().numpy())
        step = environments.receive()
        returns += step.rewards * goes_on
        lengths += goes_on
        succeeded |= step.success & goes_on
        goes_on &= ~step.ended
        arrived = step.arrived
        if step.ended.any() and goes_on.any():  # another is played that does not count
            arrived = environments.reset([seed if over else None for seed, over in zip(seeds, step.ended, strict=True)])
        shown = np.concatenate((shown[:, channels:], arrived), 1)
    successes = succeeded.tolist() if environments.has_success else None
    return Evaluation(returns.tolist(), lengths.tolist(), successes)
