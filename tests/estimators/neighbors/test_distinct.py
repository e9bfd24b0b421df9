import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from vcse.estimators import joint_neighbors, kth_neighbor_distance
from vcse.estimators.neighbors import search
from vcse.estimators.neighbors.differences import Search
from vcse.estimators.neighbors.distinct import equal_points, may_be_equal, row_keys


def few_different(seed, batch=3, points=128, dimensions=16, different=20):
    """Points of which many are equal, a few at a time, and some learners have more different ones than others."""
    generator = torch.Generator().manual_seed(seed)
    table = torch.randn(batch, different, dimensions, generator=generator)
    least = torch.linspace(1, different, batch).long()[:, None]
    which = (torch.rand(batch, points, generator=generator) * least).long()
    return table.gather(1, which[..., None].expand(-1, -1, dimensions)), which


def without_grouping(monkeypatch):
    monkeypatch.setattr(search, "nearest_of_distinct", lambda search, find: None)


class TestEqualPoints:
    def test_groups_are_the_equal_points(self):
        points, which = few_different(0)
        groups = equal_points(points)
        for matrix in range(3):
            for i in range(0, 128, 7):
                same = groups.group[matrix] == groups.group[matrix, i]
                assert torch.equal(same, which[matrix] == which[matrix, i])
                assert groups.size[matrix, groups.group[matrix, i]] == same.sum()
                member = groups.member[matrix, groups.group[matrix, i]]
                assert torch.equal(points[matrix, member], points[matrix, i])
        assert groups.size.sum(-1).tolist() == [128, 128, 128]

    @pytest.mark.parametrize("coordinate", [0, 3, 4])
    def test_points_that_differ_in_one_coordinate_are_different(self, coordinate):
        points, _ = few_different(1, different=4, dimensions=5)
        points[..., coordinate] = torch.arange(128.0).remainder(5)
        assert equal_points(points).size.shape[1] == 20

    def test_different_points_are_left_alone(self):
        different = torch.randn(2, 128, 4, generator=torch.Generator().manual_seed(0))
        assert equal_points(different) is None
        assert not may_be_equal(different)
        assert not may_be_equal(torch.zeros(2, 16, 4))
        assert may_be_equal(torch.zeros(2, 64, 4))

    def test_a_collision_of_keys_groups_nothing(self, monkeypatch):
        points, _ = few_different(2)
        monkeypatch.setattr("vcse.estimators.neighbors.distinct.row_keys", lambda points: row_keys(points) * 0)
        assert equal_points(points) is None

    def test_zero_of_either_sign_may_be_in_two_groups_but_stays_at_distance_zero(self):
        points = torch.zeros(1, 128, 3)
        points[:, ::2] = -0.0
        assert (kth_neighbor_distance(points, k=100) == 0).all()


@pytest.mark.parametrize("k", [1, 3, 12])
@pytest.mark.parametrize("points", [64, 128, 400])
def test_joint_neighbours_have_the_same_bits_as_without_grouping(points, k, monkeypatch):
    features, which = few_different(points + k, points=points, different=points // 4)
    values = which.remainder(7).float().sin()
    grouped = joint_neighbors(features, values, k=k)
    without_grouping(monkeypatch)
    plain = joint_neighbors(features, values, k=k)
    assert torch.equal(grouped.radius, plain.radius)
    assert torch.equal(grouped.value_distance, plain.value_distance)


@pytest.mark.parametrize("average", [False, True])
@pytest.mark.parametrize("self_in_k", [False, True])
def test_distances_have_the_same_bits_as_without_grouping(average, self_in_k, monkeypatch):
    features, _ = few_different(5, points=200, different=60)
    settings = {"k": 5, "average": average, "self_in_k": self_in_k}
    grouped = kth_neighbor_distance(features, **settings)
    without_grouping(monkeypatch)
    assert torch.equal(grouped, kth_neighbor_distance(features, **settings))


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    different=st.sampled_from([3, 30, 200]),
    dimensions=st.sampled_from([2, 16]),
    average=st.booleans(),
)
def test_a_pool_with_counts_is_the_pool_with_every_point_repeated(seed, different, dimensions, average):
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(2, 40, dimensions, generator=generator)
    pool = torch.randn(2, different, dimensions, generator=generator)
    pool[:, 0] = features[:, 0]
    counts = torch.randint(0, 4, (2, different), generator=generator)
    counts[:, :2] = 5  # there are at least ten
    found = kth_neighbor_distance(features, k=6, pool=pool, pool_counts=counts, average=average)
    for matrix in range(2):
        repeated = pool[matrix].repeat_interleave(counts[matrix], 0)
        assert torch.equal(found[matrix], kth_neighbor_distance(features[matrix], k=6, pool=repeated, average=average))


class TestFeatureCounts:
    def drawn(self, seed=3):
        """Features that are in a pool once to twenty times each, one learner's more often than the other's."""
        generator = torch.Generator().manual_seed(seed)
        table = torch.randn(2, 80, 16, generator=generator)
        counts = torch.randint(1, 20, (2, 80), generator=generator)
        counts[1] += 3
        which = torch.randint(0, 80, (2, 100), generator=generator)
        return table.gather(1, which[..., None].expand(-1, -1, 16)), table, counts, counts.gather(1, which)

    @pytest.mark.parametrize("k", [3, 5, 30])
    @pytest.mark.parametrize("average", [False, True])
    @pytest.mark.parametrize("self_in_k", [False, True])
    def test_distances_have_the_same_bits_as_without(self, k, average, self_in_k):
        features, pool, counts, feature_counts = self.drawn()
        how = {"k": k, "average": average, "self_in_k": self_in_k, "pool_holds_features": True}
        known = kth_neighbor_distance(features, pool=pool, pool_counts=counts, feature_counts=feature_counts, **how)
        assert torch.equal(known, kth_neighbor_distance(features, pool=pool, pool_counts=counts, **how))
        for learner in range(2):
            repeated = pool[learner].repeat_interleave(counts[learner], 0)
            own = kth_neighbor_distance(features[learner], pool=repeated, feature_counts=feature_counts[learner], **how)
            assert torch.equal(own, known[learner])

    def test_only_rare_features_are_searched(self, monkeypatch):
        seen = []
        plain = search._search
        monkeypatch.setattr(search, "_search", lambda search: seen.append(search.queries.shape[1]) or plain(search))
        features, pool, counts, feature_counts = self.drawn()
        kth_neighbor_distance(
            features, k=5, pool=pool, pool_holds_features=True, pool_counts=counts, feature_counts=feature_counts
        )
        assert seen == [int((feature_counts < 6).sum(-1).max())]
        assert seen[0] < 40

    def test_features_that_are_all_there_often_enough_are_not_searched(self, monkeypatch):
        monkeypatch.setattr(search, "_search", None)
        features, pool, counts, feature_counts = self.drawn()
        found = kth_neighbor_distance(
            features, k=5, pool=pool, pool_counts=counts + 5, feature_counts=feature_counts + 5
        )
        assert torch.equal(found, torch.zeros(2, 100))

    def test_a_feature_that_is_not_finite_has_no_distance(self):
        features, pool, counts, feature_counts = self.drawn()
        features[0, 0], features[1, 3] = torch.nan, torch.inf
        found = kth_neighbor_distance(
            features, k=5, pool=pool, pool_counts=counts, feature_counts=feature_counts + 5, check_finite=False
        )
        assert found.isnan().nonzero().tolist() == [[0, 0], [1, 3]]

    @pytest.mark.usefixtures("without_type_checks")
    def test_counts_of_another_shape_are_refused(self):
        features, pool, _, feature_counts = self.drawn()
        with pytest.raises(
            ValueError, match=r"feature_counts must be integers of shape \(2, 100\), got torch.int64 of"
        ):
            kth_neighbor_distance(features, k=3, pool=pool, feature_counts=feature_counts[:, 1:])


@pytest.mark.usefixtures("without_type_checks")
def test_bad_counts_are_refused():
    features, pool = torch.zeros(3, 2), torch.zeros(4, 2)
    for counts, message in [
        (torch.ones(3, dtype=torch.int64), r"integers of shape \(4,\), got torch.int64 of shape \(3,\)"),
        (torch.tensor([1, -1, 1, 1]), "must not be negative, got -1"),
        (torch.tensor([1, 0, 0, 1]), "k=3 needs at least 3 points in pool, got 2"),
    ]:
        with pytest.raises(ValueError, match=message):
            kth_neighbor_distance(features, k=3, pool=pool, pool_counts=counts)


def test_the_reduced_search_is_smaller(monkeypatch):
    seen = []
    plain = search._search

    def watched(search: Search):
        seen.append(tuple(search.queries.shape))
        return plain(search)

    monkeypatch.setattr(search, "_search", watched)
    features, which = few_different(9)
    kth_neighbor_distance(features, k=3)
    assert seen == [(3, int(max(len(each.unique()) for each in which)), 16)]


def test_few_different_points_are_enough_where_each_is_there_often():
    features, pool = torch.zeros(3, 2), torch.zeros(2, 2)
    counts = torch.tensor([10, 10])
    for check_finite in (True, False):
        assert (
            kth_neighbor_distance(features, k=5, pool=pool, pool_counts=counts, check_finite=check_finite) == 0
        ).all()
