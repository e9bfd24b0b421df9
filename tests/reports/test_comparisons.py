import math

import numpy as np
import pytest

from vcse.reports.comparisons import (
    compare_paired,
    compare_unpaired,
    decide,
    mean_paired_difference,
    p_value_of,
    shared_scores,
)


def make_pair(difference, *, seeds=8, common=1.0, own=0.01):
    """Return two methods whose runs have more in common by seed than they differ."""
    generator = np.random.default_rng(1)
    shared = common * generator.normal(size=seeds)
    sides = [shared + own * generator.normal(size=seeds) + level for level in (difference, 0.0)]
    return tuple({seed: float(score) for seed, score in enumerate(side)} for side in sides)


def test_pairs_are_matched_by_seed_and_not_by_place():
    pair = ({3: 1.0, 1: 2.0, 0: 3.0}, {1: 20.0, 2: 5.0, 3: 10.0})
    np.testing.assert_array_equal(shared_scores(pair), [[1, 10], [2, 20]])
    assert mean_paired_difference([pair]) == pytest.approx(-13.5)
    assert mean_paired_difference([pair, ({0: 4.0}, {0: 1.0})]) == pytest.approx((-13.5 + 3) / 2)
    assert shared_scores(({0: 1.0}, {1: 1.0})).shape == (0, 2)


def test_drawn_together_what_seeds_have_in_common_does_not_count():
    pair = make_pair(0.1)
    paired, unpaired = compare_paired([pair]), compare_unpaired([pair])
    low, high = paired.interval()
    assert paired.difference == pytest.approx(unpaired.difference)
    assert low < paired.difference < high
    wide = np.subtract(*unpaired.interval()[::-1])
    assert high - low < wide / 10
    assert (decide(paired, None), decide(unpaired, None)) == ("holds", "undecided")


def test_drawn_together_every_draw_is_of_the_same_seeds_on_both_sides():
    scores = {seed: float(score) for seed, score in enumerate([0.0, 1.0, 5.0, 20.0])}
    paired = compare_paired([(scores, {seed: score - 3 for seed, score in scores.items()})])
    np.testing.assert_allclose(paired.drawn, 3)  # however they are drawn
    np.testing.assert_allclose(paired.interval(), 3)


def test_of_several_tasks_the_difference_is_the_mean_of_those_on_each():
    constant = [(dict.fromkeys(range(5), level), dict.fromkeys(range(5), 0.0)) for level in (1.0, 3.0)]
    for compare in (compare_paired, compare_unpaired):
        comparison = compare(constant)
        assert (comparison.difference, comparison.interval(), comparison.fewest) == (2, (2, 2), 5)


def test_one_seed_that_both_have_gives_no_interval():
    comparison = compare_paired([({0: 1.0, 1: 2.0}, {1: 0.5})])
    assert (comparison.difference, comparison.fewest) == (1.5, 1)
    assert all(map(math.isnan, comparison.interval()))
    assert decide(comparison, None) == decide(comparison, 9.0) == "undecided"


def test_a_margin_is_held_by_two_one_sided_tests():
    unpaired = compare_unpaired([make_pair(0.02, common=0.0, own=0.03)])
    low, high = unpaired.interval(0.9)
    margin = max(-low, high)
    assert decide(unpaired, margin + 1e-6) == "holds"
    assert decide(unpaired, margin - 1e-6) == "undecided"
    low, _ = unpaired.interval(0.95)
    if low > 0:
        assert decide(unpaired, low - 1e-6) == "contradicted"


@pytest.mark.parametrize(("difference", "within"), [(0.3, 0.1), (-0.3, 0.1), (0.0, 0.1), (0.1, 0.1), (-0.14, 0.1)])
def test_p_values_of_a_margin_say_what_the_intervals_say(difference, within):
    pair = make_pair(difference, common=0.0, own=0.05, seeds=12)
    comparison = compare_unpaired([pair])
    p_value = p_value_of(comparison, [pair], within, by_seed=False)
    assert (p_value < 0.05) == (decide(comparison, within) != "undecided")
    assert 0 < p_value <= 1


def test_p_values_of_a_difference_are_of_exchanged_runs_or_of_exchanged_seeds():
    pair = make_pair(0.1)
    comparison = compare_unpaired([pair])
    alone, by_seed = (p_value_of(comparison, [pair], None, by_seed=paired) for paired in (False, True))
    assert alone > 0.5
    assert by_seed == pytest.approx(2 / 2**8, abs=0.002)  # all eight seeds agree: two of all ways to exchange them
    assert p_value_of(comparison, [pair], 0.0, by_seed=False) == alone  # that nothing is between them: the same
