"""An agent, a bonus and a family from outside of the package, by registration alone, through every command."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from vcse.agents.sac.agent import SAC, SACSpec
from vcse.agents.sac.settings import SACSettings
from vcse.bonuses import Bonus, BonusOutput, registry
from vcse.bonuses.registry import NO_BONUS
from vcse.launch.configs import run_configs

HERE = Path(__file__).parent
SOURCE = HERE.parents[1] / "src"
CLIMBER = ["train", "--task", "corridor/short", "--agent", "climber", "--device", "cpu", "--eval-episodes", "3"]
CURVES = ("train.csv", "eval.csv")
SMALL_SAC = ["--hidden-units", "8", "--batch-size", "16", "--seed-frames", "50"]


def environment(plugins):
    path = os.pathsep.join([str(SOURCE), str(HERE)])
    return os.environ | {"PYTHONPATH": path, "VCSE_PLUGINS": plugins, "COLUMNS": "120"}


def run(*words, plugins, rc):
    command = [sys.executable, *map(str, words)]
    done = subprocess.run(command, env=environment(plugins), capture_output=True, text=True, check=False)
    assert done.returncode == rc, done.stderr
    assert "Traceback" not in done.stderr
    return done


def vcse(*words, plugins="toy_plugin", rc=0):
    """Run the command in a process of its own, as a user would."""
    return run("-m", "vcse", *words, plugins=plugins, rc=rc)


def vcse_each(*commands, plugins="toy_plugin", rc=0):
    """Run commands one after the other in one process, which takes seconds to start; all must end alike."""
    script = "import json, sys; from vcse.cli.main import main; sys.exit(max(map(main, json.loads(sys.argv[1]))))"
    return run("-c", script, json.dumps([[*map(str, words)] for words in commands]), plugins=plugins, rc=rc)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Runs of the agent from outside with its bonus, one of the package's and none."""
    out = tmp_path_factory.mktemp("outside")
    vcse(
        *CLIMBER, "--bonus", "distance", "vcse", "none", "--seeds", 2, "--frames", 2000, "--step-size", 1, "--out", out
    )
    return out


def test_is_listed_and_has_options_in_a_box_of_its_own():
    assert "corridor/NAME        sac climber" in vcse("tasks").stdout
    told = vcse("train", "--help").stdout
    box = told[told.index("─ climber options ─") :].partition("╰")[0]
    assert "For dmc/..., gymnasium/... and corridor/..." in box
    assert "--step-size FLOAT" in box
    assert "(default: 0.5)" in box


def test_trains_with_every_bonus_that_it_serves(trained):
    runs = sorted(path.parent for path in trained.rglob("DONE"))
    assert [str(each.relative_to(trained)) for each in runs] == [
        f"corridor-short/{bonus}/seed{seed}" for bonus in ("distance", "none", "vcse") for seed in (0, 1)
    ]
    config = json.loads((runs[0] / "config.json").read_text())
    assert (config["agent"], config["climber"]["step_size"]) == ("climber", 1)
    assert len({(each / "train.csv").read_text() for each in runs}) == len(runs)


def test_evaluates_films_and_reports(trained, tmp_path):
    rows = json.loads(vcse("eval", trained, "--device", "cpu", "--json").stdout)
    assert len(rows) == 6
    assert {row["task"] for row in rows} == {"corridor/short"}
    for row in rows:
        last = (Path(row["run"]) / "eval.csv").read_text().splitlines()[-1]
        assert last == f"{row['frame']},{row['episodes']},{row['return_mean']}"
    film, page = tmp_path / "climber.gif", tmp_path / "page"
    vcse_each(
        ["watch", trained / "corridor-short/distance/seed0", "--out", film, "--device", "cpu"],
        ["report", trained, "--out", page],
    )
    assert film.read_bytes().startswith(b"GIF")
    assert "climber.step_size" in (page / "index.html").read_text()


def test_a_page_needs_no_plugin_but_a_policy_does(trained, tmp_path):
    vcse("report", trained, "--out", tmp_path, plugins="")
    assert "corridor/short" in (tmp_path / "index.html").read_text()
    said = vcse("eval", trained / "corridor-short/none/seed0", plugins="", rc=1).stderr
    assert said == (
        f"vcse: {trained / 'corridor-short/none/seed0'} was made with the agent 'climber', none of vcse's: "
        "set VCSE_PLUGINS to the module that registers it\n"
    )


def test_a_killed_run_goes_on_to_the_same_bytes(tmp_path):
    words = [*CLIMBER, "--bonus", "distance", "--frames", 20_000, "--eval-every-frames", 2000]
    words += ["--checkpoint-every-frames", 777, "--jobs", 1, "--out"]  # in the middle of an episode
    vcse(*words, tmp_path / "whole")
    path = tmp_path / "killed/corridor-short/distance/seed0"
    command = [sys.executable, "-m", "vcse", *map(str, words), str(tmp_path / "killed")]
    process = subprocess.Popen(
        command, env=environment("toy_plugin"), start_new_session=True, stderr=subprocess.DEVNULL
    )
    until = time.monotonic() + 30
    while not any(path.glob("checkpoint/*.pt")) and time.monotonic() < until:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert any(path.glob("checkpoint/*.pt"))
    assert not (path / "DONE").exists()
    vcse("resume", tmp_path / "killed", "--device", "cpu")
    for name in CURVES:
        assert (path / name).read_bytes() == (tmp_path / "whole/corridor-short/distance/seed0" / name).read_bytes()


def test_agents_of_the_package_take_the_family_and_the_bonus(tmp_path):
    agents = {}
    common = ["--bonus", "distance", "--device", "cpu", "--eval-episodes", "2", "--jobs", 1, "--out", tmp_path]
    corridor = ["train", "--task", "corridor/short", "--frames", 100, *common]
    done = vcse_each(
        [*corridor, *SMALL_SAC],  # the first agent that can
        [*corridor, "--agent", "climber", "--method", "climbing"],
        ["train", "--task", "minigrid/Empty-5x5", "--frames", 256, *common],
        ["eval", tmp_path, "--device", "cpu", "--json"],
    )
    for row in json.loads(done.stdout):
        config = json.loads((Path(row["run"]) / "config.json").read_text())
        agents[row["task"], row["method"]] = config["agent"]
        header, *_, last = (Path(row["run"]) / "train.csv").read_text().splitlines()
        assert float(dict(zip(header.split(","), last.split(","), strict=True))["bonus_mean"]) > 0
    assert agents == {
        ("corridor/short", "distance"): "sac",
        ("corridor/short", "climbing"): "climber",
        ("minigrid/Empty-5x5", "distance"): "a2c",
    }


REFUSED = {
    "": {
        ("--task", "corridor/short"): "task 'corridor/short' does not exist; tasks are written family/name, such as ",
        ("--task", "dmc/hopper_stand", "--agent", "climber"): (
            "--agent must be one of a2c, sac, drqv2, mwm, got 'climber'; for one of your own, set VCSE_PLUGINS to "
            "the module that registers it"
        ),
        ("--task", "minigrid/Empty-5x5", "--bonus", "distance"): (
            "--bonus must be one of none, se, vcse, rcse, se-matched, rnd, icm, counts, got 'distance'"
        ),
    },
    "toy_plugin": {
        ("--task", "corridor/shrot"): "task 'corridor/shrot' does not exist; nearest are corridor/short, ",
        ("--task", "minigrid/Empty-5x5", "--agent", "climber"): (
            "--agent climber does not train on minigrid/Empty-5x5, which is for a2c"
        ),
        ("--task", "corridor/long", "--agent", "climber", "--step-size", "0"): "--step-size must be finite and above 0",
    },
    "no_such_plugin": {
        ("--task", "corridor/short"): (
            "VCSE_PLUGINS names module 'no_such_plugin', which cannot be imported: ModuleNotFoundError: "
        )
    },
}


@pytest.mark.parametrize("plugins", REFUSED)
def test_what_is_not_there_is_refused_in_one_line(plugins, tmp_path):
    commands = [["train", *words, "--out", tmp_path] for words in REFUSED[plugins]]
    said = vcse_each(*commands, plugins=plugins, rc=1).stderr.splitlines()
    for line, told in zip(said, REFUSED[plugins].values(), strict=True):
        assert line.startswith(f"vcse: {told}")
    assert not any(tmp_path.iterdir())


class Far(Bonus):
    def forward(self, features):
        return BonusOutput(features.norm(dim=-1))


class Early(Far):
    needs_episode_starts = True


def test_a_run_whose_bonus_its_agent_cannot_serve_is_refused_before_it_begins(monkeypatch):
    monkeypatch.setattr(registry, "_ENTRIES", dict(registry._ENTRIES))
    registry.register_bonus("early", lambda choice, *, learners, **unused: Early(learners=learners), kind=Early)
    told = "the bonus early needs episode_starts, but the agent sac gives actions, next_features, rewards, values"
    with pytest.raises(ValueError, match=told):
        run_configs("dmc/hopper_stand", "early")


def test_an_agent_takes_a_bonus_object_of_ones_own():
    settings = SACSettings(bonus=NO_BONUS, hidden_units=8, batch_size=16)
    bonus = Far(learners=1)
    agent = SAC(SACSpec(3, 1), [settings], [0], bonus=bonus)
    assert [*agent.bonus.parts] == [bonus]
    told = "the bonus Early needs episode_starts, but the agent sac gives actions, next_features, rewards, values"
    with pytest.raises(ValueError, match=told):
        SAC(SACSpec(3, 1), [settings], [0], bonus=Early(learners=1))
