import importlib.util
import sys
from itertools import islice
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
import tyro

SCRIPT = Path(__file__).parents[2] / "examples" / "ppo.py"
SHORT = {"task": "CartPole-v1", "steps": 1_024, "environments": 4, "rollout_steps": 64}


@pytest.fixture(scope="module")
def ppo():
    spec = importlib.util.spec_from_file_location("example_ppo", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["example_ppo"] = module  # where its dataclasses look their types up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["example_ppo"]


class Clock(gymnasium.Env):
    """Shows how many steps the episode has had. It ends with the third, or with action 1, and pays 1 at each."""

    observation_space = gymnasium.spaces.Box(0, 10, (1,), np.float32)
    action_space = gymnasium.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        self.time += 1
        return np.full(1, self.time, np.float32), 1.0, bool(action), self.time == 3 and not action, {}


@pytest.fixture
def clock():
    gymnasium.register("Clock-v0", Clock)
    yield "Clock-v0"
    del gymnasium.registry["Clock-v0"]


def weights(agent):
    return torch.cat([each.flatten() for each in agent.state_dict().values()])


@pytest.mark.parametrize("task", ["CartPole-v1", "MiniGrid-LavaGapS5-v0"])
def test_a_bonus_of_weight_zero_changes_no_bit(ppo, task, capsys):
    runs = [
        ppo.main(ppo.Args(**{**SHORT, "task": task}, bonus=bonus, beta=beta))
        for bonus, beta in (("none", 0.02), ("vcse", 0.0), ("vcse", 0.02))
    ]
    plain, of_no_weight, paid = (weights(agent) for agent, _ in runs)
    assert torch.equal(plain, of_no_weight)
    assert not torch.equal(plain, paid)
    assert runs[0][1] == runs[1][1]
    assert capsys.readouterr().out.count("1,024 steps   return") == 3


def test_a_time_limit_ends_no_task(ppo, clock):
    args = ppo.Args(task=clock, environments=2, rollout_steps=40, steps=80)
    envs, shape, actions = ppo.make_environments(clock, 2)
    episodes = []
    torch.manual_seed(0)
    (rollout,) = islice(ppo.rollouts(ppo.Agent(shape, actions), envs, args, episodes), 1)
    times, next_times = rollout.observations.squeeze(-1), rollout.next_observations.squeeze(-1)
    assert torch.equal(next_times, times + 1)  # what was reached, not what the next episode began with
    assert torch.equal(rollout.terminated, rollout.actions.squeeze(-1).bool())
    ended = rollout.terminated | rollout.truncated
    assert torch.equal(ended, rollout.terminated | (next_times == 3))
    assert (times[1:] == 0).equal(ended[:-1])
    assert (ended & ~rollout.terminated).any()
    assert len(episodes) == ended.sum()
    assert all(each.task_return == each.length and each.terminated <= (each.length <= 3) for each in episodes)


def test_values_of_an_endless_task_are_learned_across_time_limits(ppo, clock, capsys):
    # Action 0 ends no task: it is worth 1 + γ + γ² + ... = 10, and no more than 2.71 if a time limit cut it off.
    args = ppo.Args(task=clock, bonus="none", steps=16_000, discount=0.9, entropy_weight=0.0)
    agent, _ = ppo.main(args)
    policy, values = agent(torch.tensor([[0.0], [1.0], [2.0]]))
    assert (policy[:, 0].exp() > 0.9).all()
    assert (values > 5).all()
    capsys.readouterr()


@pytest.mark.parametrize("bonus", ["none", "vcse"])
def test_it_learns(ppo, bonus, capsys):
    _, episodes = ppo.main(ppo.Args(task="CartPole-v1", bonus=bonus, steps=16_384))
    assert ppo.summary(episodes[:50])["return"] < 40
    assert ppo.summary(episodes[-20:])["return"] > 100
    capsys.readouterr()


def test_the_bonus_does_not_pay_for_dying(ppo, capsys):
    # With the raw formula, whose mean is negative, episodes are three steps long by now: lava ends what costs.
    _, episodes = ppo.main(ppo.Args(task="MiniGrid-LavaGapS5-v0", steps=10_240))
    assert ppo.summary(episodes)["length"] > 10
    capsys.readouterr()


def test_numbers_for_tensorboard(ppo, tmp_path, capsys):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    line = f"--task CartPole-v1 --steps 1024 --bonus se --log {tmp_path}"
    ppo.main(tyro.cli(ppo.Args, args=line.split()))
    events = EventAccumulator(str(tmp_path)).Reload()
    assert {"return", "failed", "value_loss", "bonus/std", "bonus/radius_mean"} <= set(events.Tags()["scalars"])
    assert [each.step for each in events.Scalars("bonus/std")] == [1_024]
    capsys.readouterr()


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"steps": 255}, r"steps must be at least environments \* rollout_steps = 256, got 255"),
        ({"task": "Pendulum-v1"}, "task must have a Box of observations and Discrete actions, Pendulum-v1 has Box"),
        ({"task": "FrozenLake-v1"}, r"FrozenLake-v1 has Discrete\(16\)"),
        ({"rollout_steps": 2}, "k=12 needs at least 13 points in features, got 8"),
    ],
)
def test_what_cannot_be_done_is_said(ppo, wrong, message):
    with pytest.raises(ValueError, match=message):
        ppo.main(ppo.Args(**{**SHORT, **wrong}))


def test_observations_that_are_neither_vectors_nor_grids(ppo):
    with pytest.raises(ValueError, match=r"vectors or grids \[height, width, channels\], got shape \(3, 84, 84, 2\)"):
        ppo.network((3, 84, 84, 2), 2, scale=1.0)


def test_the_bonus_is_one_line():
    assert SCRIPT.read_text().count("# VCSE") == 1
    assert len(SCRIPT.read_text().splitlines()) < 250
