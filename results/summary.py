"""Draw every judged claim of `results/*/report/claims.csv` as one forest.

`python results/summary.py` writes claims.svg and claims.png.
"""

import csv
from pathlib import Path
from typing import NamedTuple

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from vcse.reports.figures import to_png

HERE = Path(__file__).parent
COLOURS = {"holds": "#15803d", "contradicted": "#b91c1c", "undecided": "#92650c"}
# Where the paper prints a number for the difference that its claim is about, in points.
PRINTED = {"On LavaGapS7 after 100K frames": 88.8 - 13.9, "On Door Open after 100K frames": 85.0}
MOST_RETURN = 1000  # of an episode in DeepMind Control
ALL_TASKS = "all tasks together"
LEFT, WIDTH = 0.44, 0.31  # of the panel, in shares of the figure
CLAIM, VERDICT, STUDY = 0.01, 0.76, 0.845  # where the columns of text begin


class Row(NamedTuple):
    """A claim, and what the runs say of it."""

    study: str
    claim: str
    by: str
    difference: float  # in points: of success, or of the largest return there is
    low: float
    high: float
    verdict: str


def read_rows(path: Path) -> list[Row]:
    """Return the claims of a study with what they come to: all tasks together, or the only task."""
    with path.open() as file:
        found = [row for row in csv.DictReader(file) if row["difference"] and " against " in row["measure"]]
    pooled = {row["claim"] for row in found if row["task"] == ALL_TASKS}
    rows = [row for row in found if row["task"] == ALL_TASKS or row["claim"] not in pooled]
    study = path.parts[-3]
    unit = 100 / MOST_RETURN if study.startswith("dmc") else 100
    return [
        Row(
            study,
            row["claim"],
            row["by"],
            *(unit * float(row[name]) for name in ("difference", "low", "high")),
            row["verdict"],
        )
        for row in rows
    ]


def write(panel: Axes, share: float, place: float, text: str, *, fontsize: float = 8.5, **look: str) -> None:
    """Write a text beside a line, from a share of the figure's width on."""
    x = (share - LEFT) / WIDTH
    panel.text(x, place, text, transform=panel.get_yaxis_transform(), fontsize=fontsize, va="center", **look)  # type: ignore[arg-type]


def draw(groups: dict[str, list[Row]]) -> Figure:
    """Return a figure with a line for each claim, group by group."""
    lines = sum(map(len, groups.values())) + 2 * len(groups)
    figure = Figure(figsize=(12.5, 0.25 * lines + 0.9), facecolor="white")
    below = 0.55 / figure.get_figheight()
    panel = figure.add_axes((LEFT, below, WIDTH, 0.99 - below))
    place = 0.0
    for title, rows in groups.items():
        write(panel, CLAIM, place, title, fontsize=11, fontweight="bold")
        place += 1.2
        for row in rows:
            colour = COLOURS[row.verdict]
            panel.plot([row.low, row.high], [place, place], color=colour, linewidth=2.2, solid_capstyle="butt")
            panel.plot(row.difference, place, "o", color=colour, markersize=5.5)
            printed = next((number for start, number in PRINTED.items() if row.claim.startswith(start)), None)
            if printed is not None:
                panel.plot(printed, place, "D", markerfacecolor="white", markeredgecolor="#111827", markersize=6)
            claim = row.claim.split(";")[0].rstrip(".")
            write(panel, CLAIM, place, claim, color="#111827")
            write(panel, VERDICT, place, row.verdict, color=colour, fontweight="bold")
            write(panel, STUDY, place, row.study, color="#6b7280")
            place += 1
        place += 0.8
    panel.axvline(0, color="#9ca3af", linewidth=1, zorder=0)
    panel.set_ylim(place - 0.6, -0.8)
    panel.set_yticks([])
    panel.set_xlabel(
        "difference of interquartile means, in points of success or percent of the largest return;\n"
        "bars: 95 % intervals; diamond: the paper's own number",
        fontsize=8.5,
        color="#4b5563",
    )
    panel.tick_params(labelsize=8.5, colors="#4b5563")
    panel.grid(axis="x", color="#e5e7eb", linewidth=0.8)
    panel.set_axisbelow(True)
    for side in ("left", "right", "top"):
        panel.spines[side].set_visible(False)
    return figure


def main() -> None:
    """Read all claims and write the figure."""
    rows = [row for path in sorted(HERE.glob("*/report/claims.csv")) for row in read_rows(path)]
    rows = [row for row in rows if row.verdict in COLOURS]
    figure = draw(
        {
            "Claims of the paper": [row for row in rows if row.by == "paper"],
            "Our own questions": [row for row in rows if row.by != "paper"],
        }
    )
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": "claims"}):
        figure.savefig(HERE / "claims.svg", metadata={"Date": None})
    (HERE / "claims.png").write_bytes(to_png(figure, 110))


if __name__ == "__main__":
    main()
