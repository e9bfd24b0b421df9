"""What a study is: its tasks, methods, figure and claims, and the runs it asks for."""

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vcse.envs.interface import Rendering
from vcse.launch.configs import run_configs as configs_of
from vcse.nearest import did_you_mean, nearest
from vcse.runs.config import RunConfig
from vcse.settings import Reading

Metric = Literal["success_rate", "return_mean", "eval_return_mean", "eval_success_rate", "beyond_wall_share"]
Figure = Literal["curves", "aggregate", "visits"]

# What a method is called in words that has the name of its bonus.
BONUSES_IN_WORDS = {
    "none": "no bonus",
    "se": "SE",
    "vcse": "VCSE",
    "se-matched": "VCSE without value",
    "rcse": "RCSE",
    "icm": "ICM",
    "rnd": "RND",
    "counts": "episodic counts",
}


@dataclass(frozen=True)
class Method:
    """One arm: a bonus, and in what it deviates from its reading."""

    name: str  # the label of its runs
    bonus: str
    explanation: str
    reading: Reading = "release"
    settings: dict[str, Any] = field(default_factory=dict)  # deviations: settings of the agent, by name
    more_seeds: int = 0  # runs beyond those that every method of the study has
    label: str = ""  # on pages, where the explanation is too long for a legend

    @property
    def in_words(self) -> str:
        """Return what pages and figures call it."""
        return self.label or BONUSES_IN_WORDS.get(self.name, self.explanation)


@dataclass(frozen=True)
class Task:
    """A task and how long its runs are."""

    name: str
    frames: int
    table_frames: tuple[int, ...] = ()  # at which the report's table looks, beside the last


@dataclass(frozen=True)
class Claim:
    """What is said of two methods; held against the area under their curves, or against one frame.

    That two methods differ by no more than a margin can be shown. That they do not differ at all, a margin of 0, can
    only be contradicted.
    """

    says: str
    better: str
    than: str
    tasks: tuple[str, ...] = ()  # where; all if none is named
    at_frame: int | None = None
    within: float | None = None  # the two are said to differ by no more, in the metric's unit; 0: not at all
    paired: bool = False  # judged by the seeds that both have, run by run
    ours: bool = False  # not from the paper
    where_run: bool = False  # judged only where both were run, of which one may be none of the study's own methods

    def __post_init__(self) -> None:
        if self.within is not None and not 0 <= self.within < math.inf:
            raise ValueError(f"within must be a number from 0 on, got {self.within}")


@dataclass(frozen=True)
class ZeroClaim:
    """What is said to be 0 before a run's first success: a column of its training curve."""

    says: str
    method: str
    column: str
    tasks: tuple[str, ...] = ()
    ours: bool = False


@dataclass(frozen=True)
class Study:
    """Runs, and the figure, table and claims they answer."""

    name: str
    title: str
    source: str  # where the paper has it: "Figure 2, Section 5.1", or "ours: ..."
    agent: str
    tasks: tuple[Task, ...]
    methods: tuple[Method, ...]
    seeds: int
    metric: Metric
    claims: tuple[Claim | ZeroClaim, ...]
    figure: Figure = "curves"
    beside: tuple[Method, ...] = ()  # not run with the study; named on its page where their runs lie beside its own
    notes: tuple[str, ...] = ()  # what the paper leaves open and how it was decided
    visits_every_frames: int = 0  # between counts of where the agents were; 0: they are not counted
    first_seed: int = 0

    @property
    def paper_figure(self) -> str:
        """Return the number of the figure in the paper; empty for a study of ours."""
        return "" if self.source.startswith("ours") else self.source.partition(",")[0].removeprefix("Figure ")

    @property
    def runs_per_task(self) -> int:
        """Return the runs of all methods on each task."""
        return sum(self.seeds + method.more_seeds for method in self.methods)

    def is_about_control(self, claim: "Claim | ZeroClaim") -> bool:
        """Return whether a claim compares VCSE with what differs from it in the value alone."""
        bonuses = {method.name: method.bonus for method in self.methods}
        sides = (claim.better, claim.than) if isinstance(claim, Claim) else ()
        return tuple(bonuses.get(side, side) for side in sides) == ("vcse", "se-matched")

    @property
    def task_names(self) -> tuple[str, ...]:
        """Return the names of its tasks."""
        return tuple(task.name for task in self.tasks)

    @property
    def method_names(self) -> tuple[str, ...]:
        """Return the labels of its methods."""
        return tuple(method.name for method in self.methods)


def tasks_of(family: str, names: Sequence[str], frames: int) -> tuple[Task, ...]:
    """Return tasks of one family, all of the same length."""
    return tuple(Task(f"{family}/{name}", frames) for name in names)


def narrowed(
    entry: Study,
    *,
    seeds: int | None = None,
    frames: int | None = None,
    tasks: Sequence[str] = (),
    bonuses: Sequence[str] = (),
) -> Study:
    """Return a smaller or shorter version of a study.

    Args:
        entry: The study.
        seeds: Runs of each method on each task.
        frames: How long every run is.
        tasks: Only these.
        bonuses: Only methods with these labels or bonuses.
    """
    for option, number in (("--seeds", seeds), ("--frames", frames)):
        if number is not None and number < 1:
            raise ValueError(f"{option} must be at least 1, got {number}")
    for name in tasks:
        if not any(_is_called(task, name) for task in entry.tasks):
            called = {task if "/" in name else task.partition("/")[2]: task for task in entry.task_names}
            likest = ", ".join(called[each] for each in nearest(name, called))
            raise ValueError(
                f"study {entry.name} has no task {name!r}; nearest are {likest} "
                f"(vcse study show {entry.name} lists all {len(entry.tasks)})"
            )
    for name in bonuses:
        if not any(name in (method.name, method.bonus) for method in entry.methods):
            raise ValueError(
                f"study {entry.name} has no method {name!r}, but {', '.join(entry.method_names)}"
                f"{did_you_mean(name, entry.method_names)}"
            )
    kept_tasks = [task for task in entry.tasks if not tasks or any(_is_called(task, name) for name in tasks)]
    # A label wins over a bonus: vcse is one method where one is called so, and all that use it where none is.
    kept_methods = [
        method
        for method in entry.methods
        if not bonuses or method.name in bonuses or (method.bonus in bonuses and method.bonus not in entry.method_names)
    ]
    if frames is not None:
        kept_tasks = [dataclasses.replace(task, frames=frames) for task in kept_tasks]
    return dataclasses.replace(
        entry,
        tasks=tuple(kept_tasks),
        methods=tuple(kept_methods),
        seeds=entry.seeds if seeds is None else seeds,
    )


def run_configs(
    entry: Study,
    *,
    first_seed: int | None = None,
    eval_every_frames: int | None = None,
    eval_episodes: int | None = None,
    rendering: Rendering = "faithful",
    keep_replay: bool = True,
) -> list[RunConfig]:
    """Return the runs of a study, in the order of its figure; rendering is for those that look at images.

    Without a first seed, they begin with the study's own.
    """
    first = entry.first_seed if first_seed is None else first_seed
    return [
        config
        for task in entry.tasks
        for method in entry.methods
        for config in configs_of(
            task.name,
            method.bonus,
            agent=entry.agent,
            seeds=range(first, first + entry.seeds + method.more_seeds),
            frames=task.frames,
            reading=method.reading,
            method=method.name,
            eval_every_frames=eval_every_frames,
            eval_episodes=eval_episodes,
            rendering=rendering,
            # A run that is shorter than the figure's shows ten images all the same.
            visits_every_frames=min(entry.visits_every_frames, max(task.frames // 10, 1)),
            keep_replay=keep_replay,
            **method.settings,
        )
    ]


def _is_called(task: Task, name: str) -> bool:
    """Return whether a task is meant, by its whole name or by what follows the family."""
    return name in (task.name, task.name.partition("/")[2])
