"""Value-conditional state entropy, and its ablation that conditions on the reward."""

import torch
from jaxtyping import Float
from torch import Tensor

from vcse.bonuses.bonus import Bonus, BonusOutput
from vcse.bonuses.normalizers import ValueNormalizer
from vcse.bonuses.readings import make_value_normalizer
from vcse.estimators.checks import check_alike, check_all_finite, check_numbers, checks_run, wrong_shape
from vcse.estimators.conditional import ConditionalTerms, value_conditional_terms
from vcse.estimators.readings import RadiusOfCount, conditional_reading, with_overrides


class ValueConditionalStateEntropy(Bonus):
    """VCSE: ψ(n_v + 1)/d_s + log ε, Eq. (8), over a batch of states and their standardised values.

    Args:
        k: Which neighbour, counted as the reading says.
        reading: paper, clean, release-a2c, release-drqv2, release-sac or release-mwm.
        value_normalizer: How the values are scaled; standardised over the batch if not given.
        nv_radius: Deviation from the reading: n_v is counted within ε_v/2 ("value") or ε/2 ("joint").
        self_in_k: Deviation from the reading: the point itself counts as its first neighbour.
        self_in_nv: Deviation from the reading: the point itself is counted in n_v.
        log_offset: Deviation from the reading: what is added inside the logarithm.
        check_finite: Refuse NaN and infinity; see `vcse.estimators.kth_neighbor_distance`.
    """

    needs_values = True

    def __init__(
        self,
        *,
        k: int,
        reading: str = "paper",
        value_normalizer: ValueNormalizer | None = None,
        nv_radius: RadiusOfCount | None = None,
        self_in_k: bool | None = None,
        self_in_nv: bool | None = None,
        log_offset: float | None = None,
        check_finite: bool = True,
    ) -> None:
        super().__init__()
        self.k = k
        self.rule = with_overrides(
            conditional_reading(reading),
            nv_radius=nv_radius,
            self_in_k=self_in_k,
            self_in_nv=self_in_nv,
            log_offset=log_offset,
        )
        self.value_normalizer = value_normalizer or make_value_normalizer(reading)
        self.check_finite = check_finite

    @torch.no_grad()
    def forward(
        self,
        features: Float[Tensor, "*learners n d"],
        *,
        values: Float[Tensor, "*learners n"] | None = None,
        rewards: Float[Tensor, "*learners n"] | None = None,
    ) -> BonusOutput:
        """Give the value-conditional reward of each feature."""
        del rewards
        if values is None:
            raise ValueError("values is needed: value-conditional state entropy conditions on the value of each state")
        check_condition("values", values, features, check_finite=self.check_finite)
        scaled = self.value_normalizer(values)
        terms = value_conditional_terms(features, scaled, k=self.k, reading=self.rule, check_finite=self.check_finite)
        return output_of(terms, values)


class RewardConditionalStateEntropy(Bonus):
    """RCSE: VCSE with the one-step extrinsic reward in the place of the value, the paper's ablation.

    Args:
        k: Which neighbour, counted as the reading says.
        reading: paper, clean, release-a2c, release-drqv2, release-sac or release-mwm.
        reward_normalizer: How the rewards are scaled; standardised over the batch if not given, as values are.
        check_finite: Refuse NaN and infinity; see `vcse.estimators.kth_neighbor_distance`.
    """

    needs_rewards = True

    def __init__(
        self,
        *,
        k: int,
        reading: str = "paper",
        reward_normalizer: ValueNormalizer | None = None,
        check_finite: bool = True,
    ) -> None:
        super().__init__()
        self.k = k
        self.rule = conditional_reading(reading)
        self.reward_normalizer = reward_normalizer or make_value_normalizer(reading)
        self.check_finite = check_finite

    @torch.no_grad()
    def forward(
        self,
        features: Float[Tensor, "*learners n d"],
        *,
        values: Float[Tensor, "*learners n"] | None = None,
        rewards: Float[Tensor, "*learners n"] | None = None,
    ) -> BonusOutput:
        """Give the reward-conditional reward of each feature."""
        del values
        if rewards is None:
            raise ValueError("rewards is needed: reward-conditional state entropy conditions on the extrinsic reward")
        check_condition("rewards", rewards, features, check_finite=self.check_finite)
        scaled = self.reward_normalizer(rewards)
        terms = value_conditional_terms(features, scaled, k=self.k, reading=self.rule, check_finite=self.check_finite)
        return output_of(terms, rewards)


def output_of(terms: ConditionalTerms, condition: Float[Tensor, "*learners n"]) -> BonusOutput:
    """Give the reward with its parts and what it was conditioned on, before that was scaled."""
    return BonusOutput(terms.reward, terms.radius, terms.value_distance, terms.value_count, condition)


def check_condition(name: str, condition: Tensor, features: Tensor, *, check_finite: bool) -> None:
    """Refuse what cannot be conditioned on, before a normaliser's statistics have seen it."""
    check_numbers(name, condition)
    if condition.shape != features.shape[:-1]:
        raise wrong_shape(name, condition, str(tuple(features.shape[:-1])), "features", features)
    check_alike(name, condition, "features", features)
    if checks_run(check_finite, condition):
        check_all_finite(name, condition)
