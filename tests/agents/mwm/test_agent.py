import dataclasses
import math

import pytest
import torch
from agents.contract import MWMKind, assert_same_state
from agents.mwm.plain import PlainMWM

from vcse.agents.mwm.agent import MWM
from vcse.agents.mwm.networks import PolicyState
from vcse.agents.mwm.settings import mwm_settings
from vcse.bonuses.base import Bonus, BonusOutput

KIND = MWMKind()
NONE, VCSE = (KIND.config(bonus) for bonus in ("none", "vcse"))
# With the release's rates little happens in three updates; with these, mistakes show.
FAST = {
    "model_learning_rate": 3e-3,
    "autoencoder_learning_rate": 1e-2,
    "learning_rate": 1e-2,
    "warm_up_updates": 2,
    "weight_decay": 0.01,
    "most_gradient_norm": 0.3,
    "entropy_weight": 0.1,
    "target_updates": 2,
    "reward_momentum": 0.7,
}


@pytest.fixture
def doubles():
    """Make new tensors float64, so that what is compared is not rounding."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def in_doubles(batch):
    return batch._replace(actions=batch.actions.double(), rewards=batch.rewards.double())


def assert_near(found, expected, what):
    torch.testing.assert_close(found, expected.detach().to(found.dtype), rtol=1e-5, atol=1e-7, msg=what)


@pytest.mark.usefixtures("doubles")
@pytest.mark.parametrize(
    "config",
    [
        KIND.config("none", **FAST),
        KIND.config("vcse", **FAST, beta=0.5),
        KIND.config("vcse", **FAST, projection_precision="float32", projection_std=1 / 4, reward_token="token"),
        KIND.config("vcse", horizon=2, most_gradient_norm=100.0),
    ],
    ids=["none", "vcse", "vcse without the release's rounding and bug", "vcse with the release's rates"],
)
def test_one_and_three_updates_are_those_of_a_plain_learner(config):
    agent = MWM(KIND.spec, config, 3)
    plain = PlainMWM(agent, config)
    pairs = {
        "autoencoder": (agent.autoencoder, plain.autoencoder),
        "model": (agent.model, plain.model),
        "actor": (agent.actor, plain.actor),
        "critic": (agent.critic, plain.critic),
    }
    if config.has_bonus:
        pairs |= {"extrinsic": (agent.extrinsic_critic, plain.extrinsic), "head": (agent.bonus_head, plain.intrinsic)}
    for seed in range(3):
        batches = [in_doubles(KIND.material(each)) for each in (seed, 100 + seed)]
        metrics = agent.update_autoencoder(batches[0]) | agent.update(batches[1]).metrics
        expected = plain.update_autoencoder(batches[0]) | plain.update(batches[1])
        assert metrics.keys() == expected.keys() == set(MWM.METRICS)
        for name, number in expected.items():
            assert_near(metrics[name], number, f"{name}, update {seed}")
        slow = {"slow critic": (agent.slow_critic, plain.slow_critic)}
        if config.has_bonus:
            slow["slow extrinsic"] = (agent.slow_extrinsic_critic, plain.slow_extrinsic)
        for name, (mine, theirs) in (pairs | slow).items():
            for one, other in zip(mine.parameters(), theirs.parameters(), strict=True):
                assert_near(one.detach(), other, f"{name}, update {seed}")


def snapshot(parameters):
    return [each.detach().clone() for each in parameters]


def all_equal(some, others):
    return all(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def none_equal(some, others):
    return not any(torch.equal(one, other) for one, other in zip(some, others, strict=True))


def parts(agent):
    found = {
        "autoencoder": agent.autoencoder,
        "model": agent.model,
        "actor": agent.actor,
        "critic": agent.critic,
        "extrinsic_critic": agent.extrinsic_critic,
        "intrinsic": agent.bonus_head,
        "slow_critic": agent.slow_critic,
        "slow_extrinsic_critic": agent.slow_extrinsic_critic,
    }
    return {name: snapshot(each.parameters()) for name, each in found.items() if each is not None}


@pytest.mark.parametrize("bonus", KIND.bonuses)
def test_an_update_moves_every_layer_of_all_that_was_built(bonus):
    agent = KIND.make([KIND.config(bonus, reward_token="token")], [0])
    before = parts(agent)
    for update in range(2):  # in the first, nothing but the rewards' last layer has a gradient from rewards
        KIND.update(agent, [update])
    for name, each in parts(agent).items():
        assert none_equal(before[name], each), name


def test_without_a_bonus_there_is_no_network_that_only_a_bonus_needs():
    always = {"autoencoder", "model", "actor", "critic", "slow_critic"}
    of_value = {"extrinsic_critic", "slow_extrinsic_critic"}
    for bonus in KIND.bonuses:
        agent = KIND.make([KIND.config(bonus)], [0])
        expected = always | ({"intrinsic"} if bonus != "none" else set()) | (of_value if bonus == "vcse" else set())
        assert set(parts(agent)) == expected, bonus
        assert set(agent.optimizers) == expected - {"intrinsic", "slow_critic", "slow_extrinsic_critic"}


def test_each_step_of_an_update_changes_what_it_is_for_and_nothing_else(monkeypatch):
    agent = KIND.make([VCSE], [0])
    mine = {
        "autoencoder": {"autoencoder"},
        "model": {"model", "intrinsic"},
        "extrinsic_critic": {"extrinsic_critic"},
        "actor": {"actor"},
        "critic": {"critic"},
    }
    order, descend = [], agent._gradient_step

    def watched(loss, name):
        order.append(name)
        before = parts(agent)
        descend(loss, name)
        changed = {each for each, parameters in parts(agent).items() if not all_equal(before[each], parameters)}
        assert changed == mine[name]

    monkeypatch.setattr(agent, "_gradient_step", watched)
    KIND.update(agent, [0])
    assert order == ["autoencoder", "model", "extrinsic_critic", "actor", "critic"]


def test_the_extrinsic_critic_does_not_see_the_bonus():
    """Its losses do not depend on the bonus, as long as what the policy imagines does not."""
    agents = [KIND.make([KIND.config("vcse", beta=beta)], [0]) for beta in (0.0, 10.0)]
    for agent in agents:
        agent.optimizers["actor"].param_groups[0]["lr"] = 0.0
    for update in range(3):
        losses = [KIND.update(agent, [update]) for agent in agents]
        assert torch.equal(*(each["extrinsic_critic_loss"] for each in losses))
        assert not torch.equal(*(each["critic_loss"] for each in losses))
    quiet, loud = map(parts, agents)
    for name in ("extrinsic_critic", "slow_extrinsic_critic", "model", "intrinsic"):
        assert all_equal(quiet[name], loud[name]), name


@pytest.mark.parametrize("bonus", ["se", "vcse", "rnd"])
def test_the_head_of_the_bonus_sends_no_gradient_to_latent_states(bonus):
    plain, paid = (KIND.make([KIND.config(each, beta=0.0)], [0]) for each in ("none", bonus))
    for update in range(3):
        for agent in (plain, paid):
            KIND.update(agent, [update])
    mine, theirs = parts(plain), parts(paid)
    for name in ("autoencoder", "model", "actor", "critic"):
        assert all_equal(mine[name], theirs[name]), name


def test_the_head_of_rewards_does_send_one():
    agents = [KIND.make([NONE], [0]) for _ in range(2)]
    with torch.no_grad():
        for agent in agents:
            agent.model.reward.output.weight.mul_(10)
    batch = KIND.material(0)
    for agent, rewards in zip(agents, (batch.rewards, -batch.rewards), strict=True):
        agent.update(batch._replace(rewards=rewards))
    models = [agent.model for agent in agents]
    assert not all_equal(*(model.encoder.parameters() for model in models))
    assert not all_equal(*(model.rssm.gru.parameters() for model in models))
    assert all_equal(*(model.decoder.parameters() for model in models))


class Recorder(Bonus):
    """Remembers what it was called with, and pays the first feature."""

    needs_rewards = True

    def __init__(self, **options):
        super().__init__(**options)
        self.called_with = []

    def forward(self, features, **needed):
        self.called_with.append({"features": features, **needed})
        return BonusOutput(features[..., 0])


def test_anybodys_bonus_is_paid_by_what_it_needs_and_without_gradient():
    bonus = Recorder(learners=1)
    agent = MWM(KIND.spec, NONE, 0, bonus=bonus)
    output = agent.update(KIND.material(0))
    [seen] = bonus.called_with
    assert seen.keys() == {"features", "rewards"}
    assert seen["features"].shape == (1, 20, 6)
    assert torch.equal(seen["rewards"][0], KIND.material(0).rewards.flatten())
    assert not seen["features"].requires_grad
    assert not output.bonus.reward.requires_grad
    assert torch.equal(output.bonus.reward, seen["features"][..., 0])
    assert agent.bonus_head is not None
    assert agent.extrinsic_critic is None


def test_values_that_a_bonus_sees_are_those_of_the_slow_extrinsic_critic():
    class OfValues(Recorder):
        needs_values = True

    features = torch.randn(20, 20, generator=torch.Generator().manual_seed(0))
    bonus = OfValues(learners=1)
    agent = MWM(KIND.spec, KIND.config("none", projection_precision="float32"), 0, bonus=bonus)
    with torch.no_grad():
        agent.extrinsic_critic.output.weight.zero_()
    agent.compute_bonus(features, torch.zeros(20))
    values = bonus.called_with[0]["values"][0]
    assert not values.requires_grad
    assert values.abs().min() > 0
    torch.testing.assert_close(values, agent.slow_extrinsic_critic(features).detach())


def test_what_a_bonus_needs_that_the_agent_has_not_is_refused_by_name():
    class OfActions(Recorder):
        needs_actions = True

    with pytest.raises(ValueError, match="OfActions needs actions, but the agent mwm gives rewards, values"):
        MWM(KIND.spec, NONE, 0, bonus=OfActions(learners=1))
    with pytest.raises(ValueError, match=r"Recorder for learners .* must be made with learners=1"):
        MWM(KIND.spec, NONE, 0, bonus=Recorder(learners=2))


def test_the_projection_is_rounded_and_small_in_the_release_and_keeps_distances_otherwise():
    features = torch.randn(200, 400, generator=torch.Generator().manual_seed(0))
    distances = torch.cdist(features, features).median()
    sizes = {**KIND.small, "deterministic": 376, "variables": 4, "classes": 6, "projection_size": 256}
    for reading, std, rounds in (("release", 1 / 256, True), ("paper", 1 / 256, False), ("clean", 1 / 16, False)):
        bonus = Recorder(learners=1)
        agent = MWM(KIND.spec, dataclasses.replace(mwm_settings("none", reading), **sizes), 0, bonus=bonus)
        agent.compute_bonus(features, torch.zeros(200))
        projected = bonus.called_with[0]["features"][0]
        for numbers in (agent.projection, projected):
            assert torch.equal(numbers.half().float(), numbers) == rounds, reading
        assert agent.projection.std().item() == pytest.approx(std, rel=0.01)
        shrunk = (torch.cdist(projected, projected).median() / distances).item()
        assert shrunk == pytest.approx(16 * std, rel=0.03)


def test_the_rate_of_the_autoencoder_rises_to_what_is_set_and_stays_there():
    agent = KIND.make([KIND.config("none", warm_up_updates=4, autoencoder_learning_rate=1e-3)], [0])
    rates = []
    for update in range(6):
        agent.update_autoencoder(KIND.material(update))
        rates.append(agent.optimizers["autoencoder"].param_groups[0]["lr"])
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3, 1e-3, 1e-3])


def test_all_of_the_autoencoder_decays_and_the_matrices_alone_of_all_else():
    rates = dict.fromkeys(("model_learning_rate", "autoencoder_learning_rate", "learning_rate"), 1e-30)
    agent = KIND.make([KIND.config("vcse", weight_decay=0.25, target_updates=100, **rates)], [0])
    with torch.no_grad():
        for each in (*agent.policy.parameters(), *agent._critic_parameters, *agent.bonus_head.parameters()):
            each.add_(0.1 if each.ndim == 1 else 0)  # biases begin at 0
    before = parts(agent)
    KIND.update(agent, [0])
    for name, parameters in parts(agent).items():
        if name.startswith("slow"):
            continue
        for old, new in zip(before[name], parameters, strict=True):
            decays = name == "autoencoder" or old.ndim > 1
            torch.testing.assert_close(new, 0.75 * old if decays else old, rtol=1e-6, atol=0)


def test_slow_critics_are_copied_after_the_first_update_and_every_so_many_after_it():
    agent = KIND.make([KIND.config("vcse", target_updates=3)], [0])
    for update in range(7):
        KIND.update(agent, [update])
        found = parts(agent)
        for name in ("critic", "extrinsic_critic"):
            assert all_equal(found[name], found[f"slow_{name}"]) == (update % 3 == 0), (name, update)


def plain_states(agent, images, actions, uniforms):
    """Return the latent states of one sequence as the world model infers them in training."""
    known = agent.model.encoder(agent.autoencoder.features(images))[None]
    is_first = torch.arange(len(images))[None] == 0
    states, _ = agent.model.rssm.observe_sequence(known, actions[None], is_first, uniforms[None])
    return states.features[0].detach()


def test_a_policy_knows_the_states_that_the_world_model_infers_from_the_same_images():
    agent = KIND.make([NONE], [0])
    KIND.update(agent, [0])
    images = KIND.material(5, sequences=1).images[0]
    memory, uniforms, noise = (
        agent.acting_policy.initial_state(1),
        *(torch.stack(each) for each in zip(*(KIND.uniforms(step, 1) for step in range(5)), strict=True)),
    )
    actions, states = [torch.zeros(2)], []
    for step in range(5):
        action, memory = agent.act(images[step : step + 1], memory, uniforms[step], noise[step])
        assert torch.equal(memory.actions, action)
        actions.append(action[0])
        states.append(torch.cat((memory.stochastic.flatten(1), memory.deterministic), 1)[0])
    expected = plain_states(agent, images, torch.stack(actions[:5]), uniforms[:, 0])
    torch.testing.assert_close(torch.stack(states), expected, rtol=1e-4, atol=1e-5)


def test_a_memory_of_zeros_begins_an_episode():
    agent = KIND.make([NONE], [0])
    images, (uniforms, noise) = KIND.images(1), KIND.uniforms(1)
    _, memory = agent.act(images, agent.acting_policy.initial_state(4), uniforms, noise)
    begins = torch.tensor([True, False, False, True])
    rows = [each.masked_fill(begins.view(-1, *[1] * (each.ndim - 1)), 0) for each in memory]
    found, _ = agent.act(KIND.images(2), PolicyState(*rows), uniforms, noise)
    fresh, _ = agent.act(KIND.images(2), agent.acting_policy.initial_state(4), uniforms, noise)
    carried, _ = agent.act(KIND.images(2), memory, uniforms, noise)
    torch.testing.assert_close(found, torch.where(begins[:, None], fresh, carried), rtol=1e-5, atol=1e-6)
    assert (fresh != carried).any()


def test_without_noise_actions_are_the_mean_and_with_it_quantiles_of_the_truncated_normal():
    agent = KIND.make([NONE], [0])
    with torch.no_grad():
        agent.acting_policy.actor.output.weight.mul_(30)
    images, (uniforms, _) = KIND.images(1), KIND.uniforms(1)
    mean, memory = agent.act(images, agent.acting_policy.initial_state(4), uniforms, None)
    outputs = agent.acting_policy.actor(torch.cat((memory.stochastic.flatten(1), memory.deterministic), 1)).detach()
    torch.testing.assert_close(mean, outputs[:, :2].tanh())
    std = 0.1 + 0.9 * outputs[:, 2:].sigmoid()
    for quantile in (0.0, 0.1, 0.5, 0.9):
        noise = torch.full((4, 2), quantile)
        action, _ = agent.act(images, agent.acting_policy.initial_state(4), uniforms, noise)
        below, whole = (normal_mass(mean, std, high) for high in (action, torch.ones(4, 2)))
        torch.testing.assert_close(below / whole, noise, rtol=1e-3, atol=1e-4)
    assert (mean.abs() > 0.1).any()


def normal_mass(mean, std, high):
    """Return what a normal distribution has from -1 to an upper end."""
    low, high = ((each - mean) / (std * math.sqrt(2)) for each in (torch.full_like(mean, -1), high))
    return (high.erf() - low.erf()) / 2


@pytest.mark.parametrize("shape", [(4, 3, 8, 16), (4, 3, 24, 24), (4, 1, 16, 16)])
@pytest.mark.usefixtures("without_type_checks")
def test_images_of_another_size_are_refused_with_their_shape(shape):
    agent = KIND.make([NONE], [0])
    with pytest.raises(ValueError, match=rf"images must be \[n, 3, 16, 16\], got shape \({shape[0]}, {shape[1]}, "):
        agent.act(torch.zeros(shape, dtype=torch.uint8), agent.acting_policy.initial_state(4), *KIND.uniforms(0))


def test_what_was_learned_is_acted_on_once_it_is_adopted():
    agent, other = (KIND.make([VCSE], [0]) for _ in range(2))
    before = KIND.act(agent, [0])
    for each in (agent, other):
        each.update_autoencoder(KIND.material(1))
    agent.update_networks(KIND.material(0))
    assert torch.equal(KIND.act(agent, [0]), before)
    agent.update_acting_policy()
    assert not torch.equal(KIND.act(agent, [0]), before)
    other.update(KIND.material(0))
    assert_same_state(agent.state_dict(), other.state_dict())


def test_saved_before_what_was_learned_is_adopted_a_learner_goes_on_the_same():
    agent, other = (KIND.make([VCSE], [seed]) for seed in (0, 1))
    KIND.update(agent, [0])
    agent.update_networks(KIND.material(1))
    other.load_state_dict(agent.state_dict())
    assert torch.equal(KIND.act(other, [3]), KIND.act(agent, [3]))
    for each in (agent, other):
        each.update_acting_policy()
        each.update_autoencoder(KIND.material(2))
        each.update_networks(KIND.material(3))
    assert_same_state(other.state_dict(), agent.state_dict())


def test_a_policy_alone_comes_from_the_state_of_any_learner():
    for bonus in ("none", "se", "vcse"):
        trained, loaded = KIND.make([KIND.config(bonus)], [0]), KIND.make([NONE], [9])
        KIND.update(trained, [0])
        trained.update_networks(KIND.material(1))
        loaded.load_policy({"acting": trained.state_dict()["acting"]})
        assert torch.equal(KIND.act(loaded, [3]), KIND.act(trained, [3]))


def test_global_random_numbers_are_neither_used_nor_seeded():
    before = torch.random.get_rng_state()
    agents = [KIND.make([VCSE], [0]) for _ in range(2)]
    KIND.update(agents[0], [0])
    torch.rand(3)
    torch.random.set_rng_state(before)
    KIND.update(agents[1], [0])
    assert torch.equal(torch.random.get_rng_state(), before)
    assert_same_state(*(agent.state_dict() for agent in agents))


@pytest.mark.usefixtures("without_type_checks")
def test_bfloat16_learns_nearly_the_same_in_parameters_of_float32():
    agents = [KIND.make([KIND.config("vcse", precision=precision)], [0]) for precision in ("float32", "bfloat16")]
    for update in range(3):
        expected, found = (KIND.update(agent, [update]) for agent in agents)
        for name in ("autoencoder_loss", "feature_loss", "reward_loss", "critic_loss", "policy_entropy"):
            torch.testing.assert_close(found[name], expected[name], rtol=0.05, atol=0.02, msg=f"{name}, {update}")
    for each in (*agents[1].policy.parameters(), *agents[1]._critic_parameters):
        assert each.dtype == torch.float32
        assert each.isfinite().all()
    action = KIND.act(agents[1], [0])
    assert action.dtype == torch.float32
    assert action.abs().max() <= 1
