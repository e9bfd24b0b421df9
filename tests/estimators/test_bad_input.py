"""Bad input must reach the library's own errors, which name the argument and the numbers."""

import math

import numpy as np
import pytest
import torch

from estimators.samples import gaussians
from vcse.estimators import (
    CONDITIONAL_READINGS,
    STATE_ENTROPY_READINGS,
    count_within,
    joint_neighbors,
    kl_entropy,
    ksg_conditional_entropy,
    ksg_joint_entropy,
    ksg_marginal_entropy,
    kth_neighbor_distance,
    state_entropy_reward,
    state_entropy_terms,
    value_conditional_reward,
    value_conditional_terms,
)

pytestmark = pytest.mark.usefixtures("without_type_checks")

OF_FEATURES = [kth_neighbor_distance, state_entropy_reward, state_entropy_terms]
OF_BOTH = [
    joint_neighbors,
    ksg_joint_entropy,
    ksg_marginal_entropy,
    ksg_conditional_entropy,
    value_conditional_reward,
    value_conditional_terms,
]
of_features = pytest.mark.parametrize("estimator", OF_FEATURES)
of_both = pytest.mark.parametrize("estimator", OF_BOTH)


def with_entry(tensor, number):
    tensor.view(-1)[3] = number
    return tensor


def of_any(estimator, features, *, k=2):
    values = torch.zeros(features.shape[:-1], dtype=features.dtype)
    return estimator(features, values, k=k) if estimator in OF_BOTH else estimator(features, k=k)


of_any_estimator = pytest.mark.parametrize("estimator", [*OF_FEATURES, *OF_BOTH])
bad_numbers = pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])


@of_any_estimator
@bad_numbers
def test_features_that_are_not_finite(estimator, number):
    with pytest.raises(ValueError, match="features must be finite, but 1 of its 20 entries"):
        of_any(estimator, with_entry(gaussians(10, 2), number))


@bad_numbers
def test_points_that_are_not_finite(number):
    with pytest.raises(ValueError, match="features must be finite, but 1 of its 20 entries"):
        kl_entropy(with_entry(gaussians(10, 2), number), k=2)


@of_both
@bad_numbers
def test_values_that_are_not_finite(estimator, number):
    with pytest.raises(ValueError, match="values must be finite, but 1 of its 10 entries"):
        estimator(gaussians(10, 2), with_entry(gaussians(10), number), k=2)


@of_features
@bad_numbers
def test_a_pool_that_is_not_finite(estimator, number):
    with pytest.raises(ValueError, match="pool must be finite, but 1 of its 8 entries"):
        estimator(gaussians(10, 2), k=2, pool=with_entry(gaussians(4, 2), number))


def test_numbers_that_are_not_finite_pass_where_the_check_is_off():
    features = with_entry(gaussians(10, 2), math.nan)
    assert kth_neighbor_distance(features, k=2, check_finite=False).shape == (10,)


@of_any_estimator
@pytest.mark.parametrize("shape", [(0, 2), (10, 0), (0, 10, 2)])
def test_empty_features(estimator, shape):
    with pytest.raises(ValueError, match=rf"features is empty: its shape is \({shape[0]}, {shape[1]}"):
        of_any(estimator, torch.zeros(shape))


@of_any_estimator
@pytest.mark.parametrize(("points", "k"), [(1, 1), (5, 5), (5, 9)])
def test_too_few_points_for_k(estimator, points, k):
    with pytest.raises(ValueError, match=f"k={k} needs at least {k + 1} points in features, got {points}"):
        of_any(estimator, gaussians(points, 2), k=k)


@of_any_estimator
@pytest.mark.parametrize("k", [0, -1, -100])
def test_k_below_1(estimator, k):
    with pytest.raises(ValueError, match=f"k must be at least 1, got {k}"):
        of_any(estimator, gaussians(10, 2), k=k)


@of_any_estimator
@pytest.mark.parametrize("k", [True, 2.0, 2.5, "2", None])
def test_k_that_is_no_integer(estimator, k):
    with pytest.raises(ValueError, match=f"k must be an integer, got {k!r}"):
        of_any(estimator, gaussians(10, 2), k=k)


@of_any_estimator
def test_k_may_be_a_whole_number_of_any_type(estimator):
    inputs = (gaussians(10, 2), gaussians(10)) if estimator in OF_BOTH else (gaussians(10, 2),)
    found, expected = (estimator(*inputs, k=k) for k in (np.int64(2), 2))
    torch.testing.assert_close(found, expected, rtol=0, atol=0)


@of_features
def test_a_pool_smaller_than_k(estimator):
    with pytest.raises(ValueError, match="k=5 needs at least 5 points in pool, got 4"):
        estimator(gaussians(10, 2), k=5, pool=gaussians(4, 2))


@of_features
def test_a_pool_that_holds_the_features_and_is_not_larger_than_k(estimator):
    with pytest.raises(ValueError, match="k=10 needs at least 11 points in pool, got 10"):
        estimator(gaussians(10, 2), k=10, pool=gaussians(10, 2), pool_holds_features=True)


def test_a_pool_of_just_k_points_is_enough():
    assert kth_neighbor_distance(torch.zeros(1, 1), k=2, pool=torch.tensor([[1.0], [3.0]])).tolist() == [3.0]


@of_features
def test_an_empty_pool(estimator):
    with pytest.raises(ValueError, match=r"pool is empty: its shape is \(0, 2\)"):
        estimator(gaussians(10, 2), k=1, pool=torch.zeros(0, 2))


@of_features
@pytest.mark.parametrize("shape", [(8, 3), (3, 8, 2), (1, 8, 2)])
def test_a_pool_of_another_shape(estimator, shape):
    wanted = rf"pool must have shape \({shape[-2]}, 2\) to fit features of shape \(10, 2\), got \({shape[0]}, "
    with pytest.raises(ValueError, match=wanted):
        estimator(gaussians(10, 2), k=1, pool=torch.zeros(shape))


@of_both
@pytest.mark.parametrize("shape", [(9,), (11,), (1,), (0,), (9, 2), (10, 0), (2, 10), (10, 2, 2)])
def test_values_of_another_length(estimator, shape):
    wanted = r"values must have shape \(10,\) or \(10, v\) to fit features of shape \(10, 2\)"
    with pytest.raises(ValueError, match=rf"{wanted}, got \({shape[0]},"):
        estimator(gaussians(10, 2), torch.zeros(shape), k=1)


@of_both
def test_values_of_other_learners(estimator):
    with pytest.raises(ValueError, match=r"values must have shape \(3, 10\) or \(3, 10, v\) .*, got \(2, 10\)"):
        estimator(gaussians(3, 10, 2), gaussians(2, 10), k=1)


@of_any_estimator
@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8, torch.bool, torch.complex64])
def test_features_that_are_not_real_numbers(estimator, dtype):
    with pytest.raises(ValueError, match=f"features must be a floating-point tensor, got {dtype}"):
        of_any(estimator, torch.ones(10, 2, dtype=dtype))


@of_any_estimator
@pytest.mark.parametrize("convert", [np.asarray, torch.Tensor.tolist], ids=["array", "list"])
def test_features_that_are_no_tensor(estimator, convert):
    features = convert(gaussians(10, 2))
    values = (gaussians(10),) if estimator in OF_BOTH else ()
    with pytest.raises(ValueError, match=f"features must be a torch tensor, got a {type(features).__name__}"):
        estimator(features, *values, k=1)


@of_both
def test_values_that_are_no_tensor(estimator):
    with pytest.raises(ValueError, match="values must be a torch tensor, got a ndarray"):
        estimator(gaussians(10, 2), gaussians(10).numpy(), k=1)


@of_features
def test_a_pool_that_is_no_tensor(estimator):
    with pytest.raises(ValueError, match="pool must be a torch tensor, got a ndarray"):
        estimator(gaussians(10, 2), k=1, pool=gaussians(10, 2).numpy())


@of_both
def test_values_that_are_integers(estimator):
    with pytest.raises(ValueError, match=r"values must be a floating-point tensor, got torch\.int64"):
        estimator(gaussians(10, 2), torch.arange(10), k=1)


@of_features
def test_a_pool_of_integers(estimator):
    with pytest.raises(ValueError, match=r"pool must be a floating-point tensor, got torch\.int32"):
        estimator(gaussians(10, 2), k=1, pool=torch.ones(10, 2, dtype=torch.int32))


@of_any_estimator
@pytest.mark.parametrize("shape", [(10,), ()])
def test_features_of_one_axis(estimator, shape):
    with pytest.raises(ValueError, match=r"features must have shape \[..., points, dimensions\], got \("):
        of_any(estimator, torch.zeros(shape))


@of_both
def test_values_of_another_dtype(estimator):
    with pytest.raises(ValueError, match=r"values has dtype torch\.float64 but features has torch\.float32"):
        estimator(gaussians(10, 2), gaussians(10, dtype=torch.float64), k=1)
    with pytest.raises(
        ValueError, match=r"values has dtype torch\.bfloat16 but features has torch\.float64: make both"
    ):
        estimator(gaussians(10, 2, dtype=torch.float64), gaussians(10).bfloat16(), k=1)


@of_features
def test_a_pool_of_another_dtype(estimator):
    with pytest.raises(ValueError, match=r"pool has dtype torch\.float16 but features has torch\.float32"):
        estimator(gaussians(10, 2), k=1, pool=gaussians(10, 2).half())


@of_both
def test_values_on_another_device(estimator):
    with pytest.raises(ValueError, match="values is on meta but features is on cpu"):
        estimator(gaussians(10, 2), torch.empty(10, device="meta"), k=1)


@of_features
def test_a_pool_on_another_device(estimator):
    with pytest.raises(ValueError, match="pool is on meta but features is on cpu"):
        estimator(gaussians(10, 2), k=1, pool=torch.empty(10, 2, device="meta"))


def test_readings_that_do_not_exist():
    with pytest.raises(
        ValueError, match=r"reading must be one of paper, .*re3, or a StateEntropyReading, got 'release'"
    ):
        state_entropy_reward(gaussians(10, 2), k=1, reading="release")
    with pytest.raises(
        ValueError, match=r"reading must be one of paper, .*release-mwm, or a ConditionalReading, got 're3'"
    ):
        value_conditional_reward(gaussians(10, 2), gaussians(10), k=1, reading="re3")


def test_a_reading_of_the_other_reward():
    of_states, conditional = STATE_ENTROPY_READINGS["paper"], CONDITIONAL_READINGS["paper"]
    with pytest.raises(ValueError, match="or a ConditionalReading, got StateEntropyReading"):
        value_conditional_reward(gaussians(10, 2), gaussians(10), k=1, reading=of_states)
    with pytest.raises(ValueError, match="or a StateEntropyReading, got ConditionalReading"):
        state_entropy_terms(gaussians(10, 2), k=1, reading=conditional)


@pytest.mark.parametrize("estimator", [ksg_conditional_entropy, value_conditional_reward])
def test_an_nv_radius_that_does_not_exist(estimator):
    with pytest.raises(ValueError, match="nv_radius must be 'value' or 'joint', got 'both'"):
        estimator(gaussians(10, 2), gaussians(10), k=1, nv_radius="both")


def rewards(features, **how):
    """Both rewards, as functions to be called."""
    values = torch.zeros(features.shape[:-1])
    yield lambda: state_entropy_reward(features, k=1, **how)
    yield lambda: value_conditional_reward(features, values, k=1, **how)


@pytest.mark.parametrize("log_offset", [-1.0, -1e-9, math.nan])
def test_a_log_offset_below_0(log_offset):
    for reward in rewards(gaussians(10, 2), log_offset=log_offset):
        with pytest.raises(ValueError, match=f"log_offset must be finite and not negative, got {log_offset}"):
            reward()


def test_a_log_offset_of_0_with_duplicates():
    features = gaussians(10, 2)
    features[7] = features[2]
    for reward in rewards(features, log_offset=0.0):
        with pytest.raises(ValueError, match=r"log_offset=0: 2 of 10 .*distances to the k-th .* a log_offset above 0"):
            reward()


def test_a_log_offset_of_0_without_duplicates_is_fine():
    for reward in rewards(gaussians(10, 2), log_offset=0.0):
        assert torch.isfinite(reward()).all()


def test_a_log_offset_of_0_that_cannot_be_checked():
    for reward in rewards(gaussians(10, 2), log_offset=0.0, check_finite=False):
        with pytest.raises(ValueError, match=r"log_offset=0 .* needs check_finite=True"):
            reward()


def test_a_k_that_finds_only_the_point_itself():
    constant = r"k=1 with self_in_k=True .* the same constant: k must be at least 2"
    for reward in rewards(gaussians(10, 2), self_in_k=True):
        with pytest.raises(ValueError, match=constant):
            reward()
    with pytest.raises(ValueError, match=constant):
        state_entropy_reward(gaussians(10, 2), k=1, reading="re3")
    with pytest.raises(ValueError, match=constant):
        state_entropy_reward(gaussians(4, 2), k=1, self_in_k=True, pool=gaussians(10, 2), pool_holds_features=True)
    with pytest.raises(ValueError, match=constant):
        value_conditional_terms(gaussians(10, 2), gaussians(10), k=1, reading="release-mwm")


def test_a_pool_without_the_point_itself_has_a_first_neighbour():
    features, pool = gaussians(4, 2), gaussians(10, 2, seed=1)
    found = state_entropy_reward(features, k=1, pool=pool, self_in_k=True)
    assert torch.equal(found, state_entropy_reward(features, k=1, pool=pool))


@of_features
def test_features_whose_distance_overflows(estimator):
    with pytest.raises(ValueError, match=r"features lie so far apart .* overflows torch\.float32"):
        estimator(torch.tensor([[3e38], [-3e38]]), k=1)


@of_both
@pytest.mark.parametrize("far", ["features", "values"])
def test_features_or_values_whose_distance_overflows(estimator, far):
    apart, together = torch.tensor([[3e38], [-3e38]]), torch.tensor([[0.0], [1.0]])
    features, values = (apart, together) if far == "features" else (together, apart)
    with pytest.raises(ValueError, match=r"features and values lie so far apart .* overflows torch\.float32"):
        estimator(features, values[:, 0], k=1)


def test_distances_beyond_the_neighbours_may_overflow():
    features = torch.tensor([[3e38], [2.5e38], [-3e38], [-2.5e38]])
    torch.testing.assert_close(kth_neighbor_distance(features, k=1), torch.full((4,), 5e37))


def test_a_reward_is_refused_or_finite_where_twice_the_distance_overflows():
    for reward in rewards(torch.tensor([[0.0], [3e38]])):
        try:
            given = reward()
        except ValueError:
            continue
        assert torch.isfinite(given).all()


@pytest.mark.parametrize(
    ("values", "radius", "message"),
    [
        (torch.arange(5), torch.ones(5), r"values must be a floating-point tensor, got torch\.int64"),
        (torch.zeros(5), torch.ones(5).int(), r"radius must be a floating-point tensor, got torch\.int32"),
        ([0.0, 1.0], torch.ones(2), "values must be a torch tensor, got a list"),
        (torch.zeros(2), 1.0, "radius must be a torch tensor, got a float"),
    ],
)
def test_counts_of_what_is_no_number(values, radius, message):
    with pytest.raises(ValueError, match=message):
        count_within(values, radius)


def test_radii_of_another_shape():
    with pytest.raises(ValueError, match=r"radius .* got shape \(4,\) for values of \(5,\)"):
        count_within(torch.zeros(5), torch.ones(4))
    with pytest.raises(ValueError, match=r"radius .* got shape \(2, 5\) for values of \(5,\)"):
        count_within(torch.zeros(5), torch.ones(2, 5))
