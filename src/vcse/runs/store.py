"""A run's directory: configuration, curves, checkpoints, and the mark that it is done.

config.json   everything that decides the run's numbers
meta.json     versions, commit, machine
train.csv     a row every so many frames            eval.csv   a row per evaluation
timing.csv    wall clock and frames/s, never compared
actions.bin   every action taken, a byte each: environments that cannot be saved are replayed
checkpoint/   the newest two                        DONE       the frame at which the run was complete
"""

import csv
import fcntl
import io
import json
import os
import platform
import subprocess
import sys
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import torch

from vcse import __version__
from vcse.runs import checkpoint
from vcse.runs.checkpoint import Checkpoint, CorruptCheckpointError, write_atomically
from vcse.runs.config import RunConfig, difference

PACKAGES = ("torch", "numpy", "envpool", "minigrid", "gymnasium")


class RunDirectory:
    """One run on disk, locked while this object holds it."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path = path
        self.config = config
        path.mkdir(parents=True, exist_ok=True)
        self._lock = open(path / ".lock", "w")  # noqa: SIM115 - held until closed
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.close()
            raise RuntimeError(f"{path} is being written by another process") from error
        try:
            self._check_config()
        except BaseException:
            self.close()
            raise

    @property
    def done_frame(self) -> int:
        """The frame at which the run was complete, or -1."""
        return done_frame(self.path)

    def close(self) -> None:
        """Let others write."""
        self._lock.close()

    def newest_checkpoint(self, at_most: int | None = None) -> Checkpoint | None:
        """Read the newest whole checkpoint, and say which were passed over."""
        for found in checkpoint.whole(self.path / "checkpoint"):
            if isinstance(found, CorruptCheckpointError):
                print(f"vcse: {found}; going back to the one before", file=sys.stderr)
            elif at_most is None or found.frame <= at_most:
                return found
        return None

    def save_checkpoint(self, frame: int, state: Mapping[str, Any]) -> None:
        """Write a checkpoint, after which nothing up to this frame can be lost."""
        for name in ("train.csv", "eval.csv", "timing.csv", "actions.bin"):
            if (self.path / name).exists():
                with open(self.path / name, "rb+") as file:
                    os.fsync(file.fileno())
        checkpoint.save(self.path / "checkpoint", frame, dict(state))

    def cut(self, frame: int, actions: int) -> None:
        """Drop what was written after a frame: rows of the curves, and all but so many actions."""
        for name in ("train.csv", "eval.csv", "timing.csv"):
            path = self.path / name
            if not path.exists():
                continue
            header, *rows = path.read_text().splitlines(keepends=True)
            kept = [row for row in rows if row.endswith("\n") and int(row.split(",", 1)[0]) <= frame]
            write_atomically(path, "".join([header, *kept] if kept else []).encode())
        path = self.path / "actions.bin"
        if path.exists():
            with open(path, "rb+") as file:
                file.truncate(actions)
            if path.stat().st_size < actions:
                raise RuntimeError(f"{path} holds {path.stat().st_size} actions, but the checkpoint needs {actions}")
        (self.path / "DONE").unlink(missing_ok=True)

    def append_row(self, name: str, row: Mapping[str, Any]) -> None:
        """Add a row to a CSV file; the first brings the header."""
        path = self.path / name
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not path.exists() or path.stat().st_size == 0:
            writer.writerow(row.keys())
        writer.writerow([_written(value) for value in row.values()])
        with open(path, "a", newline="") as file:
            file.write(text.getvalue())

    def append_actions(self, actions: np.ndarray) -> None:
        """Add actions, a byte each."""
        with open(self.path / "actions.bin", "ab") as file:
            file.write(actions.astype(np.uint8).tobytes())

    def read_actions(self, count: int) -> np.ndarray:
        """Read the first so many actions."""
        path = self.path / "actions.bin"
        return np.fromfile(path, dtype=np.uint8, count=count) if path.exists() else np.zeros(0, dtype=np.uint8)

    def finish(self, frame: int) -> None:
        """Mark the run as complete."""
        write_atomically(self.path / "DONE", f"{frame}\n".encode())

    def _check_config(self) -> None:
        path = self.path / "config.json"
        if path.exists():
            there = read_config(self.path)
            different = difference(self.config, there)
            if different:
                raise ValueError(f"{self.path} holds another run: {different}")
            if there.frames > self.config.frames > self.done_frame:
                raise ValueError(
                    f"{self.path} is a run of {there.frames:,} frames, which may grow but not shrink to "
                    f"{self.config.frames:,}"
                )
            if there.frames >= self.config.frames:
                return
        write_atomically(path, json.dumps(self.config.to_json(), indent=1).encode())
        write_atomically(self.path / "meta.json", json.dumps(describe_machine(), indent=1).encode())


def read_config(path: Path) -> RunConfig:
    """Read the configuration of a run's directory."""
    try:
        return RunConfig.from_json(json.loads((path / "config.json").read_text()))
    except (json.JSONDecodeError, TypeError, KeyError) as error:
        raise ValueError(f"{path / 'config.json'} cannot be read: {error}") from error


def done_frame(path: Path) -> int:
    """Give the frame at which a run was complete, or -1."""
    try:
        return int((path / "DONE").read_text())
    except (FileNotFoundError, ValueError):
        return -1


def run_directories(path: Path) -> list[Path]:
    """Give the runs below a directory, or the one that it is."""
    if not path.is_dir():
        raise ValueError(f"{path} is not a directory")
    found = sorted(each.parent for each in path.rglob("config.json"))
    if not found:
        raise ValueError(f"{path} holds no run: there is no config.json below it")
    return found


def read_rows(path: Path) -> list[dict[str, float]]:
    """Read a CSV file of numbers; an empty cell is NaN."""
    with open(path, newline="") as file:
        rows = list(csv.DictReader(file))
    return [{name: float(cell) if cell else float("nan") for name, cell in row.items()} for row in rows]


def describe_machine() -> dict[str, Any]:
    """Say on what and with what a run is made."""
    return {
        "vcse": __version__,
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "device": torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu",
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "float32_matmul_precision": torch.get_float32_matmul_precision(),
        "command": sys.argv[1:],
    }


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    command: Sequence[str] = ("git", "-C", str(Path(__file__).parent), "rev-parse", "HEAD")
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return done.stdout.strip() or None


def _written(value: Any) -> str:
    """Write a number so that it reads back as itself; NaN is an empty cell."""
    if isinstance(value, float):
        return "" if value != value else repr(value)  # noqa: PLR0124 - NaN is not itself
    return str(value)
