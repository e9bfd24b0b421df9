"""Curves of many runs: read from `train.csv`, put together by task and method, aggregated over runs."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from vcse.agents import read_config
from vcse.reports.statistics import Aggregate, bootstrap_interval, interquartile_mean
from vcse.reports.verdicts import FEWEST_EPISODES
from vcse.runs.directory import read_rows


class Curves(NamedTuple):
    """Success of one method on one task over training, a row per run."""

    frames: Int[np.ndarray, " points"]
    success: Float[np.ndarray, "runs points"]  # of the last hundred training episodes; NaN before enough have ended
    seeds: tuple[int, ...]


class Line(NamedTuple):
    """The runs of one method on one task as one line: their interquartile mean with its 95 % interval."""

    frames: Int[np.ndarray, " points"]
    middle: Aggregate
    low: Aggregate
    high: Aggregate
    is_of_all: Bool[np.ndarray, " points"] | None = None  # whether all runs are in a point; None: in all of them


Arm = tuple[str, str]  # task and method


def read_curves(paths: Sequence[Path]) -> dict[Arm, Curves]:
    """Read the training curves of runs, those of a task and method together and by seed.

    Args:
        paths: Directories of runs. Those of one task and method must have rows at the same frames.
    """
    found: dict[Arm, dict[int, tuple[Path, Int[np.ndarray, " points"], Float[np.ndarray, " points"]]]] = {}
    for path in paths:
        config = read_config(path)
        rows = read_rows(path / "train.csv") if (path / "train.csv").exists() else []
        if not rows:
            raise ValueError(f"{path} has no row in train.csv yet")
        mine = found.setdefault((config.task, config.method), {})
        if config.seed in mine:
            raise ValueError(f"{mine[config.seed][0]} and {path} are the same run, seed {config.seed}")
        frames = np.array([int(row["frame"]) for row in rows])
        known = np.array([row.get("episodes", FEWEST_EPISODES) >= FEWEST_EPISODES for row in rows])
        mine[config.seed] = (path, frames, np.where(known, [row["success_rate"] for row in rows], np.nan))
    return {arm: _together(runs) for arm, runs in found.items()}


def lines(
    curves: Mapping[Arm, Curves], generator: np.random.Generator, *, resamples: int = 2000
) -> dict[str, dict[str, Line]]:
    """Aggregate curves over their runs: a line for each method of each task."""
    by_task: dict[str, dict[str, Line]] = {}
    for (task, method), each in curves.items():
        scores = each.success[:, None]
        interval = bootstrap_interval(scores, generator, resamples=resamples)
        by_task.setdefault(task, {})[method] = Line(each.frames, interquartile_mean(scores), *interval)
    return by_task


def _together(
    runs: Mapping[int, tuple[Path, Int[np.ndarray, " points"], Float[np.ndarray, " points"]]],
) -> Curves:
    seeds = sorted(runs)
    first_path, frames, _ = runs[seeds[0]]
    for seed in seeds[1:]:
        path, others, _ = runs[seed]
        if not np.array_equal(frames, others):
            raise ValueError(
                f"runs of one method must have rows at the same frames: {first_path} has {len(frames)} up to frame "
                f"{frames[-1]:,}, {path} has {len(others)} up to frame {others[-1]:,}"
            )
    return Curves(frames, np.stack([runs[seed][2] for seed in seeds]), tuple(seeds))
