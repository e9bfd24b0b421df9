"""No bonus: the baseline."""

import torch
from jaxtyping import Float
from torch import Tensor

from vcse.bonuses.bonus import Bonus, BonusOutput, PerFeature
from vcse.estimators.checks import check_points


class NoBonus(Bonus):
    """Pays nothing, so that an agent without a bonus runs the same code."""

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
        check_points("features", features)
        return BonusOutput(torch.zeros_like(features[..., 0]))
