"""One page about runs of one task: self-contained HTML, with its figure and its table as files beside it."""

import csv
import io
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from vcse.agents import read_config
from vcse.reports import figures
from vcse.reports.demo_curves import Arm, Curves, lines, read_curves
from vcse.reports.provenance import all_of, commit, data_uri, machine, versions
from vcse.reports.statistics import FEWEST_RUNS, bootstrap_interval, interquartile_mean, mean
from vcse.runs.checkpoint import write_atomically
from vcse.runs.directory import read_rows

METHOD_NAMES = {
    "none": "no bonus",
    "se": "state entropy",
    "vcse": "value-conditional state entropy",
    "se-matched": "VCSE with the value left out",
    "rcse": "reward-conditional state entropy",
}
SEED = 0  # of the bootstrap: the same runs give the same page


@dataclass(frozen=True)
class Story:
    """What the page says beyond the numbers."""

    title: str
    explanation: str  # what was run
    command: str  # that makes the page again
    paper: Mapping[str, float] = field(default_factory=dict)  # success that the paper states, by method
    paper_frames: int | None = None  # after how many frames
    notes: Sequence[str] = ()  # why the paper's numbers may differ
    film_caption: str = ""


@dataclass(frozen=True)
class Row:
    """One method: success of its runs, as shares. NaN where nothing was measured."""

    method: str
    runs: int
    seeds: str
    frame: int
    train_mean: float  # over runs, of the last hundred training episodes
    train_mean_low: float
    train_mean_high: float
    train_iqm: float
    train_iqm_low: float
    train_iqm_high: float
    eval_sampled: float
    eval_likeliest: float
    paper: float


@dataclass(frozen=True)
class Making:
    """How the runs were made."""

    frames: int  # of all runs together
    seconds: float  # from the first frame of any to the last row of any, pauses included
    commit: str
    machine: str
    versions: str


def write_page(paths: Sequence[Path], out: Path, story: Story, film: Path | None = None) -> list[Row]:
    """Write `index.html`, `curves.png`, `curves-dark.png` and `table.csv` below a directory, and give the table.

    Args:
        paths: Directories of runs of one task, all of them trained.
        out: Where the page goes.
        story: What it says.
        film: A GIF of a trained policy.
    """
    curves = read_curves(paths)
    tasks = {task for task, _ in curves}
    if len(tasks) != 1:
        raise ValueError(f"a page is about one task, got {len(tasks)}: {', '.join(sorted(tasks))}")
    table = summarise(paths, curves, story)
    drawn = lines(curves, np.random.default_rng(SEED))
    pictures = {theme: figures.to_png(figures.success_curves(drawn, theme)) for theme in figures.THEMES}
    write_atomically(out / "curves.png", pictures["light"])
    write_atomically(out / "curves-dark.png", pictures["dark"])
    write_atomically(out / "table.csv", _csv(table).encode())
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("vcse.reports"), autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True
    )
    templates.filters |= {"percent": percent, "data_uri": data_uri}
    text = templates.get_template("page.html").render(
        story=story,
        task=tasks.pop(),
        rows=table,
        headline=headline(table),
        comparisons=comparisons(table, story),
        colours={row.method: figures.method_colour(row.method, [each.method for each in table]) for row in table},
        names=METHOD_NAMES,
        light=pictures["light"],
        dark=pictures["dark"],
        film=None if film is None else film.read_bytes(),
        making=describe_making(paths),
    )
    write_atomically(out / "index.html", text.encode())
    return table


def summarise(paths: Sequence[Path], curves: Mapping[Arm, Curves], story: Story) -> list[Row]:
    """Put the numbers of each method together."""
    generator = np.random.default_rng(SEED)
    evaluated: dict[Arm, list[dict[str, float]]] = {}
    for path in paths:
        config = read_config(path)
        rows = read_rows(path / "eval.csv") if (path / "eval.csv").exists() else []
        evaluated.setdefault((config.task, config.method), []).extend(rows[-1:])
    table = []
    for arm, mine in curves.items():
        scores = mine.success[:, None, -1:]
        means = bootstrap_interval(scores, generator, statistic=mean)
        middles = bootstrap_interval(scores, generator)
        # A mean over some of the runs would be one of others than the rest of the row.
        whole = evaluated[arm] if len(evaluated[arm]) == len(mine.seeds) else []
        table.append(
            Row(
                method=arm[1],
                runs=len(mine.seeds),
                seeds=_ranges(mine.seeds),
                frame=int(mine.frames[-1]),
                train_mean=float(mean(scores)[0]),
                train_mean_low=float(means.low[0]),
                train_mean_high=float(means.high[0]),
                train_iqm=float(interquartile_mean(scores)[0]),
                train_iqm_low=float(middles.low[0]),
                train_iqm_high=float(middles.high[0]),
                eval_sampled=_mean([row["success_rate"] for row in whole]),
                eval_likeliest=_mean([row["argmax_success_rate"] for row in whole]),
                paper=story.paper.get(arm[1], math.nan),
            )
        )
    return table


def headline(table: Sequence[Row]) -> str:
    """Say the result in one sentence, the best method first."""
    best, *others = sorted(table, key=lambda row: math.inf if math.isnan(row.train_mean) else -row.train_mean)
    told = f"{best.method} reaches the goal in {percent(best.train_mean)} of its training episodes"
    rest = [f"{row.method} in {percent(row.train_mean)}" for row in others]
    return f"After {best.frame:,} frames {', '.join([told, *rest])}."


def comparisons(table: Sequence[Row], story: Story) -> list[str]:
    """Hold our means against the paper's, a sentence each, and say where they do not bear a comparison."""
    stated = [row for row in table if not math.isnan(row.paper)]
    if not stated or story.paper_frames is None:
        return []
    frame, runs = stated[0].frame, min(row.runs for row in stated)
    if abs(frame - story.paper_frames) > 0.05 * story.paper_frames:
        return [
            f"The paper's numbers are for {story.paper_frames:,} frames and these runs end at {frame:,}: they are "
            "not compared."
        ]
    if runs < FEWEST_RUNS:
        return [f"With {runs} run{'s' if runs > 1 else ''} of a method there is nothing to compare yet."]
    sentences = []
    for row in stated:
        verdict = "The two agree: the paper's number lies inside"
        if not row.train_mean_low <= row.paper <= row.train_mean_high:
            verdict = f"Ours is {'higher' if row.train_mean > row.paper else 'lower'}: the paper's number lies outside"
        sentences.append(
            f"{row.method}: {percent(row.train_mean)} here, {percent(row.paper)} in the paper. {verdict} the 95% "
            f"interval of our mean, {percent(row.train_mean_low)} to {percent(row.train_mean_high)}."
        )
    unstated = [row.method for row in table if math.isnan(row.paper)]
    if unstated:
        sentences.append(f"{' and '.join(unstated)}: the paper's text states no number.")
    return sentences


def describe_making(paths: Sequence[Path]) -> Making:
    """Read how runs were made; where they differ, all that was found is named."""
    metas = [json.loads((path / "meta.json").read_text()) for path in paths]
    timings = [rows for path in paths if (rows := read_rows(path / "timing.csv"))]
    starts = [rows[0]["unix_time"] - rows[0]["frame"] / rows[0]["frames_per_s"] for rows in timings]
    seconds = max(rows[-1]["unix_time"] for rows in timings) - min(starts) if timings else math.nan
    return Making(
        frames=sum(int(rows[-1]["frame"]) for rows in timings),
        seconds=seconds,
        commit=all_of(commit(meta) for meta in metas),
        machine=all_of(machine(meta) for meta in metas),
        versions=all_of(versions(meta) for meta in metas),
    )


def percent(share: float, digits: int = 1) -> str:
    """Write a share as people read it."""
    return "–" if math.isnan(share) else f"{100 * share:.{digits}f}%"


def _mean(numbers: Sequence[float]) -> float:
    return float(np.mean(numbers)) if numbers else math.nan


def _ranges(seeds: Sequence[int]) -> str:
    """Write sorted seeds as ranges: 0 to 3, 7."""
    runs: list[list[int]] = []
    for seed in seeds:
        if runs and seed == runs[-1][-1] + 1:
            runs[-1].append(seed)
        else:
            runs.append([seed])
    return ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]} to {run[-1]}" for run in runs)


def _csv(table: Sequence[Row]) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, list(asdict(table[0])), lineterminator="\n")
    writer.writeheader()
    for row in table:
        writer.writerow({name: _cell(value) for name, value in asdict(row).items()})
    return text.getvalue()


def _cell(value: Any) -> Any:
    return "" if isinstance(value, float) and math.isnan(value) else value
