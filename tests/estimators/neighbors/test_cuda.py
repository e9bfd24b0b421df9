"""The CUDA kernels; these tests need a GPU with Triton and are skipped without."""

import pytest
import torch
from estimators.samples import gaussians, lattice, mixed_learners

from vcse.estimators import (
    CONDITIONAL_READINGS,
    STATE_ENTROPY_READINGS,
    count_within,
    joint_neighbors,
    kl_entropy,
    ksg_conditional_entropy,
    kth_neighbor_distance,
    state_entropy_reward,
    value_conditional_reward,
    value_conditional_terms,
)
from vcse.estimators.neighbors import cuda, search

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")

# Sizes around the kernels' tiles and steps; 512 dimensions are summed in parts.
SIZES = [(2, 1), (31, 3), (32, 16), (33, 17), (200, 64), (513, 40), (1000, 512), (300, 2048)]
sizes = pytest.mark.parametrize(("points", "dimensions"), SIZES)


@pytest.fixture
def kernel_calls(monkeypatch):
    """The searches that went to the kernels."""
    calls = []
    original = search.nearest_by_kernels
    monkeypatch.setattr(search, "nearest_by_kernels", lambda *a: calls.append(a) or original(*a))
    return calls


def on_both(points, dimensions, make=gaussians):
    features, values = make(points, dimensions), make(points, seed=1)
    return (features, values), (features.cuda(), values.cuda())


def assert_same_distances(found, expected):
    # The sums over the coordinates run in another order on the CPU, so the last bits may differ.
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=0)


@sizes
def test_the_kernels_are_used(kernel_calls, points, dimensions):
    _, (features, values) = on_both(points, dimensions)
    joint_neighbors(features, values, k=1)
    assert len(kernel_calls) == 1


@sizes
def test_distances_agree_with_the_cpu(points, dimensions):
    (features, values), (there, values_there) = on_both(points, dimensions)
    for k in {1, min(5, points - 1), points - 1}:
        assert_same_distances(kth_neighbor_distance(there, k=k), kth_neighbor_distance(features, k=k))
        found, expected = joint_neighbors(there, values_there, k=k), joint_neighbors(features, values, k=k)
        assert_same_distances(found.radius, expected.radius)
        # Of two neighbours that are nearly tied, the other may be the k-th.
        assert (found.value_distance.cpu() == expected.value_distance).float().mean() > 0.99


@sizes
def test_averages_agree_with_the_cpu(points, dimensions):
    (features, _), (there, _) = on_both(points, dimensions)
    for k in {1, min(5, points - 1), points - 1}:
        for self_in_k in (False, True):
            found, expected = (
                kth_neighbor_distance(each, k=k, average=True, self_in_k=self_in_k) for each in (there, features)
            )
            assert_same_distances(found, expected)


@sizes
def test_lattices_agree_with_the_cpu_to_the_bit(points, dimensions):
    # Sums of whole numbers are exact in every order, and full of ties.
    (features, values), (there, values_there) = on_both(points, dimensions, make=lattice)
    found = value_conditional_terms(there, values_there, k=min(3, points - 1))
    expected = value_conditional_terms(features, values, k=min(3, points - 1))
    assert torch.equal(found.radius.cpu(), expected.radius)
    assert torch.equal(found.value_distance.cpu(), expected.value_distance)
    assert torch.equal(found.value_count.cpu().long(), expected.value_count.long())


@pytest.mark.parametrize("reading", CONDITIONAL_READINGS)
@pytest.mark.parametrize("make", [gaussians, lattice])
def test_conditional_rewards_agree_with_the_cpu(reading, make):
    (features, values), (there, values_there) = on_both(500, 32, make)
    found = value_conditional_reward(there, values_there, k=5, reading=reading)
    expected = value_conditional_reward(features, values, k=5, reading=reading)
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("reading", STATE_ENTROPY_READINGS)
@pytest.mark.parametrize("make", [gaussians, lattice])
def test_state_entropy_rewards_agree_with_the_cpu(reading, make):
    (features, _), (there, _) = on_both(500, 32, make)
    found = state_entropy_reward(there, k=5, reading=reading)
    torch.testing.assert_close(found.cpu(), state_entropy_reward(features, k=5, reading=reading), rtol=1e-5, atol=1e-5)


def test_entropies_agree_with_the_cpu():
    (features, values), (there, values_there) = on_both(1000, 4)
    torch.testing.assert_close(kl_entropy(there, k=3).cpu(), kl_entropy(features, k=3), rtol=1e-5, atol=1e-5)
    found, expected = (ksg_conditional_entropy(*each, k=3) for each in ((there, values_there), (features, values)))
    torch.testing.assert_close(found.cpu(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(("queries", "points", "dimensions"), [(1, 1, 1), (1, 500, 8), (70, 33, 512), (400, 3, 20)])
def test_pools_agree_with_the_cpu(kernel_calls, queries, points, dimensions):
    features, pool = gaussians(2, queries, dimensions), gaussians(2, points, dimensions, seed=1)
    for k in {1, points}:
        found = kth_neighbor_distance(features.cuda(), k=k, pool=pool.cuda())
        assert_same_distances(found, kth_neighbor_distance(features, k=k, pool=pool))
    assert kernel_calls


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1e20, 1e30])
def test_tiny_and_huge_features_agree_with_the_cpu(scale):
    features, values = scale * gaussians(300, 20), scale * gaussians(300, seed=1)
    found = joint_neighbors(features.cuda(), values.cuda(), k=5)
    assert_same_distances(found.radius, joint_neighbors(features, values, k=5).radius)


@pytest.mark.parametrize("dimensions", [3, 64, 512])
@pytest.mark.parametrize("offset", [0.0, 1e4, 1e6])
def test_duplicates_are_at_distance_exactly_0(dimensions, offset):
    half = offset + gaussians(100, dimensions)
    features, values = torch.cat([half, half]).cuda(), gaussians(100).repeat(2).cuda()
    found = joint_neighbors(features, values, k=1)
    assert torch.equal(found.radius, torch.zeros_like(found.radius))
    assert torch.equal(found.value_distance, torch.zeros_like(found.radius))
    assert not kth_neighbor_distance(features, k=1).any()


def test_identical_states_get_the_least_reward_of_the_release():
    features, values = torch.ones(128, 64, device="cuda"), torch.ones(128, device="cuda")
    reward = value_conditional_reward(features, values, k=12, reading="release-a2c")
    torch.testing.assert_close(reward, torch.full_like(reward, -11.521945), rtol=0, atol=1e-5)


@pytest.mark.parametrize("points", [1, 2, 100, 4096, 5000])
@pytest.mark.parametrize("tied", [False, True])
def test_counts_agree_with_the_cpu(points, tied):
    values = lattice(3, points, side=20) if tied else gaussians(3, points)
    radius = (values - values.roll(1, -1)).abs()
    for count_self in (False, True):
        found = count_within(values.cuda(), radius.cuda(), count_self=count_self)
        expected = count_within(values, radius, count_self=count_self)
        assert torch.equal(found.cpu().long(), expected.long())


def test_vector_values_and_float64_agree_with_the_cpu(kernel_calls):
    features, values = gaussians(2, 100, 5, dtype=torch.float64), gaussians(2, 100, 3, dtype=torch.float64)
    found = value_conditional_terms(features.cuda(), values.cuda(), k=3)
    for each, expected in zip(found, value_conditional_terms(features, values, k=3), strict=True):
        torch.testing.assert_close(each.cpu(), expected, rtol=1e-12, atol=1e-12)
    assert not kernel_calls


@sizes
def test_two_runs_give_the_same_bits(points, dimensions):
    _, (features, values) = on_both(points, dimensions)
    k = min(5, points - 1)
    runs = [value_conditional_terms(features, values, k=k, reading="release-a2c") for _ in range(2)]
    for first, second in zip(*runs, strict=True):
        assert torch.equal(first, second)
    averages = [kth_neighbor_distance(features, k=k, average=True) for _ in range(2)]
    assert torch.equal(*averages)


@pytest.mark.parametrize("leading", [(6,), (2, 3)])
@sizes
def test_learners_side_by_side_have_the_bits_of_learners_alone(leading, points, dimensions):
    features = mixed_learners(6, points, dimensions).cuda()
    values = mixed_learners(6, points, 1)[..., 0].flip(0).cuda()
    k = min(3, points - 1)
    together = value_conditional_terms(features.unflatten(0, leading), values.unflatten(0, leading), k=k)
    average = kth_neighbor_distance(features.unflatten(0, leading), k=k, average=True)
    for learner in range(6):
        alone = value_conditional_terms(features[learner], values[learner], k=k)
        for batched, single in zip(together, alone, strict=True):
            assert torch.equal(batched.flatten(0, -2)[learner], single)
        assert torch.equal(average.flatten(0, -2)[learner], kth_neighbor_distance(features[learner], k=k, average=True))


@pytest.mark.parametrize(("points", "dimensions"), [(200, 16), (513, 40)])
def test_permuting_lattice_points_permutes_the_result(points, dimensions):
    _, (features, values) = on_both(points, dimensions, make=lattice)
    order = torch.randperm(points, generator=torch.Generator().manual_seed(0)).cuda()
    there = value_conditional_terms(features, values, k=3)
    here = value_conditional_terms(features[order], values[order], k=3)
    for before, after in zip(there, here, strict=True):
        assert torch.equal(before[order], after)


def captured(function):
    """Capture a call in a CUDA graph; gives the graph and the tensors it writes."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function()  # compiles the kernels
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = function()
    return graph, result


@pytest.mark.parametrize("check_finite", [False, True])
@pytest.mark.parametrize("reading", ["paper", "release-a2c"])
def test_a_captured_graph_gives_the_bits_of_an_eager_call(reading, check_finite):
    features, values = gaussians(4, 300, 64).cuda(), gaussians(4, 300, seed=1).cuda()

    def call():
        conditional = value_conditional_terms(features, values, k=5, reading=reading, check_finite=check_finite)
        return *conditional, state_entropy_reward(features, k=5, reading=reading, check_finite=check_finite)

    graph, written = captured(call)
    for seed in (2, 3):  # new numbers in the same places: the graph must read them
        features.copy_(gaussians(4, 300, 64, seed=seed))
        values.copy_(gaussians(4, 300, seed=seed + 1))
        graph.replay()
        for each, expected in zip(written, call(), strict=True):
            assert torch.equal(each, expected)


def test_a_log_offset_of_0_is_refused_in_a_captured_graph():
    features = gaussians(100, 16).cuda()
    with pytest.raises(ValueError, match="cannot be captured"):
        captured(lambda: state_entropy_reward(features, k=3, log_offset=0.0))


@pytest.fixture
def no_synchronisation():
    torch.cuda.synchronize()
    yield lambda: torch.cuda.set_sync_debug_mode("error")
    torch.cuda.set_sync_debug_mode("default")


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("reading", ["paper", "release-a2c"])
def test_no_call_waits_for_the_device(no_synchronisation, reading):
    features, values = gaussians(4, 300, 64).cuda(), gaussians(4, 300, seed=1).cuda()
    pool = gaussians(4, 500, 64, seed=2).cuda()

    def call():
        value_conditional_reward(features, values, k=5, reading=reading, check_finite=False)
        state_entropy_reward(features, k=5, reading=reading, check_finite=False)
        state_entropy_reward(features, k=5, reading=reading, pool=pool, check_finite=False)

    call()  # compiles the kernels
    no_synchronisation()
    call()  # from here on PyTorch raises at any wait, as the next test shows
    assert torch.cuda.get_sync_debug_mode() == 2


@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_the_check_of_the_numbers_waits_for_the_device(no_synchronisation):
    # Shows that the test above would see a wait.
    features = gaussians(300, 64).cuda()
    no_synchronisation()
    with pytest.raises(RuntimeError, match="synchronizing"):
        kth_neighbor_distance(features, k=5)


def test_a_call_with_new_numbers_is_not_cached():
    features = gaussians(300, 64).cuda()
    first = kth_neighbor_distance(features, k=5)
    features.mul_(2)
    assert torch.equal(kth_neighbor_distance(features, k=5), 2 * first)


@pytest.mark.parametrize("points", [8192, cuda.MOST_POINTS])
def test_as_many_points_as_the_kernels_hold_agree_with_the_cpu(kernel_calls, points):
    assert_some_rows_agree(points)
    assert kernel_calls


def test_more_points_than_the_kernels_hold_agree_with_the_cpu(kernel_calls):
    assert_some_rows_agree(cuda.MOST_POINTS + 1)
    assert not kernel_calls


def assert_some_rows_agree(points):
    features = gaussians(points, 12)
    found = kth_neighbor_distance(features.cuda(), k=5)
    some = features[:: points // 50]
    expected = kth_neighbor_distance(some, k=5, pool=features, pool_holds_features=True)
    assert_same_distances(found[:: points // 50], expected)


@pytest.mark.parametrize("points", [200, 513])
def test_rows_in_pieces_have_the_bits_of_all_at_once(monkeypatch, points):
    _, (features, values) = on_both(points, 40)
    at_once = value_conditional_terms(features, values, k=5)
    monkeypatch.setattr(cuda, "CUDA_TILE", 30 * points)
    in_pieces = value_conditional_terms(features, values, k=5)
    for each, expected in zip(in_pieces, at_once, strict=True):
        assert torch.equal(each, expected)
