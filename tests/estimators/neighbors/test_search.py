import pytest
import torch
from estimators import brute_force
from estimators.samples import gaussians, lattice, lattices, mixed_learners, numbers, problems
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from vcse.estimators import count_within, joint_neighbors, kth_neighbor_distance, value_conditional_terms
from vcse.estimators.neighbors.differences import Search, nearest_by_differences, power_of_two_scale

# Points and dimensions for each of the ways: few coordinates, differences, screening.
SIZES = [(7, 3), (40, 20), (200, 16)]


def assert_near(found, expected):
    """Equal to float64 up to the rounding of a few float32 operations."""
    expected = torch.as_tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(found.double(), expected, rtol=4e-7, atol=0)


def shuffled(count, seed=0):
    return torch.randperm(count, generator=torch.Generator().manual_seed(seed))


# The twin


@given(problems(), st.booleans(), st.booleans())
def test_kth_distances_are_those_of_plain_loops(problem, self_in_k, average):
    features, _, k = problem
    found = kth_neighbor_distance(features, k=k, self_in_k=self_in_k, average=average)
    assert_near(found, brute_force.kth_distances(features, k, self_in_k=self_in_k, average=average))


@given(problems(), st.data(), st.booleans(), st.booleans(), st.booleans())
def test_kth_distances_in_a_pool_are_those_of_plain_loops(problem, data, holds, self_in_k, average):
    features, _, k = problem
    more = data.draw(st.integers(k, 6))
    others = torch.tensor(data.draw(numbers(more * features.shape[1], 2))).float().view(more, -1)
    how = {
        "pool": torch.cat([others, features]) if holds else others,
        "pool_holds_features": holds,
        "self_in_k": self_in_k,
        "average": average,
    }
    found = kth_neighbor_distance(features, k=k, **how)
    assert_near(found, brute_force.kth_distances(features, k, **how))


@given(problems(), st.booleans())
def test_joint_neighbours_are_those_of_plain_loops(problem, self_in_k):
    features, values, k = problem
    found = joint_neighbors(features, values, k=k, self_in_k=self_in_k)
    radius, value_distance = brute_force.joint_neighbors(features, values, k, self_in_k=self_in_k)
    assert_near(found.radius, radius)
    assert_near(found.value_distance, value_distance)


@given(problems(most_value_dimensions=3), st.booleans())
def test_joint_neighbours_with_vector_values_are_those_of_plain_loops(problem, self_in_k):
    features, values, k = problem
    found = joint_neighbors(features, values, k=k, self_in_k=self_in_k)
    radius, value_distance = brute_force.joint_neighbors(features, values, k, self_in_k=self_in_k)
    assert_near(found.radius, radius)
    assert_near(found.value_distance, value_distance)


@pytest.mark.parametrize("side", [1, 3])
def test_joint_neighbours_found_by_screening_are_those_of_plain_loops(side):
    features, values = lattice(161, 12, side=side), lattice(161, side=7, seed=1)
    found = joint_neighbors(features, values, k=5)
    radius, value_distance = brute_force.joint_neighbors(features, values, 5)
    assert_near(found.radius, radius)
    assert_near(found.value_distance, value_distance)


def test_the_average_leaves_the_point_itself_out():
    features = torch.tensor([[0.0], [1.0], [3.0]])
    found = kth_neighbor_distance(features, k=2, average=True)
    assert_near(found, [2.0, 1.5, 2.5])


def test_the_average_with_the_point_itself_counts_its_0():
    features = torch.tensor([[0.0], [1.0], [3.0]])
    found = kth_neighbor_distance(features, k=2, average=True, self_in_k=True)
    assert_near(found, [0.5, 0.5, 1.0])


def test_of_tied_neighbours_the_farthest_in_value_is_taken():
    features = torch.tensor([[0.0, 0.0], [0.0, 2.0], [2.0, 0.0], [-2.0, 0.0]])
    values = torch.tensor([0.0, 1.0, 0.5, -1.5])
    for order in (torch.arange(4), torch.tensor([3, 1, 2, 0])):
        found = joint_neighbors(features[order], values[order], k=1)
        at_center = order.argmin()
        assert found.radius[at_center] == 2
        assert found.value_distance[at_center] == 1.5


@pytest.mark.parametrize(("points", "dimensions"), [(600, 3), (600, 12), (1500, 2)])
def test_many_points_agree_with_a_full_distance_matrix(points, dimensions):
    features, values = gaussians(points, dimensions), gaussians(points, seed=1)
    in_value = (values.double()[:, None] - values.double()).abs()
    joint = torch.cdist(features.double(), features.double(), compute_mode="donot_use_mm_for_euclid_dist")
    joint = torch.maximum(joint, in_value)
    radius, neighbor = joint.kthvalue(8)
    found = joint_neighbors(features, values, k=7)
    assert_near(found.radius, radius)
    torch.testing.assert_close(
        found.value_distance.double(), in_value.gather(1, neighbor[:, None])[:, 0], rtol=0, atol=1e-6
    )


# Symmetries


@pytest.mark.parametrize(("points", "dimensions"), SIZES)
@settings(max_examples=15)
@given(seed=st.integers(0, 1000), tied=st.booleans())
def test_permuting_the_points_permutes_the_result_to_the_bit(points, dimensions, seed, tied):
    make = lattice if tied else gaussians
    features, values = make(points, dimensions, seed=seed), make(points, seed=seed + 1)
    order = shuffled(points, seed)
    there, here = (value_conditional_terms(features[o], values[o], k=3) for o in (torch.arange(points), order))
    for before, after in zip(there, here, strict=True):
        assert torch.equal(before[order], after)
    before, after = (kth_neighbor_distance(features[o], k=3, average=True) for o in (torch.arange(points), order))
    assert torch.equal(before[order], after)


@given(problems(), st.integers(-1000, 1000), st.integers(-1000, 1000))
def test_moving_lattice_points_changes_no_bit(problem, feature_shift, value_shift):
    features, values, k = problem
    there = value_conditional_terms(features, values, k=k)
    moved = value_conditional_terms(features + feature_shift, values + value_shift, k=k)
    for before, after in zip(there, moved, strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize("shift", [1.0, -777.0, 1e5])
def test_moving_screened_lattice_points_changes_no_bit(shift):
    features, values = lattice(200, 16), lattice(200)
    there = value_conditional_terms(features, values, k=3)
    moved = value_conditional_terms(features + shift, values - shift, k=3)
    for before, after in zip(there, moved, strict=True):
        assert torch.equal(before, after)


@pytest.mark.parametrize(("points", "dimensions"), SIZES)
@pytest.mark.parametrize("power", [-100, -7, 1, 80])
def test_scaling_by_a_power_of_two_scales_distances_exactly(points, dimensions, power):
    features, values, scale = gaussians(points, dimensions), gaussians(points, seed=1), 2.0**power
    there = value_conditional_terms(features, values, k=3)
    scaled = value_conditional_terms(scale * features, scale * values, k=3)
    assert torch.equal(scaled.radius, scale * there.radius)
    assert torch.equal(scaled.value_distance, scale * there.value_distance)
    assert torch.equal(scaled.value_count, there.value_count)
    alone, scaled_alone = (kth_neighbor_distance(s * features, k=3, average=True) for s in (1.0, scale))
    assert torch.equal(scaled_alone, scale * alone)


# Learners


@pytest.mark.parametrize("leading", [(6,), (1, 2, 3)])
@pytest.mark.parametrize(("points", "dimensions"), [*SIZES, (400, 3), (2, 1)])
def test_learners_side_by_side_have_the_bits_of_learners_alone(leading, points, dimensions):
    features = mixed_learners(6, points, dimensions)
    values = mixed_learners(6, points, 1)[..., 0].flip(0)
    pool = mixed_learners(6, points + 3, dimensions).roll(1, 0)
    k = min(3, points - 1)

    def everything(features, values, pool):
        yield from joint_neighbors(features, values, k=k)
        yield from value_conditional_terms(features, values, k=k)
        yield from value_conditional_terms(features, values, k=k, reading="release-a2c")
        yield from joint_neighbors(features, values, k=k, self_in_k=True)
        yield kth_neighbor_distance(features, k=k)
        yield kth_neighbor_distance(features, k=k, average=True)
        yield kth_neighbor_distance(features, k=k, pool=pool)

    together = everything(*(each.unflatten(0, leading) for each in (features, values, pool)))
    alone = [list(everything(*learner)) for learner in zip(features, values, pool, strict=True)]
    for number, batched in enumerate(together):
        assert batched.shape == (*leading, points)
        assert torch.equal(batched.flatten(0, -2), torch.stack([learner[number] for learner in alone]))


@pytest.mark.parametrize("dimensions", [4, 16])
def test_learners_with_vector_values_have_the_bits_of_learners_alone(dimensions):
    features, values = mixed_learners(6, 170, dimensions), mixed_learners(6, 170, 2).flip(0)
    together = value_conditional_terms(features.unflatten(0, (3, 2)), values.unflatten(0, (3, 2)), k=4)
    for learner in range(6):
        alone = value_conditional_terms(features[learner], values[learner], k=4)
        for batched, single in zip(together, alone, strict=True):
            assert torch.equal(batched.flatten(0, 1)[learner], single)


@pytest.mark.parametrize("dimensions", [4, 16])
def test_a_learner_of_nan_does_not_touch_the_others(dimensions):
    features = gaussians(3, 170, dimensions)
    expected = kth_neighbor_distance(features, k=4)
    features[1] = torch.nan
    found = kth_neighbor_distance(features, k=4, check_finite=False)
    assert torch.equal(found[[0, 2]], expected[[0, 2]])


# Counts


def test_a_value_at_exactly_the_radius_is_not_counted():
    values = torch.tensor([0.0, 1.0, 2.0, 3.0])
    assert count_within(values, torch.full((4,), 1.0)).tolist() == [0, 0, 0, 0]
    just_above = torch.nextafter(torch.tensor(1.0), torch.tensor(2.0)).expand(4)
    assert count_within(values, just_above).tolist() == [1, 2, 2, 1]


@pytest.mark.parametrize("count_self", [False, True])
def test_a_radius_of_0_counts_nothing(count_self):
    values = torch.tensor([1.0, 1.0, 1.0, 2.0])
    assert count_within(values, torch.zeros(4), count_self=count_self).tolist() == [0, 0, 0, 0]


def test_count_self_counts_the_value_itself():
    values, radius = torch.tensor([1.0, 1.0, 5.0]), torch.full((3,), 0.5)
    assert count_within(values, radius).tolist() == [1, 1, 0]
    assert count_within(values, radius, count_self=True).tolist() == [2, 2, 1]


def test_an_infinite_radius_counts_everyone():
    assert count_within(gaussians(5), torch.full((5,), torch.inf)).tolist() == [4] * 5


@given(st.data(), st.integers(1, 12), st.booleans())
def test_counts_on_a_lattice_are_those_of_plain_loops(data, points, count_self):
    values = torch.tensor(data.draw(numbers(points, 3))).float()
    radius = torch.tensor(data.draw(numbers(points, 4))).abs().float() / 2
    found = count_within(values, radius, count_self=count_self)
    assert found.tolist() == brute_force.count_within(values, radius.tolist(), count_self=count_self)


@given(st.data(), lattices(), st.booleans())
def test_counts_of_vectors_on_a_lattice_are_those_of_plain_loops(data, values, count_self):
    radius = torch.tensor(data.draw(numbers(len(values), 5))).abs().float()
    found = count_within(values, radius, count_self=count_self)
    assert found.tolist() == brute_force.count_within(values, radius.tolist(), count_self=count_self)


@pytest.mark.parametrize("points", [1, 2, 63, 64, 65, 700])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_counts_of_random_numbers_are_those_of_a_full_comparison(points, dtype):
    values = gaussians(3, points, dtype=dtype)
    radius = gaussians(3, points, seed=1, dtype=dtype).abs()
    # Radii that are themselves distances: the comparison must round as the difference does.
    radius[:, ::2] = (values - values.roll(1, -1)).abs()[:, ::2]
    expected = ((values[:, :, None] - values[:, None]).abs() < radius[..., None]).sum(-1)
    assert torch.equal(count_within(values, radius, count_self=True), expected)
    assert torch.equal(count_within(values, radius), expected - (radius > 0).long())


def test_counts_of_many_vectors_are_those_of_a_full_comparison():
    values, radius = gaussians(2, 400, 3, dtype=torch.float64), gaussians(2, 400, seed=1, dtype=torch.float64).abs()
    matrix = (values[:, :, None] - values[:, None]).norm(dim=-1)
    expected = (matrix < radius[..., None]).sum(-1)
    assert torch.equal(count_within(values, radius, count_self=True), expected)


# Kinds of input


def test_all_points_equal_are_at_distance_0():
    found = joint_neighbors(torch.full((50, 3), 0.1), torch.full((50,), 0.7), k=49)
    assert torch.equal(found.radius, torch.zeros(50))
    assert torch.equal(found.value_distance, torch.zeros(50))


def test_equal_values_leave_the_distance_of_the_features():
    features = gaussians(60, 3)
    found = joint_neighbors(features, torch.full((60,), 0.7), k=4)
    assert torch.equal(found.radius, kth_neighbor_distance(features, k=4))
    assert torch.equal(found.value_distance, torch.zeros(60))


def test_one_dimension_is_the_line():
    found = kth_neighbor_distance(torch.tensor([[0.0], [1.0], [3.0], [7.0]]), k=2)
    assert found.tolist() == [3.0, 2.0, 3.0, 6.0]


def test_two_points_are_each_others_neighbour():
    found = kth_neighbor_distance(torch.tensor([[0.0, 0.0], [3.0, 4.0]]), k=1)
    assert found.tolist() == [5.0, 5.0]


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30])
@pytest.mark.parametrize("dimensions", [3, 16])
def test_tiny_and_huge_features_keep_their_precision(scale, dimensions):
    features, values = scale * gaussians(165, dimensions), scale * gaussians(165, seed=1)
    found = joint_neighbors(features, values, k=5)
    radius, value_distance = brute_force.joint_neighbors(features, values, 5)
    assert_near(found.radius, radius)
    torch.testing.assert_close(
        found.value_distance.double(), torch.tensor(value_distance).double(), rtol=0, atol=1e-6 * scale
    )


def test_tiny_features_beside_ordinary_values_keep_their_precision():
    features, values = 1e-20 * gaussians(165, 16), lattice(165)
    assert_near(joint_neighbors(features, values, k=5).radius, brute_force.joint_neighbors(features, values, 5)[0])


@pytest.mark.parametrize(("points", "dimensions"), SIZES)
def test_float64_stays_float64(points, dimensions):
    features = gaussians(points, dimensions, dtype=torch.float64)
    values = gaussians(points, seed=1, dtype=torch.float64)
    found = joint_neighbors(features, values, k=3)
    radius, value_distance = brute_force.joint_neighbors(features, values, 3)
    assert found.radius.dtype == found.value_distance.dtype == torch.float64
    torch.testing.assert_close(found.radius, torch.tensor(radius, dtype=torch.float64), rtol=1e-14, atol=0)
    torch.testing.assert_close(
        found.value_distance, torch.tensor(value_distance, dtype=torch.float64), rtol=0, atol=1e-14
    )


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_float32(dtype):
    features, values = gaussians(200, 16).to(dtype), gaussians(200, seed=1).to(dtype)
    full = value_conditional_terms(features.float(), values.float(), k=3)
    for pair in ((features, values), (features, values.float()), (features.float(), values)):
        half = value_conditional_terms(*pair, k=3)
        assert half.reward.dtype == torch.float32
        for each, expected in zip(half, full, strict=True):
            assert torch.equal(each, expected)


@pytest.mark.parametrize(("points", "dimensions"), SIZES)
def test_no_gradient_leaves(points, dimensions):
    features = gaussians(points, dimensions).requires_grad_()
    values = gaussians(points, seed=1).requires_grad_()
    with_gradient = value_conditional_terms(features, values, k=3)
    without = value_conditional_terms(features.detach(), values.detach(), k=3)
    for each, expected in zip(with_gradient, without, strict=True):
        assert not each.requires_grad
        assert torch.equal(each, expected)


@pytest.mark.parametrize(("points", "dimensions"), SIZES)
def test_strides_do_not_matter(points, dimensions):
    features = gaussians(dimensions, 2 * points, 3).permute(2, 1, 0)[:, ::2]
    values = gaussians(points, 3, seed=1).T
    assert not features.is_contiguous()
    strided = value_conditional_terms(features, values, k=3)
    for each, expected in zip(
        strided, value_conditional_terms(features.contiguous(), values.contiguous(), k=3), strict=True
    ):
        assert torch.equal(each, expected)


@pytest.mark.parametrize(("points", "dimensions"), SIZES)
def test_the_input_is_left_as_it_is(points, dimensions):
    features, values = gaussians(points, dimensions), gaussians(points, seed=1)
    value_conditional_terms(features, values, k=3)
    kth_neighbor_distance(features, k=3, pool=features, average=True)
    assert torch.equal(features, gaussians(points, dimensions))
    assert torch.equal(values, gaussians(points, seed=1))


class LargestAllocation(TorchDispatchMode):
    """Notes the bytes of the largest memory that any operation gives back."""

    bytes = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        for each in tree_leaves(out):
            if isinstance(each, torch.Tensor):
                self.bytes = max(self.bytes, each.untyped_storage().nbytes())
        return out


def test_memory_stays_far_below_that_of_all_differences():
    # All differences of 4000 points in 256 dimensions at once are 16 GB, and of 1000 points 1 GB.
    features, values = gaussians(4000, 256), gaussians(4000, seed=1)
    with LargestAllocation() as joint:
        joint_neighbors(features, values, k=5)
    few = features[None, :1000].clone()
    search = Search(few, few, 6)
    with LargestAllocation() as plain:
        nearest_by_differences(search, power_of_two_scale(search.queries, search.pool))
    for found in (joint, plain):
        assert 2**20 < found.bytes < 2**24


def test_features_and_values_of_scales_forty_orders_apart_keep_their_distances():
    features = torch.tensor([[0.0], [1e-20], [3e-20]])
    found = joint_neighbors(features, torch.full((3,), 1e20), k=1)
    torch.testing.assert_close(found.radius, torch.tensor([1e-20, 1e-20, 2e-20]), rtol=1e-6, atol=0)


def test_nothing_is_inside_a_radius_that_is_not_a_number():
    count = count_within(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([torch.nan, 1.0, 1.5]))
    assert count.tolist() == [0, 0, 1]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_infinite_radius_counts_what_is_at_a_finite_distance(dtype):
    far = 0.9 * torch.finfo(dtype).max
    values = torch.tensor([0.0, 1.0, far, -far], dtype=dtype)
    radius = torch.full((4,), torch.inf, dtype=dtype)
    assert count_within(values, radius, count_self=True).tolist() == [4, 4, 3, 3]


@pytest.mark.parametrize("pool", [None, 30])
def test_devices_other_than_cpu_and_cuda_are_not_taken_for_a_cpu(pool):
    features, values = torch.zeros(60, 3, device="meta"), torch.zeros(60, device="meta")
    past = None if pool is None else torch.zeros(pool, 3, device="meta")
    radius = kth_neighbor_distance(features, k=3, pool=past, average=True, check_finite=False)
    terms = value_conditional_terms(features, values, k=3, check_finite=False)
    assert {each.device.type for each in (radius, terms.reward, terms.value_count)} == {"meta"}
