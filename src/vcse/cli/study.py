"""`vcse study`: every figure of the paper as one command."""

import json
import shlex
import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.table import Table

from vcse.agents import agent_entry
from vcse.cli.dry_run import all_done, say_what_would_run
from vcse.cli.flags import check_least, flag
from vcse.cli.option_types import (
    DeviceName,
    Flag,
    FramesIfGiven,
    NamesIfGiven,
    PathIfGiven,
    WholeIfGiven,
    if_given,
    one_of,
)
from vcse.cli.pack import pack_study
from vcse.cli.power import show_power
from vcse.cli.verbs import Verb, run_verb
from vcse.envs.interface import Rendering
from vcse.envs.mujoco.rendering import named_backend
from vcse.launch.cohorts import room_for, telling_what_is_saved, warn_of
from vcse.launch.devices import check_rendering, device_for
from vcse.runs.config import RunConfig
from vcse.runs.formatting import counted, duration
from vcse.runs.machine import cores
from vcse.studies import catalog
from vcse.studies.catalog import CATALOG
from vcse.studies.catalog.durations import HOURS, MACHINES
from vcse.studies.growth import check_growth, requested_runs
from vcse.studies.local import StudyProgress, check_out, form_cohorts, run_locally, take_out
from vcse.studies.manifest import ARCHIVED_CURVES, StudyFile, asked_in, read_study_file
from vcse.studies.status import study_status
from vcse.studies.study import Claim, Study, ZeroClaim, narrowed, run_configs

Name = Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]


def study() -> int:
    """List, show and run studies, the experiments of the paper and ours: vcse study list | show | run | status ..."""
    return run_study_command([])


def run_study_command(arguments: list[str]) -> int:
    """Run what follows `vcse study`."""
    description = "Run any figure of the paper, or one of nine studies of our own, with one command."
    return run_verb(VERBS, arguments or ["--help"], prog="vcse study", description=description)


def list_studies(json_rows: Annotated[Flag, tyro.conf.arg(name="json")] = False) -> int:
    """List every study: its figure in the paper, how many runs it has, and about how long it takes.

    Args:
        json_rows: Print the rows as a JSON list on standard output, and nothing else.
    """
    entries = sorted(CATALOG.values(), key=lambda entry: not entry.paper_figure)  # the paper's first
    if json_rows:
        print(json.dumps([_row(entry) for entry in entries], indent=1))
        return 0
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading, justify in (
        ("study", "left"),
        ("figure", "left"),
        ("runs", "right"),
        *((m, "right") for m in MACHINES),
    ):
        table.add_column(heading, justify=justify, no_wrap=True)  # type: ignore[arg-type]
    table.add_column("what")
    for entry in entries:
        hours = [duration(3600 * each) for each in HOURS[entry.name]]
        table.add_row(entry.name, entry.paper_figure or "ours", str(_runs(entry)), *hours, entry.title)
    Console().print(table)
    print(
        "\nfigure: its number in the paper, or ours. The times are estimates for all runs of a\n"
        f"study on {MACHINES[0]} of a CPU and on one NVIDIA H200, from measurements there; for\n"
        "Masked World Models on a GPU they are computed. For this machine, add --dry-run to\n"
        "vcse study run NAME."
    )
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
    print("\ntasks")
    for task in entry.tasks:
        print(f"  {task.name:34} {task.frames:>11,} frames")
    extra = ", if no other number is given" if any(method.more_seeds for method in entry.methods) else ""
    seeds = f", seeds from {entry.first_seed}" if entry.first_seed else ""
    print(f"\nmethods, {counted(entry.seeds, 'run')} each per task{extra}{seeds}")
    for method in entry.methods:
        more = f" ({entry.seeds + method.more_seeds} runs)" if method.more_seeds else ""
        print(f"  {method.name:34} {method.explanation}{more}")
    print(f"\n{_claims(entry)}" if entry.claims else "\nno claims: it looks for what is worth one")
    for claim in entry.claims:
        whose = "ours: " if claim.ours else ""
        print(textwrap.fill(f"{whose}{claim.says}", width=100, initial_indent="  ", subsequent_indent="    "))
        print(f"    {_judged_by(claim)}")
    for note in entry.notes:
        print(textwrap.fill(f"Note: {note}", width=100, initial_indent="\n", subsequent_indent="  "))
    print(f"\nvcse study run {entry.name} --out runs/{entry.name}")
    return 0


@dataclass(frozen=True)
class StudyRun:
    """What `vcse study run` is asked for.

    Attributes:
        name: One of vcse study list.
        seeds: Runs of each method on each task. Default: the study's own number.
        first_seed: Seed of the first run; the others count up from it. Default: the study's own, usually 0.
        frames: Length of every run. Default: the study's own lengths.
        tasks: Run only these tasks. Default: all of the study.
        bonuses: Run only these methods, by label or by bonus. Default: all of the study.
        out: Where runs are written. Default: runs/NAME.
        jobs: Processes at the same time, each of which trains a group of runs. Default: one per core; one on a GPU.
        threads: Threads that step environments, over all processes together. Default: one per core.
        device: Device of the networks; auto is the GPU if there is one, except that runs begun on the CPU stay there.
        eval_every_frames: Frames between evaluations; 0 evaluates only at the end. Default: the study's own. With
            images, evaluations every 10k frames take half of all rendering.
        rendering: Quality of images, for studies of agents that see images: faithful (the default), light (nearly the
            same, several times faster) or fast (no shadows, reflections or smooth edges). The whole study has one.
        keep_replay: Keep the replay files of finished runs, for agents that have a replay. Without them a study takes
            far less disk space, but its runs cannot be extended.
        enlarge: Add whatever this command asks for to a study that is there. Without it, an existing study grows only
            by the options that are given: more runs by --seeds, --tasks or --bonuses, longer ones by --frames.
        ray: Run on a Ray cluster: its address, auto for the one that is running here, or local to start one. Default:
            run on this machine without Ray.
        dry_run: Print what would run, how long it would take, and how much memory and disk it needs; run nothing.
        quiet: Show no progress.
    """

    name: Name
    seeds: WholeIfGiven = None
    first_seed: WholeIfGiven = None
    frames: FramesIfGiven = None
    tasks: NamesIfGiven = ()
    bonuses: NamesIfGiven = ()
    out: PathIfGiven = None
    jobs: WholeIfGiven = None
    threads: WholeIfGiven = None
    device: DeviceName = "auto"
    eval_every_frames: FramesIfGiven = None
    rendering: Annotated[Rendering | None, one_of(Rendering), if_given()] = None
    keep_replay: bool = True
    enlarge: Flag = False
    ray: Annotated[str | None, if_given("ADDRESS")] = None
    dry_run: Flag = False
    quiet: Flag = False

    def runs(self) -> tuple[Study, list[RunConfig]]:
        """Return the part of the study that is meant, and its runs; refuse options that do not fit it."""
        check_least(jobs=(self.jobs, 1), threads=(self.threads, 1))
        check_least(first_seed=(self.first_seed, 0), eval_every_frames=(self.eval_every_frames, 0))
        chosen = catalog.study(self.name)
        entry = narrowed(chosen, seeds=self.seeds, frames=self.frames, tasks=self.tasks, bonuses=self.bonuses)
        configs = run_configs(
            entry,
            first_seed=self.first_seed,
            eval_every_frames=self.eval_every_frames,
            rendering=self.rendering or "faithful",
            keep_replay=self.keep_replay,
        )
        whose = f"but {self.name} is for {entry.agent}, which"
        if self.rendering is not None and agent_entry(entry.agent).observes != "image":
            raise ValueError(f"--rendering is for agents that see images, {whose} sees none")
        if not self.keep_replay and not agent_entry(entry.agent).needs(configs[0]).replay:
            raise ValueError(f"--no-keep-replay is for agents that have one, {whose} has none")
        return entry, configs

    @property
    def given(self) -> list[str]:
        """Return the options that narrow the study or lengthen its runs, and were given."""
        options = ("seeds", "first_seed", "frames", "tasks", "bonuses")
        return [option for option in options if getattr(self, option) != getattr(StudyRun, option)]

    @property
    def command(self) -> str:
        """Return the command that makes the same runs again, with what draws where that was said."""
        words = ["vcse", "study", "run", self.name]
        shown = [option for option in ("eval_every_frames", "rendering") if getattr(self, option) is not None]
        for option in (*self.given, *shown):
            value = getattr(self, option)
            words += [flag(option), *map(str, value if isinstance(value, tuple) else (value,))]
        command = shlex.join(words if self.keep_replay else [*words, "--no-keep-replay"])
        library = named_backend() if agent_entry(CATALOG[self.name].agent).observes == "image" else None
        return command if library is None else f"MUJOCO_GL={library} {command}"


def run_study(asked: Annotated[StudyRun, tyro.conf.arg(name="")]) -> int:
    """Run a study, or resume it; finished runs are skipped.

    Args:
        asked: Its options.
    """
    entry, configs = asked.runs()
    place = asked.out or Path("runs") / entry.name
    tasks, methods = list(entry.task_names), list(entry.method_names)
    first_seed = entry.first_seed if asked.first_seed is None else asked.first_seed
    file = StudyFile(entry.name, entry.seeds, first_seed, asked.frames, tasks, methods, asked.command)
    unfinished = check_out(file, configs, place)
    before = read_study_file(place)
    if before is not None and not asked.enlarge:
        check_growth(before, configs, place, given=asked.given)
    # The cluster may have GPUs where this machine has none.
    is_theirs = asked.ray is not None and asked.device == "cuda"
    device = "cuda" if is_theirs else device_for(unfinished, place, asked.device)
    jobs = asked.jobs or (1 if device == "cuda" else cores())
    warn_of(unfinished)
    if asked.dry_run:
        cohorts = form_cohorts(unfinished, jobs=jobs, device=device)
        is_here = asked.ray is None
        return say_what_would_run(entry.name, configs, cohorts, place, device=device, jobs=jobs, is_here=is_here)
    if not unfinished:
        print(f"{all_done(configs, place)}: nothing to do", file=sys.stderr)
        return 0
    train = _training(asked, unfinished, place, device=device, jobs=jobs)
    take_out(file, configs, place)
    if len(unfinished) < len(configs):
        print(f"{len(configs) - len(unfinished)} of {len(configs)} runs in {place} are done", file=sys.stderr)
    with (
        telling_what_is_saved(unfinished, place),
        StudyProgress(entry.name, place, configs, quiet=asked.quiet) as progress,
    ):
        failures = train(watch=progress.show, say_stopping=progress.training.say_stopping)
    if failures:
        for reason in dict.fromkeys(failures.values()):
            print(f"vcse: {reason}", file=sys.stderr)
        raise RuntimeError(f"{len(failures)} of {len(configs)} runs failed; the same command tries them again")
    print(f"{counted(len(configs), 'run')} done; make the page with: vcse report {shlex.quote(str(place))}")
    return 0


def _training(
    asked: StudyRun, unfinished: list[RunConfig], out: Path, *, device: Literal["cpu", "cuda"], jobs: int
) -> Callable[..., dict[str, str]]:
    """Return what trains, once its cluster is reached, or once there is room here for all that is trained at once."""
    if asked.ray is not None:
        from vcse.studies.on_ray import connect, run_on_ray

        connect(asked.ray)
        cohorts = form_cohorts(unfinished, jobs=asked.jobs or cores(), device=device)
        return partial(run_on_ray, cohorts, out, device=device)
    check_rendering(unfinished, device)  # a cluster draws elsewhere
    cohorts = form_cohorts(unfinished, jobs=jobs, device=device)
    room = room_for(cohorts, out, device=device, jobs=jobs)
    if (said := room.describe()) and not asked.quiet:
        print(said, file=sys.stderr)
    threads = asked.threads or cores()
    return partial(run_locally, cohorts, out, device=device, threads=threads, jobs=jobs, replay_place=room.place)


def show_status(directory: Annotated[Path, tyro.conf.Positional], /) -> int:
    """Show the progress of a study, from another terminal or another machine.

    Args:
        directory: The directory that was given to vcse study run as --out.
    """
    file = asked_in(directory)
    if (directory / ARCHIVED_CURVES).exists():
        raise ValueError(f"{directory} is an archive of a study, not one that runs: vcse report reads it")
    status = study_status(directory, list(requested_runs(file).values()))
    Console().print(status.table(f"{file.study} in {directory}"))
    for reason in dict.fromkeys(run.problem for run in status.runs if run.problem):
        print(f"failed: {reason}")
    return 0


def _claims(entry: Study) -> str:
    """Return how many claims a study has: those that every report judges, and those that need more methods."""
    more = sum(isinstance(claim, Claim) and claim.where_run for claim in entry.claims)
    always = counted(len(entry.claims) - more, "claim")
    return f"{always}, {more} more where both of its methods were run" if more else always


def _judged_by(claim: Claim | ZeroClaim) -> str:
    if not isinstance(claim, Claim):
        return f"judged by {claim.column} of {claim.method} before the first success"
    by = "the area under the curve" if claim.at_frame is None else f"frame {claim.at_frame:,}"
    where = f" on {', '.join(claim.tasks)}" if claim.tasks else ""
    how = f"{', paired by seed' if claim.paired else ''}{', where both were run' if claim.where_run else ''}"
    if claim.within is None:
        return f"judged by {claim.better} > {claim.than}{where}, {by}{how}"
    margin = f" within {claim.within:g}" if claim.within else ""
    return f"judged by {claim.better} as {claim.than}{margin}{where}, {by}{how}"


def _row(entry: Study) -> dict[str, object]:
    return {
        "study": entry.name,
        "title": entry.title,
        "figure": entry.paper_figure or None,
        "agent": entry.agent,
        "runs": _runs(entry),
        "frames": _frames(entry),
        "cpu_hours": HOURS[entry.name][0],
        "gpu_hours": HOURS[entry.name][1],
    }


def _runs(entry: Study) -> int:
    return len(entry.tasks) * entry.runs_per_task


def _frames(entry: Study) -> int:
    return sum(task.frames for task in entry.tasks) * entry.runs_per_task


VERBS: dict[str, Verb] = {
    "list": list_studies,
    "show": show_study,
    "run": run_study,
    "status": show_status,
    "pack": pack_study,
    "power": show_power,
}
