"""The report of a study, or of several: one page that needs nothing but itself, with its numbers as files beside it."""

import csv
import io
import math
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
from jaxtyping import Float

from vcse.play.export import CARD_FILE, is_exported
from vcse.reports import figures
from vcse.reports.external_curves import ForeignCurves
from vcse.reports.panels import Cell
from vcse.reports.provenance import data_uri
from vcse.reports.sections import Section, check_column, check_overlay_task, find_all, make_section
from vcse.reports.statistics import FEWEST_RUNS
from vcse.reports.verdicts import (
    ALL_TASKS,
    FEWEST_EPISODES,
    JudgedClaim,
    Judgement,
    decided_otherwise,
    deciding,
    outcome,
)
from vcse.runs.checkpoint import write_atomically
from vcse.runs.directory import check_no_file
from vcse.runs.formatting import counted
from vcse.studies.study import Study

__all__ = ["report", "write_report"]

MINUS = "\N{MINUS SIGN}"
POINTS_OF_A_RUN = 50


def report(directory: str | Path, out: str | Path | None = None) -> Path:
    """Write the page about the runs below a directory, with its figures and tables beside it, and return its path.

    Args:
        directory: A study, a directory of studies, or any runs.
        out: Where the page goes; the folder `report` in the directory if it is not given.

    Example:
        >>> import tempfile, vcse
        >>> out = tempfile.mkdtemp()
        >>> [run] = vcse.train("minigrid/Empty-5x5", out=out, frames=256, eval_episodes=2, quiet=True)
        >>> vcse.report(out).name
        'index.html'
    """
    return write_report(Path(directory), None if out is None else Path(out))


def write_report(
    directory: Path,
    out: Path | None = None,
    overlays: Sequence[ForeignCurves] = (),
    *,
    column: str | None = None,
    overlay_task: str | None = None,
    entry: Study | None = None,
    progress: Callable[[str], None] = lambda _: None,
) -> Path:
    """Write the page about the runs below a directory, with its figures and tables beside it, and give its path.

    Args:
        directory: A study, a directory of studies, or any runs.
        out: Where the page goes; the folder `report`, or `report-COLUMN`, in the directory if it is not given.
        overlays: Other people's curves, drawn as dashed lines where the task is the same.
        column: What is shown in place of what the study is judged by, without its claims.
        overlay_task: The task that the overlays are said to be about; refused where it is none of those that were run.
        entry: What is said of the study, in place of the catalogue's entry.
        progress: Told what is being done, and what was found wrong.
    """
    if not directory.is_dir():
        raise ValueError(f"{directory} is not a directory")
    if is_exported(directory):
        raise ValueError(
            f"{directory} is an exported policy, which has no curves to report: its scores are in "
            f"{directory / CARD_FILE}, and vcse eval and vcse watch play it"
        )
    if out is None:
        out = directory / ("report" if column is None else f"report-{column}")
    # All that can be refused is, before the slow part.
    found = find_all(directory, entry, progress)
    if column is not None:
        check_column(column, found)
    if overlay_task is not None:
        check_overlay_task(overlay_task, found)
    _check_writable(out)
    sections: list[Section] = []
    for each in found:
        sections.append(make_section(each, overlays, column=column, taken=sections, progress=progress))
    if len(sections) > 1:
        titles = Counter(section.title for section in sections)
        places = [_place(each.directory, directory) for each in found]
        sections = [
            replace(
                section,
                folder=f"{section.name}/",
                title=f"{section.title} ({place})" if titles[section.title] > 1 else section.title,
            )
            for section, place in zip(sections, places, strict=True)
        ]
    for section in sections:
        progress(f"{section.title}: drawing {counted(len(section.panels), 'panel')}")
        _write_files(section, out / section.folder)
    page = out / "index.html"
    write_atomically(page, _render(sections, directory.resolve().name).encode())
    return page


def _check_writable(out: Path) -> None:
    check_no_file(out, "the report")
    try:
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise ValueError(
            f"the report cannot be written to {out}: {error.strerror}; --out names another directory"
        ) from error


def _write_files(section: Section, out: Path) -> None:
    """Write a study's figure and numbers as files."""
    if section.drawable:
        figure = figures.learning_curves(section.drawable, section.names)
        write_atomically(out / "curves.png", figures.to_png(figure, 90))
        if not section.is_archive:  # whose page saves the curves as SVG too
            write_atomically(out / "curves.svg", figures.to_svg(figure))
    for number, each in enumerate(section.maps):
        write_atomically(out / f"visits{number or ''}.png", each.light)
    points = (
        (panel.task, method, *point, panel.label)
        for panel in section.panels
        for method, line in panel.lines.items()
        for point in zip(*(getattr(line, name).tolist() for name in _OF_LINE), strict=True)
    )
    if not section.is_archive:
        _write_csv(out / "curves.csv", ("task", "method", "frame", *_OF_LINE[1:], "measure"), points)
    cells = (cell for table in section.tables for row in table.rows.values() for cell in row)
    _write_csv(out / "table.csv", Cell._fields, cells)
    judged = (
        (claim.claim.says, "ours" if claim.claim.ours else "paper", claim.measure, *judgement)
        for claim in section.claims
        for judgement in claim.judgements
    )
    if section.claims:
        _write_csv(out / "claims.csv", ("claim", "by", "measure", *Judgement._fields), judged)


_OF_LINE = ("frames", "runs", "iqm", "low", "high", "mean", "std")


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(header)
    writer.writerows(["" if isinstance(cell, float) and math.isnan(cell) else cell for cell in row] for row in rows)
    write_atomically(path, text.getvalue().encode())


def _render(sections: Sequence[Section], title: str) -> str:
    templates = jinja2.Environment(
        loader=jinja2.PackageLoader("vcse.reports"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    templates.policies["json.dumps_kwargs"] = {"separators": (",", ":")}
    templates.filters |= {"data_uri": data_uri, "thousands": figures.thousands, "score": _score, "gain": _gain}
    templates.filters |= {"short": figures.short_name, "words": _words, "p": _p_value, "undone_by": _undone_by}
    templates.filters |= {"decided_otherwise": decided_otherwise}
    templates.tests |= {"known": lambda number: not math.isnan(number)}
    templates.globals |= {"outcome": outcome, "deciding": deciding, "reach": _reach, "ALL_TASKS": ALL_TASKS}
    templates.globals |= {"FEWEST_EPISODES": FEWEST_EPISODES, "FEWEST_RUNS": FEWEST_RUNS}
    templates.globals |= {"MOST_RUNS": figures.MOST_RUNS}
    return templates.get_template("report.html").render(
        title=sections[0].title if len(sections) == 1 else title,
        sections=sections,
        drawing=[_drawing(section) for section in sections],
    )


def _drawing(section: Section) -> dict[str, Any]:
    """Return what the page draws from."""
    ours = [each.name for each in section.methods]
    return {
        "name": section.name,
        "keys": section.keys,
        "series": [each._asdict() for each in section.series],
        "panels": [_drawn_panel(panel, ours) for panel in section.panels],
    }


def _drawn_panel(panel: figures.Panel, ours: Sequence[str]) -> dict[str, Any]:
    """Return a panel with as many digits as can be seen: thousandths of shares, and whole percents of single runs.

    Lines have the frames of the panel unless they name their own; single runs have every so many of their points.
    """
    lines = {method: line for method, line in panel.lines.items() if line.frames.size}
    frames: list[int] = next((line.frames.tolist() for line in lines.values()), [])
    drawn: dict[str, Any] = {}
    for method, line in lines.items():
        runs = line.runs.tolist()
        mine = drawn[method] = {"runs": runs if len(set(runs)) > 1 else runs[0]}
        if line.frames.tolist() != frames:
            mine["frames"] = line.frames.tolist()
        for name in ("iqm", "low", "high", "std"):
            mine[name] = _rounded(getattr(line, name), 1000 if panel.is_share else None)
        if method in ours and len(line.scores):
            every = -(-len(line.frames) // POINTS_OF_A_RUN)
            kept = np.unique([*range(0, len(line.frames), every), len(line.frames) - 1])
            mine["every"] = every
            mine["scores"] = [_rounded(run, 100 if panel.is_share else None) for run in line.scores[:, kept]]
    return {
        **{"task": panel.task, "label": panel.label, "isShare": panel.is_share, "isZero": panel.is_zero},
        **{"frames": frames, "lines": drawn},
    }


def _rounded(numbers: Float[np.ndarray, " points"], parts: int | None) -> list[float | int | None]:
    """Return whole parts of a share, or four digits of any other number."""
    known = numbers.tolist()
    return [None if math.isnan(each) else round(parts * each) if parts else float(f"{each:.4g}") for each in known]


def _reach(claim: JudgedClaim) -> float:
    """Return how far from 0 the numbers and intervals of a claim go."""
    numbers = (end for each in claim.judgements for end in (each.difference, each.low, each.high))
    ends = [abs(end) for end in numbers if not math.isnan(end)]
    return max(ends, default=0.0) or 1.0


def _score(number: float, is_share: bool) -> str:
    if math.isnan(number):
        return "–"
    text = f"{100 * number:.1f}%" if is_share else f"{number:.3g}" if abs(number) < 100 else f"{number:,.0f}"
    return text.replace("-", MINUS)


def _gain(number: float, is_share: bool, beside: float = 0.0) -> str:
    """Write a difference with its sign; of shares in percentage points, else with three digits of the larger of two."""
    if math.isnan(number):
        return "–"
    largest = max(abs(number), abs(beside))
    digits = max(0, 2 - math.floor(math.log10(largest))) if largest > 0 else 0
    text = f"{100 * number:+.1f}" if is_share else f"{number:+,.{digits}f}"
    return text.replace("-", MINUS)


def _p_value(number: float) -> str:
    if math.isnan(number):
        return "–"
    return "<0.001" if number < 0.001 else f"{number:.3f}" if number < 0.1 else f"{number:.2f}"


def _undone_by(judgement: Judgement) -> str:
    """Return the corrections after which a decided verdict is undecided, in words."""
    left = {"Holm": judgement.by_holm, "B-H": judgement.by_benjamini_hochberg}
    methods = [name for name, verdict in left.items() if verdict and verdict != judgement.verdict]
    return f"not by {' or '.join(methods)}" if methods else ""


def _words(name: str) -> list[str]:
    """Split a name such as SimpleCrossingS9N1 where it may go on in the next line."""
    return re.split(r"(?<=[a-z])(?=[A-Z])|(?<=_)", name)


def _place(path: Path, directory: Path) -> str:
    """Return where a study lies as seen from the directory that the page is about."""
    return path.resolve().name if path == directory else str(path.relative_to(directory))
