"""One run in memory, and how its curve is read: cell by cell, up to the first row that is not whole."""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float, Int, Shaped

from vcse.agents import agent_entry, agent_names, upgraded_content
from vcse.agents.entry import AgentEntry
from vcse.studies.manifest import Identity

KEYS = ("task", "method", "seed")


class GatheredRun(NamedTuple):
    """One run, read whole."""

    task: str
    method: str
    seed: int
    frames: Int[np.ndarray, " rows"]
    columns: dict[str, Float[np.ndarray, " rows"]]  # of train.csv, without the frame; NaN where a cell is empty
    evaluation: dict[str, float]  # the last row of eval.csv; empty where there is none
    config: dict[str, Any]
    meta: dict[str, Any]  # empty where it could not be read
    visits: Shaped[np.ndarray, "slices x y"] | None
    done: bool
    text: str  # the rows as they were written, header first

    @property
    def identity(self) -> Identity:
        """What no two runs of a study share."""
        return self.task, self.method, self.seed

    @property
    def agent(self) -> AgentEntry | None:
        """What is known of the run's agent, if it is registered here; the first runs, all of A2C, did not name it."""
        name = self.config.get("agent", "a2c")
        return agent_entry(name) if name in agent_names() else None


def read_json(path: Path) -> dict[str, Any]:
    """Read a file that holds an object, or say what is wrong with it."""
    try:
        content = json.loads(path.read_text())
    except FileNotFoundError:
        raise ValueError(f"there is no {path.name}") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"{path.name} cannot be read ({error})") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} does not hold an object")
    return content


def in_names_of_today(config: dict[str, Any]) -> dict[str, Any]:
    """Return a configuration of any release under the names of this one, so that runs of both stand side by side."""
    try:
        return upgraded_content(config)
    except (AttributeError, KeyError, TypeError):  # curves are shown without settings that are not there
        return config


def to_columns(
    header: Sequence[str], rows: Iterable[Sequence[str]], name: str, problems: list[str]
) -> tuple[Int[np.ndarray, " rows"], dict[str, Float[np.ndarray, " rows"]], str]:
    """Turn cells into columns, up to the first row that is not one of numbers or goes back in frames."""
    place = header.index("frame")
    numbers: list[list[float]] = []
    kept = [",".join(header)]
    for row in rows:
        try:
            cells = [float(cell) if cell else math.nan for cell in row]
            in_order = float(row[place]).is_integer() and (not numbers or cells[place] > numbers[-1][place])
            is_whole = len(cells) == len(header) and in_order
        except (ValueError, IndexError):
            is_whole = False
        if not is_whole:
            problems.append(f"{name} cannot be read after row {len(numbers)}: the rest is left out.")
            break
        numbers.append(cells)
        kept.append(",".join(row))
    if not numbers:
        raise ValueError("not one row is whole")
    table = np.array(numbers)
    columns = {column: table[:, each] for each, column in enumerate(header) if column != "frame"}
    return table[:, place].astype(np.int64), columns, "\n".join(kept) + "\n"


def called(identity: Identity) -> str:
    """Name a run in a sentence."""
    task, method, seed = identity
    return f"{task} with {method}, seed {seed}"


def reason_of(error: Exception) -> str:
    """Return the cause of an error without the path, which is of one machine."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{Path(error.filename).name}: {error.strerror}"
    return str(error) or type(error).__name__
