import dataclasses

import jaxtyping
import pytest
import torch
from agents.contract import DrQv2Kind, assert_same_state
from agents.drqv2.plain import PlainDrQv2, of_head

from vcse.agents.drqv2.agent import NOISE_SAMPLES, SHIFT_SAMPLES, DrQv2, DrQv2Spec
from vcse.agents.drqv2.settings import DrQv2Settings
from vcse.bonuses import Bonus, BonusOutput
from vcse.bonuses.registry import BonusChoice
from vcse.nets.random_shift import SHIFTS
from vcse.replay.images import ImageBatch

KIND = DrQv2Kind()
NONE, SE, VCSE, RCSE, MATCHED = (KIND.config(bonus) for bonus in ("none", "se", "vcse", "rcse", "se-matched"))
# With the release's rates little happens in three updates; with these, mistakes show.
FAST = {"learning_rate": 1e-3, "target_rate": 0.3, "beta": 0.5}
REMEDIES = {"reward_normalization": "centered", "actor_normalization": True, "pre_activation_penalty": 0.1}


def off(network, theirs):
    """Return how far a network is from the parameters of another."""
    pairs = zip(network.parameters(), theirs, strict=True)
    return torch.cat([(mine - other).detach().abs().flatten() for mine, other in pairs])


def of_twins(trunk, layers):
    return [*trunk.parameters(), *of_head(layers, 0), *of_head(layers, 1)]


def check_against_plain(config, *, at_border=False):
    agent = DrQv2(KIND.spec, config, 3)
    if at_border:
        with torch.no_grad():
            agent.actor.head.layers[4].mul_(20)
    plain = PlainDrQv2(agent, config)
    steps_between = config.n_step - 1 if config.return_injection == "every_step" else 0
    for seed in range(3):
        batch = KIND.material(seed, size=config.sampled_transitions, steps_between=steps_between)
        noise, shifts = KIND.noise(seed), KIND.shifts(seed, size=config.sampled_transitions)
        metrics = agent.update(batch, noise, shifts, step=3 * seed).metrics
        expected = plain.update(batch, noise, shifts, step=3 * seed)
        assert metrics.keys() == expected.keys() == set(DrQv2.METRICS)
        for name, number in expected.items():
            torch.testing.assert_close(metrics[name], number.detach(), rtol=1e-3, atol=1e-5, msg=f"{name}, {seed}")
    stacks = {
        "encoder": (plain.encoder, list(agent.encoder.parameters())),
        "actor": (plain.actor, [*agent.actor.trunk.parameters(), *of_head(agent.actor.head.layers, 0)]),
        "critic": (plain.critic, of_twins(agent.critic.trunk, agent.critic.head.layers)),
        "targets": (plain.targets, of_twins(agent.target_critic.trunk, agent.target_critic.head.layers)),
    }
    if plain.extrinsic is not None:
        stacks["extrinsic"] = (
            plain.extrinsic,
            of_twins(agent.extrinsic_critic.trunk, agent.extrinsic_critic.head.layers),
        )
        slow = of_twins(agent.extrinsic_target_critic.trunk, agent.extrinsic_target_critic.head.layers)
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
        dataclasses.replace(RCSE, **FAST, return_injection="every_step", reward_normalization="mean"),
        dataclasses.replace(VCSE, **FAST, reward_normalization="mean"),
        dataclasses.replace(VCSE, **FAST, reward_normalization="n_step_mean"),
        dataclasses.replace(VCSE, **FAST, reward_normalization="centered"),
        dataclasses.replace(RCSE, **FAST, return_injection="every_step", reward_normalization="centered"),
        dataclasses.replace(NONE, **FAST, actor_normalization=True),
        dataclasses.replace(NONE, **FAST, pre_activation_penalty=0.1),
        dataclasses.replace(VCSE, **FAST, **REMEDIES),
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
        "rewards normalised by returns",
        "centred rewards",
        "rcse at every step with centred rewards",
        "a normalised actor",
        "a penalty on the pre-activation",
        "vcse with every remedy",
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
        agent.actor.head.layers[4].mul_(20)
    agent.update_acting_policy()
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
        "actor": [*agent.actor.trunk.parameters(), *agent.actor.head.layers],
        "critic": [*agent.critic.trunk.parameters(), *agent.critic.head.layers],
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
    assert set(agent.optimizers) == {"encoder", "actor", "critic"}
    assert set(KIND.make([SE], [0]).optimizers) == {"encoder", "actor", "critic", "curiosity"}
    assert set(KIND.make([VCSE], [0]).optimizers) == {"encoder", "actor", "critic", "curiosity", "extrinsic_critic"}


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
        agent.optimizers["encoder"].param_groups[0]["lr"] = 0.0
        agent.optimizers["actor"].param_groups[0]["lr"] = 0.0
    for update in range(3):
        losses = [KIND.update(agent, [update]) for agent in agents]
        assert torch.equal(*(each["extrinsic_critic_loss"] for each in losses))
        assert not torch.equal(*(each["critic_loss"] for each in losses))
    assert all_equal(*(parts(agent)["extrinsic"] for agent in agents))


def test_targets_go_a_hundredth_of_the_way_to_the_critics_at_every_update():
    agent = KIND.make([VCSE], [0])
    assert VCSE.target_rate == 0.01

    def pairs():
        slow = [*agent.target_critic.trunk.parameters(), *agent.target_critic.head.layers]
        slow += [*agent.extrinsic_target_critic.trunk.parameters(), *agent.extrinsic_target_critic.head.layers]
        fast = [*agent.critic.trunk.parameters(), *agent.critic.head.layers]
        fast += [*agent.extrinsic_critic.trunk.parameters(), *agent.extrinsic_critic.head.layers]
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
    elsewhere = {"next_observations": KIND.material(1).next_observations}
    critics = []
    for each in (ended, ended._replace(**elsewhere), batch._replace(**elsewhere)):
        agent = KIND.make([NONE], [0])
        agent.update(each, KIND.noise(0), KIND.shifts(0), step=0)
        critics.append(parts(agent)["critic"])
    assert all_equal(critics[0], critics[1])
    assert not all_equal(critics[0], critics[2])


def test_transitions_beyond_the_batch_serve_the_bonus_alone():
    more, others = KIND.material(0, size=10), KIND.material(1, size=10)
    mixed = ImageBatch(*(torch.cat((one[:6], two[6:])) for one, two in zip(more[:-1], others[:-1], strict=True)))
    shifts = KIND.shifts(0, size=10)
    for beta, is_same in ((0.0, True), (1.0, False)):
        agents = [KIND.make([KIND.config("se", beta=beta, bonus_batch_size=10)], [0]) for _ in range(2)]
        for agent, batch in zip(agents, (more, mixed), strict=True):
            agent.update(batch, KIND.noise(0), shifts, step=0)
        one, other = map(parts, agents)
        assert all_equal(one["critic"], other["critic"]) == is_same
        assert all_equal(one["curiosity"], other["curiosity"])


class ActionBonus(Bonus):
    needs_actions = True

    def forward(self, features, *, actions):
        return BonusOutput(actions.square().sum(-1))


def test_actions_of_later_steps_of_a_return_are_not_in_the_replay():
    config = dataclasses.replace(SE, return_injection="every_step", n_step=3)
    refused = "needs actions, but the agent drqv2 with return_injection='every_step' gives rewards, values"
    with pytest.raises(ValueError, match=refused):
        DrQv2(KIND.spec, config, 0, bonus=ActionBonus(learners=1))
    for changes in ({"n_step": 1}, {"return_injection": "once"}):
        agent = DrQv2(KIND.spec, dataclasses.replace(config, **changes), 0, bonus=ActionBonus(learners=1))
        assert set(agent.bonus.needs) == {"actions"}


@pytest.mark.parametrize("shape", [(9, 84, 84), (1, 3, 3, 84, 84), (1, 3, 84, 84)])
def test_what_is_no_stack_of_frames_is_refused_by_name(shape):
    agent, images = KIND.make([NONE], [0]), torch.zeros(shape, dtype=torch.uint8)
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        with pytest.raises(
            ValueError, match=rf"observations must be \[n, 9, height, width\], .* got shape \({shape[0]}, "
        ):
            agent.act(images, None)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


def test_without_noise_actions_are_the_mean_and_otherwise_as_noisy_as_the_schedule_says():
    config = dataclasses.replace(NONE, action_noise=(1.0, 0.1, 100))
    agent = KIND.make([config], [0])
    images, noise = KIND.material(0).observations, KIND.noise(0)[0]
    mean = agent.act(images, None)
    torch.testing.assert_close(mean, PlainDrQv2(agent, config).actor(agent.encoder(images)).detach())
    for step, deviation in ((0, 1.0), (50, 0.55), (100, 0.1), (10_000, 0.1)):
        torch.testing.assert_close(
            agent.act(images, noise, step=step), (mean + deviation * noise).clamp(-1 + 1e-6, 1 - 1e-6)
        )


def test_a_policy_at_the_end_of_its_range_is_told():
    agent = KIND.make([KIND.config("none")], [0])
    with torch.no_grad():
        agent.actor.head.layers[-1].copy_(torch.tensor([9.0, *[0.0] * (agent.spec.action_size - 1)]))  # the last biases
        agent.actor.head.layers[-2].zero_()
    metrics = agent.update(KIND.material(0), KIND.noise(0), KIND.shifts(0), step=0).metrics
    assert metrics["saturated_share"].item() == pytest.approx(1 / agent.spec.action_size)


@pytest.mark.parametrize("penalty", [0.0, 0.1])
def test_a_penalty_on_the_pre_activation_moves_a_policy_that_has_no_other_gradient(penalty):
    agent = KIND.make([KIND.config("none", pre_activation_penalty=penalty)], [0])
    with torch.no_grad():
        agent.actor.head.layers[-1].fill_(12.0)  # the last biases: its tanh is 1, and passes nothing on
    before = snapshot(agent.actor.parameters())
    metrics = agent.update(KIND.material(0), KIND.noise(0), KIND.shifts(0), step=0).metrics
    assert metrics["saturated_share"] == 1
    after = list(agent.actor.parameters())
    assert all_equal(before, after) == (penalty == 0)
    if penalty:
        torch.testing.assert_close(after[-1], before[-1] - NONE.learning_rate)  # Adam's first step


def test_the_weight_of_the_bonus_decays():
    config = KIND.config("se", beta=0.1, beta_decay=1e-3)
    agent = KIND.make([config], [0])
    for step in (0, 1, 1000):
        metrics = agent.update(KIND.material(0), KIND.noise(0), KIND.shifts(0), step=step).metrics
        assert metrics["beta"].item() == pytest.approx(0.1 * 0.999**step, rel=1e-6)


def learn(agent, seed):
    agent.update_networks(KIND.material(seed), KIND.noise(seed), KIND.shifts(seed), step=2 * seed)


def test_what_was_learned_is_acted_on_once_it_is_adopted():
    agent, other = (KIND.make([VCSE], [0]) for _ in range(2))
    images = KIND.material(3).observations
    before = agent.act(images, None)
    learn(agent, 0)
    assert torch.equal(agent.act(images, None), before)
    agent.update_acting_policy()
    assert not torch.equal(agent.act(images, None), before)
    KIND.update(other, [0])
    assert_same_state(agent.state_dict(), other.state_dict())


def test_saved_before_what_was_learned_is_adopted_a_learner_goes_on_the_same():
    agent, other = (KIND.make([VCSE], [seed]) for seed in (0, 1))
    KIND.update(agent, [0])
    learn(agent, 1)
    other.load_state_dict(agent.state_dict())
    images = KIND.material(3).observations
    assert torch.equal(other.act(images, None), agent.act(images, None))
    for each in (agent, other):
        each.update_acting_policy()
        learn(each, 2)
    assert_same_state(other.state_dict(), agent.state_dict())
    assert torch.equal(other.act(images, None), agent.act(images, None))


def test_a_policy_alone_comes_from_the_state_of_any_learner():
    trained = KIND.make([VCSE], [0])
    KIND.update(trained, [0])
    learn(trained, 1)
    loaded = KIND.make([NONE], [9])
    loaded.load_policy(trained.state_dict())
    images = KIND.material(3).observations
    assert torch.equal(loaded.act(images, None), trained.act(images, None))


@pytest.mark.parametrize(
    "config",
    [
        dataclasses.replace(SE, beta_decay=0.1, action_noise=(1.0, 0.1, 10)),
        dataclasses.replace(RCSE, reward_normalization="mean"),
        dataclasses.replace(VCSE, **REMEDIES),
        KIND.config("vcse", bonus_batch_size=8, value_critic="target", curiosity_pair="one-step"),
    ],
    ids=["schedules", "normalised rewards", "remedies", "vcse with all else"],
)
def test_saved_loaded_and_continued_equals_not_stopping_with_deviations_too(config):
    agent, other = (KIND.make([config], [seed]) for seed in (0, 1))

    def update(each, number):
        material = (
            KIND.material(number, size=config.sampled_transitions),
            KIND.noise(number),
            KIND.shifts(number, size=config.sampled_transitions),
        )
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
    """An image is bright above or below, and the action must say which; nothing comes after."""
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

    def images():
        sides = torch.randint(2, (size,), generator=generator)
        shown = torch.randint(0, 100, (size, 9, 84, 84), dtype=torch.uint8, generator=generator)
        for image, side in zip(shown, sides.tolist(), strict=True):
            image[:, :, 42 * side : 42 * side + 42] += 150
        return shown, 2 * sides[:, None] - 1.0

    for step in range(updates):
        shown, wanted = images()
        actions = 2 * torch.rand(size, 1, generator=generator) - 1
        rewards = (1 - (actions - wanted).abs())[:, 0]
        batch = ImageBatch(shown, actions, rewards, rewards, torch.zeros(size), shown, shown)
        noise = torch.randn(NOISE_SAMPLES, size, 1, generator=generator)
        agent.update(batch, noise, torch.randint(SHIFTS, (SHIFT_SAMPLES, size, 2), generator=generator), step=step)
    shown, wanted = images()
    off_by = (agent.act(shown, None) - wanted).abs().mean().item()
    assert off_by < 0.3
