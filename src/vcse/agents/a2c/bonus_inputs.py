"""What a bonus may need of a rollout beside features, values, rewards and actions."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vcse.agents.a2c.networks import RandomEncoder, StateFeatures
from vcse.nets.stacked import among_all, rows_of
from vcse.replay.rollouts import Rollout


def next_features(
    rollout: Rollout,
    encoder: RandomEncoder | StateFeatures | None,
    paid: Int[Tensor, " p"],
    looking_ahead: Int[Tensor, " q"],
) -> Float[Tensor, "p m f"]:
    """Return what a bonus sees of the states that actions led to; zeros for the learners whose bonus does not.

    Args:
        rollout: What happened.
        encoder: Of the bonus; None where it sees positions.
        paid: The learners with a bonus.
        looking_ahead: Which of those have a bonus that looks at the next state.
    """
    who = paid[looking_ahead]
    if encoder is None and rollout.next_positions is not None:
        features = rows_of(who, rollout.next_positions).flatten(1, 2)
    elif encoder is not None and rollout.next_observations is not None:
        features = encoder(rows_of(who, rollout.next_observations).flatten(1, 2), looking_ahead)
    else:
        lacking = "next_positions" if encoder is None else "next_observations"
        raise ValueError(f"{lacking} is needed in a rollout, for a bonus that looks at the next state")
    return among_all(looking_ahead, features, len(paid))


def episode_starts(rollout: Rollout, paid: Int[Tensor, " p"], starts: Bool[Tensor, "p n"]) -> Bool[Tensor, "p m"]:
    """Return which states are the first of their episodes, and keep in `starts` what the next rollout begins with.

    Args:
        rollout: What happened.
        paid: The learners with a bonus.
        starts: Whether the first state of each environment in this rollout is the first of an episode.
    """
    ended = rows_of(paid, rollout.terminated | rollout.truncated)
    found = torch.cat((starts.unsqueeze(-1), ended[..., :-1]), -1).flatten(1)
    starts.copy_(ended[..., -1])
    return found
