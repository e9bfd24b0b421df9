"""The readings: the paper and the released code define the same reward differently.

Kim et al. 2023 print one formula; the code that the authors released, in four folders, computes three others. A
reading is a consistent choice of all the details. `paper` is what the paper prints, `clean` the textbook estimator
without anybody's quirks, `recommended` the same with 1 inside the logarithm, so that a duplicate earns 0, `release-*`
what the released A2C, DrQ-v2, SAC and MWM code does, and `re3` the state entropy of Seo et al. 2021, which the paper's
baseline descends from. DrQ-v2 and SAC share one formula and differ in their agents alone; both names are kept, so that
an agent and its reading can have the same.

Each detail is a field here and a keyword of the reward functions. A custom reading is made with
`dataclasses.replace`, or from nothing, and is taken wherever a name is.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal, TypeVar

from vcse.estimators.checks import check_booleans, check_log_offset, check_nv_radius

RadiusOfCount = Literal["value", "joint"]


@dataclass(frozen=True)
class StateEntropyReading:
    """How log(D + 1), Eq. (2), is understood."""

    self_in_k: bool  # the point itself, at distance 0, is its own first neighbour
    average: bool  # the mean distance to the k nearest, not the distance to the k-th
    doubled: bool  # D is twice the distance
    log_offset: float  # added inside the logarithm

    def __post_init__(self) -> None:
        """Raise ValueError for details that mean nothing."""
        check_booleans(self_in_k=self.self_in_k, average=self.average, doubled=self.doubled)
        check_log_offset(self.log_offset)


@dataclass(frozen=True)
class ConditionalReading:
    """How ψ(n_v + 1)/d_s + log ε, Eq. (8), is understood."""

    nv_radius: RadiusOfCount  # n_v is counted within ε_v/2, the neighbour's value distance, or within ε/2
    self_in_k: bool
    self_in_nv: bool  # the point itself is counted in n_v where the radius is above 0
    doubled: bool
    log_offset: float  # added inside the logarithm, which is minus infinity for duplicates without it

    def __post_init__(self) -> None:
        """Raise ValueError for details that mean nothing."""
        check_nv_radius(self.nv_radius)
        check_booleans(self_in_k=self.self_in_k, self_in_nv=self.self_in_nv, doubled=self.doubled)
        check_log_offset(self.log_offset)


Reading = TypeVar("Reading", StateEntropyReading, ConditionalReading)

STATE_ENTROPY_READINGS = {
    "paper": StateEntropyReading(self_in_k=False, average=False, doubled=True, log_offset=1.0),
    "clean": StateEntropyReading(self_in_k=False, average=False, doubled=True, log_offset=1.0),
    "recommended": StateEntropyReading(self_in_k=False, average=False, doubled=True, log_offset=1.0),
    "release-a2c": StateEntropyReading(self_in_k=True, average=True, doubled=False, log_offset=1.0),
    "release-drqv2": StateEntropyReading(self_in_k=True, average=False, doubled=False, log_offset=1.0),
    "release-sac": StateEntropyReading(self_in_k=True, average=False, doubled=False, log_offset=1.0),
    "release-mwm": StateEntropyReading(self_in_k=True, average=False, doubled=False, log_offset=1.0),
    "re3": StateEntropyReading(self_in_k=True, average=True, doubled=False, log_offset=1.0),
}

CONDITIONAL_READINGS = {
    "paper": ConditionalReading("value", self_in_k=False, self_in_nv=False, doubled=True, log_offset=1e-5),
    "clean": ConditionalReading("joint", self_in_k=False, self_in_nv=False, doubled=True, log_offset=1e-5),
    "recommended": ConditionalReading("joint", self_in_k=False, self_in_nv=False, doubled=True, log_offset=1.0),
    "release-a2c": ConditionalReading("joint", self_in_k=False, self_in_nv=True, doubled=True, log_offset=1e-5),
    "release-drqv2": ConditionalReading("joint", self_in_k=True, self_in_nv=True, doubled=True, log_offset=1e-5),
    "release-sac": ConditionalReading("joint", self_in_k=True, self_in_nv=True, doubled=True, log_offset=1e-5),
    "release-mwm": ConditionalReading("joint", self_in_k=True, self_in_nv=True, doubled=True, log_offset=1e-4),
}


def state_entropy_reading(reading: str | StateEntropyReading, **deviations: Any) -> StateEntropyReading:
    """Return the reading of the state entropy reward of a name, or a custom one.

    Args:
        reading: The name, or the custom reading.
        deviations: Details that replace those of the reading; None leaves one as it is.
    """
    return _looked_up(reading, STATE_ENTROPY_READINGS, StateEntropyReading, deviations)


def conditional_reading(reading: str | ConditionalReading, **deviations: Any) -> ConditionalReading:
    """Return the reading of the value-conditional reward of a name, or a custom one; see `state_entropy_reading`."""
    return _looked_up(reading, CONDITIONAL_READINGS, ConditionalReading, deviations)


def _looked_up(
    reading: str | Reading, table: dict[str, Reading], kind: type[Reading], deviations: dict[str, Any]
) -> Reading:
    rule = table.get(reading) if isinstance(reading, str) else reading
    if not isinstance(rule, kind):
        raise ValueError(f"reading must be one of {', '.join(table)}, or a {kind.__name__}, got {reading!r}")
    given = {name: value for name, value in deviations.items() if value is not None}
    return replace(rule, **given) if given else rule
