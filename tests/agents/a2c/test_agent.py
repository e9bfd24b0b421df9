import dataclasses

import pytest
import torch
from torch import nn

from vcse.agents.a2c.agent import A2C, A2CSpec
from vcse.agents.a2c.settings import A2CSettings
from vcse.bonuses.registry import BonusChoice
from vcse.estimators import value_conditional_reward
from vcse.replay.rollouts import Rollout

SPEC = A2CSpec((7, 7, 3), 7)
NONE = A2CSettings(BonusChoice("none", "release-a2c", 3))
VCSE = A2CSettings(BonusChoice("vcse", "release-a2c", 3))
SE = A2CSettings(BonusChoice("se", "release-a2c", 5))
MATCHED = A2CSettings(BonusChoice("se-matched", "release-a2c", 3))


def make_rollout(seed, learners=1, *, next_observations=False, environments=16, steps=8):
    """Few different observations, so that there are duplicates, and a few ends of both kinds."""
    generator = torch.Generator().manual_seed(seed)
    shape = (environments, steps)
    seen = torch.randint(0, 11, (20, 7, 7, 3), dtype=torch.uint8, generator=generator)
    which = torch.randint(0, 20, (environments, steps + 1), generator=generator)
    ended = torch.rand(shape, generator=generator) < 0.2
    terminated = ended & (torch.rand(shape, generator=generator) < 0.5)
    elsewhere = torch.randint(0, 20, shape, generator=generator)
    one = Rollout(
        observations=seen[which],
        actions=torch.randint(0, 7, shape, generator=generator),
        rewards=torch.rand(shape, generator=generator) * terminated,
        terminated=terminated,
        truncated=ended & ~terminated,
        positions=torch.randint(1, 6, (*shape, 2), generator=generator).float(),
        next_observations=seen[torch.where(ended, elsewhere, which[:, 1:])] if next_observations else None,
    )
    return Rollout(*(None if each is None else torch.stack([each] * learners) for each in one))


def stack(rollouts):
    return Rollout(*(None if each[0] is None else torch.cat(each) for each in zip(*rollouts, strict=True)))


def names_of(module, name):
    """Return a module's parameters by names without dots."""
    return {f"{name}_{key.replace('.', '_')}": each for key, each in module.named_parameters()}


def named(agent):
    """Return all parameters of an agent by name."""
    parts = {"encoder": agent.encoder, "actor": agent.actor, "critic": agent.critic}
    parts |= {} if agent.extrinsic_critic is None else {"extrinsic_critic": agent.extrinsic_critic}
    return {key: each for name, module in parts.items() for key, each in names_of(module, name).items()}


class PlainA2C(nn.Module):
    """One learner in plain PyTorch, written from the description of the algorithm, without a learner axis."""

    def __init__(self, agent, learner):
        super().__init__()
        self.pieces = nn.ParameterDict({name: each[learner].detach().clone() for name, each in named(agent).items()})

    def encode(self, observations, pieces):
        hidden = observations.flatten(0, -4).permute(0, 3, 1, 2).float()
        for number in (0, 1, 2):
            weight = pieces[f"encoder_convolutions_{number}_weight"]
            kernel = weight.view(2, 2, -1, weight.shape[-1]).permute(3, 2, 0, 1)
            hidden = nn.functional.conv2d(hidden, kernel, pieces[f"encoder_convolutions_{number}_bias"]).relu()
            if number == 0:
                hidden = nn.functional.max_pool2d(hidden, 2)
        return hidden.flatten(1).view(*observations.shape[:-3], -1)

    def head(self, name, features):
        hidden = features @ self.pieces[f"{name}_hidden_0_weight"] + self.pieces[f"{name}_hidden_0_bias"]
        return hidden.tanh() @ self.pieces[f"{name}_output_weight"] + self.pieces[f"{name}_output_bias"]

    def loss(self, rollout, config, random_pieces):
        features = self.encode(rollout.observations, self.pieces)
        critic, extrinsic = self.head("critic", features)[..., 0], None
        advantages = self.advantages(rollout, critic.detach(), rollout.rewards, config)
        loss = 0
        if config.has_extrinsic_critic:
            extrinsic = self.head("extrinsic_critic", features.detach())[..., 0]
            target = self.advantages(rollout, extrinsic.detach(), rollout.rewards, config) + extrinsic[:, :-1].detach()
            loss = 0.5 * (extrinsic[:, :-1] - target).square().mean()
        joining = torch.full_like(rollout.rewards, -config.step_cost)
        if config.has_bonus:
            states = self.encode(rollout.observations[:, :-1], random_pieces).flatten(0, 1)
            values = extrinsic[:, :-1].detach().flatten()
            values = (values - values.mean()) / (values.var(correction=0) + 1e-5).sqrt()
            bonus = config.beta * value_conditional_reward(states, values, k=3, reading="release-a2c")
            joining = joining + bonus.view(rollout.rewards.shape)
        if config.injection == "reward":
            advantages = self.advantages(rollout, critic.detach(), rollout.rewards + joining, config)
        else:
            advantages = advantages + joining
        returns = advantages + critic[:, :-1].detach()
        policy = torch.distributions.Categorical(logits=self.head("actor", features[:, :-1]))
        loss = loss - (policy.log_prob(rollout.actions) * advantages).mean() - 0.01 * policy.entropy().mean()
        return loss + 0.5 * (critic[:, :-1] - returns).square().mean()

    def advantages(self, rollout, values, rewards, config):
        advantages = torch.zeros_like(rewards)
        for environment in range(rewards.shape[0]):
            advantage = 0.0
            for t in reversed(range(rewards.shape[1])):
                terminated = bool(rollout.terminated[environment, t])
                truncated = bool(rollout.truncated[environment, t])
                next_value = values[environment, t + 1]
                if truncated and config.time_limit == "bootstraps":
                    next_observations = self.encode(rollout.next_observations[environment, t][None], self.pieces)
                    next_value = self.head("critic", next_observations)[0, 0].detach()
                elif terminated or truncated:
                    next_value = 0.0
                delta = rewards[environment, t] + 0.99 * next_value - values[environment, t]
                advantage = delta + (0.0 if terminated or truncated else 0.99 * 0.95 * advantage)
                advantages[environment, t] = advantage
        return advantages


@pytest.mark.parametrize(
    "config",
    [
        NONE,
        VCSE,
        dataclasses.replace(VCSE, injection="reward"),
        dataclasses.replace(NONE, time_limit="bootstraps"),
        dataclasses.replace(VCSE, beta=0.5),
        dataclasses.replace(NONE, step_cost=0.02, injection="reward"),
        dataclasses.replace(NONE, step_cost=0.02),
        dataclasses.replace(VCSE, step_cost=0.02),
        dataclasses.replace(VCSE, step_cost=0.02, injection="reward"),
    ],
    ids=[
        *("none", "vcse", "reward", "bootstraps", "large beta"),
        *("cost in the reward", "cost after GAE", "vcse and cost", "vcse and cost in the reward"),
    ],
)
def test_three_updates_are_those_of_a_plain_learner_with_pytorchs_own_optimiser(config):
    agent = A2C(SPEC, [config], [3])
    plain = PlainA2C(agent, 0)
    random_pieces = None
    if agent.random_encoder is not None:
        random_pieces = {name: each[0] for name, each in names_of(agent.random_encoder.encoder, "encoder").items()}
    optimizer = torch.optim.RMSprop(plain.parameters(), lr=1e-3, alpha=0.99, eps=1e-8)
    for seed in range(3):
        rollout = make_rollout(seed, next_observations=config.time_limit == "bootstraps")
        agent.update(rollout)
        loss = plain.loss(Rollout(*(None if each is None else each[0] for each in rollout)), config, random_pieces)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(plain.parameters(), 0.5)
        optimizer.step()
    # RMSprop's first steps are nearly signs of the gradient: parameters whose gradient is rounding noise may differ.
    off = torch.cat([(plain.pieces[name] - each[0]).abs().flatten() for name, each in named(agent).items()])
    assert off.quantile(0.99) < 2e-5
    assert off.mean() < 2e-5


def test_learners_are_bit_equal_alone_and_in_a_cohort_of_others():
    configs = [NONE, SE, VCSE, MATCHED, dataclasses.replace(VCSE, injection="reward", beta=0.01)] * 3 + [NONE]
    together = A2C(SPEC, configs, list(range(16)))
    alone = [A2C(SPEC, [config], [seed]) for seed, config in enumerate(configs)]
    uniforms = torch.rand(16, 16, generator=torch.Generator().manual_seed(0))
    for update in range(4):
        rollouts = [make_rollout(100 * update + seed) for seed in range(16)]
        metrics = together.update(stack(rollouts)).metrics
        actions = together.act(stack(rollouts).observations[:, :, 0], uniforms)
        for seed, agent in enumerate(alone):
            mine = agent.update(rollouts[seed]).metrics
            assert all(torch.equal(mine[name][0], metrics[name][seed]) for name in mine), (update, seed)
            own = agent.act(rollouts[seed].observations[:, :, 0], uniforms[seed : seed + 1])
            assert torch.equal(own[0], actions[seed])
    for seed, agent in enumerate(alone):
        mine, theirs = agent.learner_state(0), together.learner_state(seed)
        assert mine.keys() == theirs.keys()
        for name in mine.keys() - {"bonus", "remembered"}:
            assert torch.equal(mine[name], theirs[name]), (seed, name)
        for name, remembered in mine.get("remembered", {}).items():
            assert torch.equal(remembered, theirs["remembered"][name]), (seed, name)
        for name, entry in mine.get("bonus", {}).items():
            same = (
                torch.equal(entry, theirs["bonus"][name]) if torch.is_tensor(entry) else entry == theirs["bonus"][name]
            )
            assert same, (seed, name)


@pytest.mark.parametrize("config", [NONE, SE, VCSE, MATCHED], ids=["none", "se", "vcse", "se-matched"])
def test_saved_loaded_and_continued_equals_not_stopping(config):
    agent = A2C(SPEC, [config, config], [0, 1])
    for update in range(3):
        agent.update(make_rollout(update, 2))
    other = A2C(SPEC, [config, config], [7, 8])
    other.load_state_dict(agent.state_dict())
    for update in range(3, 6):
        agent.update(make_rollout(update, 2))
        other.update(make_rollout(update, 2))
    assert torch.equal(agent.parameters, other.parameters)
    assert torch.equal(agent.squares, other.squares)


def test_the_extrinsic_critic_does_not_see_the_bonus():
    agents = [A2C(SPEC, [dataclasses.replace(VCSE, beta=beta, most_gradient_norm=1e9)], [0]) for beta in (0.0, 10.0)]
    losses = [agent.update(make_rollout(0)).metrics["extrinsic_value_loss"] for agent in agents]
    assert torch.equal(losses[0], losses[1])
    assert torch.equal(agents[0].extrinsic_parameters, agents[1].extrinsic_parameters)
    assert not torch.equal(agents[0].parameters, agents[1].parameters)


def test_the_extrinsic_critic_sends_no_gradient_to_anybody_else():
    plain = A2C(SPEC, [dataclasses.replace(NONE, most_gradient_norm=1e9)], [0])
    kept = A2C(SPEC, [dataclasses.replace(NONE, most_gradient_norm=1e9, keep_extrinsic_critic=True)], [0])
    before = kept.extrinsic_parameters.clone()
    for agent in (plain, kept):
        agent.update(make_rollout(0))
    assert not len(plain.extrinsic_parameters)
    assert torch.equal(plain.parameters, kept.parameters)
    assert not torch.equal(before, kept.extrinsic_parameters)


def test_an_update_moves_every_layer_but_not_the_random_encoder():
    agent = A2C(SPEC, [VCSE], [0])
    before = {name: each.detach().clone() for name, each in named(agent).items()}
    encoder = agent.random_encoder.parameters.clone()
    agent.update(make_rollout(0))
    for name, each in named(agent).items():
        assert not torch.equal(each, before[name]), name
    assert torch.equal(agent.random_encoder.parameters, encoder)


def test_a_bonus_does_not_change_the_first_policy():
    agents = [A2C(SPEC, [config], [5]) for config in (NONE, VCSE)]
    assert torch.equal(agents[0].parameters, agents[1].parameters)


def test_given_values_take_the_place_of_the_extrinsic_critics():
    rollout = make_rollout(0)
    agents = [A2C(SPEC, [VCSE], [0]) for _ in range(3)]
    given = [None, torch.zeros(1, 16, 8), torch.randn(1, 16, 8, generator=torch.Generator().manual_seed(0))]
    bonuses = [agent.update(rollout, values).bonus for agent, values in zip(agents, given, strict=True)]
    radii = [bonus.parts[0][1].radius for bonus in bonuses]
    assert (radii[1] <= radii[0]).all()
    assert not torch.equal(radii[0], radii[2])


def test_actions_are_drawn_from_the_policy():
    agent = A2C(SPEC, [VCSE], [0])
    observation = make_rollout(0).observations[:, :1, 0]
    drawn = agent.act(
        observation.expand(1, 20_000, 7, 7, 3), torch.rand(1, 20_000, generator=torch.Generator().manual_seed(0))
    )
    shares = drawn[0].bincount(minlength=7) / 20_000
    probabilities = agent.action_probabilities(observation)[0, 0]
    torch.testing.assert_close(shares, probabilities, atol=0.015, rtol=0)
    assert agent.act(observation, None).item() == probabilities.argmax().item()
    assert agent.act(observation, torch.tensor([[1 - 2**-24]])).item() == 6


def test_position_features_take_the_place_of_the_encoder():
    agent = A2C(SPEC, [dataclasses.replace(VCSE, bonus_features="position")], [0])
    assert agent.random_encoder is None
    rollout = make_rollout(0)
    bonus = agent.update(rollout, torch.zeros(1, 16, 8)).bonus
    states = rollout.positions[0].flatten(0, 1)
    expected = value_conditional_reward(states, torch.zeros(128), k=3, reading="release-a2c")
    torch.testing.assert_close(bonus.reward[0], expected)


def test_a_cohort_of_different_shapes_is_refused():
    with pytest.raises(ValueError, match="same environments, got"):
        A2C(SPEC, [NONE, dataclasses.replace(NONE, environments=8)], [0, 1])
    with pytest.raises(ValueError, match="one seed per configuration, got 1 and 2"):
        A2C(SPEC, [NONE], [0, 1])


def test_how_well_the_critic_knows_exact_values_is_told_where_they_are_given():
    agent, rollout = A2C(SPEC, [VCSE, VCSE, VCSE], [0, 0, 1]), make_rollout(0, learners=3)
    assert "exact_value_rmse" not in agent.update(rollout).metrics
    seen = []

    def keep(rollout, condition):
        seen.append(condition)
        return None, torch.zeros_like(rollout.rewards)

    agent.weighted_bonus = keep
    unknown = torch.full((3, 16, 8), torch.nan)
    agent.update(rollout, unknown)
    guessed = seen[0]  # of the critic, which stands for exact values that are not there
    agent = A2C(SPEC, [VCSE, VCSE, VCSE], [0, 0, 1])
    agent.update(rollout)
    exact = unknown.clone()
    exact[0], exact[1] = guessed[0] + 0.5, -3 * guessed[1]
    told = agent.update(rollout, exact).metrics
    torch.testing.assert_close(told["exact_value_correlation"][:2], torch.tensor([1.0, -1.0]))
    assert told["exact_value_rmse"][0].item() == pytest.approx(0.5)
    assert told["exact_value_rmse"][1].item() == pytest.approx((4 * guessed[1]).square().mean().sqrt().item())
    assert told["exact_value_rmse"][2].isnan()
    assert told["exact_value_correlation"][2].isnan()
