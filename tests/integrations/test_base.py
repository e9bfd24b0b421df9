import pytest
import torch

from vcse.integrations.base import check_device


def test_a_device_without_float64_is_refused_by_name():
    check_device(torch.device("cpu"))
    with pytest.raises(ValueError, match=r"computes in float64, which mps does not have: keep it and .* on cpu$"):
        check_device(torch.device("mps"))
