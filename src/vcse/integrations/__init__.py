"""Exploration bonuses for existing agents.

`RolloutBonus` and `ReplayBonus` need only torch. The adapters build on them, each in its own module:
`vcse.integrations.sb3`, `.torchrl`, `.skrl` and `.rllib`.
"""

from vcse.integrations.networks import (
    DiscreteQNetwork,
    JoinedEncoder,
    QNetwork,
    RandomEncoder,
    StateFeatures,
    ValueNetwork,
    encoder_for,
)
from vcse.integrations.replay import ReplayBonus
from vcse.integrations.rollout import RolloutBonus

__all__ = [
    "DiscreteQNetwork",
    "JoinedEncoder",
    "QNetwork",
    "RandomEncoder",
    "ReplayBonus",
    "RolloutBonus",
    "StateFeatures",
    "ValueNetwork",
    "encoder_for",
]
