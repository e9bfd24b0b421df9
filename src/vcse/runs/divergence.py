"""Runs whose numbers are no longer finite: found by the loops, and dropped from their cohorts."""

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple


class Diverged(NamedTuple):
    """What of a run is no longer finite, and at which frame it was found."""

    what: str
    frame: int


class DivergedError(RuntimeError):
    """Numbers of some runs are no longer finite. The rest of the cohort can continue without them.

    Args:
        runs: What is not finite, by name.
    """

    def __init__(self, runs: Mapping[str, Diverged]) -> None:
        super().__init__(dict(runs))
        self.runs = dict(runs)

    def __str__(self) -> str:
        """Name runs together that diverged alike."""
        alike: dict[Diverged, list[str]] = {}
        for run, how in self.runs.items():
            alike.setdefault(how, []).append(run)
        parts = (f"the {what} of {', '.join(runs)} is not finite at frame {at:,}" for (what, at), runs in alike.items())
        return "; ".join(parts)


def check_finite(what: str, numbers: Sequence[float], runs: Sequence[str], *, frame: int) -> None:
    """Refuse to continue runs, at a frame, whose number is not finite."""
    bad = [run for run, number in zip(runs, numbers, strict=True) if not math.isfinite(number)]
    if bad:
        raise DivergedError(dict.fromkeys(bad, Diverged(what, frame)))
