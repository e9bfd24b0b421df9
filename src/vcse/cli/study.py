"""`vcse study`: every figure of the paper as one command."""

import json
import shlex
import sys
import textwrap
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro
from rich.console import Console
from rich.table import Table

from vcse.agents.entry import AGENTS
from vcse.cli.devices import Device, check_drawing, device_for
from vcse.cli.dry_run import all_done, say_what_would_run
from vcse.cli.option_types import (
    FramesIfGiven,
    NamesIfGiven,
    PathIfGiven,
    Whole,
    WholeIfGiven,
    if_given,
    one_of,
)
from vcse.cli.pack import pack_study
from vcse.cli.verbs import Verb, run_verb
from vcse.envs.mujoco.rendering import Rendering, named_backend
from vcse.launch.cohorts import COHORTS, room_for, warn_of
from vcse.runs.config import RunConfig
from vcse.runs.formatting import counted
from vcse.runs.machine import cores
from vcse.studies import catalog
from vcse.studies.catalog import CATALOG
from vcse.studies.local import StudyProgress, check_out, form_cohorts, run_locally, take_out
from vcse.studies.manifest import ARCHIVED_CURVES, StudyFile, asked_in
from vcse.studies.status import study_status
from vcse.studies.study import Claim, Study, ZeroClaim, narrowed, run_configs

Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]


def study() -> int:
    """List, show and run the studies of the catalogue: vcse study list | show | run | status | pack."""
    return run_study_command([])


def run_study_command(arguments: list[str]) -> int:
    """Run what follows `vcse study`."""
    description = "Every figure of the paper, and four of our own, as one command."
    return run_verb(VERBS, arguments or ["--help"], prog="vcse study", description=description)


def list_studies(json_rows: Annotated[bool, tyro.conf.arg(name="json")] = False) -> int:
    """List every study, what it asks for, and whether it can be run.

    Args:
        json_rows: Print a list of flat rows on standard output and nothing else there.
    """
    if json_rows:
        print(json.dumps([_row(entry) for entry in CATALOG.values()], indent=1))
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading, justify in (("study", "left"), ("runs", "right"), ("frames", "right"), ("what", "left")):
        table.add_column(heading, justify=justify, no_wrap=heading != "what")  # type: ignore[arg-type]
    table.add_column("status")
    for entry in CATALOG.values():
        status = "can be run" if entry.is_runnable else f"needs {', '.join(entry.missing)}"
        table.add_row(entry.name, str(_runs(entry)), _millions(_frames(entry)), entry.title, status)
    Console().print(table)
    return 0


def show_study(name: Name, /) -> int:
    """Show one study: its runs, its budget and its claims.

    Args:
        name: One of vcse study list.
    """
    entry = catalog.study(name)
    print(f"{entry.name}: {entry.title}")
    print(f"  {entry.source}")
    print(f"\nagent {entry.agent}, {_runs(entry)} runs, {_frames(entry):,} frames, metric {entry.metric}")
    if not entry.is_runnable:
        print(f"cannot be run yet: it needs {', '.join(entry.missing)}")
    print("\ntasks")
    for task in entry.tasks:
        print(f"  {task.name:34} {task.frames:>11,} frames")
    print(f"\nmethods, {entry.seeds} runs each per task")
    for method in entry.methods:
        print(f"  {method.name:34} {method.explanation}")
    print("\nclaims")
    for claim in entry.claims:
        whose = "ours: " if claim.ours else ""
        print(textwrap.fill(f"{whose}{claim.says}", width=100, initial_indent="  ", subsequent_indent="    "))
        print(f"    {_judged_by(claim)}")
    for note in entry.notes:
        print(textwrap.fill(f"Note: {note}", width=100, initial_indent="\n", subsequent_indent="  "))
    if entry.is_runnable:
        print(f"\nvcse study run {entry.name} --out runs/{entry.name}")
    return 0


def run_study(
    name: Name,
    /,
    seeds: WholeIfGiven = None,
    first_seed: Whole = 0,
    frames: FramesIfGiven = None,
    tasks: NamesIfGiven = (),
    bonuses: NamesIfGiven = (),
    out: PathIfGiven = None,
    jobs: WholeIfGiven = None,
    threads: WholeIfGiven = None,
    device: Device = "auto",
    eval_every_frames: FramesIfGiven = None,
    rendering: Annotated[Rendering | None, one_of(Rendering), if_given()] = None,
    keep_replay: bool = True,
    ray: Annotated[str | None, if_given("ADDRESS")] = None,
    dry_run: bool = False,
    quiet: bool = False,
) -> int:
    """Run a study, or go on with it; finished runs are left as they are.

    Args:
        name: One of vcse study list.
        seeds: Runs of each method on each task; the study's own number if not given.
        first_seed: The seed of the first; the others follow.
        frames: How long every run is; the study's own lengths if not given.
        tasks: Only these tasks; all of the study if not given.
        bonuses: Only these methods, by label or by bonus; all of the study if not given.
        out: Where the runs are written; runs/NAME if not given.
        jobs: Cohorts that are trained at the same time; one per core, and one on a GPU, if not given.
        threads: For the environments, of all jobs together; all cores if not given.
        device: Where the networks live; auto takes the GPU where there is one, but for runs that were begun on the CPU.
        eval_every_frames: Evaluate every so many frames, and at the end; 0 is only there. As often as the study does if
            not given. Where pictures are drawn, evaluations every 10,000 frames are half of all drawing.
        rendering: Quality of pictures, for studies of agents that see some: faithful (if not given), light (nearly the
            same, several times faster) or fast (no shadows, reflections or smooth edges). It is one for a whole study.
        keep_replay: Keep the files of the replays of runs that are done, for agents that have one. Without them a study
            takes far less of the disk, and its runs cannot be made longer.
        ray: Run on a Ray cluster: its address, auto for the one that is running here, local to start one.
        dry_run: Say what would run, how long, and how much memory and disk it takes, and do nothing.
        quiet: Show no progress.
    """
    for option, number, least in (
        ("--jobs", jobs, 1),
        ("--threads", threads, 1),
        ("--first-seed", first_seed, 0),
        ("--eval-every-frames", eval_every_frames, 0),
    ):
        if number is not None and number < least:
            raise ValueError(f"{option} must be at least {least}, got {number}")
    entry = narrowed(catalog.study(name), seeds=seeds, frames=frames, tasks=tasks, bonuses=bonuses)
    configs = run_configs(
        entry,
        first_seed=first_seed,
        eval_every_frames=eval_every_frames,
        rendering=rendering or "faithful",
        keeps_replay=keep_replay,
    )
    if rendering is not None and not AGENTS[entry.agent].sees_pictures:
        raise ValueError(
            f"--rendering is for agents that see pictures, but {name} is for {entry.agent}, which sees none"
        )
    if not keep_replay and not COHORTS[entry.agent].needs(configs[0]).replay:
        raise ValueError(
            f"--no-keep-replay is for agents that have one, but {name} is for {entry.agent}, which has none"
        )
    place = Path("runs") / entry.name if out is None else out
    asked = {
        "--seeds": seeds,
        "--first-seed": first_seed or None,
        "--frames": frames,
        "--tasks": tasks or None,
        "--bonuses": bonuses or None,
        "--eval-every-frames": eval_every_frames,
        "--rendering": rendering,
        "--no-keep-replay": None if keep_replay else (),
    }
    command = _command(entry, asked)
    file = StudyFile(
        entry.name, entry.seeds, first_seed, frames, list(entry.task_names), list(entry.method_names), command
    )
    unfinished = check_out(file, configs, place)
    # The cluster may have GPUs where this machine has none.
    resolved = "cuda" if ray is not None and device == "cuda" else device_for(unfinished, place, device)
    at_once = jobs or (1 if resolved == "cuda" else cores())
    warn_of(unfinished)
    if dry_run:
        cohorts = form_cohorts(unfinished, jobs=at_once, device=resolved)
        return say_what_would_run(
            entry.name, configs, cohorts, place, device=resolved, jobs=at_once, is_here=ray is None
        )
    if not unfinished:
        print(f"{all_done(configs, place)}: nothing to do", file=sys.stderr)
        return 0
    if ray is None:  # a cluster draws elsewhere
        check_drawing(unfinished, resolved)
        train = _local_training(unfinished, place, device=resolved, threads=threads, jobs=at_once, quiet=quiet)
    else:
        from vcse.studies.on_ray import connect, run_on_ray

        connect(ray)
        cohorts = form_cohorts(unfinished, jobs=jobs or cores(), device=resolved)
        train = partial(run_on_ray, cohorts, place, device=resolved)
    take_out(file, configs, place)
    if len(unfinished) < len(configs):
        print(f"{len(configs) - len(unfinished)} of {len(configs)} runs in {place} are done", file=sys.stderr)
    progress = StudyProgress(entry.name, place, configs, quiet=quiet)
    with progress.shown():
        failures = train(watch=progress.show)
    if failures:
        for reason in dict.fromkeys(failures.values()):
            print(f"vcse: {reason}", file=sys.stderr)
        raise RuntimeError(f"{len(failures)} of {len(configs)} runs failed; the same command tries them again")
    print(f"{counted(len(configs), 'run')} done; make the page with: vcse report {shlex.quote(str(place))}")
    return 0


def _local_training(
    unfinished: list[RunConfig], out: Path, *, device: str, threads: int | None, jobs: int, quiet: bool
) -> Callable[..., dict[str, str]]:
    """Give what trains on this machine, once there is room for all that it trains at once."""
    cohorts = form_cohorts(unfinished, jobs=jobs, device=device)
    room = room_for(cohorts, out, device=device, jobs=jobs)
    if (said := room.describe()) and not quiet:
        print(said, file=sys.stderr)
    return partial(
        run_locally, cohorts, out, device=device, threads=threads or cores(), jobs=jobs, replay_place=room.place
    )


def show_status(directory: Annotated[Path, tyro.conf.Positional], /) -> int:
    """Say how far a study is, from another terminal or another machine.

    Args:
        directory: What was given as --out.
    """
    file = asked_in(directory)
    if (directory / ARCHIVED_CURVES).exists():
        raise ValueError(f"{directory} is an archive of a study, not one that runs: vcse report reads it")
    configs: dict[str, RunConfig] = {}
    for asked in file.requests:  # a later command may have made a run longer
        entry = narrowed(
            catalog.study(asked.study), seeds=asked.seeds, frames=asked.frames, tasks=asked.tasks, bonuses=asked.methods
        )
        configs |= {config.name: config for config in run_configs(entry, first_seed=asked.first_seed)}
    status = study_status(directory, list(configs.values()))
    Console().print(status.table(f"{file.study} in {directory}"))
    for reason in dict.fromkeys(run.problem for run in status.runs if run.problem):
        print(f"failed: {reason}")
    return 0


def _command(entry: Study, asked: Mapping[str, object]) -> str:
    """Write the command that makes the same runs again, with what draws where that was said."""
    command = shlex.join(["vcse", "study", "run", entry.name, *_written(asked)])
    library = named_backend() if AGENTS[entry.agent].sees_pictures else None
    return command if library is None else f"MUJOCO_GL={library} {command}"


def _written(options: Mapping[str, object]) -> list[str]:
    """Give the options that were given, as one types them."""
    words: list[str] = []
    for option, value in options.items():
        if value is not None:
            words += [option, *map(str, value if isinstance(value, tuple) else (value,))]
    return words


def _judged_by(claim: Claim | ZeroClaim) -> str:
    if not isinstance(claim, Claim):
        return f"judged by {claim.column} of {claim.method} before the first success"
    by = "the area under the curve" if claim.at_frame is None else f"frame {claim.at_frame:,}"
    where = f" on {', '.join(claim.tasks)}" if claim.tasks else ""
    return f"judged by {claim.better} {'as' if claim.same else '>'} {claim.than}{where}, {by}"


def _row(entry: Study) -> dict[str, object]:
    return {
        "study": entry.name,
        "title": entry.title,
        "agent": entry.agent,
        "runs": _runs(entry),
        "frames": _frames(entry),
        "can_be_run": entry.is_runnable,
        "missing": ", ".join(entry.missing),
    }


def _runs(entry: Study) -> int:
    return len(entry.tasks) * len(entry.methods) * entry.seeds


def _frames(entry: Study) -> int:
    return sum(task.frames for task in entry.tasks) * len(entry.methods) * entry.seeds


def _millions(frames: int) -> str:
    return f"{frames / 1e6:,.0f}M"


VERBS: dict[str, Verb] = {
    "list": list_studies,
    "show": show_study,
    "run": run_study,
    "status": show_status,
    "pack": pack_study,
}
