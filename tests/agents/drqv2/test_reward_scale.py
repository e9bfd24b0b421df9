import pytest
import torch

from vcse.agents.drqv2.reward_scale import RewardScale
from vcse.replay.images import ImageReplay

CPU = torch.device("cpu")
GAMMA, N = 0.9, 3
KINDS = ("none", "mean", "n_step_mean", "centered")


def uniform(*shape, seed=0):
    return torch.rand(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def summed(rewards):
    """Compute the discounted sum of a list of rewards."""
    return sum(GAMMA**step * reward for step, reward in enumerate(rewards))


def some_returns(constant=0.0):
    """Return rewards of four transitions: two over n steps, one over two, and one that ends the task in its second."""
    rewards = [[each + constant for each in row] for row in uniform(4, N).tolist()]
    rewards[2], rewards[3] = rewards[2][:2], rewards[3][:2]
    discounts = [GAMMA**N, GAMMA**N, GAMMA**2, 0.0]
    first = torch.tensor([row[0] for row in rewards])
    return rewards, first, torch.tensor([summed(row) for row in rewards]), torch.tensor(discounts)


def taken(kind, *batches):
    """Return a scale that has seen batches of first rewards and returns."""
    scale = RewardScale(kind, GAMMA, CPU)
    for first, returns in batches:
        scale.update(first, returns)
    return scale


@pytest.mark.parametrize("kind", ["mean", "n_step_mean"])
def test_rewards_and_returns_are_divided_by_the_running_mean_of_their_size(kind):
    batches = [(uniform(5, seed=seed).float() - 0.7, 3 * uniform(5, seed=9 + seed).float()) for seed in range(4)]
    size = 1.0
    for first, returns in batches:
        sized = first if kind == "mean" else returns
        size = 0.99 * size + 0.01 * sum(abs(each) for each in sized.tolist()) / 5
    scale = taken(kind, *batches)
    assert scale.magnitude.item() == pytest.approx(size, rel=1e-6)
    first, returns = batches[-1]
    torch.testing.assert_close(scale.scale(first), first / size)
    torch.testing.assert_close(scale.scale_returns(returns, torch.full((5,), GAMMA**N)), returns / size)


def test_without_a_normalization_rewards_are_as_they_were():
    _, first, returns, discounts = some_returns()
    scale = taken("none", (first, returns))
    assert (scale.magnitude, scale.scale(first), scale.scale_returns(returns, discounts)) == (1.0, first, returns)


def test_centred_returns_are_sums_of_centred_rewards_whatever_their_length():
    rewards, first, returns, discounts = some_returns()
    earlier = uniform(6, seed=3).float() - 0.4
    scale = taken("centered", (earlier, earlier), (first, returns))
    size = 0.99 * (0.99 + 0.01 * earlier.abs().mean().item()) + 0.01 * first.abs().mean().item()
    mean = (0.99 * earlier.mean().item() + first.mean().item()) / 1.99
    assert (scale.magnitude.item(), scale.mean.item()) == (pytest.approx(size), pytest.approx(mean))
    expected = [summed([(each - mean) / size for each in row]) for row in rewards]
    # After its end the task pays nothing, which is less than the mean, for ever.
    expected[3] += GAMMA**2 * summed([(0 - mean) / size] * 400)
    torch.testing.assert_close(scale.scale_returns(returns, discounts), torch.tensor(expected))


@pytest.mark.parametrize("constant", [2.5, -2.5, 0.01, 0.0])
def test_centred_returns_of_a_constant_reward_are_zero_from_the_first_update(constant):
    first = torch.full((4,), constant)
    discounts = torch.tensor([GAMMA**N, GAMMA**2, GAMMA, 1.0])
    returns = constant * (1 - discounts) / (1 - GAMMA)
    scale = RewardScale("centered", GAMMA, CPU)
    for _ in range(3):
        scale.update(first, returns)
        torch.testing.assert_close(scale.scale_returns(returns, discounts), torch.zeros(4), rtol=0, atol=1e-6)


@pytest.mark.parametrize("constant", [3.0, -3.0])
def test_a_constant_in_every_reward_changes_nothing_but_the_scale_of_centred_returns(constant):
    _, first, returns, discounts = some_returns()
    _, more_first, more_returns, _ = some_returns(constant)
    alive = discounts > 0  # a task that is over does not pay the constant any more
    plain, shifted = taken("centered", (first, returns)), taken("centered", (more_first, more_returns))
    found = (
        each.magnitude * each.scale_returns(paid, discounts)
        for each, paid in ((plain, returns), (shifted, more_returns))
    )
    one, other = (each[alive] for each in found)
    torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert shifted.magnitude > plain.magnitude
    assert not torch.allclose(plain.scale_returns(returns, discounts), returns)


def solved(rewards, follows, ends, target):
    """Return Q of a little task, solved by its own Bellman equation."""
    q_values = torch.zeros_like(rewards)
    for _ in range(2000):
        future = q_values.max(1).values[follows]
        discounts = torch.where(ends, 0.0, GAMMA)
        q_values = target(rewards, discounts) + discounts * future
    return q_values


@pytest.mark.usefixtures("without_type_checks")
@pytest.mark.parametrize("offset", [-1.0, 0.0, 1.0])
def test_where_episodes_end_early_centring_moves_all_values_alike_and_no_policy(offset):
    """Five states, three actions; ending early is wrong or right by the offset."""
    drawn = torch.Generator().manual_seed(5)
    rewards = torch.rand(5, 3, generator=drawn, dtype=torch.float64) - 0.5 + offset
    follows = torch.randint(5, (5, 3), generator=drawn)
    ends = torch.rand(5, 3, generator=drawn) < 0.3
    assert ends.any()
    scale = taken("centered", (rewards.float().flatten(), rewards.float().flatten()))
    plain = solved(rewards, follows, ends, lambda rewards, _: rewards)
    centred = solved(rewards, follows, ends, scale.scale_returns)
    assert torch.equal(plain.argmax(1), centred.argmax(1))
    moved = plain - scale.magnitude.double() * centred
    torch.testing.assert_close(moved, (scale.mean.double() / (1 - GAMMA)).expand(5, 3), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("terminated", [False, True], ids=["time limit", "end of the task"])
def test_discounts_of_the_replay_say_how_long_its_returns_are(terminated):
    """Of a reward of 1 at each step nothing is left, but for what the end of the task cuts off."""
    replay = ImageReplay(
        capacity=20,
        most_steps=5,
        image_shape=(3, 4, 4),
        action_size=1,
        n_step=N,
        discount=GAMMA,
        device="cpu",
    )
    frame = torch.zeros(3, 4, 4, dtype=torch.uint8)
    replay.begin(frame)
    for step in range(5):
        replay.add(torch.zeros(1), 1.0, terminated and step == 4, frame)
    batch = replay.sample(torch.arange(replay.size))
    scale = taken("centered", (batch.first_rewards, batch.rewards))
    expected = torch.zeros(3)
    if terminated:
        expected[-1] = -(GAMMA**N) / (1 - GAMMA)
    torch.testing.assert_close(scale.scale_returns(batch.rewards, batch.discounts), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", KINDS)
def test_state_goes_on_bit_for_bit_and_has_no_more_than_the_normalization_needs(kind):
    scale, other = RewardScale(kind, GAMMA, CPU), RewardScale(kind, GAMMA, CPU)
    batches = [(uniform(5, seed=seed).float(), uniform(5, seed=9 + seed).float()) for seed in range(4)]
    discounts = torch.full((5,), GAMMA**N)
    for batch in batches[:2]:
        scale.update(*batch)
    assert set(scale.state_dict()) == {"reward_scale"} | ({"reward_mean"} if kind == "centered" else set())
    other.load_state_dict({**scale.state_dict(), "updates": 2})
    for batch in batches[2:]:
        for each in (scale, other):
            each.update(*batch)
        assert torch.equal(scale.scale_returns(batch[1], discounts), other.scale_returns(batch[1], discounts))
    saved = {name: each.clone() for name, each in scale.state_dict().items()}
    scale.update(*batches[0])
    assert all(torch.equal(other.state_dict()[name], each) for name, each in saved.items())
