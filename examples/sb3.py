"""PPO or SAC of Stable-Baselines3 with an exploration bonus, in one file.

The bonus is one callback, in the line marked VCSE; without it this is plain Stable-Baselines3. PPO takes discrete
actions, SAC continuous ones. Observations are vectors, or grids of cells as in MiniGrid.

    python examples/sb3.py --task MiniGrid-DoorKey-6x6-v0 --bonus vcse --steps 300000
    python examples/sb3.py --task MountainCarContinuous-v0 --algorithm sac --bonus none --log out/mountain-car
"""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import gymnasium
import numpy as np
import torch
import tyro
from gymnasium.spaces import Box
from gymnasium.wrappers import TransformObservation
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.vec_env import VecEnv

from vcse.bonuses import (
    Bonus,
    EpisodicCounts,
    RandomNetworkDistillation,
    StateEntropy,
    ValueConditionalStateEntropy,
)
from vcse.integrations import encoder_for
from vcse.integrations.sb3 import BonusCallback

CELL_SCALE = 10.0  # MiniGrid encodes what is in a cell by integers up to 10


@dataclass(frozen=True)
class Args:
    """Train an agent of Stable-Baselines3 with an exploration bonus."""

    task: str = "MiniGrid-LavaGapS5-v0"
    """An environment of Gymnasium, or of a module that registers it: module:id."""
    algorithm: Literal["ppo", "sac"] = "ppo"
    """ppo for discrete actions, sac for continuous ones."""
    bonus: Literal["none", "vcse", "se", "rnd", "counts"] = "vcse"
    """Which bonus; each has mean 0 and standard deviation beta. Episodic counts need PPO."""
    beta: float = 0.02
    """One standard deviation of the bonus at the start, in units of the task's reward."""
    decays: bool = True
    """Decrease beta linearly to 0 over the training."""
    steps: int = 60_000
    """How many steps are taken, in all environments together."""
    seed: int = 0
    """Of the environments, the networks and the actions."""
    log: Path | None = None
    """Folder of TensorBoard logs; none are written if not given."""


@dataclass(frozen=True)
class Episode:
    """A completed episode."""

    step: int  # at which it ended, counted in all environments together
    task_return: float
    length: int
    terminated: bool  # by the task, not by a time limit


class Episodes(BaseCallback):
    """Records the returns of the task's own rewards of all completed episodes."""

    def __init__(self) -> None:
        super().__init__()
        self.ended: list[Episode] = []

    def _on_step(self) -> bool:
        for info in self.locals["infos"]:
            if "episode" in info:  # written by the Monitor in which make_vec_env wraps each environment
                stats, truncated = info["episode"], info.get("TimeLimit.truncated", False)
                self.ended.append(Episode(self.num_timesteps, float(stats["r"]), int(stats["l"]), not truncated))
        return True


def without_mission(env: gymnasium.Env[Any, Any]) -> gymnasium.Env[Any, Any]:
    """Return an environment that observes MiniGrid's partial view alone, channels first and divided by 10."""
    space = env.observation_space
    if not isinstance(space, gymnasium.spaces.Dict) or "mission" not in space.spaces:
        return env
    height, width, channels = space["image"].shape or ()
    grid = Box(0, 255 / CELL_SCALE, (channels, height, width), np.float32)
    return TransformObservation(
        env, lambda seen: np.moveaxis(seen["image"], -1, 0).astype(np.float32) / CELL_SCALE, grid
    )


def make_environments(args: Args) -> VecEnv:
    """Return eight environments for PPO, one for SAC."""
    task = f"minigrid:{args.task}" if args.task.startswith("MiniGrid-") else args.task
    count = 8 if args.algorithm == "ppo" else 1
    return make_vec_env(task, count, seed=args.seed, wrapper_class=without_mission)


def make_agent(args: Args, envs: VecEnv) -> BaseAlgorithm:
    """Return an untrained agent."""
    shared: dict[str, Any] = {"seed": args.seed, "device": "cpu", "tensorboard_log": args.log and str(args.log)}
    if args.algorithm == "ppo":
        return PPO(
            "MlpPolicy", envs, n_steps=128, batch_size=256, n_epochs=4, ent_coef=0.01, learning_rate=1e-3, **shared
        )
    layers = {"net_arch": [64, 64]}
    return SAC("MlpPolicy", envs, learning_rate=1e-3, policy_kwargs=layers, learning_starts=1_000, **shared)


def make_bonus(args: Args, envs: VecEnv) -> Bonus:
    """Return a bonus of mean 0 and standard deviation 1."""
    if args.bonus == "vcse":
        return ValueConditionalStateEntropy()
    if args.bonus == "se":
        return StateEntropy()
    if args.bonus == "counts":
        return EpisodicCounts(environments=envs.num_envs, scaling="standardized")
    encoder: Any = encoder_for(envs.observation_space.shape or ())
    return RandomNetworkDistillation(encoder.features, scaling="standardized")


def main(args: Args) -> tuple[BaseAlgorithm, list[Episode]]:
    """Train, and return the agent and its episodes."""
    torch.set_num_threads(1)  # networks of this size gain nothing by more
    envs, episodes = make_environments(args), Episodes()
    agent = make_agent(args, envs)
    callbacks: list[BaseCallback] = [episodes]
    if args.bonus != "none":
        bonus, decay_steps = make_bonus(args, envs), None if args.decays else math.inf
        callbacks += [BonusCallback(bonus, beta=args.beta, decay_steps=decay_steps, seed=args.seed)]  # VCSE
    agent.learn(args.steps, callback=callbacks)
    envs.close()
    latest = [each.task_return for each in episodes.ended[-100:]]
    print(f"{args.steps:>9,} steps   return {np.mean(latest):.3g}, the mean of the last {len(latest)} episodes")
    return agent, episodes.ended


if __name__ == "__main__":
    main(tyro.cli(Args))
