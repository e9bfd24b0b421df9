"""Entropy estimators and the rewards made of them: pure functions of tensors with any leading batch axes."""

from vcse.estimators.conditional import (
    ConditionalTerms,
    ksg_conditional_entropy,
    ksg_joint_entropy,
    ksg_marginal_entropy,
    value_conditional_reward,
    value_conditional_terms,
)
from vcse.estimators.entropy import (
    StateEntropyTerms,
    kl_entropy,
    log_unit_ball,
    state_entropy_reward,
    state_entropy_terms,
)
from vcse.estimators.neighbors.search import JointNeighbors, count_within, joint_neighbors, kth_neighbor_distance
from vcse.estimators.readings import (
    CONDITIONAL_READINGS,
    STATE_ENTROPY_READINGS,
    ConditionalReading,
    StateEntropyReading,
)

__all__ = [
    "CONDITIONAL_READINGS",
    "STATE_ENTROPY_READINGS",
    "ConditionalReading",
    "ConditionalTerms",
    "JointNeighbors",
    "StateEntropyReading",
    "StateEntropyTerms",
    "count_within",
    "joint_neighbors",
    "kl_entropy",
    "ksg_conditional_entropy",
    "ksg_joint_entropy",
    "ksg_marginal_entropy",
    "kth_neighbor_distance",
    "log_unit_ball",
    "state_entropy_reward",
    "state_entropy_terms",
    "value_conditional_reward",
    "value_conditional_terms",
]
