import pytest
import torch

from vcse.returns import gae, lambda_returns


def plain_gae(rewards, values, next_values, terminated, ended, discount, gae_lambda):
    advantages, advantage = [0.0] * len(rewards), 0.0
    for t in reversed(range(len(rewards))):
        delta = rewards[t] + discount * next_values[t] * (not terminated[t]) - values[t]
        advantage = delta + discount * gae_lambda * (not ended[t]) * advantage
        advantages[t] = advantage
    return advantages


def test_agrees_with_a_plain_loop():
    generator = torch.Generator().manual_seed(0)
    rewards, values, next_values = torch.randn(3, 4, 5, 8, generator=generator, dtype=torch.float64)
    ended = torch.rand(4, 5, 8, generator=generator) < 0.3
    terminated = ended & (torch.rand(4, 5, 8, generator=generator) < 0.5)
    discount, gae_lambda = torch.tensor([0.99, 0.9, 0.5, 1.0]), torch.tensor([0.95, 0.5, 1.0, 0.0])
    found = gae(
        rewards, values, next_values, terminated, ended, discount=discount[:, None], gae_lambda=gae_lambda[:, None]
    )
    for learner in range(4):
        for environment in range(5):
            place = (learner, environment)
            series = (each[place].tolist() for each in (rewards, values, next_values, terminated, ended))
            expected = plain_gae(*series, discount[learner].item(), gae_lambda[learner].item())
            torch.testing.assert_close(found[place], torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("device", "dtype"), [("meta", torch.float32), ("cpu", torch.bfloat16)])
def test_devices_and_types_without_numpy_are_taken(device, dtype):
    rewards, never = torch.ones(2, 3, device=device, dtype=dtype), torch.zeros(2, 3, device=device, dtype=torch.bool)
    advantages = gae(rewards, rewards, rewards, never, never, discount=0.5, gae_lambda=0.5)
    assert (advantages.shape, advantages.device.type) == ((2, 3), device)


def test_a_time_limit_cuts_the_trace_but_keeps_the_value():
    rewards = values = torch.zeros(2)
    next_values = torch.tensor([10.0, 0.0])
    cut, not_cut = torch.tensor([True, False]), torch.tensor([False, False])
    limited = gae(rewards, values, next_values, not_cut, cut, discount=0.5, gae_lambda=1.0)
    terminal = gae(rewards, values, next_values, cut, cut, discount=0.5, gae_lambda=1.0)
    assert limited.tolist() == [5.0, 0.0]
    assert terminal.tolist() == [0.0, 0.0]


def test_with_lambda_one_advantage_and_value_are_the_discounted_return():
    rewards = torch.tensor([1.0, 2.0, 4.0])
    values = torch.tensor([0.3, -0.2, 0.9])
    next_values = torch.tensor([-0.2, 0.9, 8.0])
    never = torch.zeros(3, dtype=torch.bool)
    advantages = gae(rewards, values, next_values, never, never, discount=0.5, gae_lambda=1.0)
    torch.testing.assert_close(advantages + values, torch.tensor([4.0, 6.0, 8.0]))


def plain_lambda_returns(rewards, values, discounts, bootstrap, decay):
    """Mix the returns of 1, 2, ... steps, each written out."""
    steps, values = len(rewards), [*values, bootstrap]

    def return_of(start, length):
        total, discount = 0.0, 1.0
        for t in range(start, start + length):
            total += discount * rewards[t]
            discount *= discounts[t]
        return total + discount * values[start + length]

    returns = []
    for start in range(steps):
        longest = steps - start
        weights = [(1 - decay) * decay ** (length - 1) for length in range(1, longest)] + [decay ** (longest - 1)]
        returns.append(sum(weight * return_of(start, 1 + number) for number, weight in enumerate(weights)))
    return returns


@pytest.mark.parametrize("decay", [0.0, 0.5, 0.95, 1.0])
def test_lambda_returns_mix_the_returns_of_all_lengths(decay):
    generator = torch.Generator().manual_seed(0)
    rewards, values = torch.randn(2, 7, 3, generator=generator, dtype=torch.float64)
    discounts = torch.rand(7, 3, generator=generator, dtype=torch.float64)
    discounts[4, 1] = 0  # nothing comes after
    bootstrap = torch.randn(3, generator=generator, dtype=torch.float64)
    found = lambda_returns(rewards, values, discounts, bootstrap, decay)
    for column in range(3):
        series = [each[:, column].tolist() for each in (rewards, values, discounts)]
        expected = plain_lambda_returns(*series, bootstrap[column].item(), decay)
        torch.testing.assert_close(found[:, column], torch.tensor(expected, dtype=torch.float64))


def test_lambda_returns_are_values_plus_generalised_advantages():
    generator = torch.Generator().manual_seed(1)
    rewards, values = torch.randn(2, 6, 4, generator=generator, dtype=torch.float64)
    bootstrap = torch.randn(4, generator=generator, dtype=torch.float64)
    found = lambda_returns(rewards, values, torch.full_like(rewards, 0.9), bootstrap, 0.7)
    next_values, never = torch.cat((values[1:], bootstrap[None])), torch.zeros(4, 6, dtype=torch.bool)
    given = (rewards.T, values.T, next_values.T.contiguous(), never, never)
    torch.testing.assert_close(found.T, values.T + gae(*given, discount=0.9, gae_lambda=0.7))


def test_gradients_of_lambda_returns_reach_rewards_and_values_that_come_later():
    rewards, values = torch.ones(3, 1, requires_grad=True), torch.zeros(3, 1, requires_grad=True)
    bootstrap = torch.zeros(1, requires_grad=True)
    returns = lambda_returns(rewards, values, torch.full((3, 1), 0.5), bootstrap, 0.5)
    of_rewards, of_values, of_bootstrap = torch.autograd.grad(returns[0].sum(), (rewards, values, bootstrap))
    assert of_rewards.flatten().tolist() == [1, 0.25, 0.0625]
    assert of_values.flatten().tolist() == [0, 0.25, 0.0625]
    assert of_bootstrap.tolist() == [0.03125]
