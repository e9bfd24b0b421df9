"""PPO with an exploration bonus, in one file.

All the bonus adds is the line marked VCSE in `main` and its construction above the loop; without them this is
plain PPO (Schulman et al. 2017). Actions are discrete; observations are vectors, or grids of cells as in MiniGrid.

    python examples/ppo.py --task MiniGrid-LavaGapS5-v0 --bonus vcse
    python examples/ppo.py --task CartPole-v1 --bonus none --log out/cartpole
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import gymnasium
import numpy as np
import torch
import tyro
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TransformObservation
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from vcse.bonuses import Bonus, StateEntropy, ValueConditionalStateEntropy
from vcse.extras import install
from vcse.integrations import RolloutBonus
from vcse.returns import gae

BONUSES: dict[str, Callable[[], Bonus]] = {
    "vcse": ValueConditionalStateEntropy,
    "se": StateEntropy,
}
LOGGED = ("return", "length", "failed")  # of the latest episodes


@dataclass(frozen=True)
class Args:
    """Train PPO with an exploration bonus on a Gymnasium environment with discrete actions."""

    task: str = "MiniGrid-LavaGapS5-v0"
    """An environment of Gymnasium, or of a module that registers it: module:id."""
    bonus: Literal["none", "vcse", "se"] = "vcse"
    """Which bonus, in its recommended preset."""
    beta: float = 0.02
    """One standard deviation of the bonus at the start, in units of the task's reward; it falls to 0 by the end."""
    steps: int = 60_000
    """How many actions are taken, in all environments together."""
    seed: int = 0
    """Of the environments, the networks and the actions."""
    environments: int = 8
    """How many run side by side."""
    rollout_steps: int = 128
    """Steps of each environment between two updates."""
    epochs: int = 4
    """How often an update sees each state."""
    minibatches: int = 4
    """Parts of a rollout in each epoch."""
    learning_rate: float = 1e-3
    """Of Adam at the start; it falls to 0 by the end."""
    discount: float = 0.99
    """γ."""
    gae_lambda: float = 0.95
    """λ of generalised advantage estimation."""
    clip: float = 0.2
    """How far the ratio of new and old probabilities may go from 1."""
    entropy_weight: float = 0.01
    """Of the policy's entropy in the loss."""
    log: Path | None = None
    """Folder for TensorBoard."""

    def __post_init__(self) -> None:
        if self.steps < (least := self.environments * self.rollout_steps):
            raise ValueError(f"steps must be at least environments * rollout_steps = {least}, got {self.steps}")


@dataclass(frozen=True)
class Episode:
    """One that has ended."""

    step: int  # actions taken by then, in all environments together
    task_return: float
    length: int
    terminated: bool  # by the task, not by a time limit


class Rollout(NamedTuple):
    """Transitions, [steps, environments, ...]."""

    observations: Tensor
    actions: Tensor
    rewards: Tensor  # the task's own, until a bonus joins them
    next_observations: Tensor  # what the action led to, before any reset
    terminated: Tensor  # the task was over: nothing comes after
    truncated: Tensor  # a time limit ended the episode


class Agent(nn.Module):
    """A policy and a critic, each with a network of its own."""

    def __init__(self, shape: tuple[int, ...], actions: int) -> None:
        super().__init__()
        self.policy, self.critic = network(shape, actions, scale=0.01), network(shape, 1, scale=1.0)

    def forward(self, observations: Tensor) -> tuple[Tensor, Tensor]:
        """Compute the logarithms of the actions' probabilities, and V(s)."""
        inputs = observations.float()
        if inputs.ndim == 4:
            inputs = inputs.movedim(-1, 1) / 10  # channels first, and the numbers of cells at scale 1
        return self.policy(inputs).log_softmax(-1), self.critic(inputs).squeeze(-1)


def network(shape: tuple[int, ...], outputs: int, *, scale: float) -> nn.Sequential:
    """Return a network of two hidden layers for vectors, and of three convolutions and one hidden layer for grids."""
    if len(shape) == 1:
        layers: list[nn.Module] = [nn.Linear(shape[0], 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh()]
    elif len(shape) == 3 and min(shape[:2]) >= 4:
        convolutions = nn.Conv2d(shape[2], 16, 2), nn.ReLU(), nn.Conv2d(16, 32, 2), nn.ReLU(), nn.Conv2d(32, 64, 2)
        hidden = nn.Linear(64 * (shape[0] - 3) * (shape[1] - 3), 64)
        layers = [*convolutions, nn.ReLU(), nn.Flatten(), hidden, nn.Tanh()]
    else:
        raise ValueError(f"observations must be vectors or grids [height, width, channels], got shape {shape}")
    layers.append(nn.Linear(64, outputs))
    for layer in layers:
        if isinstance(layer, nn.Linear | nn.Conv2d) and layer.bias is not None:
            nn.init.orthogonal_(layer.weight, scale if layer is layers[-1] else math.sqrt(2))
            nn.init.zeros_(layer.bias)
    return nn.Sequential(*layers)


def make_environments(task: str, count: int) -> tuple[SyncVectorEnv, tuple[int, ...], int]:
    """Return environments that begin the next episode in the step that ends one, shape of observations and actions."""
    if task.startswith("MiniGrid-"):
        task = f"minigrid:{task}"  # the module that registers it

    def make() -> gymnasium.Env[Any, Any]:
        env = gymnasium.make(task)
        if not isinstance(env.observation_space, gymnasium.spaces.Dict):
            return env
        return TransformObservation(env, lambda shown: shown["image"], env.observation_space["image"])  # no mission

    envs = SyncVectorEnv([make] * count, autoreset_mode=AutoresetMode.SAME_STEP)
    seen, actions = envs.single_observation_space, envs.single_action_space
    if not isinstance(seen, Box) or not isinstance(actions, Discrete):
        raise ValueError(f"task must have a Box of observations and Discrete actions, {task} has {seen} and {actions}")
    return envs, seen.shape, int(actions.n)


def rollouts(agent: Agent, envs: SyncVectorEnv, args: Args, episodes: list[Episode]) -> Iterator[Rollout]:
    """Sample one rollout after the other, and note which episodes ended."""
    shown, _ = envs.reset(seed=args.seed * envs.num_envs)
    returns, lengths = np.zeros(envs.num_envs), np.zeros(envs.num_envs, dtype=int)
    step = 0
    while True:
        transitions = []
        for _ in range(args.rollout_steps):
            observations = torch.as_tensor(shown)
            with torch.no_grad():
                actions = torch.multinomial(agent(observations)[0].exp(), 1)
            shown, rewards, terminated, truncated, info = envs.step(actions.squeeze(1).numpy())
            ended = terminated | truncated
            reached = shown.copy()
            step, returns, lengths = step + envs.num_envs, returns + rewards, lengths + 1
            for index in np.flatnonzero(ended):
                reached[index] = info["final_obs"][index]
                episodes.append(Episode(step, float(returns[index]), int(lengths[index]), bool(terminated[index])))
            returns, lengths = np.where(ended, 0, returns), np.where(ended, 0, lengths)
            after = (torch.as_tensor(each) for each in (rewards.astype(np.float32), reached, terminated, truncated))
            transitions.append((observations, actions, *after))
        yield Rollout(*(torch.stack(each) for each in zip(*transitions, strict=True)))


def update(agent: Agent, optimizer: torch.optim.Optimizer, rollout: Rollout, args: Args) -> dict[str, float]:
    """Take the gradient steps of one rollout, and return what to log."""
    observations, actions = rollout.observations.flatten(0, 1), rollout.actions.flatten(0, 1)
    with torch.no_grad():
        old_policy, values = agent(observations)
        _, next_values = agent(rollout.next_observations.flatten(0, 1))
        both = (each.view_as(rollout.rewards) for each in (values, next_values))
        told = (each.T for each in (rollout.rewards, *both, rollout.terminated, rollout.terminated | rollout.truncated))
        advantages = gae(*told, discount=args.discount, gae_lambda=args.gae_lambda).T.flatten()
        returns = advantages + values
    for _ in range(args.epochs):
        for rows in torch.randperm(len(actions)).chunk(args.minibatches):
            policy, values = agent(observations[rows])
            ratio = (policy - old_policy[rows]).gather(1, actions[rows]).exp().squeeze(1)
            advantage = (advantages[rows] - advantages[rows].mean()) / (advantages[rows].std() + 1e-8)
            clipped = ratio.clamp(1 - args.clip, 1 + args.clip)
            policy_loss = -torch.minimum(advantage * ratio, advantage * clipped).mean()
            value_loss = mse_loss(values, returns[rows])
            entropy = -(policy.exp() * policy).sum(-1).mean()
            optimizer.zero_grad()
            (policy_loss + value_loss / 2 - args.entropy_weight * entropy).backward()
            nn.utils.clip_grad_norm_(agent.parameters(), max_norm=0.5)
            optimizer.step()
    return {"policy_loss": policy_loss.item(), "value_loss": value_loss.item(), "entropy": entropy.item()}


def summary(episodes: list[Episode], count: int = 100) -> dict[str, float]:
    """Return the mean return of the latest episodes, and the share that the task ended without a reward."""
    latest = episodes[-count:] or [Episode(0, math.nan, 0, False)]
    rows = [(each.task_return, each.length, each.terminated and each.task_return <= 0) for each in latest]
    return dict(zip(LOGGED, np.mean(rows, 0).tolist(), strict=True))


def tensorboard(folder: Path) -> Any:
    """Return what writes numbers for TensorBoard."""
    try:
        from torch.utils.tensorboard.writer import SummaryWriter
    except ImportError as error:
        raise ImportError(f"--log needs TensorBoard; {install('tensorboard')}") from error
    return SummaryWriter(str(folder))


def main(args: Args) -> tuple[Agent, list[Episode]]:
    """Train, and return the agent and its episodes."""
    torch.set_num_threads(1)  # networks of this size gain nothing by more
    torch.manual_seed(args.seed)
    envs, shape, actions = make_environments(args.task, args.environments)
    agent = Agent(shape, actions)
    optimizer = torch.optim.Adam(agent.parameters(), lr=args.learning_rate, eps=1e-5)
    bonus = None
    if args.bonus != "none":
        like: dict[str, Any] = {"discount": args.discount, "gae_lambda": args.gae_lambda, "seed": args.seed}
        bonus = RolloutBonus(shape, bonus=BONUSES[args.bonus](), **like)
    writer: Any = None if args.log is None else tensorboard(args.log)
    episodes: list[Episode] = []
    updates = args.steps // (args.environments * args.rollout_steps)
    for index, rollout in zip(range(updates), rollouts(agent, envs, args, episodes), strict=False):
        observations, _, rewards, next_observations, terminated, truncated = rollout
        left = 1 - index / updates
        if bonus is not None:
            bonus.beta = args.beta * left
            rewards += bonus(observations, rewards, next_observations, terminated, truncated)  # VCSE
        optimizer.param_groups[0]["lr"] = args.learning_rate * left
        shown = summary(episodes) | update(agent, optimizer, rollout, args) | (bonus.metrics() if bonus else {})
        step = (index + 1) * args.environments * args.rollout_steps
        for name, number in shown.items() if writer is not None else ():
            writer.add_scalar(name, number, step)
            writer.flush()
        if index % 10 == 9 or index == updates - 1:
            print(f"{step:>9,} steps   " + "   ".join(f"{name} {shown[name]:.3g}" for name in LOGGED))
    envs.close()
    return agent, episodes


if __name__ == "__main__":
    main(tyro.cli(Args))
