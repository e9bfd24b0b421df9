"""Runs of A2C on the fork, to the end and interrupted, and what commands say of them."""

import signal

import pytest
from csv_rows import read_rows
from runs.small import Interrupting, assert_same_run, make_config, newest_frame, train

from vcse.agents import agents_for, agents_of
from vcse.agents.a2c.cohort import check
from vcse.agents.a2c.settings import a2c_settings
from vcse.cli import main
from vcse.launch.cohorts import StoppedError

# 20 updates of 8 environments x 8 steps, so that episodes of 64 steps end, and checkpoints are in the middle of some.
SETTINGS = {"frames": 1280, "row_every_frames": 128, "eval_every_frames": 640, "checkpoint_every_frames": 320}


def fork_config(task, bonus, seed):
    settings = a2c_settings(bonus, "recommended", environments=8)
    return make_config(task, bonus, seed, reading="recommended", backend="table", settings=settings, **SETTINGS)


CONFIGS = [
    fork_config(task, bonus, seed)
    for task in ("fork/ratio1-first1", "fork/ratio4-first6")
    for bonus in ("none", "vcse", "se-matched")
    for seed in (0, 1)
]


@pytest.mark.usefixtures("without_type_checks")
def test_runs_that_were_stopped_go_on_to_the_same_bits_alone_and_together(tmp_path):
    train(CONFIGS, tmp_path / "whole")
    with pytest.raises(StoppedError):
        train(CONFIGS, tmp_path / "again", progress=Interrupting(640, lambda: signal.raise_signal(signal.SIGTERM)))
    assert 0 < newest_frame(tmp_path / "again") < 1280
    train(CONFIGS, tmp_path / "again")
    train(CONFIGS[3:4], tmp_path / "alone")
    for config in CONFIGS:
        assert_same_run(tmp_path / "again" / config.name, tmp_path / "whole" / config.name)
    assert_same_run(tmp_path / "alone" / CONFIGS[3].name, tmp_path / "whole" / CONFIGS[3].name)
    rows = [row for config in CONFIGS for row in read_rows(tmp_path / "whole" / config.name / "train.csv")]
    # In ratio1-first1 most episodes see a reward, and few the end: success is not a return above 0.
    assert any(row["return_mean"] > 0 and row["success_rate"] < 1 for row in rows if row["episodes"])


def test_policies_are_evaluated_and_filmed(tmp_path, capsys):
    [config] = [fork_config("fork/ratio1-first1", "vcse", 0)]
    train([config], tmp_path)
    run = tmp_path / config.name
    assert main(["eval", str(run), "--device", "cpu"]) == 0
    assert "success" in capsys.readouterr().out
    assert main(["watch", str(run), "--device", "cpu", "--episodes", "1"]) == 0
    assert (run / "watch.gif").read_bytes().startswith(b"GIF")


def test_agents_with_discrete_actions_alone_are_named():
    assert agents_of("fork") == agents_for("fork/ratio4-first6") == ("a2c",)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"visits_every_frames": 64}, "visits_every_frames needs the agent's position on a map, which fork/"),
        ({"settings": a2c_settings("vcse", bonus_features="position")}, "bonus_features position needs the agent's"),
    ],
)
def test_what_needs_a_map_is_refused(changes, told):
    with pytest.raises(ValueError, match=told):
        check(make_config("fork/ratio4-first6", backend="table", **changes))


def test_there_is_no_other_backend(capsys, tmp_path):
    words = ["--backend", "envpool", "--frames", "128", "--out", str(tmp_path)]
    assert main(["train", "--task", "fork/ratio4-first6", *words]) == 1
    assert "--backend" in capsys.readouterr().err
