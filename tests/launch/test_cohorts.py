import dataclasses
import errno
import json
import math
import os
import pickle
import resource
import shutil
import signal
import threading
from contextlib import closing

import jaxtyping
import pytest
import torch
from csv_rows import read_rows
from runs import small_sac
from runs.small import (
    EMPTY,
    LAVA,
    Interrupting,
    assert_same_run,
    checkpoint_path,
    damage,
    half_written,
    make_config,
    newest_state,
    train,
)

from vcse.agents import agent_entry, read_config
from vcse.agents.a2c.cohort import A2CCohort
from vcse.agents.a2c.settings import a2c_settings
from vcse.launch.cohorts import StoppedError, open_run, telling_what_is_saved, train_runs, warn_of
from vcse.runs import checkpoint, directory, loop
from vcse.runs.directory import RunDirectory
from vcse.runs.divergence import DivergedError
from vcse.runs.progress import TrainingProgress
from vcse.runs.remarks import Remark

CONFIGS = [make_config(EMPTY, "none"), make_config(EMPTY, "vcse", 1), make_config(LAVA, "se", 2)]


class DeathError(BaseException):
    """The end of a process, which nothing in it may survive but what is on disk."""


def die():
    raise DeathError


@pytest.fixture(scope="module", autouse=True)
def _without_type_checks():
    """Types are checked in other tests of the same code; here much is trained."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def uninterrupted(tmp_path_factory):
    out = tmp_path_factory.mktemp("uninterrupted")
    train(CONFIGS, out)
    return out


@pytest.fixture
def copy(uninterrupted, tmp_path):
    """The finished runs, to be spoilt."""
    return shutil.copytree(uninterrupted, tmp_path / "copy")


def assert_all_same(out, uninterrupted, configs=CONFIGS):
    for config in configs:
        assert_same_run(out / config.name, uninterrupted / config.name)
    assert half_written(out) == []


def take_back(run, frame):
    """Make a run look as if its process had died after the checkpoint of a frame, which is still there or is none."""
    (run / "DONE").unlink(missing_ok=True)
    checkpoint.drop_after(run / "checkpoint", frame)


def runs_in_cohort(run):
    return {int(row["runs"]) for row in read_rows(run / "timing.csv")}


def test_what_a_run_leaves_on_disk(uninterrupted):
    run = uninterrupted / "minigrid-Empty-5x5" / "vcse" / "seed1"
    assert sorted(each.name for each in run.iterdir()) == [
        ".lock",
        "DONE",
        "actions.bin",
        "checkpoint",
        "config.json",
        "eval.csv",
        "meta.json",
        "timing.csv",
        "train.csv",
    ]
    assert (run / "DONE").read_text() == "288\n"
    assert (run / "actions.bin").stat().st_size == 288
    assert checkpoint.frames(run / "checkpoint") == [288, 192]
    lines = (run / "train.csv").read_text().splitlines()
    assert lines[0].startswith("frame,episodes,return_mean,success_rate,")
    assert "bonus_mean" in lines[0].split(",")
    assert [line.startswith("frame") for line in lines] == [True, *[False] * 5]
    assert [row["frame"] for row in read_rows(run / "train.csv")] == [64, 128, 192, 256, 288]
    assert [(row["frame"], row["episodes"]) for row in read_rows(run / "eval.csv")] == [(160, 2), (288, 2)]
    assert runs_in_cohort(run) == {3}


def test_finished_runs_are_named_and_left_alone(copy, capsys):
    before = {
        path: (path.read_bytes(), path.stat().st_mtime_ns)
        for path in copy.rglob("*")
        if path.name != ".lock" and path.is_file()
    }
    assert train(CONFIGS, copy) == [copy / config.name for config in CONFIGS]
    assert capsys.readouterr().err.splitlines() == [f"{copy / each.name} is done: 288 frames" for each in CONFIGS]
    assert before == {path: (path.read_bytes(), path.stat().st_mtime_ns) for path in before}


def test_runs_that_grow_go_on_where_they_were(copy, uninterrupted, tmp_path):
    longer = [dataclasses.replace(config, frames=400) for config in CONFIGS]
    train(longer, copy)
    for config in longer:
        run, shorter = copy / config.name, uninterrupted / config.name
        assert (run / "DONE").read_text() == "416\n"  # a whole update
        assert json.loads((run / "config.json").read_text())["frames"] == 400
        assert [row["frame"] for row in read_rows(run / "train.csv")][4:] == [288, 320, 384, 416]
        assert (run / "train.csv").read_text().startswith((shorter / "train.csv").read_text())
        assert (run / "actions.bin").read_bytes().startswith((shorter / "actions.bin").read_bytes())
    # The parameters, which no row touches, are those of a run that was meant to be longer at once.
    train(longer[1:2], tmp_path / "at once")
    at_once = newest_state(tmp_path / "at once" / longer[1].name)
    grown = newest_state(copy / longer[1].name)
    assert grown.frame == at_once.frame == 416
    assert grown.state["agent"]["parameters"].equal(at_once.state["agent"]["parameters"])


def test_one_run_that_is_refused_leaves_no_trace_of_the_others(copy):
    new, changed = make_config(LAVA, "none", 7), dataclasses.replace(CONFIGS[1], eval_episodes=3)
    with pytest.raises(ValueError, match="vcse/seed1 holds another run: eval_episodes is 2 there and 3 here"):
        train([new, changed], copy)
    assert not (copy / new.name).exists()


def test_a_run_goes_on_to_the_same_end_when_it_is_saved_more_often(copy, uninterrupted):
    often = [dataclasses.replace(config, checkpoint_every_frames=32) for config in CONFIGS]
    made = (copy / CONFIGS[0].name / "meta.json").read_bytes()
    train(often[2:], copy)  # done: it stays as it was made
    for config in CONFIGS[:2]:
        take_back(copy / config.name, 192)
    train(often[:2], copy)
    assert_all_same(copy, uninterrupted)
    written = [read_config(copy / config.name).checkpoint_every_frames for config in CONFIGS]
    assert written == [32, 32, 96]
    assert checkpoint.frames(copy / CONFIGS[0].name / "checkpoint") == [288, 256]
    assert (copy / CONFIGS[0].name / "meta.json").read_bytes() == made


def test_runs_that_are_saved_at_different_frames_are_no_cohort(tmp_path):
    both = [make_config(bonus="none", seed=each, checkpoint_every_frames=each, eval_episodes=0) for each in (64, 96)]
    train(both, tmp_path)
    assert [runs_in_cohort(tmp_path / config.name) for config in both] == [{1}, {1}]


def test_that_it_was_stopped_can_be_told_to_another_process():
    told = pickle.loads(pickle.dumps(StoppedError(signal.SIGTERM)))
    assert (told.number, str(told)) == (signal.SIGTERM, "stopped by SIGTERM: everything is saved")


def test_who_stops_runs_is_told_at_once_and_then_how_far_they_are_saved(tmp_path, capsys):
    class Stopping(Interrupting):
        def say_stopping(self):
            super().say_stopping()
            for thread in threading.enumerate():
                if thread is not threading.current_thread():
                    thread.join(5)
            assert capsys.readouterr().err.splitlines()[-1] == "stopping: saving all runs"

    progress = Stopping(128, lambda: signal.raise_signal(signal.SIGINT))
    progress.quiet = False
    late = make_config(seed=9, checkpoint_every_frames=64)  # of another cohort, which waits
    told = rf"^stopped by SIGINT: 3 runs saved in {tmp_path} at frame 128, 1 not begun$"
    with pytest.raises(StoppedError, match=told) as stopped, telling_what_is_saved([*CONFIGS, late], tmp_path):
        train([*CONFIGS, late], tmp_path, progress=progress)
    assert stopped.value.resume == ""  # which would not begin the one that waits


def test_who_stops_runs_that_have_all_begun_is_told_what_resumes_them(tmp_path):
    out = tmp_path / "my runs"
    for config in CONFIGS[:2]:
        with closing(open_run(config, out)) as opened:
            opened.save_checkpoint(64 * (1 + config.seed), {})
    told = rf"^stopped by SIGTERM: 2 runs saved in {out} at frames 64 to 128$"
    with pytest.raises(StoppedError, match=told) as stopped, telling_what_is_saved(CONFIGS[:2], out):
        raise StoppedError(signal.SIGTERM)
    assert stopped.value.resume == f"vcse resume '{out}'"
    assert pickle.loads(pickle.dumps(stopped.value)).resume == stopped.value.resume


def test_who_stops_runs_that_have_not_begun_is_told_so(tmp_path):
    told = r"^stopped by SIGTERM: no run had begun$"
    with pytest.raises(StoppedError, match=told), telling_what_is_saved(CONFIGS, tmp_path):
        raise StoppedError(signal.SIGTERM)


def test_two_runs_of_one_name_are_refused(tmp_path):
    twice = [make_config(bonus="none", method="same"), make_config(bonus="vcse", method="same")]
    with pytest.raises(ValueError, match="several runs have the name minigrid-Empty-5x5/same/seed0"):
        train(twice, tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_and_the_same_call_goes_on_to_the_same_end(tmp_path, uninterrupted, number):
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    with pytest.raises(StoppedError, match=rf"stopped by {number.name}: everything is saved") as stopped:
        train(CONFIGS, tmp_path, progress=Interrupting(128, lambda: signal.raise_signal(number)))
    assert stopped.value.number == number
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers
    for config in CONFIGS:
        assert checkpoint.frames(tmp_path / config.name / "checkpoint")[0] == 128
        assert not (tmp_path / config.name / "DONE").exists()
    train(CONFIGS, tmp_path)
    assert_all_same(tmp_path, uninterrupted)


def test_stopped_before_the_first_update_and_joined_by_another_run(tmp_path, uninterrupted, monkeypatch):
    monkeypatch.setattr("vcse.launch.cohorts._train", _stop_at_once)
    with pytest.raises(StoppedError):
        train([CONFIGS[0], CONFIGS[2]], tmp_path)
    monkeypatch.undo()
    assert [checkpoint.frames(tmp_path / each.name / "checkpoint") for each in CONFIGS] == [[0], [], [0]]
    train(CONFIGS, tmp_path)
    assert_all_same(tmp_path, uninterrupted)


def test_a_start_that_failed_does_not_block_the_command_that_is_mended(tmp_path, uninterrupted, monkeypatch):
    def fail(*_, **__):
        raise RuntimeError("nothing can be drawn here")

    wrong = [dataclasses.replace(config, eval_episodes=7, frames=5000) for config in CONFIGS]
    with monkeypatch.context() as patch:
        patch.setattr(A2CCohort, "__init__", fail)
        with pytest.raises(RuntimeError, match="nothing can be drawn here"):
            train(wrong, tmp_path)
    assert read_config(tmp_path / CONFIGS[0].name) == wrong[0]
    train(CONFIGS, tmp_path)
    assert_all_same(tmp_path, uninterrupted)
    assert read_config(tmp_path / CONFIGS[0].name) == CONFIGS[0]


def test_of_cohorts_that_follow_each_other_it_is_said_how_many_runs_wait(tmp_path):
    started = []

    class Listening(TrainingProgress):
        def start(self, title, frames, frame, *, runs=()):
            started.append(title)

    short = {"bonus": "none", "frames": 32, "eval_episodes": 0}
    configs = [make_config(seed=seed, checkpoint_every_frames=64 + 32 * (seed // 2), **short) for seed in range(4)]
    train(configs, tmp_path, progress=Listening(quiet=True))
    assert started == ["minigrid/Empty-5x5, a2c, 2 runs, 2 more to come", "minigrid/Empty-5x5, a2c, 2 runs"]


def test_runs_that_learn_nothing_are_named_once_for_each_reason(capsys):
    short = [small_sac.make_config(seed=seed, frames=40) for seed in range(3)]
    warn_of([*short, small_sac.make_config(seed=9, frames=40, settings={"seed_frames": 40}), small_sac.make_config()])
    reason = "nothing is learned in 40 frames: the first update comes within {}, after seed_frames {} of random actions"
    assert capsys.readouterr().err.splitlines() == [
        f"vcse: warning, dmc-pendulum_swingup/vcse/seed0 and 2 others: {reason.format(81, 80)}",
        f"vcse: warning, dmc-pendulum_swingup/vcse/seed9: {reason.format(41, 40)}",
    ]


def test_of_tasks_whose_mission_chooses_the_goal_it_is_said_that_nobody_is_shown_it(capsys):
    tasks = ("minigrid/Fetch-5x5-N2", "minigrid-full/KeyCorridorS3R3", "minigrid/Empty-5x5")
    warn_of([make_config(task, seed=seed) for task in tasks for seed in range(2)])
    (first,) = capsys.readouterr().err.splitlines()
    assert first.startswith("vcse: warning, minigrid-Fetch-5x5-N2/vcse/seed0 and 1 other: which thing is the goal ")
    assert first.endswith("given by the mission alone, which the agent does not observe: it can only guess")


def test_a_cohort_that_has_nothing_to_say_is_not_noted(tmp_path):
    said = []

    class Listening(Interrupting):
        def note(self, text):
            said.append(text)

    train([make_config(frames=32, eval_episodes=0)], tmp_path, progress=Listening(0, lambda: None))
    assert said == []


def _stop_at_once(plan, *_, **__):
    cohort = A2CCohort(plan.directories)
    assert not loop.train(cohort, 288, report=lambda status: None, should_stop=lambda: True)
    raise StoppedError(signal.SIGTERM)


class Mortal:
    """Lets the process die at its n-th write: before it, in the middle of it or right after it, in turns."""

    def __init__(self, monkeypatch):
        self.calls, self.dies_at, self.attempt = 0, 0, 0
        self.append, self.write = directory._append, checkpoint.write_atomically
        monkeypatch.setattr(directory, "_append", self.mortal_append)
        for module in (directory, checkpoint):
            monkeypatch.setattr(module, "write_atomically", self.mortal_write)

    def dies_now(self):
        self.calls += 1
        return self.calls == self.dies_at

    def mortal_append(self, path, content):
        if not self.dies_now():
            return self.append(path, content)
        if self.attempt % 3 == 1:
            self.append(path, content[: len(content) // 2])
        elif self.attempt % 3 == 2:
            self.append(path, content)
        raise DeathError

    def mortal_write(self, path, content):
        if not self.dies_now():
            return self.write(path, content)
        if self.attempt % 3 == 1:
            path.parent.mkdir(exist_ok=True)
            (path.parent / f".{path.name}.1.tmp").write_bytes(content[: len(content) // 2])
        elif self.attempt % 3 == 2:
            self.write(path, content)
        raise DeathError


@pytest.mark.parametrize("first", [0, 1, 2])
def test_dying_at_any_write_loses_nothing(tmp_path, monkeypatch, first):
    frames = {"frames": 160, "checkpoint_every_frames": 64, "eval_every_frames": 0, "eval_episodes": 1}
    configs = [make_config(EMPTY, "none", **frames), make_config(LAVA, "vcse", 1, **frames)]
    train(configs, tmp_path / "once")
    mortal, deaths = Mortal(monkeypatch), 0
    for life in range(1, 200):
        mortal.calls, mortal.dies_at, mortal.attempt = 0, life + deaths // 4 * 3, life + first
        try:
            train(configs, tmp_path / "again")
            break
        except DeathError:
            deaths += 1
    assert deaths >= 10
    assert_all_same(tmp_path / "again", tmp_path / "once", configs)


def test_dying_between_the_last_checkpoint_and_the_mark_evaluates_no_second_time(copy, uninterrupted):
    for config in CONFIGS[:2]:
        (copy / config.name / "DONE").unlink()
    train(CONFIGS, copy)
    assert_all_same(copy, uninterrupted)


@pytest.mark.parametrize("frame", [0, 192])
def test_a_run_that_is_ahead_goes_back_and_stays_with_the_others(copy, uninterrupted, frame):
    ahead, behind = CONFIGS[:2], CONFIGS[2]
    take_back(copy / behind.name, frame)
    for config in ahead:
        take_back(copy / config.name, 288)
        if frame == 0:  # they have just written their first
            shutil.copy(checkpoint_path(copy / config.name, 192), checkpoint_path(copy / config.name, 96))
            take_back(copy / config.name, 96)
    train(CONFIGS, copy)
    assert_all_same(copy, uninterrupted)
    assert runs_in_cohort(copy / behind.name) == {3}


def test_going_back_and_dying_at_once_does_not_leave_a_checkpoint_without_its_actions(copy, uninterrupted):
    take_back(copy / CONFIGS[2].name, 192)
    for config in CONFIGS[:2]:
        take_back(copy / config.name, 288)
    with pytest.raises(DeathError):
        train(CONFIGS, copy, progress=Interrupting(256, die))
    train(CONFIGS[:1], copy)  # alone, with nobody to go back for
    train(CONFIGS, copy)
    assert_all_same(copy, uninterrupted)


@pytest.mark.parametrize("checkpoints", [1, 2])
def test_a_new_run_does_not_take_those_ahead_back(copy, uninterrupted, checkpoints):
    shutil.rmtree(copy / CONFIGS[2].name)
    for config in CONFIGS[:2]:
        take_back(copy / config.name, 192)
        if checkpoints == 2:
            checkpoint.save(copy / config.name / "checkpoint", 96, {})
    train(CONFIGS, copy)
    assert_all_same(copy, uninterrupted)
    assert runs_in_cohort(copy / CONFIGS[2].name) == {1}


class Noting(TrainingProgress):
    def __init__(self):
        super().__init__(quiet=True)
        self.notes = []

    def note(self, text):
        self.notes.append(text)


def test_what_rows_show_to_be_wrong_is_noted_once_and_after_a_stop_no_more(tmp_path, monkeypatch):
    def few(config, rows):
        return f"{len(rows)} rows by frame {rows[-1]['frame']:.0f}" if len(rows) > 1 else ""

    entry = dataclasses.replace(agent_entry("a2c"), remark=few)
    monkeypatch.setattr("vcse.launch.cohorts.agent_entry", lambda name: entry)
    config, progress = make_config(EMPTY, row_every_frames=32), Noting()
    train([config], tmp_path, progress=progress)
    train([dataclasses.replace(config, frames=config.frames + 96)], tmp_path, progress=progress)
    assert [note for note in progress.notes if isinstance(note, Remark)] == [f"{config.name}: 2 rows by frame 64"]


def test_a_cohort_whose_curves_are_damaged_is_closed(tmp_path, monkeypatch):
    entry = dataclasses.replace(agent_entry("a2c"), remark=lambda config, rows: "")
    monkeypatch.setattr("vcse.launch.cohorts.agent_entry", lambda name: entry)
    config, closed = make_config(EMPTY, row_every_frames=32), []
    train([config], tmp_path)
    path = tmp_path / config.name / "train.csv"
    path.write_text(path.read_text().replace("\n64,", "\n64,much", 1))
    monkeypatch.setattr(A2CCohort, "close", lambda cohort: closed.append(cohort.names))
    with pytest.raises(ValueError, match=r"train\.csv is damaged: "):
        train([dataclasses.replace(config, frames=config.frames + 96)], tmp_path)
    assert closed == [[config.name]]


def poisoned(monkeypatch, name, frame):
    """Turn the parameters of a run into NaN in the update after a frame."""
    step = A2CCohort.step

    def step_and_poison(cohort):
        names = [config.name for config in cohort.configs]
        if name in names and cohort.frame == frame:
            with torch.no_grad():
                cohort.agent.parameters[names.index(name)] = math.nan
        step(cohort)

    monkeypatch.setattr(A2CCohort, "step", step_and_poison)


@pytest.mark.parametrize("frame", [32, 224])  # before the first checkpoint and after the last
def test_a_run_that_diverges_is_given_up_and_the_others_are_as_without_it(tmp_path, uninterrupted, monkeypatch, frame):
    bad = make_config(EMPTY, "se", 7)
    poisoned(monkeypatch, bad.name, frame)
    progress = Noting()
    with pytest.raises(DivergedError, match=rf"^the gradient of {bad.name} is not finite at frame \d+$") as raised:
        train([*CONFIGS, bad], tmp_path, progress=progress)
    assert list(raised.value.runs) == [bad.name]
    assert progress.notes[0].endswith(": abandoned; the 3 others continue from the last checkpoint")
    assert_all_same(tmp_path, uninterrupted)
    assert not (tmp_path / bad.name / "DONE").exists()
    with pytest.raises(DivergedError, match="is not finite"):  # and again, alone, from its last checkpoint
        train([*CONFIGS, bad], tmp_path)
    monkeypatch.undo()
    train([*CONFIGS, bad], tmp_path)
    train([bad], tmp_path / "alone")
    assert_same_run(tmp_path / bad.name, tmp_path / "alone" / bad.name)


def test_several_runs_that_diverge_are_all_told_of(tmp_path, uninterrupted, monkeypatch):
    bad = [make_config(EMPTY, "se", 7), make_config(LAVA, "se", 8)]
    for config, frame in zip(bad, (64, 128), strict=True):
        poisoned(monkeypatch, config.name, frame)
    with pytest.raises(DivergedError) as raised:
        train([*CONFIGS, *bad], tmp_path)
    assert list(raised.value.runs) == [config.name for config in bad]
    assert pickle.loads(pickle.dumps(raised.value)).runs == raised.value.runs
    assert str(pickle.loads(pickle.dumps(raised.value))) == str(raised.value)
    assert_all_same(tmp_path, uninterrupted)


def test_a_run_that_is_given_up_takes_none_back_that_is_done(tmp_path, uninterrupted, monkeypatch):
    bad = make_config(EMPTY, "se", 7)
    early, late = [bad, CONFIGS[0]], CONFIGS[1]
    with pytest.raises(StoppedError):  # two that have a checkpoint, and one that starts after them
        train(early, tmp_path, progress=Interrupting(128, lambda: os.kill(os.getpid(), signal.SIGTERM)))
    poisoned(monkeypatch, bad.name, 224)
    progress = Noting()
    with pytest.raises(DivergedError):
        train([*early, late], tmp_path, progress=progress)
    assert progress.notes[0].endswith(": abandoned; the other continues from the last checkpoint")
    assert_all_same(tmp_path, uninterrupted, [CONFIGS[0], late])
    assert runs_in_cohort(tmp_path / late.name) == {1}
    assert [row["frame"] for row in read_rows(tmp_path / late.name / "timing.csv")] == [64, 128, 192, 256, 288]


@pytest.mark.parametrize("spoil", [damage, lambda path: path.write_bytes(b""), lambda path: os.truncate(path, 5000)])
def test_a_damaged_checkpoint_is_told_and_the_one_before_gives_the_same_end(copy, uninterrupted, capsys, spoil):
    run = copy / CONFIGS[1].name
    (run / "DONE").unlink()
    spoil(checkpoint_path(run, 288))
    train(CONFIGS, copy)
    assert "frame000000000288.pt is damaged" in (told := capsys.readouterr().err)
    assert "going back to frame 192" in told
    assert_all_same(copy, uninterrupted)


def test_with_every_checkpoint_damaged_a_run_starts_over_and_says_so(copy, uninterrupted, capsys):
    run = copy / CONFIGS[1].name
    (run / "DONE").unlink()
    for frame in (192, 288):
        damage(checkpoint_path(run, frame))
    train(CONFIGS, copy)
    told = [line for line in capsys.readouterr().err.splitlines() if "damaged" in line]
    assert [line.partition("; ")[2] for line in told] == [
        "trying the one before",
        "there is none before: starting over from frame 0",
    ]
    assert_all_same(copy, uninterrupted)


@pytest.mark.parametrize("call", ["fsync", "replace"])
def test_a_full_disk_stops_the_run_with_what_to_do_and_loses_nothing(tmp_path, uninterrupted, monkeypatch, call):
    real, first = getattr(os, call), checkpoint_path(tmp_path / CONFIGS[0].name, 192)

    def fails_after_the_first_run_has_its_second_checkpoint(*arguments):
        if first.exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(*arguments)

    monkeypatch.setattr(os, call, fails_after_the_first_run_has_its_second_checkpoint)
    with pytest.raises(RuntimeError, match=r"No space left on device; stopped at frame 192: .*the same command"):
        train(CONFIGS, tmp_path)
    monkeypatch.undo()
    assert half_written(tmp_path) == []
    assert [newest_state(tmp_path / each.name).frame for each in CONFIGS] == [192, 96, 96]
    train(CONFIGS, tmp_path)
    assert_all_same(tmp_path, uninterrupted)


def test_files_that_really_cannot_grow_stop_the_run_and_lose_nothing(tmp_path, uninterrupted):
    """The 2.5 MB of state entropy's memory do not fit; the checkpoints of the others do."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, limits[1]))
    try:
        with pytest.raises(RuntimeError, match=r"se/seed2/.*frame000000000096\.pt: File too large; stopped at fra"):
            train(CONFIGS, tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert half_written(tmp_path) == []
    train(CONFIGS, tmp_path)
    assert_all_same(tmp_path, uninterrupted)
    assert runs_in_cohort(tmp_path / CONFIGS[2].name) == {3}


def test_actions_that_were_tampered_with_are_found_by_what_the_environments_show(copy):
    for config in CONFIGS:
        take_back(copy / config.name, 192)
    actions = copy / CONFIGS[1].name / "actions.bin"
    actions.write_bytes(bytes(6 for _ in actions.read_bytes()))  # "done", which does nothing
    with pytest.raises(RuntimeError, match=r"vcse/seed1: the environment, replayed, shows something else than when"):
        train(CONFIGS, copy)


def test_lost_actions_are_told(copy):
    run = copy / CONFIGS[1].name
    take_back(run, 192)
    os.truncate(run / "actions.bin", 0)
    with pytest.raises(RuntimeError, match=r"actions.bin holds 0 bytes, but the checkpoint needs 192"):
        train(CONFIGS, copy)
    (run / "actions.bin").unlink()
    with pytest.raises(
        ValueError, match=r"actions.bin is missing, without which the run cannot continue to 288 frames"
    ):
        train(CONFIGS, copy)


def test_runs_of_different_simulators_are_no_cohort(tmp_path):
    both = [make_config(LAVA, "none", method=each, backend=each, eval_episodes=0) for each in ("envpool", "minigrid")]
    train(both, tmp_path)
    assert [runs_in_cohort(tmp_path / config.name) for config in both] == [{1}, {1}]
    actions = [(tmp_path / config.name / "actions.bin").read_bytes() for config in both]
    assert actions[0] != actions[1]  # a seed gives other layouts in the one than in the other


def test_runs_of_different_batches_are_no_cohort(tmp_path):
    a2c = a2c_settings("none", environments=2)
    wide, narrow = make_config(bonus="none"), make_config(bonus="none", method="narrow", settings=a2c)
    train([wide, narrow], tmp_path)
    assert (tmp_path / wide.name / "DONE").read_text() == (tmp_path / narrow.name / "DONE").read_text() == "288\n"
    assert runs_in_cohort(tmp_path / wide.name) == runs_in_cohort(tmp_path / narrow.name) == {1}


def test_a_run_that_is_being_written_is_refused(copy):
    held = RunDirectory(copy / CONFIGS[0].name, CONFIGS[0])
    with pytest.raises(RuntimeError, match="none/seed0 is being written by another process"):
        train(CONFIGS, copy)
    held.close()


@pytest.mark.filterwarnings("ignore")  # TensorBoard's own
def test_tensorboard_gets_what_is_in_the_csv_files(tmp_path):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    config = make_config(bonus="none")
    train_runs([config], tmp_path, device="cpu", threads=1, progress=TrainingProgress(quiet=True), tensorboard=True)
    run = tmp_path / config.name
    events = EventAccumulator(str(run / "tensorboard"))
    events.Reload()
    rows = read_rows(run / "train.csv")
    written = events.Scalars("train/policy_entropy")
    assert [each.step for each in written] == [row["frame"] for row in rows]
    assert [each.value for each in written] == pytest.approx([row["policy_entropy"] for row in rows])
    assert "eval/return_mean" in events.Tags()["scalars"]
    assert "train/zero_radius_share" not in events.Tags()["scalars"]  # there is none without a bonus
