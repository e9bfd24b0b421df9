import pytest
import torch
from estimators.samples import gaussians, lattice, mixed_learners
from hypothesis import given, settings
from hypothesis import strategies as st

from vcse.estimators import kth_neighbor_distance
from vcse.estimators.neighbors import screening, search
from vcse.estimators.neighbors.differences import Search, nearest_by_differences, power_of_two_scale
from vcse.estimators.neighbors.screening import LEAST_DIMENSIONS, is_worthwhile, nearest_by_screening


def search_within(features, values=None, *, k=5, average=False):
    features = features if features.ndim == 3 else features[None]
    values = values if values is None or values.ndim == 3 else values[None]
    return Search(features, features, k + 1, values, values, average_over=k if average else 0)


def assert_same_bits(search):
    scale = power_of_two_scale(search.queries, search.pool)
    screened, exact = nearest_by_screening(search, scale), nearest_by_differences(search, scale)
    assert torch.equal(screened.radius, exact.radius)
    if search.query_values is not None:
        assert torch.equal(screened.value_distance, exact.value_distance)


def fallbacks(monkeypatch, search):
    """How many queries were searched in full."""
    counted = []
    in_full = screening._search_in_full

    def counting(uncertain, *arguments):
        counted.append(int(uncertain.sum()))
        in_full(uncertain, *arguments)

    monkeypatch.setattr(screening, "_search_in_full", counting)
    nearest_by_screening(search, power_of_two_scale(search.queries, search.pool))
    return sum(counted)


def repeated(points):
    """Each point several times, in an order that keeps no copies together."""
    many = points.repeat(6, 1)
    return many[torch.randperm(len(many), generator=torch.Generator().manual_seed(0))]


def clusters(points, dimensions, *, offset, spread):
    cluster = spread * gaussians(points, dimensions)
    return torch.cat([cluster[::2] + offset, cluster[1::2] - offset])


def with_next_floats(points):
    """Each point beside one that is a single unit in the last place away in every coordinate."""
    return torch.cat([points, torch.nextafter(points, torch.tensor(torch.inf))])


def copies_among_near_ties(offset):
    """Five copies of a point and a sphere around it, whose radii differ by less than a product can tell."""
    radii = 2 + 1e-4 * gaussians(64, 1)
    points = torch.cat([torch.zeros(5, 64), radii * torch.eye(64)])
    return torch.cat([points + offset, points - offset])


GAUSSIAN = gaussians(300, 24)
VALUES = gaussians(300, 1, seed=1)
CASES = {
    "few points": search_within(gaussians(20, LEAST_DIMENSIONS)),
    "odd sizes": search_within(gaussians(331, 13)),
    "many points": search_within(gaussians(1000, 16)),
    "many dimensions": search_within(gaussians(200, 512)),
    "nearest": search_within(GAUSSIAN, k=1),
    "far rank": search_within(GAUSSIAN, k=70),
    "duplicates": search_within(repeated(gaussians(50, 16))),
    "more duplicates than k": search_within(repeated(gaussians(50, 16)), k=2),
    "duplicates with values": search_within(repeated(gaussians(50, 16)), lattice(300, 1)),
    "all equal": search_within(torch.full((200, 16), 0.1)),
    "all equal with values": search_within(torch.full((200, 16), 0.1), gaussians(200, 1)),
    "two tight clusters": search_within(clusters(300, 16, offset=1e6, spread=1e-3)),
    "two clusters": search_within(clusters(300, 16, offset=1e3, spread=1e-3)),
    "one cluster far away": search_within(1e4 + gaussians(300, 64)),
    "an outlier": search_within(torch.cat([GAUSSIAN, torch.full((1, 24), 1e12)])),
    "lattice ties": search_within(lattice(300, 12, side=1)),
    "lattice ties with values": search_within(lattice(300, 12, side=1), lattice(300, 1, side=6)),
    "binary features": search_within((gaussians(300, 40) > 1).float()),
    "one ulp apart": search_within(with_next_floats(gaussians(150, 16))),
    "one ulp apart far away": search_within(with_next_floats(1e4 + gaussians(150, 16)), VALUES),
    "values": search_within(GAUSSIAN, VALUES),
    "values decide": search_within(GAUSSIAN, 1e3 * VALUES),
    "tied values decide": search_within(GAUSSIAN, 100 * lattice(300, 1)),
    "equal values": search_within(GAUSSIAN, torch.ones(300, 1)),
    "tiny features": search_within(1e-20 * GAUSSIAN, VALUES),
    "tiny features, tied values": search_within(1e-20 * GAUSSIAN, lattice(300, 1)),
    "squares of features underflow": search_within(1e-37 * GAUSSIAN, torch.ones(300, 1)),
    "tiny values": search_within(GAUSSIAN, 1e-20 * VALUES),
    "tiny throughout": search_within(1e-38 * GAUSSIAN, 1e-38 * VALUES),
    "huge throughout": search_within(1e37 * GAUSSIAN, 1e37 * VALUES),
    "average": search_within(GAUSSIAN, average=True),
    "average of duplicates": search_within(repeated(gaussians(50, 16)), k=8, average=True),
    "average of copies and a near tie": search_within(copies_among_near_ties(offset=10), average=True),
    "average on a lattice": search_within(lattice(300, 12, side=1), average=True),
    "batch": search_within(mixed_learners(6, 170, 16)),
    "batch with values": search_within(mixed_learners(6, 170, 16), mixed_learners(6, 170, 1).flip(0)),
    "float64": search_within(gaussians(300, 24, dtype=torch.float64)),
    "other pool": Search(gaussians(2, 31, 16), gaussians(2, 400, 16, seed=1), 4),
    "other pool with values": Search(
        gaussians(1, 31, 16), lattice(1, 400, 16), 4, gaussians(1, 31, 1), lattice(1, 400, 1)
    ),
    "pool of tight clusters": Search(gaussians(1, 40, 16), clusters(300, 16, offset=1e6, spread=1)[None], 4),
}


@pytest.mark.parametrize("search", CASES.values(), ids=CASES.keys())
def test_screening_has_the_bits_of_differences(search):
    assert_same_bits(search)


@pytest.mark.parametrize("name", ["many points", "many dimensions", "two clusters", "values"])
@pytest.mark.parametrize("way", [nearest_by_screening, nearest_by_differences])
def test_two_threads_give_the_bits_of_one(name, way):
    search = CASES[name]
    scale = power_of_two_scale(search.queries, search.pool)
    one_thread = way(search, scale)
    torch.set_num_threads(2)
    try:
        two_threads = way(search, scale)
    finally:
        torch.set_num_threads(1)
    assert torch.equal(two_threads.radius, one_thread.radius)
    if search.query_values is not None:
        assert torch.equal(two_threads.value_distance, one_thread.value_distance)


@pytest.mark.parametrize("name", ["many points", "two clusters", "values", "lattice ties", "other pool"])
def test_screening_is_exact_where_the_user_allows_coarse_products(name):
    torch.set_float32_matmul_precision("medium")
    try:
        assert_same_bits(CASES[name])
    finally:
        torch.set_float32_matmul_precision("highest")


@pytest.mark.parametrize("search", CASES.values(), ids=CASES.keys())
def test_screening_is_exact_with_products_in_bfloat16(search, monkeypatch):
    # What the setting above does on a CPU that has such products; this one may not have them.
    def coarse(left, right, *, out):
        out.copy_(left.bfloat16().to(left.dtype) @ right.bfloat16().to(left.dtype))

    monkeypatch.setattr(torch, "bmm", coarse)
    assert_same_bits(search)


@settings(max_examples=100)
@given(
    seed=st.integers(0, 1 << 30),
    points=st.integers(20, 250),
    dimensions=st.integers(LEAST_DIMENSIONS, 40),
    k=st.integers(1, 12),
    offset=st.sampled_from([0.0, 1.0, 100.0, 1e4, 1e6]),
    decimals=st.sampled_from([0, 1, 6]),
    value_size=st.sampled_from([None, 0.0, 1e-3, 1.0, 1e3]),
)
def test_screening_has_the_bits_of_differences_on_anything(seed, points, dimensions, k, offset, decimals, value_size):
    features = offset + gaussians(points, dimensions, seed=seed).round(decimals=decimals)
    values = None if value_size is None else value_size * gaussians(points, 1, seed=seed + 1).round(decimals=1)
    assert_same_bits(search_within(features, values, k=k))


@pytest.mark.parametrize("values", [None, VALUES], ids=["features", "with values"])
def test_plain_gaussians_are_never_searched_in_full(monkeypatch, values):
    assert fallbacks(monkeypatch, search_within(GAUSSIAN, values)) == 0


def test_ties_beyond_the_spare_places_are_searched_in_full(monkeypatch):
    # All corners of a simplex are equally far from each other: no few of them are the nearest.
    assert fallbacks(monkeypatch, search_within(torch.eye(200))) == 200


def test_neighbours_closer_than_the_error_of_the_product_are_searched_in_full(monkeypatch):
    search = search_within(clusters(200, 16, offset=1e3, spread=1e-3))
    assert fallbacks(monkeypatch, search) == 200


def test_only_the_queries_in_doubt_are_searched_in_full(monkeypatch):
    tied = torch.eye(24)[:20]
    tied[:, -1] = 10  # far from everyone else
    search = search_within(torch.cat([tied, GAUSSIAN]))
    assert fallbacks(monkeypatch, search) == 20


def test_duplicates_at_distance_0_are_not_searched_in_full(monkeypatch):
    # More copies than places: no screening tells them apart, and nothing needs to.
    assert fallbacks(monkeypatch, search_within(torch.full((200, 16), 0.1))) == 0


@pytest.mark.parametrize("offset", [1e4, 1e6])
@pytest.mark.parametrize("way", [nearest_by_screening, nearest_by_differences])
def test_duplicates_are_at_distance_exactly_0(way, offset):
    half = offset + gaussians(100, 512)
    search = search_within(torch.cat([half, half]), k=1)
    assert torch.equal(way(search, power_of_two_scale(search.queries, search.pool)).radius, torch.zeros(1, 200))


@pytest.mark.parametrize("way", [nearest_by_screening, nearest_by_differences])
def test_duplicates_with_equal_values_are_at_joint_distance_exactly_0(way):
    half, values = 1e4 + gaussians(100, 512), 1e4 + gaussians(100, 1)
    search = search_within(torch.cat([half, half]), torch.cat([values, values]), k=1)
    found = way(search, power_of_two_scale(search.queries, search.pool))
    assert torch.equal(found.radius, torch.zeros(1, 200))
    assert torch.equal(found.value_distance, torch.zeros(1, 200))


@pytest.mark.parametrize(
    ("points", "dimensions", "k", "worthwhile"),
    [(300, 16, 5, True), (300, 3, 5, False), (50, 16, 5, False), (100, 16, 5, False), (300, 16, 200, False)],
)
def test_screening_is_used_for_many_points_of_many_dimensions(monkeypatch, points, dimensions, k, worthwhile):
    used = []
    monkeypatch.setattr(search, "nearest_by_screening", lambda *a: used.append(a) or nearest_by_screening(*a))
    features = gaussians(points, dimensions)
    assert is_worthwhile(search_within(features, k=k)) is worthwhile
    kth_neighbor_distance(features, k=k)
    assert bool(used) is worthwhile


def test_a_large_pool_is_not_screened_for_few_queries():
    pool = gaussians(1, 5000, 64)
    assert not is_worthwhile(Search(gaussians(1, 4, 64, seed=1), pool, 5))
    assert is_worthwhile(Search(gaussians(1, 40, 64, seed=1), pool, 5))


@pytest.mark.parametrize("values", [None, gaussians(8, 80, 1, seed=1)])
def test_a_learner_that_would_not_be_screened_alone_has_the_same_bits_in_company(values):
    together, points = search_within(gaussians(8, 80, 64), values), gaussians(8, 80, 64)
    assert is_worthwhile(together)
    found = search._search(together)
    for learner in range(8):
        own = search_within(points[learner], None if values is None else values[learner])
        assert not is_worthwhile(own)
        alone = search._search(own)
        assert torch.equal(alone.radius[0], found.radius[learner])
        assert values is None or torch.equal(alone.value_distance[0], found.value_distance[learner])


def test_vector_values_are_not_screened():
    assert not is_worthwhile(search_within(GAUSSIAN, gaussians(300, 2)))


@given(st.integers(1, 300), st.integers(1, 40), st.sampled_from([1, 2, 4]), st.integers(0, 10_000), st.booleans())
def test_the_columns_given_are_the_nearest_but_for_what_is_cut(columns, count, group, seed, tied):
    width = -(-columns // group) * group
    count = min(count, columns, width // group)
    matrix = lattice(2, 3, columns, side=4, seed=seed) if tied else gaussians(2, 3, columns, seed=seed)
    padded = torch.full((2, 3, width), torch.finfo(torch.float32).max)
    padded[..., :columns] = matrix.abs()
    values, places = screening._nearest_columns(padded.clone(), count, group, torch.empty_like(padded))
    assert all(len(set(row)) == count for row in places.flatten(0, 1).tolist())
    given_squares = padded.gather(-1, places)
    cut = 2.0 ** screening._place_bits(width, count, group) * torch.finfo(torch.float32).eps
    assert (values <= given_squares).all()
    assert (values >= given_squares * (1 - cut)).all()
    left_out = padded.scatter(-1, places, torch.inf)
    assert (left_out.amin(-1) >= values.amax(-1)).all()
