import importlib.util
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import tyro
from integrations.common import same

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")

from vcse.integrations.sb3 import BonusCallback

SCRIPT = Path(__file__).parents[2] / "examples" / "sb3.py"
SHORT = {"ppo": {"task": "CartPole-v1", "steps": 1_024}, "sac": {"task": "Pendulum-v1", "steps": 1_020}}


@pytest.fixture(scope="module")
def sb3():
    spec = importlib.util.spec_from_file_location("example_sb3", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["example_sb3"] = module  # where its dataclasses look their types up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["example_sb3"]


@pytest.fixture(autouse=True)
def folder_of_logs(monkeypatch, tmp_path):
    monkeypatch.setenv("SB3_LOGDIR", str(tmp_path / "logs"))


@pytest.fixture
def paid(monkeypatch):
    """The callbacks that pay, as they are made."""
    made, create = [], BonusCallback.__init__
    monkeypatch.setattr(
        BonusCallback, "__init__", lambda self, *args, **known: create(self, *args, **known) or made.append(self)
    )
    return made


@pytest.mark.parametrize("algorithm", SHORT)
def test_a_bonus_of_weight_zero_changes_no_bit(sb3, algorithm, capsys):
    runs = [
        sb3.main(sb3.Args(**SHORT[algorithm], algorithm=algorithm, bonus=bonus, beta=beta))
        for bonus, beta in (("none", 0.02), ("vcse", 0.0), ("vcse", 0.02))
    ]
    plain, of_no_weight, paid = (dict(agent.policy.state_dict()) for agent, _ in runs)
    assert same(plain, of_no_weight)
    assert not same(plain, paid)
    assert runs[0][1] == runs[1][1]
    assert capsys.readouterr().out.count("steps   return") == 3


@pytest.mark.parametrize("bonus", ["vcse", "se", "rnd", "counts"])
def test_every_bonus_pays_one_standard_deviation(sb3, bonus, paid, capsys):
    args = sb3.Args(task="MiniGrid-LavaGapS5-v0", bonus=bonus, steps=1_024, decays=False)
    pytest.importorskip("minigrid", reason="MiniGrid is not installed")
    _, episodes = sb3.main(args)
    (callback,) = paid
    numbers = callback.part.metrics()
    assert numbers["bonus/std"] == pytest.approx(1, rel=0.01)
    assert callback.part.beta == args.beta
    assert {each.terminated for each in episodes} >= {True}
    capsys.readouterr()


def test_the_bonus_does_not_pay_for_dying(sb3, capsys):
    pytest.importorskip("minigrid", reason="MiniGrid is not installed")
    # With the raw formula, whose mean is negative, episodes are three steps long by now: lava ends what costs.
    _, episodes = sb3.main(sb3.Args(task="MiniGrid-LavaGapS5-v0", steps=10_240))
    assert np.mean([each.length for each in episodes[-100:]]) > 10
    capsys.readouterr()


def test_minigrid_is_seen_as_a_grid_at_scale_1(sb3):
    pytest.importorskip("minigrid", reason="MiniGrid is not installed")
    envs = sb3.make_environments(sb3.Args())
    observations = envs.reset()
    assert observations.shape == (8, 3, 7, 7)
    assert observations.dtype == np.float32
    assert observations.max() == np.float32(0.9)  # lava, the object of the highest index that the agent sees
    envs.close()


def test_other_tasks_stay_as_they_are(sb3):
    env = gymnasium.make("CartPole-v1")
    assert sb3.without_mission(env) is env


def test_numbers_for_tensorboard(sb3, tmp_path, capsys):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    sb3.main(tyro.cli(sb3.Args, args=f"--task CartPole-v1 --steps 1024 --bonus se --log {tmp_path}".split()))
    (folder,) = tmp_path.glob("PPO_*")
    events = EventAccumulator(str(folder)).Reload()
    assert {"bonus/std", "bonus/beta", "bonus/extrinsic_critic_loss", "rollout/ep_rew_mean"} <= set(
        events.Tags()["scalars"]
    )
    assert [each.step for each in events.Scalars("bonus/std")] == [1_024]
    capsys.readouterr()


def test_counts_of_an_episode_need_rollouts(sb3):
    with pytest.raises(ValueError, match="EpisodicCounts"):
        sb3.main(sb3.Args(**SHORT["sac"], algorithm="sac", bonus="counts"))


def test_the_bonus_is_one_line():
    assert SCRIPT.read_text().count("# VCSE") == 1
    assert len(SCRIPT.read_text().splitlines()) < 250
