"""`vcse eval`: how well trained policies do."""

import json as json_format
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from vcse.agents import agent_entry, readable_runs
from vcse.cli.flags import check_least
from vcse.cli.option_types import Flag, WholeIfGiven
from vcse.launch.devices import Device, resolve_device
from vcse.play.evaluate import evaluate_policies
from vcse.play.load import load_policies, usual_episodes
from vcse.play.shipped import find_policies
from vcse.runs.config import RunConfig, flat
from vcse.runs.directory import has_saved, run_directories
from vcse.runs.evaluation import TwoEvaluations
from vcse.runs.formatting import counted
from vcse.runs.machine import cores

# What a policy does not depend on, as far as runs that share the rest are runs of one thing.
NO_SETTINGS = (
    *("seed", "frames", "keep_replay", "visits_every_frames"),
    *("row_every_frames", "eval_every_frames", "eval_episodes", "checkpoint_every_frames"),
)


@dataclass(frozen=True)
class Row:
    """One run's evaluation, as far as it does not depend on the kind of actions."""

    run: str
    task: str
    method: str
    seed: int
    frame: int
    episodes: int
    return_mean: float


@dataclass(frozen=True)
class DiscreteRow(Row):
    """Under the names of `eval.csv`: actions are sampled, or, for argmax, greedy."""

    success_rate: float | None  # None where nobody says what success is
    argmax_return_mean: float
    argmax_success_rate: float | None


@dataclass(frozen=True)
class ContinuousRow(Row):
    """Where actions are continuous: the policy's mean, or, for sampled, drawn from it."""

    sampled_return_mean: float
    success_rate: float | None = None  # where the task knows success
    sampled_success_rate: float | None = None


class Played(NamedTuple):
    """A run, and how well its policy did."""

    config: RunConfig
    row: Row


def evaluate_runs(
    directory: Annotated[Path, tyro.conf.Positional],
    /,
    episodes: WholeIfGiven = None,
    device: Device = "auto",
    json: Flag = False,
) -> int:
    """Play episodes with the newest policy of every run, with sampled and with greedy actions.

    Means are over the seeds of one task, method and settings, at the same frame; settings are named where they differ.
    Layouts and actions depend only on the run's seed and its frame, so a finished run reproduces the last row of its
    eval.csv, unless --episodes differs; on another device, or with images rendered by another library, nearly so. A run
    without a checkpoint is named and skipped; so is one with damaged files, and then the exit status is 1.

    Args:
        directory: A run, a directory of runs, or the name of a policy that ships with vcse-policies, such as
            minigrid/LavaGapS7/vcse.
        episodes: Episodes per run, for each of the two ways to act. Default: as many as in training, or, if that is 0,
            100 in MiniGrid and 10 otherwise.
        device: Where the networks live; auto is the GPU if there is one.
        json: Print the rows as a JSON list, one per run, on standard output, and nothing else.
    """
    check_least(episodes=(episodes, 1))
    directory = find_policies(directory)
    played: list[Played] = []
    for policies in load_policies(list(readable_runs(directory)), resolve_device(device)):
        count = usual_episodes(policies) if episodes is None else episodes
        runs = policies.configs[0].name if len(policies.configs) == 1 else f"{len(policies.configs)} runs"
        print(f"vcse: {runs} at frame {policies.frame:,}, {counted(count, 'episode')} each, twice", file=sys.stderr)
        found = evaluate_policies(policies, episodes=count, threads=cores())
        for path, config, each in zip(policies.paths, policies.configs, found, strict=True):
            played.append(Played(config, _row(path, config, policies.frame, each)))
    played.sort(key=lambda each: (each.row.task, each.row.method, each.row.seed))
    if json:
        print(json_format.dumps([asdict(each.row) for each in played], indent=1))
    else:
        for number, task in enumerate(dict.fromkeys(each.row.task for each in played)):
            if number:
                print()
            Console().print(_table(task, [each for each in played if each.row.task == task]))
    paths = {Path(each.row.run) for each in played}
    spoilt = [path for path in run_directories(directory) if path not in paths and has_saved(path)]
    return 1 if spoilt else 0


def _row(path: Path, config: RunConfig, frame: int, found: TwoEvaluations) -> Row:
    sampled, greedy = found
    identity: dict[str, Any] = {
        "run": str(path),
        "task": config.task,
        "method": config.method,
        "seed": config.seed,
        "frame": frame,
        "episodes": len(sampled.returns),
    }
    if agent_entry(config.agent).has_discrete_actions:
        return DiscreteRow(
            **identity,
            return_mean=sampled.return_mean,
            success_rate=_known(sampled.success_rate),
            argmax_return_mean=greedy.return_mean,
            argmax_success_rate=_known(greedy.success_rate),
        )
    return ContinuousRow(
        **identity,
        return_mean=greedy.return_mean,
        sampled_return_mean=sampled.return_mean,
        success_rate=None if greedy.successes is None else greedy.success_rate,
        sampled_success_rate=None if sampled.successes is None else sampled.success_rate,
    )


def _known(rate: float) -> float | None:
    """Return a rate, or None where nobody knows it: rows are printed as JSON, which has no NaN."""
    return None if math.isnan(rate) else rate


def _table(task: str, played: Sequence[Played]) -> Table:
    rows = [each.row for each in played]
    fewest, most = min(row.episodes for row in rows), max(row.episodes for row in rows)
    episodes = counted(most, "episode") if fewest == most else f"{fewest} to {counted(most, 'episode')}"
    title = f"{task}: {episodes} of each run"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("method", overflow="fold")
    ways = ("mean action", "sampled") if isinstance(rows[0], ContinuousRow) else ("sampled", "greedy")
    measures = ("success", "return") if _knows_success(rows) else ("return",)
    scores = [f"{measure},\n{way}" for measure in measures for way in ways]
    for heading in ("seed", "frame", *scores):
        table.add_column(heading, justify="right", no_wrap=True)
    for (label, frame), mine in _arms(played).items():
        for row in mine:
            table.add_row(label, str(row.seed), f"{frame:,}", *_numbers([row], rates=_knows_success(rows)))
        if len(mine) > 1:
            means = _numbers(mine, rates=_knows_success(rows))
            table.add_row(label, "mean", counted(len(mine), "run"), *means, style="bold", end_section=True)
    return table


def _arms(played: Sequence[Played]) -> dict[tuple[str, int], list[Row]]:
    """Return the rows that differ in their seed alone, by what they are called and the frame of their policies."""
    arms: dict[tuple[str, int], list[Row]] = {}
    for method in dict.fromkeys(each.row.method for each in played):
        mine = [each for each in played if each.row.method == method]
        settings = [_settings(each.config) for each in mine]
        for each, suffix in zip(mine, _told_apart(settings), strict=True):
            arms.setdefault((f"{method}{suffix}", each.row.frame), []).append(each.row)
    return dict(sorted(arms.items()))


def _settings(config: RunConfig) -> dict[str, str]:
    """Return what decides a policy besides its seed and its frame."""
    return {name: str(value) for name, value in flat(config.to_json()).items() if name not in NO_SETTINGS}


def _told_apart(settings: Sequence[dict[str, str]]) -> list[str]:
    """Return the settings, as few as will do, that tell each of several choices of them from the others."""

    def kinds(names: Sequence[str]) -> int:
        return len({tuple(each.get(name) for name in names) for each in settings})

    shown: list[str] = []
    for name in dict.fromkeys(name for each in settings for name in each):  # the agent and the reading are the first
        if kinds([*shown, name]) > kinds(shown):
            shown.append(name)
    return ["".join(f", {name.rpartition('.')[2]}={each[name]}" for name in shown if name in each) for each in settings]


def _knows_success(rows: Sequence[Row]) -> bool:
    """Whether any of some rows has a success rate."""
    return any(getattr(row, name) is not None for row in rows for name in _names(row, "success_rate"))


def _names(row: Row, measure: str) -> tuple[str, str]:
    """Return under which names a row has a measure, by the two ways to act."""
    return measure, f"{'sampled' if isinstance(row, ContinuousRow) else 'argmax'}_{measure}"


def _numbers(rows: Sequence[Row], *, rates: bool) -> list[str]:
    """Return the means of rows as they are printed, with success rates if there are any."""

    def means(measure: str, form: str) -> list[str]:
        found = []
        for name in _names(rows[0], measure):
            known = [getattr(row, name) for row in rows if getattr(row, name) is not None]
            found.append(form.format(np.mean(known)) if known else "-")
        return found

    returns = means("return_mean", "{:.1f}" if isinstance(rows[0], ContinuousRow) else "{:.3f}")
    return [*(means("success_rate", "{:.1%}") if rates else []), *returns]
