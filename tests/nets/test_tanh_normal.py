import math

import torch
from torch.distributions import Independent, Normal, TransformedDistribution
from torch.distributions.transforms import TanhTransform

from vcse.nets.tanh_normal import LEAST_LOG_STD, MOST_LOG_STD, mean_and_log_std, squashed_sample


def drawn(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def test_actions_and_densities_are_those_of_pytorchs_own_distribution():
    mean, log_std, noise = drawn(3, 50, 4, seed=1), drawn(3, 50, 4, seed=2) - 1, drawn(3, 50, 4, seed=3)
    action, log_probability = squashed_sample(mean, log_std, noise)
    base = Independent(Normal(mean, log_std.exp()), 1)
    expected = TransformedDistribution(base, TanhTransform(cache_size=1))
    torch.testing.assert_close(action, (mean + log_std.exp() * noise).tanh())
    inside = action.abs().amax(-1) < 0.999  # further out the inverse of the tanh runs out of digits
    assert inside.sum() > 100
    torch.testing.assert_close(log_probability[inside], expected.log_prob(action)[inside], rtol=1e-6, atol=1e-6)


def test_the_density_of_one_action_adds_up_to_1():
    mean, log_std = torch.tensor([0.4], dtype=torch.float64), torch.tensor([-0.3], dtype=torch.float64)
    edges = torch.linspace(-1 + 1e-9, 1 - 1e-9, 200_001, dtype=torch.float64)[:, None]
    noise = (edges.atanh() - mean) / log_std.exp()
    _, log_density = squashed_sample(mean.expand_as(noise), log_std.expand_as(noise), noise)
    assert math.isclose(torch.trapezoid(log_density.exp(), edges[:, 0]).item(), 1, abs_tol=1e-4)


def test_densities_and_gradients_are_finite_where_the_tanh_has_no_digits_left():
    for place in (12.0, -12.0, 60.0, -1e4):
        mean = torch.tensor([[place]], requires_grad=True)
        log_std = torch.tensor([[-5.0]], requires_grad=True)
        action, log_probability = squashed_sample(mean, log_std, torch.tensor([[1.5]]))
        assert action.abs().item() == 1
        # log(1 - tanh(x)^2) goes to log 4 - 2|x|.
        slope = math.log(4) - 2 * abs(place + 1.5 * math.exp(-5))
        expected = -0.5 * 1.5**2 + 5 - 0.5 * math.log(2 * math.pi) - slope
        assert math.isclose(log_probability.item(), expected, rel_tol=1e-5)
        gradients = torch.autograd.grad(log_probability.sum(), [mean, log_std])
        assert all(gradient.isfinite().all() for gradient in gradients)


def test_the_logarithm_of_the_deviation_stays_between_its_bounds():
    outputs = torch.tensor([[7.0, -3.0, -1e6, 1e6], [0.0, 1.0, 0.0, 0.5]])
    mean, log_std = mean_and_log_std(outputs)
    assert torch.equal(mean, outputs[:, :2])
    assert (LEAST_LOG_STD, MOST_LOG_STD) == (-5, 2)
    expected = torch.tensor([[-5.0, 2.0], [-1.5, -5 + 3.5 * (math.tanh(0.5) + 1)]])
    torch.testing.assert_close(log_std, expected)
