"""Other people's curves, to be laid over ours: read as they were published, or as other libraries write them."""

import csv
import io
import json
import os
import re
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import Float, Int

from vcse.agents import read_config

Metric = Literal["return_mean", "success_rate"]
Points = dict[int, float]  # score by frame
_Row = tuple[int, Mapping[str, str]]  # the number of its line, and its cells by column

SMOOTHED_EPISODES = 100  # as our own training curves are
MONITOR_POINTS = 256  # of a curve made of single episodes, of which there may be very many


class ForeignCurves(NamedTuple):
    """What one method reached on one task over training, a row per run."""

    source: str  # the file
    task: str
    method: str
    frames: Int[np.ndarray, " points"]
    scores: Float[np.ndarray, "runs points"]  # NaN where a run has no value
    metric: Metric


class _Layout(NamedTuple):
    """Which columns of a table hold what."""

    name: str
    frame: str
    scores: Mapping[str, Metric]  # any of them will do
    task: str | None = None
    method: str | None = None
    seed: str | None = None
    also: tuple[str, ...] = ()  # not read, but they tell this table from others
    counts_steps: bool = False

    @property
    def words(self) -> tuple[str, ...]:
        return tuple(column for column in (self.task, self.method, self.seed) if column is not None)

    def fits(self, header: Sequence[str]) -> bool:
        return {*self.words, self.frame, *self.also} <= set(header) and any(column in header for column in self.scores)

    def __str__(self) -> str:
        return f"{self.name} ({', '.join((*self.words, self.frame, *self.also, ' or '.join(self.scores)))})"


OURS: Mapping[str, Metric] = {"return_mean": "return_mean", "success_rate": "success_rate"}
LAYOUTS = (
    _Layout("DrQ-v2's published curves", "frame", {"episode_reward": "return_mean"}, "task", "agent", "seed"),
    _Layout("a long table", "frame", OURS, "task", "method", "seed"),
    _Layout("eval.csv of a DrQ-v2 run", "frame", {"episode_reward": "return_mean"}, also=("step", "episode")),
    _Layout(
        "TD-MPC2's published curves",
        "step",
        {"reward": "return_mean", "success": "success_rate"},
        seed="seed",
        counts_steps=True,
    ),
    _Layout("train.csv or eval.csv of a run of ours", "frame", OURS, also=("episodes",)),
)
_META_WORLD = "metaworld_"  # as MWM's scores begin tasks: metaworld_drawer_open is metaworld/drawer-open here
OF_RECORD = ("task", "method", "seed", "steps", "success_rates")
OTHERS = (
    "monitor.csv of Stable-Baselines3 (#{...}, then r, l, t)",
    "evaluations.npz of Stable-Baselines3 (timesteps, results)",
    f"scores in JSON (a list of {', '.join(OF_RECORD)})",
    "the directory of a run of ours",
)
KNOWN = "known are: " + "; ".join((*map(str, LAYOUTS), *OTHERS))
# Names that say which file of a run it is, or which run, but not what was run.
_SAYS_NO_METHOD = re.compile(r"monitor|evaluations|eval|train|(seed|run)?[-_=]?\d*", re.IGNORECASE)


def read_foreign(
    path: Path, *, task: str | None = None, method: str | None = None, frames_per_step: int = 1
) -> list[ForeignCurves]:
    """Read curves, in whichever of the known formats the file is: one for each task, method and metric in it.

    Runs that were evaluated at different frames are put on one grid: between two of its values a run keeps the
    earlier one, and nothing is interpolated. It has no value before its first, nor later after its last than its
    longest pause between two. Single episodes of a training run (`monitor.csv`) are averaged over the last hundred.
    A last line that was not written to its end is left out.

    Args:
        path: A file, or the directory of a run of ours, of which `train.csv` is read, or `eval.csv` if there is none.
        task: What to call the task, for a file that does not say or has another name for it. TD-MPC2's results are
            named by their file.
        method: What to call the method, likewise. A file that does not say is called by its own name, or by that of its
            folder where the file's says nothing, as in `PPO/seed1/monitor.csv`.
        frames_per_step: For files that count the agent's steps: how many frames each takes, which is the action
            repeat. TD-MPC2's own logs of DMControl need 2; its published curves already count frames, as 1 leaves them.
    """
    if frames_per_step < 1:
        raise ValueError(f"frames_per_step must be at least 1, got {frames_per_step}")
    if path.is_dir():
        return read_foreign(_of_run(path), task=task, method=method, frames_per_step=frames_per_step)
    content = path.read_bytes()
    if not content.strip():
        raise ValueError(f"{path} is empty")
    if content.startswith(b"PK"):  # an archive
        return _labelled(path, _read_archive(path, frames_per_step), task, method)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is neither text nor an archive of arrays; {KNOWN}") from error
    read = _read_monitor if text.startswith("#") else _read_json if text.lstrip().startswith("[") else _read_table
    return _labelled(path, read(path, text, frames_per_step), task, method)


def join_runs(curves: Iterable[ForeignCurves]) -> list[ForeignCurves]:
    """Put runs of the same task, method and metric together that were read from files of their own."""
    found: dict[tuple[str, str, Metric], list[ForeignCurves]] = {}
    for each in curves:
        found.setdefault((each.task, each.method, each.metric), []).append(each)
    joined = []
    for (task, method, metric), mine in found.items():
        runs = [(each.frames, scores) for each in mine for scores in each.scores]
        source = ", ".join(dict.fromkeys(each.source for each in mine))
        joined.append(ForeignCurves(source, task, method, *_on_one_grid(runs), metric))
    return joined


def _of_run(path: Path) -> Path:
    if not (path / "config.json").exists():
        raise ValueError(f"{path} is a directory, but not that of a run: there is no config.json")
    for name in ("train.csv", "eval.csv"):
        if (path / name).exists():
            return path / name
    raise ValueError(f"{path} has neither train.csv nor eval.csv yet")


def _read_table(path: Path, text: str, frames_per_step: int) -> list[ForeignCurves]:
    header = _header(text)
    layout = next((each for each in LAYOUTS if each.fits(header)), None)
    if layout is None:
        raise ValueError(f"{path} begins with {','.join(header)[:80]!r}, which is no known format; {KNOWN}")
    if frames_per_step != 1 and not layout.counts_steps:
        raise ValueError(f"frames_per_step is {frames_per_step}, but {path} counts frames")
    scores = {column: metric for column, metric in layout.scores.items() if column in header}
    found: dict[tuple[str, str, Metric], dict[str, Points]] = {}
    for line, cells in _rows(path, text, [layout.frame, *scores]):
        frame = _whole(path, line, layout.frame, cells[layout.frame]) * frames_per_step
        task, method, seed = (
            "" if column is None else cells[column] for column in (layout.task, layout.method, layout.seed)
        )
        for column, metric in scores.items():
            points = found.setdefault((task, method, metric), {}).setdefault(seed, {})
            if frame in points:
                raise ValueError(f"{path}, line {line}: frame {frame:,} of the same run was there before")
            points[frame] = _number(path, line, column, cells[column]) if cells[column] else np.nan
    curves = _gathered(path, found)
    if layout.name.startswith("TD-MPC2"):
        return [each._replace(task=path.stem) for each in curves]
    if layout.also == ("episodes",) and (path.parent / "config.json").exists():
        config = read_config(path.parent)
        return [each._replace(task=config.task, method=config.method) for each in curves]
    return curves


def _read_monitor(path: Path, text: str, frames_per_step: int) -> list[ForeignCurves]:
    first, _, rest = text.partition("\n")
    try:
        task = json.loads(first.removeprefix("#")).get("env_id") or ""
    except (json.JSONDecodeError, AttributeError) as error:
        raise ValueError(f"{path}, line 1: {first[:80]!r} is not #{{...}} in JSON; {KNOWN}") from error
    header = _header(rest)
    if not {"r", "l"} <= set(header):
        raise ValueError(f"{path} has the columns {','.join(header)[:80]!r}, which is no known format; {KNOWN}")
    returns, lengths = [], []
    for line, cells in _rows(path, rest, ["r", "l"], skipped=1):
        returns.append(_number(path, line, "r", cells["r"]))
        lengths.append(_whole(path, line, "l", cells["l"]))
        if lengths[-1] < 1:
            raise ValueError(f"{path}, line {line}: an episode is at least 1 step long, got {lengths[-1]}")
    if not returns:
        raise ValueError(f"{path} has no rows")
    ends = np.cumsum(lengths) * frames_per_step
    sums = np.concatenate(([0.0], np.cumsum(returns)))
    last = np.arange(1, len(sums))
    first_of_mean = np.maximum(last - SMOOTHED_EPISODES, 0)
    smoothed = (sums[last] - sums[first_of_mean]) / (last - first_of_mean)
    frames = ends
    if len(ends) > MONITOR_POINTS:
        frames = np.unique(ends[-1] * np.arange(1, MONITOR_POINTS + 1) // MONITOR_POINTS)
    return [ForeignCurves(str(path), task, "", frames, _carried(ends, smoothed, frames)[None], "return_mean")]


def _read_archive(path: Path, frames_per_step: int) -> list[ForeignCurves]:
    try:
        with np.load(path, allow_pickle=False) as archive:
            arrays: dict[str, Any] = {name: archive[name] for name in archive.files}
    except (ValueError, OSError, zipfile.BadZipFile) as error:
        raise ValueError(f"{path} cannot be read as an archive of arrays: {error}") from error
    if not {"timesteps", "results"} <= set(arrays):
        raise ValueError(f"{path} holds the arrays {', '.join(arrays)}, which is no known format; {KNOWN}")
    steps = arrays["timesteps"].astype(int)
    kinds: dict[str, Metric] = {"results": "return_mean", "successes": "success_rate"}
    curves = []
    for name, metric in kinds.items():
        if name not in arrays:
            continue
        episodes = arrays[name]
        if steps.ndim != 1 or episodes.ndim != 2 or not 0 < len(steps) == len(episodes):
            raise ValueError(
                f"{path}: {name} must hold episodes of each of timesteps, got {episodes.shape} and {steps.shape}"
            )
        scores = episodes.astype(float).mean(1)
        points = dict(zip((steps * frames_per_step).tolist(), scores.tolist(), strict=True))
        curves += _gathered(path, {("", "", metric): {"": points}})
    return curves


def _read_json(path: Path, text: str, frames_per_step: int) -> list[ForeignCurves]:
    try:
        records = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"{path}, line {error.lineno}: not JSON: {error.msg}") from error
    found: dict[tuple[str, str, Metric], dict[str, Points]] = {}
    for number, record in enumerate(records, 1):
        missing = [name for name in OF_RECORD if not isinstance(record, dict) or name not in record]
        if missing:
            raise ValueError(f"{path}: record {number} has no {', '.join(missing)}; {KNOWN}")
        steps, rates = record["steps"], record["success_rates"]
        if not isinstance(steps, list) or not isinstance(rates, list):
            raise ValueError(f"{path}: record {number} must have lists of steps and success_rates")
        if len(steps) != len(rates):
            raise ValueError(f"{path}: record {number} has {len(steps)} steps but {len(rates)} success_rates")
        if not (isinstance(record["task"], str) and isinstance(record["method"], str)):
            raise ValueError(f"{path}: record {number} must name one task and one method")
        runs = found.setdefault((_our_name(record["task"]), record["method"], "success_rate"), {})
        if str(record["seed"]) in runs:
            raise ValueError(f"{path}: record {number} has a seed that was there before, {record['seed']}")
        try:
            points = {int(step) * frames_per_step: float(rate) for step, rate in zip(steps, rates, strict=True)}
        except (TypeError, ValueError, OverflowError) as error:
            raise ValueError(f"{path}: record {number} holds something that is no number: {error}") from error
        runs[str(record["seed"])] = points
    return _gathered(path, found)


def _our_name(task: str) -> str:
    """Return what a task is called here, if MWM's scores name it."""
    name = task.removeprefix(_META_WORLD)
    return task if name == task else f"metaworld/{name.replace('_', '-')}"


def _header(text: str) -> list[str]:
    try:
        return next(csv.reader(io.StringIO(text)), [])
    except csv.Error:  # one cell of a hundred thousand characters and more: no table
        return [text[:80]]


def _rows(path: Path, text: str, numeric: Sequence[str], *, skipped: int = 0) -> Iterable[_Row]:
    """Return the rows below the header, but for a last one that ends before its line does."""
    reader = csv.reader(io.StringIO(text))
    header = next(reader)
    try:
        rows = [(reader.line_num + skipped, cells) for cells in reader if cells]
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num + skipped}: {error}") from error
    is_whole = text.endswith(("\n", "\r"))
    for line, cells in rows:
        named = dict(zip(header, cells, strict=False))
        is_last = line == rows[-1][0]
        if is_last and not is_whole and (len(cells) < len(header) or not all(_is_number(named[c]) for c in numeric)):
            return
        if len(cells) != len(header):
            raise ValueError(f"{path}, line {line}: {len(cells)} cells below a header of {len(header)}")
        yield line, named


def _is_number(cell: str) -> bool:
    try:
        float(cell)
    except ValueError:
        return False
    return True


def _number(path: Path, line: int, column: str, cell: str) -> float:
    if not _is_number(cell):
        raise ValueError(f"{path}, line {line}: {column} is {cell!r}, which is no number")
    return float(cell)


def _whole(path: Path, line: int, column: str, cell: str) -> int:
    number = _number(path, line, column, cell)
    if not (number.is_integer() and number >= 0):
        raise ValueError(f"{path}, line {line}: {column} is {cell}, which is no whole number from 0 on")
    return int(number)


def _gathered(path: Path, found: Mapping[tuple[str, str, Metric], Mapping[str, Points]]) -> list[ForeignCurves]:
    curves = []
    for (task, method, metric), runs in found.items():
        in_order = [sorted(points.items()) for points in runs.values() if points]
        arrays = [(np.array([f for f, _ in run]), np.array([score for _, score in run])) for run in in_order]
        # A column that is empty for a method does not apply to it.
        if any(np.isfinite(scores).any() for _, scores in arrays):
            curves.append(ForeignCurves(str(path), task, method, *_on_one_grid(arrays), metric))
    if not curves:
        raise ValueError(f"{path} has no rows" if not found else f"{path} has no scores")
    return curves


def _on_one_grid(
    runs: Sequence[tuple[np.ndarray, np.ndarray]],
) -> tuple[Int[np.ndarray, " points"], Float[np.ndarray, "runs points"]]:
    grid = np.unique(np.concatenate([frames for frames, _ in runs]))
    return grid, np.stack([_carried(frames, scores, grid) for frames, scores in runs])


def _carried(
    frames: Int[np.ndarray, " values"], scores: Float[np.ndarray, " values"], grid: Int[np.ndarray, " points"]
) -> Float[np.ndarray, " points"]:
    """Return the last score at each frame of a grid; NaN before the first, and where the run had long ended."""
    latest = np.searchsorted(frames, grid, side="right") - 1
    until = frames[-1] + (np.diff(frames).max() if len(frames) > 1 else 0)
    return np.where((latest >= 0) & (grid <= until), scores[np.maximum(latest, 0)], np.nan)


def _labelled(path: Path, curves: list[ForeignCurves], task: str | None, method: str | None) -> list[ForeignCurves]:
    curves = [each if each.method else each._replace(method=_method_by_place(path, each.task)) for each in curves]
    if task is None and not all(each.task for each in curves):
        raise ValueError(f"{path} does not say its task: give task, which is --overlay-task of vcse report")
    for field, given in (("task", task), ("method", method)):
        names = list(dict.fromkeys(each.task if field == "task" else each.method for each in curves))
        if given is not None and len(names) > 1:
            raise ValueError(f"{field} is {given!r}, but {path} holds {len(names)} of them: {', '.join(names)}")
    return [each._replace(task=task or each.task, method=method or each.method) for each in curves]


def _method_by_place(path: Path, task: str) -> str:
    """Return the name of a file, or of the nearest folder above it that says more than which task or run this is."""
    whole = Path(os.path.abspath(path))  # not resolve(): what a link points to may have any name
    names = (whole.stem.removesuffix(".monitor"), *(folder.name for folder in whole.parents))
    return next((name for name in names if name != task and not _SAYS_NO_METHOD.fullmatch(name)), whole.stem)
