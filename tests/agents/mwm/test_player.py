from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
import torch
from agents.contract import MWMKind
from agents.mwm import toy_images
from agents.mwm.toy_images import EPISODE, make_config

from vcse.agents.entry import Policies, Saved
from vcse.agents.mwm.agent import MWM, MWMSpec
from vcse.agents.mwm.player import MWMPlayer, imagine
from vcse.runs.checkpoint import Checkpoint
from vcse.streams import numbers

KIND = MWMKind()
PLAYER = MWMPlayer()


@pytest.fixture(autouse=True)
def _toy_images(monkeypatch):
    toy_images.register(monkeypatch)


def trained_agent(config):
    """Return an agent after some updates, in which states, actions and images depend on what was seen."""
    agent = MWM(MWMSpec(2), config.settings, config.seed)
    for update in range(2):
        KIND.update(agent, [update])
    with torch.no_grad():
        agent.autoencoder.embedding.weight.mul_(30)  # or positions are all that there is in a token
        rssm = agent.model.rssm
        for each in (agent.actor.output, agent.model.decoder.output, rssm.posterior_output, rssm.prior_output):
            each.weight.mul_(8)
    agent.update_acting_policy()
    return agent


@pytest.fixture
def policies():
    config = make_config("vcse", seed=5)
    agent = trained_agent(config)
    saved = Saved(Path("run"), config, Checkpoint(12, {"agent": {"acting": agent.state_dict()["acting"]}}))
    return Policies(PLAYER.load([saved], "cpu"), [config], 12, [saved.path])


@pytest.mark.parametrize("bonus", ["none", "vcse"])
def test_a_policy_that_is_loaded_acts_as_the_one_that_was_trained(bonus):
    config = make_config(bonus)
    trained = trained_agent(config)
    saved = Saved(Path("run"), config, Checkpoint(0, {"agent": trained.state_dict()}))
    loaded = PLAYER.load([saved], "cpu")
    assert loaded.bonus_head is None
    assert torch.equal(KIND.act(loaded, [3]), KIND.act(trained, [3]))


def play(policies, *, sampled, count=3):
    agent, configs = policies.agent, policies.configs
    with closing(PLAYER.make(configs, count, device="cpu", threads=2)) as environments:
        [found] = PLAYER.play(agent, configs, environments, frame=policies.frame, sampled=sampled)
    return found


def test_an_evaluation_is_the_same_again_whatever_was_sampled_before(policies):
    first = {sampled: play(policies, sampled=sampled) for sampled in (False, True)}
    torch.rand(7)
    for sampled in (True, False):
        assert play(policies, sampled=sampled) == first[sampled]
    assert first[True].returns != first[False].returns
    assert len(set(first[False].returns)) == 3
    assert first[False].lengths == [EPISODE] * 3
    assert play(policies._replace(frame=14), sampled=False).returns != first[False].returns
    assert PLAYER.evaluate(policies, episodes=3, threads=1) == [[first[True]], [first[False]]]


def test_sampled_actions_are_spread_and_the_mean_is_not(policies):
    images = KIND.images(0, 1).expand(200, -1, -1, -1).numpy()
    mean, _ = PLAYER.act(policies, images, None)
    sampled, _ = PLAYER.act(policies, images, np.random.default_rng(0))
    again, _ = PLAYER.act(policies, images, np.random.default_rng(0))
    assert np.array_equal(sampled, again)
    assert np.abs(sampled).max() <= 1
    assert (mean == mean[0]).all()
    assert sampled.std(0).min() > 0.05


def steps_of(policies, images, starts=None):
    """Return the actions of an episode's images, in each of which environments may begin anew."""
    state, actions = None, []
    for step, shown in enumerate(images):
        begins = None if starts is None else starts[step]
        action, state = PLAYER.act(policies, shown, None, state, begins)
        actions.append(action)
    return np.stack(actions)


def test_a_policy_remembers_and_forgets_where_an_episode_begins(policies):
    images = np.stack([KIND.images(seed, 3).numpy() for seed in range(6)])
    starts = np.zeros((6, 3), dtype=np.bool_)
    starts[2, 1] = starts[4, 0] = starts[4, 1] = True
    found, whole = steps_of(policies, images, starts), steps_of(policies, images)
    alone = {begin: steps_of(policies, images[begin:]) for begin in (2, 4)}
    np.testing.assert_allclose(found[:, 2], whole[:, 2], atol=1e-5)
    np.testing.assert_allclose(found[:4, 0], whole[:4, 0], atol=1e-5)
    np.testing.assert_allclose(found[4:, 0], alone[4][:, 0], atol=1e-5)
    np.testing.assert_allclose(found[:2, 1], whole[:2, 1], atol=1e-5)
    np.testing.assert_allclose(found[2:4, 1], alone[2][:2, 1], atol=1e-5)
    np.testing.assert_allclose(found[4:, 1], alone[4][:, 1], atol=1e-5)
    assert np.abs(found[4:, 0] - whole[4:, 0]).max() > 1e-3


def test_where_all_episodes_begin_there_is_no_state_left(policies):
    images = np.stack([KIND.images(seed, 3).numpy() for seed in range(2)])
    found = steps_of(policies, images, np.ones((2, 3), dtype=np.bool_))
    for step in range(2):
        assert np.array_equal(found[step], steps_of(policies, images[step : step + 1])[0])


LENGTH, CONTEXT = 9, 4


@pytest.fixture
def episode():
    generator = np.random.default_rng(0)
    images = generator.integers(0, 256, (LENGTH, 3, 16, 16), dtype=np.uint8)
    actions = generator.uniform(-1, 1, (LENGTH, 2)).astype(np.float32)
    actions[0] = 0
    return images, actions


def test_what_is_imagined_has_the_shape_of_what_happened_and_is_the_same_again(policies, episode):
    found = imagine(policies, *episode, CONTEXT)
    assert (found.shape, found.dtype) == (episode[0].shape, np.uint8)
    assert np.array_equal(found, imagine(policies, *episode, CONTEXT))
    assert len(np.unique(found.reshape(LENGTH, -1), axis=0)) == LENGTH


def differs(one, other):
    return [not np.array_equal(mine, theirs) for mine, theirs in zip(one, other, strict=True)]


def test_images_after_the_context_are_never_seen(policies, episode):
    images, actions = episode
    found = imagine(policies, images, actions, CONTEXT)
    later = images.copy()
    later[CONTEXT:] = 255 - later[CONTEXT:]
    assert np.array_equal(imagine(policies, later, actions, CONTEXT), found)


@pytest.mark.parametrize("place", [0, 2, CONTEXT - 1])
def test_an_image_of_the_context_changes_what_comes_from_it_on(policies, episode, place):
    images, actions = episode
    other = images.copy()
    other[place] = 255 - other[place]
    apart = differs(imagine(policies, other, actions, CONTEXT), imagine(policies, images, actions, CONTEXT))
    assert not any(apart[:place])
    assert apart[place]
    assert any(apart[CONTEXT:])


@pytest.mark.parametrize("place", [2, CONTEXT, LENGTH - 1])
def test_an_action_changes_what_comes_from_its_image_on(policies, episode, place):
    images, actions = episode
    other = actions.copy()
    other[place] = -np.sign(other[place])
    apart = differs(imagine(policies, images, other, CONTEXT), imagine(policies, images, actions, CONTEXT))
    assert not any(apart[:place])
    assert apart[place]


def test_imagination_is_what_the_parts_of_the_model_do_one_after_the_other(policies, episode):
    images, actions = (torch.from_numpy(each) for each in episode)
    policy = policies.agent.acting_policy
    found = torch.from_numpy(imagine(policies, *episode, CONTEXT))
    generator = numbers(policies.agent.seed, "acting", 0)
    uniforms = torch.from_numpy(generator.random((LENGTH, 1, 3), dtype=np.float32))
    known = policy.model.encoder(policy.autoencoder.features(images[:CONTEXT]))
    is_first = torch.arange(CONTEXT)[None] == 0
    begin, _ = policy.model.rssm.observe_sequence(
        known[None], actions[None, :CONTEXT], is_first, uniforms[:CONTEXT, 0][None]
    )
    features = list(begin.features[0])
    state = type(begin)(*(part[:, -1] for part in begin))
    for step in range(CONTEXT, LENGTH):
        state = policy.model.rssm.imagine(state, actions[step : step + 1], uniforms[step])
        features.append(state.features[0])
    expected = policy.autoencoder.images_of(policy.model.decoder(torch.stack(features)))
    assert (found.int() - expected.int()).abs().max() <= 1
