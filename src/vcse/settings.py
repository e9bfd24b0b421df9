"""Settings of all agents alike: what they must be, with checks that name the setting and the number."""

import math
from collections.abc import Sequence
from typing import Any, Literal

ValueCritic = Literal["online", "target"]  # whose value VCSE conditions on, where a critic has a target


def check_at_least_one(settings: Any, *names: str) -> None:
    """Refuse a count below 1."""
    for name in names:
        number = getattr(settings, name)
        if number < 1:
            raise ValueError(f"{name} must be at least 1, got {number}")


def check_not_negative(settings: Any, *names: str) -> None:
    """Refuse a number that is negative, infinite or none."""
    for name in names:
        number = getattr(settings, name)
        if not 0 <= number < math.inf:
            raise ValueError(f"{name} must be finite and not negative, got {number}")


def check_positive(settings: Any, *names: str) -> None:
    """Refuse a number that is not above 0, or infinite; None is left to the setting's default."""
    for name in names:
        number = getattr(settings, name)
        if number is not None and not 0 < number < math.inf:
            raise ValueError(f"{name} must be finite and above 0, got {number}")


def check_shares(settings: Any, *names: str) -> None:
    """Refuse what is no share of a whole."""
    for name in names:
        number = getattr(settings, name)
        if not 0 <= number <= 1:
            raise ValueError(f"{name} must be from 0 to 1, got {number}")


def check_holds_batch(settings: Any, batch: int) -> None:
    """Refuse a replay that is smaller than what is drawn of it."""
    if settings.replay_capacity < batch:
        raise ValueError(
            f"replay_capacity must be at least {batch}, the transitions of a batch, got {settings.replay_capacity}"
        )


def check_cohort(settings: Sequence[Any], seeds: Sequence[int], shared: Sequence[str]) -> None:
    """Refuse learners that cannot be trained in one stack."""
    if not settings or len(settings) != len(seeds):
        raise ValueError(f"a cohort needs one seed per configuration, got {len(settings)} and {len(seeds)}")
    for name in shared:
        different = {getattr(each, name) for each in settings}
        if len(different) > 1:
            raise ValueError(f"learners of one cohort must have the same {name}, got {sorted(different)}")


def check_neighbors(k: int, states: int) -> None:
    """Refuse a neighbour that a batch of so many states does not have."""
    if k >= states:
        raise ValueError(
            f"k must be below {states}, the states of a batch, got {k}: a larger batch_size has room for it"
        )
