"""What all agents promise, told apart by as little as can be: how one is made, and what it learns from."""

import dataclasses

import torch

from vcse.agents.a2c import A2C, A2CConfig, A2CSpec
from vcse.agents.sac import DRAWS, SAC, SACConfig, SACSpec
from vcse.bonuses.named import BonusChoice
from vcse.replay.rollouts import Rollout
from vcse.replay.transitions import Batch

BONUSES = ("none", "se", "vcse", "se-matched")


def together(parts):
    """Put what several learners have side by side."""
    kind = type(parts[0])
    return kind(*(None if each[0] is None else torch.cat(each) for each in zip(*parts, strict=True)))


class A2CKind:
    """A2C with few environments and steps, on grids of few different observations."""

    spec = A2CSpec((7, 7, 3), 7)
    mismatch = ("environments", 2)

    def config(self, bonus, **changes):
        config = A2CConfig(BonusChoice(bonus, "release-a2c", 5 if bonus == "se" else 3), environments=4)
        # Where learners are compared whose bonus differs, a common bound of the gradient would mix their parts.
        return dataclasses.replace(config, most_gradient_norm=1e9, **changes)

    def make(self, configs, seeds):
        return A2C(self.spec, configs, seeds)

    def material(self, seed):
        generator = torch.Generator().manual_seed(seed)
        shape = (1, 4, 8)
        seen = torch.randint(0, 11, (20, 7, 7, 3), dtype=torch.uint8, generator=generator)
        ended = torch.rand(shape, generator=generator) < 0.2
        return Rollout(
            observations=seen[torch.randint(0, 20, (1, 4, 9), generator=generator)],
            actions=torch.randint(0, 7, shape, generator=generator),
            rewards=torch.rand(shape, generator=generator) * ended,
            terminated=ended,
            truncated=torch.zeros_like(ended),
            positions=torch.randint(1, 6, (*shape, 2), generator=generator).float(),
            arrived=None,
        )

    def update(self, agent, seeds):
        return agent.update(together([self.material(seed) for seed in seeds]))

    def act(self, agent, seeds):
        rollout = together([self.material(seed) for seed in seeds])
        chance = [torch.rand(1, 4, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return agent.act(rollout.observations[:, :, 0], torch.cat(chance))

    def policy(self, agent):
        return [agent.parameters]

    def extrinsic(self, agent):
        return [] if agent.extrinsic_parameters is None else [agent.extrinsic_parameters]


class SACKind:
    """SAC with small networks, on random transitions."""

    spec = SACSpec(5, 2)
    mismatch = ("batch_size", 32)

    def config(self, bonus, **changes):
        temperature = None if bonus == "none" else 0.001
        config = SACConfig(BonusChoice(bonus, "release-sac", 12), temperature=temperature)
        return dataclasses.replace(config, **{"hidden_units": 16, "batch_size": 48, **changes})

    def make(self, configs, seeds):
        return SAC(self.spec, configs, seeds)

    def material(self, seed, *, size=48):
        generator = torch.Generator().manual_seed(seed)
        shape = (1, size)
        return Batch(
            observations=torch.randn(*shape, 5, generator=generator),
            actions=2 * torch.rand(*shape, 2, generator=generator) - 1,
            rewards=torch.rand(shape, generator=generator),
            terminated=(torch.rand(shape, generator=generator) < 0.2).float(),
            arrived=torch.randn(*shape, 5, generator=generator),
        )

    def noise(self, seed, *, size=48):
        return torch.randn(1, DRAWS, size, 2, generator=torch.Generator().manual_seed(seed + 10_000))

    def update(self, agent, seeds):
        batch = together([self.material(seed) for seed in seeds])
        return agent.update(batch, torch.cat([self.noise(seed) for seed in seeds]))

    def act(self, agent, seeds):
        batch = together([self.material(seed) for seed in seeds])
        return agent.act(batch.observations, torch.cat([self.noise(seed)[:, 0] for seed in seeds]))

    def policy(self, agent):
        return agent.actor

    def extrinsic(self, agent):
        return [each[agent.twins :] for each in agent.critic if len(each) > agent.twins]


def leaves(state, name=""):
    """Give all numbers and tensors of a state by their path."""
    if isinstance(state, dict | list | tuple):
        found = {}
        for key, each in state.items() if isinstance(state, dict) else enumerate(state):
            found |= leaves(each, f"{name}.{key}")
        return found
    return {name: state}


def assert_same_state(one, other):
    """Bit for bit, and with nothing that the other has not."""
    mine, theirs = leaves(one), leaves(other)
    assert mine.keys() == theirs.keys()
    for name, each in mine.items():
        if isinstance(each, torch.Tensor):
            assert each.dtype == theirs[name].dtype, name
            assert torch.equal(each, theirs[name]), name
        else:
            assert each == theirs[name], name
