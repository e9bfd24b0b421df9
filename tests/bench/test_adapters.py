import json
from dataclasses import asdict, fields
from pathlib import Path

import pytest
import torch

pytest.importorskip("stable_baselines3")

from stable_baselines3 import DQN, PPO, SAC, TD3

from vcse.bench import adapters, tables
from vcse.bench.adapters import Case, Trainee, measure
from vcse.cli import main
from vcse.integrations.sb3 import ValueConditionalBonus

PUBLISHED = Path(__file__).parents[2] / "benchmarks" / "adapters-cpu.json"
COLUMNS = [
    *("library", "algorithm", "task", "frames_per_s", "plain_frames_per_s", "times_plain"),
    *("explained_variance", "own_explained_variance"),
]


@pytest.fixture(autouse=True)
def _short(monkeypatch):
    """Little is measured, and few steps are seen."""
    monkeypatch.setattr(adapters, "ENVIRONMENTS", 2)
    monkeypatch.setattr(adapters, "STEPS", 12)


def test_rows_say_what_was_measured():
    cases = [Case("PPO", "CartPole-v1", 64, 2, n_steps=64), Case("DQN", "CartPole-v1", 60, 2)]
    ppo, dqn = measure(cases)
    assert [field.name for field in fields(ppo)] == COLUMNS
    assert ppo.library.startswith("stable-baselines3 2.")
    assert (ppo.algorithm, dqn.algorithm, ppo.task) == ("PPO (n_steps=64)", "DQN", "CartPole-v1")
    for row in (ppo, dqn):
        assert min(row.frames_per_s, row.plain_frames_per_s, row.times_plain) > 0
        assert max(row.explained_variance, row.own_explained_variance) <= 1


@pytest.mark.parametrize(
    ("algorithm", "task"), [(PPO, "CartPole-v1"), (DQN, "CartPole-v1"), (SAC, "Pendulum-v1"), (TD3, "Pendulum-v1")]
)
def test_the_agents_own_critic_and_the_extrinsic_one_each_value_states(algorithm, task):
    settings = {"n_steps": 16, "batch_size": 16, "n_epochs": 1} if algorithm is PPO else {}
    plain, paid = (algorithm("MlpPolicy", task, seed=1, device="cpu", **settings) for _ in range(2))
    with_bonus = Trainee(paid, ValueConditionalBonus())
    with_bonus.train(16)
    observations = torch.rand(5, *plain.observation_space.shape)
    own, extrinsic = Trainee(plain).values(observations), with_bonus.values(observations)
    assert own.shape == extrinsic.shape == (5,)
    assert not torch.allclose(own, extrinsic)


def test_values_that_are_the_returns_explain_them_all(monkeypatch):
    agent = DQN("MlpPolicy", "CartPole-v1", seed=0, device="cpu", gamma=0.0)  # so that every return is the reward, 1
    monkeypatch.setattr(Trainee, "values", lambda self, observations: observations[:, 0])
    monkeypatch.setattr(adapters, "gae", lambda rewards, values, *_, **known: torch.zeros_like(values))
    assert adapters._explained_variance(Trainee(agent), "CartPole-v1", seed=0) == 1


def test_a_time_limit_ends_an_episode_and_terminates_nothing(monkeypatch):
    monkeypatch.setattr(adapters, "STEPS", 201)  # Pendulum has 200
    found = {}

    def gae(rewards, values, next_values, terminated, ended, **known):
        found.update(terminated=terminated, ended=ended, known=known)
        return torch.zeros_like(values)

    monkeypatch.setattr(adapters, "gae", gae)
    monkeypatch.setattr(Trainee, "values", lambda self, observations: observations[:, 0])
    adapters._explained_variance(Trainee(TD3("MlpPolicy", "Pendulum-v1", seed=0, device="cpu")), "Pendulum-v1", seed=0)
    assert found["ended"].nonzero()[:, 1].tolist() == [199, 199]
    assert not found["terminated"].any()
    assert found["known"] == {"discount": 0.99, "gae_lambda": 1.0}


def test_the_command_prints_flat_rows_or_a_table(capsys, monkeypatch):
    row = adapters.Row("stable-baselines3 2.9.2", "SAC", "Pendulum-v1", 70.0, 100.0, 1.43, 0.95, 0.94)
    monkeypatch.setattr(adapters, "measure", lambda cases: iter([row]))
    assert main(["bench", "adapters", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [asdict(row)]
    assert main(["bench", "adapters"]) == 0
    assert "1.43" in capsys.readouterr().out


def test_options_of_other_benchmarks_are_refused(capsys):
    assert main(["bench", "adapters", "--device", "cuda"]) != 0
    assert "adapters are measured on one core" in capsys.readouterr().err
    assert main(["bench", "adapters", "--seconds", "3"]) != 0
    assert "--seconds is for minigrid, sac, drqv2 and mwm, got adapters" in capsys.readouterr().err


def test_what_was_published_is_shown_with_a_line_for_each_row():
    rows = [adapters.Row(**row) for row in json.loads(PUBLISHED.read_text())]
    assert tables.line(rows[0]).startswith("PPO, CartPole-v1: ")
    assert tables.TABLES["adapters"](rows).row_count == len(rows) == len(adapters.CASES)
