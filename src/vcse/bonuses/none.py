"""No bonus: the baseline."""

import torch
from jaxtyping import Float
from torch import Tensor

from vcse.bonuses.bonus import Bonus, BonusOutput


class NoBonus(Bonus):
    """Pays nothing, so that an agent without a bonus runs the same code."""

    @torch.no_grad()
    def forward(
        self,
        features: Float[Tensor, "*learners n d"],
        *,
        values: Float[Tensor, "*learners n"] | None = None,
        rewards: Float[Tensor, "*learners n"] | None = None,
    ) -> BonusOutput:
        """Give zeros."""
        del values, rewards
        return BonusOutput(torch.zeros_like(features[..., 0]))
