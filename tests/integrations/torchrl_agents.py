"""Small agents of TorchRL."""

import torch
from tensordict.nn import NormalParamExtractor, TensorDictModule
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import GymEnv, SerialEnv, StepCounter, TransformedEnv
from torchrl.modules import ProbabilisticActor, QValueActor, TanhNormal, ValueOperator
from torchrl.objectives import A2CLoss, ClipPPOLoss, DDPGLoss, DQNLoss, SACLoss, SoftUpdate, TD3Loss
from torchrl.objectives.value import GAE

from vcse.bonuses import RewardScaling, ValueConditionalStateEntropy
from vcse.integrations.torchrl import ReplayReward, RolloutReward


def pendulum():
    return TransformedEnv(GymEnv("Pendulum-v1"), StepCounter(20))


def network(inputs, outputs):
    return nn.Sequential(nn.Linear(inputs, 16), nn.Tanh(), nn.Linear(16, outputs))


def gaussian():
    """Return an actor with dropout, which would show if anything of it were used in passing."""
    layers = nn.Sequential(network(3, 2), nn.Dropout(0.1), NormalParamExtractor())
    return ProbabilisticActor(
        TensorDictModule(layers, ["observation"], ["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        distribution_kwargs={"low": -2.0, "high": 2.0},
        return_log_prob=True,
    )


def choices(beta):
    scaling = RewardScaling("standardized", statistics="running")
    return {"beta": beta, "bonus": ValueConditionalStateEntropy.recommended(k=5, scaling=scaling)}


def collector(agent, frames, batches):
    counted = {"frames_per_batch": frames, "total_frames": frames * batches}
    return Collector(agent.env, agent.actor, auto_register_policy_transforms=False, **counted)


class OnPolicy:
    """A2C or PPO on two pendulums, with TorchRL's own parts."""

    def __init__(self, loss, beta=None):
        torch.manual_seed(0)
        self.env = SerialEnv(2, pendulum)
        self.env.set_seed(0)
        self.actor, self.value = gaussian(), ValueOperator(network(3, 1), in_keys=["observation"])
        self.advantage = GAE(gamma=0.99, lmbda=0.95, value_network=self.value)
        self.loss = loss(self.actor, self.value)
        self.optimizer = torch.optim.Adam(self.loss.parameters(), 1e-3)
        self.bonus = None if beta is None else RolloutReward.from_env(self.env, **choices(beta))

    def collect(self, batches):
        return collector(self, 128, batches)

    def learn(self, batch):
        if self.bonus is not None:
            self.bonus(batch)
        for _ in range(2):
            with torch.no_grad():
                self.advantage(batch)
            losses = self.loss(batch.reshape(-1))
            self.optimizer.zero_grad()
            sum(losses[name] for name in ("loss_objective", "loss_critic")).backward()
            self.optimizer.step()
        return batch

    def parts(self):
        return [part for part in (self.loss, self.optimizer, self.bonus) if part is not None]


class Concatenated(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.layers = layers

    def forward(self, *inputs):
        return self.layers(torch.cat(inputs, -1))


class OffPolicy:
    """SAC, TD3 or DDPG on a pendulum, or DQN on CartPole, with TorchRL's own parts."""

    def __init__(self, loss, beta=None, *, prefetch=None, transform=True):
        torch.manual_seed(0)
        self.env = TransformedEnv(GymEnv("CartPole-v1"), StepCounter(20)) if loss is DQNLoss else pendulum()
        self.env.set_seed(0)
        critic = ValueOperator(Concatenated(network(4, 1)), in_keys=["observation", "action"])
        spec = self.env.action_spec
        if loss is SACLoss:
            self.actor = gaussian()
            self.loss = SACLoss(self.actor, critic, action_spec=spec)
        elif loss is DQNLoss:
            self.actor = QValueActor(network(4, 2), in_keys=["observation"], spec=spec)
            self.loss = DQNLoss(self.actor, action_space=spec)
        else:
            self.actor = TensorDictModule(nn.Sequential(network(3, 1), nn.Tanh()), ["observation"], ["action"])
            others = {"action_spec": spec} if loss is TD3Loss else {}
            self.loss = loss(self.actor, critic, **others)
        self.loss.make_value_estimator(gamma=0.99)
        self.target = SoftUpdate(self.loss, tau=0.005)
        self.optimizer = torch.optim.Adam(self.loss.parameters(), 1e-3)
        self.buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(500), batch_size=32, prefetch=prefetch)
        self.bonus = None if beta is None else ReplayReward.from_env(self.env, self.actor, **choices(beta))
        self.is_transform = transform
        if self.bonus is not None and transform:
            self.buffer.append_transform(self.bonus)

    def collect(self, batches):
        return collector(self, 40, batches)

    def learn(self, batch):
        self.buffer.extend(batch.reshape(-1))
        for _ in range(3):
            sample = self.buffer.sample()
            if self.bonus is not None and not self.is_transform:
                sample = self.bonus(sample)
            losses = self.loss(sample)
            self.optimizer.zero_grad()
            sum(value for name, value in losses.items() if name.startswith("loss")).backward()
            self.optimizer.step()
            self.target.step()
        return sample

    def parts(self):
        return [part for part in (self.loss, self.optimizer, self.buffer, self.bonus) if part is not None]


AGENTS = {"ppo": (OnPolicy, ClipPPOLoss), "a2c": (OnPolicy, A2CLoss)} | {
    name: (OffPolicy, loss) for name, loss in {"sac": SACLoss, "td3": TD3Loss, "ddpg": DDPGLoss, "dqn": DQNLoss}.items()
}


def make(kind, beta=None, **others):
    which, loss = AGENTS[kind]
    return which(loss, beta, **others)


def trained(kind, beta=None, batches=3, **others):
    agent = make(kind, beta, **others)
    agent.last = [agent.learn(batch) for batch in agent.collect(batches)][-1]
    return agent
