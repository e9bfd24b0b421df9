"""The bonus in other people's agents.

`RolloutBonus` and `ReplayBonus` need no library but torch. On top of them stand adapters, each imported from its own
module: `vcse.integrations.sb3`, `.torchrl`, `.skrl` and `.rllib`.
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
