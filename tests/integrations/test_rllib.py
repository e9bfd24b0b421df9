import copy
import doctest
import re
import sys
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import torch
from gymnasium import spaces
from integrations.common import copy_of, no_global_random_numbers, same
from torch import nn
from torch.nn.functional import mse_loss

try:
    import ray
    import ray.rllib
except ImportError as error:
    pytest.skip(f"RLlib is not installed: {error}", allow_module_level=True)

from integrations.rllib_agents import (
    AGENTS,
    BATCH,
    GAMMA,
    OFF_POLICY,
    STATES,
    Linear,
    batch_of,
    configured,
    episodes,
    experience,
    make,
    sampled,
    update,
    weights,
)
from ray.rllib.algorithms import ppo
from ray.rllib.algorithms.algorithm import Algorithm
from ray.rllib.algorithms.appo import APPOConfig
from ray.rllib.core import DEFAULT_MODULE_ID, Columns
from ray.rllib.core.rl_module import RLModuleSpec
from ray.rllib.evaluation.postprocessing import Postprocessing

from vcse.bonuses import EpisodicCounts, NoBonus, ValueConditionalStateEntropy
from vcse.integrations.rllib import BonusOptions, PPOBonusLearner, shape_of
from vcse.returns import gae

ROOT = Path(__file__).parents[2]
of_every_agent = pytest.mark.parametrize("kind", AGENTS)
of_replays = pytest.mark.parametrize("kind", OFF_POLICY)


def alone(features, values, k=5):
    """Compute the bonus of a first batch."""
    return ValueConditionalStateEntropy.recommended(k=k)(features / 3**0.5, values=values).reward


@of_every_agent
def test_with_a_weight_of_0_the_agent_is_the_plain_one_bit_for_bit(kind):
    plain, free, paid = (make(kind, beta) for beta in (None, 0.0, 1.0))
    for learner in (plain, free, paid):
        for number in range(3):
            update(learner, kind, seed=number)
    assert same(weights(free), weights(plain))
    assert not same(weights(paid), weights(plain))


def test_the_reward_of_rollouts_is_the_task_s_and_the_bonus():
    given, plain, learner = episodes(), make("ppo"), make("ppo", 0.3)
    critic, seen, also_seen = copy.deepcopy(learner.part.critic), copy.deepcopy(given), copy.deepcopy(given)
    task, paid = batch_of(plain, seen), batch_of(learner, also_seen)
    # RLlib appends a step to the episodes themselves; all else in them stays, with a bonus or without.
    assert all(same(one.get_state(), other.get_state()) for one, other in zip(seen, also_seen, strict=True))
    assert all(same(one.get_rewards(), other.get_rewards()[:-1]) for one, other in zip(given, seen, strict=True))
    real = task[Columns.LOSS_MASK]
    assert real.sum() == sum(map(len, given)) == len(real) - len(given)
    states = torch.from_numpy(np.concatenate([each.get_observations(slice(0, len(each))) for each in given]))
    with torch.no_grad():
        bonus = alone(states, critic(states))
    assert len(learner.part.output.reward) == len(states)  # the step that RLlib adds to an episode is no state
    wanted = task[Columns.REWARDS].clone()
    wanted[real] += 0.3 * bonus
    torch.testing.assert_close(paid[Columns.REWARDS], wanted)
    # And advantages are computed from that.
    targets = []
    for each, rewards in zip(given, wanted[real].split([len(each) for each in given]), strict=True):
        with torch.no_grad():
            observations = torch.from_numpy(each.get_observations())
            values = learner.module[DEFAULT_MODULE_ID].compute_values({Columns.OBS: observations})
        ended, terminated = torch.zeros(2, 1, len(each), dtype=torch.bool)
        ended[0, -1], terminated[0, -1] = True, each.is_terminated
        now, later = values[None, :-1], values[None, 1:]
        advantages = gae(rewards[None], now, later, terminated, ended, discount=GAMMA, gae_lambda=1.0)
        targets.append((now + advantages)[0])
    torch.testing.assert_close(paid[Postprocessing.VALUE_TARGETS][real], torch.cat(targets))


def test_the_extrinsic_critic_learns_of_the_task_s_rewards_alone_and_tells_time_limits_from_terminations():
    given, learner = episodes(), make("ppo", 1.0)
    critic, learned = copy.deepcopy(learner.part.critic), []
    learner.part._train_critic = lambda inputs, returns: learned.append(returns)
    batch_of(learner, copy.deepcopy(given))
    wanted = []
    for each in given:
        with torch.no_grad():
            values = critic(torch.from_numpy(each.get_observations()))
        following = 0.0 if each.is_terminated else values[-1].item()
        for reward in reversed(each.get_rewards()):  # λ is 1, as RLlib has it
            following = float(reward) + GAMMA * following
            wanted.append(following)
        wanted[-len(each) :] = reversed(wanted[-len(each) :])
    torch.testing.assert_close(learned[0], torch.tensor(wanted))


@of_replays
@pytest.mark.parametrize("n_step", [1, 3])
def test_the_reward_of_samples_is_the_task_s_and_the_bonus(kind, n_step):
    given, stored = sampled(kind, n_step=n_step)
    before = copy.deepcopy([each.get_state() for each in stored])
    plain, learner = make(kind), make(kind, 0.3)
    critic, target = copy.deepcopy(learner.part.critic), copy.deepcopy(learner.part.target_critic)
    task, paid = batch_of(plain, copy.deepcopy(given)), batch_of(learner, given)
    module = learner.module[DEFAULT_MODULE_ID]
    with torch.no_grad():
        actions = []
        for states in (task[Columns.OBS], task[Columns.NEXT_OBS]):
            if kind == "dqn":
                actions.append(module.compute_q_values({Columns.OBS: states})["qf_preds"].argmax(-1))
            else:
                logits = module.forward_inference({Columns.OBS: states})[Columns.ACTION_DIST_INPUTS]
                actions.append(logits[:, :2].tanh() if kind == "sac" else logits.argmax(-1))
        values, later = target(task[Columns.OBS], actions[0]), target(task[Columns.NEXT_OBS], actions[1])
        goes_on = 1 - task[Columns.TERMINATEDS].float()
        targets = task[Columns.REWARDS] + GAMMA**n_step * goes_on * later
        loss = mse_loss(critic(task[Columns.OBS], task[Columns.ACTIONS]), targets)
    assert 0 < goes_on.sum() < BATCH
    torch.testing.assert_close(paid[Columns.REWARDS], task[Columns.REWARDS] + 0.3 * alone(task[Columns.OBS], values))
    assert learner.part.metrics()["bonus/extrinsic_critic_loss"] == pytest.approx(loss.item(), rel=1e-5)
    assert all(same(paid[name], task[name]) for name in task if name != Columns.REWARDS)
    assert same([each.get_state() for each in stored], before)


def test_sequences_of_recurrent_modules_are_paid_as_episodes_are():
    model = {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5}
    given, flat, learner = episodes(), make("ppo", 0.3), make("ppo", 0.3, model=model)
    wanted, padded = batch_of(flat, copy.deepcopy(given))[Columns.REWARDS], batch_of(learner, given)
    assert padded[Columns.REWARDS].shape == (2 + 3 + 2, 5)
    present = torch.arange(5) < padded[Columns.SEQ_LENS][:, None]
    torch.testing.assert_close(padded[Columns.REWARDS][present], wanted)
    assert (padded[Columns.REWARDS][~present] == 0).all()
    update(learner, "ppo")


@of_every_agent
def test_the_extrinsic_critic_s_gradient_reaches_nothing_else(kind):
    learner = make(kind, 1.0)
    module = learner.module[DEFAULT_MODULE_ID].train()
    frozen = next(iter(module.children())).eval()
    before, critic = weights(learner), copy_of(learner.part.critic)
    batch_of(learner, experience(kind))
    assert module.training
    assert not frozen.training
    assert all(each.grad is None for each in module.parameters())
    assert same(weights(learner), before)
    assert not same(copy_of(learner.part.critic), critic)
    assert not {*map(id, learner.part.parameters())} & {*map(id, module.parameters())}


@of_every_agent
def test_no_global_random_number_is_drawn(kind, without_type_checks):
    learner, plain = make(kind, 1.0), make(kind)
    batch = batch_of(plain, experience(kind))
    with no_global_random_numbers():
        learner._make_part(**learner.options.part_arguments())
        learner._add_bonus(batch)


@of_every_agent
def test_saved_and_restored_it_goes_on_as_if_it_had_not_stopped(kind, tmp_path):
    one, other = make(kind, 1.0), make(kind, 1.0)
    update(one, kind, seed=1)
    one.save_to_path(tmp_path)
    other.restore_from_path(tmp_path)
    if kind == "ppo":  # RLlib's checkpoints do not have the coefficient
        other.curr_kl_coeffs_per_module[DEFAULT_MODULE_ID].data.copy_(one.curr_kl_coeffs_per_module[DEFAULT_MODULE_ID])
    if "sac" in kind:  # nor this
        other.curr_log_alpha[DEFAULT_MODULE_ID].data.copy_(one.curr_log_alpha[DEFAULT_MODULE_ID])
    if kind in OFF_POLICY:
        other.last_update_ts_by_mid.update(one.last_update_ts_by_mid)
    state = copy.deepcopy(one.part.state_dict())
    for learner in (one, other):
        update(learner, kind, seed=2)
    assert same(weights(one), weights(other))
    assert same(one.part.state_dict(), other.part.state_dict())
    assert not same(one.part.state_dict(), state)


def test_only_whole_states_have_the_bonus_and_a_plain_learner_s_state_is_loaded_all_the_same():
    learner = make("ppo", 1.0)
    assert "bonus" in learner.get_state()
    assert "bonus" not in learner.get_state(components=["rl_module"])
    assert "bonus" not in learner.get_state(not_components=["bonus"])
    state = learner.get_state()["bonus"]
    before = copy.deepcopy(state)
    learner.set_state(make("ppo").get_state())
    assert same(learner.get_state()["bonus"], before)
    update(learner, "ppo")
    assert same(state, before)


def test_the_state_of_another_bonus_is_refused():
    state = make("ppo", 1.0).get_state()
    other = make("ppo", 1.0, bonus=ValueConditionalStateEntropy(k=5))
    with pytest.raises(ValueError, match=r"^the checkpoint has the state of another bonus.*set learner_config_dict\["):
        other.set_state(state)


def test_the_weight_falls_to_0_in_as_many_steps_of_the_environment():
    learner = make("ppo", 0.5, decay_steps=1000)
    for steps, weight in ((250, 0.375), (1000, 0.0), (2000, 0.0)):
        results = update(learner, "ppo", steps=steps)
        assert learner.part.beta == weight
        assert results[DEFAULT_MODULE_ID]["bonus"]["beta"].peek() == weight
    assert BonusOptions(beta=0.5).beta_at(10**9) == 0.5


@of_every_agent
def test_numbers_are_logged(kind):
    numbers = update(make(kind, 1.0), kind)[DEFAULT_MODULE_ID]["bonus"]
    assert {"mean", "std", "value_mean", "extrinsic_critic_loss", "beta"} <= set(numbers)


def test_everything_has_a_default():
    learner = make("ppo", change=lambda config: config.learners(learner_class=PPOBonusLearner))
    assert (learner.part.bonus.k, learner.part.beta, learner.part.epochs) == (12, 0.02, 2)
    assert (learner.part.discount, learner.part.gae_lambda) == (GAMMA, 1.0)
    update(learner, "ppo")
    given = BonusOptions(k=3, learning_rate=0.5, encoder=nn.Linear(3, 2))
    arguments = given.part_arguments()
    assert (arguments["bonus"].k, arguments["learning_rate"]) == (3, 0.5)
    assert arguments["encoder"] is not given.encoder
    learner = make("ppo", 1.0)
    assert learner.part.bonus is not learner.config.learner_config_dict["bonus"]["bonus"]


def test_images_are_observations_too():
    space = spaces.Box(0, 1, (40, 40, 3))
    learner, seen = make("dqn", 1.0, space=space, model={"conv_filters": [[4, 8, 8]]}), []
    trunk = learner.part.critic.layers[0]
    trunk.register_forward_pre_hook(lambda _, inputs: seen.append(inputs[0].shape))
    batch_of(learner, sampled("dqn", space=space)[0])
    assert trunk.is_image
    assert seen[-1] == (BATCH, 40, 40, 3)


def test_dictionaries_are_observations_too():
    def change(config):
        return config.rl_module(rl_module_spec=RLModuleSpec(module_class=Linear))

    space = spaces.Dict({"goal": spaces.Box(-1, 1, (1,)), "state": spaces.Box(-1, 1, (2,))})
    learner, given = make("ppo", 1.0, space=space, change=change), episodes(space=space)
    critic = copy.deepcopy(learner.part.critic)
    states = [each.get_observations(slice(0, len(each))) for each in given]
    states = {name: torch.from_numpy(np.concatenate([each[name] for each in states])) for name in space}
    with torch.no_grad():
        bonus = alone(torch.cat([*states.values()], -1), critic(states))
    paid = batch_of(learner, copy.deepcopy(given))
    task = torch.from_numpy(np.concatenate([each.get_rewards() for each in given])).float()
    torch.testing.assert_close(paid[Columns.REWARDS][paid[Columns.LOSS_MASK]], task + bonus)


def test_bonuses_may_look_at_actions_and_at_the_order_of_steps():
    class Looks(NoBonus):
        needs_actions = True
        seen: ClassVar = []

        def forward(self, features, *, actions):
            self.seen.append(actions)
            return super().forward(features)

    given = episodes()
    batch_of(make("ppo", 1.0, bonus=Looks()), copy.deepcopy(given))
    taken = np.concatenate([each.get_actions() for each in given])
    assert Looks.seen[0].tolist() == taken.tolist()

    def whole(config):
        return config.env_runners(batch_mode="complete_episodes")

    learner = make("ppo", 1.0, bonus=EpisodicCounts(), change=whole)
    for each in given:
        each.observations.data[:] = 0
    task, paid = batch_of(make("ppo"), copy.deepcopy(given)), batch_of(learner, copy.deepcopy(given))
    bonus = (paid[Columns.REWARDS] - task[Columns.REWARDS])[task[Columns.LOSS_MASK]]
    wanted = [1 / np.sqrt(1 + visit) for each in given for visit in range(len(each))]
    torch.testing.assert_close(bonus, torch.tensor(wanted, dtype=torch.float32))


def two_agents(config):
    return config.multi_agent(policies={"one", "other"}, policy_mapping_fn=lambda *_, **__: "one")


REFUSED = {
    "several learners": (
        {"change": lambda config: config.learners(num_learners=2)},
        "num_learners must be 0 or 1, got 2: each learner would train an extrinsic critic of its own",
    ),
    "several agents": (
        {"change": two_agents},
        "multi-agent configurations are not supported, got policies (one, other|other, one)$",
    ),
    "another algorithm": (
        {"change": lambda config: APPOConfig().learners(learner_class=PPOBonusLearner)},
        "APPOConfig is not supported by PPOBonusLearner; supported are PPOConfig by PPOBonusLearner, SACConfig by SAC",
    ),
    "another learner": (
        {"kind": "sac", "change": lambda config: config.learners(learner_class=PPOBonusLearner)},
        "SACConfig is not supported by PPOBonusLearner",
    ),
    "few states": (
        {"bonus": None, "k": 24},
        "k=24 needs more than 24 states, but a train batch has 24: .* increase train_batch_size_per_learner$",
    ),
    "no options": (
        {"change": lambda config: config.learners(learner_config_dict={"bonus": 0.1})},
        r"learner_config_dict\['bonus'\] must be a dictionary of options, got 0.1$",
    ),
    "an unknown option": (
        {"betta": 1.0},
        r"learner_config_dict\['bonus'\] has 'betta'; options are k, beta, bonus",
    ),
    "k and bonus": ({"k": 3}, "k=3 belongs to the default bonus, and bonus is given: pass one of the two$"),
    "infinite beta": ({"beta": float("inf")}, "beta must be finite and not negative, got inf$"),
    "no steps": ({"decay_steps": 0}, "decay_steps must be at least 1, got 0$"),
    "pieces of episodes": (
        {"bonus": EpisodicCounts()},
        "EpisodicCounts depends on the order of steps, and batch_mode='truncate_episodes' splits episodes: set env_run",
    ),
    "no default pipeline": (
        {"change": lambda config: config.learners(add_default_connectors_to_learner_pipeline=False)},
        "the bonus is added after NumpyToTensor, which the learner's pipeline does not have: leave add_default_conn",
    ),
    "a recurrent module with a replay buffer": (
        {"kind": "dqn", "model": {"use_lstm": True, "lstm_cell_size": 8, "max_seq_len": 5}},
        "DefaultDQNTorchRLModule is recurrent, which is supported for PPO only$",
    ),
}


@pytest.mark.parametrize(("choices", "message"), REFUSED.values(), ids=REFUSED)
def test_unsupported_configurations_are_named(choices, message, without_type_checks):
    choices = {"kind": "ppo", "beta": 1.0} | choices
    with pytest.raises(ValueError, match=f"^{message}"):
        make(**choices)


def test_unsupported_observation_spaces_are_named():
    with pytest.raises(ValueError, match=r"^the observation space must be .*, got Box of shape \(2, 3\); FlattenObs"):
        shape_of(spaces.Box(0, 1, (2, 3)))
    with pytest.raises(ValueError, match=r"^the observation space 'cell' must be .*, got Discrete; FlattenObs"):
        shape_of(spaces.Dict({"cell": spaces.Discrete(5), "state": STATES}))


@pytest.fixture(scope="module")
def _ray():
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_AUTH_MODE", "disabled")  # or a token is written to the home directory
        ray.init("local", num_cpus=1, include_dashboard=False, object_store_memory=80_000_000)
        yield
        ray.shutdown()


@pytest.mark.usefixtures("_ray")
def test_an_algorithm_trains_and_its_checkpoint_has_the_bonus(tmp_path):
    one = configured("ppo", 1.0, decay_steps=4 * BATCH).build_algo()
    one.train()
    one.save_to_path(tmp_path)
    other = Algorithm.from_checkpoint(tmp_path)
    states = [each.learner_group.get_state()["learner"]["bonus"] for each in (one, other)]
    assert same(*states)
    assert not same(states[0], make("ppo", 1.0).get_state()["bonus"])
    results = other.train()["learners"][DEFAULT_MODULE_ID]["bonus"]
    assert results["beta"] == 0.5
    assert results["std"] > 0


@pytest.mark.usefixtures("_ray")
def test_the_snippet_of_the_documentation_trains(monkeypatch):
    monkeypatch.setattr(ppo, "PPOConfig", lambda: configured("ppo"))
    page = (ROOT / "docs/how-to/other-libraries.md").read_text()
    (snippet,) = re.findall(r"^## RLlib\n.*?```python\n(.*?)```", page, flags=re.DOTALL | re.MULTILINE)
    exec(snippet, given := {})
    beta = given["results"]["learners"][DEFAULT_MODULE_ID]["bonus"]["beta"]
    assert beta == pytest.approx(0.02 * (1 - 25 * BATCH / 100_000))


def test_the_examples_of_docstrings_print_what_they_say():
    (found,) = doctest.DocTestFinder(recurse=False).find(PPOBonusLearner, module=False, globs={})
    result = doctest.DocTestRunner().run(found)
    assert result.failed == 0
    assert result.attempted > 1


def test_without_rllib_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "vcse.integrations.rllib")
    with pytest.raises(ImportError, match=r"^vcse.integrations.rllib needs Ray's RLlib .*pip install 'vcse\[rllib\]'$"):
        import vcse.integrations.rllib  # noqa: F401


@pytest.mark.parametrize("version", ["2.59.0", "2.61.0"])
def test_an_unsupported_version_is_named_with_the_range(version, monkeypatch):
    monkeypatch.setattr(ray, "__version__", version)
    monkeypatch.delitem(sys.modules, "vcse.integrations.rllib")
    with pytest.raises(ImportError, match=rf"^ray {version} is .*>=2\.60,<2\.61.*\[rllib\]'$"):
        import vcse.integrations.rllib  # noqa: F401


def test_its_environment_has_the_versions_of_the_main_one_but_for_gymnasium():
    pins, main = (
        dict(line.split("==") for line in (ROOT / name).read_text().splitlines() if not line.startswith("#"))
        for name in ("constraints-rllib.txt", "constraints.txt")
    )
    assert {name for name in pins.keys() & main.keys() if pins[name] != main[name]} == {"gymnasium"}
