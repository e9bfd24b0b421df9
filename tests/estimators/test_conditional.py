import math
from functools import cache

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import brute_force
from estimators.samples import gaussians, lattice, problems
from vcse.estimators import (
    kl_entropy,
    ksg_conditional_entropy,
    ksg_joint_entropy,
    ksg_marginal_entropy,
    value_conditional_reward,
    value_conditional_terms,
)

# N, d_S, ρ, k, and the means of five draws: KL, full KSG, lower bound, n_v at the joint radius, and with self.
REFERENCE = {
    (1000, 2, 0.0, 5): (2.806, 2.793, 2.128, 2.796, 2.802),
    (2000, 2, 0.0, 3): (2.830, 2.797, 2.138, 2.800, 2.805),
    (2000, 2, 0.9, 5): (2.816, 1.967, 1.322, 1.970, 1.976),
    (2000, 2, 0.9, 12): (2.824, 1.979, 1.278, 1.984, 1.988),
    (2000, 5, 0.0, 5): (7.019, 7.059, 6.189, 7.034, 7.035),
}
each_reference = pytest.mark.parametrize(("case", "expected"), REFERENCE.items())


def correlated(draws, points, dimensions, rho, seed=0, dtype=torch.float32):
    """Standard normal states, and values correlated by ρ with their first coordinate."""
    states = gaussians(draws, points, dimensions, seed=seed, dtype=dtype)
    noise = gaussians(draws, points, seed=seed + 1, dtype=dtype)
    return states, rho * states[..., 0] + math.sqrt(1 - rho**2) * noise


@cache
def means_of_five_draws(case):
    points, dimensions, rho, k = case
    states, values = correlated(5, points, dimensions, rho)
    estimates = (
        kl_entropy(states, k=k),
        ksg_conditional_entropy(states, values, k=k),
        ksg_conditional_entropy(states, values, k=k, lower_bound=True),
        ksg_conditional_entropy(states, values, k=k, nv_radius="joint"),
        ksg_conditional_entropy(states, values, k=k, nv_radius="joint", self_in_nv=True),
    )
    return tuple(float(estimate.mean()) for estimate in estimates)


@each_reference
def test_estimates_are_those_of_the_reference(case, expected):
    # Both are means of five draws, each with a standard deviation of 0.03 for 2000 points, 0.05 for 1000.
    tolerance = 0.06 if case[0] == 2000 else 0.09
    for found, reference in zip(means_of_five_draws(case), expected, strict=True):
        assert found == pytest.approx(reference, abs=tolerance)


@each_reference
def test_variants_differ_as_those_of_the_reference(case, expected):
    # On the same draws the variants rise and fall together.
    _, full, _, joint, joint_with_self = means_of_five_draws(case)
    _, expected_full, _, expected_joint, expected_with_self = expected
    assert joint - full == pytest.approx(expected_joint - expected_full, abs=0.01)
    assert joint_with_self - joint == pytest.approx(expected_with_self - expected_joint, abs=0.0015)


@pytest.mark.parametrize(("dimensions", "rho"), [(1, 0.0), (1, 0.9), (2, 0.5)])
def test_conditional_entropy_of_gaussians_is_the_closed_form(dimensions, rho):
    states, values = correlated(5, 2000, dimensions, rho)
    closed_form = dimensions / 2 * math.log(2 * math.pi * math.e) + 0.5 * math.log(1 - rho**2)
    found = ksg_conditional_entropy(states, values, k=3)
    assert float(found.mean()) == pytest.approx(closed_form, abs=0.1)


def test_marginal_and_joint_entropy_of_gaussians_are_the_closed_form():
    states, values = correlated(5, 2000, 1, 0.5)
    one = 0.5 * math.log(2 * math.pi * math.e)
    assert float(ksg_marginal_entropy(states, values, k=3).mean()) == pytest.approx(one, abs=0.1)
    joint = 2 * one + 0.5 * math.log(1 - 0.5**2)
    assert float(ksg_joint_entropy(states, values, k=3).mean()) == pytest.approx(joint, abs=0.1)


@pytest.mark.parametrize("values_shape", [(), (1,), (3,)], ids=["numbers", "vectors of 1", "vectors of 3"])
def test_the_conditional_entropy_is_the_joint_less_the_marginal(values_shape):
    states = gaussians(4, 200, 3, dtype=torch.float64)
    values = gaussians(4, 200, *values_shape, seed=1, dtype=torch.float64)
    joint = ksg_joint_entropy(states, values, k=4)
    marginal = ksg_marginal_entropy(states, values, k=4)
    conditional = ksg_conditional_entropy(states, values, k=4)
    torch.testing.assert_close(joint - marginal, conditional, rtol=0, atol=1e-12)


@pytest.mark.parametrize("nv_radius", ["value", "joint"])
@settings(max_examples=20)
@given(seed=st.integers(0, 1000), rho=st.sampled_from([0.0, 0.9]), k=st.integers(1, 10))
def test_the_lower_bound_is_never_above(nv_radius, seed, rho, k):
    states, values = correlated(2, 30, 2, rho, seed=seed)
    full, bound = (
        ksg_conditional_entropy(states, values, k=k, nv_radius=nv_radius, lower_bound=b) for b in (False, True)
    )
    assert (bound <= full).all()
    if nv_radius == "joint":
        assert torch.equal(bound, full)


@pytest.mark.parametrize("values_shape", [(), (2,)], ids=["numbers", "vectors"])
@pytest.mark.parametrize(("points", "dimensions", "k"), [(2, 1, 1), (12, 2, 11), (40, 3, 4)])
def test_entropies_are_those_of_plain_loops(points, dimensions, k, values_shape):
    states = gaussians(points, dimensions, dtype=torch.float64)
    values = gaussians(points, *values_shape, seed=1, dtype=torch.float64)
    joint = brute_force.ksg_joint_entropy(states, values, k)
    marginal = brute_force.ksg_marginal_entropy(states, values, k)
    assert float(ksg_joint_entropy(states, values, k=k)) == pytest.approx(joint, abs=1e-12)
    assert float(ksg_marginal_entropy(states, values, k=k)) == pytest.approx(marginal, abs=1e-12)
    assert float(ksg_conditional_entropy(states, values, k=k)) == pytest.approx(joint - marginal, abs=1e-12)


@given(
    data=st.data(),
    nv_radius=st.sampled_from(["value", "joint"]),
    self_in_k=st.booleans(),
    self_in_nv=st.booleans(),
    doubled=st.booleans(),
    log_offset=st.sampled_from([1e-5, 1e-4, 1.0]),
)
def test_every_deviation_of_the_reward_is_that_of_plain_loops(data, **how):
    features, values, k = data.draw(problems(self_in_k=how["self_in_k"]))
    reward = value_conditional_reward(features, values, k=k, **how)
    expected = torch.tensor(brute_force.value_conditional_reward(features, values, k, **how))
    torch.testing.assert_close(reward, expected, rtol=1e-6, atol=2e-6)


def test_screened_rewards_are_those_of_plain_loops():
    features, values = lattice(165, 12, side=1), lattice(165, side=5, seed=1)
    how = {"nv_radius": "value", "self_in_k": False, "self_in_nv": False, "doubled": True, "log_offset": 1e-5}
    expected = torch.tensor(brute_force.value_conditional_reward(features, values, 4, **how))
    torch.testing.assert_close(value_conditional_reward(features, values, k=4), expected, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("reading", ["paper", "clean"])
@pytest.mark.parametrize("dimensions", [2, 16])
@settings(max_examples=10)
@given(seed=st.integers(0, 1000), scale=st.floats(1e-3, 1e3))
def test_a_common_scale_adds_its_logarithm_to_the_reward_without_offset(reading, dimensions, seed, scale):
    features = gaussians(165, dimensions, seed=seed, dtype=torch.float64)
    values = gaussians(165, seed=seed + 1, dtype=torch.float64)
    rewards = [
        value_conditional_reward(s * features, s * values, k=3, reading=reading, log_offset=0.0) for s in (1.0, scale)
    ]
    # Only where rounding the scale breaks a tie of a count with its radius do they differ, and none is here.
    torch.testing.assert_close(rewards[1], rewards[0] + math.log(scale), rtol=1e-12, atol=1e-12)


def test_terms_are_what_the_reward_is_made_of():
    features, values = gaussians(60, 3), gaussians(60, seed=1)
    terms = value_conditional_terms(features, values, k=4)
    assert torch.equal(terms.reward, value_conditional_reward(features, values, k=4))
    made = torch.digamma(terms.value_count + 1.0) / 3 + (2 * terms.radius + 1e-5).log()
    torch.testing.assert_close(terms.reward, made)
    assert (terms.value_distance <= terms.radius).all()


def test_values_of_one_dimension_are_numbers():
    features, values = gaussians(2, 40, 3), gaussians(2, 40, seed=1)
    numbers = value_conditional_terms(features, values, k=4)
    vectors = value_conditional_terms(features, values[..., None], k=4)
    for number, vector in zip(numbers, vectors, strict=True):
        assert torch.equal(number, vector)


@pytest.mark.parametrize("estimator", [ksg_joint_entropy, ksg_marginal_entropy, ksg_conditional_entropy])
def test_entropies_of_learners_side_by_side_have_the_bits_of_learners_alone(estimator):
    features = torch.stack([gaussians(200, 16), 1e20 * gaussians(200, 16), 1e4 + gaussians(200, 16)])
    values = torch.stack([gaussians(200), gaussians(200, seed=1), 1e-3 * gaussians(200, seed=2)])
    together = estimator(features, values, k=3)
    alone = [estimator(*learner, k=3) for learner in zip(features, values, strict=True)]
    assert torch.equal(together, torch.stack(alone))


@pytest.mark.parametrize("estimator", [ksg_joint_entropy, ksg_marginal_entropy, ksg_conditional_entropy])
def test_duplicates_are_refused_where_the_entropy_is_minus_infinity(estimator):
    features, values = torch.zeros(4, 2), torch.ones(4)
    with pytest.raises(ValueError, match=r"4 of 4 .*distances .*to the k-th .*neighbour are 0"):
        estimator(features, values, k=1)


def test_duplicate_pairs_are_told_apart_from_equal_values_and_the_remedy_is_named():
    features, values = gaussians(20, 2), torch.ones(20)
    features[:3] = 0
    with pytest.raises(ValueError, match=r"features and values: 3 of 20 joint distances .* a k of at least the number"):
        ksg_conditional_entropy(features, values, k=2)
    assert torch.isfinite(ksg_conditional_entropy(features, values, k=3, nv_radius="joint"))


def test_equal_values_are_refused_where_their_radius_is_0_and_the_remedy_is_named():
    in_value = "values: 20 of 20 distances in value to the k-th joint neighbour are 0"
    for estimator in (ksg_marginal_entropy, ksg_conditional_entropy):
        with pytest.raises(ValueError, match=f"{in_value} .* nv_radius='joint'"):
            estimator(gaussians(20, 2), torch.ones(20), k=3)


def test_equal_values_have_a_conditional_entropy_at_the_joint_radius():
    states = gaussians(40, 2, dtype=torch.float64)
    found = ksg_conditional_entropy(states, torch.ones(40, dtype=torch.float64), k=3, nv_radius="joint")
    # Every value lies within every radius: n_v = N − 1, which leaves the entropy of the states alone.
    assert float(found) == pytest.approx(brute_force.kl_entropy(states, 3), abs=1e-12)
