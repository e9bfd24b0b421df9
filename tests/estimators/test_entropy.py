import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import brute_force
from estimators.samples import gaussians, lattice, mixed_learners, problems
from vcse.estimators import kl_entropy, log_unit_ball, state_entropy_reward, state_entropy_terms
from vcse.estimators.entropy import digamma


def gaussian_entropy(dimensions, scale=1.0):
    return dimensions * math.log(scale * math.sqrt(2 * math.pi * math.e))


def spread(points, dimensions, k):
    """The standard deviation of the estimate: ψ'(k) from the k-th radius and d/2 from the log density."""
    from_radius = float(torch.polygamma(1, torch.tensor(float(k))))
    return math.sqrt((from_radius + dimensions / 2) / points)


@pytest.mark.parametrize(("dimensions", "volume"), [(1, 2), (2, math.pi), (3, 4 / 3 * math.pi)])
def test_the_unit_ball_has_its_volume(dimensions, volume):
    assert math.exp(log_unit_ball(dimensions)) == pytest.approx(volume, rel=1e-14)


def test_the_unit_ball_of_many_dimensions_does_not_underflow():
    assert log_unit_ball(2000) == pytest.approx(1000 * math.log(math.pi) - math.lgamma(1001), rel=1e-14)


@pytest.mark.parametrize("number", [1, 2, 7, 2000])
def test_digamma_is_the_harmonic_sum(number):
    assert digamma(number) == pytest.approx(brute_force.digamma(number), rel=1e-13)


@pytest.mark.parametrize(("dimensions", "k", "bias"), [(1, 1, 0.01), (2, 4, 0.02), (5, 4, 0.1)])
def test_kl_entropy_of_gaussians_is_the_closed_form(dimensions, k, bias):
    # Four standard deviations, and the bias of finite N: 0.076 at d=5, N=2000 and k=5 in the reference table.
    # An error of the constant by d·log 2 would be ten times as much.
    found = kl_entropy(gaussians(5, 2000, dimensions), k=k).mean()
    tolerance = 4 * spread(5 * 2000, dimensions, k) + bias
    assert float(found) == pytest.approx(gaussian_entropy(dimensions), abs=tolerance)
    assert tolerance < dimensions * math.log(2) / 4


@pytest.mark.parametrize("dimensions", [1, 2])
def test_kl_entropy_of_a_uniform_is_the_log_of_its_volume(dimensions):
    points = 3 * torch.rand(5, 2000, dimensions, generator=torch.Generator().manual_seed(0))
    # No log density varies here, but balls of points at the border reach beyond it: about √(k/N) of them.
    tolerance = 4 * spread(5 * 2000, 0, 3) + 0.04
    assert float(kl_entropy(points, k=3).mean()) == pytest.approx(dimensions * math.log(3), abs=tolerance)


@pytest.mark.parametrize("dimensions", [1, 2, 5, 16])
@pytest.mark.parametrize("scale", [1e-20, 0.1, 1e6])
def test_scaling_adds_its_logarithm_once_per_dimension(dimensions, scale):
    points = gaussians(300, dimensions, dtype=torch.float64)
    added = kl_entropy(scale * points, k=3) - kl_entropy(points, k=3)
    assert float(added) == pytest.approx(dimensions * math.log(scale), rel=1e-12)


@pytest.mark.parametrize(("points", "dimensions", "k"), [(2, 1, 1), (9, 2, 8), (30, 5, 3), (170, 12, 5)])
def test_kl_entropy_is_that_of_plain_loops(points, dimensions, k):
    drawn = gaussians(points, dimensions, dtype=torch.float64)
    assert float(kl_entropy(drawn, k=k)) == pytest.approx(brute_force.kl_entropy(drawn, k), rel=1e-12)
    assert float(kl_entropy(drawn.float(), k=k)) == pytest.approx(brute_force.kl_entropy(drawn, k), rel=1e-5)


def test_kl_entropy_of_learners_side_by_side_has_the_bits_of_learners_alone():
    learners = torch.stack([gaussians(200, 16), 1e20 * gaussians(200, 16), 1e4 + gaussians(200, 16)])
    together = kl_entropy(learners, k=3)
    assert torch.equal(together, torch.stack([kl_entropy(learner, k=3) for learner in learners]))


@pytest.mark.parametrize("dimensions", [2, 16])
@settings(max_examples=10)
@given(seed=st.integers(0, 1000), scale=st.floats(1e-3, 1e3))
def test_scaling_adds_its_logarithm_to_the_reward_without_offset(dimensions, seed, scale):
    features = gaussians(165, dimensions, seed=seed, dtype=torch.float64)
    rewards = [state_entropy_reward(s * features, k=3, log_offset=0.0) for s in (1.0, scale)]
    torch.testing.assert_close(rewards[1], rewards[0] + math.log(scale), rtol=1e-12, atol=1e-12)


def test_the_reward_is_the_logarithm_of_twice_the_distance_and_one():
    features = torch.tensor([[0.0], [1.0], [3.0]])
    reward = state_entropy_reward(features, k=1)
    torch.testing.assert_close(reward, torch.tensor([3.0, 3.0, 5.0]).log())


@given(st.data(), st.booleans(), st.booleans(), st.booleans(), st.sampled_from([1e-5, 1.0]))
def test_every_deviation_of_the_reward_is_that_of_plain_loops(data, self_in_k, average, doubled, offset):
    features, _, k = data.draw(problems(self_in_k=self_in_k))
    reward = state_entropy_reward(
        features, k=k, self_in_k=self_in_k, average=average, doubled=doubled, log_offset=offset
    )
    distances = brute_force.kth_distances(features, k, self_in_k=self_in_k, average=average)
    expected = torch.tensor(brute_force.log_reward(distances, doubled=doubled, log_offset=offset))
    torch.testing.assert_close(reward, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("holds", [False, True])
def test_the_reward_looks_for_neighbours_in_the_pool(holds):
    features, others = lattice(20, 3), lattice(15, 3, seed=1)
    pool = torch.cat([features, others]) if holds else others
    terms = state_entropy_terms(features, k=2, pool=pool, pool_holds_features=holds)
    distances = brute_force.kth_distances(features, 2, pool=pool, pool_holds_features=holds)
    torch.testing.assert_close(terms.distance, torch.tensor(distances))
    torch.testing.assert_close(terms.reward, (2 * torch.tensor(distances) + 1).log())


def test_duplicates_are_refused_where_the_entropy_is_minus_infinity():
    points = torch.tensor([[0.0, 1.0], [0.0, 1.0], [2.0, 3.0]])
    with pytest.raises(ValueError, match=r"features: 2 of 3 distances to the k-th .* a k of at least the number"):
        kl_entropy(points, k=1)
    assert torch.isfinite(kl_entropy(points, k=2))


def test_duplicates_without_checks_give_minus_infinity():
    assert kl_entropy(torch.zeros(4, 2), k=1, check_finite=False) == -math.inf


def test_the_reward_of_a_duplicate_is_0_in_every_dtype():
    for dtype in (torch.float32, torch.float64):
        assert torch.equal(state_entropy_reward(torch.ones(4, 2, dtype=dtype), k=1), torch.zeros(4, dtype=dtype))


def test_rewards_of_learners_side_by_side_have_the_bits_of_learners_alone():
    features = mixed_learners(6, 170, 16)
    for reading in ("paper", "release-a2c"):
        together = state_entropy_reward(features.unflatten(0, (2, 3)), k=4, reading=reading)
        alone = [state_entropy_reward(learner, k=4, reading=reading) for learner in features]
        assert torch.equal(together.flatten(0, 1), torch.stack(alone))
