"""What the bonus costs in agents of Stable-Baselines3, and how well its extrinsic critic explains returns.

A plain agent and one with `ValueConditionalBonus(beta=0)` take turns at training, in one process on one core, with the
library's default hyper-parameters but for those that a row names. At beta = 0 all of the bonus is computed and the
agents stay equal bit for bit, so that both do the same work but for the bonus. Time is the processor time of this
process, which depends little on what else the machine does; the cost is the median, over all turns, of the ratio of
the times.

In the second half of training both critics of the agent with the bonus, its own and the extrinsic one, are held against
returns in fresh environments, by their explained variance. For on-policy agents these are λ-returns, on which both are
trained; for off-policy agents, sums of discounted rewards under the deterministic policy. Beyond the last step the
critic's own value is added. Of twin critics the minimum counts. SAC's own critic is trained on the entropy as well,
which these returns leave out, because the extrinsic critic excludes it.
"""

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from vcse.integrations.base import explained_variance
from vcse.returns import gae
from vcse.runs.arithmetic import EXACT, computing_with

ENVIRONMENTS, STEPS = 8, 400  # whose returns are explained: two episodes of Pendulum each
EVALUATIONS = 5  # of both critics


class Case(NamedTuple):
    """An agent to measure."""

    algorithm: str
    task: str
    turn_frames: int
    turns: int  # beside the first, which is not timed: in it off-policy agents fill their replay buffers
    n_steps: int | None = None  # the library's default if not given


# Long enough for the returns to be explained, and not so long that CartPole is solved and has equal returns.
CASES = (
    Case("PPO", "CartPole-v1", 2048, 16),
    Case("A2C", "CartPole-v1", 2048, 16, n_steps=32),  # the default of 5 is less than k
    Case("SAC", "Pendulum-v1", 250, 24),
    Case("TD3", "Pendulum-v1", 250, 24),
    Case("DQN", "CartPole-v1", 2000, 16),
)


@dataclass(frozen=True)
class Row:
    """One row of the results."""

    library: str
    algorithm: str
    task: str
    frames_per_s: float  # with the bonus, per second of processor time
    plain_frames_per_s: float
    times_plain: float
    explained_variance: float  # of returns of the task's rewards, by the extrinsic critic
    own_explained_variance: float  # by the agent's own critic


@dataclass
class Trainee:
    """An agent that trains turn by turn."""

    agent: Any
    callback: Any = None  # adds the bonus
    frames_per_s: list[float] = field(default_factory=list)

    def train(self, frames: int) -> None:
        """Train for some frames, and note how fast."""
        frames_before, start = self.agent.num_timesteps, time.process_time()
        self.agent.learn(frames, callback=self.callback, reset_num_timesteps=False)
        self.frames_per_s.append((self.agent.num_timesteps - frames_before) / (time.process_time() - start))

    @property
    def is_off_policy(self) -> bool:
        """Whether the agent has a replay buffer."""
        return hasattr(self.agent, "replay_buffer")

    def values(self, observations: Float[Tensor, "n d"]) -> Float[Tensor, " n"]:
        """Compute the values of states, by the extrinsic critic if there is one and by the agent's own otherwise."""
        agent, has_bonus = self.agent, self.callback is not None
        if not self.is_off_policy:
            values = self.callback.part.critic(observations) if has_bonus else agent.policy.predict_values(observations)
        elif has_bonus:
            values = self.callback.part.critic(observations, greedy(agent, observations))
        elif hasattr(agent, "q_net"):
            values = agent.q_net(observations).amax(1)
        else:
            values = torch.cat(agent.critic(observations, greedy(agent, observations)), 1).amin(1)
        flat: Tensor = values.reshape(-1)
        return flat


def greedy(agent: Any, observations: Float[Tensor, "n d"]) -> Tensor:
    """Return the actions of an agent without exploration, scaled as its critic takes them."""
    from vcse.integrations.sb3_replays import DeterministicPolicy

    return DeterministicPolicy(agent.policy)(observations)


def measure(cases: Sequence[Case] = CASES) -> Iterator[Row]:
    """Measure cases one after the other."""
    return map(_measure_case, cases)


@computing_with(EXACT)
def _measure_case(case: Case) -> Row:
    import stable_baselines3

    from vcse.integrations.sb3 import ValueConditionalBonus

    def new_agent() -> Any:
        algorithm = getattr(stable_baselines3, case.algorithm)
        arguments = {} if case.n_steps is None else {"n_steps": case.n_steps}
        return algorithm("MlpPolicy", case.task, seed=0, device="cpu", **arguments)

    plain, paid = both = Trainee(new_agent()), Trainee(new_agent(), ValueConditionalBonus(beta=0.0))
    explained: dict[str, list[float]] = {"extrinsic": [], "own": []}
    for turn in range(case.turns + 1):
        # Which of them comes first alternates, because it finds another state of the caches.
        for each in both if turn % 2 else reversed(both):
            each.train(case.turn_frames)
        if turn in np.linspace(case.turns / 2, case.turns, EVALUATIONS).round():
            explained["extrinsic"].append(_explained_variance(paid, case.task, seed=turn))
            explained["own"].append(_explained_variance(Trainee(paid.agent), case.task, seed=turn))
    speed, plain_speed = paid.frames_per_s[1:], plain.frames_per_s[1:]
    return Row(
        library=f"stable-baselines3 {stable_baselines3.__version__}",
        algorithm=case.algorithm if case.n_steps is None else f"{case.algorithm} (n_steps={case.n_steps})",
        task=case.task,
        frames_per_s=statistics.median(speed),
        plain_frames_per_s=statistics.median(plain_speed),
        times_plain=statistics.median(without / with_it for without, with_it in zip(plain_speed, speed, strict=True)),
        explained_variance=statistics.median(explained["extrinsic"]),
        own_explained_variance=statistics.median(explained["own"]),
    )


@torch.no_grad()
def _explained_variance(trainee: Trainee, task: str, *, seed: int) -> float:
    """Compute the explained variance of returns in fresh environments."""
    states, rewards, next_states, terminated, ended = _act(trainee, task, seed=seed)
    values, next_values = (trainee.values(each.flatten(0, 1)).view_as(rewards) for each in (states, next_states))
    returns = values + gae(
        *(rewards, values, next_values, terminated, ended),
        discount=trainee.agent.gamma,
        gae_lambda=1.0 if trainee.is_off_policy else trainee.agent.gae_lambda,
    )
    return explained_variance(values.flatten(), returns.flatten()).item()


def _act(trainee: Trainee, task: str, *, seed: int) -> list[Tensor]:
    """Act in fresh environments: observations, rewards, next observations, terminated and ended, environments first."""
    from stable_baselines3.common.env_util import make_vec_env

    transitions: list[tuple[Any, ...]] = []
    envs = make_vec_env(task, ENVIRONMENTS, seed=seed)
    observations = envs.reset()
    for _ in range(STEPS):
        actions, _ = trainee.agent.predict(observations, deterministic=trainee.is_off_policy)
        new_observations, rewards, ended, infos = envs.step(actions)
        truncated = np.array([info.get("TimeLimit.truncated", False) for info in infos])
        pairs = zip(infos, new_observations, strict=True)
        next_observations = np.stack([info.get("terminal_observation", new) for info, new in pairs])
        transitions.append((observations, rewards, next_observations, ended & ~truncated, ended))
        observations = new_observations
    envs.close()
    return [torch.from_numpy(np.stack(column, axis=1)) for column in zip(*transitions, strict=True)]
