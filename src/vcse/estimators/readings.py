"""The readings: the paper and the released code define the same reward differently.

Kim et al. 2023 print one formula; the four code bases that the authors released compute four others. A reading
is a consistent choice of all the details. `paper` is what the paper prints, `clean` the textbook estimator
without anybody's quirks, `release-*` what the released A2C, DrQ-v2, SAC and MWM code does, and `re3` the state
entropy of Seo et al. 2021, which the paper's baseline descends from. Each detail is also a keyword of its own.
"""

from dataclasses import dataclass
from typing import Literal

RadiusOfCount = Literal["value", "joint"]


@dataclass(frozen=True)
class StateEntropyReading:
    """How log(D + 1), Eq. (2), is understood."""

    self_in_k: bool  # the point itself, at distance 0, is its own first neighbour
    average: bool  # the mean distance to the k nearest, not the distance to the k-th
    doubled: bool  # D is twice the distance
    log_offset: float  # added inside the logarithm


@dataclass(frozen=True)
class ConditionalReading:
    """How ψ(n_v + 1)/d_s + log ε, Eq. (8), is understood."""

    nv_radius: RadiusOfCount  # n_v is counted within ε_v/2, the neighbour's value distance, or within ε/2
    self_in_k: bool
    self_in_nv: bool  # the point itself is counted in n_v where the radius is above 0
    doubled: bool
    log_offset: float  # added inside the logarithm, which is minus infinity for duplicates without it


STATE_ENTROPY_READINGS = {
    "paper": StateEntropyReading(self_in_k=False, average=False, doubled=True, log_offset=1.0),
    "clean": StateEntropyReading(self_in_k=False, average=False, doubled=True, log_offset=1.0),
    "release-a2c": StateEntropyReading(self_in_k=True, average=True, doubled=False, log_offset=1.0),
    "release-drqv2": StateEntropyReading(self_in_k=True, average=False, doubled=False, log_offset=1.0),
    "release-sac": StateEntropyReading(self_in_k=True, average=False, doubled=False, log_offset=1.0),
    "release-mwm": StateEntropyReading(self_in_k=True, average=False, doubled=False, log_offset=1.0),
    "re3": StateEntropyReading(self_in_k=True, average=True, doubled=False, log_offset=1.0),
}

CONDITIONAL_READINGS = {
    "paper": ConditionalReading("value", self_in_k=False, self_in_nv=False, doubled=True, log_offset=1e-5),
    "clean": ConditionalReading("joint", self_in_k=False, self_in_nv=False, doubled=True, log_offset=1e-5),
    "release-a2c": ConditionalReading("joint", self_in_k=False, self_in_nv=True, doubled=True, log_offset=1e-5),
    "release-drqv2": ConditionalReading("joint", self_in_k=True, self_in_nv=True, doubled=True, log_offset=1e-5),
    "release-sac": ConditionalReading("joint", self_in_k=True, self_in_nv=True, doubled=True, log_offset=1e-5),
    "release-mwm": ConditionalReading("joint", self_in_k=True, self_in_nv=True, doubled=True, log_offset=1e-4),
}


def state_entropy_reading(name: str) -> StateEntropyReading:
    """Look a reading of the state entropy reward up, or say which there are."""
    if name not in STATE_ENTROPY_READINGS:
        raise ValueError(f"reading must be one of {', '.join(STATE_ENTROPY_READINGS)}, got {name!r}")
    return STATE_ENTROPY_READINGS[name]


def conditional_reading(name: str) -> ConditionalReading:
    """Look a reading of the value-conditional reward up, or say which there are."""
    if name not in CONDITIONAL_READINGS:
        raise ValueError(f"reading must be one of {', '.join(CONDITIONAL_READINGS)}, got {name!r}")
    return CONDITIONAL_READINGS[name]
