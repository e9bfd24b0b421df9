"""Checked by mypy as well as run: what a call returns is known to it."""

from typing import assert_type

import torch

from vcse.bonuses import Bonus, BonusOutput, NoBonus, ValueConditionalStateEntropy
from vcse.bonuses.stacked import StackedBonus, StackedOutput


def test_the_types_of_calls() -> None:
    features, values = torch.eye(4), torch.arange(4.0)
    bonuses: list[Bonus] = [NoBonus(), ValueConditionalStateEntropy(k=1)]
    for bonus in bonuses:
        assert_type(bonus(features, values=values), BonusOutput)
    assert_type(NoBonus()(features).reward, torch.Tensor)
    stacked = StackedBonus.of([(NoBonus(learners=1), [0])])
    assert_type(stacked(features[None]), StackedOutput)
