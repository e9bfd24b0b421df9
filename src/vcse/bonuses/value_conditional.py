"""Value-conditional state entropy, and its ablation that conditions on the reward."""

from jaxtyping import Float
from torch import Tensor

from vcse.bonuses.base import BonusOutput, EntropyBonus
from vcse.bonuses.normalizers import ValueNormalizer
from vcse.bonuses.readings import RECOMMENDED, RECOMMENDED_K, chosen_scaling, chosen_value_normalizer
from vcse.bonuses.scaling import RewardScaling, ScalingName
from vcse.estimators.checks import (
    check_all_finite,
    check_computed_alike,
    check_k,
    check_numbers,
    checks_run,
    wrong_shape,
)
from vcse.estimators.conditional import value_conditional_terms
from vcse.estimators.readings import ConditionalReading, RadiusOfCount, conditional_reading


class _ConditionalStateEntropy(EntropyBonus[ConditionalReading]):
    """What VCSE and RCSE share: all but what they condition on."""

    def _paid_given(self, features: Tensor, name: str, given: Tensor, normalizer: ValueNormalizer) -> BonusOutput:
        condition = self._checked(name, given, features)
        scaled = normalizer(condition)
        terms = value_conditional_terms(features, scaled, k=self.k, reading=self.rule, check_finite=self.check_finite)
        return BonusOutput(**terms._asdict(), **{name: condition})

    def _checked(self, name: str, condition: Tensor, features: Tensor) -> Float[Tensor, "*learners n"]:
        """Return what is conditioned on as one number per feature; in float32 where the features are of another dtype.

        A wrong shape, type, device or k, a NaN and an infinity are refused here, before a normaliser's statistics have
        seen them. What only the distances show is refused after that: numbers so large that a distance overflows, and
        duplicates with log_offset=0. A trailing axis of 1, as a critic gives it, is taken off; it cannot be meant
        otherwise, since all axes before it are those of the features.
        """
        check_numbers(name, condition)
        shape = features.shape[:-1]
        condition = condition.detach()  # a critic's values bring their graph, which what is logged of them would keep
        if condition.shape == (*shape, 1):
            condition = condition.squeeze(-1)
        if condition.shape != shape:
            raise wrong_shape(name, condition, str(tuple(shape)), "features", features)
        check_computed_alike(name, condition, "features", features)
        if condition.dtype != features.dtype:
            condition = condition.float()  # where both are computed; in less, normalising would round it
        check_k(self.k, points=features.shape[-2], within_points=True, name="features")
        if checks_run(self.check_finite, features):
            check_all_finite("features", features)
            check_all_finite(name, condition)
        return condition


class ValueConditionalStateEntropy(_ConditionalStateEntropy):
    """Value-conditional state entropy bonus (VCSE): ψ(n_v + 1)/d_s + log ε, Eq. (8), with standardised values.

    Args:
        k: Which neighbour, counted as the reading says.
        reading: recommended, paper, clean, release-a2c, release-drqv2, release-sac or release-mwm; or a
            `ConditionalReading` of one's own, which leaves the choice of the value_normalizer to be made here.
        value_normalizer: How the values are scaled; standardised over the batch, as the reading says, if not given.
        nv_radius: Deviation from the reading: n_v is counted within ε_v/2 ("value") or ε/2 ("joint").
        self_in_k: Deviation from the reading: the point itself counts as its first neighbour.
        self_in_nv: Deviation from the reading: the point itself is counted in n_v.
        log_offset: Deviation from the reading: what is added inside the logarithm.
        learners: The size of the leading learner axis, or None where there is none.
        scaling: Mean and scale of the rewards: "raw" as the formula says, "centered" less the mean of the batch,
            "standardized" divided by its standard deviation too; or a `RewardScaling`. If not given, "standardized"
            with the reading `recommended`, and "raw" with all others.
        check_finite: Refuse NaN and infinity; see `vcse.estimators.kth_neighbor_distance`.

    Example:
        >>> import torch
        >>> from vcse.bonuses import ValueConditionalStateEntropy
        >>> states = torch.tensor([[0.0, 0.0], [0.0, 0.1], [0.1, 0.0], [3.0, 3.0]])  # the last is alone
        >>> bonus = ValueConditionalStateEntropy(k=1)
        >>> bonus(states, values=torch.tensor([0.0, 0.1, 0.2, 0.1])).reward
        tensor([-0.7802, -0.1044, -0.7802,  1.6648])
    """

    needs_values = True

    def __init__(
        self,
        *,
        k: int = RECOMMENDED_K,
        reading: str | ConditionalReading = RECOMMENDED,
        value_normalizer: ValueNormalizer | None = None,
        nv_radius: RadiusOfCount | None = None,
        self_in_k: bool | None = None,
        self_in_nv: bool | None = None,
        log_offset: float | None = None,
        learners: int | None = None,
        scaling: ScalingName | RewardScaling | None = None,
        check_finite: bool = True,
    ) -> None:
        rule = conditional_reading(
            reading, nv_radius=nv_radius, self_in_k=self_in_k, self_in_nv=self_in_nv, log_offset=log_offset
        )
        scaling = chosen_scaling(scaling, reading)
        super().__init__(rule, k=k, learners=learners, scaling=scaling, check_finite=check_finite)
        self.value_normalizer = chosen_value_normalizer(value_normalizer, reading, argument="value_normalizer")

    def compute(self, features: Tensor, values: Tensor | None, rewards: Tensor | None) -> BonusOutput:
        """Compute the value-conditional reward of each feature."""
        if values is None:
            raise ValueError("values is needed: value-conditional state entropy conditions on the value of each state")
        return self._paid_given(features, "values", values, self.value_normalizer)


class RewardConditionalStateEntropy(_ConditionalStateEntropy):
    """Reward-conditional state entropy bonus (RCSE): VCSE with the extrinsic reward of the step in place of the value.

    The paper's ablation.

    Args:
        k: Which neighbour, counted as the reading says.
        reading: recommended, paper, clean, release-a2c, release-drqv2, release-sac or release-mwm; or a
            `ConditionalReading` of one's own, which leaves the choice of the reward_normalizer to be made here.
        reward_normalizer: How the rewards are scaled; standardised over the batch if not given, as values are.
        nv_radius: Deviation from the reading, as for VCSE; so are the next three.
        self_in_k: The point itself counts as its first neighbour.
        self_in_nv: The point itself is counted in the number of like rewards.
        log_offset: What is added inside the logarithm.
        learners: The size of the leading learner axis, or None where there is none.
        scaling: Mean and scale of the rewards: "raw" as the formula says, "centered" less the mean of the batch,
            "standardized" divided by its standard deviation too; or a `RewardScaling`. If not given, "standardized"
            with the reading `recommended`, and "raw" with all others.
        check_finite: Refuse NaN and infinity; see `vcse.estimators.kth_neighbor_distance`.

    Example:
        >>> import torch
        >>> from vcse.bonuses import RewardConditionalStateEntropy
        >>> states = torch.tensor([[0.0, 0.0], [0.0, 0.1], [0.1, 0.0], [3.0, 3.0]])  # the last is alone
        >>> bonus = RewardConditionalStateEntropy(k=1)
        >>> bonus(states, rewards=torch.tensor([0.0, 0.0, 1.0, 1.0])).reward
        tensor([-0.9353, -0.9353,  0.4350,  1.4356])
    """

    needs_rewards = True

    def __init__(
        self,
        *,
        k: int = RECOMMENDED_K,
        reading: str | ConditionalReading = RECOMMENDED,
        reward_normalizer: ValueNormalizer | None = None,
        nv_radius: RadiusOfCount | None = None,
        self_in_k: bool | None = None,
        self_in_nv: bool | None = None,
        log_offset: float | None = None,
        learners: int | None = None,
        scaling: ScalingName | RewardScaling | None = None,
        check_finite: bool = True,
    ) -> None:
        rule = conditional_reading(
            reading, nv_radius=nv_radius, self_in_k=self_in_k, self_in_nv=self_in_nv, log_offset=log_offset
        )
        scaling = chosen_scaling(scaling, reading)
        super().__init__(rule, k=k, learners=learners, scaling=scaling, check_finite=check_finite)
        self.reward_normalizer = chosen_value_normalizer(reward_normalizer, reading, argument="reward_normalizer")

    def compute(self, features: Tensor, values: Tensor | None, rewards: Tensor | None) -> BonusOutput:
        """Compute the reward-conditional reward of each feature."""
        if rewards is None:
            raise ValueError("rewards is needed: reward-conditional state entropy conditions on the extrinsic reward")
        return self._paid_given(features, "rewards", rewards, self.reward_normalizer)
