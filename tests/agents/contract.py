"""What all agents promise, told apart by as little as can be: how one is made, and what it learns from."""

import dataclasses
from typing import ClassVar

import torch

from vcse.agents.a2c.agent import A2C, A2CSpec
from vcse.agents.a2c.settings import A2CSettings
from vcse.agents.drqv2.agent import NOISE_SAMPLES, SHIFT_SAMPLES, DrQv2, DrQv2Spec
from vcse.agents.drqv2.settings import DrQv2Settings
from vcse.agents.mwm.agent import MWM, MWMSpec
from vcse.agents.mwm.settings import MWMSettings
from vcse.agents.sac.agent import ACTION_SAMPLES, SAC, SACSpec
from vcse.agents.sac.settings import SACSettings
from vcse.bonuses.registry import BonusChoice
from vcse.nets.random_shift import SHIFTS
from vcse.replay.images import Between, ImageBatch
from vcse.replay.rollouts import Rollout
from vcse.replay.sequences import SequenceBatch
from vcse.replay.transitions import Batch

BONUSES = ("none", "se", "vcse", "se-matched")
OF_TRANSITIONS, OF_ROLLOUTS = ("rnd", "icm"), ("rnd", "icm", "counts")


def together(parts):
    """Put what several learners have side by side."""
    kind = type(parts[0])
    return kind(*(None if each[0] is None else torch.cat(each) for each in zip(*parts, strict=True)))


class CohortKind:
    """Agents with many learners."""

    def state(self, agent):
        return agent.learner_state(0)

    def load(self, agent, state):
        agent.load_learner_state(0, state)


class A2CKind(CohortKind):
    """A2C with few environments and steps, on grids of few different observations."""

    spec = A2CSpec((7, 7, 3), 7)
    mismatch = ("environments", 2)
    bonuses = (*BONUSES, *OF_ROLLOUTS)

    def config(self, bonus, **changes):
        config = A2CSettings(BonusChoice(bonus, "release-a2c", 5 if bonus == "se" else 3), environments=4)
        # Where learners are compared whose bonus differs, a common bound of the gradient would mix their parts.
        return dataclasses.replace(config, most_gradient_norm=1e9, **changes)

    def make(self, configs, seeds):
        return A2C(self.spec, configs, seeds)

    def material(self, seed):
        generator = torch.Generator().manual_seed(seed)
        shape = (1, 4, 8)
        seen = self.seen(generator)
        ended = torch.rand(shape, generator=generator) < 0.2
        return Rollout(
            observations=seen[torch.randint(0, 20, (1, 4, 9), generator=generator)],
            actions=torch.randint(0, 7, shape, generator=generator),
            rewards=torch.rand(shape, generator=generator) * ended,
            terminated=ended,
            truncated=torch.zeros_like(ended),
            positions=torch.randint(1, 6, (*shape, 2), generator=generator).float(),
            next_observations=seen[torch.randint(0, 20, shape, generator=generator)],
        )

    def seen(self, generator):
        """Return twenty different observations."""
        return torch.randint(0, 11, (20, 7, 7, 3), dtype=torch.uint8, generator=generator)

    def update(self, agent, seeds):
        return agent.update(together([self.material(seed) for seed in seeds])).metrics

    def act(self, agent, seeds):
        rollout = together([self.material(seed) for seed in seeds])
        chance = [torch.rand(1, 4, generator=torch.Generator().manual_seed(seed)) for seed in seeds]
        return agent.act(rollout.observations[:, :, 0], torch.cat(chance))

    def policy(self, agent):
        return [agent.parameters]

    def extrinsic(self, agent):
        return [agent.extrinsic_parameters] if len(agent.extrinsic_parameters) else []


class A2CStatesKind(A2CKind):
    """A2C from states, which are their own features."""

    spec = A2CSpec((5,), 7, "state")
    bonuses = BONUSES

    def seen(self, generator):
        return torch.randn(20, *self.spec.observation_shape, generator=generator)


class A2CLongStatesKind(A2CStatesKind):
    """A2C from states that are too long for that."""

    spec = A2CSpec((70,), 7, "state")


class A2CImagesKind(A2CKind):
    """A2C from images."""

    spec = A2CSpec((38, 40, 3), 7, "image")
    bonuses = BONUSES

    def seen(self, generator):
        return torch.randint(0, 256, (20, 38, 40, 3), dtype=torch.uint8, generator=generator)


class SACKind(CohortKind):
    """SAC with small networks, on random transitions."""

    spec = SACSpec(5, 2)
    mismatch = ("batch_size", 32)
    bonuses = (*BONUSES, *OF_TRANSITIONS)

    def config(self, bonus, **changes):
        temperature = "learned" if bonus == "none" else 0.001
        config = SACSettings(BonusChoice(bonus, "release-sac", 12), temperature=temperature)
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
            next_observations=torch.randn(*shape, 5, generator=generator),
        )

    def noise(self, seed, *, size=48):
        return torch.randn(1, ACTION_SAMPLES, size, 2, generator=torch.Generator().manual_seed(seed + 10_000))

    def update(self, agent, seeds):
        batch = together([self.material(seed) for seed in seeds])
        return agent.update(batch, torch.cat([self.noise(seed) for seed in seeds])).metrics

    def act(self, agent, seeds):
        batch = together([self.material(seed) for seed in seeds])
        return agent.act(batch.observations, torch.cat([self.noise(seed)[:, 0] for seed in seeds]))

    def policy(self, agent):
        return list(agent.actor.parameters())

    def extrinsic(self, agent):
        rows = agent.critic.extrinsic_rows
        return [each[rows] for each in agent.critic.parameters() if len(each) > rows.start]


class DrQv2Kind:
    """DrQ-v2 with one learner and small networks behind its encoder, on random images."""

    spec = DrQv2Spec(9, 2)
    bonuses = (*BONUSES, "rnd")

    def config(self, bonus, **changes):
        small = {"hidden_units": 16, "features": 8, "batch_size": 6, **changes}
        return DrQv2Settings(BonusChoice(bonus, "release-drqv2", 3), **small)

    def make(self, configs, seeds):
        [config], [seed] = configs, seeds
        return DrQv2(self.spec, config, seed)

    def material(self, seed, *, size=6, steps_between=0):
        generator = torch.Generator().manual_seed(seed)

        def images(*shape):
            return torch.randint(0, 256, (*shape, size, 9, 84, 84), dtype=torch.uint8, generator=generator)

        def numbers(*shape):
            return torch.rand(*shape, size, generator=generator)

        ended = (numbers() < 0.2).float()
        between = Between(images(steps_between), numbers(steps_between), 0.5 + numbers(steps_between) / 2)
        return ImageBatch(
            observations=images(),
            actions=2 * torch.rand(size, 2, generator=generator) - 1,
            rewards=3 * numbers(),
            first_rewards=numbers(),
            discounts=0.99**3 * (1 - ended),
            next_observations=images(),
            one_step_observations=images(),
            between=between if steps_between else None,
        )

    def noise(self, seed, *, size=6):
        return torch.randn(NOISE_SAMPLES, size, 2, generator=torch.Generator().manual_seed(seed + 10_000))

    def shifts(self, seed, *, size=6):
        generator = torch.Generator().manual_seed(seed + 20_000)
        return torch.randint(SHIFTS, (SHIFT_SAMPLES, size, 2), generator=generator)

    def update(self, agent, seeds):
        [seed] = seeds
        return agent.update(self.material(seed), self.noise(seed), self.shifts(seed), step=2 * agent.updates).metrics

    def act(self, agent, seeds):
        [seed] = seeds
        return agent.act(self.material(seed).observations, self.noise(seed)[0], step=2 * agent.updates)

    def policy(self, agent):
        return [*agent.encoder.parameters(), *agent.actor.parameters()]

    def extrinsic(self, agent):
        if agent.extrinsic_critic is None:
            return []
        return list(agent.extrinsic_critic.parameters())

    def state(self, agent):
        return agent.state_dict()

    def load(self, agent, state):
        agent.load_state_dict(state)


class MWMKind:
    """MWM with one learner and small networks, on random images."""

    spec = MWMSpec(2)
    bonuses = (*BONUSES, "rcse", "rnd")
    small: ClassVar = {
        "image_size": 16,
        "batch_size": 4,
        "sequence_length": 5,
        "autoencoder_batch_size": 3,
        "autoencoder_sequence_length": 4,
        "horizon": 4,
        "token_dimensions": 16,
        "encoder_blocks": 1,
        "decoder_blocks": 1,
        "model_dimensions": 16,
        "model_blocks": 1,
        "heads": 2,
        "deterministic": 8,
        "variables": 3,
        "classes": 4,
        "hidden_units": 12,
        "projection_size": 6,
        "precision": "float32",
        # A common bound of the gradient would let the bonus' head, where there is one, change the world model's step.
        "most_gradient_norm": 1e9,
    }

    def config(self, bonus, **changes):
        return MWMSettings(BonusChoice(bonus, "release-mwm", 3), **{**self.small, **changes})

    def make(self, configs, seeds):
        [config], [seed] = configs, seeds
        return MWM(self.spec, config, seed)

    def material(self, seed, *, sequences=4, length=5):
        generator = torch.Generator().manual_seed(seed)
        shape, side = (sequences, length), self.small["image_size"]
        is_first = (torch.arange(length) == 0).expand(shape)
        actions = 2 * torch.rand(*shape, self.spec.action_size, generator=generator) - 1
        return SequenceBatch(
            images=torch.randint(0, 256, (*shape, 3, side, side), dtype=torch.uint8, generator=generator),
            actions=actions,
            rewards=3 * torch.rand(shape, generator=generator),
            is_first=is_first,
        )

    def images(self, seed, count=4):
        return self.material(seed, sequences=count).images[:, 0]

    def uniforms(self, seed, count=4):
        generator = torch.Generator().manual_seed(seed + 10_000)
        sizes = self.small["variables"], self.spec.action_size
        return [torch.rand(count, size, generator=generator) for size in sizes]

    def update(self, agent, seeds):
        [seed] = seeds
        metrics = agent.update_autoencoder(self.material(seed + 500, sequences=3, length=4))
        return agent.update(self.material(seed)).metrics | metrics

    def act(self, agent, seeds):
        [seed] = seeds
        return agent.act(self.images(seed), agent.acting_policy.initial_state(4), *self.uniforms(seed))[0]

    def policy(self, agent):
        return list(agent.policy.parameters())

    def extrinsic(self, agent):
        return [] if agent.extrinsic_critic is None else list(agent.extrinsic_critic.parameters())

    def state(self, agent):
        return agent.state_dict()

    def load(self, agent, state):
        agent.load_state_dict(state)


def leaves(state, name=""):
    """Return all numbers and tensors of a state by their path."""
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
