"""What environments are, whatever simulates them: one protocol, one step, one description of a task."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped

from vcse.envs.moments import Moment

Observations = Shaped[np.ndarray, "n ..."]
Positions = Int[np.ndarray, "n 2"]
ObservationKind = Literal["grid", "state", "image"]
Rendering = Literal["faithful", "light", "fast"]
Mission = Literal["constant", "names", "chooses"]

NOT_DETERMINISTIC = (
    "it is not deterministic, and a run of it that was stopped cannot be resumed: it must sample all random numbers "
    "from self.np_random, which reset(seed=...) seeds, and keep nothing from one episode to the next"
)


class Step(NamedTuple):
    """What one action of every environment led to.

    `observations` shows what the next action will see, and `next_observations` what the last one led to. They differ
    only where an episode ended and the environment has begun a new one by itself.
    """

    observations: Observations
    next_observations: Observations
    rewards: Float[np.ndarray, " n"]  # summed over the frames of the action
    terminated: Bool[np.ndarray, " n"]  # the task is over: goal, lava
    truncated: Bool[np.ndarray, " n"]  # the time limit, and nothing else, ended the episode
    positions: Positions | None = None  # of the agent on the map, at `observations`, where there is a map
    next_positions: Positions | None = None  # at `next_observations`
    success: Bool[np.ndarray, " n"] | None = None  # the goal was reached, where tasks say so themselves
    success_reported: Bool[np.ndarray, " n"] | None = None  # whether they did, where that is not known before

    @property
    def ended(self) -> Bool[np.ndarray, " n"]:
        """Whether an episode ended here, for whatever reason."""
        ended: Bool[np.ndarray, " n"] = np.logical_or(self.terminated, self.truncated)
        return ended


@runtime_checkable
class Environments(Protocol):
    """A batch of environments, each with episodes of its own.

    `send` and `receive` come apart, so that something else can be done while the environments are simulated.
    """

    count: int
    most_steps: int  # the time limit of an episode, in actions

    def reset(self, seeds: Sequence[int | None] | None = None) -> Observations:
        """Begin episodes.

        Args:
            seeds: One for each environment; None leaves it as it is. Environments that begin new episodes by
                themselves have their seeds already: none are given, and this is called once.
        """

    def send(self, actions: np.ndarray) -> None:
        """Begin a step of every environment."""

    def receive(self) -> Step:
        """Wait until the step is done."""

    def close(self) -> None:
        """Free what is held."""


@runtime_checkable
class SeededEpisodes(Protocol):
    """Environments that begin episodes by themselves, each from a seed of its own.

    To bring them to where they were, the actions of the present episodes are enough.
    """

    def progress(self) -> Int[np.ndarray, "n 2"]:
        """Return which episode each environment plays, the first being 0, and how many steps of it are taken."""

    def restore(self, progress: Int[np.ndarray, "n 2"], actions: Int[np.ndarray, "n t"]) -> Observations:
        """Go back to such a progress, by the last of all actions that each environment ever took."""


@dataclass(frozen=True)
class TaskSpec:
    """What is known of a task before it runs."""

    most_frames: int  # the time limit of an episode
    observation_shape: tuple[int, ...] = ()  # of grids and states; the size of images is their observer's choice
    actions: int = 0  # how many there are, where they are discrete
    action_size: int = 0  # numbers of an action, where it is continuous; each is between -1 and 1
    has_success: bool = False  # tasks say themselves whether the goal is reached; else a return above 0 is success
    rewards_only_the_goal: bool = False  # conditioning on the reward says nothing there
    mission: Mission = "constant"  # what a text, which agents do not observe, adds to the observation
    shows: ObservationKind | None = None  # where the tasks of the family differ in that
    # From elsewhere: it is not known before whether it reports success, and whether it is deterministic.
    is_foreign: bool = False
    warning: str = ""  # why a run of it may not be as intended; empty where all is well


@dataclass(frozen=True)
class Making:
    """How environments are made."""

    seeds: Sequence[int] = ()  # one for each, where they begin new episodes by themselves
    threads: int = 1  # that step them; processes, where simulators hold Python's lock
    backend: str = "auto"  # what simulates, where there is a choice
    rendering: Rendering = "faithful"  # quality of images
    goal_marker: bool = True  # whether images show the goal, where the family has one to show
    image_size: int = 84
    action_repeat: int = 1  # frames for which an action is played
    device: str = "cpu"  # that renders: cpu, or a GPU as in cuda or cuda:1
    spins: bool = False  # wait without sleeping, which takes a core for each process


def one_task(tasks: Sequence[str]) -> str:
    """Return the task that all environments have; refuse several."""
    if len(set(tasks)) > 1:
        raise ValueError(f"environments must be of one task, got {', '.join(sorted(set(tasks)))}")
    return tasks[0]


@dataclass(frozen=True)
class Family:
    """Tasks that are made alike. Registered by `vcse.register_family`, its tasks are written name/task."""

    name: str
    shows: ObservationKind | tuple[ObservationKind, ...]  # of several, the spec of each task says which
    about: str  # what its tasks show, in a few words
    tasks: Callable[[], Sequence[str]]  # their names; a RuntimeError where what simulates them is not installed
    spec: Callable[[str], TaskSpec]  # of a task by its name
    make: Callable[[Sequence[str], Making], Any]  # environments, one for each name: they are `Environments`
    check: Callable[[str], object] | None = None  # refuses a name that is none; None: all but `tasks` are
    record: Callable[..., Iterator[Moment]] | None = None  # plays and renders episodes; None: no films
    resets_itself: bool = False  # environments begin new episodes by themselves
    # What simulates its tasks; where there is a choice, a function of a task's name and of what is asked.
    backend: str | Callable[[str, str], str] = ""
    has_goal_marker: bool = False
    has_discrete_actions: bool | None = None  # of all its tasks; None: they differ, or it follows from what it shows
    listed: str = ""  # what a listing says in the place of names that are too many

    @property
    def kinds(self) -> tuple[ObservationKind, ...]:
        """What its tasks may show."""
        return self.shows if isinstance(self.shows, tuple) else (self.shows,)
