import math

import pytest
import torch
from scipy.stats import truncnorm

from vcse.nets.truncated_normal import mean_and_std, truncated_normal_entropy, truncated_normal_sample

LARGEST = 1 - 2**-24  # below 1, in float32


def cases(dtype=torch.float64):
    """Return means, deviations and uniforms in all combinations."""
    means = torch.tensor([-1.0, -0.97, -0.4, 0.0, 0.3, 0.9, 1.0], dtype=dtype)
    stds = torch.tensor([0.1, 0.25, 1.0], dtype=dtype)
    uniforms = torch.tensor([1e-6, 0.01, 0.3, 0.5, 0.77, 0.999, 1 - 1e-6], dtype=dtype)
    return torch.cartesian_prod(means, stds, uniforms).T.contiguous()


def quantile(mean, std, uniform):
    low, high = (-1 - mean) / std, (1 - mean) / std
    return torch.from_numpy(truncnorm.ppf(uniform.numpy(), low.numpy(), high.numpy(), mean.numpy(), std.numpy()))


@pytest.mark.parametrize(("dtype", "near"), [(torch.float64, 1e-9), (torch.float32, 1e-6)])
def test_samples_are_the_quantiles_of_the_distribution(dtype, near):
    mean, std, uniform = cases(dtype)
    found = truncated_normal_sample(mean, std, uniform)
    assert found.dtype == dtype
    expected = quantile(*(each.double() for each in (mean, std, uniform)))
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=near)


def test_gradients_are_those_of_the_quantiles():
    mean, std, uniform = cases()
    given = (mean.requires_grad_(), std.requires_grad_())
    found = torch.autograd.grad(truncated_normal_sample(*given, uniform).sum(), given)
    step = 1e-5
    inner = (mean.detach().clamp(-1 + step, 1 - step), std.detach())
    for number in range(2):
        up, down = list(inner), list(inner)
        up[number], down[number] = inner[number] + step, inner[number] - step
        expected = (quantile(*up, uniform) - quantile(*down, uniform)) / (2 * step)
        torch.testing.assert_close(found[number], expected, rtol=1e-3, atol=1e-3)


def test_samples_and_gradients_are_finite_at_the_ends():
    means = torch.tensor([-1.0, -0.999999, 0.0, 0.999999, 1.0])
    stds = torch.tensor([1e-3, 0.01, 0.1, 1.0])
    uniforms = torch.tensor([0.0, 2**-24, 0.5, LARGEST])
    mean, std, uniform = torch.cartesian_prod(means, stds, uniforms).T
    given = (mean.requires_grad_(), std.requires_grad_())
    samples = truncated_normal_sample(*given, uniform)
    entropy = truncated_normal_entropy(mean[:, None], std[:, None])
    assert samples.abs().max() <= 1
    assert entropy.isfinite().all()
    for loss in (samples.sum(), entropy.sum()):
        for gradient in torch.autograd.grad(loss, given):
            assert gradient.isfinite().all()
            assert gradient.abs().max() < 2e3


def test_the_ends_of_the_uniforms_are_the_bounds():
    mean, std = torch.tensor([-0.3, 0.5]), torch.tensor([0.9, 0.6])
    for uniform, bound in ((0.0, -1.0), (1.0, 1.0)):
        found = truncated_normal_sample(mean, std, torch.full((2,), uniform))
        torch.testing.assert_close(found, torch.full((2,), bound), rtol=0, atol=1e-6)


def test_entropy_is_that_of_numerical_integration():
    mean, std = torch.tensor([[-1.0, 0.2], [0.8, 1.0], [0.0, -0.5]]), torch.tensor([[0.1, 0.1], [0.4, 1.0], [1.0, 0.3]])
    x = torch.linspace(-1, 1, 200_001, dtype=torch.float64)
    expected = []
    for row in range(3):
        total = 0.0
        for column in range(2):
            z = (x - mean[row, column].double()) / std[row, column].double()
            density = (-0.5 * z**2).exp()
            density = density / torch.trapezoid(density, x)
            total -= torch.trapezoid(torch.xlogy(density, density), x).item()
        expected.append(total)
    torch.testing.assert_close(truncated_normal_entropy(mean, std), torch.tensor(expected), rtol=1e-4, atol=1e-4)


def test_entropy_grows_towards_that_of_the_uniform_distribution():
    mean, std = torch.zeros(3, 1), torch.tensor([[0.5], [1.0], [100.0]])
    entropy = truncated_normal_entropy(mean, std).tolist()
    assert entropy[0] < entropy[1] < entropy[2]
    assert math.isclose(entropy[2], math.log(2), abs_tol=1e-4)


def test_outputs_become_a_mean_inside_and_a_deviation_between_its_bounds():
    mean, std = mean_and_std(torch.tensor([[0.0, -1.5, 1e6, 0.0, 2.0, -1e6]]))
    torch.testing.assert_close(mean, torch.tensor([[0.0, math.tanh(-1.5), 1.0]]))
    torch.testing.assert_close(std, torch.tensor([[0.55, 0.1 + 0.9 / (1 + math.exp(-2)), 0.1]]))


def test_numbers_are_float32_under_autocast():
    outputs = torch.tensor([[0.3, -0.2]], dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        mean, std = mean_and_std(outputs)
        sample, entropy = truncated_normal_sample(mean, std, torch.tensor([[0.2]])), truncated_normal_entropy(mean, std)
        rounded = truncated_normal_sample(mean.bfloat16(), std.bfloat16(), torch.tensor([[0.2]]))
    assert {each.dtype for each in (mean, std, sample, entropy, rounded)} == {torch.float32}
    exact = [each.double() for each in (mean, std)]
    torch.testing.assert_close(sample.double(), quantile(*exact, torch.tensor([[0.2]]).double()), rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(entropy, truncated_normal_entropy(*exact).float())
