import dataclasses
import json
import shutil
from pathlib import Path

import pytest
import tyro
from csv_rows import read_rows

from vcse.agents import agent_entry, read_config
from vcse.agents.a2c.settings import a2c_settings
from vcse.cli import main
from vcse.cli.evaluate import evaluate_runs
from vcse.launch.cohorts import train_runs
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.progress import TrainingProgress


def make_config(bonus, seed, eval_episodes=6):
    # Hardly trained policies reach this goal now and then: returns are not all 0.
    return RunConfig(
        task="minigrid/Empty-5x5",
        agent="a2c",
        method=bonus,
        seed=seed,
        reading="release",
        frames=64,
        settings=a2c_settings(bonus, environments=4),
        eval_episodes=eval_episodes,
    )


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    train([make_config(bonus, seed) for bonus in ("none", "vcse") for seed in (0, 10, 2)], out)
    return out


def train(configs, out):
    with TrainingProgress(quiet=True) as progress:
        train_runs(configs, out, device="cpu", threads=1, progress=progress)


def test_rows_are_those_that_training_ended_with(runs, capsys):
    assert evaluate_runs(runs, json=True) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["method"], row["seed"]) for row in rows] == [(m, s) for m in ("none", "vcse") for s in (0, 2, 10)]
    assert any(row["return_mean"] > 0 for row in rows)
    for row in rows:
        path = runs / "minigrid-Empty-5x5" / row["method"] / f"seed{row['seed']}"
        (at_the_end,) = read_rows(path / "eval.csv")
        assert {name: row[name] for name in at_the_end} == at_the_end
        assert (row["run"], row["task"]) == (str(path), "minigrid/Empty-5x5")


def test_every_run_plays_as_many_episodes_as_in_training_and_one_that_played_none_as_many_as_is_usual(
    tmp_path, capsys, monkeypatch, without_type_checks
):
    usual = agent_entry("a2c").schedule._replace(eval_episodes=3)
    entry = dataclasses.replace(agent_entry("a2c"), schedule=usual)
    monkeypatch.setattr("vcse.play.load.agent_entry", lambda name: entry)
    train([make_config("none", seed, episodes) for seed, episodes in enumerate((2, 5, 0))], tmp_path)
    assert evaluate_runs(tmp_path, json=True) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["seed"], row["episodes"]) for row in rows] == [(0, 2), (1, 5), (2, 3)]
    for row in rows[:2]:
        (at_the_end,) = read_rows(Path(row["run"], "eval.csv"))
        assert {name: row[name] for name in at_the_end} == at_the_end
    assert evaluate_runs(tmp_path) == 0
    assert "minigrid/Empty-5x5: 2 to 5 episodes of each run" in capsys.readouterr().out


def test_one_run_gives_the_numbers_that_it_gives_among_others(runs, capsys):
    evaluate_runs(runs, episodes=3, json=True)
    among_others = json.loads(capsys.readouterr().out)[2]
    evaluate_runs(runs / "minigrid-Empty-5x5" / "none" / "seed10", episodes=3, json=True)
    assert json.loads(capsys.readouterr().out) == [among_others]


def test_the_table_has_a_line_per_run_and_a_mean_per_method(runs, capsys):
    assert tyro.cli(evaluate_runs, args=[str(runs), "--episodes", "6"]) == 0
    shown = capsys.readouterr().out
    assert "minigrid/Empty-5x5: 6 episodes of each run" in shown
    rows = [line.split() for line in shown.splitlines() if line.startswith(("none", "vcse"))]
    assert [row[1] for row in rows] == ["0", "2", "10", "mean"] * 2
    rates = [float(row[3].rstrip("%")) for row in rows[:3]]
    assert float(rows[3][4].rstrip("%")) == pytest.approx(sum(rates) / 3, abs=0.1)


def test_means_are_over_seeds_of_the_same_task_settings_and_frame_alone(runs, tmp_path, capsys):
    shutil.copytree(runs / "minigrid-Empty-5x5" / "vcse", tmp_path / "first")
    config = make_config("vcse", 0)
    others = dataclasses.replace(config, settings=a2c_settings("vcse", environments=4, beta=0.5), eval_episodes=2)
    elsewhere = dataclasses.replace(config, task="minigrid/Empty-6x6")
    train([others, dataclasses.replace(others, seed=1), elsewhere], tmp_path / "others")
    train([dataclasses.replace(config, frames=128)], tmp_path / "longer")
    capsys.readouterr()
    assert evaluate_runs(tmp_path, episodes=2) == 0
    first, second = capsys.readouterr().out.split("\n\n")
    assert [" ".join(line.split()[:-4]) for line in first.splitlines()[3:]] == [
        *("vcse, beta=0.005 0 64", "vcse, beta=0.005 2 64", "vcse, beta=0.005 10 64", "vcse, beta=0.005 mean 3 runs"),
        *("vcse, beta=0.005 0 128", "vcse, beta=0.5 0 64", "vcse, beta=0.5 1 64", "vcse, beta=0.5 mean 2 runs"),
    ]
    assert second.startswith("minigrid/Empty-6x6: 2 episodes of each run")
    assert [line.split()[:3] for line in second.splitlines()[3:]] == [["vcse", "0", "64"]]


def test_a_run_without_a_checkpoint_is_one_line(runs, tmp_path, capsys):
    config = read_config(runs / "minigrid-Empty-5x5" / "none" / "seed0")
    RunDirectory(tmp_path / config.name, config).close()
    with pytest.raises(ValueError, match="seed0 has no whole checkpoint yet: there is no policy to load"):
        evaluate_runs(tmp_path)
    assert capsys.readouterr().out == ""


def test_where_all_checkpoints_are_damaged_nothing_is_evaluated_and_the_exit_status_is_1(runs, tmp_path, capsys):
    damaged = shutil.copytree(runs / "minigrid-Empty-5x5" / "none", tmp_path / "damaged")
    for path in damaged.rglob("frame*.pt"):
        path.write_bytes(b"noise")
    assert main(["eval", str(damaged)]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].endswith("has a whole checkpoint: there is no policy to load")


def test_a_damaged_run_is_named_the_others_are_evaluated_and_the_exit_status_is_1(runs, tmp_path, capsys):
    copies = shutil.copytree(runs / "minigrid-Empty-5x5" / "none", tmp_path / "copies")
    for path in (copies / "seed2").rglob("frame*.pt"):
        path.write_bytes(b"noise")
    (copies / "seed10" / "config.json").write_text("{")
    assert main(["eval", str(copies), "--json", "--episodes", "1"]) == 1
    out, err = capsys.readouterr()
    assert [row["seed"] for row in json.loads(out)] == [0]
    assert f"{copies / 'seed10' / 'config.json'} cannot be read" in err
    assert f"{copies / 'seed2'} has no whole checkpoint and is left out" in err


def test_a_checkpoint_that_does_not_fit_its_configuration_is_named(runs, tmp_path, capsys):
    copy = shutil.copytree(runs / "minigrid-Empty-5x5" / "none" / "seed0", tmp_path / "seed0")
    content = json.loads((copy / "config.json").read_text())
    content["task"] = "minigrid-full/LavaGapS7"  # whose maps are of another size than the agent's view
    (copy / "config.json").write_text(json.dumps(content))
    assert main(["eval", str(copy)]) == 1
    assert f"vcse: the newest checkpoint of {copy} does not fit its config.json: " in capsys.readouterr().err
    shutil.copytree(runs / "minigrid-Empty-5x5" / "none" / "seed2", tmp_path / "seed2")
    assert main(["eval", str(tmp_path), "--json"]) == 1  # but for the other it is known
    out, err = capsys.readouterr()
    assert [row["seed"] for row in json.loads(out)] == [2]
    assert "; the run is left out\n" in err


def test_no_episodes_are_refused(runs):
    with pytest.raises(ValueError, match="--episodes must be at least 1, got 0"):
        evaluate_runs(runs, episodes=0)


def test_policies_that_ship_are_named(capsys):
    assert main(["eval", "minigrid/LavaGapS7/vcse", "--episodes", "2", "--device", "cpu", "--json"]) == 0
    [row] = json.loads(capsys.readouterr().out)
    assert (row["task"], row["method"], row["frame"]) == ("minigrid/LavaGapS7", "vcse", 200_064)
    assert main(["eval", "minigrid/LavaGap/vcse"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("vcse: minigrid/LavaGap/vcse does not exist, ")
    assert "nearest are minigrid/LavaGapS7/vcse, " in told
