"""Checkpoints: written whole or not at all, checked when read, and read without executing code."""

import hashlib
import io
import os
import pickle
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from vcse.envs.interface import NOT_DETERMINISTIC

MAGIC = b"vcse checkpoint 1\n"
KEPT = 2  # the previous one survives until the next but one is whole


class Checkpoint(NamedTuple):
    """A state and the frame at which it was taken."""

    frame: int
    state: dict[str, Any]


class CorruptCheckpointError(ValueError):
    """A file that is not, or is no longer, a whole checkpoint."""


class MisfitError(ValueError):
    """A whole checkpoint, but of another configuration than the run has."""


def write_atomically(path: Path, content: bytes) -> None:
    """Write a file so that it is either the old one or the new one, also after a power cut."""
    with replacing(path) as temporary:
        temporary.write_bytes(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield where to write a file, which then takes the place of this one: whole, also after a power cut, or not."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with naming(path):
            yield temporary
            sync(temporary)
            os.replace(temporary, path)
            sync(path.parent)
    except BaseException as error:
        with suppress(OSError):  # where nothing can be written, nothing can be removed either
            temporary.unlink()
        if isinstance(error, OSError) and error.filename == str(temporary):
            error.filename = str(path)
        raise


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add this file's name to an error that names none, such as that of a full disk."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise


@contextmanager
def fitting(path: Path) -> Iterator[None]:
    """Add the run's name to an error of a state that does not fit its configuration."""
    try:
        yield
    except (RuntimeError, ValueError, KeyError) as error:
        raise MisfitError(f"the newest checkpoint of {path} does not fit its config.json: {error}") from error


def save(directory: Path, frame: int, state: dict[str, Any]) -> Path:
    """Write the state at a frame and drop all but the newest two."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    payload = buffer.getvalue()
    path = _path(directory, frame)
    write_atomically(path, MAGIC + hashlib.sha256(payload).digest() + payload)
    for _, old in _newest_first(directory)[KEPT:]:
        old.unlink(missing_ok=True)
    return path


def load(path: Path) -> dict[str, Any]:
    """Read one checkpoint, or raise what is wrong with it."""
    content = path.read_bytes()
    start = len(MAGIC) + hashlib.sha256().digest_size
    payload = content[start:]
    if not content.startswith(MAGIC) or content[len(MAGIC) : start] != hashlib.sha256(payload).digest():
        raise CorruptCheckpointError(f"{path} is damaged ({len(content)} bytes)")
    try:
        state: dict[str, Any] = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise CorruptCheckpointError(f"{path} holds something else than tensors and numbers") from error
    if not isinstance(state, dict):
        raise CorruptCheckpointError(f"{path} holds no state by name, but a {type(state).__name__}")
    return state


def load_at(directory: Path, frame: int) -> Checkpoint | None:
    """Read the checkpoint of a frame, where it is there and whole."""
    try:
        return Checkpoint(frame, load(_path(directory, frame)))
    except (FileNotFoundError, CorruptCheckpointError):
        return None


def frames(directory: Path) -> list[int]:
    """Return the frames of the checkpoints that are there, the newest first."""
    return [frame for frame, _ in _newest_first(directory)]


def whole(directory: Path) -> Iterator[Checkpoint | CorruptCheckpointError]:
    """Read the checkpoints, the newest first; a damaged one is yielded as an error, to be reported."""
    for frame, path in _newest_first(directory):
        try:
            yield Checkpoint(frame, load(path))
        except CorruptCheckpointError as error:
            yield error


def drop_after(directory: Path, frame: int) -> None:
    """Remove the checkpoints after a frame, whole or damaged."""
    newer = [path for found, path in _newest_first(directory) if found > frame]
    for path in newer:
        path.unlink()
    if newer:
        sync(directory)


def drop_unfinished(directory: Path) -> None:
    """Remove what a process killed in `write_atomically` left behind; no other process may be writing there."""
    for path in directory.glob(".*.tmp"):
        path.unlink(missing_ok=True)


def _path(directory: Path, frame: int) -> Path:
    return directory / f"frame{frame:012d}.pt"


def newest(directory: Path, *, otherwise: str, agent_needs: Sequence[str] = ()) -> Checkpoint | None:
    """Read the newest whole checkpoint; warn of those passed over, and of what is done if none is left.

    Args:
        directory: Where they are.
        otherwise: What is done if none is left.
        agent_needs: What the agent's state must hold; a checkpoint without is passed over like a damaged one.
    """
    damaged: list[CorruptCheckpointError] = []
    for read in whole(directory):
        found = read
        if isinstance(found, Checkpoint) and (missing := _missing(found.state, agent_needs)):
            found = CorruptCheckpointError(f"{_path(directory, found.frame)} holds no {missing}")
        if not isinstance(found, CorruptCheckpointError):
            for each in damaged:
                print(f"vcse: {each}; going back to frame {found.frame:,}", file=sys.stderr)
            return found
        damaged.append(found)
    for place, each in enumerate(damaged, start=1):
        then = "trying the one before" if place < len(damaged) else f"there is none before: {otherwise}"
        print(f"vcse: {each}; {then}", file=sys.stderr)
    return None


def check_replayed(run: Path, shown: Tensor, kept: Tensor, *, other_cause: str = "", foreign_task: str = "") -> None:
    """Refuse to resume where an environment, replayed to where it was, does not show what its checkpoint holds.

    Args:
        run: The directory that is named.
        shown: What the environment shows now.
        kept: What it showed when the checkpoint was written.
        other_cause: A question, in addition to that for another version of the simulator.
        foreign_task: The name of a task that may be not deterministic.
    """
    if torch.equal(shown, kept):
        return
    if foreign_task:
        raise RuntimeError(
            f"{run}: {foreign_task}, replayed from its seed and actions, shows something else than when the checkpoint "
            f"was written. Either it is another version of it than then, or {NOT_DETERMINISTIC}"
        )
    raise RuntimeError(
        f"{run}: the environment, replayed, shows something else than when the checkpoint was written; was another "
        f"version of the simulator installed then{other_cause}?"
    )


def _missing(state: dict[str, Any], agent_needs: Sequence[str]) -> str:
    """Name what a state does not hold of what an agent needs; empty where it holds all."""
    if not agent_needs:
        return ""
    agent = state.get("agent")
    if not isinstance(agent, dict):
        return "agent"
    return ", ".join(f"agent.{name}" for name in agent_needs if name not in agent)


def _newest_first(directory: Path) -> list[tuple[int, Path]]:
    if not directory.is_dir():
        return []
    named = ((re.fullmatch(r"frame(\d{12})\.pt", path.name), path) for path in directory.iterdir())
    return sorted(((int(name[1]), path) for name, path in named if name), reverse=True)


def sync(path: Path) -> None:
    """Wait until a file or the entries of a directory are on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
