import copy
import math
import pickle

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

from integrations.common import same
from integrations.sb3_agents import (
    BATCH,
    DICTIONARIES,
    IMAGES,
    OFF_POLICY,
    Calls,
    assert_equal_but_not_to,
    bonus,
    clocks,
    environments,
    make,
    train,
    weights,
)
from stable_baselines3 import DQN, SAC, HerReplayBuffer
from stable_baselines3.common.buffers import DictReplayBuffer, NStepReplayBuffer, ReplayBuffer
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.envs import BitFlippingEnv
from stable_baselines3.common.vec_env import VecNormalize

from vcse.bonuses import ValueConditionalStateEntropy
from vcse.integrations.sb3 import ValueConditionalBonus
from vcse.integrations.sb3_replays import HOOK

of_replays = pytest.mark.parametrize("kind", OFF_POLICY)


def sampled_twice(model, callback, **choices):
    """Return the same batch without and with its bonus, and the target critic whose values the bonus was given."""
    child, buffer = callback.child, model.replay_buffer
    child._on_training_start()
    target, state = copy.deepcopy(child.part.target_critic), np.random.get_state()  # noqa: NPY002
    paid = buffer.sample(BATCH, **choices)
    child.detach()
    np.random.set_state(state)  # noqa: NPY002 - from these Stable-Baselines3 draws
    return buffer.sample(BATCH, **choices), paid, target


@pytest.mark.parametrize("normalised", [False, True])
@of_replays
def test_the_reward_of_samples_is_the_task_s_and_the_bonus(kind, normalised):
    envs = environments(kind)
    envs = VecNormalize(envs) if normalised else envs
    callback = ValueConditionalBonus(k=5, beta=0.3, decay_steps=math.inf)
    model = train(kind, callback, envs=envs)
    stored, paid, target = sampled_twice(model, callback, env=model.get_vec_normalize_env())
    states = stored.observations
    actions = model.predict(states.numpy(), deterministic=True)[0]
    actions = actions if kind in ("dqn", "qrdqn") else model.policy.scale_action(actions)
    with torch.no_grad():
        values = target(states, torch.from_numpy(actions))
    alone = ValueConditionalStateEntropy.recommended(k=5)(states / 3**0.5, values=values).reward
    torch.testing.assert_close(paid.rewards, stored.rewards + 0.3 * alone[:, None], rtol=1e-4, atol=1e-4)
    assert same(paid._replace(rewards=None), stored._replace(rewards=None))


@of_replays
def test_stored_rewards_stay_the_task_s(kind):
    rewards = []
    note = Calls(at_step=lambda each: rewards.append(each.locals["rewards"].copy()))
    model = train(kind, [bonus(1.0), note])
    assert np.array_equal(model.replay_buffer.rewards[: len(rewards)], np.stack(rewards))


@pytest.mark.parametrize("named", [False, True])
def test_the_extrinsic_critic_s_targets_keep_time_limits_and_terminations_apart(named):
    callback, learned = bonus(1.0), []
    model = train("dqn", callback, envs=clocks(named=named), steps=100)
    callback.part._train_critic = lambda observations, actions, targets: learned.append(targets)
    stored, _, target = sampled_twice(model, callback)
    times, next_times = (each["time"] if named else each for each in (stored.observations, stored.next_observations))
    assert torch.equal(next_times, times + 1)
    assert torch.equal(stored.dones, (stored.actions == 1).float())
    assert ((next_times == 3) & (stored.dones == 0)).any()
    with torch.no_grad():
        best = model.policy.q_net(stored.next_observations).argmax(1)
        later = target(stored.next_observations, best)
    wanted = 1 + model.gamma * (1 - stored.dones.squeeze(1)) * later
    torch.testing.assert_close(learned[0], wanted)


@pytest.mark.parametrize("kind", ["sac", "dqn"])
def test_returns_of_three_steps(kind):
    trained = [train(kind, each, n_steps=3) for each in (None, bonus(0.0), bonus(1.0))]
    assert_equal_but_not_to(*trained)
    callback, given = bonus(1.0), {}
    model = train(kind, callback, n_steps=3)
    assert type(model.replay_buffer) is NStepReplayBuffer
    forward = callback.part.forward
    callback.part.forward = lambda *args, **known: given.update(known) or forward(*args, **known)
    stored, _, _ = sampled_twice(model, callback)
    assert torch.equal(given["discount"], stored.discounts)
    assert stored.discounts.unique().numel() > 1  # where an episode ended earlier


def flipping(**choices):
    return make_vec_env(lambda: BitFlippingEnv(n_bits=4, **choices), 2, seed=0)


def hindsight(callback, *, continuous):
    known = {"replay_buffer_class": HerReplayBuffer, "policy_kwargs": {"net_arch": [8]}, "batch_size": BATCH}
    model = (SAC if continuous else DQN)(
        *("MultiInputPolicy", flipping(continuous=continuous)),
        **{**known, "learning_starts": 20, "buffer_size": 200, "train_freq": 1, "seed": 0, "device": "cpu"},
    )
    return model.learn(60, callback=callback)


@pytest.mark.filterwarnings("ignore::vcse.bonuses.payments.BonusWarning")  # few bits are all duplicates
@pytest.mark.parametrize("continuous", [False, True])
def test_hindsight_replay(continuous):
    callback = bonus(1.0)
    trained = [hindsight(each, continuous=continuous) for each in (None, bonus(0.0), callback)]
    assert_equal_but_not_to(*trained)
    model = trained[-1]
    stored, paid, _ = sampled_twice(model, callback)
    assert set(stored.rewards.flatten().tolist()) <= {-1.0, 0.0}
    assert not torch.equal(paid.rewards, stored.rewards)
    callback.child._on_training_start()
    again = pickle.loads(pickle.dumps(model.replay_buffer))
    assert type(again) is HerReplayBuffer
    assert again.env is None  # as Stable-Baselines3 pickles it
    assert np.array_equal(again.rewards, model.replay_buffer.rewards)


@pytest.mark.parametrize("space", [IMAGES, DICTIONARIES])
def test_samples_of_images_and_dictionaries_are_paid(space):
    callback = bonus(1.0)
    model = train("dqn", callback, envs=environments("dqn", space), steps=26)
    stored, paid, _ = sampled_twice(model, callback)
    assert not torch.equal(paid.rewards, stored.rewards)
    assert same(paid._replace(rewards=None), stored._replace(rewards=None))
    assert type(model.replay_buffer) is (DictReplayBuffer if space is DICTIONARIES else ReplayBuffer)


def test_while_training_lasts_the_replay_is_pickled_and_copied_as_the_plain_one(tmp_path):
    seen = []

    def save(each):
        if each.num_timesteps == 30:
            buffer = each.model.replay_buffer
            each.model.save_replay_buffer(tmp_path / "replay.pkl")
            seen.extend((type(buffer), copy.deepcopy(buffer), pickle.loads(pickle.dumps(buffer))))
            seen.append(buffer.rewards.copy())

    model = train("sac", [bonus(1.0), Calls(at_step=save)])
    live, *copies, rewards = seen
    assert live.__name__ == "BonusReplayBuffer"
    other = make("sac")
    other.load_replay_buffer(tmp_path / "replay.pkl")
    for each in (*copies, other.replay_buffer):
        assert type(each) is ReplayBuffer
        assert set(vars(each)) == set(vars(model.replay_buffer))
        assert np.array_equal(each.rewards, rewards)
    assert type(model.replay_buffer) is ReplayBuffer


@pytest.mark.parametrize("how", ["ends", "is stopped"])
def test_when_training_ends_the_replay_is_what_it_was(how):
    model = make("sac")
    stop = Calls()
    stop._on_step = lambda: how == "ends"
    model.learn(30, callback=[bonus(1.0), stop])
    assert type(model.replay_buffer) is ReplayBuffer
    assert HOOK not in vars(model.replay_buffer)


def interrupted(kind, callback):
    def stop(each):
        if each.num_timesteps == 30:
            raise KeyboardInterrupt

    model = make(kind)
    with pytest.raises(KeyboardInterrupt):
        model.learn(60, callback=[callback, Calls(at_step=stop)])
    return model


def test_training_that_was_broken_off_goes_on_with_a_bonus():
    callback = bonus(1.0)
    model = interrupted("sac", callback)
    learned = copy.deepcopy(callback.part.state_dict())
    again = bonus(1.0)
    begins = Calls()
    begins._on_training_start = lambda: begins.__setattr__("state", copy.deepcopy(again.part.state_dict()))
    model.learn(30, callback=[again, begins], reset_num_timesteps=False)
    assert same(begins.state, learned)
    assert type(model.replay_buffer) is ReplayBuffer
    stored, paid, _ = sampled_twice(model, again)
    assert not torch.equal(paid.rewards, stored.rewards)


def test_training_that_was_broken_off_goes_on_without_one():
    free, plain = interrupted("sac", bonus(0.0)), interrupted("sac", Calls())
    free.replay_buffer.bonus_callback.part.beta = 1.0  # would be seen in the weights
    for model in (free, plain):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002
        model.learn(30, reset_num_timesteps=False)
    assert same(weights(free), weights(plain))
    assert type(free.replay_buffer) is ReplayBuffer
