import math

import torch
from agents.contract import MWMKind

from vcse.agents.mwm.networks import Actor, ScalarHead

UNITS, ACTIONS = 200, 40
CONFIG = MWMKind().config("none", hidden_units=UNITS)


def generator():
    return torch.Generator().manual_seed(0)


def largest(outputs, scale):
    """Return the largest weight that a layer with so many outputs may have: Glorot's, with the variance scaled."""
    return math.sqrt(6 * scale / (UNITS + outputs))


def test_rewards_and_values_begin_near_0():
    weights = ScalarHead(CONFIG, generator()).output.weight
    assert 0.9 * largest(1, 0.1) < weights.abs().max() <= largest(1, 0.1)


def test_means_of_actions_begin_near_0_and_their_deviations_do_not():
    actor = Actor(CONFIG, ACTIONS, generator())
    for weights, scale in zip(actor.output.weight.chunk(2), (0.1, 1.0), strict=True):
        assert 0.99 * largest(ACTIONS, scale) < weights.abs().max() <= largest(ACTIONS, scale)
    assert not actor.output.bias.any()
    assert actor(torch.zeros(3, CONFIG.feature_size)).shape == (3, 2 * ACTIONS)
