import importlib.util
import sys
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
import tyro
from torch.distributions import Normal, TransformedDistribution
from torch.distributions.transforms import AffineTransform, TanhTransform

from vcse.integrations import ReplayBonus

SCRIPT = Path(__file__).parents[2] / "examples" / "sac.py"
SMALL = {"task": "Pendulum-v1", "hidden_units": 32, "batch_size": 32}
SHORT = {**SMALL, "steps": 250, "warm_up_steps": 50}


@pytest.fixture(scope="module")
def sac():
    spec = importlib.util.spec_from_file_location("example_sac", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["example_sac"] = module  # where its dataclasses look their types up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["example_sac"]


class Clock(gymnasium.Env):
    """Shows how many steps the episode has had. A time limit ends it with the third, an action above 0 at once."""

    observation_space = gymnasium.spaces.Box(0, 10, (1,), np.float64)
    action_space = gymnasium.spaces.Box(-2, 4, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.time = 0
        return np.zeros(1), {}

    def step(self, action):
        self.time += 1
        over = bool(action[0] > 0)
        return np.full(1, self.time, np.float64), 1.0, over, self.time == 3 and not over, {}


@pytest.fixture
def clock():
    gymnasium.register("Clock-v0", Clock)
    yield "Clock-v0"
    del gymnasium.registry["Clock-v0"]


class Point(gymnasium.Env):
    """A point that is to be moved to 0: it loses its square distance at each of 20 steps."""

    observation_space = gymnasium.spaces.Box(-5, 5, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.place = self.np_random.uniform(-1, 1, 1).astype(np.float32)
        return self.place, {}

    def step(self, action):
        self.place = (self.place + 0.3 * action).clip(-5, 5)
        return self.place, -float(self.place[0] ** 2), False, False, {}


@pytest.fixture
def point():
    gymnasium.register("Point-v0", Point, max_episode_steps=20)
    yield "Point-v0"
    del gymnasium.registry["Point-v0"]


@pytest.fixture
def replays(sac, monkeypatch):
    """The replays of runs, as they are made."""
    made = []

    class Kept(sac.Replay):
        def __init__(self, *args):
            super().__init__(*args)
            made.append(self)

    monkeypatch.setattr(sac, "Replay", Kept)
    return made


def weights(agent):
    return torch.cat([each.flatten() for each in agent.state_dict().values()])


def test_a_bonus_of_weight_zero_changes_no_bit(sac, replays, capsys):
    runs = [
        sac.main(sac.Args(**SHORT, bonus=bonus, beta=beta))
        for bonus, beta in (("none", 0.02), ("vcse", 0.0), ("vcse", 0.02))
    ]
    plain, of_no_weight, paid = (weights(agent) for agent, _ in runs)
    assert torch.equal(plain, of_no_weight)
    assert not torch.equal(plain, paid)
    for first, second in zip(replays[0].stored, replays[1].stored, strict=True):
        assert torch.equal(first, second)
    # What is stored stays the task's own reward: here of the first steps, which no bonus has changed.
    assert torch.equal(replays[2].stored.rewards[:50], replays[0].stored.rewards[:50])
    assert capsys.readouterr().out.count("200 steps   return") == 3


def test_a_time_limit_ends_no_task(sac, clock, replays, capsys):
    args = sac.Args(task=clock, environments=2, steps=60, warm_up_steps=40, batch_size=32, hidden_units=32)
    _, episodes = sac.main(args)
    (replay,) = replays
    assert replay.filled == 60
    times, actions, rewards, next_times, terminated = (each.squeeze(-1) for each in replay.stored)
    assert torch.equal(next_times, times + 1)  # what was reached, not what the next episode began with
    assert torch.equal(terminated.bool(), actions > 0)
    assert torch.equal(rewards, torch.ones(60))
    assert ((next_times == 3) & ~terminated.bool()).any()
    assert {each.terminated for each in episodes} == {True, False}
    assert all(each.task_return == each.length <= 3 for each in episodes)
    capsys.readouterr()


def test_what_is_paid_is_not_stored(sac):
    replay = sac.Replay(100, 3, 1)
    shapes = ((100, 3), (100, 1), (100,), (100, 3), (100,))
    replay.add(*(np.random.default_rng(0).random(shape) for shape in shapes))
    before = [each.clone() for each in replay.stored]
    agent = sac.Agent(3, gymnasium.spaces.Box(-2, 2, (1,)), sac.Args(hidden_units=32))
    batch = replay.sample(32)
    rewards = batch.rewards.clone()
    bonus = ReplayBonus(agent.policy.greedy, (3,), 1, beta=1.0)
    agent.update(batch, bonus)
    assert not torch.equal(batch.rewards, rewards)
    assert all(torch.equal(*pair) for pair in zip(replay.stored, before, strict=True))


def test_densities_are_those_of_a_squashed_normal_distribution(sac):
    torch.manual_seed(0)
    low, high = np.float32([-1, -3]), np.float32([2, 5])
    policy = sac.Policy(4, gymnasium.spaces.Box(low, high), 32)
    observations = torch.randn(1000, 4)
    actions, log_densities = policy(observations)
    assert (actions > torch.as_tensor(low)).all()
    assert (actions < torch.as_tensor(high)).all()
    mean, spread = policy.layers(observations).chunk(2, -1)
    log_std = -5 + 3.5 * (spread.tanh() + 1)
    scale, middle = torch.tensor([1.5, 4.0]), torch.tensor([0.5, 1.0])
    squashed = TransformedDistribution(Normal(mean, log_std.exp()), [TanhTransform(), AffineTransform(middle, scale)])
    expected = squashed.log_prob(actions).sum(-1)
    assert log_densities.allclose(expected, atol=1e-2)
    assert policy.greedy(observations).allclose(scale * mean.tanh() + middle)


@pytest.mark.parametrize("bonus", ["none", "vcse"])
def test_it_learns(sac, point, bonus, capsys):
    args = sac.Args(task=point, bonus=bonus, steps=800, warm_up_steps=200, batch_size=64, hidden_units=64)
    agent, episodes = sac.main(args)
    returns = [each.task_return for each in episodes]
    assert np.mean(returns[:10]) < -5
    assert np.mean(returns[-5:]) > -2.5
    toward_zero = agent.policy.greedy(torch.tensor([[-0.8], [0.8]])).squeeze(1)
    assert toward_zero[0] > 0.5
    assert toward_zero[1] < -0.5
    capsys.readouterr()


def test_numbers_for_tensorboard(sac, tmp_path, capsys):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    small = "--hidden-units 32 --batch-size 32"
    line = f"--task Pendulum-v1 --steps 300 --warm-up-steps 100 --bonus se {small} --log {tmp_path}"
    sac.main(tyro.cli(sac.Args, args=line.split()))
    events = EventAccumulator(str(tmp_path)).Reload()
    assert {"return", "critic_loss", "temperature", "bonus/std"} <= set(events.Tags()["scalars"])
    assert [each.step for each in events.Scalars("bonus/std")] == [100, 200, 300]
    capsys.readouterr()


@pytest.mark.parametrize("task", ["CartPole-v1", "FrozenLake-v1"])
def test_what_is_not_served_is_said(sac, task):
    with pytest.raises(ValueError, match=f"task must have vectors as observations and bounded actions, {task} has"):
        sac.main(sac.Args(**{**SHORT, "task": task}))


def test_the_bonus_is_one_line():
    assert SCRIPT.read_text().count("# VCSE") == 1
    assert len(SCRIPT.read_text().splitlines()) < 250
