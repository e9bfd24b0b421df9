"""`vcse bench`: speed and memory, as ratios measured in one run."""

import dataclasses
import json as json_format
import sys
from typing import Annotated, Literal

import tyro
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from vcse.bench import estimator
from vcse.cli.devices import Device, resolve_device


def bench(
    name: Annotated[Literal["estimator"], tyro.conf.Positional],
    /,
    json: bool = False,
    device: Device = "auto",
    repeats: int = 20,
    sizes: tuple[str, ...] = (),
) -> int:
    """Measure speed and memory against the plain way, in one run.

    Args:
        name: What is measured. estimator: the whole VCSE reward against the broadcast formula of the release.
        json: Print a list of flat rows on standard output and nothing else there.
        device: Where to measure; auto takes the GPU where there is one. On the CPU, one thread is used.
        repeats: Runs per size; the median is reported.
        sizes: Batches to measure, written NxDxK (points, dimensions, k), such as 1024x512x12. Without it, those
            of the four agents and some larger ones.
    """
    if repeats < 1:
        raise ValueError(f"--repeats must be at least 1, got {repeats}")
    resolved = resolve_device(device)
    chosen = tuple(estimator.Size.parse(size) for size in sizes)
    chosen = chosen or (estimator.CUDA_SIZES if resolved == "cuda" else estimator.CPU_SIZES)

    rows = []
    console = Console(file=sys.stderr)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(f"vcse bench {name}", total=len(chosen))
        for size, row in zip(chosen, estimator.measure(resolved, chosen, repeats=repeats), strict=True):
            rows.append(row)
            progress.advance(task)
            if not console.is_terminal:
                print(f"N={size.n} d={size.d} k={size.k}: {row.ms:.3g} ms", file=sys.stderr)
    if json:
        print(json_format.dumps([dataclasses.asdict(row) for row in rows], indent=1))
    else:
        Console().print(_table(rows))
    return 0


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
