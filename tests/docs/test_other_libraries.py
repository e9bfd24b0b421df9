"""The snippets of docs/how-to/other-libraries.md run, each with what its library has at that place."""

import importlib
import importlib.util
import re
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn

PAGE = Path(__file__).parents[2] / "docs/how-to/other-libraries.md"
FOUND = re.findall(r"^## (.*?)\n|```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL | re.MULTILINE)
SNIPPETS: dict[str, list[str]] = {}
for heading, snippet in FOUND:
    if heading:
        section = SNIPPETS.setdefault(heading, [])
    else:
        section.append(snippet)


def run(library, number, **given):
    exec(SNIPPETS[library][number], given)
    return given


def test_every_library_has_its_snippets():
    assert {name: len(snippets) for name, snippets in SNIPPETS.items()} == {
        **{"Stable-Baselines3": 1, "TorchRL": 2, "skrl": 1, "RLlib": 1},
        **{"rsl_rl": 1, "CleanRL": 2, "Anything else": 1},
    }


def test_stable_baselines3(monkeypatch):
    sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
    steps, learn = 120, sb3.SAC.learn
    monkeypatch.setattr(sb3.SAC, "learn", lambda model, total, **known: learn(model, min(total, steps), **known))
    model = run("Stable-Baselines3", 0)["model"]
    assert model.num_timesteps == steps
    assert model.vcse_bonus.part.bonus.k == 12


def test_rl_zoo3_makes_the_callback_from_its_yaml():
    pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
    yaml = pytest.importorskip("yaml")
    (text,) = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    ((name, choices),) = yaml.safe_load(text)["CartPole-v1"]["callback"][0].items()
    module, kind = name.rsplit(".", 1)
    callback = getattr(importlib.import_module(module), kind)(**choices)  # as rl-zoo3 does
    assert (callback.bonus.k, callback.beta) == (12, 0.02)


@pytest.fixture
def torchrl():
    pytest.importorskip("torchrl", reason="TorchRL is not installed")
    from integrations import torchrl_agents

    return torchrl_agents


def test_torchrl_s_rollouts(torchrl):
    agent, seen = torchrl.make("ppo"), []
    collected = (seen.append(batch) or batch for batch in agent.collect(2))
    run("TorchRL", 0, env=agent.env, collector=collected, epochs=2, advantage=torch.no_grad()(agent.advantage.forward))
    for batch in seen:
        added = batch["next", "reward"] - batch["next", "reward_extrinsic"]
        assert added.std() == pytest.approx(0.02, rel=0.02)
        assert "advantage" in batch


def test_torchrl_s_replay(torchrl):
    agent = torchrl.make("sac")
    agent.buffer.extend(next(iter(agent.collect(1))))
    run("TorchRL", 1, env=agent.env, actor=agent.actor, replay_buffer=agent.buffer)
    batch = agent.buffer.sample()
    assert (batch["next", "reward"] - batch["next", "reward_extrinsic"]).std() == pytest.approx(0.02, rel=0.05)


def test_skrl():
    pytest.importorskip("skrl", reason="skrl is not installed")
    from integrations import skrl_agents

    agent = skrl_agents.make("ppo")
    trainer = SimpleNamespace(train=lambda: skrl_agents.play(agent, skrl_agents.transitions(skrl_agents.STEPS)))
    run("skrl", 0, agent=agent, trainer=trainer)
    part = agent.checkpoint_modules["bonus"]
    assert part.beta == 0.02
    assert part.metrics()["bonus/std"] == pytest.approx(1, rel=1e-3)


class PPOOfRslRl:
    """What rsl_rl's PPO does around the places that the snippet overrides, where it is not installed."""

    def __init__(self, observations, dones, rewards, *, gamma=0.99, lam=0.95, device="cpu"):
        self.gamma, self.lam, self.device, self.step = gamma, lam, device, 0
        self.storage = SimpleNamespace(
            observations={"policy": observations}, dones=dones, rewards=torch.zeros_like(rewards)[..., None]
        )

    def process_env_step(self, obs, rewards, dones, extras):
        self.storage.rewards[self.step] = (rewards + extras["time_outs"])[:, None]  # V of 1 and γ of 1
        self.step += 1

    def compute_returns(self, obs):
        self.returned = self.storage.rewards.clone()

    def save(self):
        return {"actor_state_dict": {}}

    def load(self, loaded_dict, load_cfg, strict):
        return strict


@pytest.mark.skipif(importlib.util.find_spec("rsl_rl") is not None, reason="rsl_rl is there, and in no need of a twin")
def test_rsl_rl(monkeypatch):
    algorithms = ModuleType("rsl_rl.algorithms")
    algorithms.PPO = PPOOfRslRl
    monkeypatch.setitem(sys.modules, "rsl_rl", ModuleType("rsl_rl"))
    monkeypatch.setitem(sys.modules, "rsl_rl.algorithms", algorithms)
    generator = torch.Generator().manual_seed(0)
    observations, rewards = torch.randn(24, 4, 5, generator=generator), torch.randn(24, 4, generator=generator)
    time_outs, terminated = torch.rand(2, 24, 4, generator=generator) < 0.1
    dones = (time_outs | terminated).byte()
    make = run("rsl_rl", 0)["PaidPPO"]
    agent = make(observations, dones[..., None], rewards)
    learned = []
    train = agent.bonus._train_critic
    agent.bonus._train_critic = lambda inputs, returns: learned.append(returns) or train(inputs, returns)
    with torch.inference_mode():  # as rsl_rl's runner collects and computes returns
        for step in range(24):
            extras = {"time_outs": time_outs[step]}
            agent.process_env_step({"policy": observations[step]}, rewards[step], dones[step], extras)
        agent.compute_returns({"policy": torch.randn(4, 5, generator=generator)})
    paid = agent.returned.squeeze(-1) - rewards - time_outs.float()
    assert paid.std() == pytest.approx(0.02, rel=0.02)
    over = (terminated & ~time_outs).T.flatten()
    torch.testing.assert_close(learned[0][over], rewards.T.flatten()[over])  # the task's own, and nothing after
    other = make(observations, dones[..., None], rewards)
    assert other.load(agent.save(), None, True)
    assert all(map(torch.equal, other.bonus.critic.parameters(), agent.bonus.critic.parameters()))


def spaces(*, observation, action=(1,)):
    return SimpleNamespace(
        single_observation_space=SimpleNamespace(shape=observation), single_action_space=SimpleNamespace(shape=action)
    )


ARGUMENTS = {"args": SimpleNamespace(gamma=0.99, gae_lambda=0.95), "device": torch.device("cpu")}


def test_cleanrl_s_ppo():
    generator = torch.Generator().manual_seed(0)
    rewards, dones = torch.zeros(128, 4), (torch.rand(128, 4, generator=generator) < 0.1).float()
    done = run(
        *("CleanRL", 0),
        **ARGUMENTS,
        envs=spaces(observation=(3,)),
        obs=torch.randn(128, 4, 3, generator=generator),
        rewards=rewards,
        dones=dones,
        next_obs=torch.randn(4, 3, generator=generator),
        next_done=torch.zeros(4),
    )
    assert done["rewards"].std() == pytest.approx(0.02, rel=0.01)


def test_cleanrl_s_sac():
    class Actor(nn.Linear):
        action_scale, action_bias = 2.0, 0.5

        def forward(self, observations):
            return super().forward(observations), torch.zeros(len(observations), 1)

    generator = torch.Generator().manual_seed(0)
    data = SimpleNamespace(
        observations=torch.randn(256, 3, generator=generator),
        actions=torch.randn(256, 1, generator=generator),
        rewards=torch.zeros(256, 1),
        next_observations=torch.randn(256, 3, generator=generator),
        dones=torch.zeros(256, 1),
    )
    done = run("CleanRL", 1, **ARGUMENTS, envs=spaces(observation=(3,)), actor=Actor(3, 1), data=data)
    assert done["rewards"].shape == (256, 1)
    assert done["rewards"].std() == pytest.approx(0.02, rel=0.01)
    assert (data.rewards == 0).all()


def test_anything_else(without_type_checks):
    done = run("Anything else", 0)
    assert isinstance(done["rollout"]["rewards"], np.ndarray)
    assert done["rollout"]["rewards"].std() == pytest.approx(0.02, rel=0.01)
