"""A run's directory: configuration, curves, checkpoints, and the mark that it is done.

config.json   everything that decides the run's numbers
meta.json     versions, commit, machine
train.csv     a row every so many frames            eval.csv   a row per evaluation
timing.csv    wall clock, and frames/s since the row before; never compared
*.bin         logs that grow with the run, so that a checkpoint adds what is new instead of writing all again:
              actions, as environments that cannot be saved are replayed; transitions; images and what led to each
checkpoint/   the newest two                        DONE       the frame at which the run was complete
"""

import csv
import fcntl
import importlib.util
import io
import json
import math
import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from vcse.extras import install
from vcse.plugins import UnknownNameError
from vcse.runs import checkpoint
from vcse.runs.arithmetic import EXACT, Arithmetic
from vcse.runs.checkpoint import Checkpoint, naming, write_atomically
from vcse.runs.config import RunConfig, difference
from vcse.runs.machine import describe_machine
from vcse.settings import AgentSettings

CURVES = ("train.csv", "eval.csv", "timing.csv")
LOCK_SECONDS = 0.5  # a process that checks whether a run is being written holds it for a moment


class RunDirectory:
    """One run on disk, locked while this object holds it."""

    def __init__(
        self,
        path: Path,
        config: RunConfig,
        *,
        tensorboard: bool = False,
        device: str = "cpu",
        arithmetic: Arithmetic = EXACT,
    ) -> None:
        if tensorboard and importlib.util.find_spec("tensorboard") is None:
            raise RuntimeError(f"TensorBoard is not installed: {install('tensorboard')}")
        self.path = path
        self.config = config
        self.device = device
        self.arithmetic = arithmetic
        self._has_scalars = tensorboard
        self._scalars: Any = None
        path.mkdir(parents=True, exist_ok=True)
        self._lock = open(path / ".lock", "w")  # noqa: SIM115 - held until closed
        try:
            self._take_lock()
            for each in (path, path / "checkpoint"):
                checkpoint.drop_unfinished(each)
            self._write_config()
        except BaseException:
            self.close()
            raise

    def _take_lock(self) -> None:
        until = time.monotonic() + LOCK_SECONDS
        while True:
            with naming(self.path / ".lock"), suppress(BlockingIOError):
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            if time.monotonic() > until:
                raise RuntimeError(
                    f"{self.path} is being written by another process: wait until that is done, or stop it"
                )
            time.sleep(0.02)

    @property
    def done_frame(self) -> int:
        """The frame at which the run was complete, or -1."""
        return done_frame(self.path)

    def close(self) -> None:
        """Release the lock."""
        self._close_scalars()
        self._lock.close()

    def _close_scalars(self) -> None:
        if self._scalars is not None:
            with suppress(OSError):  # all rows are there, or an error was raised when one was written
                self._scalars.close()
            self._scalars = None

    def newest_checkpoint(self) -> Checkpoint | None:
        """Read the newest whole checkpoint, and warn of those passed over."""
        return checkpoint.newest(self.path / "checkpoint", otherwise="starting over from frame 0")

    def save_checkpoint(self, frame: int, state: Mapping[str, Any]) -> None:
        """Write a checkpoint, after which nothing up to this frame can be lost."""
        for path in (*(self.path / name for name in CURVES), *logs(self.path)):
            if path.exists():
                with naming(path), open(path, "rb+") as file:
                    os.fsync(file.fileno())
        checkpoint.save(self.path / "checkpoint", frame, dict(state))
        checkpoint.sync(self.path)  # in which logs and the checkpoints' own directory may be new

    def cut(self, frame: int, logs: Mapping[str, int]) -> None:
        """Drop what was written after a frame: checkpoints, rows of the curves, and all but so many bytes of logs."""
        held = {name: _size(self.path / name) for name in logs}
        for name, needed in logs.items():
            if held[name] < needed:
                raise RuntimeError(
                    f"{self.path / name} holds {held[name]} bytes, but the checkpoint needs {needed}: remove the run "
                    "to train it again"
                )
        (self.path / "DONE").unlink(missing_ok=True)
        self._close_scalars()  # the next rows are those after the frame once more
        checkpoint.drop_after(self.path / "checkpoint", frame)  # first: they need the bytes that go next
        for name, needed in logs.items():
            if held[name] > needed:
                os.truncate(self.path / name, needed)
        for name in CURVES:
            path = self.path / name
            if path.exists():
                write_atomically(path, _rows_until(frame, path.read_bytes()))

    def _write_scalars(self, name: str, row: Mapping[str, Any]) -> None:
        """Write a row for TensorBoard too; what a resumed run writes again replaces what was there."""
        from torch.utils.tensorboard.writer import SummaryWriter

        folder = self.path / "tensorboard"
        with naming(folder):
            if self._scalars is None:
                self._scalars = SummaryWriter(str(folder), purge_step=row["frame"])
            for column, value in row.items():
                if column != "frame" and not (isinstance(value, float) and math.isnan(value)):
                    self._scalars.add_scalar(f"{name.removesuffix('.csv')}/{column}", value, row["frame"])
            self._scalars.flush()

    def append_row(self, name: str, row: Mapping[str, Any]) -> None:
        """Add a row to a CSV file; the first brings the header, and a column that is new later on is added to it."""
        path = self.path / name
        header = _header(path)
        columns = header + [column for column in row if column not in header]
        if header and columns != header:  # another release began the run
            with open(path, newline="") as file:
                widened = _to_csv(columns, csv.DictReader(file))
            write_atomically(path, widened)
        # A number is written so that it reads back as itself; NaN, which is not itself, is an empty cell.
        cells = {column: value if value == value else "" for column, value in row.items()}  # noqa: PLR0124
        _append(path, _to_csv(columns, [cells], with_header=not header))
        if self._has_scalars and name != "timing.csv":
            self._write_scalars(name, row)

    def write_array(self, name: str, array: np.ndarray) -> None:
        """Write an array as a file of NumPy's own kind."""
        content = io.BytesIO()
        np.save(content, array)
        write_atomically(self.path / name, content.getvalue())

    def append_log(self, name: str, numbers: np.ndarray) -> None:
        """Add numbers to a file that grows with the run."""
        _append(self.path / name, numbers.tobytes())

    def read_log(self, name: str, count: int, dtype: DTypeLike) -> np.ndarray:
        """Read its first so many numbers."""
        path = self.path / name
        numbers = np.fromfile(path, dtype=dtype, count=count) if path.exists() else np.zeros(0, dtype=dtype)
        # Bytes are actions; all else that is kept are float32 numbers, also inside of records.
        if numbers.dtype != np.uint8 and not np.isfinite(numbers.view(np.float32)).all():
            raise ValueError(f"{path} is damaged: it holds numbers that are not finite")
        return numbers

    def add_to_meta(self, name: str, value: str) -> None:
        """Write down what is known of the machine only once a run has begun."""
        known = read_meta(self.path)
        if known.get(name) != value:
            write_atomically(self.path / "meta.json", json.dumps(known | {name: value}, indent=1).encode())

    def finish(self, frame: int) -> None:
        """Mark the run as complete, and drop what only a longer one would need, where that is not kept."""
        write_atomically(self.path / "DONE", f"{frame}\n".encode())
        for log in () if self.config.keep_replay else logs(self.path):
            log.unlink(missing_ok=True)

    def _write_config(self) -> None:
        there = check_config(self.path, self.config)
        grows = there is None or there.frames < self.config.frames
        if not grows and (there == self.config or self.done_frame >= self.config.frames):
            return
        if grows:  # and is not only saved more or less often
            machine = describe_machine(self.device, self.arithmetic)
            write_atomically(self.path / "meta.json", json.dumps(machine, indent=1).encode())
        # What makes the directory a run comes last.
        write_atomically(self.path / "config.json", json.dumps(self.config.to_json(), indent=1).encode())


def begun_on(path: Path) -> str | None:
    """Return the device that a run was begun on, cpu or the name of a GPU; None where that is not known."""
    try:
        device = json.loads((path / "meta.json").read_text()).get("device")
    except (OSError, ValueError, AttributeError):
        return None
    return device if isinstance(device, str) else None


def check_no_file(out: Path, what: str) -> None:
    """Refuse an --out that is a file, or lies below one.

    Args:
        out: The directory, which need not exist yet.
        what: That is to be written there.
    """
    for path in (out, *out.parents):
        if path.is_file():
            file = "it" if path == out else path
            raise ValueError(f"{what} cannot be written to {out}: {file} is a file; --out names a directory")


def check_config(path: Path, config: RunConfig) -> RunConfig | None:
    """Refuse a directory that holds another run than this or a longer one; return the configuration there, if any.

    Another cadence of checkpoints makes no other run. One that has saved nothing, because its start failed, may be
    replaced: otherwise the corrected command would be refused.
    """
    if not (path / "config.json").exists():
        strange = [name for name in (*CURVES, "checkpoint", "DONE") if (path / name).exists()]
        strange += [log.name for log in logs(path)]
        if strange:
            raise ValueError(f"{path} holds {strange[0]} but no config.json: it is no run, and nothing is overwritten")
        return None
    if not has_saved(path):
        return None
    agent = _read_json(path / "config.json").get("agent")
    if agent == config.agent:
        there = read_config(path, lambda _: type(config.settings))
        different = difference(config, there)
    else:
        different = f"agent is {agent!r} there and {config.agent!r} here"
    if different:
        raise ValueError(
            f"{path} holds another run: {different}; choose another --out, or --method in vcse train, or continue with "
            f"that one by vcse resume {path} --frames N"
        )
    has_checkpoints = bool(checkpoint.frames(path / "checkpoint"))
    if 0 <= done_frame(path) < config.frames and not (has_checkpoints and there.keep_replay):
        why = "was trained with --no-keep-replay" if has_checkpoints else "its checkpoints are gone"
        raise ValueError(
            f"{path} is done at frame {done_frame(path):,} and {why}: it cannot be extended to {config.frames:,}; "
            "choose another --out, or delete it to train it anew"
        )
    if there.frames > config.frames > done_frame(path):
        raise ValueError(
            f"{path} is a run of {there.frames:,} frames, which may grow but not shrink to {config.frames:,}"
        )
    return there


def has_saved(path: Path) -> bool:
    """Return whether a run has anything to resume from."""
    return bool(checkpoint.frames(path / "checkpoint")) or done_frame(path) >= 0


def logs(path: Path) -> list[Path]:
    """Return the files of a run that grow with it."""
    return sorted(path.glob("*.bin"))


def check_logs(path: Path, config: RunConfig, names: Iterable[str]) -> None:
    """Refuse to resume a run whose logs of these names are gone."""
    newest = max(checkpoint.frames(path / "checkpoint"), default=0)
    gone = [name for name in names if not (path / name).exists()]
    if gone and done_frame(path) < config.frames and 0 < newest < config.frames:
        raise ValueError(
            f"{path / gone[0]} is missing, without which the run cannot continue to {config.frames:,} frames: choose "
            "another --out, or delete the run to train it anew"
        )


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content: dict[str, Any] = json.loads(path.read_text())
    except ValueError as error:
        raise ValueError(f"{path} cannot be read: {error}") from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} cannot be read: it does not hold an object")
    return content


def read_meta(path: Path) -> dict[str, Any]:
    """Return what is known of how a run was made; nothing where its `meta.json` is gone."""
    return _read_json(path / "meta.json") if (path / "meta.json").exists() else {}


def read_config(path: Path, settings_of: Callable[[str], type[AgentSettings]]) -> RunConfig:
    """Read the configuration of a run's directory, by the class of each agent's settings."""
    content = _read_json(path / "config.json")
    try:
        return RunConfig.from_json(content, settings_of(content["agent"]))
    except UnknownNameError as error:
        raise UnknownNameError.of_run(path, error.kind, error.name) from error
    except TypeError as error:
        what = "a setting is missing, unknown or of a wrong kind"
        raise ValueError(f"{path / 'config.json'} cannot be read: {what} ({error})") from error
    except (ValueError, KeyError, AttributeError) as error:
        raise ValueError(f"{path / 'config.json'} cannot be read: {error}") from error


def done_frame(path: Path) -> int:
    """Return the frame at which a run was complete, or -1."""
    try:
        return int((path / "DONE").read_text())
    except (FileNotFoundError, ValueError):
        return -1


def bytes_on_disk(path: Path) -> int:
    """Return what all files of a run take; a checkpoint that is just being replaced counts for nothing."""
    found = 0
    for each in path.rglob("*"):
        with suppress(FileNotFoundError):
            found += each.stat().st_size if each.is_file() else 0
    return found


def run_directories(path: Path) -> list[Path]:
    """Return the runs below a directory, or the one that it is."""
    if not path.is_dir():
        raise ValueError(f"{path} is not a directory")
    found = sorted(each.parent for each in path.rglob("config.json"))
    if not found:
        raise ValueError(f"{path} holds no run: there is no config.json below it")
    return found


def those_without_problems(paths: Iterable[Path], look: Callable[[Path], RunConfig]) -> dict[Path, RunConfig]:
    """Check runs; one that is refused is named and left out, and where all are, that is raised."""
    found: dict[Path, RunConfig] = {}
    problems: list[ValueError] = []
    for each in paths:
        try:
            found[each] = look(each)
        except ValueError as error:
            problems.append(error)
    if not found:
        raise problems[0]
    for problem in problems:
        print(f"vcse: {problem}; the run is left out", file=sys.stderr)
    return found


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _append(path: Path, content: bytes) -> None:
    """Add to a file all or nothing: a disk that fills up leaves it as it was."""
    # Unbuffered, so that nothing tries once more when the file is closed.
    with naming(path), open(path, "ab", buffering=0) as file:
        size = os.fstat(file.fileno()).st_size
        try:
            left = memoryview(content)
            while left:
                left = left[file.write(left) :]
        except BaseException:
            file.truncate(size)
            raise


def _header(path: Path) -> list[str]:
    """Return the columns of a CSV file; none where it does not exist or is empty."""
    if not path.exists():
        return []
    with open(path, newline="") as file:
        return next(csv.reader(file), [])


def _to_csv(columns: Sequence[str], rows: Iterable[Mapping[str, Any]], *, with_header: bool = True) -> bytes:
    """Return rows as a CSV file has them; a column that a row does not have is empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, columns, lineterminator="\n")
    if with_header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue().encode()


def _rows_until(frame: int, content: bytes) -> bytes:
    """Return a CSV file up to a frame; nothing, not even the header, where no row is left."""
    header, *rows = content.splitlines(keepends=True) or [b""]
    kept = []
    for row in rows:
        first = row.split(b",", 1)[0]
        if not (row.endswith(b"\n") and first.isdigit() and int(first) <= frame):
            break  # rows are in order, and one that was torn is the last
        kept.append(row)
    return b"".join([header, *kept] if kept else [])
