import errno
import math
import os
import re
import signal
import struct
import subprocess
import sys
import time
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace

import jaxtyping
import pytest
from gl import needs_gl
from runs import small_pixels, small_sac
from runs.small import LAVA, assert_same_run, checkpoint_path, damage, make_config, train

import vcse
from vcse.agents.a2c.settings import a2c_settings
from vcse.launch import processes
from vcse.launch.processes import PipeProgress, suitable_jobs, together, train_in_jobs
from vcse.runs import checkpoint, resources
from vcse.runs.divergence import DivergedError
from vcse.runs.progress import Status, TrainingProgress

PATIENCE_S = 300  # with processes that share their cores with others


@pytest.fixture(autouse=True)
def _without_type_checks():
    """The processes have none either, and are compared."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


def test_a_process_per_core_where_there_are_enough_runs():
    assert suitable_jobs(["a2c"] * 48, device="cpu", cores=2) == 2
    assert suitable_jobs(["a2c"] * 48, device="cpu", cores=64) == 12
    assert suitable_jobs(["a2c"] * 3, device="cpu", cores=2) == 1
    assert suitable_jobs(["sac"] * 3, device="cpu", cores=2) == 2
    for mixed in (["a2c", "drqv2", "sac"], ["sac", "drqv2", "a2c"]):
        assert suitable_jobs(mixed, device="cpu", cores=8) == 2  # one of a2c alone fills none
    assert suitable_jobs(["a2c"] * 480, device="cuda", cores=16) == 1


class Listening(TrainingProgress):
    def __init__(self):
        super().__init__(quiet=True)
        self.heard, self.notes = [], []

    def note(self, text):
        self.notes.append(text)

    def report(self, status):
        self.heard.append(status)


def test_runs_are_the_same_in_two_processes_as_in_one(tmp_path):
    configs = [make_config(bonus=bonus, seed=seed) for bonus in ("none", "se", "vcse") for seed in (0, 1)]
    progress = Listening()
    paths = train_in_jobs(configs, tmp_path / "two", device="cpu", threads=2, jobs=2, progress=progress)
    train(configs, tmp_path / "one")
    assert paths == [tmp_path / "two" / config.name for config in configs]
    for config, path in zip(configs, paths, strict=True):
        assert_same_run(path, tmp_path / "one" / config.name)
    assert progress.heard[-1].runs == 6
    assert progress.heard[-1].frame == 288
    assert progress.heard[-1].scores.keys() == {"none", "se", "vcse"}


def test_a_failure_in_a_process_is_told_as_if_it_were_here(tmp_path):
    good, bad = make_config(seed=0), make_config(seed=1)
    train([make_config(seed=1, eval_every_frames=64)], tmp_path)
    with pytest.raises(ValueError, match="holds another run: eval_every_frames is 64 there and 160 here"):
        train_in_jobs([good, bad], tmp_path, device="cpu", threads=2, jobs=2, progress=TrainingProgress(quiet=True))


def test_a_run_that_diverges_in_a_process_ends_no_other(tmp_path):
    mine = [make_config(bonus="none", seed=0), make_config(bonus="none", seed=1)]
    lost = make_config(LAVA, settings=a2c_settings("vcse", beta=1e30, environments=4))  # is dealt to the first of them
    progress = Listening()
    with pytest.raises(DivergedError, match=rf"^the gradient of {lost.name} is not finite at frame \d+$") as raised:
        train_in_jobs([*mine, lost], tmp_path, device="cpu", threads=2, jobs=2, progress=progress)
    assert list(raised.value.runs) == [lost.name]
    assert any(note.startswith(f"the gradient of {lost.name} ") for note in progress.notes)
    assert (progress.heard[-1].runs, progress.heard[-1].frame) == (2, 288)  # who is given up is not waited for
    train(mine, tmp_path / "alone")
    for config in mine:
        assert_same_run(tmp_path / config.name, tmp_path / "alone" / config.name)


def test_processes_that_fit_alone_and_not_together_are_refused_before_any_starts(tmp_path, monkeypatch):
    configs = [small_pixels.make_config(seed=seed, frames=200_000) for seed in range(3)]  # 2.1 GB of frames each
    monkeypatch.setattr(resources, "free_bytes", lambda device: 5 * 10**9)
    monkeypatch.setattr(resources, "free_on_disk", lambda directory: 8 * 10**9)
    monkeypatch.setattr("vcse.launch.processes.start_job", None)
    settings = {"device": "cpu", "threads": 2, "progress": TrainingProgress(quiet=True)}
    refused = r"for the replays of 3 runs at once in 3 processes, 6\.\d GB are needed, but there is room for 2\.3 GB"
    with pytest.raises(ValueError, match=refused):
        train_in_jobs(configs, tmp_path, jobs=3, **settings)
    assert list(tmp_path.iterdir()) == []


def test_what_all_processes_take_is_said_once_and_what_is_wrong_with_their_runs(tmp_path, capsys):
    configs = [small_sac.make_config(seed=seed, frames=10, eval_episodes=0) for seed in range(2)]
    progress = Listening()
    train_in_jobs(configs, tmp_path, device="cpu", threads=2, jobs=2, progress=progress)
    [said] = progress.notes
    assert said.startswith("replay: 0.0 MB in the memory of the host, for 2 runs at once; files: ")
    [warning] = capsys.readouterr().err.splitlines()
    assert "seed0 and 1 other: nothing is learned in 10 frames: the first update comes within 81, " in warning
    assert all((tmp_path / config.name / "DONE").exists() for config in configs)


@needs_gl
def test_what_each_process_says_alike_is_passed_on_once(tmp_path):
    configs = [small_pixels.make_config("none", seed, frames=4, eval_episodes=0) for seed in range(2)]
    progress = Listening()
    train_in_jobs(configs, tmp_path, device="cpu", threads=2, jobs=2, progress=progress)
    room, images = progress.notes
    assert room.startswith("replay: ")
    assert images.startswith("images: fast, rendered by ")


def test_runs_that_wait_count_and_frames_never_go_back(tmp_path):
    settings = {"bonus": "none", "eval_episodes": 0, "eval_every_frames": 0}
    # Four cohorts, as the runs are saved at different frames, two for each process.
    configs = [make_config(seed=seed, checkpoint_every_frames=96 + 32 * seed, **settings) for seed in range(4)]
    progress = Listening()
    train_in_jobs(configs, tmp_path, device="cpu", threads=2, jobs=2, progress=progress)
    frames = [status.frame for status in progress.heard]
    assert frames == sorted(frames)
    assert frames[0] <= 64 + 144  # one of two runs may be done by then, and the other process has just begun
    assert frames[-1] == 288
    assert {(status.frames, status.runs) for status in progress.heard} == {(288, 4)}


def test_runs_that_go_back_from_a_damaged_checkpoint_count_from_where_they_begin(tmp_path):
    settings = {"bonus": "none", "eval_episodes": 0, "eval_every_frames": 0}
    train([make_config(seed=seed, frames=192, **settings) for seed in range(4)], tmp_path)
    configs = [make_config(seed=seed, **settings) for seed in range(4)]
    damage(checkpoint_path(tmp_path / configs[0].name, 192))
    progress = Listening()
    train_in_jobs(configs, tmp_path, device="cpu", threads=2, jobs=2, progress=progress)
    frames = [status.frame for status in progress.heard]
    assert frames[-1] == max(frames) == 288


def test_a_process_tells_the_mean_frame_of_all_its_runs_whatever_cohort_it_trains(tmp_path):
    train([make_config(seed=seed, frames=192, eval_episodes=0) for seed in range(4)], tmp_path)
    configs = [make_config(seed=seed, eval_episodes=0) for seed in range(4)]
    first, second = ([config.name for config in some] for some in (configs[:2], configs[2:]))
    told, telling = Pipe()
    progress = PipeProgress(telling, configs, tmp_path)  # all have 192 frames

    def after(frame):
        progress.report(Status(frame, 288, 2, 1.0, {}, {}))
        return told.recv().frame

    progress.start("", 288, 96, runs=first)  # these go back, since a checkpoint is damaged
    assert [after(160), after(320)] == [(160 + 192) // 2, (288 + 192) // 2]
    progress.start("", 288, 192, runs=second)
    assert [after(256), after(288)] == [(288 + 256) // 2, 288]


def test_that_nobody_listens_any_more_stops_no_training(tmp_path):
    configs = [make_config(seed=seed) for seed in range(2)]
    told, telling = Pipe()
    progress = PipeProgress(telling, configs, tmp_path)
    told.close()  # as when the process is killed that shows the progress
    progress.start("", 288, 0, runs=[config.name for config in configs])
    progress.note("drawn by osmesa")
    progress.report(Status(96, 288, 2, 1.0, {}, {}))
    assert set(progress.had.values()) == {96}


def test_runs_that_go_on_are_shown_from_the_mean_frame_and_those_that_are_done_are_counted(tmp_path, capsys):
    configs = [make_config(bonus="none", seed=seed, eval_episodes=0) for seed in range(3)]
    train(configs, tmp_path)
    for config, frame in zip(configs[:2], (192, 288), strict=True):
        (tmp_path / config.name / "DONE").unlink()
        checkpoint.drop_after(tmp_path / config.name / "checkpoint", frame)
    capsys.readouterr()
    shown = TrainingProgress()
    assert len(train_in_jobs(configs, tmp_path, device="cpu", threads=2, jobs=2, progress=shown)) == 3
    first, second, *_ = capsys.readouterr().err.splitlines()
    assert first == f"1 of 3 runs in {tmp_path} are done"
    assert second == "2 runs in 2 processes, on average: 240 of 288 frames"
    train_in_jobs(configs, tmp_path, device="cpu", threads=2, jobs=2, progress=shown)
    assert capsys.readouterr().err == f"all 3 runs in {tmp_path} are done, with 288 frames each: nothing to do\n"


def test_several_processes_are_as_far_as_their_runs_on_average_and_as_fast_as_all():
    one = Status(200, 1000, 3, 10.0, {"se": 0.5, "vcse": 1.0}, {"se": 0.0, "vcse": -2.0})
    other = Status(100, 500, 2, 5.0, {"se": 0.25}, {"se": 1.0})
    assert together([one, other]) == Status(160, 800, 5, 15.0, {"se": 0.375, "vcse": 1.0}, {"se": 0.5, "vcse": -2.0})
    assert not together([one, other._replace(learns=False)]).learns
    unknown = other._replace(scores={"se": math.nan}, bonus={"se": math.nan})
    assert together([one, unknown]).scores == {"se": 0.5, "vcse": 1.0}


def test_a_process_that_starts_does_not_hear_ctrl_c_until_it_can_stop_cleanly():
    before = signal.getsignal(signal.SIGINT)
    with processes._deaf_to_ctrl_c():
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN  # which a process inherits
    assert signal.getsignal(signal.SIGINT) == before


def children(pid):
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = stat.read_text()
        except OSError:
            continue
        if int(text.rpartition(")")[2].split()[1]) == pid:
            found.append(int(stat.parent.name))
    return found


def is_alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_stopped_or_killed_command_leaves_no_process_behind_and_goes_on(tmp_path, request, number):
    runs = ["--task", LAVA, "--seeds", "2", "--frames", "60000", "--environments", "4", "--eval-episodes", "0"]
    command = [sys.executable, "-m", "vcse", "train", *runs, "--jobs", "2", "--device", "cpu", "--out", str(tmp_path)]
    source = str(Path(vcse.__file__).parents[1])
    process = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": source}, stderr=subprocess.PIPE, text=True)
    request.addfinalizer(process.kill)  # whose own processes notice
    curves = [tmp_path / "minigrid-LavaGapS5" / "vcse" / f"seed{seed}" / "train.csv" for seed in (0, 1)]
    give_up = time.monotonic() + PATIENCE_S
    while not all(path.exists() for path in curves):
        assert time.monotonic() < give_up
        assert process.poll() is None
        time.sleep(0.05)
    started = children(process.pid)
    assert len(started) >= 2
    process.send_signal(number)
    said = process.communicate(timeout=PATIENCE_S)[1]
    assert process.returncode == (143 if number == signal.SIGTERM else -signal.SIGKILL)
    if number == signal.SIGTERM:
        assert "\nstopping: saving all runs\n" in said
        assert re.search(r"stopped by SIGTERM: .* saved in .* at .*; to continue, run the same command again", said)
    give_up = time.monotonic() + PATIENCE_S
    while any(map(is_alive, started)):
        assert time.monotonic() < give_up
        time.sleep(0.05)
    for path in curves:  # also where the command was killed: its processes notice, and save
        assert list((path.parent / "checkpoint").glob("frame*.pt"))


def broken_off():
    """Return a process that was killed in the middle of a message, as far as is seen of it."""
    mine, theirs = Pipe()
    os.write(theirs.fileno(), struct.pack("!i", 100) + b"only a part")
    theirs.close()
    return processes.Job(SimpleNamespace(exitcode=-signal.SIGKILL, join=lambda: None), mine)


def test_a_process_that_dies_in_the_middle_of_a_message_is_told():
    job = broken_off()
    with pytest.raises(RuntimeError, match="ended with exit code -9; the same command continues"):
        processes._listen(job, TrainingProgress(quiet=True), [job], is_stopping=False)
    job.messages.close()


def test_when_a_process_cannot_be_started_those_before_are_ended(tmp_path, monkeypatch):
    configs, started, start = [make_config(seed=seed) for seed in (0, 1)], [], processes.start_job

    def start_one(*job):
        if started:
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        started.append(start(*job))
        return started[0]

    monkeypatch.setattr(processes, "start_job", start_one)
    with pytest.raises(OSError, match="temporarily unavailable"):
        train_in_jobs(configs, tmp_path, device="cpu", threads=2, jobs=2, progress=TrainingProgress(quiet=True))
    assert started[0].process.exitcode is not None
    assert started[0].messages.closed
