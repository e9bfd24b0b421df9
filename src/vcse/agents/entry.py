"""What the program must know of each agent beside how it learns: one table.

What only a training loop knows is with the loop, as methods of its cohort (`protocol.py`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from vcse.agents.a2c.agent import A2CConfig
from vcse.agents.drqv2.agent import DrQv2Config
from vcse.agents.sac.agent import SACConfig
from vcse.agents.settings import a2c_config, drqv2_config, sac_config

AgentSettings = A2CConfig | SACConfig | DrQv2Config


class Schedule(NamedTuple):
    """How often a run looks at itself."""

    row_every_frames: int
    eval_every_frames: int  # 0: only at the end
    eval_episodes: int


class Arithmetic(NamedTuple):
    """What PyTorch is told."""

    float32_matmul_precision: Literal["high", "highest"]  # high: products of TF32 numbers, on a GPU
    cudnn_benchmark: bool  # look for the fastest convolution, once for every shape


class Habit(NamedTuple):
    """How films of a policy are made if nothing else is said."""

    episodes: int
    sampled: bool
    frames_per_second: int


@dataclass(frozen=True)
class AgentFacts:
    """What is known of an agent, whatever is trained with it."""

    settings: type[AgentSettings]
    settings_for: Callable[..., AgentSettings]  # a bonus, a reading, task=, and deviations that are named
    schedule: Schedule  # if nothing else is said
    least_runs: int  # of a process: fewer are not worth the seconds that it takes to start
    most_runs: Mapping[str, int]  # of a cohort, by device: more gain nothing
    on_gpu: Arithmetic  # in training and evaluation; neighbours are exact either way
    logs: tuple[str, ...]  # files of a run that grow with it
    policy: tuple[str, ...]  # what of its saved state is needed to act
    film: Habit
    recent_episodes: int  # of which the training curve shows the mean
    ends_at_goal: bool = False  # episodes end before their time limit, and those of successes first
    has_discrete_actions: bool = False
    sees_pictures: bool = False


# In MiniGrid a policy is judged by the actions that it draws, on layouts that differ much; elsewhere by its mean, in
# episodes that are long and much alike. A simulation is shown about as fast as it is. Large networks are twice as fast
# with TF32, and take so long for an update that a process is worth its start for one run.
AGENTS: dict[str, AgentFacts] = {
    "a2c": AgentFacts(
        settings=A2CConfig,
        settings_for=a2c_config,
        schedule=Schedule(row_every_frames=5_000, eval_every_frames=0, eval_episodes=100),
        least_runs=4,
        most_runs={"cpu": 24, "cuda": 320},
        on_gpu=Arithmetic("highest", cudnn_benchmark=False),
        logs=("actions.bin",),
        policy=("parameters", "squares"),
        film=Habit(episodes=3, sampled=True, frames_per_second=8),
        recent_episodes=100,
        ends_at_goal=True,
        has_discrete_actions=True,
    ),
    "sac": AgentFacts(
        settings=SACConfig,
        settings_for=sac_config,
        schedule=Schedule(row_every_frames=10_000, eval_every_frames=10_000, eval_episodes=10),
        least_runs=1,
        most_runs={"cpu": 4, "cuda": 48},
        on_gpu=Arithmetic("high", cudnn_benchmark=False),
        logs=("replay.bin",),
        policy=("actor",),
        film=Habit(episodes=1, sampled=False, frames_per_second=12),
        recent_episodes=10,
    ),
    "drqv2": AgentFacts(
        settings=DrQv2Config,
        settings_for=drqv2_config,
        schedule=Schedule(row_every_frames=10_000, eval_every_frames=10_000, eval_episodes=10),
        least_runs=1,
        most_runs={"cpu": 1, "cuda": 1},
        on_gpu=Arithmetic("high", cudnn_benchmark=True),
        logs=("frames.bin", "steps.bin"),
        policy=("acting",),
        film=Habit(episodes=1, sampled=False, frames_per_second=12),
        recent_episodes=10,
        sees_pictures=True,
    ),
}
