"""How trained policies of DrQ-v2 are loaded and played."""

from collections.abc import Hashable, Iterator, Sequence
from contextlib import closing

import numpy as np
import torch

from vcse.agents.drqv2.agent import DrQv2, DrQv2Spec
from vcse.agents.drqv2.settings import DrQv2Settings
from vcse.agents.entry import Policies, Saved
from vcse.bonuses.registry import NO_BONUS
from vcse.envs.moments import Moment
from vcse.envs.mujoco.pixels import ACTION_REPEAT, Pixels, pixel_spec
from vcse.envs.mujoco.recording import record_simulation
from vcse.replay.images import STACK
from vcse.runs.checkpoint import fitting
from vcse.runs.config import RunConfig
from vcse.runs.evaluation import Evaluation
from vcse.streams import episode_seeds, numbers


class DrQv2Player:
    """Plays in simulations, from stacks of images; one learner each."""

    def in_common(self, saved: Saved) -> tuple[Hashable, ...]:
        """Return the run itself: it is loaded alone."""
        return (saved.path,)

    def load(self, group: Sequence[Saved], device: str) -> DrQv2:
        """Return an agent with the policy of a run."""
        [saved] = group
        trained = DrQv2Settings.of(saved.config.settings)
        spec = DrQv2Spec(STACK * Pixels.frame_shape[0], pixel_spec(saved.config.task).action_size)
        settings = DrQv2Settings(
            bonus=NO_BONUS,
            action_noise=trained.action_noise,
            features=trained.features,
            hidden_units=trained.hidden_units,
            encoder_precision=trained.encoder_precision,
        )
        agent = DrQv2(spec, settings, saved.config.seed, device=device)
        with fitting(saved.path):
            agent.load_policy(saved.checkpoint.state["agent"])
        return agent

    def act(self, policies: Policies, observations: np.ndarray, generator: np.random.Generator | None) -> np.ndarray:
        """Return actions of the policy, for any number of stacks of images."""
        agent: DrQv2 = policies.agent
        noise = None
        if generator is not None:
            shape = (len(observations), agent.spec.action_size)
            noise = torch.from_numpy(generator.standard_normal(shape, dtype=np.float32))
        actions = agent.act(torch.from_numpy(observations), noise, step=policies.frame // ACTION_REPEAT)
        chosen: np.ndarray = actions.cpu().numpy()
        return chosen

    def evaluate(self, policies: Policies, *, episodes: int, threads: int) -> list[list[Evaluation]]:
        """Play episodes with sampled actions, and again with the mean."""
        [config] = policies.configs
        environments = Pixels(
            [config.task] * episodes,
            rendering=config.image_quality,
            goal_marker=config.shows_goal,
            device=str(policies.agent.device),
            processes=min(threads, episodes),
        )
        with closing(environments):
            return [
                [play_images(policies.agent, config, environments, frame=policies.frame, sampled=sampled)]
                for sampled in (True, False)
            ]

    def record(self, policies: Policies, *, episodes: int, sampled: bool, seed: int) -> Iterator[Moment]:
        """Play episodes, and render some frames of them."""

        def choose(recent: Sequence[np.ndarray], generator: np.random.Generator) -> np.ndarray:
            stack = np.concatenate(list(recent))[None]
            action: np.ndarray = self.act(policies, stack, generator if sampled else None)[0]
            return action

        config = policies.configs[0]
        return record_simulation(
            config.task,
            choose,
            episodes=episodes,
            seed=seed,
            recent=STACK,
            rendering=config.image_quality,
            goal_marker=config.shows_goal,
        )


def play_images(agent: DrQv2, config: RunConfig, environments: Pixels, *, frame: int, sampled: bool) -> Evaluation:
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
