"""`vcse train` and `vcse resume`: runs to disk."""

import dataclasses
import sys
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import tyro
from tyro.conf import OmitArgPrefixes

from vcse.agents import agent_entry, readable_runs
from vcse.agents.presets import OF_BONUS, has_effect
from vcse.bonuses.registry import ValueNormalization, bonus_entry, bonus_names
from vcse.bonuses.scaling import ScalingName
from vcse.cli.dry_run import say_what_would_run
from vcse.cli.flags import check_least, flag
from vcse.cli.option_types import (
    DeviceName,
    Flag,
    Frames,
    FramesIfGiven,
    NameIfGiven,
    Names,
    NumberIfGiven,
    NumbersIfGiven,
    Whole,
    WholeIfGiven,
    if_given,
    one_of,
)
from vcse.cli.options import (
    EnvironmentOptions,
    agent_options_class,
    check_agent_options,
    check_task_options,
    given_options,
    naming_options,
    option_agents,
    with_numbers,
)
from vcse.envs.tasks import check_task
from vcse.launch.cohorts import alike, check_run, check_runs, unfinished_runs, warn_of
from vcse.launch.configs import resolve_agent, run_configs
from vcse.launch.devices import check_rendering, device_for
from vcse.launch.processes import deal_out, suitable_jobs, train_in_jobs
from vcse.play.export import is_exported
from vcse.runs.config import RunConfig
from vcse.runs.directory import check_no_file, done_frame, run_directories, those_without_problems
from vcse.runs.divergence import Diverged, DivergedError
from vcse.runs.formatting import counted
from vcse.runs.machine import cores
from vcse.runs.progress import TrainingProgress
from vcse.settings import Reading


@dataclass(frozen=True)
class Runs:
    """What is trained.

    Attributes:
        task: One or more names from vcse tasks, such as minigrid/LavaGapS7, dmc/hopper_stand, dmc-pixels/hopper_stand
            or metaworld/door-open; minigrid-full/... shows the whole map. gymnasium/ID is any environment registered
            with Gymnasium, and gymnasium/MODULE:ID imports the module that registers it first.
        bonus: One or more of none, se (state entropy), vcse, se-matched (vcse with the value left out) and rcse (vcse
            with the reward in place of the value; not for tasks whose only reward is at the goal); as baselines,
            random network distillation (rnd), intrinsic curiosity (icm; a2c and sac) and episodic counts (counts; a2c).
        agent: a2c for minigrid/... and its variants, sac for dmc/..., drqv2 or mwm for dmc-pixels/... and
            metaworld/...; for gymnasium/..., a2c if actions are discrete, sac if they are continuous, and drqv2 if they
            are continuous and observations are images. Default: the first of these that can train on the task.
        seeds: Number of runs of each task and bonus.
        first_seed: Seed of the first run; the others count up from it.
        frames: Length of each run in simulator frames, such as 100000, 100k or 1M. In drqv2 and mwm an action lasts two
            frames. A run ends with a whole update: every 128 frames in a2c, 4 in drqv2 and 10 in mwm by default.
        out: Where runs are written: OUT/TASK/METHOD/seedN.
        method: Label of the runs in comparisons. Default: the name of the bonus.
        reading: Which definitions of the formulas to use. release: the code that made the paper's curves; paper: what
            the paper prints; clean: textbook definitions without the quirks of either; re3: the original order of
            operations, for se in a2c; recommended, for all but reproducing the paper: clean, with bonuses of mean 0 and
            standard deviation 1, in which duplicate states earn 0 before scaling.
        k: The bonus uses the distance to the k-th nearest neighbour. Default: that of the reading, which in a2c is 3
            for vcse and se-matched in release, else 5, and in the other agents 12.
        log_offset: Constant added inside the logarithm of vcse, rcse and se-matched. Default: that of the reading.
        value_normalization: How to standardize the values (rcse: the rewards) that are conditioned on: over the batch,
            or by running estimates.
        scaling: Mean and scale of the bonus. raw: as its formula says; centered: minus the mean of the batch;
            standardized: also divided by the standard deviation of the batch. Default: standardized in recommended,
            else raw.
        settings: Other numbers of the agent, by their names in config.json, such as learning_rate=3e-4 discount=0.97;
            an unknown name lists all of them.
        eval_every_frames: Frames between evaluations; 0 evaluates only at the end. Default: 0 in a2c, 20k in mwm, and
            10k otherwise.
        eval_episodes: Episodes per evaluation; 0 disables evaluation. Default: 100 in a2c, played with sampled and
            again with greedy actions, and 10 otherwise, played with the mean action.
        checkpoint_every_frames: Frames between checkpoints.
        dry_run: Print what would run, how long it would take, and how much memory and disk it needs; run nothing.
    """

    task: Names
    bonus: Names = ("vcse",)
    agent: NameIfGiven = None
    seeds: Whole = 1
    first_seed: Whole = 0
    frames: Frames = 100_000
    out: Path = Path("runs")
    method: NameIfGiven = None
    reading: Annotated[Reading, one_of(Reading)] = "release"
    k: WholeIfGiven = None
    log_offset: NumberIfGiven = None
    value_normalization: Annotated[ValueNormalization, one_of(ValueNormalization)] = "batch"
    scaling: Annotated[ScalingName | None, one_of(ScalingName), if_given()] = None
    settings: Annotated[NumbersIfGiven, tyro.conf.arg(name="set")] = ()
    eval_every_frames: FramesIfGiven = None
    eval_episodes: WholeIfGiven = None
    checkpoint_every_frames: Frames = 50_000
    dry_run: Flag = False


@dataclass(frozen=True)
class Machine:
    """With what runs are trained.

    Attributes:
        jobs: Processes among which the runs are divided. Default: one per core where there are enough runs; one on a
            GPU.
        threads: Threads that step environments, over all processes together. Default: one per core.
        device: Device of the networks; auto is the GPU if there is one, except that runs begun on the CPU stay there.
        tensorboard: Also write the columns of the CSV files for TensorBoard, into a folder of each run.
        quiet: Show no progress.
    """

    jobs: WholeIfGiven = None
    threads: WholeIfGiven = None
    device: DeviceName = "auto"
    tensorboard: Flag = False
    quiet: Flag = False


def train(
    runs: Annotated[Runs, tyro.conf.arg(name="")],
    machine: Annotated[Machine, tyro.conf.arg(name="")],
    environments: Annotated[OmitArgPrefixes[EnvironmentOptions], tyro.conf.arg(name="environment")],
    of_agents: Annotated[agent_options_class(), tyro.conf.arg(name="")],  # type: ignore[valid-type]
) -> int:
    """Train every task with every bonus and every seed. Unfinished runs are resumed, finished ones skipped.

    For example: vcse train --task minigrid/LavaGapS7 --bonus none vcse --seeds 4 --frames 100k --out runs/lava

    A run that diverges (to NaN or infinity) is abandoned and named; the others continue, and the exit status is 1.

    Args:
        runs: What is trained.
        machine: With what.
        environments: What runs see, and what they leave behind.
        of_agents: Settings of the agents.
    """
    configs = _configs(runs, given_options(environments), given_options(of_agents))
    check_no_file(runs.out, "the runs")
    left = unfinished_runs(configs, runs.out)
    means = _means(left, runs.out, machine)
    if runs.dry_run:
        return _say_what_would_run(configs, runs.out, means)
    try:
        with TrainingProgress(quiet=machine.quiet) as progress:
            train_in_jobs(configs, runs.out, **means._asdict(), progress=progress, tensorboard=machine.tensorboard)
    except DivergedError as error:
        raise RuntimeError(_told(error.runs, len(configs))) from error
    if left and not machine.quiet:
        _say_what_next(len(configs), runs.out)
    return 0


def _configs(runs: Runs, environments: Mapping[str, Any], of_agents: Mapping[str, Any]) -> list[RunConfig]:
    """Return the runs that are asked for; refuse what they cannot be."""
    _check_names(runs)
    check_least(seeds=(runs.seeds, 1), first_seed=(runs.first_seed, 0), frames=(runs.frames, 1))
    of_bonus = {name: value for name, value in given_options(runs).items() if name in OF_BONUS}
    options = [field.name for group in (Runs, EnvironmentOptions) for field in dataclasses.fields(group)]
    for task in runs.task:
        check_task(task)
    configs: list[RunConfig] = []
    with naming_options([*options, *option_agents()]):
        for task in runs.task:
            agent = resolve_agent(task, runs.agent)
            check_agent_options(of_agents, agent, task)
            check_task_options(environments, task)
            for bonus in runs.bonus:
                found = run_configs(
                    task,
                    bonus,
                    agent=agent,
                    seeds=range(runs.first_seed, runs.first_seed + runs.seeds),
                    frames=runs.frames,
                    reading=runs.reading,
                    method=runs.method,
                    eval_every_frames=runs.eval_every_frames,
                    eval_episodes=runs.eval_episodes,
                    checkpoint_every_frames=runs.checkpoint_every_frames,
                    change=partial(with_numbers, texts=runs.settings, agent=agent),
                    **of_bonus,
                    **environments,
                    **of_agents,
                )
                configs += found
    _check_effect((*of_bonus, *of_agents), configs, runs.bonus)
    return configs


def resume(
    directory: Annotated[Path, tyro.conf.Positional],
    /,
    machine: Annotated[Machine, tyro.conf.arg(name="")],
    frames: FramesIfGiven = None,
) -> int:
    """Resume every unfinished run below a directory. One that cannot be read is skipped, with exit status 1.

    A run that diverges (to NaN or infinity) is abandoned and named; the others continue, and the exit status is 1.

    Args:
        directory: A run, or a directory of runs.
        machine: With what runs are trained.
        frames: Extend each run to this length. Default: the length it was started with.
    """
    check_least(frames=(frames, 1))
    found = readable_runs(directory)
    if frames is not None:
        had = [done_frame(path) for path, config in found.items() if done_frame(path) >= frames < config.frames]
        if had:
            print(
                f"vcse: --frames {frames:,} would shorten {len(had)} of {counted(len(found), 'run')} in {directory}, "
                f"up to {max(had):,} long: runs may grow but not shrink",
                file=sys.stderr,
            )
        found = {path: dataclasses.replace(config, frames=frames) for path, config in found.items()}
    found = those_without_problems(found, partial(_checked, found))
    by_root: dict[Path, list[RunConfig]] = {}
    for path, config in found.items():
        by_root.setdefault(_root(path, config), []).append(config)
    left = {root: unfinished_runs(mine, root) for root, mine in by_root.items()}
    given_up: dict[str, Diverged] = {}
    with TrainingProgress(quiet=machine.quiet) as progress:
        for root, mine in sorted(by_root.items()):
            means = _means(left[root], root, machine)
            try:
                train_in_jobs(mine, root, **means._asdict(), progress=progress, tensorboard=machine.tensorboard)
            except DivergedError as error:
                given_up |= {str(root / name): how for name, how in error.runs.items()}
    if given_up:
        raise RuntimeError(_told(given_up, len(found)))
    if any(left.values()) and not machine.quiet:
        _say_what_next(len(found), directory)
    return 0 if len(found) == len(run_directories(directory)) else 1


def _checked(wanted: Mapping[Path, RunConfig], path: Path) -> RunConfig:
    """Return what is wanted of a run, if it lacks nothing to go on."""
    if is_exported(path):
        raise ValueError(f"{path} is an exported policy, which can be played but not trained on: resume the run itself")
    check_run(path, wanted[path])
    return wanted[path]


def _say_what_next(runs: int, place: Path) -> None:
    are, them = ("1 run is", "it") if runs == 1 else (f"{runs} runs are", "them")
    looks = f"vcse report {place}, vcse eval {place}, vcse watch {place}"
    print(f"{are} in {place}; look at {them} with {looks}", file=sys.stderr)


def _told(given_up: Mapping[str, Diverged], runs: int) -> str:
    """Return a message that names the runs that diverged, and says that the others are done."""
    others = runs - len(given_up)
    done = {0: "", 1: "; the other run is done"}.get(others, f"; the {others} other runs are done")
    return f"{DivergedError(given_up)}{done}"


def _root(path: Path, config: RunConfig) -> Path:
    """Return the `--out` directory of a run, which may be anywhere; the run's own place below it is fixed."""
    place = path.resolve()
    root = Path(*place.parts[:-3])
    if root / config.name != place:
        raise ValueError(f"{path} was moved: the path of this run must end in {config.name}")
    return root


class _Means(NamedTuple):
    """With what runs are trained."""

    device: Literal["cpu", "cuda"]
    threads: int
    jobs: int


def _means(left: Sequence[RunConfig], out: Path, machine: Machine) -> _Means:
    """Find what is not given; refuse what is not here."""
    check_least(threads=(machine.threads, 1), jobs=(machine.jobs, 1))
    resolved = device_for(left, out, machine.device)
    check_rendering(left, resolved)
    suitable = suitable_jobs((config.agent for config in left), device=resolved, cores=cores())
    return _Means(resolved, machine.threads or cores(), machine.jobs or suitable)


def _say_what_would_run(configs: Sequence[RunConfig], out: Path, means: _Means) -> int:
    check_runs(configs, out)
    left = unfinished_runs(configs, out)
    warn_of(left)
    cohorts = [cohort for mine in deal_out(left, means.jobs) for cohort in alike(mine)]
    return say_what_would_run(str(out), configs, cohorts, out, device=means.device, jobs=means.jobs)


def _check_names(runs: Runs) -> None:
    """Refuse names that no runs can be made of, whatever the tasks and bonuses are."""
    if runs.agent is not None:
        with naming_options(["agent"]):
            agent_entry(runs.agent)
    for option, names in (("--task", runs.task), ("--bonus", runs.bonus)):
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"{option} has {twice[0]} more than once")
    for bonus in runs.bonus:
        with naming_options(["bonus"]):
            bonus_entry(bonus)
    if runs.method is not None and len(runs.bonus) > 1:
        raise ValueError(
            f"--method is one label, but there are {len(runs.bonus)} bonuses: train them one after the other"
        )


def _check_effect(options: Collection[str], configs: Sequence[RunConfig], bonus: Sequence[str]) -> None:
    """Refuse options that have no effect with any of the bonuses."""
    classes = {agent_entry(config.agent).settings for config in configs}
    for option in options:
        affected = [
            name for name in bonus_names() if any(has_effect(name, option, each, others=options) for each in classes)
        ]
        if not set(bonus) & set(affected):
            whom = f"the bonus {affected[0]}" if len(affected) == 1 else f"the bonuses {', '.join(affected)}"
            raise ValueError(f"{flag(option)} is for {whom}, got --bonus {' '.join(bonus)}")
