"""Runs of every agent, trained for a moment or not at all, exported."""

import errno
import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from agents.mwm import toy_images
from runs import small
from runs.small_gymnasium import task

import vcse
from vcse.agents import read_config
from vcse.agents.drqv2.agent import DrQv2, DrQv2Spec
from vcse.agents.mwm.agent import MWM, MWMSpec
from vcse.cli import main
from vcse.launch.configs import run_configs
from vcse.play.evaluate import evaluate_policies
from vcse.play.export import export_policy, is_exported, read_scores
from vcse.play.load import load_policies
from vcse.play.scores import Scores
from vcse.runs import checkpoint
from vcse.runs.checkpoint import write_atomically
from vcse.runs.directory import RunDirectory, run_directories

A2C = {"environments": 4, "frames": 288}
SAC = {"hidden_units": 16, "batch_size": 32, "seed_frames": 40, "frames": 80}
DRQV2 = {"hidden_units": 8, "batch_size": 4, "seed_frames": 40, "frames": 60, "k": 3}
RUNS = {task("Walk"): A2C, task("Steered"): SAC, task("SteeredImage"): DRQV2}


WALK = task("Walk")


def save_policy(out, config, state):
    """Write a run with an agent's state; give its directory."""
    directory = RunDirectory(out / config.name, config)
    directory.save_checkpoint(config.frames, {"agent": state})
    directory.close()
    return directory.path


def train(out, name=WALK):
    """Train for a moment; give the run's directory."""
    every = {"row_every_frames": 20, "eval_every_frames": 0, "eval_episodes": 0, "checkpoint_every_frames": 1_000}
    [config] = run_configs(name, "vcse", seeds=(3,), **{**every, **RUNS[name]})
    if config.agent == "drqv2":  # whose simulators take seconds to start: a policy as it begins
        return save_policy(out, config, DrQv2(DrQv2Spec(9, 1), config.settings, config.seed).state_dict())
    small.train([config], out)
    return out / config.name


@pytest.fixture(scope="module")
def walk(tmp_path_factory):
    return train(tmp_path_factory.mktemp("walk"))


def set_actor_bias(run, *biases):
    """Set the biases of a policy's actions."""
    frame, state = small.newest_state(run)
    [policies] = load_policies([run])
    agent, [row] = policies.agent, policies.agent.parameters
    row.copy_(state["agent"]["parameters"])
    agent.actor.output.bias.data.copy_(torch.tensor([biases]))  # a view of the row
    state["agent"]["parameters"].copy_(row)
    checkpoint.save(run / "checkpoint", frame, state)


def tensors(state):
    if isinstance(state, torch.Tensor):
        return [state]
    return [each for part in (state.values() if isinstance(state, dict) else state) for each in tensors(part)]


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize(
    ("name", "kept"), [(task("Walk"), "parameters"), (task("Steered"), "actor"), (task("SteeredImage"), "acting")]
)
def test_what_acts_is_kept_in_float16_and_acts_as_before(tmp_path, monkeypatch, name, kept):
    monkeypatch.setattr("vcse.play.export.cores", lambda: 1)  # processes with simulators take seconds to start
    run, out = train(tmp_path, name), tmp_path / "exported"
    scores = export_policy(run, out, episodes=4)
    trained, stored = small.newest_state(run), small.newest_state(out)
    assert stored.frame == trained.frame == scores.frame
    assert list(stored.state) == ["agent"]
    assert list(stored.state["agent"]) == [kept]
    assert scores.precision == "float16"
    for mine, theirs in zip(tensors(stored.state), tensors(trained.state["agent"][kept]), strict=True):
        assert torch.equal(mine, theirs.half())
    before, after = vcse.load_policy(run), vcse.load_policy(out)
    assert after.config.settings == before.config.settings
    high = 255 if before.observation_shape[1:] else 5
    seen = np.random.default_rng(0).integers(high, size=(6, *before.observation_shape))
    seen = seen.astype(np.uint8 if high == 255 else np.float32)
    np.testing.assert_allclose(after.predict(seen)[0], before.predict(seen)[0], atol=0.01)
    assert read_scores(out) == scores


@pytest.mark.usefixtures("without_type_checks")
def test_of_a_world_model_what_acts_is_kept(tmp_path, monkeypatch):
    toy_images.register(monkeypatch)
    config = toy_images.make_config("vcse", seed=5)
    run = save_policy(tmp_path, config, MWM(MWMSpec(2), config.settings, config.seed).state_dict())
    scores = export_policy(run, tmp_path / "exported", episodes=3)
    stored = small.newest_state(tmp_path / "exported").state["agent"]
    assert list(stored) == ["acting"]
    assert {each.dtype for each in tensors(stored)} == {
        torch.float16 if scores.precision == "float16" else torch.float32
    }
    assert vcse.load_policy(tmp_path / "exported").frame == config.frames


def test_an_evaluation_gives_the_scores_of_the_card_again(tmp_path, walk):
    scores = export_policy(walk, tmp_path / "exported", episodes=30)
    [policies] = load_policies([tmp_path / "exported"])
    assert Scores.of(evaluate_policies(policies, episodes=30)[0]) == scores.stored


def test_weights_stay_in_float32_where_rounding_changes_an_evaluation(tmp_path, walk):
    run = shutil.copytree(walk, tmp_path / "run")
    set_actor_bias(run, 32768.0, 32761.0)  # never to the right; in float16 both are 32768
    scores = export_policy(run, tmp_path / "exported", episodes=40)
    assert scores.precision == "float32"
    assert scores.stored == scores.trained
    assert scores.stored.sampled.success_rate == 0
    assert "in the precision of training" in (tmp_path / "exported" / "README.md").read_text()
    [stored] = tensors(small.newest_state(tmp_path / "exported").state)
    assert torch.equal(stored, small.newest_state(run).state["agent"]["parameters"])


def test_weights_that_float16_cannot_hold_stay_in_float32(tmp_path, walk):
    run = shutil.copytree(walk, tmp_path / "run")
    set_actor_bias(run, 70_000.0, 70_100.0)
    assert export_policy(run, tmp_path / "exported", episodes=2).precision == "float32"


def test_an_exported_policy_is_a_finished_run_that_cannot_go_on(tmp_path, walk, capsys):
    out = tmp_path / walk.relative_to(walk.parents[2])  # where runs expect themselves
    export_policy(walk, out, episodes=2)
    assert is_exported(out)
    assert not is_exported(walk)
    assert run_directories(tmp_path) == [out]
    assert (out / "DONE").read_text() == "288\n"
    assert vcse.load_policy(tmp_path).frame == 288
    for more in ([], ["--frames", "1000"]):
        assert main(["resume", str(tmp_path), *more, "--device", "cpu", "--quiet"]) == 1
        assert "is an exported policy, which can be played but not trained on" in capsys.readouterr().err


def test_of_an_unfinished_run_the_frames_are_those_that_it_had(tmp_path, walk):
    run = shutil.copytree(walk, tmp_path / "run")
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**config, "frames": 1_000}))
    (run / "DONE").unlink()
    assert export_policy(run, tmp_path / "exported", episodes=2).frame == 288
    assert read_config(tmp_path / "exported").frames == 288


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (
            ["train", "--task", "minigrid/LavaGapS7", "--out", "/home/me", "--seeds", "4"],
            ["| command | `vcse train --task minigrid/LavaGapS7 --seeds 4` |"],
        ),
        (["study", "run", "minigrid", "--out=/home/me"], ["| command | `vcse study run minigrid` |"]),
        (["resume", "/home/me", "--frames", "1M"], []),
        (["-q", "/home/me/test.py"], []),
        (None, []),
    ],
)
def test_of_whoever_ran_it_nothing_is_told(tmp_path, walk, command, told):
    run = shutil.copytree(walk, tmp_path / "run")
    meta = json.loads((run / "meta.json").read_text())
    (run / "meta.json").write_text(json.dumps({**meta, "command": command, "platform": "mymachine"}))
    export_policy(run, tmp_path / "exported", episodes=2)
    written = "".join((tmp_path / "exported" / name).read_text() for name in ("README.md", "meta.json", "config.json"))
    assert "/home/me" not in written
    assert "mymachine" not in written
    assert meta["packages"]["torch"] in written
    assert [line for line in written.splitlines() if line.startswith("| command |")] == told


def test_a_policy_for_which_there_is_no_room_leaves_nothing(tmp_path, walk, monkeypatch):
    out = tmp_path / "exported"

    def write(path, content):
        if path == out / "meta.json":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
        write_atomically(path, content)

    with monkeypatch.context() as full:
        full.setattr("vcse.play.export.write_atomically", write)
        with pytest.raises(OSError, match=rf"No space left on device: '{out}/meta\.json'"):
            export_policy(walk, out, episodes=2)
    assert list(out.iterdir()) == []
    export_policy(walk, out, episodes=2)
    assert is_exported(out)


def test_a_place_that_cannot_be_is_refused_before_anything_is_played(tmp_path, walk, monkeypatch):
    monkeypatch.setattr("vcse.play.export._evaluate", pytest.fail)
    with pytest.raises(OSError, match="/proc/nowhere"):  # where not even root may write
        export_policy(walk, Path("/proc/nowhere/exported"))


def test_the_card_is_one_that_the_hub_reads(tmp_path, walk):
    from huggingface_hub import ModelCard

    scores = export_policy(walk, tmp_path / "exported", episodes=20)
    card = ModelCard.load(tmp_path / "exported" / "README.md")
    assert card.data.library_name == "vcse"
    assert {"reinforcement-learning", "a2c", "vcse", task("Walk")} <= set(card.data.tags)
    found = {each.metric_type: each for each in card.data.eval_results}
    assert found["mean_reward"].metric_value == pytest.approx(scores.stored.sampled.return_mean, abs=1e-4)
    assert found["success_rate"].metric_value == pytest.approx(scores.stored.sampled.success_rate, abs=1e-4)
    assert found["mean_reward"].dataset_name == task("Walk")
    assert yaml.safe_load(card.content.split("---")[1]) == card.data.to_dict()
    rows = [line for line in card.text.splitlines() if line.startswith("| sampled | ")]
    assert [row.split(" | ")[1] for row in rows] == ["float16", "float32"]
    low, high = scores.stored.sampled.success_interval
    assert f"| {scores.stored.sampled.success_rate:.1%} ({low:.1%} to {high:.1%}) |" in rows[0]
    assert "| seed | 3 |" in card.text
    assert "| budget | 288 frames |" in card.text


def test_what_cannot_be_exported_is_refused(tmp_path, walk):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "notes.txt").touch()
    with pytest.raises(ValueError, match="full holds files already: choose another --out, or remove it"):
        export_policy(walk, tmp_path / "full")
    with pytest.raises(ValueError, match=r"cannot be written to .*notes.txt: it is a file"):
        export_policy(walk, tmp_path / "full" / "notes.txt")
    with pytest.raises(ValueError, match="episodes must be at least 2, got 1"):
        export_policy(walk, tmp_path / "exported", episodes=1)
    export_policy(walk, tmp_path / "exported", episodes=2)
    with pytest.raises(ValueError, match="holds an exported policy already"):
        export_policy(tmp_path / "exported", tmp_path / "again", episodes=2)
    run = shutil.copytree(walk, tmp_path / "run")
    shutil.rmtree(run / "checkpoint")
    with pytest.raises(ValueError, match="run has no whole checkpoint: there is no policy to export"):
        export_policy(run, tmp_path / "again", episodes=2)
    assert not (tmp_path / "again").exists()
