"""What the program must know of an agent, other than how it learns."""

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, UInt8

from vcse.envs.interface import Making, ObservationKind
from vcse.runs.arithmetic import EXACT, Arithmetic
from vcse.runs.checkpoint import Checkpoint
from vcse.runs.cohort import Cohort
from vcse.runs.config import RunConfig
from vcse.runs.evaluation import Evaluation
from vcse.runs.remarks import FindProblem
from vcse.runs.resources import Needs
from vcse.settings import AgentSettings


class Schedule(NamedTuple):
    """How often a run looks at itself."""

    row_every_frames: int
    eval_every_frames: int  # 0: only at the end
    eval_episodes: int


class Film(NamedTuple):
    """How films of a policy are made by default."""

    episodes: int
    sampled: bool
    frames_per_second: int


# Defaults of an agent.
USUAL_SCHEDULE = Schedule(row_every_frames=10_000, eval_every_frames=10_000, eval_episodes=10)
USUAL_FILM = Film(episodes=1, sampled=False, frames_per_second=12)
USUAL_FRAMES_PER_S = 1_000
USUAL_RECENT_EPISODES = 10


class Saved(NamedTuple):
    """A run on disk, and the checkpoint that is loaded."""

    path: Path
    config: RunConfig
    checkpoint: Checkpoint


class Policies(NamedTuple):
    """Policies that fit one agent, a learner each. Those of one task are adjacent."""

    agent: Any  # what `Player.load` returned
    configs: list[RunConfig]
    frame: int  # at which all of them were saved
    paths: list[Path]
    device: str = "cpu"


# From images of an episode, the actions that led to each (zeros to the first) and how many images the model observes,
# to its images: reconstructions of those observed, and open-loop predictions, from the actions alone, of all others.
Images = UInt8[np.ndarray, "t 3 s s"]
Imagine = Callable[[Policies, Images, Float[np.ndarray, "t a"], int], Images]


@runtime_checkable
class Player(Protocol):
    """How the trained policies of an agent are loaded and played."""

    def in_common(self, saved: Saved) -> tuple[Hashable, ...]:
        """Return what runs must have in common to be loaded together, besides frame and episodes of an evaluation."""

    def load(self, group: Sequence[Saved], device: str) -> Any:
        """Return an agent with the policies of runs, and nothing that only training needs."""

    def act(
        self,
        policies: Policies,
        observations: np.ndarray,
        generator: np.random.Generator | None,
        state: Any = None,
        episode_start: Bool[np.ndarray, " n"] | None = None,
    ) -> tuple[np.ndarray, Any]:
        """Return actions of the first policy, and its state, which is passed back in the next step.

        Args:
            policies: Of which the first acts.
            observations: One of each environment.
            generator: Samples the actions; without one they are greedy: the most probable, or the mean.
            state: As it was returned in the step before; None where the episodes begin. A policy without memory returns
                None.
            episode_start: Environments whose episodes begin here, the state of which is reset; None: none of them.
        """

    def evaluate(self, policies: Policies, *, episodes: int, threads: int) -> list[list[Evaluation]]:
        """Play episodes of every run with sampled actions, and again with greedy ones."""


@dataclass(frozen=True)
class AgentEntry:
    """An agent: its settings, how it trains and plays, and what is known of it, whatever is trained with it.

    What has a default may be left out; that of `in_common` trains each run in a cohort of its own.
    """

    name: str
    observes: ObservationKind  # trains on every family of tasks that shows it alone
    settings: type[AgentSettings]
    settings_for: Callable[..., AgentSettings]  # a bonus, a reading, task=, and deviations that are named
    cohort: Callable[..., Cohort]
    player: Player
    gives: frozenset[str] = frozenset()  # inputs of a bonus besides features: values, rewards, actions, ...
    in_common: Callable[[RunConfig], tuple[Hashable, ...]] = lambda config: (config.name,)  # of runs of one cohort
    expected_seconds: Callable[[RunConfig, str], float] = lambda config, device: config.frames / USUAL_FRAMES_PER_S
    needs: Callable[[RunConfig], Needs] = lambda config: Needs(working=0, replay=0, files=0)  # of memory and disk
    schedule: Schedule = USUAL_SCHEDULE  # by default
    policy: tuple[str, ...] = ()  # what of the state under "agent" in a checkpoint is needed to act
    film: Film = USUAL_FILM
    recent_episodes: int = USUAL_RECENT_EPISODES  # of which the training curve shows the mean
    logs: tuple[str, ...] = ()  # files of a run that grow with it, without which it cannot be resumed
    least_runs: int = 1  # of a process: fewer are not worth the seconds that it takes to start
    most_runs: Mapping[str, int] = field(
        default_factory=lambda: {"cpu": 1, "cuda": 1}
    )  # of a cohort: more gain nothing
    on_gpu: Arithmetic = EXACT  # in training and evaluation; neighbours are exact either way
    image_size: int = 84  # of what it sees, where these are images and no setting has it
    stacked_images: int = 1  # that it sees at once
    action_repeat: int = 1  # frames for which it plays an action
    ends_at_goal: bool = False  # episodes end before their time limit, and those of successes first
    has_discrete_actions: bool = False
    needs_time_limits: bool = False  # learns only where nothing but the time limit ends an episode
    observes_too: tuple[ObservationKind, ...] = ()  # in tasks of families that show several, if the actions are its own
    check: Callable[[RunConfig], None] = lambda config: None  # refuses settings that do not go with the task
    warning: Callable[[RunConfig], str] = lambda config: ""  # why a run may be useless; empty where all is well
    imagine: Imagine | None = None  # what its world model predicts of an episode, where it has one
    remark: FindProblem | None = None  # what the rows of a run show to be wrong with it; empty where all is well

    def making(self, config: RunConfig, **machine: Any) -> Making:
        """Return how the environments of a run are made; other fields of `Making`, such as a device, may be given."""
        return Making(
            backend=config.backend,
            rendering=config.image_quality,
            goal_marker=config.goal_marker is not False,
            image_size=self.image_size_of(config),
            action_repeat=self.action_repeat,
            **machine,
        )

    def image_size_of(self, config: RunConfig) -> int:
        """Return the side of the images that a run sees: a setting of some agents."""
        size: int = getattr(config.settings, "image_size", self.image_size)
        return size

    def arithmetic(self, device: str) -> Arithmetic:
        """Return how exactly products are computed on a device."""
        return self.on_gpu if device == "cuda" else EXACT
