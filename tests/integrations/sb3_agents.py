"""Small agents of Stable-Baselines3 and sb3-contrib, and environments that draw no global random numbers."""

import copy

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from gymnasium.wrappers import TimeLimit
from integrations.common import same
from sb3_contrib import QRDQN, TQC, TRPO, CrossQ, MaskablePPO, RecurrentPPO
from stable_baselines3 import A2C, DDPG, DQN, PPO, SAC, TD3
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.preprocessing import is_image_space

from vcse.bonuses import RewardScaling, ValueConditionalStateEntropy
from vcse.integrations.sb3 import ValueConditionalBonus

ENVIRONMENTS, STEPS, BATCH = 2, 16, 16
ON_POLICY = {"ppo": PPO, "a2c": A2C, "trpo": TRPO, "maskable": MaskablePPO, "recurrent": RecurrentPPO}
CONTINUOUS = {"sac": SAC, "td3": TD3, "ddpg": DDPG, "tqc": TQC, "crossq": CrossQ}  # their actions
DISCRETE = {"dqn": DQN, "qrdqn": QRDQN}
OFF_POLICY = CONTINUOUS | DISCRETE
AGENTS = ON_POLICY | OFF_POLICY

VECTORS = spaces.Box(-1, 1, (3,))
IMAGES = spaces.Box(0, 255, (40, 36, 3), np.uint8)
DICTIONARIES = spaces.Dict(
    {"speed": VECTORS, "view": IMAGES, "cell": spaces.Discrete(5), "flags": spaces.MultiBinary(2)}
)


class RandomEnv(gymnasium.Env):
    """Random observations of a space, random rewards that depend on the action, and random terminations."""

    def __init__(self, space, action_space):
        self.observation_space, self.action_space = copy.deepcopy(space), copy.deepcopy(action_space)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        if seed is not None:
            self.observation_space.seed(seed)
        return self.observation_space.sample(), {}

    def step(self, action):
        reward = self.np_random.normal() + 0.1 * float(np.sum(action))
        return self.observation_space.sample(), reward, bool(self.np_random.random() < 0.05), False, {}

    def action_masks(self):
        return np.ones(self.action_space.n, dtype=bool)


class Clock(gymnasium.Env):
    """Observes how many steps the episode has had; action 1 terminates it, and every step has the same reward.

    With a period, it observes the remainder of their division by it.
    """

    def __init__(self, reward=1.0, *, named=False, period=100):
        self.action_space, self.reward, self.named, self.period = spaces.Discrete(2), reward, named, period
        space = spaces.Box(0, 10, (1,))
        self.observation_space = spaces.Dict({"time": space}) if named else space

    def seen(self):
        time = np.full(1, self.time % self.period, np.float32)
        return {"time": time} if self.named else time

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return self.seen(), {}

    def step(self, action):
        self.time += 1
        return self.seen(), self.reward, bool(action), False, {}

    def action_masks(self):
        return np.ones(2, dtype=bool)


def environments(kind, space=VECTORS, *, actions=None, count=ENVIRONMENTS, seed=0):
    actions = actions or (spaces.Box(-2, 2, (2,)) if kind in CONTINUOUS else spaces.Discrete(3))
    return make_vec_env(lambda: TimeLimit(RandomEnv(space, actions), 9), count, seed=seed)


def clocks(count=ENVIRONMENTS, **choices):
    return make_vec_env(lambda: TimeLimit(Clock(**choices), 3), count, seed=0)


def policy_of(kind, space):
    name = "MultiInput" if isinstance(space, spaces.Dict) else "Cnn" if is_image_space(space) else "Mlp"
    return f"{name}{'Lstm' if kind == 'recurrent' else ''}Policy"


def bonus(beta=1.0, *, k=5, **choices):
    """Return a callback whose bonus has state of its own, running statistics."""
    scaling = RewardScaling("standardized", statistics="running")
    return ValueConditionalBonus(
        bonus=ValueConditionalStateEntropy.recommended(k=k, scaling=scaling), beta=beta, **choices
    )


def make(kind, envs=None, **choices):
    """Return an untrained agent."""
    envs = environments(kind) if envs is None else envs
    space = envs.observation_space
    layers = {"net_arch": [8]}
    if isinstance(space, spaces.Dict):
        layers["features_extractor_kwargs"] = {"cnn_output_dim": 8}
    elif is_image_space(space):
        layers["features_extractor_kwargs"] = {"features_dim": 8}
    own = {"n_steps": STEPS} if kind in ON_POLICY else {"batch_size": BATCH, "learning_starts": 20, "buffer_size": 500}
    if kind in ("ppo", "trpo", "maskable", "recurrent"):
        own["batch_size"] = BATCH
    if kind in ("ppo", "maskable", "recurrent"):
        own["n_epochs"] = 2
    if kind == "recurrent":
        layers["lstm_hidden_size"] = 8
    if kind in DISCRETE:
        own["train_freq"] = 1
    known = {"policy_kwargs": layers, "seed": 0, "device": "cpu"}
    return quiet(AGENTS[kind](policy_of(kind, space), envs, **{**own, **known, **choices}))


def quiet(model):
    """Turn logging off, for which Stable-Baselines3 would create a folder."""
    model.set_logger(Logger(None, []))
    return model


def train(kind, callback=None, *, envs=None, steps=None, **choices):
    """Return an agent after three rollouts, or ten gradient steps."""
    steps = steps or (3 * STEPS * ENVIRONMENTS if kind in ON_POLICY else 20 + 10 * ENVIRONMENTS)
    return make(kind, envs, **choices).learn(steps, callback=callback)


def weights(model):
    """Return a copy of all parameters and running statistics of an agent."""
    return {name: each.detach().clone() for name, each in model.policy.state_dict().items()}


def assert_equal_but_not_to(plain, free, paid):
    """Assert that an agent with beta = 0 equals the plain one bit for bit, and one with beta > 0 does not."""
    assert same(weights(free), weights(plain))
    assert not same(weights(paid), weights(plain))


class Calls(BaseCallback):
    """Calls functions at each step, or when a rollout has ended."""

    def __init__(self, *, at_end=lambda callback: None, at_step=lambda callback: None):
        super().__init__()
        self.at_end, self.at_step = at_end, at_step

    def _on_step(self):
        self.at_step(self)
        return True

    def _on_rollout_end(self):
        self.at_end(self)


def continued(model, callback, *, envs, steps, seed=7):
    """Continue training from a reset, with reseeded random numbers."""
    quiet(model).set_env(envs)
    model.action_space.seed(seed)
    torch.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002 - from these Stable-Baselines3 draws
    return model.learn(steps, callback=callback, reset_num_timesteps=False)


def greedy(model, observations):
    """Return the actions of an agent that does not explore."""
    return model.predict(observations, deterministic=True)[0].tolist()
