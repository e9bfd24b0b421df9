import copy
import doctest
import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest
import torch
from gymnasium import spaces
from integrations.common import copy_of, same
from torch import nn

pytest.importorskip("skrl", reason="skrl is not installed")

import skrl
from integrations.skrl_agents import (
    AGENTS,
    BATCH,
    ENVIRONMENTS,
    OFF_POLICY,
    ON_POLICY,
    STATES,
    STEPS,
    bonus,
    make,
    play,
    train,
    transitions,
    weights,
)
from skrl.resources.preprocessors.torch import RunningStandardScaler

from vcse.bonuses import NoBonus, ValueConditionalStateEntropy
from vcse.integrations import ValueNetwork
from vcse.integrations.skrl import AgentBonus, ValueConditionalBonus
from vcse.returns import gae

of_every_agent = pytest.mark.parametrize("kind", AGENTS)
of_rollouts = pytest.mark.parametrize("kind", ON_POLICY)
of_replays = pytest.mark.parametrize("kind", OFF_POLICY)


@of_every_agent
def test_with_a_weight_of_0_the_agent_is_the_plain_one_bit_for_bit(kind):
    plain, free, paid = (train(kind, beta) for beta in (None, 0.0, 1.0))
    assert same(weights(free), weights(plain))
    assert not same(weights(paid), weights(plain))


@pytest.mark.parametrize("bootstrap", [False, True])
@of_rollouts
def test_the_reward_of_rollouts_is_the_task_s_and_the_bonus(kind, bootstrap, monkeypatch):
    agent, steps = make(kind, 0.3, time_limit_bootstrap=bootstrap, rewards_shaper=shaper), transitions(STEPS)
    plain = make(kind, time_limit_bootstrap=bootstrap, rewards_shaper=shaper)
    critic = copy.deepcopy(agent.part.critic)
    seen = {}
    module = sys.modules[AGENTS[kind].__module__]
    compute = module.compute_gae
    for name, each in (("plain", plain), ("paid", agent)):
        monkeypatch.setattr(
            module,
            "compute_gae",
            lambda name=name, **known: seen.update({name: copy.deepcopy(known)}) or compute(**known),
        )
        play(each, steps)
    observations = torch.stack([step["observations"] for step in steps], 1)  # environment by environment
    with torch.no_grad():
        values = critic(observations.flatten(0, 1))
    alone = ValueConditionalStateEntropy.recommended(k=5)(observations.flatten(0, 1) / 3**0.5, values=values).reward
    wanted = seen["plain"]["rewards"] + 0.3 * alone.view(ENVIRONMENTS, STEPS).T[..., None]
    torch.testing.assert_close(seen["paid"]["rewards"], wanted)
    # What is stored is what the plain agent stores: the task's own reward, and its value where a time limit ended.
    assert torch.equal(agent.memory.get_tensor_by_name("rewards"), plain.memory.get_tensor_by_name("rewards"))
    task = torch.stack([step["rewards"] for step in steps]) * 0.5
    assert torch.equal(plain.memory.get_tensor_by_name("rewards"), task) != bootstrap


def shaper(rewards, timestep, timesteps):
    return rewards * 0.5


@pytest.mark.parametrize("bootstrap", [False, True])
def test_the_extrinsic_critic_learns_of_the_task_s_rewards_alone(bootstrap):
    agent, steps = make("ppo", 1.0, time_limit_bootstrap=bootstrap, rewards_shaper=shaper), transitions(STEPS)
    critic, learned = copy.deepcopy(agent.part.critic), []
    agent.part._train_critic = lambda inputs, returns: learned.append(returns)
    play(agent, steps)
    whole = {name: torch.stack([step[name] for step in steps], 1) for name in ("observations", "next_observations")}
    rewards, terminated, truncated = (
        torch.stack([step[name].squeeze(-1) for step in steps], 1) for name in ("rewards", "terminated", "truncated")
    )
    ended = terminated | truncated
    with torch.no_grad():
        values = critic(whole["observations"].flatten(0, 1)).view(ENVIRONMENTS, STEPS)
        later = critic(whole["next_observations"].flatten(0, 1)).view(ENVIRONMENTS, STEPS)
    later = torch.where(ended, values, later)  # what an episode ended with is like what came just before
    advantages = gae(0.5 * rewards, values, later, terminated, ended, discount=0.99, gae_lambda=0.95)
    torch.testing.assert_close(learned[0], (values + advantages).flatten())


@pytest.mark.parametrize(("epochs", "changes"), [(0, False), (1, True)])
def test_a_critic_may_be_left_as_it_is(epochs, changes):
    agent = make("ppo", 1.0, pays=lambda beta: bonus(beta, epochs=epochs))
    before = copy_of(agent.part.critic)
    play(agent, transitions(STEPS))
    assert agent.part.epochs == epochs
    assert same(before, copy_of(agent.part.critic)) != changes


def test_rewards_of_the_environment_are_not_changed_in_place():
    agent = make("ppo", 1.0, time_limit_bootstrap=True)
    agent.init()
    agent.enable_training_mode(True)
    step = transitions(1)[0] | {"truncated": torch.ones(ENVIRONMENTS, 1, dtype=torch.bool)}
    before = step["rewards"].clone()
    with torch.no_grad():
        actions = agent.act(step["observations"], None, timestep=0, timesteps=10)[0]
        agent.record_transition(actions=actions, **step, timestep=0, timesteps=10)
    assert torch.equal(step["rewards"], before)
    assert not torch.equal(agent.memory.get_tensor_by_name("rewards")[0], before)


@of_replays
def test_the_reward_of_samples_is_the_task_s_and_the_bonus(kind):
    agent = play(make(kind, 0.3, rewards_shaper=shaper), transitions(10))  # not enough to learn
    target, names = copy.deepcopy(agent.part.target_critic), agent._tensors_names
    torch.manual_seed(5)
    plain = dict(zip(names, agent.memory.sample(names, batch_size=BATCH)[0], strict=True))
    torch.manual_seed(5)
    paid = dict(zip(names, agent.update.__self__.sample(names, batch_size=BATCH)[0], strict=True))
    states = plain["observations"]
    mean = agent.policy.eval().compute({"observations": states}, "policy")[0].clamp(-2, 2)
    with torch.no_grad():
        values = target({"observations": states}, mean)
    alone = ValueConditionalStateEntropy.recommended(k=5)(states / 3**0.5, values=values).reward
    torch.testing.assert_close(paid["rewards"], plain["rewards"] + 0.3 * alone[:, None])
    assert all(same(paid[name], plain[name]) for name in names if name != "rewards")


@of_replays
def test_stored_rewards_stay_the_task_s_and_the_memory_is_as_it_was(kind):
    steps = transitions(15)
    agent = play(make(kind, 1.0, rewards_shaper=shaper), steps)
    task = torch.stack([step["rewards"] for step in steps]) * 0.5
    assert torch.equal(agent.memory.get_tensor_by_name("rewards")[:15], task)
    assert "sample" not in vars(agent.memory)


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_an_update_that_fails_leaves_the_memory_as_it_was(kind, monkeypatch):
    agent, steps = make(kind, 1.0), transitions(STEPS)
    monkeypatch.setattr(AGENTS[kind], "update", lambda self, **times: self.memory.none)
    with pytest.raises(AttributeError, match="none"):
        play(agent, steps)
    stored = agent.memory.get_tensor_by_name("rewards")
    steps = steps[: STEPS if kind == "ppo" else 11]
    assert torch.equal(stored[: len(steps)], torch.stack([step["rewards"] for step in steps]))
    assert "sample" not in vars(agent.memory)


@of_every_agent
def test_the_extrinsic_critic_s_gradient_reaches_nothing_else(kind, monkeypatch):
    agent = make(kind, 1.0)
    before, critic = weights(agent), copy_of(agent.part.critic)
    if kind in ON_POLICY:
        monkeypatch.setattr(AGENTS[kind], "update", lambda self, **times: None)  # what the agent itself would learn
        play(agent, transitions(STEPS))
    else:
        play(agent, transitions(10))
        agent.enable_models_training_mode(True)
        agent.update.__self__.sample(agent._tensors_names, batch_size=BATCH)
        assert all(model.training for model in agent.models.values())
    models = agent.models.values()
    assert all(each.grad is None for model in models for each in model.parameters())
    assert same(weights(agent), before)
    assert not same(copy_of(agent.part.critic), critic)
    assert not {*map(id, agent.part.parameters())} & {id(each) for model in models for each in model.parameters()}


@of_every_agent
def test_saved_and_loaded_it_goes_on_as_if_it_had_not_stopped(kind, tmp_path):
    choices = {"observation_preprocessor": RunningStandardScaler}
    choices["observation_preprocessor_kwargs"] = {"size": STATES, "device": "cpu"}
    if kind == "sac":
        choices["learn_entropy"] = False  # skrl's checkpoints do not have the coefficient
    pause, steps = (2 * STEPS if kind in ON_POLICY else 15), transitions(3 * STEPS)
    one = play(make(kind, 1.0, **choices), steps[:pause])
    one.save(tmp_path / "agent.pt")
    other = make(kind, 1.0, **choices)
    other.init()
    other.enable_training_mode(True)
    other.load(tmp_path / "agent.pt")
    for name in one.memory.get_tensor_names():
        other.memory.set_tensor_by_name(name, one.memory.get_tensor_by_name(name))
    other.memory.memory_index = one.memory.memory_index
    if kind == "td3":
        other._update_counter = one._update_counter  # nor do skrl's checkpoints have this
    state = torch.get_rng_state()
    play(one, steps[pause:], start=pause)
    torch.set_rng_state(state)
    play(other, steps[pause:], start=pause)
    assert same(weights(one), weights(other))
    assert same(one.part.state_dict(), other.part.state_dict())


def test_a_checkpoint_without_a_bonus_is_loaded_all_the_same(tmp_path):
    play(make("ppo"), transitions(STEPS)).save(tmp_path / "plain.pt")
    agent = make("ppo", 1.0)
    before = agent.part.state_dict()
    agent.load(tmp_path / "plain.pt")
    assert same(before, agent.part.state_dict())


@pytest.mark.parametrize("kind", ["ppo", "sac"])
def test_numbers_are_tracked(kind, tmp_path):
    experiment = {"write_interval": 1000, "checkpoint_interval": 0, "directory": str(tmp_path)}
    agent = play(make(kind, 1.0, experiment=experiment), transitions(STEPS))
    tracked = {name for name in agent.tracking_data if name.startswith("bonus/")}
    assert {"bonus/mean", "bonus/beta", "bonus/extrinsic_critic_loss"} <= tracked
    agent.writer.close()


def test_dictionaries_and_images_are_what_they_were_before_they_were_vectors():
    space = spaces.Dict({"speed": spaces.Box(-1, 1, (2,)), "view": spaces.Box(0, 255, (40, 40, 3), dtype="uint8")})
    agent = make("ppo", 1.0, space=space)
    critic = agent.part.critic.network.layers[0]
    assert {name: trunk.is_image for name, trunk in zip(critic.names, critic.trunks, strict=True)} == {
        "speed": False,
        "view": True,
    }
    seen = []
    critic.trunks[1].register_forward_pre_hook(lambda trunk, inputs: seen.append(inputs[0]))
    steps = transitions(STEPS, space=space)
    for step in steps:
        for name in ("observations", "next_observations"):
            step[name] = (step[name].abs() * 50).round()
    play(agent, steps)
    assert seen[0].dtype == torch.uint8
    assert seen[0].shape[1:] == (40, 40, 3)
    wanted = torch.stack([step["observations"] for step in steps], 1).flatten(0, 1)[:, 2:]
    assert torch.equal(seen[0][: len(wanted)].flatten(1).float(), wanted)


def test_bonuses_may_look_at_discrete_actions():
    class Looks(NoBonus):
        needs_actions = True
        seen: ClassVar = []

        def forward(self, features, *, actions):
            self.seen.append(actions)
            return super().forward(features)

    agent = make("ppo", 1.0, actions=spaces.Discrete(4), pays=lambda beta: AgentBonus(Looks(), beta=beta))
    play(agent, transitions(STEPS))
    taken = agent.memory.get_tensor_by_name("actions")
    assert torch.equal(Looks.seen[0], taken.transpose(0, 1).flatten().long())


def test_policies_may_look_at_states_that_the_bonus_does_not():
    agent, seen = make("sac", 1.0), []
    compute = agent.policy.compute
    agent.policy.compute = lambda inputs, role: seen.append(inputs) or compute(inputs, role)
    agent.state_space = spaces.Box(-1, 1, (2,))
    states = {"states": torch.ones(ENVIRONMENTS, 2), "next_states": torch.full((ENVIRONMENTS, 2), 2.0)}
    play(agent, [step | states for step in transitions(12)])
    both = next(inputs["states"] for inputs in seen if len(inputs["observations"]) == 2 * BATCH)  # the bonus asks
    assert torch.equal(both, torch.cat((torch.ones(BATCH, 2), torch.full((BATCH, 2), 2.0))))


def test_an_agent_that_a_trainer_has_prepared_already_is_paid_the_same():
    late, early = make("ppo"), make("ppo", 1.0)
    late.init()
    late.enable_training_mode(True)
    bonus(1.0).attach(late)
    torch.manual_seed(1)
    play(late, transitions(STEPS))
    torch.manual_seed(1)
    assert same(weights(late), weights(play(early, transitions(STEPS))))


def test_one_pattern_serves_several_agents():
    paying = bonus(1.0)
    parts = [paying.attach(make(kind)) for kind in ("ppo", "sac")]
    assert parts[0].bonus is not parts[1].bonus is not paying.bonus
    assert ValueConditionalBonus().bonus.k == 12
    assert ValueConditionalBonus(k=5).bonus.k == 5
    encoder = nn.Linear(3, 2)
    part = AgentBonus(encoder=encoder, bonus=ValueConditionalStateEntropy.recommended(k=5)).attach(make("ppo"))
    assert torch.equal(part.encoder.network.weight, encoder.weight)
    assert isinstance(part.critic.network, ValueNetwork)


REFUSED = {
    "kind of agent": (
        SimpleNamespace,
        "SimpleNamespace is not supported; supported are PPO, A2C, RPO, SAC, TD3, DDPG, and subclasses of these",
    ),
    "rollout": (
        lambda: make("a2c", rollouts=STEPS),
        r"k=48 needs more than 48 states, but a rollout of A2C has 48 \(memory_size=16, num_envs=3\): decrease k or",
    ),
    "batch": (
        lambda: make("sac", batch_size=40),
        r"k=48 needs more than 48 states, but a batch of SAC has 40: decrease k or increase batch_size",
    ),
    "twice": (lambda: make("ppo", 1.0), "this PPO already has a bonus: attach only one"),
    "space": (
        lambda: make("ppo", space=spaces.Discrete(5)),
        "the observation space is Discrete, which is not supported; supported are Box, and Dict of these",
    ),
    "space in a dictionary": (
        lambda: make("ppo", space=spaces.Dict({"cell": spaces.Discrete(5)})),
        "the observation space 'cell' is Discrete, which is not supported; supported are Box, and Dict of these",
    ),
}


@pytest.mark.parametrize(("agent", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_supported_is_named(agent, message, without_type_checks):
    k = 48 if "48" in message else 5
    with pytest.raises(ValueError, match=f"^{message}"):
        ValueConditionalBonus(k=k).attach(agent())


def test_more_that_is_not_supported():
    with pytest.raises(ValueError, match="pass k or bonus, not both: got k=3 and "):
        ValueConditionalBonus(k=3, bonus=NoBonus())
    agent = make("ppo")
    agent.memory = None
    with pytest.raises(ValueError, match="this PPO has no memory"):
        bonus(1.0).attach(agent)
    discrete = make("sac")
    discrete.action_space = spaces.Discrete(3)
    with pytest.raises(ValueError, match="the action space is Discrete; with off-policy agents, Box is supported"):
        bonus(1.0).attach(discrete)


def test_several_processes_are_refused(monkeypatch):
    agent = make("ppo")
    monkeypatch.setattr(type(skrl.config.torch), "world_size", property(lambda self: 4))
    with pytest.raises(ValueError, match="distributed training is not supported: each of the 4 processes"):
        bonus(1.0).attach(agent)


def test_two_agents_that_share_a_memory_are_refused():
    one = make("ppo", 1.0)
    steps = [
        {name: each[:1] if isinstance(each, torch.Tensor) else each for name, each in step.items()}
        for step in transitions(48)
    ]
    with pytest.raises(
        ValueError,
        match=r"rewards of shape \(16, 1, 1\) were recorded, but the memory has \(16, 3, 1\): each agent needs a",
    ):
        play(one, steps)


@pytest.mark.parametrize("public", [ValueConditionalBonus])
def test_the_examples_of_docstrings_print_what_they_say(public):
    (found,) = doctest.DocTestFinder(recurse=False).find(public, module=False, globs={})
    result = doctest.DocTestRunner().run(found)
    assert result.failed == 0
    assert result.attempted > 1


def test_without_skrl_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "skrl", None)
    monkeypatch.delitem(sys.modules, "vcse.integrations.skrl")
    with pytest.raises(ImportError, match=r"^vcse.integrations.skrl needs skrl: .*pip install 'vcse\[skrl\]'$"):
        import vcse.integrations.skrl  # noqa: F401


@pytest.mark.parametrize("version", ["1.4.3", "3.0.0"])
def test_a_version_that_is_not_supported_is_named_with_the_range(version, monkeypatch):
    monkeypatch.setattr(skrl, "__version__", version)
    monkeypatch.delitem(sys.modules, "vcse.integrations.skrl")
    with pytest.raises(ImportError, match=rf"^skrl {version} is not supported, but >=2\.0,<3 is: .*\[skrl\]'$"):
        import vcse.integrations.skrl  # noqa: F401
