"""Evaluation: whole episodes of a policy in environments of their own, sampled or by the likeliest action."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from vcse.agents.a2c import A2C
from vcse.agents.drqv2 import DrQv2
from vcse.agents.sac import SAC
from vcse.envs.dmc import DMCStates
from vcse.envs.pixels import Pixels
from vcse.envs.tasks import make_environments
from vcse.replay.frames import STACK
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


def evaluate(
    agent: A2C, configs: Sequence[RunConfig], *, frame: int, episodes: int, sampled: bool, threads: int = 1
) -> list[Evaluation]:
    """Play episodes with every learner.

    Each environment plays a fixed number of episodes, so that short ones do not crowd out long ones. Layouts and
    actions depend on the run's seed and the frame alone.
    """
    results = [Evaluation([], []) for _ in configs]
    width = min(MOST_ENVIRONMENTS, episodes)
    start = 0
    while start < len(configs):
        stop = start
        while stop < len(configs) and configs[stop].task == configs[start].task:
            stop += 1
        _play(agent, configs, slice(start, stop), results, frame, (width, episodes), sampled, threads)
        start = stop
    return results


def _play(
    agent: A2C,
    configs: Sequence[RunConfig],
    learners: slice,
    results: list[Evaluation],
    frame: int,
    widths: tuple[int, int],
    sampled: bool,
    threads: int,
) -> None:
    width, episodes = widths
    if episodes == 0:
        return
    mine = configs[learners]
    generators = [numbers(config.seed, "evaluation", frame) for config in mine]
    seeds = [seed for each in generators for seed in episode_seeds(each, width)]
    environments = make_environments(mine[0].task, seeds, backend=mine[0].backend, threads=threads)  # type: ignore[arg-type]
    quota = np.array([episodes // width + (place < episodes % width) for place in range(width)])
    left = np.tile(quota, len(mine))
    returns, lengths = np.zeros(len(seeds)), np.zeros(len(seeds), dtype=np.int64)
    observations, _ = environments.reset()
    while (left > 0).any():
        shown = torch.from_numpy(observations).view(len(mine), width, *observations.shape[1:]).to(agent.device)
        noise = None
        if sampled:
            drawn = np.stack([each.random(width, dtype=np.float32) for each in generators])
            noise = torch.from_numpy(drawn).to(agent.device)
        environments.send(agent.act(shown, noise, learners).flatten().cpu().numpy())
        step = environments.receive()
        returns += step.rewards
        lengths += 1
        for place in np.flatnonzero(step.ended & (left > 0)):
            result = results[learners.start + place // width]
            result.returns.append(float(returns[place]))
            result.lengths.append(int(lengths[place]))
        left -= step.ended
        returns[step.ended], lengths[step.ended] = 0, 0
        observations = step.observations
    environments.close()


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
