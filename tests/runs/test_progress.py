import io
import re
import sys

import pytest

from vcse.runs.progress import Status, Stopwatch, TrainingProgress

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
        "2 tasks, a2c, 3 runs: 1,000 of 4,000 frames, 600 frames/s, success vcse 25%, bonus none 0 vcse -5.83, "
        "15 s left",
    ]


def test_what_is_not_known_yet_is_left_out(capsys):
    unknown = dict.fromkeys(("se", "vcse"), float("nan"))
    show(TrainingProgress(), STATUS._replace(frame=4000, score="return", scores={"se": -3.25}, bonus=unknown))
    assert capsys.readouterr().err.endswith(", 600 frames/s, return se -3.2, 0 s left\n")


def test_lines_are_seconds_apart_but_the_last_always_comes(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("vcse.runs.progress.time.monotonic", lambda: now[0])
    progress = TrainingProgress()
    progress.start("1 run", 4000, 0)
    for seconds, frame in ((100, 1000), (105, 2000), (111, 3000), (112, 4096)):
        now[0] = float(seconds)
        progress.report(STATUS._replace(frame=frame))
    lines = capsys.readouterr().err.splitlines()
    assert [line.split(" of ")[0].split()[-1] for line in lines] == ["0", "1,000", "3,000", "4,000"]
    assert lines[-1].endswith(", 0 s left")


def test_the_time_left_follows_the_pace_of_the_last_reports_not_of_the_fast_random_frames_at_the_start(
    capsys, monkeypatch
):
    now = [0.0]
    monkeypatch.setattr("vcse.runs.progress.time.monotonic", lambda: now[0])
    progress = TrainingProgress()
    progress.start("dmc/hopper_stand, sac, 2 runs", 50_000, 0)
    for second in range(1, 62):  # 1,000 frames/s without updates, then 2
        frame = 1000 * second if second <= 5 else 5000 + 2 * (second - 5)
        now[0] = float(second)
        progress.report(Status(frame, 50_000, 2, 2 * frame / second, {"vcse": 0.5}, {"vcse": 0.5}, "return"))
    line = capsys.readouterr().err.splitlines()[-1]
    assert ": 5,110 of 50,000 frames, 4.0 frames/s, return" in line
    assert line.endswith(", 6.2 h left")  # 44,890 frames, and not the 5 minutes of the mean of 85 frames/s
    progress.report(Status(100, 50_000, 2, 20.0, {"vcse": 0.5}, {"vcse": 0.5}, "return"))  # the next cohort of a job
    now[0] += 10
    progress.report(Status(200, 50_000, 2, 20.0, {"vcse": 0.5}, {"vcse": 0.5}, "return"))
    assert capsys.readouterr().err.splitlines()[-1].endswith(", 83 min left")


def test_an_evaluation_is_part_of_the_pace_and_not_all_of_it(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("vcse.runs.progress.time.monotonic", lambda: now[0])
    progress = TrainingProgress()
    progress.start("metaworld/door-open, drqv2, 1 run", 10_000, 0)
    for report in range(1, 101):  # 4 frames in each second, and 40 seconds of evaluation every 80 frames
        now[0] += 41.0 if report % 20 == 0 else 1.0
        progress.report(Status(4 * report, 10_000, 1, 4.0, {}, {}, "return"))
    told = re.findall(r"([\d.]+) frames/s, .* ([\d.]+ \w+) left", capsys.readouterr().err)[4:]
    assert {float(pace) for pace, _ in told} <= {number / 10 for number in range(10, 24)}
    assert {left.split()[1] for _, left in told} <= {"min", "h"}


def test_while_actions_are_random_the_time_left_is_not_known_and_their_pace_is_forgotten_then(capsys, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("vcse.runs.progress.time.monotonic", lambda: now[0])
    progress = TrainingProgress()
    progress.start("dmc/hopper_stand, sac, 1 run", 50_000, 0)
    lefts = []
    for second, frame in ((10, 2500), (20, 5000), (21, 5002), (32, 5024)):
        now[0] = float(second)
        progress.report(Status(frame, 50_000, 1, 250.0, {}, {}, "return", learns=frame > 5000))
        lefts.append(capsys.readouterr().err.splitlines()[-1:])
    assert lefts[0][0].endswith(" 250 frames/s, unknown time left")
    assert lefts[1][0].endswith(", unknown time left")
    assert lefts[3][0].endswith(", 2.0 frames/s, 6.2 h left")


def test_a_stopwatch_tells_the_pace_of_all_and_of_a_row_without_what_was_done_between_rows(monkeypatch):
    now = [10.0]
    monkeypatch.setattr("vcse.runs.progress.time.monotonic", lambda: now[0])
    watch = row_watch = Stopwatch(500)
    now[0] = 20.0
    assert watch.frames_per_s(1500) == row_watch.frames_per_s(1500) == 100
    now[0] = 110.0  # an evaluation
    row_watch = Stopwatch(1500)
    now[0] = 210.0
    assert watch.frames_per_s(1700) == 6
    assert row_watch.frames_per_s(1700) == 2


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
    assert "600 frames/s, success vcse 25%, bonus none 0 vcse -5.83" in shown
    assert "\x1b[" in shown


NARROW = "metaworld/peg-insert-side, drqv2, 1 run"


def on_terminal(monkeypatch, columns, *statuses, frames=1_100_000):
    """Return the lines that are left on a terminal of so many columns."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    with TrainingProgress() as progress:
        progress.start(NARROW, frames, 0)
        for status in statuses:
            progress.report(status)
    last = terminal.getvalue().rpartition("\x1b[2K")[2]  # before each image the one before is wiped out
    return [line.rstrip() for line in re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", last).splitlines() if line.strip()]


@pytest.mark.parametrize("columns", [80, 120, 160])
def test_frames_time_left_and_every_score_are_whole_on_a_terminal_of_any_width(monkeypatch, columns):
    scores = {"none": 0.01, "se": 0.04, "se-matched": 0.12, "vcse": 0.25}
    status = Status(1_000_000, 1_100_000, 4, 8_000.0, scores, dict.fromkeys(scores, -5.83))
    title, bar, *note = on_terminal(monkeypatch, columns, status)
    assert title == NARROW
    assert re.fullmatch(r"━+[╸╺]?━* 1,000,000 of 1,100,000 frames 0:00:0\d 0:00:50 left", bar)
    assert bar.count("━") >= 20
    assert " ".join(note) == (
        "8,000 frames/s, success none 1% se 4% se-matched 12% vcse 25%, "
        "bonus none -5.83 se -5.83 se-matched -5.83 vcse -5.83"
    )


def test_when_all_is_done_no_time_is_left(monkeypatch):
    done = STATUS._replace(frame=4096)
    _, bar, _ = on_terminal(monkeypatch, 80, STATUS, done, frames=4000)
    assert re.fullmatch(r"━+ 4,000 of 4,000 frames 0:00:0\d", bar)
