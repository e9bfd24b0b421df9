"""What a page shows beside curves: maps of where agents went, and films of them."""

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Shaped

from vcse.envs.minigrid.crossing import MAPS
from vcse.reports import figures
from vcse.reports.loaded_run import GatheredRun
from vcse.runs.formatting import counted
from vcse.studies.catalog.minigrid import CROSSED_WALL

MOST_FILMS, MOST_FILM_BYTES = 3, 2_000_000
FILM_KINDS = {".gif": "image/gif", ".mp4": "video/mp4"}


class VisitMap(NamedTuple):
    """Where the agents went, as an image for light and one for dark pages."""

    task: str
    light: bytes
    dark: bytes


class Film(NamedTuple):
    """A film of a policy."""

    name: str
    kind: str
    content: bytes


def visit_maps(
    runs: Sequence[GatheredRun],
    tasks: Sequence[str],
    methods: Sequence[str],
    names: Mapping[str, str],
    problems: list[str],
) -> list[VisitMap]:
    """Draw the visits of all runs of a method together, on each task that counted them."""
    maps = []
    for task in tasks:
        counted = [(run, run.visits) for run in runs if run.task == task and run.visits is not None and len(run.visits)]
        if not counted:
            continue
        slices = min(len(each) for _, each in counted)
        walls = _walls(task, [each for _, each in counted])
        width, height = walls.shape
        cut = [(run.method, each[:slices, :width, :height]) for run, each in counted]
        by_method = {method: [each for name, each in cut if name == method] for method in methods}
        visits = {method: np.sum(mine, axis=0) for method, mine in by_method.items() if mine}
        beyond = ~walls & (np.arange(width)[:, None] > CROSSED_WALL)
        every = int(counted[0][0].config.get("visits_every_frames", 0))
        try:
            light, dark = (
                figures.to_png(
                    figures.visit_maps(visits, walls, beyond, frames_per_snapshot=every, names=names, theme=theme), 110
                )
                for theme in figures.THEMES
            )
        except ValueError as error:
            problems.append(f"The visits on {task} are not drawn: {error}.")
            continue
        maps.append(VisitMap(task, light, dark))
    return maps


def _walls(task: str, visits: Sequence[Shaped[np.ndarray, "_ x y"]]) -> Bool[np.ndarray, "width height"]:
    """Return the cells that cannot be entered: those of the task's map, or else those where nobody ever was."""
    numbered = re.search(r"-map(\d+)$", task)
    if numbered and int(numbered[1]) < len(MAPS):
        side = 9
        known = MAPS[int(numbered[1])]
        return np.array([[known.is_wall(x, y) for y in range(side)] for x in range(side)])
    entered = np.sum([each.sum(0) for each in visits], axis=0) > 0
    places = np.argwhere(entered)
    width, height = places.max(0) + 2 if len(places) else entered.shape
    return np.asarray(~entered[:width, :height])


def find_films(directory: Path, without: Sequence[Path], problems: list[str]) -> list[Film]:
    """Read the small films that lie with the runs."""
    found = []
    for root, directories, files in os.walk(directory):
        directories[:] = sorted(
            each for each in directories if each not in ("report", "checkpoint") and Path(root) / each not in without
        )
        found += [Path(root) / name for name in sorted(files) if Path(name).suffix.lower() in FILM_KINDS]
    small = [path for path in found if path.stat().st_size < MOST_FILM_BYTES]
    if len(small) < len(found):
        large = counted(len(found) - len(small), "video")
        problems.append(f"{large} of {MOST_FILM_BYTES / 1e6:.0f} MB or more: not shown here.")
    return [
        Film(str(path.relative_to(directory)), FILM_KINDS[path.suffix.lower()], path.read_bytes())
        for path in small[:MOST_FILMS]
    ]
