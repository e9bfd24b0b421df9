import json

import pytest

from vcse.cli.main import main


def make_runs(out):
    for seed in range(2):
        path = out / "runs" / f"seed{seed}"
        path.mkdir(parents=True)
        config = {"schema_version": 1, "task": "minigrid/Unlock", "method": "vcse", "seed": seed, "frames": 200}
        (path / "config.json").write_text(json.dumps(config))
        (path / "meta.json").write_text("{}")
        (path / "train.csv").write_text("frame,success_rate\n100,0.25\n200,0.5\n")
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


def test_what_was_found_wrong_is_said_here_too(tmp_path, capsys):
    make_runs(tmp_path)
    (tmp_path / "runs" / "seed1" / "config.json").write_text("{")
    overlay = make_overlay(tmp_path / "theirs.csv", "minigrid/Other")
    assert main(["report", str(tmp_path / "runs"), "--overlay", str(overlay)]) == 0
    shown = capsys.readouterr().err
    assert "vcse: seed1 is left out: config.json cannot be read" in shown
    assert "vcse: Nothing of theirs.csv is drawn" in shown
    assert "on minigrid/Unlock; --overlay-task says" in shown


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["empty"], "holds no run"),
        (["nowhere"], "nowhere is not a directory"),
        (["runs", "--overlay-task", "x"], "--overlay-task names the task of --overlay, which is not given"),
        (["runs", "--overlay", "missing.csv"], "missing.csv"),
        (
            ["runs", "--overlay", "theirs.csv", "--overlay-task", "Unlok"],
            "--overlay-task must be one of minigrid/Unlock, got 'Unlok'",
        ),
        (["runs", "--out", "theirs.csv"], "the report cannot be written to theirs.csv: it is a file"),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(tmp_path, capsys, monkeypatch, arguments, said):
    make_runs(tmp_path)
    (tmp_path / "empty").mkdir()
    make_overlay(tmp_path / "theirs.csv")
    monkeypatch.chdir(tmp_path)
    assert main(["report", *arguments]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert said in shown.err.splitlines()[-1]
    assert "Traceback" not in shown.err
