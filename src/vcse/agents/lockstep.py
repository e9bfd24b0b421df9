"""What the cohorts of all agents have in common, whatever collects and learns: runs, and the account kept of them."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from jaxtyping import Int
from torch import Tensor

from vcse.agents import agent_entry
from vcse.agents.output import UpdateOutput
from vcse.agents.playing import ContinuousPlayer
from vcse.envs.interface import Environments
from vcse.envs.tasks import task_spec
from vcse.runs.checkpoint import check_replayed
from vcse.runs.directory import RunDirectory
from vcse.runs.divergence import check_finite
from vcse.runs.metrics import SHOWN_OF_BONUS, BonusMean, Episodes, LatestMetrics
from vcse.runs.progress import Status, Timer, by_method
from vcse.runs.schedule import TIMING_FRAMES
from vcse.settings import AgentSettings

S = TypeVar("S", bound=AgentSettings)


class Lockstep(ABC, Generic[S]):
    """Runs of one agent that are trained in lockstep. How they collect, learn and save is written out by each agent.

    Args:
        directories: Of the runs.
        settings: The class of the agent's settings.
        device: Where the networks live.
        threads: For the environments.
    """

    must_be_finite: Sequence[str] = ()  # metrics of an update
    knows_success = False  # rows have a success rate
    keeps_success: bool  # checkpoints hold what tasks reported of it
    seed_frames = 0  # of random actions, before anything is learned

    def __init__(self, directories: Sequence[RunDirectory], settings: type[S], *, device: str, threads: int) -> None:
        self.directories = list(directories)
        self.configs = [directory.config for directory in self.directories]
        self.names = [config.name for config in self.configs]
        self.seeds = [config.seed for config in self.configs]
        self.settings = [settings.of(config.settings) for config in self.configs]
        self.common = self.settings[0]  # where it is read, all runs agree
        self.spec = task_spec(self.configs[0].task)
        self.device, self.threads = device, threads
        self.output = UpdateOutput({}, None)  # of the last update
        self.eager_updates = 0
        self.timer = Timer()

    def count_episodes(self, with_bonus: Int[Tensor, " p"], *, environments: int = 1) -> None:
        """Start counting episodes and bonuses.

        Args:
            with_bonus: The learners with a bonus.
            environments: Of each run.
        """
        learners, recent = len(self.configs), agent_entry(self.configs[0].agent).recent_episodes
        self.episodes = Episodes(learners, environments, recent=recent, by_return=not self.spec.is_foreign)
        self.bonus_mean = BonusMean(learners, with_bonus)
        self.latest = LatestMetrics(learners, with_bonus)

    @property
    @abstractmethod
    def frame(self) -> int:
        """Frames that every run has had so far."""

    def episode_state(self, learner: int) -> dict[str, Any]:
        """Return what is known of a learner's episodes and of what its bonus paid, for a checkpoint."""
        success = self.episodes.success_state(learner) if self.keeps_success else {}
        return {"episodes": self.episodes.learner_state(learner), **self.bonus_mean.learner_state(learner), **success}

    def load_episode_state(self, learner: int, state: dict[str, Any]) -> None:
        """Load what `episode_state` returned, from a dict that may hold more."""
        self.episodes.load_learner_state(learner, state["episodes"])
        self.bonus_mean.load_learner_state(learner, state)
        if self.keeps_success:
            self.episodes.load_success_state(learner, state)

    def check_replayed(self, learner: int, shown: Tensor, kept: Tensor, *, other_cause: str = "") -> None:
        """Refuse to resume where the environments of a run, replayed to where they were, show something else."""
        foreign_task = self.configs[learner].task if self.spec.is_foreign else ""
        path = self.directories[learner].path
        check_replayed(path, shown, kept, other_cause=other_cause, foreign_task=foreign_task)

    def describe(self) -> str:
        """Return nothing: all is known before."""
        return ""

    def check_finite(self) -> None:
        """Refuse to save what has become NaN, so that the last checkpoint is still good."""
        for name in (each for each in self.must_be_finite if each in self.output.metrics):
            numbers = self.output.metrics[name].reshape(-1).tolist()
            check_finite(name.removesuffix("_norm"), numbers, self.names, frame=self.frame)

    def status(self, frames: int, frames_per_s: float) -> Status:
        """Return where the cohort is on its way to so many frames."""
        shows_success = self.knows_success and not self.spec.is_foreign  # which may not report it
        score = self.episodes.success_rate if shows_success else self.episodes.return_mean
        return Status(
            self.frame,
            frames,
            len(self.configs),
            frames_per_s,
            by_method(self.configs, [score(learner) for learner in range(len(self.configs))]),
            by_method(self.configs, self.bonus_mean.of_last_row),
            "success" if shows_success else "return",
            learns=self.frame > self.seed_frames,
        )


class OffPolicy(Lockstep[S]):
    """Runs that learn from a replay. Their rows show evaluations, and what the last update before a restart showed."""

    rows_show_evaluations = True
    timing_every_frames = TIMING_FRAMES
    player: ContinuousPlayer
    agent: Any
    shown_of_evaluations: Sequence[str] = ("return_mean",)

    def __init__(self, directories: Sequence[RunDirectory], settings: type[S], *, device: str, threads: int) -> None:
        super().__init__(directories, settings, device=device, threads=threads)
        self.evaluations = [dict.fromkeys(("return_mean", "success_rate"), math.nan) for _ in self.configs]
        self.evaluation_environments: Environments | None = None

    @abstractmethod
    def settle(self) -> None:
        """Write all that happened to the logs of the runs, and refuse what has become NaN."""

    def rows(self, *, is_evaluated: bool) -> list[dict[str, Any]]:
        """Return a row of train.csv for every run."""
        self.settle()
        bonus_mean, latest = self.bonus_mean.of_row(), self.latest.of(*self.output)
        rows = []
        for learner, evaluation in enumerate(self.evaluations):
            row = self.episodes.row(self.frame, learner, bonus_mean[learner], knows_success=self.knows_success)
            for name in self.shown_of_evaluations:
                row[f"eval_{name}"] = evaluation[name] if is_evaluated else math.nan
            row |= {name: latest[learner].get(name, math.nan) for name in (*self.agent.METRICS, *SHOWN_OF_BONUS)}
            rows.append(row)
        return rows

    def evaluate(self) -> list[dict[str, Any]]:
        """Play episodes with the mean of every policy, and return a row of eval.csv for every run."""
        episodes = self.configs[0].eval_episodes
        if self.evaluation_environments is None:
            self.evaluation_environments = self.player.make(
                self.configs, episodes, device=self.device, threads=self.threads
            )
        found = self.player.play(
            self.agent, self.configs, self.evaluation_environments, frame=self.frame, sampled=False
        )
        self.evaluations = [
            {"return_mean": each.return_mean, "success_rate": each.success_rate if self.knows_success else math.nan}
            for each in found
        ]
        return [{"frame": self.frame, "episodes": episodes, **each} for each in self.evaluations]

    def close(self) -> None:
        """End the simulators of evaluations."""
        if self.evaluation_environments is not None:
            self.evaluation_environments.close()
