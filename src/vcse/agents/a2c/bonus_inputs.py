"""Inputs of a bonus from a rollout, in addition to features, values, rewards and actions."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vcse.agents.a2c.networks import RandomEncoder, StateFeatures
from vcse.nets.stacked import gather_rows, scatter_rows
from vcse.replay.rollouts import Rollout


def next_features_of(
    rollout: Rollout,
    encoder: RandomEncoder | StateFeatures | None,
    with_bonus: Int[Tensor, " p"],
    needs_next_features: Int[Tensor, " q"],
) -> Float[Tensor, "p m f"]:
    """Return the features of the states that actions led to; zeros for learners whose bonus does not need them.

    Args:
        rollout: Of all learners.
        encoder: Of the bonus; None where its features are positions.
        with_bonus: The learners with a bonus.
        needs_next_features: Rows, among those, of the learners whose bonus needs them.
    """
    learners = with_bonus[needs_next_features]
    if encoder is None and rollout.next_positions is not None:
        features = gather_rows(rollout.next_positions, learners).flatten(1, 2)
    elif encoder is not None and rollout.next_observations is not None:
        features = encoder(gather_rows(rollout.next_observations, learners).flatten(1, 2), needs_next_features)
    else:
        missing = "next_positions" if encoder is None else "next_observations"
        raise ValueError(f"{missing} is needed in a rollout, for a bonus that looks at the next state")
    return scatter_rows(features, needs_next_features, len(with_bonus))


def episode_starts(
    rollout: Rollout, with_bonus: Int[Tensor, " p"], begins_episode: Bool[Tensor, "p n"]
) -> Bool[Tensor, "p m"]:
    """Return which states are the first of their episodes, and update `begins_episode` for the next rollout.

    Args:
        rollout: Of all learners.
        with_bonus: The learners with a bonus.
        begins_episode: Whether the first state of each environment in this rollout is the first of an episode.
    """
    ended = gather_rows(rollout.terminated | rollout.truncated, with_bonus)
    starts = torch.cat((begins_episode.unsqueeze(-1), ended[..., :-1]), -1).flatten(1)
    begins_episode.copy_(ended[..., -1])
    return starts
