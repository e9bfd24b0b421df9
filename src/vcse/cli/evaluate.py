"""`vcse eval`: how well trained policies do."""

import json as json_format
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import tyro
from rich.console import Console
from rich.table import Table

from vcse.agents.a2c import A2C
from vcse.agents.drqv2 import DrQv2
from vcse.agents.sac import SAC
from vcse.cli.devices import Device, cores, resolve_device
from vcse.envs.dmc import DMCStates
from vcse.envs.pixels import Pixels
from vcse.runs.config import RunConfig
from vcse.runs.evaluate import evaluate, play_pictures, play_states
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


@dataclass(frozen=True)
class StateRow:
    """One run's evaluation where actions are continuous: the policy's mean, or, for sampled, drawn from it."""

    run: str
    task: str
    method: str
    seed: int
    frame: int
    episodes: int
    return_mean: float
    sampled_return_mean: float
    success_rate: float | None = None  # where the task knows success
    sampled_success_rate: float | None = None


# Of a run, if not given: as many as in training.
EPISODES = {A2C: 100, SAC: 10, DrQv2: 10}


def evaluate_runs(
    directory: Annotated[Path, tyro.conf.Positional],
    /,
    episodes: int | None = None,
    device: Device = "cpu",
    json: bool = False,
) -> int:
    """Play episodes with the newest policy of every run, with sampled and again with likeliest actions.

    As many episodes as in training give the last row of eval.csv again: layouts and actions depend on the run's
    seed and its frame alone. A run that has saved nothing yet is named and passed over.

    Args:
        directory: A run, or a directory of runs.
        episodes: For each run, and each of the two ways to act; 100 in MiniGrid and 10 otherwise if not given.
        device: Where the networks live.
        json: Print a list of flat rows, one per run, on standard output and nothing else there.
    """
    if episodes is not None and episodes < 1:
        raise ValueError(f"--episodes must be at least 1, got {episodes}")
    resolved = resolve_device(device)
    torch.set_num_threads(1)  # as in training: the networks are small, and the numbers are the same again
    loaded = load_policies(list(readable_runs(directory)), resolved)
    rows: list[Row | StateRow] = []
    for policies in loaded:
        agent = policies.agent
        count = EPISODES[type(agent)] if episodes is None else episodes
        runs = counted(len(policies.configs), "run")
        print(f"vcse: {runs} at frame {policies.frame:,}, {count} episodes each, twice", file=sys.stderr)
        if isinstance(agent, SAC):
            rows += _play_states(policies, agent, count)
        elif isinstance(agent, DrQv2):
            rows.append(_play_pictures(policies, agent, count, resolved))
        else:
            rows += _play(policies, agent, count)
    rows.sort(key=lambda row: (row.task, row.method, row.seed))
    if json:
        print(json_format.dumps([asdict(row) for row in rows], indent=1))
    else:
        for task in dict.fromkeys(row.task for row in rows):
            Console().print(_table(task, [row for row in rows if row.task == task]))
    return 0


def _identity(path: Path, config: RunConfig, frame: int, episodes: int) -> dict[str, Any]:
    """Give what every row begins with."""
    return {
        "run": str(path),
        "task": config.task,
        "method": config.method,
        "seed": config.seed,
        "frame": frame,
        "episodes": episodes,
    }


def _play_states(policies: Policies, agent: SAC, episodes: int) -> Iterable[StateRow]:
    tasks = [config.task.partition("/")[2] for config in policies.configs for _ in range(episodes)]
    environments = DMCStates(tasks, processes=min(cores(), len(tasks)))
    try:
        mean, sampled = (
            play_states(agent, policies.configs, environments, frame=policies.frame, episodes=episodes, sampled=way)
            for way in (False, True)
        )
    finally:
        environments.close()
    for path, config, one, other in zip(policies.paths, policies.configs, mean, sampled, strict=True):
        yield StateRow(
            **_identity(path, config, policies.frame, episodes),
            return_mean=one.return_mean,
            sampled_return_mean=other.return_mean,
        )


def _play_pictures(policies: Policies, agent: DrQv2, episodes: int, device: str) -> StateRow:
    config, path = policies.configs[0], policies.paths[0]
    rendering: Any = config.rendering
    processes = min(cores(), episodes)
    environments = Pixels([config.task] * episodes, rendering=rendering, device=device, processes=processes)
    try:
        mean, sampled = (
            play_pictures(agent, config, environments, frame=policies.frame, sampled=way) for way in (False, True)
        )
    finally:
        environments.close()
    return StateRow(
        **_identity(path, config, policies.frame, episodes),
        return_mean=mean.return_mean,
        sampled_return_mean=sampled.return_mean,
        success_rate=mean.success_rate if environments.has_success else None,
        sampled_success_rate=sampled.success_rate if environments.has_success else None,
    )


def _play(policies: Policies, agent: A2C, episodes: int) -> Iterable[Row]:
    sampled, likeliest = (
        evaluate(agent, policies.configs, frame=policies.frame, episodes=episodes, sampled=way) for way in (True, False)
    )
    for path, config, one, other in zip(policies.paths, policies.configs, sampled, likeliest, strict=True):
        yield Row(
            **_identity(path, config, policies.frame, episodes),
            return_mean=one.return_mean,
            success_rate=one.success_rate,
            argmax_return_mean=other.return_mean,
            argmax_success_rate=other.success_rate,
        )


def _table(task: str, rows: Sequence[Row | StateRow]) -> Table:
    title = f"{task}: {rows[0].episodes} episodes of each run"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("method", no_wrap=True)
    scores: tuple[str, ...] = ("success,\nsampled", "success,\nlikeliest", "return,\nsampled", "return,\nlikeliest")
    if isinstance(rows[0], StateRow):
        scores = ("return,\nmean action", "return,\nsampled")
        if rows[0].success_rate is not None:
            scores = ("success,\nmean action", "success,\nsampled", *scores)
    for heading in ("seed", "frame", *scores):
        table.add_column(heading, justify="right", no_wrap=True)
    for method in dict.fromkeys(row.method for row in rows):
        mine = [row for row in rows if row.method == method]
        for row in mine:
            table.add_row(method, str(row.seed), f"{row.frame:,}", *_numbers([row]))
        table.add_row(method, "mean", counted(len(mine), "run"), *_numbers(mine), style="bold", end_section=True)
    return table


def _numbers(rows: Sequence[Row | StateRow]) -> tuple[str, ...]:
    def mean(name: str) -> float:
        return float(np.mean([getattr(row, name) for row in rows]))

    if isinstance(rows[0], StateRow):
        returns = f"{mean('return_mean'):.1f}", f"{mean('sampled_return_mean'):.1f}"
        if rows[0].success_rate is None:
            return returns
        return f"{mean('success_rate'):.1%}", f"{mean('sampled_success_rate'):.1%}", *returns
    rates = (mean("success_rate"), mean("argmax_success_rate"))
    likely = (mean("return_mean"), mean("argmax_return_mean"))
    return (*(f"{rate:.1%}" for rate in rates), *(f"{each:.3f}" for each in likely))
