import torch

from vcse.bench.estimator import broadcast_reward, our_reward


def test_both_ways_compute_the_same_reward():
    generator = torch.Generator().manual_seed(0)
    features, values = torch.randn(200, 20, generator=generator), torch.randn(200, generator=generator)
    torch.testing.assert_close(our_reward(features, values, 5), broadcast_reward(features, values, 5))
