"""No bonus: the baseline."""

import torch
from jaxtyping import Float
from torch import Tensor

from vcse.bonuses.base import Bonus, BonusOutput, PerFeature


class NoBonus(Bonus):
    """Pays nothing, so that an agent without a bonus runs the same code.

    Args:
        learners: The size of the leading learner axis, or None where there is none.
    """

    @torch.no_grad()
    def forward(
        self,
        features: Float[Tensor, "*learners n d"],
        *,
        values: PerFeature | None = None,
        rewards: PerFeature | None = None,
    ) -> BonusOutput:
        """Give zeros."""
        del values, rewards
        self.check_features(features)
        return BonusOutput(torch.zeros_like(features[..., 0]))
