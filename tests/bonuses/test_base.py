from functools import partial

import pytest
import torch

from vcse.bonuses import (
    MatchedStateEntropy,
    NoBonus,
    NoNormalizer,
    RewardConditionalStateEntropy,
    StateEntropy,
    ValueConditionalStateEntropy,
)

BONUSES = {
    "none": NoBonus,
    "se": partial(StateEntropy, k=3),
    "se with statistics": partial(StateEntropy, k=3, reading="clean"),
    "se without a normaliser": partial(StateEntropy, k=3, normalizer=NoNormalizer()),
    "se-matched": partial(MatchedStateEntropy, k=3),
    "vcse": partial(ValueConditionalStateEntropy, k=3),
    "rcse": partial(RewardConditionalStateEntropy, k=3),
}
of_every_bonus = pytest.mark.parametrize("make", BONUSES.values(), ids=BONUSES)


def reward_of(bonus, shape):
    generator = torch.Generator().manual_seed(3)
    features, per_feature = torch.randn(*shape, 6, generator=generator), torch.randn(shape, generator=generator)
    return bonus(features, values=per_feature, rewards=per_feature).reward


@of_every_bonus
@pytest.mark.parametrize(("learners", "shape"), [(None, (16,)), (1, (1, 16)), (8, (8, 16))])
def test_a_leading_axis_is_that_of_the_learners(make, learners, shape):
    assert reward_of(make(learners=learners), shape).shape == shape


@of_every_bonus
@pytest.mark.parametrize(
    ("learners", "shape", "message"),
    [
        # A rollout [steps, environments, dimensions], say, whose neighbours would be looked for in one step alone.
        (
            None,
            (8, 16),
            r"\(8, 16, 6\) .* learners=None, which takes \[points, dimensions\]: flatten .*, or say learners=8",
        ),
        (None, (1, 16), "learners=None, .*: flatten the batch, or say learners=1 "),
        (1, (8, 16), r"learners=1, which takes \[1, points, dimensions\]: flatten the batch, or say learners=8 "),
        (3, (16,), r"learners=3, which takes \[3, points, dimensions\]: say learners=None"),
        (3, (3, 8, 16), r"learners=3, which takes \[3, points, dimensions\]: flatten the batch$"),
    ],
)
def test_any_other_leading_axis_is_refused(make, learners, shape, message):
    with pytest.raises(ValueError, match=message):
        reward_of(make(learners=learners), shape)
