import doctest
import importlib
import math
import sys

import pytest
import torch
from gymnasium import spaces
from integrations.common import copy_of, no_global_random_numbers, same

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

import stable_baselines3
from integrations.sb3_agents import (
    AGENTS,
    BATCH,
    DICTIONARIES,
    ENVIRONMENTS,
    IMAGES,
    OFF_POLICY,
    ON_POLICY,
    STEPS,
    VECTORS,
    Calls,
    assert_equal_but_not_to,
    bonus,
    environments,
    greedy,
    make,
    train,
    weights,
)
from sb3_contrib import ARS
from stable_baselines3 import A2C
from stable_baselines3.common.logger import KVWriter, Logger
from stable_baselines3.common.vec_env import VecNormalize

from vcse.bonuses import NoBonus, ValueConditionalStateEntropy
from vcse.integrations import RandomEncoder
from vcse.integrations.sb3 import BonusCallback, ValueConditionalBonus
from vcse.integrations.sb3_spaces import SUPPORTED
from vcse.integrations.spaces import observation_shape

of_every_agent = pytest.mark.parametrize("kind", AGENTS)
# The CrossQ of sb3-contrib takes vectors alone.
OF_OTHER_SPACES = [(kind, space) for space in (IMAGES, DICTIONARIES) for kind in AGENTS if kind != "crossq"]


def trained_with(kind, *, space=VECTORS, of=None, wrap=lambda envs: envs, **choices):
    """Return agents that were trained without a bonus, with beta = 0 and with beta = 1."""
    callbacks = None, bonus(0.0), bonus(1.0)
    return [train(kind, each, envs=wrap(environments(of or kind, space)), **choices) for each in callbacks]


@of_every_agent
def test_with_a_weight_of_0_the_agent_is_the_plain_one_bit_for_bit(kind):
    assert_equal_but_not_to(*trained_with(kind))


@pytest.mark.parametrize(("kind", "space"), OF_OTHER_SPACES)
def test_so_it_is_with_images_and_dictionaries(kind, space):
    steps = 2 * STEPS * ENVIRONMENTS if kind in ON_POLICY else 26
    assert_equal_but_not_to(*trained_with(kind, space=space, steps=steps))


@pytest.mark.parametrize("kind", ["ppo", "recurrent", "sac", "dqn"])
def test_so_it_is_where_observations_and_rewards_are_normalised(kind):
    trained = trained_with(kind, wrap=VecNormalize)
    assert_equal_but_not_to(*trained)
    assert len({each.get_vec_normalize_env().ret_rms.var.item() for each in trained[:2]}) == 1


@pytest.mark.parametrize("kind", ["ppo", "sac", "tqc"])
def test_so_it_is_with_noise_that_depends_on_the_state(kind):
    assert_equal_but_not_to(*trained_with(kind, of="sac", use_sde=True))


class Strict(ValueConditionalBonus):
    """Asserts that no global random numbers are drawn."""

    def _on_training_start(self):
        with no_global_random_numbers():
            super()._on_training_start()
        if hasattr(self.child, "add_bonus"):
            self.child.add_bonus = self.drawing_none(self.child.add_bonus)

    def _on_rollout_end(self):
        self.drawing_none(super()._on_rollout_end)()

    def drawing_none(self, function):
        def call(*args):
            with no_global_random_numbers():
                return function(*args)

        return call


@of_every_agent
def test_no_global_random_numbers_are_drawn(kind, without_type_checks):
    callback = Strict(k=5)
    train(kind, callback)
    assert callback.part.output is not None


@of_every_agent
def test_the_extrinsic_critic_s_gradient_reaches_nothing_else(kind, monkeypatch):
    def sample(model, gradient_steps=1, batch_size=BATCH):
        if kind in OFF_POLICY:
            model.replay_buffer.sample(batch_size)

    monkeypatch.setattr(AGENTS[kind], "train", sample)  # what the agent itself would learn
    model, callback, critic = make(kind), bonus(1.0), []
    before = weights(model)
    model.learn(
        40, callback=[callback, Calls(at_step=lambda each: critic or critic.append(copy_of(callback.part.critic)))]
    )
    assert not same(copy_of(callback.part.critic), critic[0])
    assert same(weights(model), before)
    assert all(each.grad is None for each in model.policy.parameters())
    assert not {*map(id, callback.part.parameters())} & {*map(id, model.policy.parameters())}


@of_every_agent
def test_predictions_are_those_of_the_agent(kind):
    plain, free = train(kind), train(kind, bonus(0.0))
    observations = plain.env.reset()
    assert greedy(plain, observations) == greedy(free, observations)
    assert set(vars(free)) - set(vars(plain)) == {"vcse_bonus"}


class Records(KVWriter):
    """A log writer that keeps everything in memory."""

    def __init__(self):
        self.written = []

    def write(self, key_values, key_excluded, step=0):
        self.written.append(dict(key_values))

    def close(self):
        """Nothing is open."""


def logged(kind, callback, **choices):
    model, records = make(kind), Records()
    model.set_logger(Logger(None, [records]))
    model.learn(160, callback=callback, **choices)
    return records.written


@pytest.mark.parametrize("kind", ["ppo", "recurrent", "dqn"])
def test_numbers_are_logged(kind):
    written = logged(kind, bonus(0.5, decay_steps=math.inf), log_interval=2)
    paid = [each for each in written if "bonus/std" in each]
    assert paid == [each for each in written if kind != "dqn" or "train/n_updates" in each]
    assert len(paid) > 1
    assert {"bonus/mean", "bonus/extrinsic_critic_loss", "bonus/zero_radius_share"} <= set(paid[0])
    assert all(each["bonus/beta"] == 0.5 for each in paid)
    assert "rollout/ep_rew_mean" in paid[0]


def test_where_nothing_is_logged_nothing_is_computed(monkeypatch):
    callback = bonus(1.0)
    monkeypatch.setattr("vcse.integrations.rollout.RolloutBonus.metrics", lambda part: 1 / 0)
    assert logged("ppo", callback, log_interval=None) == []


@pytest.mark.parametrize("kind", ["ppo", "maskable", "sac"])
def test_the_weight_falls_to_0_in_a_straight_line(kind):
    for decay_steps in (None, 80, math.inf):
        callback, seen, over = bonus(0.5, decay_steps=decay_steps), [], decay_steps or 160
        note = Calls(at_end=lambda each, to=seen, of=callback: to.append((each.num_timesteps, of.part.beta)))
        model = make(kind, **({"learning_starts": 1_000} if kind == "sac" else {}))
        for _ in range(2):  # a second training starts from beta again
            model.learn(160, callback=[callback, note])
        step = STEPS * ENVIRONMENTS if kind in ON_POLICY else ENVIRONMENTS
        weights = [(done + step, pytest.approx(0.5 * max(0, 1 - done / over))) for done in range(0, 160, step)]
        assert seen == weights * 2
    seen.clear()
    callback.decay_steps = None
    model.learn(160, callback=[callback, note], reset_num_timesteps=False)  # half of it is over
    assert [seen[0][1], seen[-1][1]] == pytest.approx([0.25, 0.5 * step / 320])


class Keeps(NoBonus):
    """A bonus of 0 that keeps its inputs."""

    needs_actions = True

    def forward(self, features, *, actions):
        self.features, self.actions = features, actions
        return super().forward(features)


@pytest.mark.parametrize("kind", ["ppo", "dqn", "sac"])
def test_any_bonus_and_any_encoder_will_do(kind):
    pattern, encoder = Keeps(), RandomEncoder((3,), features=7)
    callback = BonusCallback(pattern, encoder=encoder)
    model = train(kind, callback, steps=STEPS * ENVIRONMENTS)
    kept = callback.part.bonus
    assert kept is not pattern
    assert callback.part.encoder.network is not encoder
    assert kept.features.shape == (STEPS * ENVIRONMENTS if kind == "ppo" else BATCH, 7)
    if kind == "ppo":  # environment by environment, as the buffer is after its states were learned from
        assert torch.equal(kept.actions, torch.from_numpy(model.rollout_buffer.actions).flatten())
    else:
        assert kept.actions.dtype == (torch.int64 if kind == "dqn" else torch.float32)
        assert kept.actions.shape == ((BATCH,) if kind == "dqn" else (BATCH, 2))


@pytest.mark.parametrize(("kind", "steps"), [("ppo", 2 * 2), ("a2c", 1), ("trpo", 10 * 2)])
def test_the_extrinsic_critic_takes_as_many_gradient_steps_as_the_agent_s_own(kind, steps):
    for options, expected in (({}, steps), ({"epochs": 3, "batch_size": 8}, 3 * STEPS * ENVIRONMENTS // 8)):
        callback = bonus(1.0, **options)
        train(kind, callback, steps=STEPS * ENVIRONMENTS)
        taken = {each["step"].item() for each in callback.part.optimizer.state_dict()["state"].values()}
        assert taken == {expected}


SPACES = [
    (spaces.Discrete(4), 4),
    (spaces.MultiDiscrete([2, 3]), 5),
    (spaces.MultiBinary((2, 3)), 6),
    (spaces.Box(-1, 1, (2, 5)), 10),
    (spaces.Box(-1, 1, (80,)), 64),
    (spaces.Box(0, 9, (7, 7, 3)), 64),
    (IMAGES, 64),
    (DICTIONARIES, 3 + 5 + 2 + 64),
]


@pytest.mark.parametrize(("space", "size"), SPACES)
@pytest.mark.parametrize("kind", ["a2c", "dqn"])
def test_every_space_that_these_agents_have_is_served(kind, space, size):
    callback = BonusCallback(Keeps())
    train(kind, callback, envs=environments(kind, space), steps=STEPS * ENVIRONMENTS)
    features = callback.part.bonus.features
    assert features.shape[1] == size
    if isinstance(space, spaces.Discrete | spaces.MultiDiscrete):  # vectors of nothing but 0, and a 1 for each choice
        choices = features * size**0.5
        assert set(choices.flatten().tolist()) == {0, 1}
        assert (choices.sum(1) == (1 if size == 4 else 2)).all()


def test_a_space_that_is_not_supported_is_named():
    with pytest.raises(
        ValueError, match=r"^the observation space is Text, which is not supported; supported are Box, Discrete, "
    ):
        observation_shape(spaces.Text(5), *SUPPORTED)
    with pytest.raises(ValueError, match=r"^the observation space 'mission' is Text, .*, and Dict of these$"):
        observation_shape(spaces.Dict({"mission": spaces.Text(5)}), *SUPPORTED)


def several(kind):
    return make(kind, environments(kind, actions=spaces.MultiDiscrete([2, 3])))


REFUSED = {
    "kind of agent": (
        lambda: ARS("LinearPolicy", environments("ppo"), device="cpu"),
        bonus,
        "ARS is not supported; supported are PPO, A2C, TRPO, MaskablePPO, RecurrentPPO, SAC, TD3, DDPG, DQN, QRDQN, ",
    ),
    "rollout": (
        lambda: A2C("MlpPolicy", environments("a2c"), device="cpu"),
        ValueConditionalBonus,
        r"k=12 needs more than 12 states, but a rollout of A2C has 10 \(n_steps=5, n_envs=2\): decrease k or incr",
    ),
    "batch": (
        lambda: make("sac", batch_size=12),
        ValueConditionalBonus,
        "k=12 needs more than 12 states, but a batch of SAC has 12: decrease k or increase batch_size",
    ),
    "twice": (
        lambda: make("ppo"),
        lambda: [bonus(), BonusCallback(NoBonus())],
        r"this PPO already has a bonus: pass only one bonus callback to learn\(\)",
    ),
    "actions": (
        lambda: several("ppo"),
        lambda: BonusCallback(Keeps()),
        "the action space is MultiDiscrete; with Keeps, which needs actions, Box and Discrete are supported",
    ),
    "state": (
        lambda: train("ppo", bonus()),
        lambda: ValueConditionalBonus(encoder=RandomEncoder((3,))),
        "the state in PPO.vcse_bonus is of another bonus, encoder or critic: pass the same ones as before, or start "
        "afresh with `del model.vcse_bonus`",
    ),
}


@pytest.mark.parametrize(("model", "callback", "message"), REFUSED.values(), ids=REFUSED)
def test_what_is_not_supported_is_named(model, callback, message):
    with pytest.raises(ValueError, match=f"^{message}"):
        model().learn(100, callback=callback())


def test_bad_arguments_are_named():
    with pytest.raises(ValueError, match=r"^pass k or bonus, not both: got k=3 and NoBonus"):
        ValueConditionalBonus(k=3, bonus=NoBonus())
    with pytest.raises(ValueError, match=r"^beta must be finite and not negative, got nan"):
        ValueConditionalBonus(beta=float("nan"))
    with pytest.raises(ValueError, match=r"^decay_steps must be at least 1, got nan"):
        ValueConditionalBonus(decay_steps=float("nan"))
    with pytest.raises(ValueError, match=r"^the bonus is built when training starts: pass this callback to learn\(\)"):
        _ = ValueConditionalBonus().part


def test_actions_of_any_kind_will_do_where_nobody_looks():
    train_of_several = several("ppo").learn(STEPS * ENVIRONMENTS, callback=bonus(1.0))
    assert train_of_several.num_timesteps == STEPS * ENVIRONMENTS


def test_without_arguments_it_is_the_preset():
    recommended, made = ValueConditionalStateEntropy.recommended(), ValueConditionalBonus()
    assert same(vars(made.bonus.rule), vars(recommended.rule))
    assert (made.bonus.k, made.bonus.scaling.name, made.beta, made.decay_steps) == (12, "standardized", 0.02, None)


def test_it_is_made_by_name_as_rl_zoo3_does():
    ((path, choices),) = {"vcse.integrations.sb3.ValueConditionalBonus": {"k": 5, "beta": 0.1}}.items()
    module, name = path.rsplit(".", 1)
    callback = getattr(importlib.import_module(module), name)(**choices)
    train("ppo", [callback], steps=STEPS * ENVIRONMENTS)
    assert (callback.part.bonus.k, callback.part.beta) == (5, 0.1)


def test_the_example_of_the_docstring_prints_what_it_says():
    (found,) = doctest.DocTestFinder(recurse=False).find(ValueConditionalBonus, module=False, globs={})
    result = doctest.DocTestRunner().run(found)
    assert result.failed == 0
    assert result.attempted > 1


def test_without_stable_baselines3_one_line_says_how_to_install_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "stable_baselines3", None)
    monkeypatch.delitem(sys.modules, "vcse.integrations.sb3")
    with pytest.raises(
        ImportError, match=r"^vcse.integrations.sb3 needs stable-baselines3: .*pip install 'vcse\[sb3\]'$"
    ):
        import vcse.integrations.sb3  # noqa: F401


@pytest.mark.parametrize("version", ["1.8.0", "2.8.0", "3.0.0"])
def test_a_version_that_is_not_supported_is_named_with_the_range(version, monkeypatch):
    monkeypatch.setattr(stable_baselines3, "__version__", version)
    monkeypatch.delitem(sys.modules, "vcse.integrations.sb3")
    message = rf"^stable-baselines3 {version} is not supported, but >=2\.9,<3 is: .*\[sb3\]'$"
    with pytest.raises(ImportError, match=message):
        import vcse.integrations.sb3  # noqa: F401


def test_a_class_in_place_of_an_instance_is_named(without_type_checks):
    with pytest.raises(ValueError, match=r"pass an instance of the callback, .*: callback=ValueConditionalBonus\(\)$"):
        A2C("MlpPolicy", "CartPole-v1", n_steps=16).learn(16, callback=ValueConditionalBonus)
    with pytest.raises(ValueError, match=r"bonus must be an instance, got the class NoBonus: pass NoBonus\(...\)$"):
        BonusCallback(NoBonus)
    with pytest.raises(ValueError, match=r"bonus must be a Bonus, got 'vcse'$"):
        BonusCallback("vcse")
