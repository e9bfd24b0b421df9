import pytest
import torch

from vcse.bench.estimator import Size, broadcast_reward, measure, our_reward


def test_both_ways_compute_the_same_reward():
    generator = torch.Generator().manual_seed(0)
    features, values = torch.randn(200, 20, generator=generator), torch.randn(200, generator=generator)
    torch.testing.assert_close(our_reward(features, values, 5), broadcast_reward(features, values, 5))


def test_a_measurement_that_fails_says_why_in_one_line():
    with pytest.raises(RuntimeError, match=r"measuring ours at .* failed: ValueError: k=12 needs at least 13 points"):
        next(measure("cpu", (Size(3, 2, 12),), repeats=1))
