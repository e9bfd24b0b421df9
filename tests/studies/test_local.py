import json
import os
import signal
import struct
import threading
from dataclasses import replace
from functools import partial
from multiprocessing import Pipe
from types import SimpleNamespace

import jaxtyping
import pytest
from rich.console import Console
from runs import small_pixels
from runs.small import LAVA, assert_same_run, make_config, train

from vcse.agents.a2c.settings import a2c_settings
from vcse.launch.cohorts import StoppedError
from vcse.launch.processes import Job
from vcse.runs import progress as progress_of_training
from vcse.runs.directory import RunDirectory, done_frame
from vcse.runs.progress import Status
from vcse.runs.remarks import Remark
from vcse.studies import local
from vcse.studies.local import CohortJob, StudyProgress, check_out, form_cohorts, run_locally, take_out
from vcse.studies.manifest import StudyFile, read_study_file
from vcse.studies.status import locked, read_failures, study_status

FILE = StudyFile("minigrid-k", 2, 0, None, ["minigrid/Empty-5x5"], ["vcse"], "vcse study run minigrid-k")


@pytest.fixture(autouse=True)
def _without_type_checks():
    """The processes have none either, and are compared."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def configs():
    return [make_config(task, seed=seed) for task in ("minigrid/Empty-5x5", LAVA) for seed in (0, 1)]


def run(configs, out, *, jobs=2, watch=lambda training: None):
    cohorts = form_cohorts(configs, jobs=jobs, device="cpu")
    return run_locally(cohorts, out, device="cpu", threads=2, jobs=jobs, replay_place="cpu", watch=watch)


class TestCohorts:
    def test_every_run_is_in_one_cohort_and_every_job_has_one(self, configs):
        many = [make_config(seed=seed) for seed in range(50)]
        cohorts = form_cohorts(many, jobs=2, device="cpu")
        assert sorted(map(len, cohorts)) == [12, 12, 13, 13]
        assert sorted(config.seed for cohort in cohorts for config in cohort) == list(range(50))
        assert [len(cohort) for cohort in form_cohorts(many, jobs=1, device="cuda")] == [50]

    def test_runs_of_other_lengths_and_shapes_are_apart_and_the_longest_come_first(self):
        mixed = [make_config(seed=0), make_config(seed=1, frames=2880), make_config(seed=2, eval_episodes=0)]
        cohorts = form_cohorts(mixed, jobs=1, device="cpu")
        assert [[config.seed for config in cohort] for cohort in cohorts] == [[1], [0], [2]]


def test_a_study_has_the_files_of_runs_trained_alone(tmp_path, configs):
    assert run(configs, tmp_path / "study") == {}
    train(configs, tmp_path / "alone")
    for config in configs:
        assert_same_run(tmp_path / "study" / config.name, tmp_path / "alone" / config.name)


def test_stopped_it_goes_on_with_other_jobs_to_the_same_files(tmp_path, configs):
    def stop(training):
        if any(run.frame for run in study_status(tmp_path / "study", configs).runs):
            os.kill(os.getpid(), signal.SIGTERM)

    longer = [make_config(config.task, seed=config.seed, frames=2880) for config in configs]
    with pytest.raises(StoppedError):
        run(longer, tmp_path / "study", watch=stop)
    assert all(done_frame(tmp_path / "study" / config.name) < 2880 for config in longer)
    assert run(longer, tmp_path / "study", jobs=3) == {}
    train(longer, tmp_path / "alone")
    for config in longer:
        assert_same_run(tmp_path / "study" / config.name, tmp_path / "alone" / config.name)


def test_a_cohort_that_fails_twice_is_named_and_the_others_go_on(tmp_path, configs, capsys):
    bad, good = configs[0], configs[2:]
    blocked = tmp_path / bad.name
    blocked.mkdir(parents=True)
    (blocked / "train.csv").mkdir()  # where its rows should go
    settings = {"device": "cpu", "threads": 1, "jobs": 1, "replay_place": "cpu"}
    failures = run_locally([[bad], good], tmp_path, **settings, watch=lambda training: None)
    assert list(failures) == [bad.name]
    assert "train.csv" in failures[bad.name]
    assert read_failures(tmp_path) == failures
    assert "trying once more" in capsys.readouterr().err
    assert [run.state for run in study_status(tmp_path, [bad, *good]).runs] == ["failed", "done", "done"]


def test_a_run_that_diverges_is_tried_once_and_the_others_of_its_cohort_are_done(tmp_path, configs, capsys):
    lost = make_config(seed=7, settings=a2c_settings("vcse", beta=1e30, environments=4))
    failures = run([*configs, lost], tmp_path, jobs=1)
    assert list(failures) == [lost.name] == list(read_failures(tmp_path))
    assert failures[lost.name].startswith(f"the gradient of {lost.name} is not finite at frame ")
    assert "trying once more" not in capsys.readouterr().err
    train(configs, tmp_path / "alone")
    for config in configs:
        assert_same_run(tmp_path / config.name, tmp_path / "alone" / config.name)


def test_a_process_that_is_killed_is_started_again(tmp_path, configs, monkeypatch, capsys):
    started = []
    start = local.start_job

    def start_and_kill(*arguments):
        job = start(*arguments)
        started.append(job)
        if len(started) == 1:
            threading.Timer(0.5, job.process.kill).start()
        return job

    monkeypatch.setattr(local, "start_job", start_and_kill)
    longer = [make_config(seed=0, frames=2880)]
    assert run(longer, tmp_path / "study", jobs=1) == {}
    assert len(started) == 2
    assert "was killed by signal 9; trying once more" in capsys.readouterr().err
    train(longer, tmp_path / "alone")
    assert_same_run(tmp_path / "study" / longer[0].name, tmp_path / "alone" / longer[0].name)


def test_of_what_processes_say_remarks_on_a_run_are_passed_on(configs, capsys):
    mine, theirs = Pipe()
    job = Job(None, mine)
    for message in ("drawn by egl", Remark("Empty-5x5/vcse/seed0: it is stuck"), None):
        theirs.send(message)
    local._listen(CohortJob(configs), job)
    assert job.is_over
    assert capsys.readouterr().err == "vcse: Empty-5x5/vcse/seed0: it is stuck\n"


def test_a_process_that_dies_in_the_middle_of_a_message_is_a_problem_of_its_cohort(configs):
    mine, theirs = Pipe()
    os.write(theirs.fileno(), struct.pack("!i", 100) + b"only a part")
    theirs.close()
    cohort, job = CohortJob(configs), Job(SimpleNamespace(exitcode=-signal.SIGKILL, join=lambda: None), mine)
    local._listen(cohort, job)
    assert job.is_over
    assert cohort.problem.endswith("was killed by signal 9")
    mine.close()


class TestOut:
    def test_gives_what_is_left_and_writes_nothing(self, tmp_path, configs):
        train(configs[:1], tmp_path)
        assert check_out(FILE, configs, tmp_path) == configs[1:]
        assert not (tmp_path / "study.json").exists()

    def test_a_later_command_hides_nothing_of_an_earlier_one_and_asks_for_no_more_than_it_says(self, tmp_path, configs):
        take_out(FILE, configs, tmp_path)
        later = replace(FILE, first_seed=5, seeds=1, methods=["se"], command="vcse more")
        for _ in range(2):  # the same command again asks for nothing new
            take_out(later, configs, tmp_path)
            written = read_study_file(tmp_path)
            assert written.requests == [FILE, later]
            assert written.wanted == [("minigrid/Empty-5x5", *run) for run in (("vcse", 0), ("vcse", 1), ("se", 5))]
            assert written.commands == ["vcse study run minigrid-k", "vcse more"]

    def test_two_commands_that_begin_at_once_lose_neither(self, tmp_path, configs):
        later = replace(FILE, first_seed=5, command="vcse more")
        other = threading.Thread(target=take_out, args=(later, configs, tmp_path))
        with locked(tmp_path):  # one of them is just writing
            other.start()
            other.join(0.3)
            assert other.is_alive()
            (tmp_path / "study.json").write_text(json.dumps(FILE.to_json()))
        other.join()
        assert read_study_file(tmp_path).requests == [FILE, later]

    def test_refuses_the_directory_of_another_study(self, tmp_path, configs):
        take_out(FILE, configs, tmp_path)
        with pytest.raises(ValueError, match="holds the study minigrid-k, not minigrid: choose another --out"):
            check_out(replace(FILE, study="minigrid"), configs, tmp_path)

    def test_refuses_an_archive(self, tmp_path, configs):
        (tmp_path / "runs.csv.xz").touch()
        with pytest.raises(ValueError, match="is an archive of a study: vcse report reads it"):
            check_out(FILE, configs, tmp_path)

    def test_refuses_runs_of_another_configuration(self, tmp_path, configs):
        train(configs[:1], tmp_path)
        with pytest.raises(ValueError, match="holds another run"):
            check_out(FILE, [make_config(seed=0, eval_episodes=5)], tmp_path)

    def test_refuses_images_of_another_quality_than_the_study_has(self, tmp_path):
        config = small_pixels.make_config(seed=0)
        assert check_out(FILE, [config], tmp_path) == [config]  # a directory that is there and empty
        directory = RunDirectory(tmp_path / config.name, config)
        other = replace(small_pixels.make_config(seed=1), rendering="light")
        assert check_out(FILE, [other], tmp_path)  # its start failed: it has seen nothing
        directory.save_checkpoint(0, {})
        directory.close()
        assert config.rendering == "fast"
        assert check_out(FILE, [small_pixels.make_config(seed=1)], tmp_path)
        with pytest.raises(ValueError, match="has rendering fast, not light, and a study has one"):
            check_out(FILE, [other], tmp_path)

    def test_a_run_that_cannot_be_read_does_not_stop_others_that_see_images(self, tmp_path, capsys):
        first, second = (small_pixels.make_config(seed=seed) for seed in (0, 1))
        RunDirectory(tmp_path / first.name, first).close()
        (tmp_path / "damaged").mkdir()
        (tmp_path / "damaged" / "config.json").write_text("{")
        assert check_out(FILE, [second], tmp_path) == [second]
        assert "damaged" in capsys.readouterr().err


def test_progress_in_a_pipe_is_a_line_as_in_train_and_not_the_same_twice(tmp_path, configs, capsys):
    with StudyProgress("title", tmp_path, configs) as progress:
        progress.show()
        train(configs[:1], tmp_path)
        progress.show()
        progress.show()
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "title: 4 runs, 4 waiting: 0 of 1,152 frames",
        "title: 4 runs, 1 done, 3 waiting: 288 of 1,152 frames, 0.0 frames/s, unknown time left",
    ]


def test_progress_knows_more_of_what_is_being_trained_than_its_files(tmp_path, configs, capsys):
    with StudyProgress("title", tmp_path, configs) as progress:
        status = Status(100, 288, 2, 600.0, {"vcse": 0.25}, {"vcse": -5.83})
        progress.show([(configs[:2], status), (configs[2:3], status._replace(runs=1))])
    assert capsys.readouterr().err.splitlines()[1] == (
        "title: 4 runs, 4 waiting: 300 of 1,152 frames, 1,200 frames/s, success vcse 25%, bonus vcse -5.83, "
        "unknown time left"
    )


def test_progress_on_a_terminal_is_the_bar_of_train(tmp_path, configs, monkeypatch, capsys):
    monkeypatch.setattr(progress_of_training, "Console", partial(Console, force_terminal=True, width=100))
    with StudyProgress("title", tmp_path, configs):
        pass
    shown = capsys.readouterr().err
    assert "title: 4 runs, 4 waiting" in shown
    assert "0 of 1,152 frames" in shown


def test_a_quiet_study_shows_no_progress(tmp_path, configs, capsys):
    with StudyProgress("title", tmp_path, configs, quiet=True) as progress:
        progress.show()
    assert capsys.readouterr().err == ""


def test_who_stops_a_study_is_told_at_once(tmp_path):
    said = []
    longer = [make_config(frames=28_800, eval_episodes=0)]
    cohorts = form_cohorts(longer, jobs=1, device="cpu")
    settings = {"device": "cpu", "threads": 1, "jobs": 1, "replay_place": "cpu"}
    with pytest.raises(StoppedError):
        run_locally(
            cohorts,
            tmp_path,
            **settings,
            watch=lambda training: os.kill(os.getpid(), signal.SIGTERM) if training else None,
            say_stopping=lambda: said.append("stopping"),
        )
    assert said == ["stopping"]
