import pytest
import torch

from vcse.nets.precision import at_least_float32


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (torch.bfloat16, torch.float32),
        (torch.float16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_numbers_become_float32_unless_they_have_more_digits(given, expected):
    numbers = torch.tensor([0.5, -3.0], dtype=given)
    found = at_least_float32(numbers)
    assert found.dtype == expected
    assert found.tolist() == [0.5, -3.0]
