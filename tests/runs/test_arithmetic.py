import pytest
import torch

from vcse.runs.arithmetic import EXACT, Arithmetic, computing_with


def told():
    return torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark


@pytest.mark.parametrize(
    "arithmetic", [EXACT, Arithmetic("highest", False), Arithmetic("high", False), Arithmetic("high", True)]
)
def test_pytorch_is_told_and_forgets_it_afterwards(arithmetic):
    before = told()
    with computing_with(arithmetic):
        assert told() == (1, *arithmetic)
    assert told() == before


def test_it_is_forgotten_after_an_error_too():
    before = told()
    with pytest.raises(RuntimeError, match="no luck"), computing_with(Arithmetic("high", True)):
        raise RuntimeError("no luck")
    assert told() == before


def test_what_was_trained_before_makes_no_difference():
    with computing_with(Arithmetic("high", True)), computing_with(Arithmetic("highest", False)):
        assert told() == (1, "highest", False)
