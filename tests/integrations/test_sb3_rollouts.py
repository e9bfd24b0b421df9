import copy
import math

import numpy as np
import pytest
import torch

pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed")
pytest.importorskip("sb3_contrib", reason="sb3-contrib is not installed")

from integrations.sb3_agents import (
    ENVIRONMENTS,
    IMAGES,
    ON_POLICY,
    STEPS,
    Calls,
    bonus,
    clocks,
    environments,
    make,
    train,
)
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize

from vcse.bonuses import Bonus, BonusOutput, ValueConditionalStateEntropy
from vcse.integrations.sb3 import BonusCallback, ValueConditionalBonus
from vcse.returns import gae

of_rollouts = pytest.mark.parametrize("kind", ON_POLICY)


class Constant(Bonus):
    """A bonus of 1 for every state."""

    def forward(self, features):
        return BonusOutput(torch.ones(len(features)))


def calls_of(callback):
    """Return a list that fills with the arguments of each call of the bonus, and the callback that fills it."""
    given = []

    def watch(_):
        part = callback.part
        if "forward" not in vars(part):
            forward = type(part).forward
            part.forward = lambda *args, **known: (
                given.append(copy.deepcopy((args, known))) or forward(part, *args, **known)
            )

    return given, Calls(at_step=watch)


@of_rollouts
@pytest.mark.parametrize("normalised", [False, True])
def test_advantages_are_those_of_the_task_s_rewards_and_the_bonus(kind, normalised):
    envs = environments(kind)
    envs = VecNormalize(envs) if normalised else envs
    callback = ValueConditionalBonus(k=5, beta=0.3, decay_steps=math.inf)
    model, before, ended = make(kind, envs), [], []
    compute = model.rollout_buffer.compute_returns_and_advantage

    def watched(**known):
        compute(**known)
        before.append((copy.deepcopy(model.rollout_buffer), copy.deepcopy(callback.part.critic), known))

    model.rollout_buffer.compute_returns_and_advantage = watched
    after = Calls(at_end=lambda each: ended.append(copy.deepcopy(model.rollout_buffer)))
    model.learn(2 * STEPS * ENVIRONMENTS, callback=[callback, after])
    assert len(ended) == 2
    for (buffer, critic, known), paid in zip(before, ended, strict=True):
        states = torch.from_numpy(buffer.observations).flatten(0, 1)
        with torch.no_grad():
            values = critic(states)
        alone = ValueConditionalStateEntropy.recommended(k=5)(states / 3**0.5, values=values).reward
        assert np.array_equal(paid.rewards, buffer.rewards)  # what is stored
        buffer.rewards += 0.3 * alone.view(STEPS, ENVIRONMENTS).numpy()
        type(buffer).compute_returns_and_advantage(buffer, **known)
        np.testing.assert_allclose(paid.advantages, buffer.advantages, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(paid.returns, buffer.returns, rtol=1e-4, atol=1e-5)
        assert buffer.episode_starts[1:].any()


@pytest.mark.parametrize("named", [False, True])
@of_rollouts
def test_the_extrinsic_critic_is_given_what_the_task_paid_and_where_each_action_led(kind, named):
    callback = bonus(1.0)
    given, watch = calls_of(callback)
    model = train(kind, [callback, watch], envs=clocks(named=named))
    assert len(given) == 3
    truncated = []
    for (observations, rewards, next_observations, terminated, ended), known in given:
        times, next_times = (each["time"] if named else each for each in (observations, next_observations))
        times, next_times = times.squeeze(-1), next_times.squeeze(-1)
        assert torch.equal(rewards, torch.ones(STEPS, ENVIRONMENTS))  # no value of the agent where a time limit ended
        assert torch.equal(next_times, times + 1)  # not what the next episode began with
        assert torch.equal((times[1:] == 0), ended[:-1])
        assert torch.equal(known["begins"], times[0] == 0)
        assert (next_times[ended & ~terminated] == 3).all()  # steps, the time limit
        assert (ended | ~terminated).all()
        truncated.append((ended & ~terminated).any())
        assert terminated.any()
    assert any(truncated)
    taken = torch.from_numpy(model.rollout_buffer.actions).view(ENVIRONMENTS, STEPS).T
    assert torch.equal(terminated, taken == 1)


@of_rollouts
def test_its_targets_are_returns_of_the_task_s_rewards(kind):
    callback, learned, critics = bonus(1.0), [], []
    given, watch = calls_of(callback)

    def listen(_):
        part = callback.part
        critics.append(copy.deepcopy(part.critic))
        part._train_critic = lambda inputs, returns: learned.append(returns)

    model = train(kind, [callback, watch, Calls(at_step=listen)], steps=STEPS * ENVIRONMENTS)
    (((observations, rewards, next_observations, terminated, ended), _),) = given
    with torch.no_grad():
        values, next_values = (
            critics[-1](each.flatten(0, 1)).view_as(rewards) for each in (observations, next_observations)
        )
    known = {"discount": model.gamma, "gae_lambda": model.gae_lambda}
    advantages = gae(rewards.T, values.T, next_values.T, terminated.T, ended.T, **known)
    torch.testing.assert_close(learned[0], (values.T + advantages).flatten())


def test_values_of_a_task_that_never_pays_stay_0_though_its_agent_is_paid():
    callback = BonusCallback(Constant(), beta=1.0, decay_steps=math.inf)
    envs = clocks(reward=0.0, count=4, period=3)  # so that what follows a time limit is observed in other episodes
    model = PPO("MlpPolicy", envs, n_steps=32, gamma=0.9, learning_rate=3e-3, ent_coef=0.1, seed=0, device="cpu")
    model.learn(20 * 128, callback=callback)
    states = torch.tensor([[0.0], [1.0], [2.0]])
    with torch.no_grad():
        assert callback.part.critic(states).abs().max() < 0.1
        assert model.policy.predict_values(states).min() > 1


def test_images_are_those_that_the_agent_sees():
    callback = bonus(1.0)
    given, watch = calls_of(callback)
    model = train("ppo", [callback, watch], envs=environments("ppo", IMAGES))
    (observations, _, next_observations, _, ended), _ = given[-1]
    assert observations.dtype == torch.uint8
    assert observations.shape == next_observations.shape == (STEPS, ENVIRONMENTS, 3, 40, 36)
    assert model.observation_space.shape == (3, 40, 36)
    later = torch.equal(next_observations[:-1][~ended[:-1]], observations[1:][~ended[:-1]])
    assert later
    assert not torch.equal(next_observations[:-1][ended[:-1]], observations[1:][ended[:-1]])
    trunk = callback.part.critic.network.layers[0]
    assert trunk.is_image
    assert not trunk.channels_last


def test_a_rollout_that_was_broken_off_is_not_paid_with_the_next():
    callback, model = bonus(1.0), make("ppo")
    given, watch = calls_of(callback)

    def stop(each):
        if each.num_timesteps == 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        model.learn(64, callback=[callback, watch, Calls(at_step=stop)])
    model.learn(STEPS * ENVIRONMENTS, callback=[callback, watch])
    ((arguments, _),) = given
    assert arguments[1].shape == (STEPS, ENVIRONMENTS)
