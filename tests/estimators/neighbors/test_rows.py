import numpy as np
import pytest
import torch

from vcse.estimators.neighbors.rows import flat_places, row_bytes, rows_at


@pytest.mark.parametrize("batch", [1, 3])
def test_rows_are_those_at_the_places_of_each_matrix(batch):
    matrices = torch.arange(batch * 5 * 2.0).view(batch, 5, 2)
    places = torch.tensor([[4, 0, 0], [1, 2, 3], [3, 3, 3]])[:batch]
    taken = rows_at(matrices, places)
    for matrix in range(batch):
        assert torch.equal(taken[matrix], matrices[matrix, places[matrix]])


def test_flat_places_count_the_rows_of_the_matrices_above():
    places = torch.tensor([[[0, 4]], [[1, 2]]])
    assert flat_places(places, 5).tolist() == [[[0, 4]], [[6, 7]]]
    assert flat_places(places[:1], 5).tolist() == [[[0, 4]]]


@pytest.mark.parametrize("dtype", [np.uint8, np.float32, np.float64])
def test_bytes_of_rows_tell_rows_apart_also_where_they_end_in_zeros(dtype):
    rows = np.array([[1, 0, 0], [1, 0, 1], [1, 0, 0], [0, 0, 0]], dtype=dtype)
    keys = row_bytes(rows)
    assert keys == [row.tobytes() for row in rows]
    assert keys[0] == keys[2]
    assert len(set(keys)) == 3


def test_bytes_of_no_rows_and_of_rows_that_do_not_lie_together():
    assert row_bytes(np.zeros((0, 4), dtype=np.float32)) == []
    matrix = np.arange(12, dtype=np.uint8).reshape(3, 4)
    assert row_bytes(matrix[:, ::2]) == [bytes([0, 2]), bytes([4, 6]), bytes([8, 10])]
