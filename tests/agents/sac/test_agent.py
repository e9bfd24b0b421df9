import copy
import dataclasses
import math

import pytest
import torch
from agents.contract import SACKind
from torch import nn
from torch.distributions import Normal
from torch.distributions.transforms import TanhTransform

from vcse.agents.sac.agent import ACTION_SAMPLES, SAC, SACSpec
from vcse.agents.sac.settings import SACSettings
from vcse.bonuses.registry import BonusChoice
from vcse.estimators import kth_neighbor_distance, state_entropy_reward, value_conditional_reward
from vcse.replay.transitions import Batch, TransitionReplay, distinct_places, uniforms_for

KIND = SACKind()
NONE, SE, VCSE, RCSE, MATCHED = (KIND.config(bonus) for bonus in ("none", "se", "vcse", "rcse", "se-matched"))
# With the release's rates little happens in three updates; with these, mistakes show.
FAST = {"learning_rate": 3e-3, "target_rate": 0.3, "beta": 0.5}


class PlainSAC:
    """One learner in plain PyTorch, written from the description of the algorithm, without a learner axis."""

    def __init__(self, agent, config):
        self.config, self.updates = config, 0
        self.actor = self.network(agent.actor.mlp.layers, 0)
        self.critics = [self.network(agent.critic.mlp.layers, row) for row in range(2)]
        self.extrinsic = [
            self.network(agent.critic.mlp.layers, row) for row in range(2, len(agent.critic.mlp.layers[0]))
        ]
        self.targets, self.extrinsic_targets = copy.deepcopy((self.critics, self.extrinsic))
        begin = config.initial_temperature if config.temperature == "learned" else config.temperature
        self.log_temperature = nn.Parameter(torch.tensor(math.log(begin)))
        networks = nn.ModuleList(self.critics + self.extrinsic)
        self.adams = [
            torch.optim.Adam(parameters, lr=config.learning_rate)
            for parameters in (networks.parameters(), self.actor.parameters(), [self.log_temperature])
        ]

    @staticmethod
    def network(layers, row):
        """Build a network of PyTorch's own layers with the parameters of one row of a stack."""
        linears = []
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            linear = nn.Linear(*weight.shape[1:])
            linear.weight.data, linear.bias.data = weight[row].detach().T.clone(), bias[row].detach().clone()
            linears += [linear, nn.ReLU()]
        return nn.Sequential(*linears[:-1])

    def policy(self, states):
        mean, unbounded = self.actor(states).chunk(2, -1)
        return Normal(mean, torch.exp(-5 + 3.5 * (unbounded.tanh() + 1)))

    def sample(self, policy, noise):
        before = policy.loc + policy.scale * noise
        action = before.tanh()
        log_probability = policy.log_prob(before) - TanhTransform().log_abs_det_jacobian(before, action)
        return action, log_probability.sum(-1)

    @staticmethod
    def lower(critics, states, actions):
        one, other = (critic(torch.cat((states, actions), -1))[:, 0] for critic in critics)
        return torch.minimum(one, other)

    def bonus(self, batch):
        """Return the release's reward of each state, which is divided by its dimension."""
        states, k = batch.observations / batch.observations.shape[-1], self.config.bonus.k
        match self.config.bonus.name:
            case "none":
                return torch.zeros_like(batch.rewards)
            case "se":
                reward = state_entropy_reward(states, k=k, reading="release-sac")
                return reward / (reward.mean() + 1 / (self.updates + 1))  # the release's wrong running mean
            case "se-matched":
                return torch.log(2 * kth_neighbor_distance(states, k=k, self_in_k=True) + 1e-5)
            case "rcse":
                condition = batch.rewards
            case "vcse":
                critics = self.extrinsic_targets if self.config.value_critic == "target" else self.extrinsic
                condition = self.lower(critics, batch.observations, self.policy(batch.observations).loc.tanh())
        standard = (condition - condition.mean()) / (condition.var(correction=0) + 1e-5).sqrt()
        return value_conditional_reward(states, standard, k=k, reading="release-sac")

    def update(self, batch, noise):
        config, alpha = self.config, self.log_temperature.exp().item()
        states, goes_on = batch.observations, config.discount * (1 - batch.terminated)
        with torch.no_grad():
            policy = self.policy(batch.next_observations)
            action, log_probability = self.sample(policy, noise[0])
            soft = self.lower(self.targets, batch.next_observations, action) - alpha * log_probability
            joining = config.beta * self.bonus(batch) - config.step_cost
            target = batch.rewards + joining + goes_on * soft
            action, log_probability = self.sample(policy, noise[1])
            if self.extrinsic:
                value = self.lower(self.extrinsic_targets, batch.next_observations, action)
                if config.extrinsic_entropy:
                    value = value - alpha * log_probability
                extrinsic_target = batch.rewards + goes_on * value

        def errors(critics, wanted):
            inputs = torch.cat((states, batch.actions), -1)
            return sum((critic(inputs)[:, 0] - wanted).square().mean() for critic in critics)

        critic_loss = errors(self.critics, target)
        extrinsic_loss = errors(self.extrinsic, extrinsic_target) if self.extrinsic else torch.zeros(())
        self.step(0, critic_loss + extrinsic_loss)

        action, log_probability = self.sample(self.policy(states), noise[2])
        actor_loss = (alpha * log_probability - self.lower(self.critics, states, action)).mean()
        self.step(1, actor_loss)
        if config.temperature == "learned":
            lacking = -log_probability.detach() + batch.actions.shape[-1]
            self.step(2, (self.log_temperature.exp() * lacking).mean())

        if self.updates % config.target_every_updates == 0:
            pairs = zip(self.targets + self.extrinsic_targets, self.critics + self.extrinsic, strict=True)
            for slow, fast in pairs:
                for mine, theirs in zip(slow.parameters(), fast.parameters(), strict=True):
                    mine.data += config.target_rate * (theirs.data - mine.data)
        self.updates += 1
        return {
            "batch_reward": batch.rewards.mean(),
            "critic_loss": critic_loss,
            "extrinsic_critic_loss": extrinsic_loss,
            "actor_loss": actor_loss,
            "policy_entropy": -log_probability.mean(),
            "temperature": torch.tensor(alpha),
        }

    def step(self, number, loss):
        for adam in self.adams:
            adam.zero_grad()
        loss.backward()
        self.adams[number].step()


def off(networks, layers):
    """Return how far networks are from a stack of the same ones."""
    found = []
    for row, network in enumerate(networks):
        for number, parameter in enumerate(network.parameters()):
            theirs = layers[number][row].detach()
            found.append((parameter.detach() - (theirs.T if theirs.ndim == 2 else theirs)).abs().flatten())
    return torch.cat(found)


@pytest.mark.parametrize(
    "config",
    [
        dataclasses.replace(NONE, learning_rate=1e-4),
        dataclasses.replace(NONE, **FAST),
        dataclasses.replace(NONE, **FAST, temperature=0.2),
        dataclasses.replace(SE, **FAST),
        dataclasses.replace(VCSE, **FAST),
        dataclasses.replace(VCSE, **FAST, temperature="learned"),
        dataclasses.replace(VCSE, **FAST, value_critic="online"),
        dataclasses.replace(VCSE, **FAST, temperature=0.2, extrinsic_entropy=True),
        dataclasses.replace(RCSE, **FAST),
        dataclasses.replace(MATCHED, **FAST),
        dataclasses.replace(NONE, **FAST, step_cost=0.3),
        dataclasses.replace(VCSE, **FAST, step_cost=0.3),
    ],
    ids=[
        "none with the release's rates",
        "none",
        "none with a fixed temperature",
        "se",
        "vcse",
        "vcse with a learned temperature",
        "online",
        "extrinsic entropy",
        "rcse",
        "se-matched",
        "step cost",
        "vcse and step cost",
    ],
)
def test_three_updates_are_those_of_a_plain_learner_with_pytorchs_own_layers(config):
    agent = SAC(KIND.spec, [config], [3])
    plain = PlainSAC(agent, config)
    for seed in range(3):
        batch, noise = KIND.material(seed), KIND.noise(seed)
        metrics = agent.update(batch, noise).metrics
        for name, number in plain.update(Batch(*(each[0] for each in batch)), noise[0]).items():
            torch.testing.assert_close(metrics[name][0], number.detach(), rtol=1e-3, atol=1e-5, msg=f"{name}, {seed}")
    # Adam's first steps are nearly signs of the gradient: parameters whose gradient is rounding noise may differ.
    stacks = {
        "actor": off([plain.actor], agent.actor.mlp.layers),
        "critics": off(plain.critics + plain.extrinsic, agent.critic.mlp.layers),
        "targets": off(plain.targets + plain.extrinsic_targets, agent.target_critic.mlp.layers),
    }
    for name, each in stacks.items():
        assert each.quantile(0.99) < 1e-5, name
        assert each.mean() < 1e-5, name
    assert agent.log_temperature.item() == pytest.approx(plain.log_temperature.item(), abs=1e-6)


def rows(layers, which):
    return [each[which].detach().clone() for each in layers]


def moved(before, after):
    return [not torch.equal(one, other) for one, other in zip(before, after, strict=True)]


@pytest.mark.parametrize("config", [NONE, VCSE], ids=["none", "vcse"])
def test_an_update_moves_every_layer_of_actor_and_critics_and_the_temperature_where_it_is_learned(config):
    agent = SAC(KIND.spec, [config], [0])
    before = [
        rows(each, slice(None))
        for each in (agent.actor.mlp.layers, agent.critic.mlp.layers, [agent.log_temperature[None]])
    ]
    KIND.update(agent, [0])
    after = [
        rows(each, slice(None))
        for each in (agent.actor.mlp.layers, agent.critic.mlp.layers, [agent.log_temperature[None]])
    ]
    assert all(moved(before[0], after[0]))
    for row in range(len(agent.critic.mlp.layers[0])):
        assert all(moved([each[row] for each in before[1]], [each[row] for each in after[1]]))
    assert moved(before[2], after[2]) == [config.temperature == "learned"]


def test_targets_go_part_of_the_way_to_the_critics_at_every_second_update_and_never_otherwise():
    configs = [dataclasses.replace(SE, target_rate=1.0), dataclasses.replace(VCSE, target_rate=0.25)]
    agent = SAC(KIND.spec, configs, [0, 1])
    assert all(torch.equal(*each) for each in zip(agent.target_critic.mlp.layers, agent.critic.mlp.layers, strict=True))
    for update in range(4):
        before = rows(agent.target_critic.mlp.layers, slice(None))
        KIND.update(agent, [update, update])
        if update % 2 == 1:
            assert not any(moved(before, agent.target_critic.mlp.layers))
            continue
        for old, new, critic in zip(before, agent.target_critic.mlp.layers, agent.critic.mlp.layers, strict=True):
            for row, rate in enumerate([1, 1, 0.25, 0.25, 0.25, 0.25]):
                torch.testing.assert_close(new[row], old[row] + rate * (critic[row].detach() - old[row]))


def test_only_vcse_has_an_extrinsic_critic_behind_the_twins_of_all():
    networks = {
        config.bonus.name: len(SAC(KIND.spec, [config], [0]).critic.mlp.layers[0])
        for config in (NONE, SE, RCSE, MATCHED)
    }
    assert networks == {"none": 2, "se": 2, "rcse": 2, "se-matched": 2}
    assert len(SAC(KIND.spec, [NONE, VCSE, SE, VCSE], range(4)).critic.mlp.layers[0]) == 4 * 2 + 2 * 2


def test_a_terminated_transition_is_worth_its_reward_alone():
    config = dataclasses.replace(NONE, learning_rate=3e-3)
    batch, noise = KIND.material(0), KIND.noise(0)
    ended = batch._replace(terminated=torch.ones_like(batch.terminated))
    elsewhere = ended._replace(next_observations=ended.next_observations + 5)
    critics = []
    for each in (ended, elsewhere, elsewhere._replace(terminated=torch.zeros_like(batch.terminated))):
        agent = SAC(KIND.spec, [config], [0])
        agent.update(each, noise)
        critics.append(rows(agent.critic.mlp.layers, slice(None)))
    assert not any(moved(critics[0], critics[1]))
    assert any(moved(critics[0], critics[2]))


def test_actions_are_drawn_from_the_policy_and_without_noise_are_its_mean():
    agent = SAC(KIND.spec, [NONE], [0])
    states = KIND.material(0).observations
    plain = PlainSAC(agent, NONE)
    policy = plain.policy(states[0])
    torch.testing.assert_close(agent.act(states, None)[0], policy.loc.tanh().detach())
    noise = KIND.noise(0)[:, 0]
    drawn = agent.act(states, noise)
    torch.testing.assert_close(drawn[0], (policy.loc + policy.scale * noise[0]).tanh().detach())
    assert drawn.abs().max() < 1


def test_a_policy_alone_comes_from_the_state_of_any_learner():
    trained = SAC(KIND.spec, [VCSE, SE], [0, 1])
    KIND.update(trained, [0, 1])
    loaded = SAC(KIND.spec, [NONE], [9])
    loaded.load_policy(0, trained.learner_state(1))
    states = KIND.material(3).observations
    assert torch.equal(loaded.act(states, None)[0], trained.act(torch.cat((states, states)), None)[1])


@pytest.mark.parametrize("name", SAC.SHARED_SETTINGS)
def test_learners_that_differ_in_what_a_cohort_shares_are_refused(name):
    other = dataclasses.replace(NONE, **{name: 2 * getattr(NONE, name)})
    with pytest.raises(ValueError, match=f"learners of one cohort must have the same {name}, got"):
        SAC(KIND.spec, [NONE, other], [0, 1])


class Point:
    """A point in a square that should go to the origin, and is paid for being near."""

    steps, reach = 20, 0.25

    def __init__(self, seed):
        self.generator = torch.Generator().manual_seed(seed)

    def begin(self, count):
        return 2 * torch.rand(count, 2, generator=self.generator) - 1

    def move(self, places, actions):
        next_observations = (places + self.reach * actions).clamp(-1, 1)
        return next_observations, 1 - next_observations.norm(dim=-1)

    def mean_reward(self, choose, episodes=64):
        """Return the reward of a step, over whole episodes."""
        places, total = self.begin(episodes), 0.0
        for _ in range(self.steps):
            places, rewards = self.move(places, choose(places))
            total += rewards.mean().item() / self.steps
        return total


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("bonus", ["none", "vcse"])
def test_it_learns_to_bring_a_point_to_the_origin(bonus):
    frames, random_frames, size = 500, 100, 64
    config = SACSettings(
        BonusChoice(bonus, "release-sac", 12),
        beta=0.02,
        temperature="learned" if bonus == "none" else 0.001,
        hidden_units=32,
        batch_size=size,
        learning_rate=3e-3,
        discount=0.9,
        target_rate=0.05,
        target_every_updates=1,
    )
    agent, point, generator = SAC(SACSpec(2, 2), [config], [0]), Point(0), torch.Generator().manual_seed(1)
    replay = TransitionReplay(
        learners=1, capacity=frames, observation_size=2, action_size=2, batch_size=size, device="cpu"
    )
    ended = torch.zeros(1, dtype=torch.bool)  # a time limit is no end
    for frame in range(frames):
        if frame % point.steps == 0:
            places = point.begin(1)
        noise = torch.randn(1, 1, 2, generator=generator)
        actions = agent.act(places[None], noise)[0] if frame >= random_frames else point.begin(1)
        next_observations, rewards = point.move(places, actions)
        replay.add(places, actions, rewards, ended, next_observations)
        places = next_observations
        if frame >= random_frames:
            uniforms = torch.rand(1, uniforms_for(size), dtype=torch.float64, generator=generator)
            batch = replay.sample(distinct_places(uniforms, replay.size, size))
            agent.update(batch, torch.randn(1, ACTION_SAMPLES, size, 2, generator=generator))
    by_chance = point.mean_reward(lambda places: point.begin(len(places)))
    straight = point.mean_reward(lambda places: (-places / point.reach).clamp(-1, 1))
    learned = point.mean_reward(lambda places: agent.act(places[None], None)[0])
    assert by_chance < 0.4
    assert straight > 0.85
    assert learned > 0.8 * straight, (by_chance, learned, straight)
