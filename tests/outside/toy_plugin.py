"""A plug-in from outside of vcse: a family of tasks, a bonus and an agent, each of which stands alone.

VCSE_PLUGINS=toy_plugin vcse train --task corridor/short --agent climber --bonus distance
"""

import math
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch

from vcse import Bonus, BonusOutput, register_agent, register_bonus, register_family
from vcse.agents.entry import AgentEntry, Policies, Saved
from vcse.agents.presets import plain_settings
from vcse.bonuses import StackedBonus
from vcse.envs.interface import Family, Making, Step, TaskSpec
from vcse.envs.moments import Moment
from vcse.envs.tasks import make_environments, task_spec
from vcse.runs.checkpoint import check_replayed
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.evaluation import Evaluation, play_episodes
from vcse.runs.metrics import Episodes
from vcse.runs.progress import Status
from vcse.settings import AgentSettings, setting
from vcse.streams import episode_seed, episode_seeds, numbers

# ---- A family: corridors, at the far end of which is a reward ----------------------------------------------------

SIZES = {"short": (6.0, 20), "long": (20.0, 50)}  # the length of each, and its time limit


class Corridors:
    """Points on lines: an action moves one by up to 1, and the far end ends its episode with a reward of 1."""

    def __init__(self, names: Sequence[str], making: Making) -> None:
        self.count, self.most_steps = len(names), max(SIZES[name][1] for name in names)
        self.length, self.limit = np.array([SIZES[name] for name in names], dtype=np.float32).T
        self.place, self.steps = np.zeros((2, self.count), dtype=np.float32)

    def reset(self, seeds: Sequence[int | None] | None = None) -> np.ndarray:
        """Begin the episodes that have a seed, which says where."""
        for each, seed in enumerate(seeds or ()):
            if seed is not None:
                self.place[each], self.steps[each] = np.random.default_rng(seed).random(), 0
        return self.shown()

    def shown(self) -> np.ndarray:
        """Return how far each point is, and how much of its time is gone."""
        return np.stack([self.place / self.length, self.steps / self.limit], axis=1)

    def send(self, actions: np.ndarray) -> None:
        """Move every point; at the near end is a wall."""
        self.place = (self.place + np.clip(actions[:, 0], -1, 1)).clip(0, self.length).astype(np.float32)
        self.steps += 1

    def receive(self) -> Step:
        """Return where that led."""
        at_goal, late = self.place >= self.length, self.steps >= self.limit
        return Step(self.shown(), self.shown(), at_goal.astype(np.float32), at_goal, late & ~at_goal)

    def image(self) -> np.ndarray:
        """Draw the first corridor: the goal in green, and where the point is."""
        drawn = np.full((60, 360, 3), 40, dtype=np.uint8)
        drawn[:, 340:] = (40, 160, 80)
        drawn[20:40, int(330 * self.place[0] / self.length[0]) :][:, :20] = (240, 200, 60)
        return drawn

    def close(self) -> None:
        """Free nothing: nothing is held."""


def record(name: str, choose: Callable[..., Any], *, episodes: int, seed: int, **unused: Any) -> Iterator[Moment]:
    """Play episodes for a film; `choose` is the policy, from the last observations and a generator to an action."""
    world, generator = Corridors([name], Making()), np.random.default_rng(seed)
    for episode, begin in enumerate(episode_seeds(generator, episodes), start=1):
        observation, moment = world.reset([begin])[0], Moment(world.image(), episode, 0, 0.0, "")
        yield moment
        while not moment.outcome:
            world.send(choose([observation], generator)[None])
            told = world.receive()
            observation, total = told.observations[0], moment.return_so_far + float(told.rewards[0])
            outcome = "goal" if told.terminated[0] else "out of time" if told.truncated[0] else ""
            moment = Moment(world.image(), episode, moment.step + 1, total, outcome)
            yield moment


register_family(
    Family(
        "corridor",
        shows="state",
        about="how far, and how late",
        tasks=lambda: tuple(SIZES),
        spec=lambda name: TaskSpec(SIZES[name][1], observation_shape=(2,), action_size=1, rewards_only_the_goal=True),
        make=Corridors,
        record=record,
    )
)

# ---- A bonus: the distance to the mean of a batch ----------------------------------------------------------------


class Distance(Bonus):
    """Pays each feature its distance to the mean of its batch."""

    @torch.no_grad()
    def forward(self, features: torch.Tensor) -> BonusOutput:
        """Compute the reward of each feature."""
        self.check_features(features)
        return BonusOutput((features - features.mean(-2, keepdim=True)).norm(dim=-1))


register_bonus("distance", lambda choice, *, learners, **unused: Distance(learners=learners), kind=Distance)

# ---- An agent: a hill climber on the weights of a linear policy --------------------------------------------------


@dataclass(frozen=True)
class ClimberSettings(AgentSettings):
    """Settings of a climber; each is an option of `vcse train`."""

    beta: float = setting(0.1, "Weight of the bonus.", range="not negative", affects="any bonus")
    step_size: float = setting(0.5, "Spread of the weights that are tried around the best.", range="positive")


def act(weights: np.ndarray, observations: np.ndarray) -> np.ndarray:
    """Return the actions of a linear policy, whose last weights are those of a constant."""
    return np.tanh(observations @ weights[:-1] + weights[-1]).astype(np.float32)


def play(weights: np.ndarray, config: RunConfig, *, frame: int, episodes: int) -> Evaluation:
    """Play episodes that depend on the run's seed and the frame alone."""
    seeds = episode_seeds(numbers(config.seed, "evaluation", frame), episodes)
    with closing(make_environments([config.task] * episodes, Making())) as worlds:
        return play_episodes(worlds, partial(act, weights), seeds)


class ClimberCohort:
    """Trains one run, as `AgentEntry.in_common` is left as it is. `vcse.runs.cohort` says what each member is for."""

    step_frames, timing_every_frames = 1, 1_000
    rows_show_evaluations, evaluates_at_start = True, False

    def __init__(self, directories: Sequence[RunDirectory], **machine: Any) -> None:
        self.directories, self.config = list(directories), directories[0].config
        self.settings = ClimberSettings.of(self.config.settings)
        self.spec = task_spec(self.config.task)
        [size] = self.spec.observation_shape
        self.bonus = StackedBonus([self.settings.bonus], dimensions=size)
        self.world = make_environments([self.config.task], Making())
        self.episodes = Episodes(1, 1, recent=ENTRY.recent_episodes)
        self.frame, self.bonus_mean = 0, 0.0  # the bonus of the last episode
        self.best, self.best_score = np.zeros((size + 1, self.spec.action_size)), -math.inf

    def describe(self) -> str:
        return ""  # all is known before

    def begin(self) -> None:
        """Begin an episode with weights around the best; noise and seed depend on the run's seed and the frame."""
        noise = numbers(self.config.seed, "updates", self.frame).standard_normal(self.best.shape)
        self.tried = self.best + self.settings.step_size * noise
        self.observation = self.world.reset([episode_seed(self.config.seed, self.frame)])
        self.actions, self.seen, self.rewards = [], [], []

    def step(self) -> None:
        self.act(act(self.tried, self.observation))
        self.frame += 1
        self.episodes.add(slice(None), self.last.rewards, self.last.ended)
        if self.last.ended[0]:
            self.learn()
            self.begin()

    def act(self, action: np.ndarray) -> None:
        """Play an action, and remember what it led from and to."""
        self.world.send(action)
        self.last = self.world.receive()
        self.actions.append(action)
        self.seen.append(self.observation)
        self.rewards.append(float(self.last.rewards[0]))
        self.observation = self.last.observations

    def learn(self) -> None:
        """Keep the weights that were tried if they are not worse, by the return and what the bonus pays."""
        self.bonus_mean = 0.0
        if len(self.seen) > self.settings.bonus.k:  # else there are no neighbours
            features, rewards = torch.from_numpy(np.stack(self.seen, axis=1)), torch.tensor([self.rewards])
            values = rewards.flip(1).cumsum(1).flip(1)  # what came after each state: a bonus may ask for it
            self.bonus_mean = float(self.bonus(features, values=values, rewards=rewards).reward.mean())
        if (score := sum(self.rewards) + self.settings.beta * self.bonus_mean) >= self.best_score:
            self.best, self.best_score = self.tried, score

    def rows(self, *, is_evaluated: bool) -> list[dict[str, Any]]:
        return [self.episodes.row(self.frame, 0, self.bonus_mean, knows_success=self.spec.rewards_only_the_goal)]

    def evaluate(self) -> list[dict[str, Any]]:
        found = play(self.best, self.config, frame=self.frame, episodes=self.config.eval_episodes)
        return [{"frame": self.frame, "episodes": len(found.returns), "return_mean": found.return_mean}]

    def states(self) -> list[dict[str, Any]]:
        """Return tensors and numbers alone; an environment cannot be saved, but its actions can."""
        agent = {"best": torch.from_numpy(self.best), "score": self.best_score, "bonus": self.bonus.learner_state(0)}
        episode = {"actions": torch.tensor(np.array(self.actions)), "observation": torch.from_numpy(self.observation)}
        shown = {"episodes": self.episodes.learner_state(0), "bonus_mean": self.bonus_mean}
        return [{"frame": self.frame, "agent": agent, **episode, **shown}]

    def cut(self, states: Sequence[dict[str, Any]]) -> None:
        self.directories[0].cut(states[0]["frame"] if states else 0, {})

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        """Go back to a checkpoint, and play the actions of the episode that had begun again."""
        [state], path = states, self.directories[0].path
        self.best, self.best_score = state["agent"]["best"].numpy(), state["agent"]["score"]
        self.bonus.load_learner_state(0, state["agent"]["bonus"])
        self.episodes.load_learner_state(0, state["episodes"])
        self.bonus_mean, self.frame = state["bonus_mean"], state["frame"] - len(state["actions"])
        self.begin()
        for action in state["actions"].numpy():
            self.act(action)
        self.frame = state["frame"]
        check_replayed(path, torch.from_numpy(self.observation), state["observation"])

    def status(self, frames: int, frames_per_s: float) -> Status:
        scores, bonus = ({self.config.method: each} for each in (self.episodes.return_mean(0), self.bonus_mean))
        return Status(self.frame, frames, 1, frames_per_s, scores, bonus, "return")

    def close(self) -> None:
        self.world.close()


class ClimberPlayer:
    """Plays the best weights of one run; nothing is sampled."""

    def in_common(self, saved: Saved) -> tuple[Hashable, ...]:
        return (saved.path,)

    def load(self, group: Sequence[Saved], device: str) -> np.ndarray:
        return group[0].checkpoint.state["agent"]["best"].numpy()

    def act(
        self,
        policies: Policies,
        observations: np.ndarray,
        generator: np.random.Generator | None,
        state: Any = None,
        episode_start: np.ndarray | None = None,
    ) -> tuple[np.ndarray, None]:
        return act(policies.agent, observations), None

    def evaluate(self, policies: Policies, *, episodes: int, threads: int) -> list[list[Evaluation]]:
        return 2 * [[play(policies.agent, policies.configs[0], frame=policies.frame, episodes=episodes)]]


ENTRY = AgentEntry(
    name="climber",
    observes="state",
    settings=ClimberSettings,
    settings_for=plain_settings(ClimberSettings, k=3),
    cohort=ClimberCohort,
    player=ClimberPlayer(),
    gives=frozenset(("values", "rewards")),
)
register_agent(ENTRY)
