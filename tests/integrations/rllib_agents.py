"""Small learners of RLlib, and made-up episodes that they learn from; no cluster is started."""

import numpy as np
import torch
from gymnasium import spaces
from integrations.common import copy_of
from ray.rllib.algorithms.dqn import DQNConfig
from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.algorithms.sac import SACConfig
from ray.rllib.core import DEFAULT_MODULE_ID, Columns
from ray.rllib.core.rl_module.apis import ValueFunctionAPI
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.torch import TorchRLModule
from ray.rllib.env.single_agent_episode import SingleAgentEpisode
from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
from ray.rllib.utils.replay_buffers.prioritized_episode_buffer import PrioritizedEpisodeReplayBuffer

from vcse.bonuses import RewardScaling, ValueConditionalStateEntropy
from vcse.integrations.rllib import DQNBonusLearner, PPOBonusLearner, SACBonusLearner

BATCH, GAMMA, STEPS_OF_RETURN = 24, 0.9, 2
STATES, CONTINUOUS, DISCRETE = spaces.Box(-1, 1, (3,)), spaces.Box(-1, 1, (2,)), spaces.Discrete(3)
AGENTS = {
    "ppo": (PPOConfig, PPOBonusLearner, DISCRETE, {"minibatch_size": 16, "num_epochs": 2}),
    "sac": (SACConfig, SACBonusLearner, CONTINUOUS, {"target_entropy": -1.0}),
    "discrete sac": (SACConfig, SACBonusLearner, DISCRETE, {"target_entropy": 0.5}),
    "dqn": (DQNConfig, DQNBonusLearner, DISCRETE, {}),
}
OFF_POLICY = [kind for kind in AGENTS if kind != "ppo"]
MODEL = {"fcnet_hiddens": [16], "head_fcnet_hiddens": [16]}


class Linear(TorchRLModule, ValueFunctionAPI):
    """A module for observations that are dictionaries of vectors, for which RLlib has no default."""

    def setup(self):
        sizes = [space.shape[0] for space in self.observation_space.spaces.values()]
        self.layer = torch.nn.Linear(sum(sizes), self.action_space.n + 1)

    def _outputs(self, batch):
        return self.layer(torch.cat([*batch[Columns.OBS].values()], -1))

    def _forward(self, batch, **_):
        return {Columns.ACTION_DIST_INPUTS: self._outputs(batch)[:, :-1]}

    def compute_values(self, batch, embeddings=None):
        return self._outputs(batch)[:, -1]


def configured(kind, beta=None, *, model=None, **options):
    """Return the configuration of a small agent, with a bonus if beta is given."""
    made, learner, _, own = AGENTS[kind]
    config = made().environment("CartPole-v1").env_runners(num_env_runners=0).debugging(seed=0)
    config = config.rl_module(model_config=DefaultModelConfig(**MODEL | (model or {})))
    config = config.training(gamma=GAMMA, train_batch_size_per_learner=BATCH, **own)
    if beta is not None:
        scaling = RewardScaling("standardized", statistics="running")
        given = {"beta": beta, "bonus": ValueConditionalStateEntropy.recommended(k=5, scaling=scaling)} | options
        config = config.learners(learner_class=learner, learner_config_dict={"bonus": given})
    return config


def make(kind, beta=None, *, space=STATES, change=lambda config: config, **choices):
    """Return a learner, with a bonus if beta is given."""
    torch.manual_seed(0)
    config = change(configured(kind, beta, **choices))
    names = config.policies if config.is_multi_agent else [DEFAULT_MODULE_ID]
    return config.build_learner(spaces=dict.fromkeys(names, (space, AGENTS[kind][2])))


def episodes(*, space=STATES, actions=DISCRETE, seed=0, lengths=(9, 12, 7), ends=("terminated", "truncated", None)):
    """Return made-up episodes: one that is over, one that a time limit ended and one that goes on, by default."""
    generator, made = np.random.default_rng(seed), []
    space.seed(seed)
    actions.seed(seed)
    outputs = int(actions.n) if isinstance(actions, spaces.Discrete) else 2 * actions.shape[0]
    for length, end in zip(lengths, ends, strict=True):
        episode = SingleAgentEpisode(
            observations=[space.sample() for _ in range(length + 1)],
            actions=[actions.sample() for _ in range(length)],
            rewards=[*generator.normal(size=length)],
            terminated=end == "terminated",
            truncated=end == "truncated",
            extra_model_outputs={
                Columns.ACTION_DIST_INPUTS: [*generator.normal(size=(length, outputs)).astype(np.float32)],
                Columns.ACTION_LOGP: [*-generator.random(length, dtype=np.float32)],
            },
            observation_space=space,
            action_space=actions,
            len_lookback_buffer=0,
        )
        made.append(episode.to_numpy())
    return made


def sampled(kind, *, seed=0, n_step=STEPS_OF_RETURN, space=STATES):
    """Return what a replay buffer of made-up episodes samples, and these."""
    stored = episodes(space=space, actions=AGENTS[kind][2], lengths=(6,) * 8, ends=("terminated", "truncated") * 4)
    buffer = PrioritizedEpisodeReplayBuffer(capacity=1000)
    buffer.rng = np.random.default_rng(seed)
    buffer.add(stored)
    return buffer.sample(num_items=BATCH, n_step=n_step, gamma=GAMMA, beta=0.4, sample_episodes=True), buffer.episodes


def experience(kind, *, seed=0):
    """Return what an agent learns from in one update."""
    return episodes(seed=seed) if kind == "ppo" else sampled(kind, seed=seed)[0]


def update(learner, kind, *, seed=0, steps=100):
    """Update a learner once, with random numbers of its own."""
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - RLlib shuffles with it
    epochs = {"num_epochs": 2, "minibatch_size": 16, "shuffle_batch_per_epoch": True} if kind == "ppo" else {}
    counted = {NUM_ENV_STEPS_SAMPLED_LIFETIME: steps}
    return learner.update(episodes=experience(kind, seed=seed), timesteps=counted, **epochs)


def batch_of(learner, given):
    """Return the train batch that a learner makes of episodes."""
    made = learner._learner_connector(
        rl_module=learner.module, batch={}, episodes=given, shared_data={}, metrics=learner.metrics
    )
    return made[DEFAULT_MODULE_ID]


def weights(learner):
    return copy_of(learner.module[DEFAULT_MODULE_ID])
