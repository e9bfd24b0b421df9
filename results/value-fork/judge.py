"""Write differences.csv, the figure, and the tables of both pages, from the archive.

python results/value-fork/judge.py
"""

import csv
import dataclasses
import io
import itertools
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from jaxtyping import Float
from matplotlib import rc_context
from matplotlib.figure import Figure

from vcse.envs.fork.world import FIRSTS, ROOMS
from vcse.reports.figures import OTHER_COLOURS, THEMES, to_png
from vcse.reports.loaded_run import GatheredRun
from vcse.reports.loaded_runs import gather
from vcse.reports.statistics import area_under_curve, bootstrap_interval, holm, mean
from vcse.runs.checkpoint import write_atomically

HERE = Path(__file__).parent
PAGES = (HERE / "README.md", HERE.parents[1] / "docs" / "explanation" / "when-the-value-helps.md")
ARMS = ("none", "se-matched", "vcse")
SEEDS = tuple(range(16))
RATIOS = tuple(ROOMS)
SUCCESS, RETURN = "success_rate", "return_mean"
FIRST_HALF, SECOND_HALF = "success, first half of training", "success, second half of training"
MEASURES = ("success", "return", FIRST_HALF, SECOND_HALF)
WITH_REWARD = (1, 6)  # first cells from which some reward has been seen before the end has
RESAMPLES = 10_000
LEVEL = 0.05
SEED = 0  # the same runs give the same page

Areas = Mapping[tuple[str, int, int, str], Float[np.ndarray, " seeds"]]  # by measure, ratio, first and arm


@dataclass(frozen=True)
class Difference:
    """VCSE less se-matched, paired by seed."""

    measure: str
    where: str
    mean: float
    low: float
    high: float
    p_value: float  # that signs are a matter of chance
    p_holm: float = float("nan")  # corrected for the twelve tasks
    verdict: str = ""


def main() -> int:
    """Judge, draw, and fill the pages."""
    areas = all_areas(gather(HERE).runs)
    rows = [row for measure in MEASURES for row in by_task(areas, measure)]
    over = [each for measure in MEASURES for each in over_tasks(areas, measure)]
    file = io.StringIO()
    writer = csv.DictWriter(file, [field.name for field in dataclasses.fields(Difference)], lineterminator="\n")
    writer.writeheader()
    for row in (*rows, *over):
        cells = dataclasses.asdict(row).items()
        writer.writerow({name: f"{each:.6g}" if isinstance(each, float) else each for name, each in cells})
    write_atomically(HERE / "differences.csv", file.getvalue().encode())
    figure = drawn(rows)
    write_atomically(HERE / "curve.png", to_png(figure, 110))
    content = io.BytesIO()
    # Neither the date nor random ids: the same runs give the same bytes.
    with rc_context({"svg.hashsalt": "vcse", "svg.fonttype": "none"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    write_atomically(HERE / "curve.svg", content.getvalue())
    parts = {"tasks": task_table(areas, rows), "over tasks": over_table(over)}
    for page in PAGES:
        write_atomically(page, filled(page.read_text(), parts).encode())
    print("\n\n".join(parts.values()))
    return 0


def all_areas(runs: Sequence[GatheredRun]) -> Areas:
    """Return the mean height of the curves of every seed, and refuse a study that lacks some of it."""
    found = {run.identity: run for run in runs if run.done}
    areas = {}
    for ratio, first, arm in itertools.product(RATIOS, FIRSTS, ARMS):
        identities = [(f"fork/ratio{ratio}-first{first}", arm, seed) for seed in SEEDS]
        if missing := [each for each in identities if each not in found]:
            raise ValueError(f"runs must be whole, {len(missing)} are not, such as {missing[0]}")
        mine = [found[each] for each in identities]
        for measure in MEASURES:
            areas[measure, ratio, first, arm] = np.array([area(run, measure) for run in mine])
    return areas


def area(run: GatheredRun, measure: str) -> float:
    """Return the mean height of one curve, or of half of it."""
    kept = np.ones(len(run.frames), dtype=np.bool_)
    if measure in (FIRST_HALF, SECOND_HALF):
        is_early = run.frames <= run.frames[-1] / 2
        kept = is_early if measure == FIRST_HALF else ~is_early
    scores = run.columns[RETURN if measure == "return" else SUCCESS][kept]
    return float(area_under_curve(scores[None, None], run.frames[kept])[0, 0])


def by_task(areas: Areas, measure: str) -> list[Difference]:
    """Return the difference on every task, corrected for how many there are."""
    rows = [
        judged(measure, f"ratio{ratio}-first{first}", paired(areas, measure, ratio, first))
        for first, ratio in itertools.product(FIRSTS, RATIOS)
    ]
    corrected = holm([row.p_value for row in rows])
    return [
        dataclasses.replace(row, p_holm=p_holm, verdict=verdict(row.mean, p_holm))
        for row, p_holm in zip(rows, corrected, strict=True)
    ]


def over_tasks(areas: Areas, measure: str) -> list[Difference]:
    """Return what was asked beforehand: the difference in wide rooms, and how much more that is than in small ones."""

    def of(ratios: Sequence[int], firsts: Sequence[int] = WITH_REWARD) -> Float[np.ndarray, " seeds"]:
        each = [paired(areas, measure, ratio, first) for ratio, first in itertools.product(ratios, firsts)]
        return np.mean(each, axis=0)  # by seed, which tasks have in common

    return [
        judged(measure, "all twelve tasks", of(RATIOS, FIRSTS)),
        judged(measure, "ratio 16 and 64, first 1 and 6", of((16, 64))),
        judged(measure, "that less ratio 1 and 4, first 1 and 6", of((16, 64)) - of((1, 4))),
    ]


def paired(areas: Areas, measure: str, ratio: int, first: int) -> Float[np.ndarray, " seeds"]:
    """Return the difference of each seed."""
    return areas[measure, ratio, first, "vcse"] - areas[measure, ratio, first, "se-matched"]


def judged(measure: str, where: str, differences: Float[np.ndarray, " seeds"]) -> Difference:
    """Return the mean of differences with its interval and its p-value."""
    scores = differences[:, None, None]
    low, high = bootstrap_interval(scores, np.random.default_rng(SEED), statistic=mean, resamples=RESAMPLES)
    return Difference(
        measure, where, float(differences.mean()), float(low[0]), float(high[0]), sign_flip_p_value(differences)
    )


def sign_flip_p_value(differences: Float[np.ndarray, " seeds"]) -> float:
    """Return how often a mean is as far from 0 when every difference may have either sign: of all ways, two-sided."""
    count = len(differences)
    signs = 1 - 2 * ((np.arange(2**count)[:, None] >> np.arange(count)) & 1)
    # What two ways to add up the same numbers may differ by is no difference.
    at_least = abs(differences.sum()) - 1e-12 * np.abs(differences).sum()
    return float(np.mean(np.abs(signs @ differences) >= at_least))


def verdict(difference: float, p_holm: float) -> str:
    """Return one word, or three."""
    if p_holm >= LEVEL:
        return "not told apart"
    return "helps" if difference > 0 else "hurts"


def drawn(rows: Sequence[Difference]) -> Figure:
    """Draw the differences over the ratio: a panel per measure, a line per first cell that pays."""
    look = THEMES["light"]
    figure = Figure(figsize=(10.0, 6.6), layout="constrained")
    places = np.arange(len(RATIOS), dtype=float)
    titles = {"success": "success, all of training", "return": "return, all of training"}
    with rc_context({"font.size": 10}):
        for panel, measure in zip(figure.subplots(2, 2).flatten(), MEASURES, strict=True):
            found = {row.where: row for row in rows if row.measure == measure}
            for number, first in enumerate(FIRSTS):
                mine = [found[f"ratio{ratio}-first{first}"] for ratio in RATIOS]
                means = np.array([row.mean for row in mine])
                ends = np.array([[row.mean - row.low, row.high - row.mean] for row in mine]).T
                name = {1: "pays at once (first = 1)", 6: "from halfway on (6)", 12: "at the end alone (12)"}[first]
                aside = places + 0.08 * (number - 1)
                panel.errorbar(
                    aside, means, ends, color=OTHER_COLOURS[number], marker="o", linewidth=1.9, capsize=3, label=name
                )
            panel.axhline(0, color=look.faint, linewidth=1)
            panel.set_title(titles.get(measure, measure), loc="left", color=look.text, fontweight="bold")
            panel.set_xticks(places, [str(ratio) for ratio in RATIOS])
            panel.set_xlabel("cells of the room over cells of the corridor", color=look.faint)
            panel.grid(axis="y", color=look.grid)
            panel.set_axisbelow(True)
            panel.tick_params(colors=look.faint, length=0)
            panel.spines[:].set_visible(False)
        panels = figure.axes
        bounds = [panel.get_ylim() for panel in panels[2:]]
        for panel in panels[2:]:  # halves of one measure
            panel.set_ylim(min(low for low, _ in bounds), max(high for _, high in bounds))
        for panel in panels[::2]:
            panel.set_ylabel("VCSE less se-matched", color=look.faint)
        handles, names = panels[0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=len(FIRSTS), frameon=False)
    return figure


def task_table(areas: Areas, rows: Sequence[Difference]) -> str:
    """Return the areas of every arm and the differences, as Markdown."""
    found = {(row.measure, row.where): row for row in rows}
    lines = [
        "| task | none | se-matched | VCSE | VCSE less se-matched, success | p (Holm) | | return | p (Holm) | |",
        "|---|--:|--:|--:|--:|--:|---|--:|--:|---|",
    ]
    for first, ratio in itertools.product(FIRSTS, RATIOS):
        name = f"ratio{ratio}-first{first}"
        means = [f"{areas['success', ratio, first, arm].mean():.3f}" for arm in ARMS]
        cells = [f"`{name}`", *means]
        for measure in ("success", "return"):
            row = found[measure, name]
            cells += [with_interval(row), f"{row.p_holm:.2g}", row.verdict]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def over_table(rows: Sequence[Difference]) -> str:
    """Return the differences over several tasks, as Markdown."""
    lines = ["| VCSE less se-matched | " + " | ".join(MEASURES) + " |", "|---|" + "--:|" * len(MEASURES)]
    for where in dict.fromkeys(row.where for row in rows):
        cells = [with_interval(row) for row in rows if row.where == where]
        lines.append(f"| {where} | {' | '.join(cells)} |")
    return "\n".join(lines)


def with_interval(row: Difference) -> str:
    """Return a difference and its interval."""
    digits = 2 if row.measure == "return" else 3
    shown = (f"{each + 0.0:+.{digits}f}" for each in (row.mean, row.low, row.high))
    middle, low, high = (re.sub(r"^-(0\.0+)$", r"+\1", each) for each in shown)
    return f"{middle} [{low}, {high}]"


def filled(page: str, parts: Mapping[str, str]) -> str:
    """Put parts between their marks in a page, where it has them."""
    for name, content in parts.items():
        begin, end = f"<!-- judge.py: {name} -->", "<!-- end -->"
        head, found, rest = page.partition(begin)
        if found:
            page = f"{head}{begin}\n{content}\n{end}{rest.partition(end)[2]}"
    return page


if __name__ == "__main__":
    sys.exit(main())
