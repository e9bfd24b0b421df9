"""Scores of a policy: what it reached in an evaluation, with the intervals that so many episodes allow."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import NormalDist
from typing import Any, Literal, NamedTuple

import numpy as np

from vcse.runs.evaluation import Evaluation, TwoEvaluations

LEAST_EPISODES = 2  # fewer have no interval
Precision = Literal["float16", "float32"]


class Interval(NamedTuple):
    """The ends of a confidence interval."""

    low: float
    high: float


def wilson_interval(successes: int, episodes: int, confidence: float = 0.95) -> Interval:
    """Return Wilson's interval of a rate, which is never empty: not even where all episodes succeeded."""
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    rate, spread = successes / episodes, z**2 / episodes
    middle = (rate + spread / 2) / (1 + spread)
    reach = math.sqrt(rate * (1 - rate) * spread + spread**2 / 4) / (1 + spread)
    return Interval(max(0.0, middle - reach), min(1.0, middle + reach))


def mean_interval(numbers: Sequence[float], confidence: float = 0.95) -> Interval:
    """Return Student's interval of the mean of two numbers or more."""
    if len(numbers) < LEAST_EPISODES:
        raise ValueError(f"numbers must be at least {LEAST_EPISODES} to have an interval, got {len(numbers)}")
    t = student_quantile(confidence, len(numbers) - 1)
    mean, reach = float(np.mean(numbers)), float(t * np.std(numbers, ddof=1) / math.sqrt(len(numbers)))
    return Interval(mean - reach, mean + reach)


def student_quantile(confidence: float, degrees: int) -> float:
    """Return the number that the absolute value of a Student's t stays below with this probability.

    The distribution is a finite sum for whole degrees of freedom (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4), whose
    angle = arctan(t / √degrees) is found by bisection.
    """
    is_odd, low, high = degrees % 2, 0.0, math.pi / 2
    while low < (angle := (low + high) / 2) < high:
        total, term = 0.0, math.cos(angle) ** is_odd
        for number in range(2 + is_odd, degrees + 1, 2):
            total += term
            term *= math.cos(angle) ** 2 * (number - 1) / number
        probability = math.sin(angle) * total
        if is_odd:
            probability = 2 / math.pi * (angle + probability)
        low, high = (angle, high) if probability < confidence else (low, angle)
    return math.sqrt(degrees) * math.tan(angle)


@dataclass(frozen=True)
class Score:
    """What a policy reached with one of the two ways to act; 95 % intervals."""

    return_mean: float
    return_interval: Interval
    success_rate: float | None = None  # None where nobody says what success is
    success_interval: Interval | None = None

    @classmethod
    def of(cls, found: Evaluation) -> "Score":
        """Return the score of an evaluation."""
        of_return = (found.return_mean, mean_interval(found.returns))
        rate, episodes = found.success_rate, len(found.returns)
        if math.isnan(rate):
            return cls(*of_return)
        return cls(*of_return, rate, wilson_interval(round(rate * episodes), episodes))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Score":
        """Read it back."""
        success = content["success_interval"]
        return cls(
            content["return_mean"],
            Interval(*content["return_interval"]),
            content["success_rate"],
            None if success is None else Interval(*success),
        )

    def allows(self, other: "Score") -> bool:
        """Return whether what another score says lies within the intervals of this one."""
        low, high = self.return_interval
        if not low <= other.return_mean <= high:
            return False
        if self.success_interval is None or other.success_rate is None:
            return self.success_rate == other.success_rate
        low, high = self.success_interval
        return low <= other.success_rate <= high


@dataclass(frozen=True)
class Scores:
    """The scores of both ways to act."""

    sampled: Score
    greedy: Score  # the most probable action; where actions are continuous, the mean

    @classmethod
    def of(cls, found: TwoEvaluations) -> "Scores":
        """Return the scores of two evaluations."""
        return cls(Score.of(found.sampled), Score.of(found.greedy))

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "Scores":
        """Read them back."""
        return cls(Score.from_json(content["sampled"]), Score.from_json(content["greedy"]))

    def allow(self, others: "Scores") -> bool:
        """Return whether other scores lie within the intervals of these, in both ways to act."""
        return self.sampled.allows(others.sampled) and self.greedy.allows(others.greedy)


@dataclass(frozen=True)
class PolicyScores:
    """The scores of a policy as it is stored, and of the same episodes with the weights that training had."""

    frame: int
    episodes: int
    precision: Precision  # of the weights that are stored
    stored: Scores
    trained: Scores

    def to_json(self) -> dict[str, Any]:
        """Return what `evaluation.json` holds."""
        return asdict(self)

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> "PolicyScores":
        """Read it back."""
        stored, trained = (Scores.from_json(content[name]) for name in ("stored", "trained"))
        return cls(content["frame"], content["episodes"], content["precision"], stored, trained)
