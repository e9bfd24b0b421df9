"""Figures: they draw what they are given, in one look, for light and for dark pages."""

import io
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from matplotlib import rc_context, rcParams
from matplotlib.collections import LineCollection
from matplotlib.colors import LinearSegmentedColormap, PowerNorm
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import FuncFormatter, MaxNLocator, PercentFormatter
from matplotlib.transforms import offset_copy

# A method has the same colour in every figure. They can be told apart with any kind of colour vision, and on white as
# well as on black; the controls are quiet, the method under study is not.
METHOD_COLOURS = {"none": "#8b929c", "se": "#2f8fd8", "vcse": "#e2500f", "se-matched": "#b07aa8", "rcse": "#12a07a"}
OTHER_COLOURS = (
    "#a67c00",
    "#6f7fe0",
    "#2b95a6",
    "#a0785a",
    "#8b3dff",
    "#d633a8",
    "#5d8c1f",
    "#a34766",
    "#1466cc",
    "#ad4700",
)
MOST_LABELS, LONGEST_LABEL = 6, 14  # beside the lines; where there are more or longer ones, numbers stand for them
LEADER_POINTS = 12  # between a line and its label
MOST_COLUMNS = 3
MOST_RUNS = 16  # of a method that are drawn one by one
RUN_ALPHA, RUN_WIDTH = 0.25, 0.5
LABEL_GAP = 0.0075  # between two labels, of the height of the axes, for each point of the font's size
POINTS_PER_INCH = 72

ThemeName = Literal["light", "dark"]


@dataclass(frozen=True)
class Theme:
    """The colours around the data."""

    background: str
    text: str
    faint: str
    grid: str
    wall: str
    visits: tuple[str, ...]  # from never to most often


THEMES: dict[ThemeName, Theme] = {
    "light": Theme("#ffffff", "#1d2129", "#626b78", "#e6e8ec", "#b9bfc9", ("#f6f4f1", "#fbc58f", "#e2500f", "#5b1606")),
    "dark": Theme("#14171c", "#e6e8ec", "#98a1ae", "#2a2f38", "#596170", ("#1d2127", "#7a2f10", "#e2500f", "#ffe3b8")),
}


class Drawn(NamedTuple):
    """Runs as one line, with all that is said about it at each point; NaN where a run has no score yet."""

    frames: Int[np.ndarray, " points"]
    runs: Int[np.ndarray, " points"]
    iqm: Float[np.ndarray, " points"]
    low: Float[np.ndarray, " points"]
    high: Float[np.ndarray, " points"]
    mean: Float[np.ndarray, " points"]
    std: Float[np.ndarray, " points"]
    scores: Float[np.ndarray, "_ _"] = np.empty((0, 0))  # of the runs that are drawn one by one, point by point

    @property
    def is_of_all(self) -> Bool[np.ndarray, " points"]:
        """Return the points that have as many runs as any."""
        return np.asarray(self.runs == self.runs.max(initial=0))


class Panel(NamedTuple):
    """One task and its lines."""

    task: str
    lines: dict[str, Drawn]
    label: str = ""  # what they show
    is_share: bool = True  # from 0 to 100 %

    @property
    def family(self) -> str:
        """What comes before the task's own name."""
        return self.task.removesuffix(self.short)

    @property
    def short(self) -> str:
        """The task's own name."""
        return short_name(self.task)

    @property
    def is_zero(self) -> bool:
        """Return whether there is a number, and none but 0."""
        numbers = [each[~np.isnan(each)] for line in self.lines.values() for each in (line.mean, line.std)]
        return any(each.size for each in numbers) and not any(each.any() for each in numbers)


class _Style(NamedTuple):
    """How the line of a method looks and what it is called."""

    colour: str
    name: str
    number: str  # that stands for the name; empty where the name fits beside the line


def method_colour(method: str, methods: Sequence[str]) -> str:
    """Return the colour of a method; those without one of their own take one by their place among the methods."""
    if method in METHOD_COLOURS:
        return METHOD_COLOURS[method]
    others = [each for each in methods if each not in METHOD_COLOURS]
    return OTHER_COLOURS[others.index(method) % len(OTHER_COLOURS)]


def fit_beside(methods: Sequence[str]) -> bool:
    """Return whether the names of methods fit beside their lines."""
    return len(methods) <= MOST_LABELS and max(map(len, methods), default=0) <= LONGEST_LABEL


def learning_curves(shown: Sequence[Panel], names: Mapping[str, str] | None = None) -> Figure:
    """Draw a panel per task, with a line per method, a band for its interval, and its runs as thin lines below.

    Args:
        shown: The panels.
        names: What methods are called, where that is not their label.
    """
    look = THEMES["light"]
    methods = list(dict.fromkeys(method for panel in shown for method in panel.lines))
    called = {method: (names or {}).get(method, method) for method in methods}
    alone = len(shown) == 1
    columns = min(MOST_COLUMNS, len(shown))
    rows = -(-len(shown) // columns)
    width, height, font = (7.0, 4.0, 12) if alone else (5.0 * columns, 3.3 * rows, 10)  # one is read on telephones too
    has_legend, legend_columns = not fit_beside(list(called.values())), 1
    if has_legend:
        longest = max(map(len, called.values())) + 8  # with the number and the piece of a line
        legend_columns = max(1, int(width * POINTS_PER_INCH / (0.6 * font * longest)))
        height += 1.6 * font / POINTS_PER_INCH * -(-len(methods) // legend_columns)
    styles = {
        method: _Style(method_colour(method, methods), name, str(number) if has_legend else "")
        for number, (method, name) in enumerate(called.items(), 1)
    }
    figure = Figure(figsize=(width, height), layout="constrained")
    with rc_context({"font.size": font, "legend.frameon": False}):
        panels = figure.subplots(rows, columns, squeeze=False).flatten()
        for panel, each in zip(panels, shown, strict=False):
            _draw_panel(panel, each, styles)
        for panel in panels[len(shown) :]:
            panel.set_visible(False)
        if has_legend:
            pieces = [
                Line2D([], [], color=style.colour, linewidth=2.6, label=f"{style.number}  {style.name}")
                for style in styles.values()
            ]
            figure.legend(handles=pieces, loc="outside lower center", ncols=legend_columns, labelcolor=look.text)
    return figure


def visit_maps(
    visits: Mapping[str, Shaped[np.ndarray, "snapshots width height"]],
    walls: Bool[np.ndarray, "width height"],
    beyond: Bool[np.ndarray, "width height"],
    *,
    frames_per_snapshot: int,
    names: Mapping[str, str] | None = None,
    theme: ThemeName = "light",
) -> Figure:
    """Draw where agents were: a row per method, a column per snapshot, and the share of visits beyond a wall.

    All maps share one scale, so that the rows can be compared.

    Args:
        visits: How often each cell was entered in each snapshot, by method.
        walls: Cells that cannot be entered.
        beyond: Cells on the far side of the wall.
        frames_per_snapshot: How many frames a snapshot lasted.
        names: What methods are called, where that is not their label.
        theme: For a light or a dark page.
    """
    snapshots = _snapshots(visits, walls)
    look, side = THEMES[theme], 1.15
    figure = Figure(figsize=(side * snapshots + 1.5, (side + 0.3) * len(visits) + 0.4), layout="constrained")
    figure.set_facecolor(look.background)
    panels = figure.subplots(len(visits), snapshots, squeeze=False)
    shares = {method: each / np.maximum(each.sum((1, 2), keepdims=True), 1) for method, each in visits.items()}
    # The square root shows seldom visited cells beside the start, where every episode begins.
    scale = PowerNorm(0.5, vmin=0, vmax=max(each[:, ~walls].max() for each in shares.values()) or 1)
    palette = LinearSegmentedColormap.from_list("visits", look.visits).with_extremes(bad=look.wall)
    drawn: Any = None
    for place, panel in enumerate(panels[0]):
        begin, end = place * frames_per_snapshot, (place + 1) * frames_per_snapshot
        panel.set_title(f"{thousands(begin)} to {thousands(end)}", color=look.faint, fontsize=9)
    for row, (method, share) in zip(panels, shares.items(), strict=True):
        for place, panel in enumerate(row):
            # x goes right and y goes down, as MiniGrid draws its maps.
            cells = np.ma.masked_array(share[place], mask=walls).T
            drawn = panel.imshow(cells, cmap=palette, norm=scale, interpolation="nearest")
            panel.set(xticks=[], yticks=[])
            panel.spines[:].set_visible(False)
            far = share[place][beyond].sum()
            panel.set_xlabel(f"{far:.0%} beyond", color=look.text, fontsize=9, labelpad=3)
        colour = method_colour(method, list(visits))
        name = textwrap.fill((names or {}).get(method, method), 12)
        row[0].set_ylabel(name, color=colour, fontsize=11, fontweight="bold", labelpad=8)
    bar = figure.colorbar(drawn, ax=panels, shrink=0.75, aspect=25, pad=0.01)
    bar.ax.yaxis.set_major_locator(MaxNLocator(5))
    bar.ax.yaxis.set_major_formatter(FuncFormatter(lambda share, _: f"{100 * share:g}%"))
    bar.ax.tick_params(colors=look.faint, labelsize=8, length=0)
    bar.outline.set_visible(False)
    bar.set_label("share of a snapshot's visits", color=look.faint, fontsize=9)
    return figure


def to_png(figure: Figure, dots_per_inch: int = 160) -> bytes:
    """Return a figure as the content of a PNG file, in 256 colours, which takes a quarter of the bytes."""
    from PIL import Image

    content, smaller = io.BytesIO(), io.BytesIO()
    figure.savefig(content, format="png", dpi=dots_per_inch, facecolor=figure.get_facecolor())
    with Image.open(content) as image:
        # The usual palette, of equally frequent colours, would draw thin lines in those of others.
        fewer = image.convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE, kmeans=1, dither=Image.Dither.NONE)
        fewer.save(smaller, format="PNG", optimize=True)
    return smaller.getvalue()


def to_svg(figure: Figure) -> bytes:
    """Return a figure as the content of an SVG file, which is the same each time and has its text as text."""
    content = io.BytesIO()
    with rc_context({"svg.hashsalt": "vcse", "svg.fonttype": "none"}):
        figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def spread(places: Sequence[float], gap: float, low: float = 0.0, high: float = 1.0) -> list[float]:
    """Move places apart until no two are nearer than a gap, as little as possible, and keep them inside bounds.

    Places that touch form a block around the mean of where they wanted to be.
    """

    def start(block: Sequence[int]) -> float:
        """Return where the first of a block stands when the block is centred, inside the bounds, on what it wanted."""
        length = gap * (len(block) - 1)
        centred = sum(places[index] for index in block) / len(block) - length / 2
        return min(max(centred, low), max(low, high - length))

    blocks: list[list[int]] = []
    for index in sorted(range(len(places)), key=lambda each: places[each]):
        blocks.append([index])
        while len(blocks) > 1 and start(blocks[-1]) < start(blocks[-2]) + gap * len(blocks[-2]):
            last = blocks.pop()
            blocks[-1] += last
    moved = [0.0] * len(places)
    for block in blocks:
        begin = start(block)
        for rank, index in enumerate(block):
            moved[index] = begin + rank * gap
    return moved


def _draw_panel(panel: Any, shown: Panel, styles: Mapping[str, _Style]) -> None:
    look, lines, is_share = THEMES["light"], shown.lines, shown.is_share
    low, high = (0.0, 1.0) if is_share else _reach(lines)
    for method, line in lines.items():
        colour = styles[method].colour
        strong = method == "vcse"
        look_of_line = {"color": colour, "linewidth": 2.6 if strong else 1.9, "zorder": 3 if strong else 2}
        whole = line.is_of_all
        if runs := [np.column_stack((line.frames, scores)) for scores in line.scores]:
            thin = LineCollection(runs, colors=colour, linewidths=RUN_WIDTH, alpha=RUN_ALPHA, zorder=0.5)
            panel.add_collection(thin)
        panel.fill_between(line.frames, line.low, line.high, where=whole, color=colour, alpha=0.2, linewidth=0)
        panel.plot(line.frames, np.where(whole, line.iqm, np.nan), **look_of_line)
        if not whole.all():  # a line is of others where some runs have ended, and dotted from the last point of all
            beside = ~whole | np.pad(~whole, (0, 1))[1:] | np.pad(~whole, (1, 0))[:-1]
            panel.plot(line.frames, np.where(beside, line.iqm, np.nan), linestyle=":", **look_of_line)
        alone = _alone(line.iqm)  # which a line does not show
        if alone.any():
            panel.plot(line.frames[alone], line.iqm[alone], "o", color=colour, clip_on=False)
    _label_ends(panel, shown, styles, low, high)
    if shown.is_zero:
        told = f"0{'%' if is_share else ''} in every run throughout training"
        panel.text(0.5, 0.5, told, color=look.faint, transform=panel.transAxes, ha="center", va="center")
    panel.set_title(shown.task, loc="left", color=look.text, fontweight="bold", pad=24 if shown.label else 12)
    if shown.label:
        beside_title = offset_copy(panel.transAxes, panel.figure, y=10, units="points")
        panel.text(0, 1, shown.label, color=look.faint, transform=beside_title, fontsize="small")
    panel.set_ylim(low - 0.02 * (high - low), high + 0.02 * (high - low))
    panel.set_xlim(0, max(1, *(int(line.frames[-1]) for line in lines.values())))
    if is_share:
        panel.set_yticks([0, 0.25, 0.5, 0.75, 1])
        panel.yaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    panel.xaxis.set_major_locator(MaxNLocator(5, min_n_ticks=3))
    panel.xaxis.set_major_formatter(FuncFormatter(lambda frames, _: thousands(frames)))
    panel.set_xlabel("frames", color=look.faint)
    panel.grid(axis="y", color=look.grid, linewidth=1)
    panel.set_axisbelow(True)
    panel.tick_params(colors=look.faint, length=0)
    panel.spines[["top", "right", "left"]].set_visible(False)
    panel.spines["bottom"].set_color(look.grid)


def _label_ends(panel: Any, shown: Panel, styles: Mapping[str, _Style], low: float, high: float) -> None:
    """Write the name or number of each line where it ends; one that has to give way to others is led back to there."""
    lines = list(shown.lines.values())
    known = [line.iqm[~np.isnan(line.iqm)] for line in lines]
    ends = [float(each[-1]) if each.size else 0.0 for each in known]
    gap = LABEL_GAP * rcParams["font.size"] * (high - low)
    beside = offset_copy(panel.transData, panel.figure, x=LEADER_POINTS, units="points")
    # Of lines that end alike, the one that was ahead on the way has the higher label.
    ahead = [float(np.nansum(line.iqm)) / max(1, line.iqm.size) for line in lines]
    wanted = [end + 1e-6 * each for end, each in zip(ends, ahead, strict=True)]
    for method, end, place in zip(shown.lines, ends, spread(wanted, gap, low, high), strict=True):
        style, last = styles[method], shown.lines[method].frames[-1]
        told = f"{end:.0%}" if shown.is_share else f"{end:.3g}"
        leader = {"arrowstyle": "-", "color": style.colour, "alpha": 0.6, "shrinkA": 0, "shrinkB": 2}
        panel.annotate(
            style.number or f"{style.name}  {told}",
            (last, end),
            xytext=(last, place),
            textcoords=beside,
            arrowprops=leader | {"relpos": (0, 0.5)} if abs(place - end) > gap / 4 else None,
            color=style.colour,
            fontweight="bold",
            va="center",
            annotation_clip=False,
        )


def _alone(middle: Float[np.ndarray, " points"]) -> Bool[np.ndarray, " points"]:
    """Return the points that are known and have no known neighbour."""
    known = np.pad(~np.isnan(middle), 1)
    return np.asarray(known[1:-1] & ~known[:-2] & ~known[2:])


def _reach(lines: Mapping[str, Drawn]) -> tuple[float, float]:
    """Return from where to where lines, bands and runs go; from 0 where they stay above."""
    drawn = [(line.iqm, line.low, line.high, line.scores.flatten()) for line in lines.values()]
    numbers = np.concatenate([each for line in drawn for each in line])
    known = numbers[~np.isnan(numbers)]
    low, high = (min(0.0, float(known.min())), float(known.max())) if known.size else (0.0, 1.0)
    return low, high if high > low else low + 1.0


def thousands(frames: int | float) -> str:
    """Write a number of frames as people read it: 250K, 1.5M."""
    if frames >= 1e6:
        return f"{frames / 1e6:.3g}M"
    return f"{frames / 1e3:.3g}K" if frames >= 1e3 else f"{frames:.3g}"


def short_name(task: str) -> str:
    """Return the task's own name, without that of its family."""
    return task.rpartition("/")[2]


def _snapshots(
    visits: Mapping[str, Shaped[np.ndarray, "snapshots width height"]], walls: Bool[np.ndarray, "width height"]
) -> int:
    """Check that all maps fit each other, and give how many snapshots there are."""
    snapshots = len(next(iter(visits.values())))
    expected = (snapshots, *walls.shape)
    for method, each in visits.items():
        if each.shape != expected:
            raise ValueError(f"visits of {method} must have the shape {expected} of the others, got {each.shape}")
        if each[:, walls].any():
            raise ValueError(f"visits of {method} has {each[:, walls].sum()} visits on cells that are walls")
    return snapshots
