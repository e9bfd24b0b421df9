"""Small agents of skrl, and made-up transitions that they are played."""

import logging

import gymnasium
import skrl
import torch
from gymnasium import spaces
from integrations.common import copy_of
from skrl.agents.torch.a2c import A2C
from skrl.agents.torch.ddpg import DDPG
from skrl.agents.torch.ppo import PPO
from skrl.agents.torch.rpo import RPO
from skrl.agents.torch.sac import SAC
from skrl.agents.torch.td3 import TD3
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.models.torch import CategoricalMixin, DeterministicMixin, GaussianMixin, Model
from skrl.trainers.torch import SequentialTrainer
from torch import nn

from vcse.bonuses import RewardScaling, ValueConditionalStateEntropy
from vcse.integrations.skrl import AgentBonus

skrl.logger.setLevel(logging.ERROR)
ENVIRONMENTS, STEPS, BATCH = 3, 16, 24
ON_POLICY = {"ppo": PPO, "a2c": A2C, "rpo": RPO}
OFF_POLICY = {"sac": SAC, "td3": TD3, "ddpg": DDPG}
AGENTS = ON_POLICY | OFF_POLICY
STATES, ACTIONS = spaces.Box(-8, 8, (3,)), spaces.Box(-2, 2, (1,))


class Layers(Model):
    """Two layers with dropout, which would show if the agent's models were used in passing."""

    def __init__(self, space, action_space, *, outputs=1, takes_actions=False):
        super().__init__(observation_space=space, action_space=action_space, device="cpu")
        self.takes_actions = takes_actions
        inputs = self.num_observations + (self.num_actions if takes_actions else 0)
        self.layers = nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Dropout(0.1), nn.Linear(16, outputs))

    def outputs(self, inputs):
        parts = [inputs["observations"], *([inputs["taken_actions"]] if self.takes_actions else [])]
        return self.layers(torch.cat(parts, -1))


class Gaussian(GaussianMixin, Layers):
    def __init__(self, space, action_space):
        Layers.__init__(self, space, action_space)
        GaussianMixin.__init__(self, clip_actions=True)
        self.log_std = nn.Parameter(torch.zeros(1))

    def compute(self, inputs, role):
        return 2 * torch.tanh(self.outputs(inputs)), {"log_std": self.log_std}


class Categorical(CategoricalMixin, Layers):
    def __init__(self, space, action_space):
        Layers.__init__(self, space, action_space, outputs=int(action_space.n))
        CategoricalMixin.__init__(self)

    def compute(self, inputs, role):
        return self.outputs(inputs), {}


class Deterministic(DeterministicMixin, Layers):
    def __init__(self, space, action_space, **choices):
        Layers.__init__(self, space, action_space, **choices)
        DeterministicMixin.__init__(self, clip_actions=not choices)

    def compute(self, inputs, role):
        return self.outputs(inputs), {}


def models(kind, space=STATES, actions=ACTIONS):
    def judge(**choices):
        return Deterministic(space, actions, outputs=1, **choices)

    if kind in ON_POLICY:
        policy = Categorical if isinstance(actions, spaces.Discrete) else Gaussian
        return {"policy": policy(space, actions), "value": judge()}
    names = (
        ["critic", "target_critic"]
        if kind == "ddpg"
        else ["critic_1", "critic_2", "target_critic_1", "target_critic_2"]
    )
    actors = (
        {"policy": Gaussian(space, actions)}
        if kind == "sac"
        else {name: Deterministic(space, actions) for name in ("policy", "target_policy")}
    )
    return actors | {name: judge(takes_actions=True) for name in names}


def bonus(beta, **choices):
    scaling = RewardScaling("standardized", statistics="running")
    made = {"bonus": ValueConditionalStateEntropy.recommended(k=5, scaling=scaling), "beta": beta} | choices
    return AgentBonus(**made)


def make(kind, beta=None, *, space=STATES, actions=ACTIONS, pays=bonus, **cfg):
    """Return an agent that is ready to learn, and paid where beta is given."""
    torch.manual_seed(0)
    size = STEPS if kind in ON_POLICY else 200
    memory = RandomMemory(memory_size=size, num_envs=ENVIRONMENTS, device="cpu")
    own = {"rollouts": STEPS} if kind in ON_POLICY else {"batch_size": BATCH, "learning_starts": 10}
    own |= {"experiment": {"write_interval": 0, "checkpoint_interval": 0}} | cfg
    agent = AGENTS[kind](
        models=models(kind, space, actions),
        memory=memory,
        observation_space=space,
        action_space=actions,
        device="cpu",
        cfg=own,
    )
    agent.part = None if beta is None else pays(beta).attach(agent)
    return agent


def transitions(count, *, space=STATES, actions=ACTIONS, seed=0):
    """Return made-up transitions of environments whose episodes end by termination and by time limits."""
    generator, made = torch.Generator().manual_seed(seed), []
    size = spaces.flatdim(space)
    observations = torch.randn(ENVIRONMENTS, size, generator=generator)
    for _ in range(count):
        next_observations = torch.randn(ENVIRONMENTS, size, generator=generator)
        terminated, truncated = torch.rand(2, ENVIRONMENTS, 1, generator=generator) < 0.1
        made.append(
            {
                "observations": observations,
                "states": None,
                "rewards": torch.randn(ENVIRONMENTS, 1, generator=generator),
                "next_observations": next_observations,
                "next_states": None,
                "terminated": terminated,
                "truncated": truncated,
                "infos": {},
            }
        )
        observations = next_observations
    return made


def play(agent, steps, *, start=0, timesteps=1000):
    """Do what a trainer does, with made-up transitions: all the randomness there is, is the agent's."""
    if not agent.training:
        agent.init()
        agent.enable_training_mode(True)
    for number, transition in enumerate(steps, start):
        now = {"timestep": number, "timesteps": timesteps}
        agent.pre_interaction(**now)
        with torch.no_grad():
            actions = agent.act(transition["observations"], None, **now)[0]
            given = transition | {"rewards": transition["rewards"].clone()}
            agent.record_transition(actions=actions, **given, **now)
        agent.post_interaction(**now)
    return agent


def weights(agent):
    return {name: copy_of(model) for name, model in agent.models.items()}


def train(kind, beta, **cfg):
    agent = make(kind, beta, **cfg)
    env = wrap_env(gymnasium.make_vec("Pendulum-v1", num_envs=ENVIRONMENTS, vectorization_mode="sync"), verbose=False)
    steps = 3 * STEPS if kind in ON_POLICY else 20
    cfg = {"timesteps": steps, "headless": True, "disable_progressbar": True, "close_environment_at_exit": False}
    SequentialTrainer(env=env, agents=agent, cfg=cfg).train()
    env.close()
    return agent
