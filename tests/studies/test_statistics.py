import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import trim_mean

from vcse.studies.statistics import bootstrap_difference, bootstrap_interval, interquartile_mean, mean


def test_the_mean_of_the_middle_half_by_hand():
    scores = np.array([0.0, 0.2, 0.4, 0.6, 0.8, 100.0, -100.0, 0.5])[:, None, None]
    assert interquartile_mean(scores) == pytest.approx([(0.2 + 0.4 + 0.5 + 0.6) / 4])
    assert mean(scores) == pytest.approx([2.5 / 8])


@given(st.integers(1, 17), st.integers(1, 3), st.integers(1, 4), st.integers(0, 99))
def test_it_is_the_trimmed_mean_of_runs_and_tasks_together(runs, tasks, evaluations, seed):
    scores = np.random.default_rng(seed).normal(size=(runs, tasks, evaluations))
    expected = trim_mean(scores.reshape(-1, evaluations), 0.25, axis=0)
    np.testing.assert_allclose(interquartile_mean(scores), expected)


def test_a_run_without_a_score_makes_the_number_unknown_and_not_smaller():
    scores = np.ones((8, 1, 2))
    scores[3, 0, 0] = np.nan
    assert np.isnan(interquartile_mean(scores)).tolist() == [True, False]
    interval = bootstrap_interval(scores, np.random.default_rng(0), resamples=20)
    assert np.isnan(interval.low).tolist() == np.isnan(interval.high).tolist() == [True, False]


def test_the_interval_covers_the_truth_as_often_as_it_says():
    draws, inside = np.random.default_rng(0), 0
    for _ in range(100):
        interval = bootstrap_interval(draws.normal(size=(30, 1, 1)), draws, resamples=200)
        inside += bool(interval.low[0] <= 0 <= interval.high[0])
    assert 88 <= inside <= 99


def test_tasks_keep_their_weight():
    # Drawn without regard to tasks, some resamples would hold more of the second and the mean would move.
    scores = np.broadcast_to(np.array([0.0, 1.0])[None, :, None], (10, 2, 1)).copy()
    interval = bootstrap_interval(scores, np.random.default_rng(0), statistic=mean, resamples=50)
    assert (interval.low[0], interval.high[0]) == (0.5, 0.5)


def test_a_run_is_drawn_with_all_of_its_evaluations():
    first = np.random.default_rng(1).random((12, 2, 1))
    interval = bootstrap_interval(np.concatenate((first, first + 1), -1), np.random.default_rng(0), resamples=100)
    assert interval.low[1] == pytest.approx(interval.low[0] + 1)
    assert interval.high[1] == pytest.approx(interval.high[0] + 1)


def test_the_generator_decides_and_more_confidence_is_wider():
    scores = np.random.default_rng(1).random((16, 1, 3))
    one, again, wider = (
        bootstrap_interval(scores, np.random.default_rng(7), confidence=confidence, resamples=200)
        for confidence in (0.9, 0.9, 0.99)
    )
    assert np.array_equal(one.low, again.low)
    assert (wider.low < one.low).all()
    assert (wider.high > one.high).all()
    point = interquartile_mean(scores)
    assert ((one.low < point) & (point < one.high)).all()


@pytest.mark.parametrize(
    ("shape", "settings", "message"),
    [
        ((0, 1, 1), {}, r"scores must hold runs, tasks and evaluations, got shape \(0, 1, 1\)"),
        ((3, 1, 1), {"confidence": 1.0}, r"confidence must be between 0 and 1, got 1\.0"),
        ((3, 1, 1), {"resamples": 0}, "resamples must be at least 1, got 0"),
    ],
)
def test_bad_input_is_named(shape, settings, message):
    with pytest.raises(ValueError, match=message):
        bootstrap_interval(np.zeros(shape), np.random.default_rng(0), **settings)


def test_the_interval_of_a_difference_covers_the_truth_as_often_as_it_says():
    draws, inside = np.random.default_rng(0), 0
    for _ in range(100):
        mine, theirs = draws.normal(1, 1, size=(30, 1, 1)), draws.normal(0, 3, size=(20, 1, 1))
        interval = bootstrap_difference(mine, theirs, draws, resamples=200)
        inside += bool(interval.low[0] <= 1 <= interval.high[0])
    assert 88 <= inside <= 99


def test_a_difference_has_a_sign_and_comes_from_two_independent_draws():
    scores = np.random.default_rng(1).random((16, 2, 1))
    difference = bootstrap_difference(scores + 5, scores, np.random.default_rng(0), statistic=mean)
    alone = bootstrap_interval(scores, np.random.default_rng(0), statistic=mean)
    assert difference.low[0] < 5 < difference.high[0]  # drawn together, the two would always be 5 apart
    width = (difference.high - difference.low) / (alone.high - alone.low)
    assert width == pytest.approx([2**0.5], rel=0.1)
    turned = bootstrap_difference(scores, scores + 5, np.random.default_rng(0), statistic=mean)
    assert turned.high[0] < 0


def test_a_difference_to_runs_that_are_all_alike_moves_with_the_others_alone():
    scores = np.random.default_rng(1).random((16, 1, 3))
    alike = np.full((4, 1, 3), 0.25)
    difference = bootstrap_difference(scores, alike, np.random.default_rng(0), resamples=100)
    alone = bootstrap_interval(scores, np.random.default_rng(0), resamples=100)
    np.testing.assert_allclose(difference.low, alone.low - 0.25)
    np.testing.assert_allclose(difference.high, alone.high - 0.25)


def test_a_difference_is_unknown_where_either_side_is():
    known, unknown = np.ones((4, 1, 2)), np.ones((4, 1, 2))
    unknown[0, 0, 1] = np.nan
    for sides in ((known, unknown), (unknown, known)):
        interval = bootstrap_difference(*sides, np.random.default_rng(0), resamples=20)
        assert np.isnan(interval.low).tolist() == np.isnan(interval.high).tolist() == [False, True]


def test_a_difference_between_other_tasks_is_refused(without_type_checks):
    message = r"same tasks and evaluations, got shapes \(3, 1, 2\) and \(3, 2, 2\)"
    with pytest.raises(ValueError, match=message):
        bootstrap_difference(np.zeros((3, 1, 2)), np.zeros((3, 2, 2)), np.random.default_rng(0))
