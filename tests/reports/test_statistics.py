from functools import partial
from itertools import combinations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rliable import library, metrics
from scipy.stats import trim_mean

from vcse.reports import statistics
from vcse.reports.statistics import (
    area_under_curve,
    benjamini_hochberg,
    bootstrap_difference,
    bootstrap_interval,
    bootstrap_pair,
    frames_to_threshold,
    holm,
    interquartile_mean,
    mean,
    median,
    median_of_tasks,
    middles,
    optimality_gap,
    percentile_interval,
    performance_profile,
    permutation_p_value,
    probability_of_improvement,
    resampled_middles,
    standard_deviation,
)

OF_ONE_ARRAY = (
    interquartile_mean,
    mean,
    median,
    median_of_tasks,
    standard_deviation,
    optimality_gap,
    partial(performance_profile, thresholds=np.array([0.3, 0.5])),
)


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


def rounded_scores(seed, *shape):
    """Scores with ties, as success rates have them, some above an optimum of 1."""
    return np.random.default_rng(seed).integers(0, 14, size=shape) / 10


@given(st.integers(1, 11), st.integers(1, 11), st.integers(1, 5), st.integers(0, 99))
def test_points_are_those_of_rliable(runs, other_runs, tasks, seed):
    scores, others = rounded_scores(seed, runs, tasks, 2), rounded_scores(seed + 1, other_runs, tasks, 2)
    thresholds = np.array([-1.0, 0.0, 0.35, 0.5, 2.0])
    for evaluation in range(2):
        mine, theirs = scores[..., evaluation], others[..., evaluation]
        for ours, reference in (
            (interquartile_mean, metrics.aggregate_iqm),
            (mean, metrics.aggregate_mean),
            (median_of_tasks, metrics.aggregate_median),
            (optimality_gap, metrics.aggregate_optimality_gap),
            (partial(optimality_gap, optimum=0.7), partial(metrics.aggregate_optimality_gap, gamma=0.7)),
        ):
            assert ours(scores)[evaluation] == pytest.approx(reference(mine), abs=1e-6)
        assert probability_of_improvement(scores, others)[evaluation] == pytest.approx(
            metrics.probability_of_improvement(mine, theirs), abs=1e-6
        )
        np.testing.assert_allclose(
            performance_profile(scores, thresholds)[:, evaluation],
            library.score_distributions(mine, thresholds),
            atol=1e-6,
        )


@pytest.fixture
def seeded():
    """Seed what rliable draws with, which is the global generator whatever it is given."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(0)  # noqa: NPY002
    yield
    np.random.set_state(before)  # noqa: NPY002


def agrees(interval, reference, width_share=0.1):
    """Return whether the ends of two intervals differ by no more than two samples of so many resamples do."""
    low, high = reference
    room = width_share * (high - low)
    return abs(interval.low[0] - low) < room and abs(interval.high[0] - high) < room


def test_intervals_are_those_of_rliable(seeded):
    scores, others = np.random.default_rng(3).random((2, 10, 4, 1))
    for ours, reference in (
        (interquartile_mean, metrics.aggregate_iqm),
        (mean, metrics.aggregate_mean),
        (median_of_tasks, metrics.aggregate_median),
        (optimality_gap, metrics.aggregate_optimality_gap),
    ):
        interval = bootstrap_interval(scores, np.random.default_rng(0), statistic=ours, resamples=2000)
        _, theirs = library.get_interval_estimates(
            {"a": scores[..., 0]}, lambda drawn, of=reference: np.array([of(drawn)]), reps=2000
        )
        assert agrees(interval, theirs["a"][:, 0]), ours.__name__
    interval = bootstrap_pair(scores, others, np.random.default_rng(0), resamples=2000)
    _, theirs = library.get_interval_estimates(
        {"a": [scores[..., 0], others[..., 0]]},
        lambda *drawn: np.array([metrics.probability_of_improvement(*drawn)]),
        reps=500,
    )
    assert agrees(interval, theirs["a"][:, 0], width_share=0.15)


def test_the_interval_of_a_profile_is_that_of_rliable(seeded):
    scores, thresholds = np.random.default_rng(3).random((10, 4, 1)), np.array([0.2, 0.5, 0.8])
    profile = partial(performance_profile, thresholds=thresholds)
    interval = bootstrap_interval(scores, np.random.default_rng(0), statistic=profile)
    _, theirs = library.create_performance_profile({"a": scores[..., 0]}, thresholds, reps=2000)
    assert interval.low.shape == (3, 1)
    # Shares of 40 runs: one run more or less may lie inside.
    np.testing.assert_allclose(np.stack((interval.low, interval.high))[..., 0], theirs["a"], atol=1.01 / 40)


def test_the_two_medians_are_different_numbers():
    scores = np.array([[0.0, 1.0, 0.5], [0.0, 0.9, 0.5], [0.9, 0.8, 0.5]])[..., None]
    assert median(scores) == pytest.approx([0.5])
    assert median_of_tasks(scores) == pytest.approx([0.5])
    lucky = np.array([[0.0, 0.1], [0.0, 0.1], [0.9, 0.1]])[..., None]
    assert median(lucky) == pytest.approx([0.1])
    assert median_of_tasks(lucky) == pytest.approx([(0.3 + 0.1) / 2])


def test_the_standard_deviation_is_that_of_the_runs_at_hand():
    assert standard_deviation(np.array([1.0, 3.0])[:, None, None]) == pytest.approx([1.0])
    assert standard_deviation(np.array([[1.0, 5.0], [1.0, 5.0]])[..., None]) == pytest.approx([2.0])
    assert standard_deviation(np.ones((1, 1, 2))).tolist() == [0, 0]


def test_an_improvement_by_hand():
    scores, others = np.array([1.0, 2.0])[:, None, None], np.array([0.0, 1.0, 2.0])[:, None, None]
    # 1 beats 0, ties with 1, loses to 2; 2 beats 0 and 1, ties with 2.
    assert probability_of_improvement(scores, others) == pytest.approx([(1 + 0.5 + 0 + 1 + 1 + 0.5) / 6])
    assert probability_of_improvement(others, scores) == pytest.approx([2 / 6])
    both = bootstrap_pair(scores, scores - 5, np.random.default_rng(0), resamples=20)
    assert (both.low[0], both.high[0]) == (1, 1)


@pytest.mark.parametrize("statistic", OF_ONE_ARRAY)
def test_many_resamples_at_once_are_one_after_the_other(statistic, monkeypatch):
    scores = rounded_scores(0, 7, 3, 5)
    one_at_a_time = bootstrap_interval(
        scores, np.random.default_rng(1), statistic=lambda drawn: 1.0 * statistic(drawn), resamples=50
    )
    for size in (1, 3 * scores.nbytes, 2**30):
        monkeypatch.setattr(statistics, "CHUNK_BYTES", size)
        at_once = bootstrap_interval(scores, np.random.default_rng(1), statistic=statistic, resamples=50)
        np.testing.assert_allclose(at_once.low, one_at_a_time.low)
        np.testing.assert_allclose(at_once.high, one_at_a_time.high)


def test_many_pairs_at_once_are_one_after_the_other(monkeypatch):
    scores, others = rounded_scores(0, 7, 3, 5), rounded_scores(1, 4, 3, 5)
    one_at_a_time = bootstrap_pair(
        scores,
        others,
        np.random.default_rng(1),
        statistic=lambda *both: 1.0 * probability_of_improvement(*both),
        resamples=50,
    )
    monkeypatch.setattr(statistics, "CHUNK_BYTES", 3 * scores.nbytes)
    at_once = bootstrap_pair(scores, others, np.random.default_rng(1), resamples=50)
    np.testing.assert_allclose(at_once, one_at_a_time)


def test_the_same_seed_gives_the_same_intervals():
    scores, others = rounded_scores(0, 7, 3, 5), rounded_scores(1, 4, 3, 5)
    for bootstrap in (bootstrap_difference, bootstrap_pair):
        one, again = (bootstrap(scores, others, np.random.default_rng(4), resamples=100) for _ in range(2))
        assert np.array_equal(one.low, again.low)
        assert np.array_equal(one.high, again.high)


@pytest.mark.parametrize("statistic", OF_ONE_ARRAY)
def test_every_statistic_is_unknown_where_a_run_is(statistic):
    scores = np.full((4, 2, 2), 0.5)
    scores[0, 1, 0] = np.nan
    assert np.isnan(statistic(scores)[..., 0]).all()
    assert np.isfinite(statistic(scores)[..., 1]).all()
    for side in ((scores, np.zeros_like(scores)), (np.zeros_like(scores), scores)):
        assert np.isnan(probability_of_improvement(*side)).tolist() == [True, False]
        assert np.isnan(bootstrap_pair(*side, np.random.default_rng(0), resamples=9).high).tolist() == [True, False]


def test_the_mean_height_of_a_curve_by_hand():
    frames = np.array([0, 100, 400])
    curves = [[0.0, 1.0, 1.0], [2.0, 2.0, 2.0], [1.0, 0.0, -1.0]]
    areas = area_under_curve(np.array(curves)[:, None], frames)
    np.testing.assert_allclose(areas[:, 0], [(50 + 300) / 400, 2, (50 - 150) / 400])
    np.testing.assert_allclose(area_under_curve(np.array([[[3.0]]]), np.array([7])), [[3]])


def test_a_curve_is_measured_from_its_first_score_on():
    nan, frames = np.nan, np.array([0, 100, 400])
    curves = [[nan, 0.0, 1.0], [nan, nan, 0.25], [nan, nan, nan], [0.0, nan, 1.0], [0.0, 1.0, nan]]
    areas = area_under_curve(np.array(curves)[:, None], frames)
    np.testing.assert_allclose(areas[:, 0], [0.5, 0.25, nan, nan, nan])


def test_the_frames_to_a_threshold_are_those_of_the_first_evaluation_there():
    nan, frames = np.nan, np.array([10, 20, 30])
    curves = [[0.0, 0.5, 0.2], [nan, nan, 0.9], [0.4, 0.4, nan], [0.5, 0.0, 0.0]]
    reached = frames_to_threshold(np.array(curves)[:, None], frames, 0.5)
    assert reached[:, 0].tolist() == [20, 30, np.inf, 10]


def test_an_interval_may_reach_to_infinity():
    reached = np.array([10.0, 20, 30, 40, 50, np.inf, np.inf])[:, None, None]
    interval = bootstrap_interval(reached, np.random.default_rng(0), statistic=median)
    assert interval.low[0] in (10, 20)
    assert interval.high[0] == np.inf


def test_bad_frames_and_other_tasks_are_named(without_type_checks):
    scores = np.zeros((2, 1, 3))
    with pytest.raises(ValueError, match=r"frames must be those of 3 evaluations, got shape \(2,\)"):
        area_under_curve(scores, np.array([1, 2]))
    with pytest.raises(ValueError, match="frames must rise, got 1,000 after 2,000"):
        frames_to_threshold(scores, np.array([0, 2000, 1000]), 0.5)
    with pytest.raises(ValueError, match=r"same tasks and evaluations, got shapes \(2, 1, 3\) and \(2, 2, 3\)"):
        bootstrap_pair(scores, np.zeros((2, 2, 3)), np.random.default_rng(0))
    with pytest.raises(ValueError, match="resamples must be at least 1, got 0"):
        bootstrap_pair(scores, scores, np.random.default_rng(0), resamples=0)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=3), st.integers(1, 4), st.integers(0, 99))
def test_the_middle_of_groups_is_the_interquartile_mean_of_all(sizes, points, seed):
    generator = np.random.default_rng(seed)
    groups = [generator.normal(size=(size, points)) for size in sizes]
    pooled = np.concatenate(groups)
    np.testing.assert_allclose(middles(groups), interquartile_mean(pooled[:, None]))
    drawn = resampled_middles(groups, generator, 7)
    assert drawn.shape == (7, points)
    assert (drawn >= pooled.min(0)).all()
    assert (drawn <= pooled.max(0)).all()


def test_runs_are_drawn_within_their_task_and_with_all_points():
    groups = [np.zeros((8, 2)), np.ones((8, 2))]
    np.testing.assert_array_equal(resampled_middles(groups, np.random.default_rng(0), 20), np.full((20, 2), 0.5))
    scores = np.random.default_rng(1).random((12, 1))
    drawn = resampled_middles([np.concatenate((scores, scores + 1), 1)], np.random.default_rng(0), 50)
    np.testing.assert_allclose(drawn[:, 1], drawn[:, 0] + 1)


def test_intervals_of_groups_agree_with_the_bootstrap_of_differences():
    generator = np.random.default_rng(0)
    vcse, se = generator.normal(1, 1, size=(16, 2, 1)), generator.normal(0, 2, size=(12, 2, 1))
    mine = [resampled_middles([side[:, 0], side[:, 1]], generator, 10_000) for side in (vcse, se)]
    low, high = percentile_interval(mine[0] - mine[1])
    expected = bootstrap_difference(vcse, se, generator, resamples=10_000)
    np.testing.assert_allclose([low, high], [expected.low, expected.high], atol=0.03)


def test_what_counts_before_the_first_score_can_be_said_and_gaps_later_on_stay_unknown():
    nan = np.nan
    scores = np.array([[[nan, nan, 1.0, 1.0]], [[nan, 1.0, nan, 1.0]], [[nan] * 4]])
    frames = np.array([10, 20, 30, 40])
    from_first = area_under_curve(scores, frames)
    np.testing.assert_array_equal(from_first, [[1.0], [nan], [nan]])
    np.testing.assert_array_equal(area_under_curve(scores, frames, before_first=0.0), [[0.5], [nan], [0.0]])


@pytest.mark.parametrize(
    "use",
    [
        interquartile_mean,
        lambda nothing: area_under_curve(nothing, np.arange(nothing.shape[-1])),
        lambda nothing: resampled_middles([nothing[:, 0]], np.random.default_rng(0)),
    ],
    ids=["interquartile mean", "area", "resampled"],
)
@pytest.mark.parametrize("shape", [(0, 1, 3), (2, 1, 0)])
def test_of_nothing_there_is_no_statistic(use, shape):
    with pytest.raises(ValueError, match="must hold at least one score, got shape"):
        use(np.zeros(shape))


def test_a_permutation_p_value_is_that_of_all_assignments():
    scores, others = [1.0, 2.0, 4.0, 4.0], [3.0, 5.0, 6.0, 7.0, 9.0]
    pooled, given = scores + others, np.mean(others) - np.mean(scores)
    sides = [set(side) for side in combinations(range(9), 4)]
    differences = [
        np.mean([pooled[run] for run in range(9) if run not in side]) - np.mean([pooled[run] for run in side])
        for side in sides
    ]
    exact = np.mean([abs(each) >= given - 1e-9 for each in differences])
    for one, other in ((scores, others), (others, scores)):
        drawn = permutation_p_value([(np.array(one), np.array(other))], np.random.default_rng(0), resamples=100_000)
        assert drawn == pytest.approx(exact, abs=0.003)


def test_runs_that_are_all_alike_do_not_differ_and_no_p_value_is_0():
    same, generator = np.full(5, 0.1), np.random.default_rng(0)
    assert permutation_p_value([(same, same)], generator) == 1
    assert 0 < permutation_p_value([(np.zeros(20), np.ones(20))], generator, resamples=100) == pytest.approx(1 / 101)
    with pytest.raises(ValueError, match="others must hold at least one score"):
        permutation_p_value([(same, np.array([]))], generator)


def test_holm_by_hand():
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])  # 3 · 0.01, 2 · 0.03, 4 · 0.005
    assert holm([0.6, 0.7]) == [1, 1]
    assert holm([]) == []


def test_benjamini_hochberg_by_hand():
    # Of the example in the paper of 1995, the first four of fifteen are below 0.05.
    p_values = [0.0001, 0.0004, 0.0019, 0.0095, 0.0201, 0.0278, 0.0298, 0.0344, 0.0459, 0.3240]
    p_values += [0.4262, 0.5719, 0.6528, 0.7590, 1.0]
    corrected = benjamini_hochberg(p_values)
    assert corrected[:4] == pytest.approx([0.0015, 0.003, 0.0095, 0.035625])  # 15/1, 15/2, 15/3, 15/4 times p
    assert corrected[4:6] == pytest.approx([0.0603, 0.0298 * 15 / 7])  # the sixth is not below the seventh: 0.0695
    assert sum(each < 0.05 for each in corrected) == 4
    assert benjamini_hochberg([0.03, 0.01, 0.5, 0.02]) == pytest.approx([0.04, 0.04, 0.5, 0.04])
    assert benjamini_hochberg([1.0, 0.9]) == [1, 1]
    assert benjamini_hochberg([]) == []


def test_exchanged_by_seed_a_p_value_is_that_of_all_flips_of_signs():
    scores, others = np.array([1.0, 2.0, 4.0, 4.0, 9.0]), np.array([0.5, 2.5, 2.0, 1.0, 6.0])
    differences = scores - others
    flips = np.array(list(product((-1, 1), repeat=5))) * differences
    exact = np.mean(np.abs(flips.mean(1)) >= differences.mean() - 1e-9)
    generator = np.random.default_rng(0)
    drawn = permutation_p_value([(scores, others)], generator, by_seed=True, resamples=50_000)
    assert drawn == pytest.approx(exact, abs=0.005)
    alone = permutation_p_value([(scores, others)], generator, resamples=50_000)
    assert alone > 2 * drawn  # what seeds have in common hides the difference
    with pytest.raises(ValueError, match="as many others as scores, got 5 and 4"):
        permutation_p_value([(scores, others[:4])], generator, by_seed=True)


def test_of_several_tasks_runs_are_exchanged_within_each():
    easy, hard = np.array([10.0, 11.0, 12.0]), np.array([0.0, 1.0, 2.0])
    generator = np.random.default_rng(0)
    assert permutation_p_value([(easy, easy), (hard, hard)], generator) == 1
    sides = [np.array(side) for side in combinations(range(6), 3)]
    pooled = [np.concatenate((each, each + 2)) for each in (easy, hard)]
    by_task = [[each[side].mean() - np.delete(each, side).mean() for side in sides] for each in pooled]
    sums = np.abs(np.add.outer(*by_task))
    drawn = permutation_p_value([(easy, easy + 2), (hard, hard + 2)], generator, resamples=50_000)
    assert drawn == pytest.approx(np.mean(sums >= 4 - 1e-9), abs=0.005)
