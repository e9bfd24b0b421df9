"""The tables of README.md in this folder, from the runs that lie in it; takes a few minutes.

python results/minigrid/make.py
"""

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vcse.reports.loaded_runs import gather
from vcse.reports.statistics import (
    Aggregate,
    Scores,
    area_under_curve,
    bootstrap_difference,
    bootstrap_interval,
    interquartile_mean,
    mean,
)
from vcse.reports.verdicts import FEWEST_EPISODES
from vcse.runs.checkpoint import write_atomically

HERE = Path(__file__).parent
PAGE = HERE / "README.md"

# Where success is judged beside the area under the curve.
NAMED_FRAMES = {
    "minigrid/LavaGapS7": 100_000,
    "minigrid/Empty-16x16": 250_000,
    "minigrid/SimpleCrossingS9N1": 500_000,
    "minigrid/DoorKey-6x6": 300_000,
    "minigrid/Unlock": 500_000,
    "minigrid/DoorKey-8x8": 3_000_000,
}
METHODS = ("none", "se", "se-matched", "vcse", "vcse-reward")
CLAIMS = (
    ("vcse", "none"),
    ("vcse", "se"),
    ("se", "none"),
    ("vcse", "se-matched"),
    ("vcse", "vcse-reward"),
    ("se-matched", "none"),
    ("se-matched", "se"),
)
PAPER = {"se": 0.139, "vcse": 0.888}  # Section 5.1: LavaGapS7 after 100K steps
ALL = "mean of six"
REACHED = 0.8
FAILED = 0.5
FULL_WINDOW = 100  # episodes that success_rate looks back on, once there were as many
RESAMPLES = 10_000
SEED = 0  # of the bootstrap: the same curves give the same page
NOISE = 1e-9  # what two ways to add up the same numbers may differ by


class Runs(NamedTuple):
    """The runs of one method on one task, by seed."""

    seeds: tuple[int, ...]
    frames: Int[np.ndarray, " points"]
    columns: dict[str, Float[np.ndarray, "runs points"]]
    evaluations: dict[str, Float[np.ndarray, " runs"]]

    @property
    def success(self) -> Float[np.ndarray, "runs points"]:
        """Of the last hundred training episodes; NaN before enough have ended."""
        return np.where(self.columns["episodes"] >= FEWEST_EPISODES, self.columns["success_rate"], np.nan)

    @property
    def area(self) -> Float[np.ndarray, " runs"]:
        """Mean success over the frames of a run; until it is known there was none."""
        return area_under_curve(self.success[:, None], self.frames, before_first=0.0)[:, 0]

    def success_at(self, frame: int) -> Float[np.ndarray, " runs"]:
        """Success at the first row that is not before a frame."""
        return self.success[:, np.searchsorted(self.frames, frame)]

    def frames_to(self, share: float) -> Float[np.ndarray, " runs"]:
        """Return the first row at which a full window has so much success, infinity where there is none."""
        there = (self.success >= share) & (self.columns["episodes"] >= FULL_WINDOW)
        return np.where(there.any(1), self.frames[there.argmax(1)], math.inf)


class Judgement(NamedTuple):
    """How far one method is ahead of another: difference of interquartile means, and its 95 % interval."""

    difference: float
    low: float
    high: float

    @property
    def verdict(self) -> str:
        """Holds or contradicted where the interval excludes 0."""
        if self.low > NOISE:
            return "holds"
        return "contradicted" if self.high < -NOISE else "undecided"


class Judgements(NamedTuple):
    """The same by two measures."""

    area: Judgement
    at_frame: Judgement


Study = Mapping[tuple[str, str], Runs]
Claim = tuple[str, str]  # the first method is ahead of the second


def main() -> int:
    """Make all that follows from the numbers."""
    study = read_study()
    judged = judge(study)
    parts = {
        "size": size(study),
        "verdicts": verdicts(judged),
        "paper": against_paper(study),
        "tasks": "\n\n".join(task_table(study, task) for task in NAMED_FRAMES),
        "lost": lost(study),
        "differences": differences(judged),
        "zero radii": by_task(study, "zero_radius_share"),
        "decided by value": by_task(study, "decided_by_value_share"),
        "spread": spreads(study),
        "policy entropy": by_task(study, "policy_entropy", METHODS, lambda each: f"{each[:, -1].mean():.2f}"),
    }
    write_atomically(PAGE, filled(PAGE.read_text(), parts).encode())
    return 0


def read_study() -> dict[tuple[str, str], Runs]:
    """Read the runs, and refuse them where one is missing or has rows at other frames than its like."""
    found = gather(HERE).runs
    study = {}
    for task in NAMED_FRAMES:
        for method in METHODS:
            runs = sorted((run for run in found if (run.task, run.method) == (task, method)), key=lambda run: run.seed)
            if not runs or any(not run.done or not np.array_equal(run.frames, runs[0].frames) for run in runs):
                raise ValueError(f"{task} with {method} must have whole runs with rows at the same frames")
            columns = {name: np.stack([run.columns[name] for run in runs]) for name in runs[0].columns}
            scores = {name: np.array([run.evaluation[name] for run in runs]) for name in runs[0].evaluation}
            study[task, method] = Runs(tuple(run.seed for run in runs), runs[0].frames, columns, scores)
    return study


def at_named_frame(task: str, runs: Runs) -> Float[np.ndarray, " runs"]:
    """Return the success at the frame at which a task is judged."""
    return runs.success_at(NAMED_FRAMES[task])


def mean_of_tasks(scores: Scores) -> Aggregate:
    """Return the interquartile mean of each task, and of these the mean: every task counts the same."""
    return np.mean([interquartile_mean(scores[:, [task]]) for task in range(scores.shape[1])], 0)


def judge(study: Study) -> dict[Claim, dict[str, Judgements]]:
    """Judge every claim on every task and over all tasks, each by area and at the named frame."""
    generator = np.random.default_rng(SEED)
    found: dict[Claim, dict[str, Judgements]] = {}
    for claim in CLAIMS:
        for name, tasks in [*((task, [task]) for task in NAMED_FRAMES), (ALL, list(NAMED_FRAMES))]:
            mine, theirs = (np.stack([_measures(study, task, method) for task in tasks], 1) for method in claim)
            differences = mean_of_tasks(mine) - mean_of_tasks(theirs)
            interval = bootstrap_difference(mine, theirs, generator, statistic=mean_of_tasks, resamples=RESAMPLES)
            judged = [Judgement(*map(float, each)) for each in zip(differences, *interval, strict=True)]
            found.setdefault(claim, {})[name] = Judgements(*judged)
    return found


def size(study: Study) -> str:
    """Return how many runs, rows and frames there are."""
    runs = sum(len(each.seeds) for each in study.values())
    rows = sum(each.success.size for each in study.values())
    frames = sum(len(each.seeds) * int(each.frames[-1]) for each in study.values())
    return f"{runs} runs, {rows:,} rows, {frames / 1e6:.0f} million frames."


def verdicts(judged: Mapping[Claim, Mapping[str, Judgements]]) -> str:
    """One word for each claim and task, by area and at the named frame."""
    rows = []
    for claim, by_name in judged.items():
        words = [(each.area.verdict, each.at_frame.verdict) for each in by_name.values()]
        cells = [" / ".join(f"**{word}**" if word != "undecided" else word for word in pair) for pair in words]
        rows.append([_claim(claim), *cells])
    return table(["claim", *map(_short, NAMED_FRAMES), ALL], rows, left=len(NAMED_FRAMES) + 2)


def against_paper(study: Study) -> str:
    """LavaGapS7 at 100K, with what the paper says."""
    task = "minigrid/LavaGapS7"
    rows = []
    for method in METHODS:
        scores = at_named_frame(task, study[task, method])[:, None, None]
        rows.append(
            [
                method,
                *(_with_interval(scores, statistic) for statistic in (mean, interquartile_mean)),
                _percent(PAPER[method], 1) if method in PAPER else "",
            ]
        )
    return table(["method", "mean here", "IQM here", "paper"], rows)


def task_table(study: Study, task: str) -> str:
    """Return all numbers of one task, with a heading."""
    named, last = NAMED_FRAMES[task], int(study[task, METHODS[0]].frames[-1])
    apart = last - named > 5_000
    heads = ["method"]
    heads += [f"mean, {_frames(named)}", f"IQM, {_frames(named)}"] if apart else []
    heads += [f"mean, {_frames(last)}", f"IQM, {_frames(last)}", "area, mean", "area, IQM", "frames to 80 %", "never"]
    heads += ["eval, sampled", "eval, greedy", "failed"]
    rows = []
    for method in METHODS:
        runs = study[task, method]
        end, to_goal = runs.success[:, -1], runs.frames_to(REACHED)
        cells = [method]
        for scores in [*([runs.success_at(named)] if apart else []), end, runs.area]:
            cells += [_percent(scores.mean()), _with_interval(scores[:, None, None], interquartile_mean)]
        middle = float(np.median(to_goal))
        cells += [f"{middle:,.0f}" if math.isfinite(middle) else "–", str(int(np.isinf(to_goal).sum()))]
        cells += [_percent(runs.evaluations[name].mean()) for name in ("success_rate", "argmax_success_rate")]
        rows.append([*cells, str(int((end < FAILED).sum()))])
    return f"### {_short(task)}\n\n{table(heads, rows)}"


def lost(study: Study) -> str:
    """Name the runs that had learned a task and failed in the end."""
    named = [
        f"{_short(task)} with {method}, seed {runs.seeds[run]}"
        for (task, method), runs in study.items()
        for run in np.flatnonzero(np.isfinite(runs.frames_to(REACHED)) & (runs.success[:, -1] < FAILED))
    ]
    return f"Runs that reached {REACHED:.0%} and ended below {FAILED:.0%}: {'; '.join(named) or 'none'}."


def differences(judged: Mapping[Claim, Mapping[str, Judgements]]) -> str:
    """Return the numbers behind the verdicts, in percentage points."""
    rows = []
    for claim, by_name in judged.items():
        for name, (area, at_frame) in by_name.items():
            frame = _frames(NAMED_FRAMES[name]) if name in NAMED_FRAMES else "as above"
            numbers = [_points(area), area.verdict, frame, _points(at_frame), at_frame.verdict]
            rows.append([_claim(claim), _short(name), *numbers])
    return table(["claim", "task", "area", "verdict", "frame", "success", "verdict"], rows, left=2)


def by_task(
    study: Study,
    column: str,
    methods: Iterable[str] = METHODS,
    cell: Callable[[Float[np.ndarray, "runs points"]], str] = lambda each: f"{100 * each.mean():.0f} %",
) -> str:
    """Return one column of the curves, methods by tasks; methods that do not have it are left out."""
    rows = []
    for method in methods:
        columns = [study[task, method].columns[column] for task in NAMED_FRAMES]
        if not all(np.isnan(each).all() for each in columns):
            rows.append([method, *map(cell, columns)])
    return table(["method", *map(_short, NAMED_FRAMES)], rows)


def spreads(study: Study) -> str:
    """Return the standard deviation of the bonus inside a batch, and that of the batches in which no radius is 0."""
    rows = []
    for method in METHODS[1:]:
        cells = []
        for task in NAMED_FRAMES:
            columns = study[task, method].columns
            without = columns["bonus_std"][columns["zero_radius_share"] == 0]
            shown = f"{without.mean():.2f} ({without.size})" if without.size else "–"
            cells.append(f"{columns['bonus_std'].mean():.2f}; {shown}")
        rows.append([method, *cells])
    return table(["method", *map(_short, NAMED_FRAMES)], rows)


def filled(page: str, parts: Mapping[str, str]) -> str:
    """Put parts between their marks in a page; each mark must be there once."""
    for name, content in parts.items():
        begin, end = f"<!-- make.py: {name} -->", "<!-- end -->"
        pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
        if len(pattern.findall(page)) != 1:
            raise ValueError(f"{PAGE.name} must have the mark {begin!r} once")
        page = pattern.sub(lambda _, text=f"{begin}\n{content}\n{end}": text, page)
    return page


def table(heads: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> str:
    """Write a Markdown table, its first columns to the left and the others to the right."""
    marks = ["---" if place < left else "--:" for place in range(len(heads))]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [heads, marks, *rows])


def _measures(study: Study, task: str, method: str) -> Float[np.ndarray, "runs 2"]:
    runs = study[task, method]
    return np.stack((runs.area, at_named_frame(task, runs)), 1)


def _with_interval(scores: Float[np.ndarray, "runs 1 1"], statistic: Callable[..., Float[np.ndarray, " 1"]]) -> str:
    interval = bootstrap_interval(scores, np.random.default_rng(SEED), statistic=statistic, resamples=RESAMPLES)
    low, high = (_percent(float(each[0])) for each in interval)
    return f"{_percent(float(statistic(scores)[0]))} [{low}, {high}]"


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}"


def _points(judgement: Judgement) -> str:
    difference, low, high = (f"{100 * each + 0.0:+.1f}".replace("-0.0", "+0.0") for each in judgement)
    return f"{difference} [{low}, {high}]"


def _claim(claim: tuple[str, str]) -> str:
    return f"{claim[0]} > {claim[1]}"


def _short(task: str) -> str:
    return task.removeprefix("minigrid/")


def _frames(frames: int) -> str:
    return f"{frames / 1e6:.3g}M" if frames >= 1e6 else f"{frames / 1e3:.0f}K"


if __name__ == "__main__":
    sys.exit(main())
