"""State entropy bonuses, blind to the value: SE as published, and a control that differs from VCSE in that alone."""

import torch
from jaxtyping import Float
from torch import Tensor

from vcse.bonuses.bonus import Bonus, BonusOutput
from vcse.bonuses.memory import FeatureMemory
from vcse.bonuses.normalizers import Normalizer
from vcse.bonuses.readings import STATE_ENTROPY_USES, make_normalizer
from vcse.estimators.checks import check_all_finite, checks_run
from vcse.estimators.entropy import log_of_distance, state_entropy_terms
from vcse.estimators.neighbors import kth_neighbor_distance
from vcse.estimators.readings import conditional_reading, state_entropy_reading, with_overrides


class StateEntropy(Bonus):
    """SE: log(D_s + 1), Eq. (2), normalised.

    Args:
        k: Which neighbour, counted as the reading says.
        reading: paper, clean, release-a2c, release-drqv2, release-sac, release-mwm or re3.
        normalizer: What the reward is divided by; the reading's if not given.
        memory: Where neighbours are looked for, the current batch among them; the batch alone if not given. The
            readings release-a2c and re3 are defined with one of 10,000 features and ask for it.
        learners: The size of the leading learner axis, or None where there is none.
        check_finite: Refuse NaN and infinity; see `vcse.estimators.kth_neighbor_distance`.
    """

    def __init__(
        self,
        *,
        k: int,
        reading: str = "paper",
        normalizer: Normalizer | None = None,
        memory: FeatureMemory | None = None,
        learners: int | None = None,
        check_finite: bool = True,
    ) -> None:
        super().__init__()
        self.k = k
        self.rule = state_entropy_reading(reading)
        self.check_finite = check_finite
        use = STATE_ENTROPY_USES[reading]
        self.normalizes_before_log = use.normalizes_before_log
        self.normalizer = normalizer or make_normalizer(use.normalizer, learners=learners)
        if use.memory_capacity is not None and memory is None:
            raise ValueError(
                f"reading {reading!r} looks for neighbours among past features: "
                f"pass memory=FeatureMemory({use.memory_capacity}, dimensions of the features, learners={learners})"
            )
        self.memory = memory

    @torch.no_grad()
    def forward(
        self,
        features: Float[Tensor, "*learners n d"],
        *,
        values: Float[Tensor, "*learners n"] | None = None,
        rewards: Float[Tensor, "*learners n"] | None = None,
    ) -> BonusOutput:
        """Give the normalised entropy reward of each feature."""
        del values, rewards
        if self.memory is not None:
            # Looked at before they are remembered: a NaN in the memory would stay. What is there is known good.
            if checks_run(self.check_finite, features):
                check_all_finite("features", features)
            self.memory.push(features)
        terms = state_entropy_terms(
            features,
            k=self.k,
            reading=self.rule,
            pool=None if self.memory is None else self.memory.pool(),
            pool_holds_features=self.memory is not None,
            check_finite=self.check_finite and self.memory is None,
        )
        if self.normalizes_before_log:
            scaled = self.normalizer(terms.distance)
            reward = log_of_distance(scaled, self.rule, check=False)
            return BonusOutput(reward, terms.distance)
        return BonusOutput(self.normalizer(terms.reward), terms.distance)


class MatchedStateEntropy(Bonus):
    """SE made like VCSE (`se-matched`): log(2 e_s + offset), with the value and the ψ term left out.

    e_s is the distance to the k-th neighbour among the states of the batch. The neighbours' pool, k, the offset and
    the lack of a normaliser are those of VCSE in the same reading, so that comparing the two shows what
    conditioning on the value does, and nothing else. The paper has no such control.

    Args:
        k: Which neighbour, counted as the reading says.
        reading: A reading of VCSE: paper, clean, release-a2c, release-drqv2, release-sac or release-mwm.
        log_offset: What is added inside the logarithm; the reading's if not given.
        check_finite: Refuse NaN and infinity; see `vcse.estimators.kth_neighbor_distance`.
    """

    def __init__(
        self, *, k: int, reading: str = "paper", log_offset: float | None = None, check_finite: bool = True
    ) -> None:
        super().__init__()
        self.k = k
        self.rule = with_overrides(conditional_reading(reading), log_offset=log_offset)
        self.check_finite = check_finite

    @torch.no_grad()
    def forward(
        self,
        features: Float[Tensor, "*learners n d"],
        *,
        values: Float[Tensor, "*learners n"] | None = None,
        rewards: Float[Tensor, "*learners n"] | None = None,
    ) -> BonusOutput:
        """Give the entropy reward of each feature."""
        del values, rewards
        radius = kth_neighbor_distance(
            features, k=self.k, self_in_k=self.rule.self_in_k, check_finite=self.check_finite
        )
        check = checks_run(self.check_finite, features)
        return BonusOutput(log_of_distance(radius, self.rule, check=check), radius)
