"""One moment of an episode that is recorded, whatever renders it."""

from typing import Literal, NamedTuple

import numpy as np
from jaxtyping import UInt8

Outcome = Literal["", "goal", "failed", "out of time", "over"]


class Moment(NamedTuple):
    """What is seen at one step of an episode."""

    image: UInt8[np.ndarray, "h w 3"]
    episode: int  # the first is 1
    step: int  # steps taken so far
    return_so_far: float
    outcome: Outcome  # empty while the episode continues; over: there was no goal to reach
