"""`vcse bench`: speed and memory, as ratios measured in one run."""

import dataclasses
import json as json_format
import sys
from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Literal

import tyro
from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from vcse.cli.flags import check_least
from vcse.cli.option_types import DeviceName, Flag, NumberIfGiven, Whole, WholeIfGiven, if_given, one_of
from vcse.envs.interface import Rendering
from vcse.launch.devices import Device, resolve_device
from vcse.runs.machine import cores


def bench(
    name: Annotated[Literal["estimator", "minigrid", "sac", "drqv2", "mwm", "adapters"], tyro.conf.Positional],
    /,
    json: Flag = False,
    device: DeviceName = "auto",
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
            - minigrid: frames/s of training A2C with groups of runs of several sizes, and where the time goes.
            - sac: updates/s of SAC with networks and groups of runs of several sizes, and where the time goes.
            - drqv2: milliseconds per update of DrQ-v2, and frames/s of training, per bonus and quality of images.
            - mwm: milliseconds per update of Masked World Models and of its parts, how much of a GPU they use, and
              frames/s of training, per bonus; on a CPU with small networks and batches.
            - adapters: frames/s of agents of Stable-Baselines3, with the bonus and without it, on one core.
        json: Print the rows as a JSON list on standard output, and nothing else.
        device: Where to measure; auto is the GPU if there is one. On the CPU, PyTorch uses one thread.
        repeats: estimator: runs per size; the median is reported.
        sizes: estimator: batches to measure, written NxDxK (points, dimensions, k), such as 1024x512x12. Default:
            those of the agents and some larger ones.
        threads: minigrid, sac, drqv2 and mwm: threads, or processes, that step environments. Default: one per core.
        seconds: minigrid: seconds of training per case (default: 10); sac, drqv2 and mwm: seconds per measurement of a
            case (default: 4).
        rendering: drqv2: only images of this quality. Default: all three on a GPU, fast on a CPU.
    """
    _check_options(name, device, seconds, rendering)
    resolved = resolve_device(device)
    if name == "estimator":
        check_least(repeats=(repeats, 1))
    # Imported here because they take seconds, which other commands need not wait for.
    from vcse.bench import adapters, drqv2, estimator, minigrid, mwm, sac, tables

    cases: Sequence[Any]
    if name == "estimator":
        cases = tuple(estimator.Size.parse(size) for size in sizes)
        cases = cases or (estimator.CUDA_SIZES if resolved == "cuda" else estimator.CPU_SIZES)
        rows: Iterator[tables.Row] = estimator.measure(resolved, cases, repeats=repeats)
    elif name == "adapters":
        cases = adapters.CASES
        rows = adapters.measure(cases)
    else:
        training = {"minigrid": minigrid, "sac": sac, "drqv2": drqv2, "mwm": mwm}[name]
        cases = training.CUDA_CASES if resolved == "cuda" else training.CPU_CASES
        if name == "drqv2":
            cases = drqv2.cases_for(resolved, rendering)
        rows = training.measure(resolved, cases, threads=threads or cores(), seconds=seconds or training.SECONDS)
    measured = _measured(name, rows, len(cases))
    if json:
        print(json_format.dumps([dataclasses.asdict(row) for row in measured], indent=1))
    else:
        Console().print(tables.TABLES[name](measured))
    return 0


def _check_options(name: str, device: Device, seconds: float | None, rendering: Rendering | None) -> None:
    """Raise ValueError for options that a benchmark does not have."""
    if rendering is not None and name != "drqv2":
        raise ValueError(f"--rendering is for drqv2, got {name}")
    if name == "adapters" and device == "cuda":
        raise ValueError("adapters are measured on one core: leave --device out")
    if name in ("adapters", "estimator") and seconds is not None:
        raise ValueError(f"--seconds is for minigrid, sac, drqv2 and mwm, got {name}")
    if seconds is not None and not seconds > 0:
        raise ValueError(f"--seconds must be above 0, got {seconds}")


def _measured(name: str, rows: Iterator[Any], count: int) -> list[Any]:
    """Return rows once they are measured, and show how far that is: a bar on a terminal, lines in a pipe."""
    from vcse.bench.tables import line

    measured = []
    console = Console(file=sys.stderr)
    columns = (SpinnerColumn(), TextColumn("{task.description}"), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        for row in progress.track(rows, total=count, description=f"vcse bench {name}"):
            measured.append(row)
            if not console.is_terminal:
                print(line(row), file=sys.stderr, flush=True)
    return measured
