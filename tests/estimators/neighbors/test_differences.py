import math

import pytest
import torch
from estimators.samples import gaussians

from vcse.estimators import kth_neighbor_distance
from vcse.estimators.neighbors import differences
from vcse.estimators.neighbors.differences import (
    CPU_TILE,
    Search,
    chunks,
    nearest_by_differences,
    power_of_two_scale,
    radius_of,
    squared_distances,
    value_distances,
)


def squares_of(queries, pool):
    return squared_distances(queries, pool, out=torch.empty(*queries.shape[:2], pool.shape[1]))


@pytest.mark.parametrize("dimensions", [1, 3, 8, 9, 64, 300])
def test_squared_distances_are_the_sums_of_squared_differences(dimensions):
    queries, pool = gaussians(2, 5, dimensions), gaussians(2, 7, dimensions, seed=1)
    expected = (queries.double()[:, :, None] - pool.double()[:, None]).square().sum(-1)
    torch.testing.assert_close(squares_of(queries, pool).double(), expected, rtol=2e-6, atol=0)


@pytest.mark.parametrize("dimensions", [3, 8, 9, 17, 64, 513])
def test_a_distance_has_the_same_bits_whatever_it_is_computed_beside(dimensions):
    points = gaussians(3, 70, dimensions)
    together = squares_of(points, points)
    for matrix, row, column in [(0, 0, 69), (1, 33, 5), (2, 69, 68)]:
        alone = squares_of(points[matrix : matrix + 1, row : row + 1], points[matrix : matrix + 1, [column]])
        assert torch.equal(alone[0, 0, 0], together[matrix, row, column])


@pytest.mark.parametrize("dimensions", [2, 8, 9, 64])
def test_distances_are_symmetric_to_the_bit(dimensions):
    points = gaussians(1, 50, dimensions)
    squares = squares_of(points, points)
    assert torch.equal(squares, squares.transpose(-1, -2))


def test_distances_of_vector_values_are_euclidean():
    values = gaussians(2, 9, 3)
    expected = (values[:, :, None] - values[:, None]).double().norm(dim=-1)
    torch.testing.assert_close(value_distances(values, values).double(), expected, rtol=1e-6, atol=0)


def test_distances_of_scalar_values_are_absolute_differences():
    values = gaussians(2, 9, 1)
    assert torch.equal(value_distances(values, values), (values - values.transpose(1, 2)).abs())


@pytest.mark.parametrize("size", [1e-45, 1e-38, 1e-20, 1.0, 3.0, 1e20, 3e38])
def test_the_scale_is_a_power_of_two_that_keeps_sums_of_squares_in_range(size):
    points = torch.full((1, 2, 64), size)
    points[0, 1] = -size
    scale = power_of_two_scale(points, points)
    mantissa, _ = math.frexp(scale.item())
    scaled = points * scale
    assert mantissa == 0.5
    assert torch.equal(scaled / scale, points)
    assert 0 < (2 * scaled).square().sum(-1).max() < math.inf


def test_the_scale_of_the_worked_example():
    points = torch.tensor([[[1e20, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    assert power_of_two_scale(points).item() == 2.0**-14


def test_each_matrix_has_its_own_scale():
    points = torch.stack([gaussians(5, 3), 1e20 * gaussians(5, 3)])
    both = power_of_two_scale(points, points)
    for matrix in range(2):
        one = points[matrix : matrix + 1]
        assert torch.equal(power_of_two_scale(one, one), both[matrix : matrix + 1])
    assert both[0] > both[1]


def test_the_scale_minds_the_values_too():
    points, values = torch.ones(1, 4, 2), torch.full((1, 4, 1), 1e20)
    with_values = power_of_two_scale(points, points, values, values)
    assert with_values < power_of_two_scale(points, points)


@pytest.mark.parametrize(("batch", "rows", "columns"), [(1, 1, 1), (7, 5, 10), (3, 40, 100), (2, 3, 5000)])
def test_chunks_cover_every_row_once_and_stay_below_the_tile(batch, rows, columns):
    tile = 1000
    seen = torch.zeros(batch, rows)
    for matrices, some_rows in chunks(batch, rows, columns, tile):
        piece = seen[matrices, some_rows]
        assert piece.numel() * columns <= tile or piece.numel() == 1
        piece += 1
    assert torch.equal(seen, torch.ones(batch, rows))


def test_the_order_in_which_the_nearest_are_found_changes_no_bit_of_their_average():
    points, nearest = gaussians(1, 200, 2), gaussians(1, 200, 9).abs()
    search = Search(points, points, 6, average_over=6)
    average = radius_of(nearest, search)
    expected = nearest.double().sort(-1).values[..., :6].mean(-1)
    torch.testing.assert_close(average.double(), expected, rtol=1e-6, atol=0)
    assert torch.equal(radius_of(nearest.flip(-1), search), average)


@pytest.mark.parametrize("points", [2, 30, 500])
@pytest.mark.parametrize("dimensions", [1, 3, 20])
def test_differences_find_the_neighbours_of_a_full_distance_matrix(points, dimensions):
    features = gaussians(1, points, dimensions)
    search = Search(features, features, min(points, 6))
    found = nearest_by_differences(search, power_of_two_scale(search.queries, search.pool)).radius
    matrix = (features.double()[0, :, None] - features.double()[0]).norm(dim=-1)
    expected = matrix.sort().values[:, search.rank - 1]
    torch.testing.assert_close(found[0].double(), expected, rtol=1e-6, atol=0)


@pytest.mark.parametrize("dimensions", [3, 20])
def test_the_size_of_the_tiles_changes_no_bit(monkeypatch, dimensions):
    features, values = gaussians(3, 60, dimensions), gaussians(3, 60, 1, seed=1)
    search = Search(features, features, 5, values, values)
    scale = power_of_two_scale(search.queries, search.pool)
    assert features.shape[0] * 60 * 60 < CPU_TILE
    at_once = nearest_by_differences(search, scale)
    monkeypatch.setattr(differences, "CPU_TILE", 500)
    in_pieces = nearest_by_differences(search, scale)
    assert torch.equal(at_once.radius, in_pieces.radius)
    assert torch.equal(at_once.value_distance, in_pieces.value_distance)


def test_memory_lent_in_inference_mode_serves_outside_it():
    features = gaussians(40, 20)
    with torch.inference_mode():
        expected = kth_neighbor_distance(features, k=3)
    assert torch.equal(kth_neighbor_distance(features, k=3), expected)
