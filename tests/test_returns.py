import torch

from vcse.returns import gae


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
