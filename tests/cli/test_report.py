import csv
import json

import numpy as np
import pytest

from vcse.agents.a2c.settings import a2c_settings
from vcse.cli import main
from vcse.runs.config import RunConfig


def make_runs(out, task="minigrid/Unlock", metric="success_rate"):
    for seed in range(2):
        path = out / "runs" / f"seed{seed}"
        path.mkdir(parents=True)
        config = {"schema_version": 1, "task": task, "method": "vcse", "seed": seed, "frames": 200}
        (path / "config.json").write_text(json.dumps(config))
        (path / "meta.json").write_text("{}")
        (path / "train.csv").write_text(f"frame,{metric}\n100,0.25\n200,0.5\n")
        (path / "DONE").write_text("200\n")
    return out


def make_overlay(path, task="minigrid/Unlock"):
    path.write_text(f"task,method,seed,frame,success_rate\n{task},theirs,0,100,0.5\n{task},theirs,0,200,0.75\n")
    return path


def test_the_page_is_written_and_its_place_is_all_that_is_printed(tmp_path, capsys):
    make_runs(tmp_path)
    assert main(["report", str(tmp_path)]) == 0
    shown = capsys.readouterr()
    assert shown.out == f"{tmp_path / 'report' / 'index.html'}\n"
    assert all(line.startswith("vcse: ") for line in shown.err.splitlines())
    assert "2 runs: 1 task, 1 method, 2 seeds each" in shown.err
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "elsewhere")]) == 0
    assert (tmp_path / "elsewhere" / "index.html").is_file()


@pytest.mark.parametrize(("name", "options"), [("minigrid/Unlock", []), ("x", ["--overlay-task", "Unlock"])])
def test_curves_of_others_are_laid_over(tmp_path, capsys, name, options):
    overlay = make_overlay(tmp_path / "theirs.csv", name)
    assert main(["report", str(make_runs(tmp_path)), "--overlay", str(overlay), *options]) == 0
    assert "theirs, theirs.csv" in (tmp_path / "report" / "index.html").read_text()


def save_evaluations(path):
    np.savez(path, timesteps=np.array([50, 100]), results=np.array([[1.0, 3.0], [4.0, 6.0]]))


def save_run(path):
    path.mkdir()
    settings = {"task": "dmc/hopper_hop", "agent": "a2c", "method": "PPO", "seed": 0, "reading": "release"}
    config = RunConfig(**settings, frames=200, settings=a2c_settings("vcse"))
    (path / "config.json").write_text(json.dumps(config.to_json()))
    (path / "train.csv").write_text("frame,episodes,return_mean\n100,1,2\n200,2,5\n")


# As they lie in some directory; all hold the same curve.
THEIRS = {
    "all.csv": "agent,task,seed,frame,episode_reward\nPPO,hopper_hop,1,100,2\nPPO,hopper_hop,1,200,5\n",
    "PPO/eval.csv": "episode,episode_reward,frame,step\n0,2,100,50\n1,5,200,100\n",
    "PPO/hopper_hop.csv": "step,reward,seed\n50,2,1\n100,5,1\n",
    "PPO/seed1/monitor.csv": '#{"env_id": "hopper_hop"}\nr,l,t\n2,50,1\n8,50,2\n',  # whose mean is 5
    "PPO/evaluations.npz": save_evaluations,
    "long.csv": "task,method,seed,frame,return_mean\nhopper_hop,PPO,1,100,2\nhopper_hop,PPO,1,200,5\n",
    "run": save_run,
}
COUNT_STEPS = ("PPO/hopper_hop.csv", "PPO/seed1/monitor.csv", "PPO/evaluations.npz")
SAY_NO_TASK = ("PPO/eval.csv", "PPO/evaluations.npz")


def curves_of_others(directory):
    """Method, frame, number of runs and score of each point on the page that is not ours."""
    with (directory / "report" / "curves.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["method"] != "vcse"]
    return [(row["method"], int(row["frame"]), int(row["runs"]), float(row["iqm"])) for row in rows]


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("method", [None, "other"])
def test_every_format_is_laid_over(tmp_path, name, method):
    path, make = tmp_path / "theirs" / name, THEIRS[name]
    path.parent.mkdir(parents=True)
    if callable(make):
        make(path)
    else:
        path.write_text(make)
    options = ["--overlay", str(path)]
    options += ["--overlay-frames-per-step", "2"] if name in COUNT_STEPS else []
    options += ["--overlay-task", "dmc/hopper_hop"] if name in SAY_NO_TASK else []
    options += ["--overlay-method", method] if method else []
    make_runs(tmp_path, "dmc/hopper_hop", "return_mean")
    assert main(["report", str(tmp_path / "runs"), *options]) == 0
    label = f"{method or 'PPO'}, {'train.csv' if name == 'run' else path.name}"
    assert curves_of_others(tmp_path / "runs") == [(label, 100, 1, 2), (label, 200, 1, 5)]


def test_scores_in_json_are_laid_over(tmp_path):
    make_runs(tmp_path)
    record = {"task": "Unlock", "method": "mwm", "seed": 0, "steps": [50, 100], "success_rates": [0.25, 0.75]}
    (tmp_path / "theirs.json").write_text(json.dumps([record]))
    options = ["--overlay", str(tmp_path / "theirs.json"), "--overlay-frames-per-step", "2"]
    assert main(["report", str(tmp_path / "runs"), *options]) == 0
    assert curves_of_others(tmp_path / "runs") == [
        ("mwm, theirs.json", 100, 1, 0.25),
        ("mwm, theirs.json", 200, 1, 0.75),
    ]


def test_files_of_one_method_are_runs_of_one_line_and_those_of_others_stand_apart(tmp_path, capsys):
    make_runs(tmp_path, "dmc/hopper_hop", "return_mean")
    tasks = {"PPO/seed0": "hopper_hop", "PPO/seed1": "hopper_hop", "SAC/seed0": "hopper_hop", "TD3/seed0": "pendulum"}
    paths = [tmp_path / "theirs" / place / "monitor.csv" for place in tasks]
    for path, task in zip(paths, tasks.values(), strict=True):
        path.parent.mkdir(parents=True)
        path.write_text(f'#{{"env_id": "{task}"}}\nr,l,t\n2,50,1\n')
    assert main(["report", str(tmp_path / "runs"), "--overlay", *map(str, paths)]) == 0
    assert curves_of_others(tmp_path / "runs") == [("PPO, monitor.csv", 50, 2, 2), ("SAC, monitor.csv", 50, 1, 2)]
    assert "Nothing of monitor.csv is drawn: it has return_mean on pendulum" in capsys.readouterr().err


def test_what_was_found_wrong_is_said_here_too(tmp_path, capsys):
    make_runs(tmp_path)
    (tmp_path / "runs" / "seed1" / "config.json").write_text("{")
    overlay = make_overlay(tmp_path / "theirs.csv", "minigrid/Other")
    assert main(["report", str(tmp_path / "runs"), "--overlay", str(overlay)]) == 0
    shown = capsys.readouterr().err
    assert "vcse: seed1 is left out: config.json cannot be read" in shown
    assert "vcse: Nothing of theirs.csv is drawn" in shown
    assert "on minigrid/Unlock; --overlay-task says" in shown


def test_a_column_without_numbers_is_refused(tmp_path, capsys):
    make_runs(tmp_path)
    for path in tmp_path.glob("runs/*/train.csv"):
        path.write_text("frame,success_rate,bonus_mean\n100,0.25,\n200,0.5,\n")
    assert main(["report", str(tmp_path), "--column", "bonus_mean"]) == 1
    assert capsys.readouterr().err.endswith("--column bonus_mean holds no number in any of 2 runs\n")
    assert not (tmp_path / "report-bonus_mean").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["empty"], "holds no run"),
        (["nowhere"], "nowhere is not a directory"),
        (["runs", "--overlay", "theirs.csv", "gone.csv"], "--overlay names gone.csv, which does not exist"),
        (["runs", "--overlay-task", "x"], "--overlay-task must come with --overlay, whose files are meant"),
        (
            ["runs", "--overlay-method", "x", "--overlay-frames-per-step", "2"],
            "--overlay-method, --overlay-frames-per-step must come with --overlay",
        ),
        (
            ["runs", "--overlay", "theirs.csv", "--overlay-frames-per-step", "0"],
            "--overlay-frames-per-step must be at least 1, got 0",
        ),
        (
            ["runs", "--overlay", "theirs.csv", "--overlay-frames-per-step", "2"],
            "frames_per_step is 2, but theirs.csv counts frames",
        ),
        (["runs", "--overlay", "evaluations.npz"], "evaluations.npz does not say its task: give task, which is --ov"),
        (["runs", "--overlay", "missing.csv"], "missing.csv"),
        (
            ["runs", "--overlay", "theirs.csv", "--overlay-task", "Unlok"],
            "--overlay-task must be one of minigrid/Unlock, got 'Unlok'",
        ),
        (["runs", "--column", "bonus_maen"], "--column must be one of success_rate, got 'bonus_maen'"),
        (["runs", "--out", "theirs.csv"], "the report cannot be written to theirs.csv: it is a file"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tmp_path, capsys, monkeypatch, arguments, said):
    make_runs(tmp_path)
    (tmp_path / "empty").mkdir()
    make_overlay(tmp_path / "theirs.csv")
    save_evaluations(tmp_path / "evaluations.npz")
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err.splitlines()[-1]
    assert "Traceback" not in shown.err
