"""`vcse bench`: speed and memory, as ratios measured in one run."""

import dataclasses
import json as json_format
import sys
from collections.abc import Iterator
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from vcse.bench import drqv2, estimator, minigrid, sac
from vcse.cli.devices import Device, resolve_device
from vcse.cli.option_types import NumberIfGiven, Whole, WholeIfGiven, if_given, one_of
from vcse.envs.mujoco.rendering import Rendering
from vcse.runs.machine import cores


def bench(
    name: Annotated[Literal["estimator", "minigrid", "sac", "drqv2"], tyro.conf.Positional],
    /,
    json: bool = False,
    device: Device = "auto",
    repeats: Whole = 20,
    sizes: Annotated[tuple[str, ...], if_given("NxDxK [NxDxK ...]")] = (),
    threads: WholeIfGiven = None,
    seconds: NumberIfGiven = None,
    rendering: Annotated[Rendering | None, one_of(Rendering), if_given()] = None,
) -> int:
    """Measure speed and memory.

    Args:
        name: What is measured:
            - estimator: the whole VCSE reward against the broadcast formula of the release.
            - minigrid: frames/s of training A2C with cohorts of several sizes, and the shares of the time.
            - sac: updates/s of SAC with networks and cohorts of several sizes, and the shares of the time.
            - drqv2: milliseconds per update of DrQ-v2, and frames/s of training, per bonus and quality of pictures.
        json: Print a list of flat rows on standard output and nothing else there.
        device: Where to measure; auto takes the GPU where there is one. On the CPU, PyTorch uses one thread.
        repeats: estimator: runs per size; the median is reported.
        sizes: estimator: batches to measure, written NxDxK (points, dimensions, k), such as 1024x512x12. Without
            it, those of the four agents and some larger ones.
        threads: all but estimator: threads, or processes, for the environments; all cores if not given.
        seconds: minigrid: how long each cohort trains, 10 if not given; sac and drqv2: how long each of the
            measurements of a case takes, 4 if not given.
        rendering: drqv2: pictures of this quality alone; if not given, of all three on a GPU, and fast ones on a CPU.
    """
    if rendering is not None and name != "drqv2":
        raise ValueError(f"--rendering is for drqv2, got {name}")
    resolved = resolve_device(device)
    if seconds is not None and not seconds > 0:
        raise ValueError(f"--seconds must be above 0, got {seconds}")
    rows: Iterator[estimator.Row | minigrid.Row | sac.Row | drqv2.Row]
    if name == "estimator":
        if repeats < 1:
            raise ValueError(f"--repeats must be at least 1, got {repeats}")
        chosen = tuple(estimator.Size.parse(size) for size in sizes)
        chosen = chosen or (estimator.CUDA_SIZES if resolved == "cuda" else estimator.CPU_SIZES)
        count, rows = len(chosen), estimator.measure(resolved, chosen, repeats=repeats)
    elif name == "minigrid":
        cohorts = minigrid.CUDA_CASES if resolved == "cuda" else minigrid.CPU_CASES
        each = seconds or minigrid.SECONDS
        count, rows = len(cohorts), minigrid.measure(resolved, cohorts, threads=threads or cores(), seconds=each)
    elif name == "drqv2":
        runs = drqv2.cases_for(resolved, rendering)
        each = seconds or drqv2.SECONDS
        count, rows = len(runs), drqv2.measure(resolved, runs, threads=threads or cores(), seconds=each)
    else:
        cases = sac.CUDA_CASES if resolved == "cuda" else sac.CPU_CASES
        each = seconds or sac.SECONDS
        count, rows = len(cases), sac.measure(resolved, cases, threads=threads or cores(), seconds=each)
    measured = []
    console = Console(file=sys.stderr)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"vcse bench {name}", total=count)
        for row in rows:
            measured.append(row)
            progress.advance(task)
            if not console.is_terminal:
                print(_line(row), file=sys.stderr, flush=True)
    if json:
        print(json_format.dumps([dataclasses.asdict(row) for row in measured], indent=1))
    else:
        table = {"estimator": _table, "minigrid": _training_table, "sac": _sac_table, "drqv2": _drqv2_table}[name]
        Console().print(table(measured))  # type: ignore[operator]
    return 0


def _line(row: estimator.Row | minigrid.Row | sac.Row | drqv2.Row) -> str:
    if isinstance(row, drqv2.Row):
        return (
            f"{row.task}, {row.bonus}, {row.rendering}: {row.ms_per_update:,.4g} ms, {row.frames_per_s:,.0f} frames/s"
        )
    if isinstance(row, sac.Row):
        return f"{row.learners} learners of {row.hidden_units} units, {row.bonus}: {row.updates_per_s:,.4g} updates/s"
    if isinstance(row, estimator.Row):
        return f"N={row.n} d={row.d} k={row.k}: {row.ms:.3g} ms"
    return f"{row.learners} learners, {row.bonus}: {row.frames_per_s:,.0f} frames/s"


def _drqv2_table(rows: list[drqv2.Row]) -> Table:
    title = f"DrQ-v2 on {rows[0].device}, drawn by {rows[0].drawn_by}: an update, and training"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    headings = ("task", "bonus", "rendering", "batch", "ms", "times\nplain", "frames/s", "waits", "acts", "learns")
    for number, heading in enumerate(headings):
        table.add_column(heading, justify="left" if number < 3 else "right")
    for row in rows:
        shares = (row.share_env, row.share_act, row.share_update)
        table.add_row(
            *(row.task.partition("/")[2], row.bonus, row.rendering, str(row.batch_size), f"{row.ms_per_update:,.4g}"),
            *(f"{row.times_plain:.2f}", f"{row.frames_per_s:,.0f}", *(f"{share:.0%}" for share in shares)),
        )
    return table


def _sac_table(rows: list[sac.Row]) -> Table:
    title = f"SAC on {rows[0].device}: an update, with the shares of bonus and extrinsic critic, and training"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 1, 0, 0), pad_edge=False)
    headings = ("learners", "units", "bonus", "updates/s", "times\nplain", "bonus", "critic", "frames/s")
    for number, heading in enumerate((*headings, "waits", "acts", "learns")):
        table.add_column(heading, justify="left" if number == 2 else "right")
    for row in rows:
        shares = (row.share_env, row.share_act, row.share_update)
        table.add_row(
            *(str(row.learners), str(row.hidden_units), row.bonus, f"{row.updates_per_s:,.4g}"),
            *(f"{row.times_plain:.2f}", f"{row.share_bonus:.0%}", f"{row.share_extrinsic_critic:.0%}"),
            *(f"{row.frames_per_s:,.4g}", *(f"{share:.0%}" for share in shares)),
        )
    return table


def _training_table(rows: list[minigrid.Row]) -> Table:
    title = f"Training A2C on MiniGrid, networks on {rows[0].device}"
    table = Table(title=title, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("learners", "bonus", "frames/s", "environments", "acting", "bonus", "rest of the update"):
        table.add_column(heading, justify="left" if heading == "bonus" else "right")
    for row in rows:
        shares = (row.share_env, row.share_act, row.share_bonus, row.share_update)
        table.add_row(str(row.learners), row.bonus, f"{row.frames_per_s:,.0f}", *(f"{share:.0%}" for share in shares))
    return table


def _table(rows: list[estimator.Row]) -> Table:
    title = f"VCSE reward on {rows[0].device}: this library, and the plain broadcast formula"
    table = Table(title=title, box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("N", "d", "k", "ms", "plain ms", "faster", "peak MiB", "plain MiB", "less"):
        table.add_column(heading, justify="right")
    for row in rows:
        faster = "" if row.naive_ms is None else f"{row.naive_ms / row.ms:.1f}x"
        less = "" if row.naive_peak_mib is None else f"{row.naive_peak_mib / max(row.peak_mib, 0.1):.0f}x"
        plain = "no room" if row.naive_ms is None else f"{row.naive_ms:.3g}"
        plain_peak = "" if row.naive_peak_mib is None else f"{row.naive_peak_mib:.0f}"
        shown = (f"{row.ms:.3g}", plain, faster, f"{row.peak_mib:.1f}", plain_peak, less)
        table.add_row(str(row.n), str(row.d), str(row.k), *shown)
    return table
