import math

import numpy as np
import pytest
from scipy import stats

from vcse.reports.power import Spread, power_of, seeds_needed, spread_of


def make_pair(generator, seeds, *, difference=0.0, common=1.0, own=0.5, first=0):
    shared = common * generator.normal(size=seeds)
    sides = (shared + own * generator.normal(size=seeds) + level for level in (difference, 0.0))
    return tuple({first + seed: float(score) for seed, score in enumerate(side)} for side in sides)


def test_numbers_of_the_textbook():
    # ((1.960 + 0.842) / 0.5)^2 = 31.4 and ((1.645 + 1.282) / 0.5)^2 = 34.3
    assert seeds_needed("difference", 1.0, 0.5) == 32
    assert seeds_needed("equivalence", 1.0, 0.5) == 35
    assert seeds_needed("difference", 1.0, 0.5, power=0.9) == 43  # ((1.960 + 1.282) / 0.5)^2 = 42.0
    assert seeds_needed("difference", 0.1, 10.0) == 5  # fewer decide nothing
    assert seeds_needed("difference", math.nan, 0.5) is None


@pytest.mark.parametrize("question", ["difference", "equivalence"])
def test_so_many_seeds_have_the_power_and_one_less_has_not(question):
    needed = seeds_needed(question, 0.2, 0.07)
    assert power_of(question, 0.2, 0.07, needed - 1) < 0.8 <= power_of(question, 0.2, 0.07, needed)
    assert power_of(question, 0.0, 0.07, 5) == 1


def test_the_spread_by_hand():
    one = ({0: 1.0, 1: 3.0}, {0: 0.0, 1: 4.0})  # variances 2 and 8; differences 1 and -1: variance 2
    two = ({0: 5.0, 1: 5.0, 2: 8.0}, {1: 1.0, 2: 6.0})  # variances 3 and 12.5; differences 4 and 2: variance 2
    assert spread_of([one]) == (pytest.approx(2**0.5), pytest.approx(10**0.5), 2)
    assert spread_of([one, two]) == (pytest.approx(4**0.5 / 2), pytest.approx(25.5**0.5 / 2), 2)
    apart = spread_of([({0: 1.0, 1: 3.0}, {1: 0.0, 2: 4.0})])
    assert math.isnan(apart.paired)
    assert apart == Spread(pytest.approx(math.nan, nan_ok=True), pytest.approx(10**0.5), 1)


def test_the_seeds_that_it_asks_for_have_the_power_in_a_simulation():
    generator = np.random.default_rng(0)
    tasks, difference = 3, 0.4
    spread = spread_of([make_pair(generator, 2000) for _ in range(tasks)])
    for is_paired, deviation in ((True, spread.paired), (False, spread.unpaired)):
        seeds = seeds_needed("difference", deviation, difference)
        alike = seeds_needed("equivalence", deviation, difference)
        found, shown = (
            [significance(generator, tasks, number, level, difference, is_paired) for _ in range(400)]
            for number, level in ((seeds, difference), (alike, 0.0))
        )
        assert np.mean([each[0] for each in found]) == pytest.approx(0.8, abs=0.06)
        assert np.mean([each[1] for each in shown]) == pytest.approx(0.8, abs=0.06)


def significance(generator, tasks, seeds, level, margin, is_paired):
    """Tell whether one simulated study finds a difference, and whether it shows that there is none beyond a margin."""
    mine, theirs = (np.empty((tasks, seeds)) for _ in range(2))
    for task in range(tasks):
        one, other = make_pair(generator, seeds, difference=level)
        mine[task], theirs[task] = list(one.values()), list(other.values())
    if is_paired:
        error = np.sqrt((mine - theirs).var(1, ddof=1).sum() / seeds) / tasks
    else:  # the other side's runs are those of other seeds
        theirs = np.stack([list(make_pair(generator, seeds)[1].values()) for _ in range(tasks)])
        error = np.sqrt((mine.var(1, ddof=1) + theirs.var(1, ddof=1)).sum() / seeds) / tasks
    difference = (mine - theirs).mean()
    return abs(difference) > stats.norm.ppf(0.975) * error, abs(difference) + stats.norm.ppf(0.95) * error < margin


@pytest.mark.parametrize("size", [0.0, -0.1, math.nan, math.inf])
def test_a_size_is_a_number_above_0(size):
    with pytest.raises(ValueError, match=f"must be a number above 0, got {size}"):
        seeds_needed("difference", 1.0, size)
    with pytest.raises(ValueError, match=f"must be a number above 0, got {size}"):
        power_of("equivalence", 1.0, size, 8)


def test_one_run_has_no_spread():
    with pytest.raises(ValueError, match="at least two runs of each method on each task"):
        spread_of([({0: 1.0}, {0: 1.0, 1: 2.0})])
