import math
from pathlib import Path

import pytest
import torch
from runs.small import EMPTY, LAVA, make_config

from vcse.agents.a2c import player
from vcse.agents.a2c.agent import A2C, A2CSpec
from vcse.agents.a2c.player import play_grids
from vcse.agents.entry import Policies
from vcse.play.evaluate import evaluate_policies
from vcse.runs.evaluation import Evaluation


def make_agent(configs):
    """Untrained policies, which stumble over the goal of the smallest room now and then."""
    return A2C(A2CSpec((7, 7, 3), 7), [config.settings for config in configs], [config.seed for config in configs])


def play(configs, **changes):
    settings = {"frame": 128, "episodes": 6, "sampled": True} | changes
    return play_grids(make_agent(configs), configs, **settings)


@pytest.fixture(scope="module")
def cohort():
    configs = [make_config(EMPTY, "vcse", 0), make_config(EMPTY, "none", 5), make_config(LAVA, "none", 5)]
    return configs, play(configs)


@pytest.mark.parametrize("episodes", [1, 3, 7])
def test_every_learner_plays_as_many_episodes_as_were_asked_for(monkeypatch, episodes):
    monkeypatch.setattr(player, "MOST_ENVIRONMENTS", 3)
    configs = [make_config(LAVA, "none", 0), make_config(LAVA, "none", 1)]
    for result in play(configs, episodes=episodes):
        assert len(result.returns) == len(result.lengths) == episodes
        assert all(0 <= each <= 1 for each in result.returns)
        assert all(1 <= each <= 100 for each in result.lengths)


def test_the_same_seed_and_frame_give_the_same_episodes_and_others_do_not(cohort, without_type_checks):
    configs, results = cohort
    assert play(configs) == results
    assert play(configs, threads=2) == results
    assert play(configs, frame=160)[0] != results[0]
    assert results[0].lengths != results[1].lengths


def test_a_learner_plays_alone_what_it_plays_in_company(cohort):
    configs, results = cohort
    assert [play([config])[0] for config in configs] == results
    assert any(each > 0 for result in results for each in result.returns)


def test_the_greedy_actions_need_no_random_numbers(monkeypatch):
    configs = [make_config(LAVA, "none", 5)]
    agent = make_agent(configs)
    asked = []
    act = agent.act

    def noticing(observations, uniforms, learners):
        asked.append(uniforms)
        return act(observations, uniforms, learners)

    monkeypatch.setattr(agent, "act", noticing)
    greedy = play_grids(agent, configs, frame=0, episodes=2, sampled=False)
    assert set(asked) == {None}
    assert play_grids(agent, configs, frame=0, episodes=2, sampled=True) != greedy
    assert all(isinstance(each, torch.Tensor) for each in asked if each is not None)


def test_policies_play_both_ways_in_the_order_of_their_runs(cohort):
    configs, sampled = cohort
    policies = Policies(make_agent(configs), configs, 128, [Path(config.name) for config in configs])
    found = evaluate_policies(policies, episodes=6, threads=2)
    assert [each.sampled for each in found] == sampled
    assert [each.greedy for each in found] == play(configs, sampled=False)
    with pytest.raises(ValueError, match="episodes must be at least 1, got 0"):
        evaluate_policies(policies, episodes=0)


def test_no_episodes_are_no_numbers():
    (result,) = play([make_config()], episodes=0)
    assert result == Evaluation([], [])
    assert math.isnan(result.return_mean)
    assert math.isnan(result.success_rate)


def test_means_and_success_are_over_episodes():
    result = Evaluation([0.5, 0.0, 1.0, 0.0], [3, 100, 1, 100])
    assert (result.return_mean, result.success_rate) == (0.375, 0.5)
