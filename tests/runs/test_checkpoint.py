import errno
import hashlib
import io
import os
import resource
from pathlib import Path

import pytest
import torch

from runs.small import assert_same, half_written
from vcse.runs import checkpoint
from vcse.runs.checkpoint import MAGIC, CorruptCheckpointError

STATE = {
    "update": 3,
    "bonus_sum": 0.1,
    "recent": [0.5, 0.25],
    "agent": {"parameters": torch.arange(50.0), "count": torch.tensor(7), "seen": torch.ones(2, 3, dtype=torch.uint8)},
}


class RunsCode:
    def __reduce__(self):
        return os.mkdir, ("the code ran",)


def test_a_state_comes_back_as_it_was(tmp_path):
    path = checkpoint.save(tmp_path, 96, STATE)
    assert path == tmp_path / "frame000000000096.pt"
    assert_same(checkpoint.load(path), STATE)


def test_the_newest_two_are_kept(tmp_path):
    for frame in (32, 9_999_999, 64, 96):
        checkpoint.save(tmp_path, frame, STATE)
    assert checkpoint.frames(tmp_path) == [9_999_999, 96]
    assert [found.frame for found in checkpoint.whole(tmp_path)] == [9_999_999, 96]


def test_no_directory_holds_no_checkpoints(tmp_path):
    assert list(checkpoint.whole(tmp_path / "nothing")) == []


@pytest.mark.parametrize("place", [0, len(MAGIC), len(MAGIC) + 32, 0.3, 0.7, -1])
def test_a_flipped_bit_anywhere_is_found(tmp_path, place):
    path = checkpoint.save(tmp_path, 96, STATE)
    content = bytearray(path.read_bytes())
    content[int(place * len(content)) if isinstance(place, float) else place] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptCheckpointError, match=r"frame000000000096\.pt is damaged"):
        checkpoint.load(path)


@pytest.mark.parametrize("size", [0, 5, len(MAGIC) + 31, len(MAGIC) + 32, 1000])
def test_a_file_that_was_cut_short_is_found(tmp_path, size):
    path = checkpoint.save(tmp_path, 96, STATE)
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(CorruptCheckpointError, match=rf"is damaged \({size} bytes\)"):
        checkpoint.load(path)


def test_the_one_before_a_damaged_one_is_given_after_it(tmp_path):
    checkpoint.save(tmp_path, 32, STATE)
    checkpoint.save(tmp_path, 64, STATE | {"update": 4}).write_bytes(b"")
    damaged, before = checkpoint.whole(tmp_path)
    assert isinstance(damaged, CorruptCheckpointError)
    assert before.frame == 32
    assert checkpoint.load_at(tmp_path, 32).state["update"] == 3
    assert checkpoint.load_at(tmp_path, 64) is None
    assert checkpoint.load_at(tmp_path, 96) is None


def test_code_in_a_checkpoint_is_never_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    buffer = io.BytesIO()
    torch.save({"parameters": RunsCode()}, buffer)
    payload = buffer.getvalue()
    path = tmp_path / "frame000000000096.pt"
    path.write_bytes(MAGIC + hashlib.sha256(payload).digest() + payload)
    with pytest.raises(CorruptCheckpointError, match="holds something else than tensors and numbers"):
        checkpoint.load(path)
    assert not (tmp_path / "the code ran").exists()


def test_a_file_that_holds_no_names_is_no_checkpoint(tmp_path, without_type_checks):
    path = checkpoint.save(tmp_path, 96, [torch.zeros(2)])
    with pytest.raises(CorruptCheckpointError, match="holds no state by name, but a list"):
        checkpoint.load(path)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, call):
    path = tmp_path / "file"
    checkpoint.write_atomically(path, b"old")

    def fail(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, call, fail)
    with pytest.raises(OSError, match=rf"No space left on device: '{path}'"):
        checkpoint.write_atomically(path, b"new")
    monkeypatch.undo()
    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_checkpoint_for_which_there_is_no_room_leaves_those_before(tmp_path):
    checkpoint.save(tmp_path, 32, STATE)
    checkpoint.save(tmp_path, 64, STATE)
    size = (tmp_path / "frame000000000064.pt").stat().st_size
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, limits[1]))
    try:
        with pytest.raises(OSError, match=r"frame000000000096\.pt"):
            checkpoint.save(tmp_path, 96, STATE)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert [found.frame for found in checkpoint.whole(tmp_path)] == [64, 32]
    assert half_written(tmp_path) == []


def test_what_a_killed_process_left_is_swept_away(tmp_path):
    path = checkpoint.save(tmp_path, 32, STATE)
    (tmp_path / ".frame000000000064.pt.123.tmp").write_bytes(b"half")
    assert checkpoint.frames(tmp_path) == [32]
    checkpoint.drop_unfinished(tmp_path)
    assert list(tmp_path.iterdir()) == [path]


def test_checkpoints_after_a_frame_are_dropped_whole_or_damaged(tmp_path):
    for frame in (32, 64):
        checkpoint.save(tmp_path, frame, STATE)
    (tmp_path / "frame000000000096.pt").write_bytes(b"damaged")
    checkpoint.drop_after(tmp_path, 32)
    assert checkpoint.frames(tmp_path) == [32]


@pytest.mark.parametrize(("other_cause", "question"), [("", "then?"), (", or was it cold", "then, or was it cold?")])
def test_an_environment_that_shows_something_else_is_refused(other_cause, question):
    kept = torch.arange(6, dtype=torch.uint8).view(2, 3)
    checkpoint.check_replayed(Path("out/run"), kept.clone(), kept, other_cause=other_cause)
    for shown in (kept + 1, kept[:1]):
        with pytest.raises(RuntimeError) as refused:
            checkpoint.check_replayed(Path("out/run"), shown, kept, other_cause=other_cause)
        assert str(refused.value).startswith("out/run: the environment, replayed, shows something else than when")
        assert str(refused.value).endswith(f"was another version of the simulator installed {question}")
