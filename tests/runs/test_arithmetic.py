import pytest
import torch

from vcse.runs.arithmetic import Arithmetic, arithmetic_of, computing_as


def told():
    return torch.get_num_threads(), torch.get_float32_matmul_precision(), torch.backends.cudnn.benchmark


@pytest.mark.parametrize(
    ("agent", "device", "expected"),
    [
        ("a2c", "cuda", Arithmetic("highest", False)),
        ("sac", "cuda", Arithmetic("high", False)),
        ("drqv2", "cuda", Arithmetic("high", True)),
        ("drqv2", "cpu", Arithmetic("highest", False)),
    ],
)
def test_it_follows_from_the_agent_and_is_gone_afterwards(agent, device, expected):
    assert arithmetic_of(agent, device) == expected
    before = told()
    with computing_as(agent, device):
        assert told() == (1, *expected)
    assert told() == before


def test_what_was_trained_before_makes_no_difference():
    with computing_as("drqv2", "cuda"), computing_as("a2c", "cuda"):
        assert told() == (1, "highest", False)
