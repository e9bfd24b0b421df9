from types import SimpleNamespace

import pytest
from csv_rows import read_rows

from runs.small import half_written, make_config, newest_state
from vcse.runs import checkpoint, loop, progress
from vcse.runs.cohort import Cohort
from vcse.runs.directory import RunDirectory, done_frame
from vcse.runs.progress import Status

NEVER = 10**9


class Fake:
    """A cohort that learns nothing, and notes what is asked of it at which frame."""

    def __init__(self, directories, *, step_frames=1, frame=0, timing_every_frames=NEVER, **promises):
        self.directories = directories
        self.step_frames, self.frame, self.timing_every_frames = step_frames, frame, timing_every_frames
        self.rows_show_evaluations = promises.pop("rows_show_evaluations", False)
        self.evaluates_at_start = promises.pop("evaluates_at_start", False)
        self.asked = []  # name and frame, in order
        self.meanwhile = promises  # by name: what else is done when something is asked
        self.closed = 0

    def note(self, name):
        self.asked.append((name, self.frame))
        self.meanwhile.get(name, lambda frame: None)(self.frame)

    def frames_of(self, name):
        return [frame for asked, frame in self.asked if asked == name]

    def describe(self):
        return ""

    def begin(self):
        self.note("begin")

    def step(self):
        self.frame += self.step_frames
        self.note("step")

    def rows(self, *, is_evaluated):
        self.note("rows")
        return [
            {"frame": self.frame, "run": run, "is_evaluated": int(is_evaluated)} for run in range(len(self.directories))
        ]

    def evaluate(self):
        self.note("evaluate")
        return [{"frame": self.frame, "run": run} for run in range(len(self.directories))]

    def states(self):
        self.note("states")
        return [{"frame": self.frame, "run": run} for run in range(len(self.directories))]

    def cut(self, states):
        raise AssertionError("it is for whoever loads")

    def load(self, states):
        raise AssertionError("it is for whoever loads")

    def status(self, frames, frames_per_s):
        return Status(self.frame, frames, len(self.directories), frames_per_s, {}, {})

    def close(self):
        self.closed += 1


class LearningAlone(Fake):
    """One that, once it has had 20 frames, learns for so many steps before it acts again."""

    def __init__(self, directories, *, alone, learned_alone=0, **promises):
        super().__init__(directories, **promises)
        self.alone, self.learned_alone = alone, learned_alone

    def step(self):
        if self.frame == 20 and self.learned_alone < self.alone:
            self.learned_alone += 1
            self.note("learn")
        else:
            super().step()

    def states(self):
        return [state | {"learned_alone": self.learned_alone} for state in super().states()]


class Clock:
    """Time that only passes when it is told to, in the place of the module."""

    def __init__(self):
        self.now = 1000.0

    def monotonic(self):
        return self.now

    def time(self):
        return self.now

    def taking(self, seconds):
        def take(frame):
            self.now += seconds

        return take


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    for room in (loop, progress):
        monkeypatch.setattr(room, "time", SimpleNamespace(monotonic=clock.monotonic, time=clock.time))
    return clock


@pytest.fixture
def make(tmp_path):
    """Make cohorts, of one run if no more are asked for, with intervals of a configuration."""
    directories = {}

    def make(*, runs=1, promises=None, kind=Fake, **intervals):
        lengths = {"frames": 100, "row_every_frames": NEVER, "eval_every_frames": 0, "checkpoint_every_frames": NEVER}
        configs = [make_config(seed=seed, **{**lengths, **intervals}) for seed in range(runs)]
        mine = [directories.get(config.name) or RunDirectory(tmp_path / config.name, config) for config in configs]
        directories.update(zip((config.name for config in configs), mine, strict=True))
        return kind(mine, **(promises or {}))

    yield make
    for directory in directories.values():
        directory.close()


def train(cohort, frames, *, stop_at=NEVER, report=lambda status: None):
    return loop.train(cohort, frames, report=report, should_stop=lambda: cohort.frame >= stop_at)


def frames_in(cohort, name, run=0):
    path = cohort.directories[run].path / name
    return [row["frame"] for row in read_rows(path)] if path.exists() else []


def test_it_is_what_the_loop_takes_for_a_cohort(make):
    assert isinstance(make(), Cohort)


@pytest.mark.parametrize(
    ("step_frames", "frames", "rows", "evaluations", "checkpoints"),
    [
        (1, 60, [20, 40, 60], [25, 50, 60], [30, 60]),
        (2, 60, [20, 40, 60], [26, 50, 60], [30, 60]),  # a multiple within a step is due at its end
        (8, 60, [24, 40, 64], [32, 56, 64], [32, 64]),  # and so is the last frame
        (32, 90, [32, 64, 96], [32, 64, 96], [32, 64, 96]),
        (64, 130, [64, 128, 192], [64, 128, 192], [64, 128, 192]),  # also where a step passes several
        (1, 15, [15], [15], [15]),
    ],
)
def test_rows_evaluations_and_checkpoints_come_at_the_frames_that_the_configuration_says(
    make, step_frames, frames, rows, evaluations, checkpoints
):
    every = {"row_every_frames": 20, "eval_every_frames": 25, "checkpoint_every_frames": 30}
    cohort = make(promises={"step_frames": step_frames}, **every)
    assert train(cohort, frames) is True
    assert frames_in(cohort, "train.csv") == cohort.frames_of("rows") == rows
    assert frames_in(cohort, "eval.csv") == cohort.frames_of("evaluate") == evaluations
    assert cohort.frames_of("states") == checkpoints
    last = checkpoints[-1]
    directory = cohort.directories[0].path
    assert checkpoint.frames(directory / "checkpoint") == checkpoints[: -checkpoint.KEPT - 1 : -1]
    assert cohort.frames_of("step") == list(range(step_frames, last + 1, step_frames))
    assert done_frame(directory) == last
    assert half_written(directory) == []
    assert cohort.closed == 1


def test_without_intervals_there_is_one_of_each_at_the_end(make):
    cohort = make()
    train(cohort, 40)
    assert [asked for asked in cohort.asked if asked[0] != "step"] == [
        ("begin", 0),
        ("evaluate", 40),
        ("rows", 40),
        ("states", 40),
    ]


def test_without_episodes_nothing_is_evaluated(make):
    promises = {"evaluates_at_start": True, "rows_show_evaluations": True}
    cohort = make(eval_every_frames=10, eval_episodes=0, promises=promises)
    train(cohort, 40)
    assert cohort.frames_of("evaluate") == []
    assert not (cohort.directories[0].path / "eval.csv").exists()


@pytest.mark.parametrize(("shows", "rows"), [(False, [20, 40, 50]), (True, [20, 25, 40, 50])])
def test_where_rows_show_evaluations_there_is_one_at_every_evaluation_too(make, shows, rows):
    cohort = make(row_every_frames=20, eval_every_frames=25, promises={"rows_show_evaluations": shows})
    train(cohort, 50)
    found = read_rows(cohort.directories[0].path / "train.csv")
    assert [row["frame"] for row in found] == rows
    assert [row["frame"] for row in found if row["is_evaluated"]] == [frame for frame in rows if frame % 25 == 0]
    for frame in cohort.frames_of("evaluate"):  # which a row can only show afterwards
        if ("rows", frame) in cohort.asked:
            assert cohort.asked.index(("evaluate", frame)) < cohort.asked.index(("rows", frame))


@pytest.mark.parametrize(
    ("at_start", "every", "first"), [(True, 25, [0]), (True, 0, []), (False, 25, []), (False, 0, [])]
)
def test_policies_that_have_learned_nothing_are_evaluated_where_a_cohort_says_so(make, at_start, every, first):
    cohort = make(eval_every_frames=every, promises={"evaluates_at_start": at_start})
    train(cohort, 30)
    usual = [25, 30] if every else [30]
    assert frames_in(cohort, "eval.csv") == [*first, *usual]
    assert frames_in(cohort, "train.csv") == [*first, 30]
    rows = read_rows(cohort.directories[0].path / "train.csv")
    assert [row["is_evaluated"] for row in rows] == [1] * len(rows)
    assert cohort.asked[0] == ("begin", 0)


def test_a_cohort_that_goes_on_neither_begins_nor_is_evaluated_again(make):
    cohort = make(eval_every_frames=20, promises={"evaluates_at_start": True, "frame": 20})
    train(cohort, 30)
    assert cohort.frames_of("begin") == []
    assert frames_in(cohort, "eval.csv") == [30]


def test_a_cohort_that_is_there_already_is_saved_and_done(make):
    cohort = make(promises={"frame": 40})
    assert train(cohort, 40) is True
    assert cohort.asked == [("states", 40)]
    assert done_frame(cohort.directories[0].path) == 40
    assert cohort.closed == 1


@pytest.mark.parametrize("at", [0, 7, 20])
def test_stopping_saves_at_once_and_says_that_it_is_not_done(make, at):
    cohort = make(row_every_frames=20)
    assert train(cohort, 40, stop_at=at) is False
    assert cohort.frame == at
    assert cohort.frames_of("states") == [at]
    assert newest_state(cohort.directories[0].path).frame == at
    assert frames_in(cohort, "train.csv") == ([20] if at == 20 else [])
    assert cohort.frames_of("evaluate") == []
    assert done_frame(cohort.directories[0].path) == -1
    assert cohort.closed == 1


def test_it_is_not_stopped_once_it_is_done(make):
    cohort = make()
    assert train(cohort, 40, stop_at=40) is True
    assert done_frame(cohort.directories[0].path) == 40


def test_stopped_and_gone_on_with_rows_are_those_of_one_go(make):
    every = {"row_every_frames": 20, "eval_every_frames": 25, "checkpoint_every_frames": 30}
    asked = []
    for stop_at in (13, 50, NEVER):
        frame = asked[-1][1] if asked else 0
        cohort = make(promises={"frame": frame, "step_frames": 2}, **every)
        assert train(cohort, 100, stop_at=stop_at) == (stop_at == NEVER)
        asked += [each for each in cohort.asked if each != ("states", stop_at + stop_at % 2)]
    whole = make(promises={"step_frames": 2}, **every)
    train(whole, 100)
    assert asked == whole.asked


def test_rows_evaluations_and_checkpoints_come_once_at_a_frame_at_which_several_steps_learn_alone(make):
    every = {"row_every_frames": 10, "eval_every_frames": 20, "checkpoint_every_frames": 20}
    promises = {"alone": 7, "timing_every_frames": 5, "step_frames": 5, "rows_show_evaluations": True}
    cohort = make(kind=LearningAlone, promises=promises, **every)
    assert train(cohort, 40) is True
    assert cohort.frames_of("learn") == [20] * 7
    assert cohort.frames_of("step") == [5, 10, 15, 20, 25, 30, 35, 40]
    assert cohort.frames_of("rows") == frames_in(cohort, "train.csv") == [10, 20, 30, 40]
    assert cohort.frames_of("evaluate") == frames_in(cohort, "eval.csv") == [20, 40]
    assert frames_in(cohort, "timing.csv") == [5, 10, 15, 20, 25, 30, 35, 40]
    assert cohort.frames_of("states") == [20, 40]
    # All of it comes when the frame is reached, and not when the learning is over.
    assert cohort.asked.index(("learn", 20)) == cohort.asked.index(("states", 20)) + 1


@pytest.mark.parametrize("learned", [0, 1, 6, 7])
def test_stopped_while_it_learns_alone_a_cohort_is_saved_and_goes_on_from_there(make, learned):
    every = {"row_every_frames": 10, "eval_every_frames": 20, "checkpoint_every_frames": 20}
    cohort = make(kind=LearningAlone, promises={"alone": 7}, **every)
    stops = {"should_stop": lambda: cohort.frame == 20 and cohort.learned_alone == learned}
    assert loop.train(cohort, 40, report=lambda status: None, **stops) is False
    saved = newest_state(cohort.directories[0].path)
    assert (saved.frame, saved.state) == (20, {"frame": 20, "run": 0, "learned_alone": learned})
    assert cohort.frames_of("states") == [20, 20]  # as is due there, and because it is stopped
    assert cohort.closed == 1

    again = make(kind=LearningAlone, promises={"alone": 7, "frame": 20, "learned_alone": learned}, **every)
    assert train(again, 40) is True
    assert again.asked[: 8 - learned] == [("learn", 20)] * (7 - learned) + [("step", 21)]
    assert frames_in(again, "train.csv") == [10, 20, 30, 40]
    assert frames_in(again, "eval.csv") == [20, 40]
    assert done_frame(again.directories[0].path) == 40


def test_steps_that_learn_alone_are_reported_and_saved_as_time_passes(make, clock):
    cohort = make(kind=LearningAlone, promises={"alone": 7, "learn": clock.taking(250)})  # and 600 is the most
    heard = []
    train(cohort, 30, report=heard.append)
    assert [status.frame for status in heard] == [20] * 7 + [30]
    assert cohort.frames_of("states") == [20, 20, 30]
    asked = [name for name, frame in cohort.asked if frame == 20 and name != "step"]
    assert asked == ["learn"] * 3 + ["states"] + ["learn"] * 3 + ["states", "learn"]


def test_where_steps_are_slow_what_is_unsaved_for_too_long_is_saved(make, clock):
    cohort = make(promises={"step": clock.taking(250)})  # and 600 is the most
    train(cohort, 10)
    assert cohort.frames_of("states") == [3, 6, 9, 10]


def test_at_the_end_it_is_saved_once_however_long_that_was_not_done(make, clock):
    cohort = make(checkpoint_every_frames=4, promises={"step": clock.taking(10_000)})
    train(cohort, 4)
    assert cohort.frames_of("states") == [1, 2, 3, 4]


def test_the_time_without_a_checkpoint_is_counted_from_the_last_one(make, clock):
    cohort = make(checkpoint_every_frames=5, promises={"step": clock.taking(250)})
    train(cohort, 12)
    assert cohort.frames_of("states") == [3, 5, 8, 10, 12]


def test_the_time_of_an_evaluation_is_time_without_a_checkpoint(make, clock):
    cohort = make(eval_every_frames=4, promises={"evaluate": clock.taking(601)})
    train(cohort, 10)
    assert cohort.frames_of("states") == [4, 8, 10]


def test_a_first_evaluation_is_neither_pace_nor_time_without_a_checkpoint(make, clock):
    promises = {"evaluates_at_start": True, "evaluate": clock.taking(1000), "step": clock.taking(0.5)}
    cohort = make(eval_every_frames=NEVER, promises={**promises, "timing_every_frames": 2})
    heard = []
    train(cohort, 4, report=heard.append)
    assert cohort.frames_of("states") == [4]
    assert {row["frames_per_s"] for row in read_rows(cohort.directories[0].path / "timing.csv")} == {2}
    assert heard[-1].frames_per_s == 2


def test_timing_has_the_pace_of_each_run_since_its_last_row_without_evaluations(make, clock):
    def step(frame):
        clock.now += 1 if frame <= 20 else 4

    promises = {"step": step, "evaluate": clock.taking(100), "step_frames": 2, "timing_every_frames": 10}
    cohort = make(runs=3, eval_every_frames=20, promises=promises)
    train(cohort, 36)
    for directory in cohort.directories:
        rows = read_rows(directory.path / "timing.csv")
        assert [row["frame"] for row in rows] == [10, 20, 30, 36]
        assert [row["frames_per_s"] for row in rows] == [2, 2, 0.5, 0.5]
        assert [row["unix_time"] for row in rows] == [1005, 1110, 1130, 1242]
        assert {row["runs"] for row in rows} == {3}


def test_what_is_reported_is_the_pace_of_all_runs_at_every_row_and_else_every_second(make, clock):
    promises = {"step": clock.taking(0.3), "step_frames": 3}
    cohort = make(runs=2, row_every_frames=30, promises=promises)
    heard = []
    train(cohort, 36, report=heard.append)
    assert [status.frame for status in heard] == [12, 24, 30, 36]
    assert [status.frames_per_s for status in heard] == pytest.approx([20] * 4)
    assert {(status.frames, status.runs) for status in heard} == {(36, 2)}


def test_every_run_has_rows_evaluations_and_checkpoints_of_its_own(make):
    cohort = make(runs=3, row_every_frames=20, eval_every_frames=20)
    train(cohort, 40)
    for run, directory in enumerate(cohort.directories):
        for name in ("train.csv", "eval.csv"):
            assert [(row["frame"], row["run"]) for row in read_rows(directory.path / name)] == [(20, run), (40, run)]
        assert newest_state(directory.path).state == {"frame": 40, "run": run}
        assert done_frame(directory.path) == 40


def test_saving_writes_a_checkpoint_of_every_run(make):
    cohort = make(runs=2, promises={"frame": 24})
    loop.save(cohort)
    for run, directory in enumerate(cohort.directories):
        found = newest_state(directory.path)
        assert (found.frame, found.state) == (24, {"frame": 24, "run": run})
        assert done_frame(directory.path) == -1
    assert cohort.closed == 0


@pytest.mark.parametrize("name", ["begin", "step", "evaluate", "rows", "states"])
def test_whatever_fails_simulators_are_ended_and_nothing_more_is_saved(make, name):
    def fail(frame):
        if frame in (0, 20):
            raise RuntimeError(f"no luck at {frame}")

    cohort = make(row_every_frames=20, eval_every_frames=20, checkpoint_every_frames=10, promises={name: fail})
    with pytest.raises(RuntimeError, match="no luck at 0" if name == "begin" else "no luck at 20"):
        train(cohort, 40)
    assert cohort.closed == 1
    directory = cohort.directories[0].path
    assert checkpoint.frames(directory / "checkpoint") == ([] if name == "begin" else [10])
    assert done_frame(directory) == -1
    assert frames_in(cohort, "train.csv") == ([20] if name == "states" else [])
    assert frames_in(cohort, "eval.csv") == ([20] if name in ("rows", "states") else [])
