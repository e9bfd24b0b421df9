"""State entropy bonuses, blind to the value: SE as published, and a control that differs from VCSE in that alone."""

from torch import Tensor

from vcse.bonuses.base import BonusOutput, EntropyBonus
from vcse.bonuses.memory import FeatureMemory
from vcse.bonuses.normalizers import Normalizer
from vcse.bonuses.readings import (
    RECOMMENDED,
    RECOMMENDED_K,
    STATE_ENTROPY_USES,
    StateEntropyUse,
    chosen_scaling,
    make_normalizer,
)
from vcse.bonuses.scaling import RewardScaling, ScalingName
from vcse.estimators.checks import check_booleans, check_instance, check_k, checks_run
from vcse.estimators.entropy import log_of_distance, state_entropy_terms
from vcse.estimators.neighbors.search import kth_neighbor_distance
from vcse.estimators.readings import (
    ConditionalReading,
    StateEntropyReading,
    conditional_reading,
    state_entropy_reading,
)


class StateEntropy(EntropyBonus[StateEntropyReading]):
    """State entropy bonus (SE): log(D_s + 1), Eq. (2), divided by a scale of its own.

    D_s is the distance of a feature to its k-th neighbour, as the reading defines it.

    Args:
        k: Which neighbour, counted as the reading says.
        reading: recommended, paper, clean, release-a2c, release-drqv2, release-sac, release-mwm or re3; or a
            `StateEntropyReading` of one's own, which leaves the choice of the normaliser to be made here.
        normalizer: What the reward is divided by; the reading's if not given.
        normalizes_before_log: Deviation from the reading: log(1 + D/scale), as re3, instead of log(1 + D)/scale.
        memory: Where neighbours are looked for, the current batch among them; the batch alone if not given. The
            readings release-a2c and re3 are defined with one of 10,000 features and ask for it.
        learners: The size of the leading learner axis, or None where there is none.
        scaling: Mean and scale of the rewards: "raw" as the formula says, "centered" less the mean of the batch,
            "standardized" divided by its standard deviation too; or a `RewardScaling`. If not given, "standardized"
            with the reading `recommended`, and "raw" with all others.
        check_finite: Refuse NaN and infinity; see `vcse.estimators.kth_neighbor_distance`.

    Example:
        >>> import torch
        >>> from vcse.bonuses import StateEntropy
        >>> bonus = StateEntropy(k=1)
        >>> bonus(torch.tensor([[0.0], [1.0], [3.0]])).reward
        tensor([-0.7071, -0.7071,  1.4142])
        >>> bonus = StateEntropy(k=1, reading="paper")
        >>> bonus(torch.tensor([[0.0], [1.0], [3.0]])).reward
        tensor([3.7251, 3.7251, 5.4571])
    """

    def __init__(
        self,
        *,
        k: int = RECOMMENDED_K,
        reading: str | StateEntropyReading = RECOMMENDED,
        normalizer: Normalizer | None = None,
        normalizes_before_log: bool | None = None,
        memory: FeatureMemory | None = None,
        learners: int | None = None,
        scaling: ScalingName | RewardScaling | None = None,
        check_finite: bool = True,
    ) -> None:
        rule, scaling = state_entropy_reading(reading), chosen_scaling(scaling, reading)
        super().__init__(rule, k=k, learners=learners, scaling=scaling, check_finite=check_finite)
        use = STATE_ENTROPY_USES[reading] if isinstance(reading, str) else StateEntropyUse(normalizer=None)
        if normalizes_before_log is None:
            normalizes_before_log = use.normalizes_before_log
        check_booleans(normalizes_before_log=normalizes_before_log)
        self.normalizes_before_log = normalizes_before_log
        self.normalizer = make_normalizer(use.normalizer, learners=learners) if normalizer is None else normalizer
        check_instance("normalizer", self.normalizer, Normalizer)
        if memory is not None:
            check_instance("memory", memory, FeatureMemory)
            if memory.features.shape[:-2] != self.learner_shape:
                shape = tuple(memory.features.shape)
                raise ValueError(f"a memory of shape {shape} does not fit a bonus with learners={learners}")
            if self.rule.log_offset == 0:
                raise ValueError("log_offset=0 refuses duplicates, but a memory would have taken them by then")
        elif use.memory_capacity is not None:
            raise ValueError(
                f"reading {reading!r} looks for neighbours among past features: "
                f"pass memory=FeatureMemory({use.memory_capacity}, dimensions of the features, learners={learners})"
            )
        self.memory = memory

    @property
    def is_capturable(self) -> bool:
        """Whether a call can be captured in a CUDA graph; not before the memory, if there is one, is full."""
        return self.memory is None or self.memory.filled == self.memory.capacity

    def compute(self, features: Tensor, values: Tensor | None, rewards: Tensor | None) -> BonusOutput:
        """Compute the normalised entropy reward of each feature."""
        self.normalizer.check_fits(features.shape[:-1])
        check = checks_run(self.check_finite, features)
        pool, pool_counts, feature_counts = None, None, None
        if self.memory is not None:
            count = features.shape[-2]
            check_k(self.k, points=self.memory.filled_after(count), within_points=True, name="memory")
            if check:
                self.memory.check_numbers(features)  # what is refused does not enter the memory
            self.memory.push(features)
            pool, pool_counts = self.memory.distinct_pool()
            feature_counts = self.memory.counts_of_latest(count)
        terms = state_entropy_terms(
            features,
            k=self.k,
            reading=self.rule,
            pool=pool,
            pool_holds_features=pool is not None,
            pool_counts=pool_counts,
            feature_counts=feature_counts,
            check_finite=self.check_finite and pool is None,  # what is remembered has been checked
        )
        if self.normalizes_before_log:
            reward = log_of_distance(self.normalizer(terms.distance), self.rule, check=check)
        else:
            reward = self.normalizer(terms.reward)
        return BonusOutput(reward, terms.distance)


class MatchedStateEntropy(EntropyBonus[ConditionalReading]):
    """State entropy bonus made like VCSE, `se-matched`: log(2 e_s + offset), without the value and the ψ term.

    e_s is the distance to the k-th neighbour among the states of the batch. The neighbours' pool, k, the offset and
    the lack of a normaliser are those of VCSE in the same reading, so that comparing the two shows what
    conditioning on the value does, and nothing else. The paper has no such control.

    Args:
        k: Which neighbour, counted as the reading says.
        reading: A reading of VCSE: recommended, paper, clean, release-a2c, release-drqv2, release-sac or release-mwm;
            or a `ConditionalReading` of one's own.
        log_offset: What is added inside the logarithm; the reading's if not given.
        learners: The size of the leading learner axis, or None where there is none.
        scaling: Mean and scale of the rewards: "raw" as the formula says, "centered" less the mean of the batch,
            "standardized" divided by its standard deviation too; or a `RewardScaling`. If not given, "standardized"
            with the reading `recommended`, and "raw" with all others.
        check_finite: Refuse NaN and infinity; see `vcse.estimators.kth_neighbor_distance`.

    Example:
        >>> import torch
        >>> from vcse.bonuses import MatchedStateEntropy
        >>> bonus = MatchedStateEntropy(k=1)
        >>> bonus(torch.tensor([[0.0], [1.0], [3.0]])).reward
        tensor([-0.7071, -0.7071,  1.4142])
    """

    def __init__(
        self,
        *,
        k: int = RECOMMENDED_K,
        reading: str | ConditionalReading = RECOMMENDED,
        log_offset: float | None = None,
        learners: int | None = None,
        scaling: ScalingName | RewardScaling | None = None,
        check_finite: bool = True,
    ) -> None:
        rule = conditional_reading(reading, log_offset=log_offset)
        scaling = chosen_scaling(scaling, reading)
        super().__init__(rule, k=k, learners=learners, scaling=scaling, check_finite=check_finite)

    def compute(self, features: Tensor, values: Tensor | None, rewards: Tensor | None) -> BonusOutput:
        """Compute the entropy reward of each feature."""
        radius = kth_neighbor_distance(
            features, k=self.k, self_in_k=self.rule.self_in_k, check_finite=self.check_finite
        )
        return BonusOutput(log_of_distance(radius, self.rule, check=checks_run(self.check_finite, features)), radius)
