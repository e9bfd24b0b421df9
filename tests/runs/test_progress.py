import io
import sys

import pytest

from vcse.runs.progress import Status, TrainingProgress

STATUS = Status(1000, 4000, 3, 600.0, {"none": float("nan"), "vcse": 0.25}, {"none": 0.0, "vcse": -5.83})


class Terminal(io.StringIO):
    def isatty(self):
        return True


def show(progress, *statuses):
    with progress:
        progress.start("2 tasks, a2c, 3 runs", 4000, 0)
        for status in statuses:
            progress.report(status)


def test_in_a_pipe_there_are_plain_lines_on_standard_error(capsys):
    show(TrainingProgress(), STATUS)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        "2 tasks, a2c, 3 runs: 0 of 4,000 frames",
        "2 tasks, a2c, 3 runs: 1,000 of 4,000 frames, 600 frames/s, success none - vcse 25%, bonus none 0 vcse -5.83, "
        "15 s left",
    ]


def test_lines_are_seconds_apart_but_the_last_always_comes(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("vcse.runs.progress.time.monotonic", lambda: now[0])
    progress = TrainingProgress()
    progress.start("1 run", 4000, 0)
    for seconds, frame in ((100, 1000), (105, 2000), (111, 3000), (112, 4096)):
        now[0] = float(seconds)
        progress.report(STATUS._replace(frame=frame))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" of ")[0].split()[-1] for line in lines] == ["0", "1,000", "3,000", "4,096"]
    assert lines[-1].endswith(", 0 s left")


@pytest.mark.parametrize("file", [io.StringIO, Terminal])
def test_quiet_is_silent(monkeypatch, file):
    shown = file()
    monkeypatch.setattr(sys, "stderr", shown)
    show(TrainingProgress(quiet=True), STATUS)
    assert shown.getvalue() == ""


def test_on_a_terminal_there_is_a_bar_with_how_well_each_method_does(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "250")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    show(TrainingProgress(), STATUS)
    shown = terminal.getvalue()
    assert "1,000 of 4,000 frames" in shown
    assert "600 frames/s, success none - vcse 25%, bonus none 0 vcse -5.83" in shown
    assert "\x1b[" in shown
