"""SAC with an exploration bonus, in one file.

All the bonus adds is the line marked VCSE in `update` and its construction in `main`; without them this is plain
SAC (Haarnoja et al. 2018) with a learned temperature. Actions are continuous; observations are vectors.

    python examples/sac.py --task MountainCarContinuous-v0 --bonus vcse
    python examples/sac.py --task Pendulum-v1 --bonus none --steps 10000 --log out/pendulum
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
import torch
import tyro
from gymnasium.spaces import Box
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch import Tensor, nn
from torch.nn.functional import mse_loss, softplus

from vcse.bonuses import Bonus, StateEntropy, ValueConditionalStateEntropy
from vcse.extras import install
from vcse.integrations import ReplayBonus

BONUSES: dict[str, Callable[[], Bonus]] = {
    "vcse": ValueConditionalStateEntropy,
    "se": StateEntropy,
}
LOG_STD_LIMITS = -5.0, 2.0  # of the policy before the tanh


@dataclass(frozen=True)
class Args:
    """Train SAC with an exploration bonus on a Gymnasium environment with continuous actions."""

    task: str = "MountainCarContinuous-v0"
    """An environment of Gymnasium, or of a module that registers it: module:id."""
    bonus: Literal["none", "vcse", "se"] = "vcse"
    """Which bonus, in its recommended preset."""
    beta: float = 0.02
    """One standard deviation of the bonus at the start, in units of the task's reward; it falls to 0 by the end."""
    steps: int = 20_000
    """How many actions are taken, in all environments together; each is followed by an update."""
    seed: int = 0
    """Of the environments, the networks, the actions and the batches."""
    environments: int = 1
    """How many run side by side."""
    warm_up_steps: int = 1_000
    """Random actions before the first update."""
    batch_size: int = 256
    """Transitions of an update."""
    hidden_units: int = 256
    """Of each of the two hidden layers of every network."""
    learning_rate: float = 1e-3
    """Of Adam."""
    discount: float = 0.99
    """γ."""
    target_rate: float = 0.005
    """How far target critics go to the critics after each update (τ)."""
    log: Path | None = None
    """Folder for TensorBoard."""


@dataclass(frozen=True)
class Episode:
    """One that has ended."""

    step: int  # actions taken by then, in all environments together
    task_return: float
    length: int
    terminated: bool  # by the task, not by a time limit


class Batch(NamedTuple):
    """Transitions, [n, ...]."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor  # the task's own
    next_observations: Tensor  # what the action led to, before any reset
    terminated: Tensor  # the task was over: nothing comes after. A time limit is none


class Replay:
    """Every transition of a run."""

    def __init__(self, capacity: int, size: int, action_size: int) -> None:
        widths = ((size,), (action_size,), (), (size,), ())
        self.stored, self.filled = Batch(*(torch.empty(capacity, *width) for width in widths)), 0

    def add(self, *transitions: np.ndarray[Any, Any]) -> None:
        """Store one transition of each environment."""
        rows = slice(self.filled, self.filled + len(transitions[0]))
        for stored, given in zip(self.stored, transitions, strict=True):
            stored[rows] = torch.as_tensor(given, dtype=torch.float32)
        self.filled = rows.stop

    def sample(self, count: int) -> Batch:
        """Sample transitions; what is done to them leaves the stored ones as they are."""
        rows = torch.randint(self.filled, (count,))
        return Batch(*(each[rows] for each in self.stored))


class Policy(nn.Module):
    """A normal distribution, squashed by tanh into the bounds of the actions."""

    def __init__(self, size: int, actions: Box, hidden_units: int) -> None:
        super().__init__()
        self.layers = network(size, 2 * actions.shape[0], hidden_units)
        low, high = torch.as_tensor(actions.low), torch.as_tensor(actions.high)
        self.scale, self.middle = nn.Buffer((high - low) / 2), nn.Buffer((high + low) / 2)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Sample actions, and compute the logarithms of their densities."""
        mean, spread = self.layers(observations).chunk(2, -1)
        low, high = LOG_STD_LIMITS
        log_std = low + (high - low) / 2 * (spread.tanh() + 1)
        noise = torch.randn_like(mean)
        raw = mean + log_std.exp() * noise
        log_density = -(noise**2 + math.log(2 * math.pi)) / 2 - log_std
        log_slope = 2 * (math.log(2) - raw - softplus(-2 * raw)) + self.scale.log()  # of the tanh and the scale
        return raw.tanh() * self.scale + self.middle, (log_density - log_slope).sum(-1)

    def greedy(self, observations: Tensor) -> Tensor:
        """Return the actions without noise."""
        mean: Tensor = self.layers(observations).chunk(2, -1)[0]
        return mean.tanh() * self.scale + self.middle


class Agent(nn.Module):
    """A policy, two critics, their targets and a temperature."""

    def __init__(self, size: int, actions: Box, args: Args) -> None:
        super().__init__()
        self.args, self.target_entropy = args, -float(actions.shape[0])
        self.policy = Policy(size, actions, args.hidden_units)
        self.critics = nn.ModuleList(network(size + actions.shape[0], 1, args.hidden_units) for _ in range(2))
        self.targets = copy.deepcopy(self.critics).requires_grad_(False)
        self.log_temperature = nn.Parameter(torch.zeros(()))
        learned = [*self.policy.parameters(), *self.critics.parameters(), self.log_temperature]
        self.optimizer = torch.optim.Adam(learned, lr=args.learning_rate)

    def update(self, batch: Batch, bonus: ReplayBonus | None) -> dict[str, float]:
        """Take one gradient step of everything, and return what to log."""
        observations, actions, rewards, next_observations, terminated = batch
        if bonus is not None:
            rewards += bonus(observations, actions, rewards, next_observations, terminated)  # VCSE
        temperature = self.log_temperature.exp().detach()
        with torch.no_grad():
            next_actions, log_densities = self.policy(next_observations)
            next_values = least(self.targets, next_observations, next_actions) - temperature * log_densities
            targets = rewards + self.args.discount * (1 - terminated) * next_values
        inputs = torch.cat((observations, actions), -1)
        critic_loss = torch.stack([mse_loss(critic(inputs).squeeze(-1), targets) for critic in self.critics]).sum()

        sampled, log_densities = self.policy(observations)
        self.critics.requires_grad_(False)  # the policy's loss is to move the policy alone
        policy_loss = (temperature * log_densities - least(self.critics, observations, sampled)).mean()
        self.critics.requires_grad_(True)
        temperature_loss = -(self.log_temperature * (log_densities.detach() + self.target_entropy)).mean()

        self.optimizer.zero_grad()
        (critic_loss + policy_loss + temperature_loss).backward()
        self.optimizer.step()
        torch._foreach_lerp_([*self.targets.parameters()], [*self.critics.parameters()], self.args.target_rate)
        shown = {"critic_loss": critic_loss, "policy_loss": policy_loss, "temperature": temperature}
        return {name: number.item() for name, number in shown.items()}


def least(critics: nn.ModuleList, observations: Tensor, actions: Tensor) -> Tensor:
    """Return the lesser Q(s, a) of two critics."""
    inputs = torch.cat((observations, actions), -1)
    first, second = (critic(inputs).squeeze(-1) for critic in critics)
    return torch.minimum(first, second)


def network(inputs: int, outputs: int, units: int) -> nn.Sequential:
    """Return a network of two hidden layers."""
    hidden = nn.Linear(inputs, units), nn.ReLU(), nn.Linear(units, units), nn.ReLU()
    return nn.Sequential(*hidden, nn.Linear(units, outputs))


def make_environments(task: str, count: int) -> tuple[SyncVectorEnv, int, Box]:
    """Return environments that begin the next episode in the step that ends one, size of observations, and actions."""
    envs = SyncVectorEnv([lambda: gymnasium.make(task)] * count, autoreset_mode=AutoresetMode.SAME_STEP)
    seen, actions = envs.single_observation_space, envs.single_action_space
    if not isinstance(seen, Box) or len(seen.shape) != 1 or not isinstance(actions, Box) or not actions.is_bounded():
        raise ValueError(f"task must have vectors as observations and bounded actions, {task} has {seen} and {actions}")
    return envs, seen.shape[0], actions


def tensorboard(folder: Path) -> Any:
    """Return what writes numbers for TensorBoard."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise ImportError(f"--log needs TensorBoard; {install('tensorboard')}") from error
    return SummaryWriter(str(folder))


def main(args: Args) -> tuple[Agent, list[Episode]]:
    """Train, and return the agent and its episodes."""
    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    envs, size, box = make_environments(args.task, args.environments)
    agent = Agent(size, box, args)
    bonus = None
    if args.bonus != "none":
        told = (agent.policy.greedy, (size,), box.shape[0])
        bonus = ReplayBonus(*told, bonus=BONUSES[args.bonus](), discount=args.discount, seed=args.seed)
    writer = None if args.log is None else tensorboard(args.log)
    replay, episodes = Replay(args.steps, size, box.shape[0]), list[Episode]()
    envs.action_space.seed(args.seed)
    observations, _ = envs.reset(seed=args.seed * envs.num_envs)
    returns, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, dtype=int)
    for step in range(envs.num_envs, args.steps + 1, envs.num_envs):
        actions = envs.action_space.sample()
        if step > args.warm_up_steps:
            with torch.no_grad():
                actions = agent.policy(torch.as_tensor(observations, dtype=torch.float32))[0].numpy()
        shown, rewards, terminated, truncated, info = envs.step(actions)
        ended, reached = terminated | truncated, shown.copy()
        returns, lengths = returns + rewards, lengths + 1
        for index in np.flatnonzero(ended):
            reached[index] = info["final_obs"][index]
            episodes.append(Episode(step, float(returns[index]), int(lengths[index]), bool(terminated[index])))
            print(f"{step:>9,} steps   return {returns[index]:.4g}   length {lengths[index]}")
        returns, lengths = np.where(ended, 0, returns), np.where(ended, 0, lengths)
        replay.add(observations, actions, rewards, reached, terminated)
        observations = shown
        if bonus is not None:
            bonus.beta = args.beta * (1 - step / args.steps)
        for _ in range(envs.num_envs if step >= args.warm_up_steps else 0):
            logged = agent.update(replay.sample(args.batch_size), bonus)
        if writer is not None and step >= args.warm_up_steps and step % 100 < envs.num_envs:
            latest = {"return": episodes[-1].task_return} if episodes else {}
            for name, number in (logged | latest | (bonus.metrics() if bonus else {})).items():
                writer.add_scalar(name, number, step)
    envs.close()
    return agent, episodes


if __name__ == "__main__":
    main(tyro.cli(Args))
