import dataclasses
import errno
import json
import os
import pickle
import re
import resource
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from csv_rows import read_rows

from runs.small import half_written, make_config
from vcse.agents import read_config
from vcse.plugins import UnknownNameError
from vcse.runs.directory import (
    RunDirectory,
    bytes_on_disk,
    check_config,
    check_no_file,
    done_frame,
    run_directories,
)

ROWS = [{"frame": frame, "episodes": frame // 8, "return_mean": frame / 3} for frame in (64, 128, 192)]


@pytest.fixture
def directory(tmp_path):
    config = make_config()
    made = RunDirectory(tmp_path / config.name, config)
    yield made
    made.close()


def names(path):
    return sorted(each.name for each in path.iterdir())


def test_a_new_run_says_what_it_is_and_on_what_it_is_made(directory):
    assert names(directory.path) == [".lock", "config.json", "meta.json"]
    assert read_config(directory.path) == directory.config
    meta = json.loads((directory.path / "meta.json").read_text())
    assert {"vcse", "commit", "python", "packages", "platform", "device"} <= meta.keys()
    assert meta["packages"]["torch"]
    assert directory.done_frame == -1
    for backend in ("egl", "osmesa"):
        directory.add_to_meta("drawn_by", backend)
    assert json.loads((directory.path / "meta.json").read_text()) == meta | {"drawn_by": "osmesa"}


def test_a_file_and_what_lies_below_one_are_no_place_to_write_to(tmp_path):
    (tmp_path / "file").write_text("precious")
    for out, which in ((tmp_path / "file", "it"), (tmp_path / "file" / "runs", str(tmp_path / "file"))):
        with pytest.raises(ValueError, match=re.escape(f"written to {out}: {which} is a file; --out names a dir")):
            check_no_file(out, "the runs")
    check_no_file(tmp_path, "the runs")
    check_no_file(tmp_path / "new" / "runs", "the runs")


def test_another_process_is_refused_until_the_run_is_let_go(directory):
    attempt = (
        "import fcntl, sys\n"
        "file = open(sys.argv[1], 'w')\n"
        "try: fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: sys.exit(3)\n"
    )
    command = [sys.executable, "-c", attempt, str(directory.path / ".lock")]
    assert subprocess.run(command, check=False).returncode == 3
    with pytest.raises(RuntimeError, match="seed0 is being written by another process"):
        RunDirectory(directory.path, directory.config)
    directory.close()
    assert subprocess.run(command, check=False).returncode == 0
    RunDirectory(directory.path, directory.config).close()


def test_another_run_in_its_place_is_refused_by_name_and_nothing_changes(directory):
    directory.save_checkpoint(0, {})
    directory.close()
    before = (directory.path / "config.json").read_bytes()
    other = dataclasses.replace(directory.config, eval_episodes=5)
    with pytest.raises(ValueError, match="seed0 holds another run: eval_episodes is 2 there and 5 here"):
        RunDirectory(directory.path, other)
    assert (directory.path / "config.json").read_bytes() == before
    RunDirectory(directory.path, directory.config).close()  # the refusal let go of the lock


def test_a_run_that_has_saved_nothing_may_be_replaced_by_another_and_by_a_shorter_one(directory):
    directory.append_row("train.csv", ROWS[0])
    directory.close()
    other = dataclasses.replace(directory.config, eval_episodes=5, frames=32)
    RunDirectory(directory.path, other).close()
    assert read_config(directory.path) == other
    (directory.path / "DONE").write_text("32\n")
    with pytest.raises(ValueError, match="seed0 holds another run: eval_episodes is 5 there and 2 here"):
        RunDirectory(directory.path, directory.config)


def test_frames_may_grow_and_shrink_only_to_what_is_done(directory):
    directory.save_checkpoint(0, {})
    directory.close()
    path, config = directory.path, directory.config
    RunDirectory(path, dataclasses.replace(config, frames=1000)).close()
    assert read_config(path).frames == 1000
    with pytest.raises(ValueError, match="is a run of 1,000 frames, which may grow but not shrink to 500"):
        RunDirectory(path, dataclasses.replace(config, frames=500))
    (path / "DONE").write_text("640\n")
    RunDirectory(path, dataclasses.replace(config, frames=500)).close()
    assert read_config(path).frames == 1000


def test_rows_are_csv_with_one_header_and_read_back_as_themselves(directory):
    for row in ROWS:
        directory.append_row("train.csv", row | {"bonus_mean": float("nan")})
    lines = (directory.path / "train.csv").read_text().splitlines()
    assert lines[0] == "frame,episodes,return_mean,bonus_mean"
    assert len(lines) == 4
    assert lines[1].endswith(",")
    read = read_rows(directory.path / "train.csv")
    assert [row["return_mean"] for row in read] == [row["return_mean"] for row in ROWS]
    assert np.isnan(read[0]["bonus_mean"])


def test_columns_that_another_release_has_are_added_and_none_is_shifted(directory):
    directory.append_row("train.csv", {"frame": 64, "old": 0.5, "return_mean": 1.5})
    directory.append_row("train.csv", {"frame": 128, "return_mean": 2.5, "new": 7.0})
    directory.append_row("train.csv", {"new": 8.0, "frame": 192, "return_mean": 3.5})
    lines = (directory.path / "train.csv").read_text().splitlines()
    assert lines == ["frame,old,return_mean,new", "64,0.5,1.5,", "128,,2.5,7.0", "192,,3.5,8.0"]


def test_cutting_drops_what_came_later(directory):
    for row in ROWS:
        directory.append_row("train.csv", row)
        directory.append_log("actions.bin", np.full((4, 16), row["frame"] // 64, dtype=np.uint8))
        directory.save_checkpoint(row["frame"], {"update": row["frame"]})
    directory.finish(192)
    directory.cut(128, {"actions.bin": 128})
    assert [row["frame"] for row in read_rows(directory.path / "train.csv")] == [64, 128]
    assert directory.read_log("actions.bin", 128, np.uint8).tolist() == [1] * 64 + [2] * 64
    assert (directory.path / "actions.bin").stat().st_size == 128
    assert directory.newest_checkpoint().frame == 128
    assert directory.done_frame == -1


@pytest.mark.parametrize("torn", [b"", b"fra", b"frame,episodes,return_mean\n", b"frame,episodes,return_mean\n64,8,2"])
def test_a_torn_file_is_cut_to_what_is_whole_again_and_again(directory, torn):
    path = directory.path / "train.csv"
    path.write_bytes(torn)
    for _ in range(2):
        directory.cut(64, {"actions.bin": 0})
        assert path.read_bytes() == b""
    directory.append_row("train.csv", ROWS[0])
    assert path.read_text().splitlines()[0] == "frame,episodes,return_mean"
    path.write_bytes(path.read_bytes() + torn)
    directory.cut(64, {"actions.bin": 0})
    assert [row["frame"] for row in read_rows(path)] == [64]


@pytest.mark.parametrize("held", [None, 0, 100])
def test_actions_that_are_missing_are_told_and_not_made_up(directory, held):
    path = directory.path / "actions.bin"
    if held is not None:
        path.write_bytes(bytes(held))
    directory.append_row("train.csv", ROWS[2])
    with pytest.raises(RuntimeError, match=rf"actions.bin holds {held or 0} bytes, but the checkpoint needs 128"):
        directory.cut(128, {"actions.bin": 128})
    assert len(read_rows(directory.path / "train.csv")) == 1


def test_a_disk_that_fills_up_leaves_no_half_row_and_no_half_checkpoint(directory):
    directory.append_row("train.csv", ROWS[0])
    directory.append_log("actions.bin", np.zeros(60, dtype=np.uint8))
    directory.save_checkpoint(64, {"update": 2})
    before = {name: (directory.path / name).read_bytes() for name in ("train.csv", "actions.bin")}
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before["train.csv"]) + 10, limits[1]))  # as if that were all
    try:
        with pytest.raises(OSError, match=r"train\.csv"):
            directory.append_row("train.csv", ROWS[1] | {"return_mean": 1 / 3})
        with pytest.raises(OSError, match=r"actions\.bin"):
            directory.append_log("actions.bin", np.zeros(1000, dtype=np.uint8))
        with pytest.raises(OSError, match=r"frame000000000128\.pt"):
            directory.save_checkpoint(128, {"update": 4})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert {name: (directory.path / name).read_bytes() for name in before} == before
    assert directory.newest_checkpoint().frame == 64
    assert half_written(directory.path) == []


def test_opening_a_run_sweeps_away_what_a_killed_process_left(directory):
    (directory.path / "actions.bin").write_bytes(bytes(64))
    directory.save_checkpoint(64, {"update": 2})
    directory.close()
    for place in (directory.path / ".DONE.1.tmp", directory.path / "checkpoint" / ".frame000000000128.pt.1.tmp"):
        place.write_bytes(b"half")
    RunDirectory(directory.path, directory.config).close()
    assert half_written(directory.path) == []
    assert directory.newest_checkpoint().frame == 64


def test_a_damaged_checkpoint_is_told_once_with_where_the_run_goes_on(directory, capsys):
    for frame in (64, 128):
        directory.save_checkpoint(frame, {"update": frame // 32})
    newest = directory.path / "checkpoint" / "frame000000000128.pt"
    newest.write_bytes(b"")
    assert directory.newest_checkpoint().frame == 64
    assert capsys.readouterr().err == f"vcse: {newest} is damaged (0 bytes); going back to frame 64\n"
    (newest.parent / "frame000000000064.pt").unlink()
    assert directory.newest_checkpoint() is None
    assert "is damaged (0 bytes); there is none before: starting over from frame 0" in capsys.readouterr().err


def test_the_bytes_of_a_run_are_those_of_all_of_its_files(tmp_path):
    assert bytes_on_disk(tmp_path / "nothing") == 0
    (tmp_path / "checkpoint").mkdir()
    (tmp_path / "frames.bin").write_bytes(bytes(100))
    (tmp_path / "checkpoint" / "frame.pt").write_bytes(bytes(20))
    (tmp_path / "gone").symlink_to(tmp_path / "nowhere")
    assert bytes_on_disk(tmp_path) == 120


def test_runs_below_a_directory_are_found(tmp_path):
    with pytest.raises(ValueError, match="is not a directory"):
        run_directories(tmp_path / "nothing")
    with pytest.raises(ValueError, match=r"holds no run: there is no config\.json below it"):
        run_directories(tmp_path)
    configs = [make_config(seed=seed) for seed in (1, 0)]
    for config in configs:
        RunDirectory(tmp_path / config.name, config).close()
    found = run_directories(tmp_path)
    assert found == [tmp_path / configs[1].name, tmp_path / configs[0].name]
    assert run_directories(found[0]) == [found[0]]


@pytest.mark.parametrize("content", [b"{", b"[]", b"{}", b'{"schema_version": 1}', b"\xff\xfe"])
def test_a_configuration_that_cannot_be_read_is_a_value_error(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    with pytest.raises(ValueError, match=r"config\.json"):
        read_config(tmp_path)


@pytest.mark.parametrize("content", [b"{", b"[]", b'"a2c"', b"\xff\xfe"])
def test_a_run_whose_configuration_cannot_be_read_is_not_overwritten(tmp_path, content):
    (tmp_path / "config.json").write_bytes(content)
    (tmp_path / "DONE").write_text("288\n")
    with pytest.raises(ValueError, match=r"config\.json cannot be read: "):
        check_config(tmp_path, make_config())
    assert (tmp_path / "config.json").read_bytes() == content


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"schema_version": 7}, "it has schema version 7; this release reads 2 and 1"),
        ({"frames": 0}, "frames must be at least 1, got 0"),
    ],
)
def test_what_is_wrong_with_a_configuration_is_told_with_its_path(tmp_path, changes, problem):
    (tmp_path / "config.json").write_text(json.dumps(make_config().to_json() | changes))
    with pytest.raises(ValueError, match=re.escape(f"{tmp_path / 'config.json'} cannot be read: {problem}")):
        read_config(tmp_path)


@pytest.mark.parametrize(
    ("kind", "name", "old", "new"),
    [
        ("agent", "climber", '"agent": "a2c"', '"agent": "climber"'),
        ("bonus", "novelty", '"name": "vcse"', '"name": "novelty"'),
        ("family of tasks", "corridor", '"task": "minigrid/', '"task": "corridor/'),
    ],
)
def test_a_run_of_a_plug_in_that_is_not_loaded_names_the_remedy(tmp_path, kind, name, old, new):
    content = json.dumps(make_config().to_json())
    assert old in content
    (tmp_path / "config.json").write_text(content.replace(old, new))
    with pytest.raises(UnknownNameError) as raised:
        read_config(tmp_path)
    assert str(raised.value) == (
        f"{tmp_path} was made with the {kind} {name!r}, none of vcse's: "
        "set VCSE_PLUGINS to the module that registers it"
    )
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)  # from a training process


@pytest.mark.parametrize(("content", "frame"), [("288\n", 288), ("", -1), ("soon", -1), (None, -1)])
def test_only_a_number_in_done_says_that_a_run_is_done(tmp_path: Path, content, frame):
    if content is not None:
        (tmp_path / "DONE").write_text(content)
    assert done_frame(tmp_path) == frame


def test_a_file_system_that_cannot_lock_is_no_other_process(tmp_path, monkeypatch):
    def flock(file, operation):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("vcse.runs.directory.fcntl.flock", flock)
    with pytest.raises(OSError, match=rf"No locks available: '{tmp_path}/run/\.lock'"):
        RunDirectory(tmp_path / "run", make_config())


def test_what_tensorboard_cannot_write_holds_no_lock(directory):
    def close():
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    directory._scalars = SimpleNamespace(close=close)
    directory.close()
    RunDirectory(directory.path, directory.config).close()


def test_a_damaged_meta_file_is_named(directory):
    (directory.path / "meta.json").write_text("{")
    with pytest.raises(ValueError, match=r"meta\.json cannot be read: "):
        directory.add_to_meta("drawn_by", "egl")
    (directory.path / "meta.json").unlink()
    directory.add_to_meta("drawn_by", "egl")
    assert json.loads((directory.path / "meta.json").read_text()) == {"drawn_by": "egl"}
