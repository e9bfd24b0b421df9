import dataclasses
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import jaxtyping
import pytest
from runs.small import assert_same_run, newest_frame, wait_for

import vcse
from vcse.cli import main
from vcse.runs import resources
from vcse.runs.directory import run_directories
from vcse.studies.catalog import CATALOG
from vcse.studies.study import Claim

SMALL = ["--seeds", "2", "--frames", "2000", "--bonuses", "vcse-k3", "vcse-k5"]


@pytest.fixture
def _without_type_checks():
    """The processes have none either, and are compared."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture
def _two_cores_and_room(monkeypatch):
    """A dry run says what this machine would do, which is not always the same one."""
    monkeypatch.setattr("vcse.cli.study.cores", lambda: 2)
    monkeypatch.setattr("vcse.cli.dry_run.cores", lambda: 2)
    monkeypatch.setattr(resources, "free_bytes", lambda device: 10**12)
    monkeypatch.setattr(resources, "free_on_disk", lambda directory: 10**12)


def test_list_names_every_study(capsys):
    assert main(["study", "list"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in CATALOG)
    assert main(["study", "list", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert sorted(row["study"] for row in rows) == sorted(CATALOG)
    figures = {row["study"]: row["figure"] for row in rows}
    assert (figures["minigrid"], figures["minigrid-values"], figures["minigrid-value"]) == ("2", "7a", None)
    assert [row["figure"] is None for row in rows] == [False] * 15 + [True] * 9
    (mwm,) = (row for row in rows if row["study"] == "metaworld-mwm")
    assert (mwm["agent"], mwm["runs"], mwm["frames"]) == ("mwm", 192, 96_000_000)


def test_show_has_runs_budget_and_claims(capsys):
    assert main(["study", "show", "minigrid"]) == 0
    shown = capsys.readouterr().out
    assert "288 runs, 237,600,000 frames" in shown
    assert "\n3 claims, 1 more where both of its methods were run\n" in shown
    assert "minigrid/LavaGapS7" in shown
    assert "judged by vcse > se on minigrid/LavaGapS7, frame 100,000" in shown
    assert "judged by vcse > se-matched, the area under the curve, where both were run" in shown


@pytest.mark.parametrize(
    ("claim", "told"),
    [
        (Claim("", "a", "b", paired=True), "judged by a > b, the area under the curve, paired by seed"),
        (Claim("", "a", "b", within=0.0), "judged by a as b, the area under the curve"),
        (Claim("", "a", "b", within=0.02, at_frame=9000), "judged by a as b within 0.02, frame 9,000"),
    ],
)
def test_show_says_how_a_claim_is_judged(capsys, monkeypatch, claim, told):
    monkeypatch.setitem(CATALOG, "minigrid-k", dataclasses.replace(CATALOG["minigrid-k"], claims=(claim,)))
    assert main(["study", "show", "minigrid-k"]) == 0
    assert f"    {told}\n" in capsys.readouterr().out


def test_a_wrong_option_names_the_help_of_its_own_verb(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["study", "run", "minigrid", "--batch-size", "16"])
    assert exit_.value.code == 2
    assert "vcse study run --help" in " ".join(capsys.readouterr().err.replace("│", " ").split())


def dry_run(out, study, *options):
    return main(["study", "run", study, *options, "--out", str(out), "--dry-run", "--device", "cpu"])


@pytest.mark.usefixtures("_two_cores_and_room")
def test_a_dry_run_says_how_much_and_does_nothing(tmp_path, capsys, monkeypatch):
    out = tmp_path / "runs"
    monkeypatch.setattr(resources, "free_on_disk", lambda directory: 5 * 10**9)
    assert dry_run(out, "minigrid-k", *SMALL) == 0
    shown = capsys.readouterr().out
    assert "4 of 4 runs to train, 8,000 frames" in shown
    assert "\n  memory: about 1.0 GB at once\n  files: 2.0 MB more on disk at the end, where 5.0 GB are free\n" in shown
    assert not out.exists()


@pytest.mark.usefixtures("_two_cores_and_room")
def test_a_dry_run_counts_one_as_one_and_no_more_cores_than_there_are(tmp_path, capsys):
    small = ["--tasks", "hopper_stand", "--bonuses", "none"]
    times = []
    for jobs in (1, 2, 8):
        assert dry_run(tmp_path, "dmc-pixels", *small, "--seeds", "8", "--jobs", str(jobs)) == 0
        times.append(capsys.readouterr().out.splitlines()[1])
    assert times[0].startswith("  8 cohorts on 1 core, about ")
    assert times[1] == times[2]
    assert times[1].startswith("  8 cohorts on 2 cores, about ")
    assert dry_run(tmp_path, "dmc-pixels", *small, "--seeds", "1", "--jobs", "2", "--frames", "10k") == 0
    first, second, third, _, replay, _ = capsys.readouterr().out.splitlines()
    assert first == "dmc-pixels: 1 of 1 run to train, 10,000 frames"
    assert second.startswith("  1 cohort on 1 core, about ")
    assert third == "  dmc-pixels/hopper_stand: 1 run of 10,000 frames, none"
    assert replay == "  replay: 106 MB in the memory of the host"


@pytest.mark.usefixtures("_two_cores_and_room")
def test_a_dry_run_says_how_much_less_is_left_of_replays_that_are_not_kept(tmp_path, capsys):
    said = []
    for option in ("--keep-replay", "--no-keep-replay"):
        assert dry_run(tmp_path, "dmc-pixels", "--tasks", "hopper_stand", "--seeds", "8", option) == 0
        said.append(capsys.readouterr().out.splitlines()[-1])
    assert re.match(r"  files: 13\d GB more on disk at the end, where ", said[0])
    assert re.match(
        r"  files: 1\d\.\d GB more on disk at most, where ", said[1]
    )  # 24 times two checkpoints, and 2 replays
    assert main(["study", "run", "minigrid", "--no-keep-replay", "--out", str(tmp_path / "out"), "--dry-run"]) == 1
    assert "--no-keep-replay is for agents that have one, but minigrid is for a2c" in capsys.readouterr().err


@pytest.mark.usefixtures("_without_type_checks", "_two_cores_and_room")
def test_a_dry_run_tells_the_frames_and_the_methods_that_are_left(tmp_path, capsys):
    runs = ["minigrid-k", "--seeds", "1"]
    trained = ["--bonuses", "vcse-k3", "--frames", "256", "--device", "cpu", "--out", str(tmp_path), "--quiet"]
    assert main(["study", "run", *runs, *trained]) == 0
    capsys.readouterr()
    both = [*runs, "--bonuses", "vcse-k3", "vcse-k5", "--frames"]
    assert dry_run(tmp_path, *both, "384") == 0
    first, _, third, *_ = capsys.readouterr().out.splitlines()
    assert first == "minigrid-k: 2 of 2 runs to train, 512 frames after the 256 that are saved"
    assert third == "  minigrid/SimpleCrossingS9N1: 2 runs of 384 frames, vcse-k3, vcse-k5"
    assert dry_run(tmp_path, *both, "256") == 0
    first, _, third, *_ = capsys.readouterr().out.splitlines()
    assert first == "minigrid-k: 1 of 2 runs to train, 256 frames"
    assert third == "  minigrid/SimpleCrossingS9N1: 1 run of 256 frames, vcse-k5"


def test_a_dry_run_ends_with_a_refusal_where_there_is_no_room(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(resources, "free_bytes", lambda device: 10**11)
    monkeypatch.setattr(resources, "free_on_disk", lambda directory: 10**10)
    assert dry_run(tmp_path, "dmc-pixels", "--tasks", "hopper_stand", "--jobs", "2") == 1
    shown = capsys.readouterr()
    assert "runs to train" in shown.out
    assert "the files of 2 runs will need " in shown.err


@pytest.mark.usefixtures("_two_cores_and_room")
@pytest.mark.parametrize(("study", "seed_frames"), [("dmc-states", "5,000"), ("dmc-pixels", "4,000")])
def test_runs_that_are_too_short_to_learn_are_warned_of_once(tmp_path, capsys, study, seed_frames):
    assert dry_run(tmp_path, study, "--tasks", "hopper_stand", "--seeds", "2", "--frames", "300") == 0
    [warning] = capsys.readouterr().err.splitlines()
    assert "seed0 and 5 others: nothing is learned in 300 frames: " in warning
    assert f"after seed_frames {seed_frames} of random actions" in warning
    assert dry_run(tmp_path, study, "--tasks", "hopper_stand", "--seeds", "2", "--frames", "20k") == 0
    assert capsys.readouterr().err == ""


@pytest.mark.usefixtures("_two_cores_and_room")
def test_a_study_of_images_takes_a_quality_of_them(tmp_path, capsys):
    small = ["--tasks", "hopper_stand", "--seeds", "1", "--frames", "20k"]
    assert dry_run(tmp_path, "dmc-pixels", *small, "--rendering", "light") == 0
    assert "3 of 3 runs to train" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["show", "atari"], "study 'atari' does not exist; nearest are "),
        (["run", "minigrid", "--tasks", "Lava"], "study minigrid has no task 'Lava'; nearest are "),
        (["run", "minigrid", "--jobs", "0"], "--jobs must be at least 1, got 0"),
        (["run", "minigrid", "--first-seed", "-1"], "--first-seed must be at least 0, got -1"),
        (
            ["run", "minigrid-k", "--rendering", "light"],
            "--rendering is for agents that see images, but minigrid-k is ",
        ),
        (["run", "minigrid-k", "--eval-every-frames", "-5"], "--eval-every-frames must be at least 0, got -5"),
        (["run", "dmc-states", "--rendering", "faithful"], "dmc-states is for sac, which sees none"),
        (["status", "nowhere"], "nowhere holds no study"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(arguments, message, capsys):
    assert main(["study", *arguments]) == 1
    error = capsys.readouterr().err
    assert message in error
    assert len(error.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "what"), [(["run", "minigrid-k", "--dry-run"], "the runs"), (["pack", "nowhere"], "the archive")]
)
def test_a_file_where_a_directory_is_to_be_written_is_told(tmp_path, capsys, arguments, what):
    (tmp_path / "out").write_text("precious")
    assert main(["study", *arguments, "--out", str(tmp_path / "out")]) == 1
    assert f"{what} cannot be written to {tmp_path / 'out'}: it is a file" in capsys.readouterr().err


def test_help_is_there_without_a_verb(capsys):
    with pytest.raises(SystemExit) as stopped:
        main(["study"])
    assert stopped.value.code == 0
    shown = capsys.readouterr().out
    assert all(verb in shown for verb in ("list", "show", "run", "status"))


@pytest.mark.usefixtures("_without_type_checks")
def test_a_study_may_be_evaluated_at_other_frames_and_says_so(tmp_path):
    small = ["--tasks", "LavaGapS7", "--seeds", "1", "--bonuses", "none", "--frames", "256", "--out", str(tmp_path)]
    rare = [*small, "--eval-every-frames", "128", "--device", "cpu", "--quiet"]
    assert main(["study", "run", "minigrid", *rare]) == 0
    [evaluations] = tmp_path.rglob("eval.csv")
    assert [row.partition(",")[0] for row in evaluations.read_text().splitlines()[1:]] == ["128", "256"]
    assert json.loads((tmp_path / "study.json").read_text())["command"].endswith(" --eval-every-frames 128")


@pytest.mark.parametrize(("study", "drawn"), [("dmc-pixels", True), ("dmc-states", False)])
def test_what_draws_is_part_of_the_command_where_it_was_said(tmp_path, monkeypatch, study, drawn):
    monkeypatch.setenv("MUJOCO_GL", "EGL")
    monkeypatch.setattr("vcse.envs.mujoco.rendering._loads", lambda _library: True)
    monkeypatch.setattr("vcse.cli.study.check_rendering", lambda *_: None)
    monkeypatch.setattr("vcse.cli.study.run_locally", lambda *_, **_settings: {})
    small = ["--tasks", "hopper_stand", "--seeds", "1", "--bonuses", "none", "--frames", "10", "--out", str(tmp_path)]
    assert main(["study", "run", study, *small, "--device", "cpu", "--quiet"]) == 0
    command = json.loads((tmp_path / "study.json").read_text())["command"]
    assert command.startswith(f"MUJOCO_GL=egl vcse study run {study} " if drawn else f"vcse study run {study} ")


@pytest.mark.usefixtures("_without_type_checks")
def test_a_second_command_adds_the_runs_that_it_names_and_no_others(tmp_path, capsys):
    short = ["--frames", "128", "--device", "cpu", "--out", str(tmp_path), "--quiet"]
    assert main(["study", "run", "minigrid-k", "--seeds", "1", "--bonuses", "vcse-k3", *short]) == 0
    second = ["--seeds", "1", "--first-seed", "4", "--bonuses", "vcse-k5", *short]
    assert main(["study", "run", "minigrid-k", *second]) == 0
    capsys.readouterr()
    assert main(["study", "status", str(tmp_path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split()[1:5] == ["2", "0", "0", "0"]


@pytest.mark.usefixtures("_without_type_checks")
def test_a_study_that_is_there_is_not_enlarged_without_saying_so(tmp_path, capsys):
    command = ["study", "run", "minigrid-k", "--out", str(tmp_path), "--device", "cpu", "--quiet"]
    small = ["--seeds", "1", "--frames", "128", "--bonuses", "vcse-k3"]
    assert main([*command, *small]) == 0
    assert main(command) == 1
    told = capsys.readouterr().err
    assert "holds 1 run of 128 frames; this command would add 23 runs of 500,000 frames and extend 1 run to" in told
    assert f"vcse study run minigrid-k --seeds 1 --frames 128 --bonuses vcse-k3 --out {tmp_path};" in told
    assert len(run_directories(tmp_path)) == 1
    assert main([*command, *small]) == 0
    assert main([*command, "--seeds", "1", "--frames", "128"]) == 1
    assert main([*command, "--seeds", "1", "--frames", "128", "--enlarge"]) == 0
    assert len(run_directories(tmp_path)) == 3
    assert main([*command, "--seeds", "1", "--frames", "128"]) == 0  # which is what was asked for last


# A run of so few frames would be saved at its end alone. What is not in the guard happens in every process.
SAVES_OFTEN = """
import sys
from vcse.cli import main
from vcse.runs import loop

loop.MOST_SECONDS_UNSAVED = 0.0
if __name__ == "__main__":
    sys.exit(main())
"""


@pytest.mark.usefixtures("_without_type_checks")
def test_killed_and_started_again_with_other_jobs_it_ends_with_the_same_files(tmp_path, capsys):
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    command = ["study", "run", "minigrid-k", *SMALL, "--device", "cpu"]
    assert main([*command, "--out", str(whole), "--quiet"]) == 0
    script = tmp_path / "saves_often.py"
    script.write_text(SAVES_OFTEN)
    process = subprocess.Popen(
        [sys.executable, str(script), *command, "--out", str(killed), "--jobs", "2"],
        env=os.environ | {"PYTHONPATH": str(Path(vcse.__file__).parents[1])},
        stderr=subprocess.DEVNULL,
    )
    wait_for(lambda: newest_frame(killed) > 200, lambda: process.poll() is None)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not list(killed.rglob("DONE"))
    capsys.readouterr()
    assert main(["study", "status", str(killed)]) == 0
    assert "vcse" not in capsys.readouterr().err
    assert main([*command, "--out", str(killed), "--jobs", "3", "--quiet"]) == 0
    runs = run_directories(whole)
    assert len(runs) == 4
    for run in runs:
        assert_same_run(killed / run.relative_to(whole), run)
    assert main(["study", "pack", str(killed), "--out", str(tmp_path / "packed"), "--columns", "nosuch"]) == 1
    assert not (tmp_path / "packed").exists()
    assert main(["study", "pack", str(killed), "--out", str(tmp_path / "packed")]) == 0
    assert sorted(each.name for each in (tmp_path / "packed").iterdir()) == ["runs.csv.xz", "runs.json", "study.json"]
    capsys.readouterr()
    assert main([*command, "--out", str(killed)]) == 0
    assert f"all 4 runs in {killed} are done: nothing to do" in capsys.readouterr().err
