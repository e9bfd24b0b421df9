"""Environments of one's own through every command, as a user would have them: in a module in the working directory."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import gymnasium
import pytest
from csv_rows import read_rows
from PIL import Image
from runs.small import newest_frame

import vcse
from vcse.cli import main
from vcse.runs.directory import run_directories

OWN = '''
import gymnasium
import numpy as np
from gymnasium import spaces
from minigrid.envs import EmptyEnv


class Light(gymnasium.Env):
    """A light that is to be followed, seen as an image."""

    metadata = {"render_modes": ["rgb_array"], "render_fps": 12}
    observation_space = spaces.Box(0, 255, (10, 20, 3), np.uint8)
    action_space = spaces.Discrete(2)

    def __init__(self, render_mode=None):
        self.render_mode = render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        return self.move(), {}

    def move(self):
        self.side = int(self.np_random.integers(2))
        return self.render()

    def step(self, action):
        paid = float(action == self.side)
        self.steps += 1
        return self.move(), paid, False, False, {"success": self.steps == 10 and paid > 0}

    def render(self):
        image = np.zeros((10, 20, 3), dtype=np.uint8)
        image[:, 10 * self.side : 10 * self.side + 10] = 250
        return image


class Room(EmptyEnv):
    def __init__(self, **options):
        super().__init__(size=5, max_steps=12, **options)


gymnasium.register("Light-v0", entry_point=Light, max_episode_steps=10)
gymnasium.register("MiniGrid-Room-v0", entry_point=Room)
'''
LIGHT, ROOM = "gymnasium/{}:Light-v0", "gymnasium/{}:MiniGrid-Room-v0"
SMALL = ["--environments", "4", "--device", "cpu", "--jobs", "1", "--eval-episodes", "3"]
SMALL_SAC = ["--hidden-units", "16", "--batch-size", "32", "--seed-frames", "50", "--device", "cpu", "--jobs", "1"]


@pytest.fixture
def module(tmp_path, monkeypatch):
    """A module that registers environments, in the working directory; its name is its own, as modules stay imported."""
    name = f"worlds_{abs(hash(tmp_path))}"
    (tmp_path / f"{name}.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    yield name
    for identifier in [known for known, spec in gymnasium.registry.items() if name in str(spec.entry_point)]:
        del gymnasium.registry[identifier]


def frames_of(film):
    with Image.open(film) as opened:
        return opened.n_frames


@pytest.mark.usefixtures("without_type_checks")
def test_environments_of_ones_own_are_trained_evaluated_filmed_and_reported(module, tmp_path, capsys):
    tasks = [each.format(module) for each in (LIGHT, ROOM)]
    command = ["train", "--task", *tasks, "--bonus", "none", "vcse", "--frames", "320", *SMALL, "--out", "runs"]
    assert main(command) == 0
    runs = run_directories(Path("runs"))
    assert [str(run.relative_to("runs")) for run in runs] == [
        f"gymnasium-{module}-{name}/{method}/seed0"
        for name in ("Light-v0", "MiniGrid-Room-v0")
        for method in ("none", "vcse")
    ]
    capsys.readouterr()
    assert main(["eval", "runs", "--device", "cpu", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    for row, run in zip(rows, runs, strict=True):
        [last] = read_rows(run / "eval.csv")
        assert row["return_mean"] == last["return_mean"]
        assert (row["success_rate"] is None) == ("Room" in row["task"])
    assert main(["eval", "runs", "--device", "cpu"]) == 0
    tables = capsys.readouterr().out
    assert "nan" not in tables
    assert tables.count("success,") == 2  # of Light alone
    assert main(["watch", "runs", "--device", "cpu", "--episodes", "2"]) == 0
    assert frames_of(runs[0] / "watch.gif") > 2
    assert main(["report", "runs"]) == 0
    assert f"{module}:Light-v0" in Path("runs/report/index.html").read_text()


@pytest.mark.usefixtures("without_type_checks")
def test_pendulum_is_trained_by_sac_and_cartpole_by_a2c(tmp_path, capsys):
    command = ["--bonus", "vcse", "--frames", "256", "--eval-episodes", "1", "--out", str(tmp_path)]
    assert main(["train", "--task", "gymnasium/Pendulum-v1", *command, *SMALL_SAC]) == 0
    assert main(["train", "--task", "gymnasium/CartPole-v1", *command, "--device", "cpu"]) == 0
    runs = {run.parents[1].name: run for run in run_directories(tmp_path)}
    agents = {name: json.loads((run / "config.json").read_text())["agent"] for name, run in runs.items()}
    assert agents == {"gymnasium-Pendulum-v1": "sac", "gymnasium-CartPole-v1": "a2c"}
    for run in runs.values():
        assert "success_rate" in read_rows(run / "train.csv")[-1]
        assert main(["watch", str(run), "--device", "cpu", "--episodes", "1"]) == 0
        assert frames_of(run / "watch.gif") > 1
    policy = vcse.load_policy(runs["gymnasium-Pendulum-v1"])
    world = vcse.envs.gymnasium.GymnasiumEnvironment("Pendulum-v1")
    action, _ = policy.predict(world.begin(seed=0))
    assert world.step(action)[1] < 0


def killed(process, out, frame):
    """Kill a process with -9 once a checkpoint of a frame is there."""
    give_up = time.monotonic() + 120
    while newest_frame(out) < frame and process.poll() is None and time.monotonic() < give_up:
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    return process.returncode == -signal.SIGKILL


@pytest.mark.usefixtures("without_type_checks")
def test_a_process_that_is_killed_goes_on_to_the_same_curves(module, tmp_path):
    tasks = [LIGHT.format(module), "gymnasium/CartPole-v1"]
    options = ["--bonus", "vcse", "--frames", "6400", "--checkpoint-every-frames", "256", *SMALL, "--quiet"]
    command = ["train", "--task", *tasks, *options, "--eval-every-frames", "640", "--threads", "1", "--out"]
    source = str(Path(vcse.__file__).parents[1])
    environment = os.environ | {"PYTHONPATH": source, "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(
        [sys.executable, "-m", "vcse", *command, str(tmp_path / "killed")], env=environment, start_new_session=True
    )
    assert killed(process, tmp_path / "killed", 512)
    assert main([*command, str(tmp_path / "killed")]) == 0
    assert main([*command, str(tmp_path / "whole")]) == 0
    runs = run_directories(tmp_path / "whole")
    assert len(runs) == 2
    for run in runs:
        for name in ("train.csv", "eval.csv", "actions.bin"):
            other = tmp_path / "killed" / run.relative_to(tmp_path / "whole") / name
            assert (run / name).read_bytes() == other.read_bytes(), other


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "gymnasium/CartPole-v7"], "'CartPole-v7' is not registered with Gymnasium; nearest are gymn"),
        (["--task", "CartPole-v1"], "tasks are written family/name, such as gymnasium/CartPole-v1"),
        (["--task", "gymnasium/nothing_here:X-v0"], "module 'nothing_here' cannot be imported: ModuleNotFoundError"),
        (["--task", "gymnasium/Pendulum-v1", "--agent", "a2c"], "agent a2c does not train on gymnasium/Pendulum-v1"),
        (["--task", "gymnasium/CartPole-v1", "--rendering", "fast"], "--rendering is for dmc-pixels/..., metaworld/"),
        (["--task", "gymnasium/CartPole-v1", "--no-keep-replay"], "--keep-replay is for dmc/..., dmc-pixels/"),
        (
            ["--task", "gymnasium/CartPole-v1", "--hidden-units", "8"],
            "--hidden-units is for the agent sac, drqv2 or mwm",
        ),
        (["--task", "gymnasium/CartPole-v1", "--values", "exact"], "--values exact needs a task that is enumerated"),
    ],
)
def test_what_cannot_be_is_refused_in_one_line(words, said, tmp_path, capsys):
    assert main(["train", *words, "--out", str(tmp_path), "--device", "cpu"]) == 1
    told = capsys.readouterr().err.strip().splitlines()
    assert len(told) == 1
    assert said in told[0]
    assert not any(tmp_path.iterdir())


def test_any_registered_id_is_listed_in_a_line(capsys):
    assert main(["tasks"]) == 0
    told = capsys.readouterr().out
    assert "gymnasium/NAME       a2c sac drqv2 what the environment shows" in told
    assert told.count("any id that is registered with Gymnasium; MODULE:ID imports the module that registers it") == 1
    assert "CartPole" not in told
    assert main(["tasks", "--json"]) == 0
    assert "gymnasium" not in capsys.readouterr().out
