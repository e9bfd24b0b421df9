"""`vcse train` and `vcse resume`: runs to disk."""

import dataclasses
import inspect
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import tyro
from tyro.conf import OmitArgPrefixes

from vcse.agents.entry import AGENTS
from vcse.agents.settings import Reading, heeding
from vcse.bonuses.registry import ValueNormalization, bonus_names, make_bonus
from vcse.cli.devices import Device, check_drawing, device_for
from vcse.cli.dry_run import say_what_would_run
from vcse.cli.option_types import (
    Frames,
    FramesIfGiven,
    NameIfGiven,
    Names,
    NumberIfGiven,
    NumbersIfGiven,
    Whole,
    WholeIfGiven,
)
from vcse.cli.options import (
    A2COptions,
    AgentOptions,
    DrQv2Options,
    OffPolicyOptions,
    SACOptions,
    flag,
    naming_options,
    with_numbers,
)
from vcse.envs.tasks import agent_of, task_spec
from vcse.launch.cohorts import COHORTS, alike, unfinished_runs, warn_of
from vcse.launch.processes import deal_out, suitable_jobs, train_in_jobs
from vcse.runs.config import RunConfig, ValueSource, backend_of, marker_of, settings_of
from vcse.runs.directory import (
    check_config,
    check_no_file,
    done_frame,
    readable_runs,
    run_directories,
    those_without_problems,
)
from vcse.runs.divergence import Diverged, DivergedError
from vcse.runs.formatting import counted
from vcse.runs.machine import cores
from vcse.runs.progress import TrainingProgress


def train(
    task: Names,
    bonus: Names = ("vcse",),
    agent: NameIfGiven = None,
    seeds: Whole = 1,
    first_seed: Whole = 0,
    frames: Frames = 100_000,
    out: Path = Path("runs"),
    method: NameIfGiven = None,
    reading: Reading = "release",
    k: WholeIfGiven = None,
    beta: NumberIfGiven = None,
    log_offset: NumberIfGiven = None,
    value_normalization: ValueNormalization = "batch",
    settings: Annotated[NumbersIfGiven, tyro.conf.arg(name="set")] = (),
    eval_every_frames: FramesIfGiven = None,
    eval_episodes: WholeIfGiven = None,
    checkpoint_every_frames: Frames = 50_000,
    jobs: WholeIfGiven = None,
    threads: WholeIfGiven = None,
    device: Device = "auto",
    tensorboard: bool = False,
    dry_run: bool = False,
    quiet: bool = False,
    *,
    a2c: OmitArgPrefixes[A2COptions],
    sac_and_drqv2: OmitArgPrefixes[OffPolicyOptions],
    sac: OmitArgPrefixes[SACOptions],
    drqv2: OmitArgPrefixes[DrQv2Options],
) -> int:
    """Train: every task with every bonus and every seed, all at once. Unfinished runs go on, finished are skipped.

    A run whose numbers are no longer finite is given up and named, the others go on, and the exit status is 1.

    Args:
        task: One or several of vcse tasks, such as minigrid/LavaGapS7, dmc/hopper_stand, dmc-pixels/hopper_stand or
            metaworld/door-open; minigrid-full/... shows the whole map.
        bonus: One or several of none, se, vcse, se-matched; rcse where rewards come at more than the goal.
        agent: a2c for minigrid/... and its variants, sac for dmc/..., drqv2 for dmc-pixels/... and metaworld/...;
            if not given, the one for the task.
        seeds: How many runs of each.
        first_seed: The seed of the first; the others follow.
        frames: How long each run is, in frames of the simulator; 100k and 1M are read too. In a2c 128 frames make an
            update, if not set otherwise, and the last one is made whole; in drqv2 an action is two frames, and an
            update comes every four.
        out: Where the runs are written: OUT/TASK/METHOD/seedN.
        method: The label of the runs in comparisons; the bonus' name if not given.
        reading: Whose definitions are followed: release made the paper's curves, paper is what the paper prints,
            clean is without anybody's quirks, re3 is for se in a2c alone.
        k: Deviation from the reading: which neighbour. In a2c 3 for vcse and se-matched in release, 5 otherwise; in
            sac and drqv2 12.
        beta: Weight of the bonus; 0.005 in a2c, and 0.1 in sac and drqv2, if not given.
        log_offset: Deviation from the reading: what is added inside the logarithm of vcse, rcse and se-matched.
        value_normalization: What vcse and rcse condition on is standardised over the batch, or by running estimates.
        settings: Other numbers of the agent, by their names in config.json, such as learning_rate=3e-4 discount=0.97;
            a wrong name is answered with all that there are.
        eval_every_frames: Evaluate every so many frames; 0 is only at the end. Without it 0 in a2c, 10,000
            otherwise.
        eval_episodes: Episodes of an evaluation: 100 in a2c, with sampled and again with likeliest actions, and 10
            otherwise, with the mean of the policy, if not given; 0 is none.
        checkpoint_every_frames: Save every so many frames.
        jobs: Processes that the runs are dealt out to; as many as suit the cores if not given.
        threads: For the environments, of all processes together; all cores if not given.
        device: Where the networks live; auto takes the GPU where there is one, but for runs that were begun on the CPU.
        tensorboard: Write what is in the CSV files for TensorBoard too, to a folder of each run.
        dry_run: Say what would run, how long, and how much memory and disk it takes, and do nothing.
        quiet: Show no progress.
        a2c: For minigrid/..., minigrid-full/... and minigrid-table/...
        sac_and_drqv2: For dmc/..., dmc-pixels/... and metaworld/...
        sac: For dmc/...
        drqv2: For dmc-pixels/... and metaworld/...
    """
    _check_names(task, bonus, agent, method)
    for option, number, least in (
        ("--seeds", seeds, 1),
        ("--first-seed", first_seed, 0),
        ("--frames", frames, 1),
        ("--environments", a2c.environments, 1),
    ):
        if number is not None and number < least:
            raise ValueError(f"{option} must be at least {least}, got {number}")
    looks = {"eval_every_frames": eval_every_frames, "eval_episodes": eval_episodes}
    evaluation = {name: number for name, number in looks.items() if number is not None}
    shared = {"k": k, "beta": beta, "log_offset": log_offset, "value_normalization": value_normalization}
    of_agents = AgentOptions(a2c, sac_and_drqv2, sac, drqv2)
    options = [*inspect.signature(train).parameters, *of_agents.names]
    configs: list[RunConfig] = []
    for each_task in task:
        its_agent = agent_of(each_task)
        _check_agent(its_agent, agent, each_task, of_agents.whose)
        facts = AGENTS[its_agent]
        schedule = facts.schedule._replace(**evaluation)
        for each_bonus in bonus:
            _check_bonus(each_bonus, each_task, a2c.values)
            with naming_options(options):
                read = settings_of(each_task, each_bonus, reading, **shared, **of_agents.settings(its_agent))
                its_settings = with_numbers(read, settings, options, agent=its_agent)
                make_bonus(its_settings.bonus, learners=1, dimensions=1)  # refuses what no bonus can be
                runs = [
                    RunConfig(
                        task=each_task,
                        agent=its_agent,
                        method=each_bonus if method is None else method,
                        seed=seed,
                        reading=reading,
                        frames=frames,
                        settings=its_settings,
                        backend=backend_of(each_task, a2c.backend),
                        values=a2c.values if each_bonus == "vcse" else "network",
                        row_every_frames=schedule.row_every_frames,
                        eval_every_frames=schedule.eval_every_frames,
                        eval_episodes=schedule.eval_episodes,
                        checkpoint_every_frames=checkpoint_every_frames,
                        rendering=(drqv2.rendering or "faithful") if facts.sees_pictures else None,
                        goal_marker=marker_of(each_task, drqv2.goal_marker),
                        visits_every_frames=a2c.visits_every_frames,
                        keeps_replay=sac_and_drqv2.keep_replay,
                    )
                    for seed in range(first_seed, first_seed + seeds)
                ]
                COHORTS[its_agent].check(runs[0])  # they differ in their seeds alone
            configs += runs
    _check_heeded((*(name for name, value in shared.items() if value not in (None, "batch")), *of_agents.whose), bonus)
    check_no_file(out, "the runs")
    left = unfinished_runs(configs, out)
    means = _means(left, out, device=device, threads=threads, jobs=jobs)
    if dry_run:
        return _say_what_would_run(configs, out, means)
    try:
        with TrainingProgress(quiet=quiet) as progress:
            train_in_jobs(configs, out, **means._asdict(), progress=progress, tensorboard=tensorboard)
    except DivergedError as error:
        raise RuntimeError(_told(error.runs, len(configs))) from error
    if left and not quiet:
        _say_what_next(len(configs), out)
    return 0


def resume(
    directory: Annotated[Path, tyro.conf.Positional],
    /,
    frames: FramesIfGiven = None,
    jobs: WholeIfGiven = None,
    threads: WholeIfGiven = None,
    device: Device = "auto",
    tensorboard: bool = False,
    quiet: bool = False,
) -> int:
    """Go on with every unfinished run below a directory. One that cannot be read is left out, and the exit status 1.

    So it is where a run diverges: it is given up, and the others go on.

    Args:
        directory: A run, or a directory of runs.
        frames: How long each run is to be in all, to make it longer; as long as it was meant to be if not given.
        jobs: Processes that the runs are dealt out to; as many as suit the cores if not given.
        threads: For the environments, of all processes together; all cores if not given.
        device: Where the networks live; auto takes the GPU where there is one, but for runs that were begun on the CPU.
        tensorboard: Write what is in the CSV files for TensorBoard too, to a folder of each run.
        quiet: Show no progress.
    """
    if frames is not None and frames < 1:
        raise ValueError(f"--frames must be at least 1, got {frames}")
    found = readable_runs(directory)
    if frames is not None:
        had = [done_frame(path) for path, config in found.items() if done_frame(path) >= frames < config.frames]
        if had:
            print(
                f"vcse: --frames {frames:,} is fewer than the frames of {len(had)} of {counted(len(found), 'run')} in "
                f"{directory}, up to {max(had):,}: runs may grow but not shrink",
                file=sys.stderr,
            )
        found = {path: dataclasses.replace(config, frames=frames) for path, config in found.items()}
    found = those_without_problems(found, partial(_checked, found))
    by_root: dict[Path, list[RunConfig]] = {}
    for path, config in found.items():
        by_root.setdefault(_root(path, config), []).append(config)
    left = {root: unfinished_runs(mine, root) for root, mine in by_root.items()}
    given_up: dict[str, Diverged] = {}
    with TrainingProgress(quiet=quiet) as progress:
        for root, mine in sorted(by_root.items()):
            means = _means(left[root], root, device=device, threads=threads, jobs=jobs)
            try:
                train_in_jobs(mine, root, **means._asdict(), progress=progress, tensorboard=tensorboard)
            except DivergedError as error:
                given_up |= {str(root / name): how for name, how in error.runs.items()}
    if given_up:
        raise RuntimeError(_told(given_up, len(found)))
    if any(left.values()) and not quiet:
        _say_what_next(len(found), directory)
    return 0 if len(found) == len(run_directories(directory)) else 1


def _checked(wanted: Mapping[Path, RunConfig], path: Path) -> RunConfig:
    """Give what is wanted of a run, if it lacks nothing to go on."""
    check_config(path, wanted[path])
    return wanted[path]


def _say_what_next(runs: int, place: Path) -> None:
    are, them = ("1 run is", "it") if runs == 1 else (f"{runs} runs are", "them")
    looks = f"vcse report {place}, vcse eval {place}, vcse watch {place}"
    print(f"{are} in {place}; look at {them} with {looks}", file=sys.stderr)


def _told(given_up: Mapping[str, Diverged], runs: int) -> str:
    """Say which of so many runs diverged, and that the others are done."""
    others = runs - len(given_up)
    done = {0: "", 1: "; the other run is done"}.get(others, f"; the {others} other runs are done")
    return f"{DivergedError(given_up)}{done}"


def _root(path: Path, config: RunConfig) -> Path:
    """Give the `--out` directory of a run, which may be anywhere; the run's own place below it is fixed."""
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


def _means(left: Sequence[RunConfig], out: Path, *, device: Device, threads: int | None, jobs: int | None) -> _Means:
    """Find what is not given; refuse what is not here."""
    for option, number in (("--threads", threads), ("--jobs", jobs)):
        if number is not None and number < 1:
            raise ValueError(f"{option} must be at least 1, got {number}")
    resolved = device_for(left, out, device)
    check_drawing(left, resolved)
    suitable = suitable_jobs((config.agent for config in left), device=resolved, cores=cores())
    return _Means(resolved, threads or cores(), jobs or suitable)


def _say_what_would_run(configs: Sequence[RunConfig], out: Path, means: _Means) -> int:
    for config in configs:
        check_config(out / config.name, config)
    left = unfinished_runs(configs, out)
    warn_of(left)
    cohorts = [cohort for mine in deal_out(left, means.jobs) for cohort in alike(mine)]
    return say_what_would_run(str(out), configs, cohorts, out, device=means.device, jobs=means.jobs)


def _check_names(task: Sequence[str], bonus: Sequence[str], agent: str | None, method: str | None) -> None:
    """Refuse names that no runs can be made of, whatever the tasks and bonuses are."""
    if agent is not None and agent not in AGENTS:
        raise ValueError(f"--agent must be one of {', '.join(AGENTS)}, got {agent!r}")
    for option, names in (("--task", task), ("--bonus", bonus)):
        twice = [name for name in names if names.count(name) > 1]
        if twice:
            raise ValueError(f"{option} has {twice[0]} more than once")
    if method is not None and len(bonus) > 1:
        raise ValueError(f"--method is one label, but there are {len(bonus)} bonuses: train them one after the other")


def _check_agent(its_agent: str, asked: str | None, task: str, whose: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse an agent that is not for a task, and options that are for other agents."""
    if asked is not None and asked != its_agent:
        raise ValueError(f"--agent {asked} does not train on {task}, which is for {its_agent}")
    for option, agents in whose.items():
        if its_agent not in agents:
            raise ValueError(f"{flag(option)} is for the agent {' or '.join(agents)}, but {task} is for {its_agent}")


def _check_heeded(options: Iterable[str], bonus: Sequence[str]) -> None:
    """Refuse options that none of the bonuses heeds."""
    for option in options:
        names = heeding(option)
        if not set(bonus) & set(names):
            whom = f"the bonus {names[0]}" if len(names) == 1 else f"the bonuses {', '.join(names)}"
            raise ValueError(f"{flag(option)} is for {whom}, got --bonus {' '.join(bonus)}")


def _check_bonus(bonus: str, task: str, values: ValueSource) -> None:
    if bonus not in bonus_names():
        raise ValueError(f"--bonus must be one of {', '.join(bonus_names())}, got {bonus!r}")
    if bonus == "rcse" and agent_of(task) == "a2c" and task_spec(task).rewards_only_the_goal:
        raise ValueError(
            f"--bonus rcse conditions on the reward, which {task} gives only at the goal: nearly every batch would "
            "hold nothing but zeros"
        )
    if values != "network" and not task.startswith("minigrid-table/"):
        raise ValueError(f"--values {values} needs a task that is enumerated, minigrid-table/..., not {task}")
