"""`vcse eval`: how well trained policies do."""

import json as json_format
import sys
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from vcse.cli.devices import Device, resolve_device
from vcse.runs.evaluate import evaluate
from vcse.runs.load import Policies, load_policies
from vcse.runs.store import readable_runs
from vcse.runs.words import counted


@dataclass(frozen=True)
class Row:
    """One run's evaluation, under the names of `eval.csv`: actions are sampled, or, for argmax, the likeliest."""

    run: str
    task: str
    method: str
    seed: int
    frame: int
    episodes: int
    return_mean: float
    success_rate: float
    argmax_return_mean: float
    argmax_success_rate: float


def evaluate_runs(
    directory: Annotated[Path, tyro.conf.Positional],
    /,
    episodes: int = 100,
    device: Device = "cpu",
    json: bool = False,
) -> int:
    """Play episodes with the newest policy of every run, with sampled and again with likeliest actions.

    As many episodes as in training give the last row of eval.csv again: layouts and actions depend on the run's
    seed and its frame alone. A run that has saved nothing yet is named and passed over.

    Args:
        directory: A run, or a directory of runs.
        episodes: For each run, and each of the two ways to act.
        device: Where the networks live.
        json: Print a list of flat rows, one per run, on standard output and nothing else there.
    """
    if episodes < 1:
        raise ValueError(f"--episodes must be at least 1, got {episodes}")
    resolved = resolve_device(device)
    torch.set_num_threads(1)  # as in training: the networks are small, and the numbers are the same again
    loaded = load_policies(list(readable_runs(directory)), resolved)
    rows = [row for policies in loaded for row in _play(policies, episodes)]
    rows.sort(key=lambda row: (row.task, row.method, row.seed))
    if json:
        print(json_format.dumps([asdict(row) for row in rows], indent=1))
    else:
        for task in dict.fromkeys(row.task for row in rows):
            Console().print(_table(task, [row for row in rows if row.task == task]))
    return 0


def _play(policies: Policies, episodes: int) -> Iterable[Row]:
    runs = counted(len(policies.configs), "run")
    print(f"vcse: {runs} at frame {policies.frame:,}, {episodes} episodes each, twice", file=sys.stderr)
    sampled, likeliest = (
        evaluate(policies.agent, policies.configs, frame=policies.frame, episodes=episodes, sampled=way)
        for way in (True, False)
    )
    for path, config, one, other in zip(policies.paths, policies.configs, sampled, likeliest, strict=True):
        yield Row(
            run=str(path),
            task=config.task,
            method=config.method,
            seed=config.seed,
            frame=policies.frame,
            episodes=episodes,
            return_mean=one.return_mean,
            success_rate=one.success_rate,
            argmax_return_mean=other.return_mean,
            argmax_success_rate=other.success_rate,
        )


def _table(task: str, rows: list[Row]) -> Table:
    title = f"{task}: {rows[0].episodes} episodes of each run"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("method", no_wrap=True)
    for heading in (
        "seed",
        "frame",
        "success,\nsampled",
        "success,\nlikeliest",
        "return,\nsampled",
        "return,\nlikeliest",
    ):
        table.add_column(heading, justify="right", no_wrap=True)
    for method in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == method]
        for row in mine:
            table.add_row(method, str(row.seed), f"{row.frame:,}", *_numbers([row]))
        table.add_row(method, "mean", counted(len(mine), "run"), *_numbers(mine), style="bold", end_section=True)
    return table


def _numbers(rows: list[Row]) -> tuple[str, ...]:
    rates = (np.mean([row.success_rate for row in rows]), np.mean([row.argmax_success_rate for row in rows]))
    returns = (np.mean([row.return_mean for row in rows]), np.mean([row.argmax_return_mean for row in rows]))
    return (*(f"{rate:.1%}" for rate in rates), *(f"{each:.3f}" for each in returns))
