import copy
import dataclasses

import jaxtyping
import pytest
import torch
from agents.contract import DrQv2Kind, assert_same_state
from torch import nn
from torch.nn import functional

from vcse.agents.drqv2.agent import NOISE_DRAWS, SHIFT_DRAWS, DrQv2, DrQv2Spec
from vcse.agents.drqv2.settings import DrQv2Settings
from vcse.bonuses.registry import BonusChoice
from vcse.estimators import kth_neighbor_distance, state_entropy_reward, value_conditional_reward
from vcse.nets.random_shift import PAD, SHIFTS
from vcse.replay.images import PictureBatch

KIND = DrQv2Kind()
NONE, SE, VCSE, RCSE, MATCHED = (KIND.config(bonus) for bonus in ("none", "se", "vcse", "rcse", "se-matched"))
# With the release's rates little happens in three updates; with these, mistakes show.
FAST = {"learning_rate": 1e-3, "target_rate": 0.3, "beta": 0.5}


class PlainDrQv2:
    """The learner in plain PyTorch, written from the description of the algorithm."""

    def __init__(self, agent, config):
        self.config = config
        self.encoder = copy.deepcopy(agent.encoder)
        self.actor = nn.Sequential(copy.deepcopy(agent.actor.trunk), self.head(agent.actor.head, 0), nn.Tanh())
        self.critic = self.twins(agent.critic.trunk, agent.critic.head)
        self.targets = copy.deepcopy(self.critic)
        self.extrinsic = self.extrinsic_targets = self.curiosity = None
        if agent.extrinsic_critic is not None:
            self.extrinsic = self.twins(agent.extrinsic_critic.trunk, agent.extrinsic_critic.head)
            self.extrinsic_targets = copy.deepcopy(self.extrinsic)
        if agent.curiosity is not None:
            self.curiosity = copy.deepcopy(agent.curiosity)
        networks = {
            "encoder": self.encoder,
            "actor": self.actor,
            "critic": self.critic,
            "extrinsic": self.extrinsic,
            "curiosity": self.curiosity,
        }
        self.networks = {name: network for name, network in networks.items() if network is not None}
        self.adams = {
            name: torch.optim.Adam(network.parameters(), lr=config.learning_rate)
            for name, network in self.networks.items()
        }
        self.bonuses = 0  # that were computed so far
        self.reward_scale = 1.0

    @staticmethod
    def head(layers, row):
        """Build a network of PyTorch's own layers with the parameters of one row of a stack."""
        linears = []
        for weight, bias in zip(layers[::2], layers[1::2], strict=True):
            linear = nn.Linear(*weight.shape[1:])
            linear.weight.data, linear.bias.data = weight[row].detach().T.clone(), bias[row].detach().clone()
            linears += [linear, nn.ReLU()]
        return nn.Sequential(*linears[:-1])

    def twins(self, trunk, layers):
        return nn.ModuleList([copy.deepcopy(trunk), self.head(layers, 0), self.head(layers, 1)])

    @staticmethod
    def both(critic, features, actions):
        trunk, *heads = critic
        inputs = torch.cat((trunk(features), actions), -1)
        return torch.stack([head(inputs)[:, 0] for head in heads])

    def lower(self, critic, features, actions):
        return self.both(critic, features, actions).min(0).values

    @staticmethod
    def augmented(pictures, shifts):
        """Pad by repeating the border, and cut out."""
        padded = functional.pad(pictures.float(), [PAD] * 4, mode="replicate").to(torch.uint8)
        side = pictures.shape[-1]
        cut = [
            picture[:, row : row + side, column : column + side]
            for picture, (row, column) in zip(padded, shifts.tolist(), strict=True)
        ]
        return torch.stack(cut)

    def noisy(self, features, noise, deviation):
        """Clipped noise on the mean; what is cut off at the border has the gradient of what is not."""
        action = self.actor(features) + (deviation * noise).clamp(-0.3, 0.3)
        with torch.no_grad():
            too_much = action - action.clamp(-1 + 1e-6, 1 - 1e-6)
        return action - too_much

    def bonus(self, features, rewards):
        """Give the release's reward of each state, from the features of the curiosity module."""
        name, k = self.config.bonus.name, self.config.bonus.k
        if name == "none":
            return torch.zeros(len(features))
        self.bonuses += 1
        known = self.curiosity.trunk(features)
        match name:
            case "se":
                reward = state_entropy_reward(known, k=k, reading="release-drqv2")
                return reward / (reward.mean() + 1 / self.bonuses)  # the release's wrong running mean
            case "se-matched":
                return torch.log(2 * kth_neighbor_distance(known, k=k, self_in_k=True) + 1e-5)
            case "rcse":
                condition = rewards
            case "vcse":
                critic = self.extrinsic_targets if self.config.value_critic == "target" else self.extrinsic
                condition = self.lower(critic, features, self.actor(features))
        standard = (condition - condition.mean()) / (condition.var(correction=0) + 1e-5).sqrt()
        return value_conditional_reward(known, standard, k=k, reading="release-drqv2")

    def update(self, batch, noise, shifts, step):
        config, size = self.config, self.config.batch_size
        first, last, steps = config.action_noise
        deviation = first + (last - first) * min(step / steps, 1)
        beta = config.beta * (1 - config.beta_decay) ** step if config.bonus.name != "none" else 0.0
        first_rewards, scale = batch.first_rewards, 1.0
        if config.normalize_reward:
            self.reward_scale = 0.99 * self.reward_scale + 0.01 * first_rewards[:size].abs().mean().item()
            scale = self.reward_scale + 1e-8
        rewards, first_rewards = batch.rewards[:size] / scale, first_rewards / scale
        actions, discounts = batch.actions[:size], batch.discounts[:size]

        now = self.augmented(batch.observations, shifts[0])
        with_gradient = self.encoder(now[:size])
        seen = with_gradient.detach()
        with torch.no_grad():
            arrived = self.encoder(self.augmented(batch.arrived[:size], shifts[1][:size]))

        curiosity_loss = torch.zeros(())
        if self.curiosity is not None:
            after = arrived
            if config.curiosity_pair == "one-step":
                with torch.no_grad():
                    after = self.encoder(self.augmented(batch.next_observations[:size], shifts[2][:size]))
            here, there = self.curiosity.trunk(seen), self.curiosity.trunk(after)
            guess = self.curiosity.forward_net(torch.cat((here, actions), -1))
            action_guess = self.curiosity.inverse_net(torch.cat((here, there), -1))
            curiosity_loss = (there - guess).square().sum(-1).sqrt().mean()
            curiosity_loss = curiosity_loss + (actions - action_guess).square().sum(-1).sqrt().mean()
            self.step(curiosity_loss, "curiosity")

        with torch.no_grad():
            everyone = torch.cat((seen, self.encoder(now[size:]))) if len(now) > size else seen
            paid = rewards + beta * self.bonus(everyone, first_rewards)[:size]
            if config.return_injection == "every_step":
                for pictures, their_rewards, their_discounts in zip(*batch.between, strict=True):
                    later = self.encoder(self.augmented(pictures[:size], shifts[0][:size]))
                    paid = paid + their_discounts[:size] * beta * self.bonus(later, their_rewards[:size] / scale)
            value = self.lower(self.targets, arrived, self.noisy(arrived, noise[0], deviation))
            target = paid + discounts * value
            if self.extrinsic is not None:
                value = self.lower(self.extrinsic_targets, arrived, self.noisy(arrived, noise[1], deviation))
                extrinsic_target = rewards + discounts * value

        judged = self.both(self.critic, with_gradient, actions)
        critic_loss = sum((each - target).square().mean() for each in judged)
        self.step(critic_loss, "critic", "encoder")

        extrinsic_loss = torch.zeros(())
        if self.extrinsic is not None:
            guesses = self.both(self.extrinsic, seen, actions)
            extrinsic_loss = sum((each - extrinsic_target).square().mean() for each in guesses)
            self.step(extrinsic_loss, "extrinsic")

        saturated_share = (self.actor(seen).abs() > 0.99).float().mean()
        actor_loss = -self.lower(self.critic, seen, self.noisy(seen, noise[2], deviation)).mean()
        self.step(actor_loss, "actor")

        for slow, fast in ((self.targets, self.critic), (self.extrinsic_targets, self.extrinsic)):
            for mine, theirs in zip(slow.parameters(), fast.parameters(), strict=True) if slow is not None else ():
                mine.data += config.target_rate * (theirs.data - mine.data)
        return {
            "batch_reward": batch.rewards[:size].mean(),
            "critic_loss": critic_loss,
            "extrinsic_critic_loss": extrinsic_loss,
            "critic_mean": judged.mean(),
            "actor_loss": actor_loss,
            "curiosity_loss": curiosity_loss,
            "action_noise": torch.tensor(deviation),
            "beta": torch.tensor(beta),
            "reward_scale": torch.tensor(self.reward_scale),
            "saturated_share": saturated_share,
        }

    def step(self, loss, *names):
        for network in self.networks.values():
            network.zero_grad()
        loss.backward()
        for name in names:
            self.adams[name].step()


def off(network, theirs):
    """Give how far a network is from the parameters of another."""
    pairs = zip(network.parameters(), theirs, strict=True)
    return torch.cat([(mine - other).detach().abs().flatten() for mine, other in pairs])


def of_head(layers, row):
    """Give one row of a stack as PyTorch's own layers have it."""
    return [each[row].T if each.ndim == 3 else each[row] for each in layers]


def of_twins(trunk, layers):
    return [*trunk.parameters(), *of_head(layers, 0), *of_head(layers, 1)]


def check_against_plain(config, *, at_border=False):
    agent = DrQv2(KIND.spec, config, 3)
    if at_border:
        with torch.no_grad():
            agent.actor.head[4].mul_(20)
    plain = PlainDrQv2(agent, config)
    steps_between = config.n_step - 1 if config.return_injection == "every_step" else 0
    for seed in range(3):
        batch = KIND.material(seed, size=config.drawn, steps_between=steps_between)
        noise, shifts = KIND.noise(seed), KIND.shifts(seed, size=config.drawn)
        metrics = agent.update(batch, noise, shifts, step=3 * seed).metrics
        expected = plain.update(batch, noise, shifts, step=3 * seed)
        assert metrics.keys() == expected.keys() == set(DrQv2.METRICS)
        for name, number in expected.items():
            torch.testing.assert_close(metrics[name], number.detach(), rtol=1e-3, atol=1e-5, msg=f"{name}, {seed}")
    stacks = {
        "encoder": (plain.encoder, list(agent.encoder.parameters())),
        "actor": (plain.actor, [*agent.actor.trunk.parameters(), *of_head(agent.actor.head, 0)]),
        "critic": (plain.critic, of_twins(agent.critic.trunk, agent.critic.head)),
        "targets": (plain.targets, of_twins(agent.target_critic.trunk, agent.target_critic.head)),
    }
    if plain.extrinsic is not None:
        stacks["extrinsic"] = (plain.extrinsic, of_twins(agent.extrinsic_critic.trunk, agent.extrinsic_critic.head))
        slow = of_twins(agent.extrinsic_target_critic.trunk, agent.extrinsic_target_critic.head)
        stacks["extrinsic targets"] = (plain.extrinsic_targets, slow)
    if plain.curiosity is not None:
        stacks["curiosity"] = (plain.curiosity, list(agent.curiosity.parameters()))
    # Adam's first steps are nearly signs of the gradient: parameters whose gradient is rounding noise may differ.
    return {name: off(*pair) for name, pair in stacks.items()}


@pytest.mark.parametrize(
    "config",
    [
        dataclasses.replace(NONE, target_rate=0.01),
        dataclasses.replace(NONE, **FAST),
        dataclasses.replace(SE, **FAST),
        dataclasses.replace(VCSE, **FAST),
        dataclasses.replace(RCSE, **FAST),
        dataclasses.replace(MATCHED, **FAST),
        dataclasses.replace(VCSE, **FAST, value_critic="target"),
        dataclasses.replace(VCSE, **FAST, curiosity_pair="one-step"),
        dataclasses.replace(VCSE, **FAST, return_injection="every_step"),
        dataclasses.replace(SE, **FAST, return_injection="every_step"),
        dataclasses.replace(RCSE, **FAST, return_injection="every_step", normalize_reward=True),
        dataclasses.replace(VCSE, **FAST, normalize_reward=True),
        dataclasses.replace(VCSE, **FAST, bonus_batch_size=10),
        dataclasses.replace(RCSE, **FAST, bonus_batch_size=10),
        dataclasses.replace(SE, **FAST, beta_decay=0.2),
        dataclasses.replace(NONE, **FAST, action_noise=(1.0, 0.1, 5)),
    ],
    ids=[
        "none with the release's rates",
        "none",
        "se",
        "vcse",
        "rcse",
        "se-matched",
        "value of the target critic",
        "one-step curiosity",
        "vcse at every step",
        "se at every step",
        "rcse at every step with normalised rewards",
        "normalised rewards",
        "larger batch of the bonus",
        "larger batch of the bonus with rewards",
        "decay",
        "noise schedule",
    ],
)
def test_three_updates_are_those_of_a_plain_learner_with_pytorchs_own_layers(config):
    for name, each in check_against_plain(config).items():
        assert each.double().mean() < 1e-5, name
        assert (each > 1e-5).double().mean() < 0.01, name


def test_actions_that_are_cut_off_at_the_border_pass_their_gradient_on():
    config = dataclasses.replace(NONE, **FAST, action_noise=(1.0, 1.0, 1))
    agent = DrQv2(KIND.spec, config, 3)
    with torch.no_grad():
        agent.actor.head[4].mul_(20)
    agent.adopt()
    assert (KIND.act(agent, [0]).abs() == 1 - 1e-6).any()
    for name, each in check_against_plain(config, at_border=True).items():
        assert each.double().mean() < 1e-5, name


def snapshot(parameters):
    return [each.detach().clone() for each in parameters]


def all_equal(some, others):
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def none_equal(some, others):
    return not any(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def parts(agent):
    found = {
        "encoder": agent.encoder.parameters(),
        "actor": [*agent.actor.trunk.parameters(), *agent.actor.head],
        "critic": [*agent.critic.trunk.parameters(), *agent.critic.head],
        "extrinsic": KIND.extrinsic(agent),
        "curiosity": [] if agent.curiosity is None else agent.curiosity.parameters(),
    }
    return {name: snapshot(parameters) for name, parameters in found.items()}


@pytest.mark.parametrize("config", [NONE, SE, VCSE], ids=["none", "se", "vcse"])
def test_an_update_moves_every_layer_of_all_that_was_built(config):
    agent = KIND.make([config], [0])
    before = parts(agent)
    KIND.update(agent, [0])
    after = parts(agent)
    for name, each in before.items():
        assert none_equal(each, after[name]), name
    assert bool(before["curiosity"]) == (config is not NONE)
    assert bool(before["extrinsic"]) == (config is VCSE)


def test_plain_drqv2_has_no_network_that_only_a_bonus_needs():
    agent = KIND.make([NONE], [0])
    assert (agent.curiosity, agent.extrinsic_critic, agent.extrinsic_target_critic) == (None, None, None)
    assert set(agent.adams) == {"encoder", "actor", "critic"}
    assert set(KIND.make([SE], [0]).adams) == {"encoder", "actor", "critic", "curiosity"}
    assert set(KIND.make([VCSE], [0]).adams) == {"encoder", "actor", "critic", "curiosity", "extrinsic_critic"}


@pytest.mark.parametrize("config", [SE, VCSE, RCSE], ids=["se", "vcse", "rcse"])
def test_neither_curiosity_nor_extrinsic_critic_reaches_encoder_actor_and_critic(config):
    """With a weight of 0 they are all that a bonus adds."""
    plain = KIND.make([dataclasses.replace(NONE, learning_rate=1e-3)], [0])
    paid = KIND.make([dataclasses.replace(config, beta=0.0, learning_rate=1e-3)], [0])
    for update in range(3):
        for agent in (plain, paid):
            KIND.update(agent, [update])
    mine, theirs = parts(plain), parts(paid)
    for name in ("encoder", "actor", "critic"):
        assert all_equal(mine[name], theirs[name]), name


def test_the_encoder_learns_from_bonuses_through_the_critic_of_both():
    agents = [KIND.make([dataclasses.replace(VCSE, beta=beta)], [0]) for beta in (0.0, 10.0)]
    for agent in agents:
        KIND.update(agent, [0])
    quiet, loud = map(parts, agents)
    assert none_equal(quiet["encoder"], loud["encoder"])
    for name in ("extrinsic", "curiosity"):  # from features that no bonus had changed yet
        assert all_equal(quiet[name], loud[name])


def test_the_extrinsic_critic_is_a_target_of_the_tasks_rewards_alone():
    """Its losses do not depend on the bonus, as long as the encoder does not."""
    agents = [KIND.make([dataclasses.replace(VCSE, beta=beta)], [0]) for beta in (0.0, 10.0)]
    for agent in agents:
        agent.adams["encoder"].param_groups[0]["lr"] = 0.0
        agent.adams["actor"].param_groups[0]["lr"] = 0.0
    for update in range(3):
        losses = [KIND.update(agent, [update]) for agent in agents]
        assert torch.equal(*(each["extrinsic_critic_loss"] for each in losses))
        assert not torch.equal(*(each["critic_loss"] for each in losses))
    assert all_equal(*(parts(agent)["extrinsic"] for agent in agents))


def test_targets_go_a_hundredth_of_the_way_to_the_critics_at_every_update():
    agent = KIND.make([VCSE], [0])
    assert VCSE.target_rate == 0.01

    def pairs():
        slow = [*agent.target_critic.trunk.parameters(), *agent.target_critic.head]
        slow += [*agent.extrinsic_target_critic.trunk.parameters(), *agent.extrinsic_target_critic.head]
        fast = [*agent.critic.trunk.parameters(), *agent.critic.head]
        fast += [*agent.extrinsic_critic.trunk.parameters(), *agent.extrinsic_critic.head]
        return snapshot(slow), snapshot(fast)

    assert all_equal(*pairs())
    for update in range(2):
        before, _ = pairs()
        KIND.update(agent, [update])
        for old, new, critic in zip(before, *pairs(), strict=True):
            torch.testing.assert_close(new, old + 0.01 * (critic - old))


def test_where_nothing_comes_after_what_comes_after_does_not_matter():
    batch = KIND.material(0)
    ended = batch._replace(discounts=torch.zeros(6))
    elsewhere = {"arrived": KIND.material(1).arrived}
    critics = []
    for each in (ended, ended._replace(**elsewhere), batch._replace(**elsewhere)):
        agent = KIND.make([NONE], [0])
        agent.update(each, KIND.noise(0), KIND.shifts(0), step=0)
        critics.append(parts(agent)["critic"])
    assert all_equal(critics[0], critics[1])
    assert not all_equal(critics[0], critics[2])


def test_transitions_beyond_the_batch_serve_the_bonus_alone():
    more, others = KIND.material(0, size=10), KIND.material(1, size=10)
    mixed = PictureBatch(*(torch.cat((one[:6], two[6:])) for one, two in zip(more[:-1], others[:-1], strict=True)))
    shifts = KIND.shifts(0, size=10)
    for beta, is_same in ((0.0, True), (1.0, False)):
        agents = [KIND.make([KIND.config("se", beta=beta, bonus_batch_size=10)], [0]) for _ in range(2)]
        for agent, batch in zip(agents, (more, mixed), strict=True):
            agent.update(batch, KIND.noise(0), shifts, step=0)
        one, other = map(parts, agents)
        assert all_equal(one["critic"], other["critic"]) == is_same
        assert all_equal(one["curiosity"], other["curiosity"])


@pytest.mark.parametrize("shape", [(9, 84, 84), (1, 3, 3, 84, 84), (1, 3, 84, 84)])
def test_what_is_no_stack_of_frames_is_refused_by_name(shape):
    agent, pictures = KIND.make([NONE], [0]), torch.zeros(shape, dtype=torch.uint8)
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(
            ValueError, match=rf"observations must be \[n, 9, height, width\], .* got shape \({shape[0]}, "
        ):
            agent.act(pictures, None)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_without_noise_actions_are_the_mean_and_otherwise_as_noisy_as_the_schedule_says():
    config = dataclasses.replace(NONE, action_noise=(1.0, 0.1, 100))
    agent = KIND.make([config], [0])
    pictures, noise = KIND.material(0).observations, KIND.noise(0)[0]
    mean = agent.act(pictures, None)
    torch.testing.assert_close(mean, PlainDrQv2(agent, config).actor(agent.encoder(pictures)).detach())
    for step, deviation in ((0, 1.0), (50, 0.55), (100, 0.1), (10_000, 0.1)):
        torch.testing.assert_close(
            agent.act(pictures, noise, step=step), (mean + deviation * noise).clamp(-1 + 1e-6, 1 - 1e-6)
        )


def test_a_policy_at_the_end_of_its_range_is_told():
    agent = KIND.make([KIND.config("none")], [0])
    with torch.no_grad():
        agent.actor.head[-1].copy_(torch.tensor([9.0, *[0.0] * (agent.spec.action_size - 1)]))  # the last biases
        agent.actor.head[-2].zero_()
    metrics = agent.update(KIND.material(0), KIND.noise(0), KIND.shifts(0), step=0).metrics
    assert metrics["saturated_share"].item() == pytest.approx(1 / agent.spec.action_size)


def test_the_weight_of_the_bonus_decays():
    config = KIND.config("se", beta=0.1, beta_decay=1e-3)
    agent = KIND.make([config], [0])
    for step in (0, 1, 1000):
        metrics = agent.update(KIND.material(0), KIND.noise(0), KIND.shifts(0), step=step).metrics
        assert metrics["beta"].item() == pytest.approx(0.1 * 0.999**step, rel=1e-6)


def learn(agent, seed):
    agent.learn(KIND.material(seed), KIND.noise(seed), KIND.shifts(seed), step=2 * seed)


def test_what_was_learned_is_acted_on_once_it_is_adopted():
    agent, other = (KIND.make([VCSE], [0]) for _ in range(2))
    pictures = KIND.material(3).observations
    before = agent.act(pictures, None)
    learn(agent, 0)
    assert torch.equal(agent.act(pictures, None), before)
    agent.adopt()
    assert not torch.equal(agent.act(pictures, None), before)
    KIND.update(other, [0])
    assert_same_state(agent.state_dict(), other.state_dict())


def test_saved_before_what_was_learned_is_adopted_a_learner_goes_on_the_same():
    agent, other = (KIND.make([VCSE], [seed]) for seed in (0, 1))
    KIND.update(agent, [0])
    learn(agent, 1)
    other.load_state_dict(agent.state_dict())
    pictures = KIND.material(3).observations
    assert torch.equal(other.act(pictures, None), agent.act(pictures, None))
    for each in (agent, other):
        each.adopt()
        learn(each, 2)
    assert_same_state(other.state_dict(), agent.state_dict())
    assert torch.equal(other.act(pictures, None), agent.act(pictures, None))


def test_a_policy_alone_comes_from_the_state_of_any_learner():
    trained = KIND.make([VCSE], [0])
    KIND.update(trained, [0])
    learn(trained, 1)
    loaded = KIND.make([NONE], [9])
    loaded.load_policy(trained.state_dict())
    pictures = KIND.material(3).observations
    assert torch.equal(loaded.act(pictures, None), trained.act(pictures, None))


@pytest.mark.parametrize(
    "config",
    [
        dataclasses.replace(SE, beta_decay=0.1, action_noise=(1.0, 0.1, 10)),
        dataclasses.replace(RCSE, normalize_reward=True),
        KIND.config("vcse", bonus_batch_size=8, value_critic="target", curiosity_pair="one-step"),
    ],
    ids=["schedules", "normalised rewards", "vcse with all else"],
)
def test_saved_loaded_and_continued_equals_not_stopping_with_deviations_too(config):
    agent, other = (KIND.make([config], [seed]) for seed in (0, 1))

    def update(each, number):
        material = KIND.material(number, size=config.drawn), KIND.noise(number), KIND.shifts(number, size=config.drawn)
        each.update(*material, step=2 * number)

    for number in range(2):
        update(agent, number)
    other.load_state_dict(agent.state_dict())
    for number in range(2, 4):
        for each in (agent, other):
            update(each, number)
    assert_same_state(other.state_dict(), agent.state_dict())


@pytest.mark.usefixtures("without_type_checks")
def test_it_learns_to_point_at_the_bright_half():
    """A picture is bright above or below, and the action must say which; nothing comes after."""
    size, updates = 8, 70
    config = DrQv2Settings(
        BonusChoice("vcse", "release-drqv2", 3),
        beta=0.01,
        hidden_units=32,
        features=8,
        batch_size=size,
        learning_rate=2e-3,
        action_noise=(0.3, 0.3, 1),
    )
    agent, generator = DrQv2(DrQv2Spec(9, 1), config, 0), torch.Generator().manual_seed(0)

    def pictures():
        sides = torch.randint(2, (size,), generator=generator)
        shown = torch.randint(0, 100, (size, 9, 84, 84), dtype=torch.uint8, generator=generator)
        for picture, side in zip(shown, sides.tolist(), strict=True):
            picture[:, :, 42 * side : 42 * side + 42] += 150
        return shown, 2 * sides[:, None] - 1.0

    for step in range(updates):
        shown, wanted = pictures()
        actions = 2 * torch.rand(size, 1, generator=generator) - 1
        rewards = (1 - (actions - wanted).abs())[:, 0]
        batch = PictureBatch(shown, actions, rewards, rewards, torch.zeros(size), shown, shown)
        noise = torch.randn(NOISE_DRAWS, size, 1, generator=generator)
        agent.update(batch, noise, torch.randint(SHIFTS, (SHIFT_DRAWS, size, 2), generator=generator), step=step)
    shown, wanted = pictures()
    off_by = (agent.act(shown, None) - wanted).abs().mean().item()
    assert off_by < 0.3
