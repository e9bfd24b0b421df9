"""No bonus: the baseline."""

import torch
from jaxtyping import Float
from torch import Tensor

from vcse.bonuses.base import Bonus, BonusOutput, PerFeature


class NoBonus(Bonus):
    """Bonus of zero, so that an agent without a bonus runs the same code.

    Args:
        learners: The size of the leading learner axis, or None where there is none.

    Example:
        >>> import torch
        >>> from vcse.bonuses import NoBonus
        >>> NoBonus()(torch.tensor([[0.0], [1.0], [3.0]])).reward
        tensor([0., 0., 0.])
    """

    @torch.no_grad()
    def forward(
        self,
        features: Float[Tensor, "*learners n d"],
        *,
        values: PerFeature | None = None,
        rewards: PerFeature | None = None,
    ) -> BonusOutput:
        """Return a reward of 0 for each feature."""
        del values, rewards
        self.check_features(features)
        return BonusOutput(torch.zeros_like(features[..., 0]))
