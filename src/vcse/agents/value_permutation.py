"""Values that are permuted within a batch: a control, in which a bonus conditions on the values of other states."""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from vcse.streams import numbers


class ValuePermutation:
    """Whose value the bonus sees with each state of a batch: the state's own, or that of another state.

    A permutation keeps the values of a batch, and with them their mean and scale, and takes away which state has which.

    Args:
        sources: Where each learner's values come from; "permuted" ones are permuted anew in every update.
        seeds: Of the runs.
        states: How many states a batch has.
        device: Where the order is needed; it stays in one place, which a CUDA graph can read.
    """

    def __init__(self, sources: Sequence[str], seeds: Sequence[int], states: int, device: torch.device) -> None:
        self.permuted = [learner for learner, source in enumerate(sources) if source == "permuted"]
        self.seeds, self.states = list(seeds), states
        self._order = torch.arange(states, device=device).repeat(len(self.seeds), 1)

    def of_update(self, update: int) -> Int[Tensor, "l states"] | None:
        """Return the order of an update, in place of the last one; None where no learner's values are permuted."""
        if not self.permuted:
            return None
        orders = [
            numbers(self.seeds[each], "value permutation", update).permutation(self.states) for each in self.permuted
        ]
        self._order[self.permuted] = torch.from_numpy(np.stack(orders)).to(self._order.device)
        return self._order
