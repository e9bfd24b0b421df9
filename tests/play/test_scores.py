import math

import numpy as np
import pytest
from scipy.stats import binomtest, t

from vcse.play.scores import Interval, PolicyScores, Score, Scores, mean_interval, wilson_interval
from vcse.runs.evaluation import Evaluation, TwoEvaluations


@pytest.mark.parametrize(("successes", "episodes"), [(0, 10), (3, 10), (10, 10), (998, 1000)])
@pytest.mark.parametrize("confidence", [0.95, 0.999])
def test_wilson_interval(successes, episodes, confidence):
    expected = binomtest(successes, episodes).proportion_ci(confidence, method="wilson")
    assert wilson_interval(successes, episodes, confidence) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 10, 101, 1000])
@pytest.mark.parametrize("confidence", [0.5, 0.95, 0.999])
def test_mean_interval(count, confidence):
    numbers = np.random.default_rng(0).normal(5.0, 2.0, count).tolist()
    low, high = mean_interval(numbers, confidence)
    reach = t.ppf((1 + confidence) / 2, count - 1) * np.std(numbers, ddof=1) / math.sqrt(count)
    assert (low + high) / 2 == pytest.approx(np.mean(numbers))
    assert (high - low) / 2 == pytest.approx(reach, rel=1e-9)


def test_one_number_has_no_interval():
    with pytest.raises(ValueError, match="numbers must be at least 2 to have an interval, got 1"):
        mean_interval([1.0])


def test_a_success_is_what_the_task_says_or_else_a_return_above_0_and_may_be_unknown():
    said = Score.of(Evaluation([1.0, 0.0, 3.0, 0.0], [1] * 4, successes=[True, True, True, False]))
    assert (said.return_mean, said.success_rate) == (1.0, 0.75)
    assert said.success_interval == wilson_interval(3, 4)
    assert Score.of(Evaluation([1.0, 0.0, 3.0, 0.0], [1] * 4)).success_rate == 0.5
    unknown = Score.of(Evaluation([1.0, 3.0], [1, 1], by_return=False))
    assert (unknown.success_rate, unknown.success_interval) == (None, None)


def test_scores_are_read_back_as_they_were_written():
    found = TwoEvaluations(Evaluation([1.0, 0.0], [1, 1]), Evaluation([1.0, 3.0], [1, 1], by_return=False))
    scores = PolicyScores(64, 2, "float16", Scores.of(found), Scores.of(found))
    assert PolicyScores.from_json(scores.to_json()) == scores


@pytest.mark.parametrize(
    ("other", "allowed"),
    [
        (Score(0.5, Interval(0, 1), 0.9, Interval(0.8, 1.0)), True),
        (Score(0.6, Interval(0, 1), 0.85, Interval(0.8, 1.0)), True),
        (Score(0.61, Interval(0, 1), 0.9, Interval(0.8, 1.0)), False),
        (Score(0.5, Interval(0, 1), 0.84, Interval(0.8, 1.0)), False),
        (Score(0.5, Interval(0, 1)), False),
    ],
)
def test_scores_allow_what_lies_within_their_intervals_in_both_ways_to_act(other, allowed):
    score = Score(0.5, Interval(0.4, 0.6), 0.9, Interval(0.85, 0.95))
    assert score.allows(other) == allowed
    assert Scores(score, score).allow(Scores(score, other)) == allowed
    assert Scores(score, score).allow(Scores(other, score)) == allowed
    assert Score(0.5, Interval(0.4, 0.6)).allows(Score(0.45, Interval(0, 1)))
