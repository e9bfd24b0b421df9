"""Every experiment of the paper, and four of our own, as data: what is run, how it is drawn, which claims it answers.

An entry whose agent or environments do not exist yet is listed all the same, and says what is missing.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from vcse.agents.entry import AGENTS
from vcse.agents.settings import Reading
from vcse.envs.minigrid.crossing import map_number
from vcse.envs.mujoco.rendering import Rendering
from vcse.envs.nearest import nearest
from vcse.runs.config import RunConfig, ValueSource, backend_of, marker_of, settings_of

Metric = Literal["success_rate", "return_mean", "eval_return_mean", "eval_success_rate", "beyond_wall_share"]
Figure = Literal["curves", "aggregate", "visits"]

SIMPLE_CROSSING = "SimpleCrossingS9N1"
# The map of the visits: a wall in the middle that opens away from the start.
CROSSED_WALL = 4
CROSSED_MAP = map_number("vertical", CROSSED_WALL, 5)


@dataclass(frozen=True)
class Method:
    """One arm: a bonus, and in what it deviates from its reading."""

    name: str  # the label of its runs
    bonus: str
    reading: Reading = "release"
    values: ValueSource = "network"
    settings: dict[str, Any] = field(default_factory=dict)  # deviations: keywords of the agent's `..._config`
    explanation: str = ""


@dataclass(frozen=True)
class Task:
    """A task and how long its runs are."""

    name: str
    frames: int
    table_frames: tuple[int, ...] = ()  # at which the report's table looks, beside the last


@dataclass(frozen=True)
class Claim:
    """What is said of two methods; held against the area under their curves, or against one frame."""

    says: str
    better: str
    than: str
    tasks: tuple[str, ...] = ()  # where; all if none is named
    at_frame: int | None = None
    same: bool = False  # the two are said to be alike: never proven, but contradicted where they differ
    ours: bool = False  # not from the paper


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
    source: str  # where the paper has it
    agent: str
    tasks: tuple[Task, ...]
    methods: tuple[Method, ...]
    seeds: int
    metric: Metric
    claims: tuple[Claim | ZeroClaim, ...]
    figure: Figure = "curves"
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()  # what the paper leaves open and how it was decided
    visits_every_frames: int = 0  # between counts of where the agents were; 0: they are not counted

    @property
    def is_runnable(self) -> bool:
        """Whether all that its runs need exists."""
        return not self.missing

    @property
    def task_names(self) -> tuple[str, ...]:
        """Its tasks."""
        return tuple(task.name for task in self.tasks)

    @property
    def method_names(self) -> tuple[str, ...]:
        """Its methods."""
        return tuple(method.name for method in self.methods)


def study(name: str) -> Study:
    """Look an entry up, or name those that are written most like it."""
    if name not in CATALOG:
        likest = ", ".join(nearest(name, CATALOG))
        raise ValueError(
            f"study {name!r} does not exist; nearest are {likest} (vcse study list lists all {len(CATALOG)})"
        )
    return CATALOG[name]


def narrowed(
    entry: Study,
    *,
    seeds: int | None = None,
    frames: int | None = None,
    tasks: Sequence[str] = (),
    bonuses: Sequence[str] = (),
) -> Study:
    """Give a smaller or shorter version of a study.

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
    unknown = [name for name in tasks if not any(_is_called(task, name) for task in entry.tasks)]
    if unknown:
        name = unknown[0]
        called = {task if "/" in name else task.partition("/")[2]: task for task in entry.task_names}
        likest = ", ".join(called[each] for each in nearest(name, called))
        raise ValueError(
            f"study {entry.name} has no task {name!r}; nearest are {likest} (vcse study show {entry.name} lists all "
            f"{len(entry.tasks)})"
        )
    strange = [name for name in bonuses if not any(name in (each.name, each.bonus) for each in entry.methods)]
    if strange:
        raise ValueError(f"study {entry.name} has the methods {', '.join(entry.method_names)}, not {strange[0]!r}")
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
    first_seed: int = 0,
    eval_every_frames: int | None = None,
    eval_episodes: int | None = None,
    rendering: Rendering = "faithful",
    keeps_replay: bool = True,
) -> list[RunConfig]:
    """Give the runs of a study, in the order of its figure; rendering is for those that look at pictures."""
    if not entry.is_runnable:
        raise ValueError(f"study {entry.name} cannot be run yet; it needs {', '.join(entry.missing)}")
    facts = AGENTS[entry.agent]
    schedule = facts.schedule
    return [
        RunConfig(
            task=task.name,
            agent=entry.agent,
            method=method.name,
            seed=seed,
            reading=method.reading,
            frames=task.frames,
            settings=settings_of(task.name, method.bonus, method.reading, **method.settings),
            backend=backend_of(task.name),
            values=method.values,
            row_every_frames=schedule.row_every_frames,
            eval_every_frames=schedule.eval_every_frames if eval_every_frames is None else eval_every_frames,
            eval_episodes=schedule.eval_episodes if eval_episodes is None else eval_episodes,
            rendering=rendering if facts.sees_pictures else None,
            goal_marker=marker_of(task.name),
            # A run that is shorter than the figure's shows ten pictures all the same.
            visits_every_frames=min(entry.visits_every_frames, max(task.frames // 10, 1)),
            keeps_replay=keeps_replay,
        )
        for task in entry.tasks
        for method in entry.methods
        for seed in range(first_seed, first_seed + entry.seeds)
    ]


def _is_called(task: Task, name: str) -> bool:
    """Whether a task is meant, by its whole name or by what follows the family."""
    return name in (task.name, task.name.partition("/")[2])


NONE = Method("none", "none", explanation="no bonus")
SE = Method("se", "se", explanation="state entropy")
VCSE = Method("vcse", "vcse", explanation="value-conditional state entropy")
MATCHED = Method("se-matched", "se-matched", explanation="VCSE with the value left out")


def _beta(bonus: str, beta: float) -> Method:
    return Method(f"{bonus}-beta-{beta:g}", bonus, settings={"beta": beta}, explanation=f"{bonus}, β = {beta:g}")


_PIXEL_TASKS = (
    "hopper_stand",
    "walker_walk_sparse",
    "walker_walk",
    "cheetah_run_sparse",
    "cartpole_swingup_sparse",
    "pendulum_swingup",
)
_DECAYS = ("1e-5", "2.5e-5", "5e-5")
_ON_HOPPER_STAND = ("dmc-pixels/hopper_stand",)
_TWO_PIXEL_TASKS = ("hopper_stand", "walker_walk")
_MWM_TASKS = ("box-close", "handle-pull-side", "lever-pull", "drawer-open")
_METAWORLD_TASKS = ("door-open", "drawer-open", "faucet-open", "window-open", "button-press", "faucet-close")
_NEEDS_MWM = ("the agent mwm",)


def _of(family: str, names: Sequence[str], frames: int) -> tuple[Task, ...]:
    return tuple(Task(f"{family}/{name}", frames) for name in names)


_LENGTHS = "The paper's text does not say how long the runs are; the lengths are ours."
_SE_OF_POSITIONS = (
    "SE is the release's, which looks for neighbours among the last 10,000 states. Nearly all positions stand there "
    "many times over, so that it pays next to nothing once learning is under way: it is hardly different from no bonus."
)
_MINIGRID_TASKS = (
    Task("minigrid/LavaGapS7", 200_000, (100_000,)),
    Task("minigrid/Empty-16x16", 250_000, (100_000,)),
    Task("minigrid/DoorKey-6x6", 500_000, (250_000,)),
    Task("minigrid/DoorKey-8x8", 3_000_000, (1_000_000,)),
    Task("minigrid/Unlock", 500_000, (250_000,)),
    Task(f"minigrid/{SIMPLE_CROSSING}", 500_000, (250_000,)),
)
_CROSSING = (Task(f"minigrid/{SIMPLE_CROSSING}", 500_000, (250_000,)),)
_SHORT_TASKS = tuple(task for task in _MINIGRID_TASKS if task.frames <= 500_000)

_ENTRIES = (
    Study(
        name="minigrid",
        title="A2C on six MiniGrid tasks",
        source="Section 5.1, first figure of the experiments",
        agent="a2c",
        tasks=_MINIGRID_TASKS,
        methods=(NONE, SE, VCSE),
        seeds=16,
        metric="success_rate",
        claims=(
            Claim("VCSE solves the tasks faster than SE.", "vcse", "se"),
            Claim("VCSE solves the tasks faster than A2C alone.", "vcse", "none"),
            Claim(
                "On LavaGapS7 after 100K frames VCSE is ahead of SE; in the paper by 88.8 % to 13.9 %.",
                "vcse",
                "se",
                tasks=("minigrid/LavaGapS7",),
                at_frame=100_000,
            ),
        ),
        notes=(_LENGTHS,),
    ),
    Study(
        name="minigrid-beta-se",
        title="State entropy with other weights",
        source="Section 5.1, the figure on the weight of SE",
        agent="a2c",
        tasks=_CROSSING,
        methods=(NONE, _beta("se", 0.05), _beta("se", 0.005), _beta("se", 0.0005), VCSE),
        seeds=8,
        metric="success_rate",
        claims=(
            Claim("A weight of 0.05 makes SE ignore the task.", "se-beta-0.005", "se-beta-0.05"),
            Claim("A weight of 0.0005 makes SE slower than 0.005.", "se-beta-0.005", "se-beta-0.0005"),
            Claim("No weight brings SE to VCSE: 0.05.", "vcse", "se-beta-0.05"),
            Claim("No weight brings SE to VCSE: 0.005.", "vcse", "se-beta-0.005"),
            Claim("No weight brings SE to VCSE: 0.0005.", "vcse", "se-beta-0.0005"),
            Claim("With no weight is SE better than A2C alone: 0.05.", "none", "se-beta-0.05"),
            Claim("With no weight is SE better than A2C alone: 0.005.", "none", "se-beta-0.005"),
            Claim("With no weight is SE better than A2C alone: 0.0005.", "none", "se-beta-0.0005"),
        ),
        notes=("The paper shows SE alone; A2C without a bonus and VCSE are beside it here.", _LENGTHS),
    ),
    Study(
        name="minigrid-beta-vcse",
        title="VCSE with other weights",
        source="appendix, the figure on the weight of VCSE",
        agent="a2c",
        tasks=_CROSSING,
        methods=(NONE, _beta("vcse", 0.05), _beta("vcse", 0.005), _beta("vcse", 0.0005)),
        seeds=8,
        metric="success_rate",
        claims=(
            Claim("VCSE is better than A2C alone for every weight: 0.05.", "vcse-beta-0.05", "none"),
            Claim("VCSE is better than A2C alone for every weight: 0.005.", "vcse-beta-0.005", "none"),
            Claim("VCSE is better than A2C alone for every weight: 0.0005.", "vcse-beta-0.0005", "none"),
            Claim("The weight hardly matters: 0.05 or 0.005.", "vcse-beta-0.005", "vcse-beta-0.05", same=True),
            Claim("The weight hardly matters: 0.005 or 0.0005.", "vcse-beta-0.005", "vcse-beta-0.0005", same=True),
        ),
        notes=("The paper does not list its weights; these are those of its figure for SE.", _LENGTHS),
    ),
    Study(
        name="minigrid-k",
        title="VCSE with other neighbours",
        source="appendix, the figure on k",
        agent="a2c",
        tasks=_CROSSING,
        methods=tuple(
            Method(f"vcse-k{k}", "vcse", settings={"k": k}, explanation=f"the {ordinal} neighbour")
            for k, ordinal in ((3, "third"), (5, "fifth"), (7, "seventh"))
        ),
        seeds=8,
        metric="return_mean",
        claims=(
            Claim("Performance falls as k grows: 3 to 5.", "vcse-k3", "vcse-k5"),
            Claim("Performance falls as k grows: 5 to 7.", "vcse-k5", "vcse-k7"),
            Claim("Performance falls as k grows: 3 to 7.", "vcse-k3", "vcse-k7"),
        ),
        notes=(
            "k counts neighbours without the point itself. The released code has 3 where the paper's text says 5.",
            _LENGTHS,
        ),
    ),
    Study(
        name="minigrid-values",
        title="The critic's value against exact policy evaluation",
        source="Section 5.3, the first of three ablations",
        agent="a2c",
        tasks=(Task(f"minigrid-table/{SIMPLE_CROSSING}", 500_000, (250_000,)),),
        methods=(
            Method("none", "none", settings={"position_features": True}, explanation="no bonus"),
            Method("se", "se", settings={"position_features": True}, explanation="SE of positions"),
            Method(
                "vcse",
                "vcse",
                settings={"position_features": True},
                explanation="VCSE of positions, with the critic's value",
            ),
            Method(
                "vcse-exact",
                "vcse",
                values="exact",
                settings={"position_features": True},
                explanation="VCSE of positions, with the exact value at each step of an episode",
            ),
            Method(
                "vcse-exact-stationary",
                "vcse",
                values="exact-stationary",
                settings={"position_features": True},
                explanation="VCSE of positions, with the exact value of an episode without a time limit",
            ),
        ),
        seeds=16,
        metric="success_rate",
        claims=(
            Claim("With exact values VCSE is best: better than with the critic's.", "vcse-exact", "vcse"),
            Claim("With exact values VCSE is better than SE.", "vcse-exact", "se"),
            Claim("With the critic's values VCSE is better than SE.", "vcse", "se"),
        ),
        notes=(_LENGTHS, _SE_OF_POSITIONS),
    ),
    Study(
        name="minigrid-heatmap",
        title="Where the agents go",
        source="Section 5.3, the heat map",
        agent="a2c",
        tasks=(Task(f"minigrid-table/{SIMPLE_CROSSING}-map{CROSSED_MAP}", 100_000),),
        methods=(NONE, SE, VCSE, MATCHED),
        seeds=8,
        metric="beyond_wall_share",
        claims=(
            Claim("SE stays before the wall, VCSE goes through to the goal.", "vcse", "se"),
            Claim("The value is what takes VCSE through the wall.", "vcse", "se-matched", ours=True),
        ),
        figure="visits",
        notes=(
            "The paper does not say which map; this one has a vertical wall in the middle that opens away from the "
            "start. Judged is the share of visits beyond the wall.",
        ),
        visits_every_frames=10_000,
    ),
    Study(
        name="minigrid-full",
        title="A2C on whole maps",
        source="appendix, fully observable MiniGrid",
        agent="a2c",
        tasks=(
            Task("minigrid-full/LavaGapS7", 200_000, (100_000,)),
            Task("minigrid-full/Empty-16x16", 250_000, (100_000,)),
            Task("minigrid-full/DoorKey-8x8", 500_000, (250_000,)),
            Task(f"minigrid-full/{SIMPLE_CROSSING}", 500_000, (250_000,)),
        ),
        methods=(NONE, SE, VCSE, MATCHED),
        seeds=16,
        metric="success_rate",
        claims=(
            Claim("VCSE solves the tasks faster than SE.", "vcse", "se"),
            Claim("VCSE solves the tasks faster than A2C alone.", "vcse", "none"),
            Claim("Conditioning on the value helps.", "vcse", "se-matched", ours=True),
        ),
        notes=(
            "The paper does not name its four tasks; these are ours. The map of DoorKey-6x6 is smaller than the "
            "encoder needs. The bonus sees the agent's position; k, weight and all else are those of the agent's view.",
            f"{_LENGTHS} DoorKey-8x8 is shorter here than with the agent's view, where it has 3,000,000 frames.",
            _SE_OF_POSITIONS,
            "The control (VCSE with the value left out) looks in the batch, as VCSE does; the paper does not have it.",
        ),
    ),
    Study(
        name="dmc-pixels",
        title="DrQ-v2 on six DeepMind Control tasks",
        source="Section 5.2, DeepMind Control",
        agent="drqv2",
        tasks=_of("dmc-pixels", _PIXEL_TASKS, 500_000),
        methods=(NONE, SE, VCSE),
        seeds=16,
        metric="eval_return_mean",
        claims=(
            Claim("VCSE learns faster than SE.", "vcse", "se"),
            Claim("VCSE learns faster than DrQ-v2 alone.", "vcse", "none"),
            Claim("SE hurts where rewards are dense.", "none", "se", tasks=("dmc-pixels/walker_walk",)),
        ),
        notes=(
            "n, batch size and noise of DrQ-v2 alone are those of its authors for each task; the two sparse tasks have "
            "those of the tasks that they are made of.",
        ),
    ),
    Study(
        name="dmc-pixels-rcse",
        title="Conditioning on the reward instead of the value",
        source="Section 5.3, the second of three ablations",
        agent="drqv2",
        tasks=_of("dmc-pixels", _TWO_PIXEL_TASKS, 500_000),
        methods=(NONE, SE, Method("rcse", "rcse", explanation="reward-conditional state entropy"), VCSE),
        seeds=8,
        metric="eval_return_mean",
        claims=(Claim("The value is a better condition than the reward.", "vcse", "rcse"),),
        figure="aggregate",
        notes=("The paper does not name its two tasks; these are ours.",),
    ),
    Study(
        name="dmc-pixels-batch",
        title="A larger batch for the bonus",
        source="Section 5.3, the third of three ablations",
        agent="drqv2",
        tasks=_of("dmc-pixels", _TWO_PIXEL_TASKS, 500_000),
        methods=(
            VCSE,
            Method(
                "vcse-batch-1024",
                "vcse",
                settings={"bonus_batch_size": 1024},
                explanation="VCSE whose neighbours are looked for among 1024 states",
            ),
        ),
        seeds=8,
        metric="eval_return_mean",
        claims=(Claim("The size of the bonus' batch does not matter.", "vcse-batch-1024", "vcse", same=True),),
        figure="aggregate",
        notes=(
            "The paper does not name its two tasks; these are ours. k stays at 12, and the curiosity module learns "
            "from the batch of the critics alone.",
        ),
    ),
    Study(
        name="dmc-pixels-beta-se",
        title="DrQ-v2 and state entropy with other weights",
        source="appendix, the weight of SE on Walker Walk",
        agent="drqv2",
        tasks=_of("dmc-pixels", ("walker_walk",), 500_000),
        methods=(NONE, _beta("se", 0.1), _beta("se", 0.01), _beta("se", 0.001)),
        seeds=8,
        metric="eval_return_mean",
        claims=(
            Claim("SE is below DrQ-v2 alone with every weight: 0.1.", "none", "se-beta-0.1"),
            Claim("SE is below DrQ-v2 alone with every weight: 0.01.", "none", "se-beta-0.01"),
            Claim("SE is below DrQ-v2 alone with every weight: 0.001.", "none", "se-beta-0.001"),
            Claim("SE is better the smaller its weight: 0.01 than 0.1.", "se-beta-0.01", "se-beta-0.1"),
            Claim("SE is better the smaller its weight: 0.001 than 0.01.", "se-beta-0.001", "se-beta-0.01"),
        ),
    ),
    Study(
        name="dmc-pixels-decay",
        title="State entropy whose weight decays",
        source="appendix, decaying the weight of SE",
        agent="drqv2",
        tasks=_of("dmc-pixels", _PIXEL_TASKS, 500_000),
        methods=(
            SE,
            *(
                Method(
                    f"se-decay-{decay}",
                    "se",
                    settings={"beta_decay": float(decay)},
                    explanation=f"β decays by {decay} each step",
                )
                for decay in _DECAYS
            ),
            VCSE,
        ),
        seeds=8,
        metric="eval_return_mean",
        claims=(
            Claim("Decay does not bring SE to VCSE: 1e-5.", "vcse", "se-decay-1e-5"),
            Claim("Decay does not bring SE to VCSE: 2.5e-5.", "vcse", "se-decay-2.5e-5"),
            Claim("Decay does not bring SE to VCSE: 5e-5.", "vcse", "se-decay-5e-5"),
            *(
                Claim(f"Decay helps SE on Hopper Stand: {decay}.", f"se-decay-{decay}", "se", _ON_HOPPER_STAND)
                for decay in _DECAYS
            ),
        ),
        notes=("The paper shows the best of several schedules per task and lists none; these are ours, all shown.",),
    ),
    Study(
        name="dmc-pixels-controls",
        title="What the value and the noise of actions do, each alone",
        source="ours: in the paper, a bonus and other noise of actions come together",
        agent="drqv2",
        tasks=_of("dmc-pixels", ("hopper_stand", "pendulum_swingup"), 250_000),
        methods=(
            VCSE,
            MATCHED,
            Method(
                "none-noise-0.2",
                "none",
                settings={"action_noise": 0.2},
                explanation="no bonus, with the noise of actions that DrQ-v2 has with one",
            ),
            Method(
                "none-noise-500k",
                "none",
                settings={"action_noise": (1.0, 0.1, 500_000)},
                explanation="no bonus, with noise that falls over 500,000 steps instead of 100,000",
            ),
            NONE,
        ),
        seeds=8,
        metric="eval_return_mean",
        claims=(
            Claim("Conditioning on the value helps.", "vcse", "se-matched", ours=True),
            Claim("A bonus helps beyond what its noise does.", "vcse", "none-noise-0.2", ours=True),
            Claim("Without a bonus noise that falls from 1 helps.", "none", "none-noise-0.2", ours=True),
            Claim("Without a bonus noise that falls more slowly helps.", "none-noise-500k", "none", ours=True),
        ),
    ),
    Study(
        name="dmc-states",
        title="SAC on DeepMind Control from states",
        source="appendix, DeepMind Control from states",
        agent="sac",
        tasks=(
            Task("dmc/hopper_stand", 200_000, (50_000, 100_000, 150_000)),
            Task("dmc/hopper_hop", 500_000, (100_000, 200_000, 300_000)),
            Task("dmc/cheetah_run_sparse", 500_000, (100_000, 250_000)),
            Task("dmc/walker_walk_sparse", 500_000, (100_000, 250_000)),
        ),
        methods=(NONE, SE, VCSE),
        seeds=16,
        metric="eval_return_mean",
        claims=(
            Claim("VCSE learns faster than SE.", "vcse", "se"),
            Claim("VCSE learns faster than SAC alone.", "vcse", "none"),
        ),
        notes=(
            "The paper does not name its four tasks; the released figures are of Hopper Stand, to 200,000 frames, and "
            "of Hopper Hop. Cheetah Run Sparse and Walker Walk Sparse are our choice.",
            "Without a bonus SAC learns its temperature; with one it is 0.001, as in paper and release.",
        ),
    ),
    Study(
        name="dmc-states-controls",
        title="What the value and the fixed temperature do, each alone",
        source="ours: in the paper, a bonus and a fixed temperature come together",
        agent="sac",
        tasks=(Task("dmc/hopper_stand", 200_000, (50_000, 100_000, 150_000)),),
        methods=(
            VCSE,
            MATCHED,
            Method(
                "none-temperature-0.001",
                "none",
                settings={"temperature": 0.001},
                explanation="no bonus, with the temperature that SAC has with one",
            ),
            NONE,
        ),
        seeds=8,
        metric="eval_return_mean",
        claims=(
            Claim("Conditioning on the value helps.", "vcse", "se-matched", ours=True),
            Claim("A bonus helps beyond what its temperature does.", "vcse", "none-temperature-0.001", ours=True),
            Claim("Without a bonus a learned temperature helps.", "none", "none-temperature-0.001", ours=True),
        ),
    ),
    Study(
        name="metaworld",
        title="DrQ-v2 on six Meta-World tasks",
        source="Section 5.2, Meta-World",
        agent="drqv2",
        tasks=_of("metaworld", _METAWORLD_TASKS, 250_000),
        methods=(NONE, SE, VCSE),
        seeds=16,
        metric="eval_success_rate",
        claims=(
            Claim("VCSE learns faster than SE.", "vcse", "se"),
            Claim("VCSE learns faster than DrQ-v2 alone.", "vcse", "none"),
            Claim("SE hurts several tasks.", "none", "se"),
            Claim(
                "On Door Open after 100K frames VCSE is ahead of DrQ-v2 alone; in the paper by 85 % to 0 %.",
                "vcse",
                "none",
                tasks=("metaworld/door-open",),
                at_frame=100_000,
            ),
        ),
        notes=(
            "The paper quotes 100,000 frames and does not say where its curves end; the length is ours. Pictures are "
            "84 x 84, stacked and repeated as on DeepMind Control; the task's reward is divided by a running mean.",
        ),
    ),
    Study(
        name="metaworld-mwm",
        title="Masked World Models on four Meta-World tasks",
        source="appendix, model-based agents",
        agent="mwm",
        tasks=_of("metaworld", _MWM_TASKS, 500_000),
        methods=(NONE, SE, VCSE),
        seeds=16,
        metric="success_rate",
        claims=(
            Claim("VCSE learns faster than SE.", "vcse", "se"),
            Claim("VCSE learns faster than MWM alone.", "vcse", "none"),
            Claim("SE hurts some tasks.", "none", "se"),
        ),
        missing=_NEEDS_MWM,
    ),
    Study(
        name="minigrid-readings",
        title="The paper's text, the released code, and the textbook",
        source="ours: the paper's text and the released code differ",
        agent="a2c",
        tasks=tuple(
            task for task in _MINIGRID_TASKS if task.name.endswith(("LavaGapS7", "DoorKey-6x6", SIMPLE_CROSSING))
        ),
        methods=(
            NONE,
            Method("vcse-release", "vcse", explanation="release: the bonus joins the advantage"),
            Method(
                "vcse-release-reward",
                "vcse",
                settings={"injection": "reward"},
                explanation="release, but the bonus joins the reward, β = 0.005",
            ),
            Method(
                "vcse-release-reward-beta-0.00125",
                "vcse",
                settings={"injection": "reward", "beta": 0.00125},
                explanation="release, but the bonus joins the reward, β = 0.00125",
            ),
            Method("vcse-paper", "vcse", reading="paper", explanation="paper: the bonus joins the reward, β = 0.005"),
            Method(
                "vcse-paper-beta-0.00125",
                "vcse",
                reading="paper",
                settings={"beta": 0.00125},
                explanation="paper: the bonus joins the reward, β = 0.00125",
            ),
            Method(
                "vcse-paper-advantage",
                "vcse",
                reading="paper",
                settings={"injection": "after_gae"},
                explanation="paper, but the bonus joins the advantage",
            ),
            Method("vcse-clean", "vcse", reading="clean", explanation="clean: the bonus joins the reward, β = 0.005"),
            Method(
                "vcse-clean-beta-0.00125",
                "vcse",
                reading="clean",
                settings={"beta": 0.00125},
                explanation="clean: the bonus joins the reward, β = 0.00125",
            ),
            Method(
                "vcse-clean-advantage",
                "vcse",
                reading="clean",
                settings={"injection": "after_gae"},
                explanation="clean, but the bonus joins the advantage",
            ),
        ),
        seeds=8,
        metric="success_rate",
        claims=(
            Claim("The released code does better than the paper's text.", "vcse-release", "vcse-paper", ours=True),
            Claim(
                "In the release, joining the advantage does better than the reward.",
                "vcse-release",
                "vcse-release-reward",
                ours=True,
            ),
            Claim(
                "A smaller weight suits a bonus that joins the reward: release.",
                "vcse-release-reward-beta-0.00125",
                "vcse-release-reward",
                ours=True,
            ),
            Claim(
                "A smaller weight suits a bonus that joins the reward: paper.",
                "vcse-paper-beta-0.00125",
                "vcse-paper",
                ours=True,
            ),
            Claim(
                "A smaller weight suits a bonus that joins the reward: clean.",
                "vcse-clean-beta-0.00125",
                "vcse-clean",
                ours=True,
            ),
            Claim("The paper's text is better than A2C alone.", "vcse-paper", "none", ours=True),
            Claim("The textbook's estimator is better than A2C alone.", "vcse-clean", "none", ours=True),
        ),
    ),
    Study(
        name="minigrid-controls",
        title="What conditioning on the value does, and nothing else",
        source="ours: the paper has no such control",
        agent="a2c",
        tasks=_SHORT_TASKS,
        methods=(
            VCSE,
            MATCHED,
            Method("vcse-log1p", "vcse", settings={"log_offset": 1.0}, explanation="VCSE with log(1 + ε)"),
            Method(
                "se-matched-log1p",
                "se-matched",
                settings={"log_offset": 1.0},
                explanation="VCSE with log(1 + ε) and without the value",
            ),
            Method(
                "vcse-running",
                "vcse",
                settings={"value_normalization": "running"},
                explanation="VCSE with running estimates instead of the batch's to normalise values",
            ),
        ),
        seeds=8,
        metric="success_rate",
        claims=(
            Claim("Conditioning on the value helps.", "vcse", "se-matched", ours=True),
            Claim("Conditioning on the value helps with log(1 + ε).", "vcse-log1p", "se-matched-log1p", ours=True),
            Claim("The offset of 1e-5 helps, with the value.", "vcse", "vcse-log1p", ours=True),
            Claim("The offset of 1e-5 helps, without the value.", "se-matched", "se-matched-log1p", ours=True),
            Claim(
                "Running estimates or the batch's to normalise values: no difference.",
                "vcse-running",
                "vcse",
                same=True,
            ),
            ZeroClaim(
                "Until the first reward VCSE is SE: no neighbour is decided by the value.",
                "vcse",
                "decided_by_value_share",
            ),
        ),
    ),
)

# What can be run comes first.
CATALOG = {entry.name: entry for entry in sorted(_ENTRIES, key=lambda each: not each.is_runnable)}
