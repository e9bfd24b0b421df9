from collections import Counter
from itertools import pairwise

import pytest
import torch

from vcse.bonuses import EpisodicCounts, counts


def rollout(number=0, *, environments=3, steps=40, places=4, dimensions=2):
    """A walk among few places that many dimensions tell apart, with an episode that ends now and then."""
    generator = torch.Generator().manual_seed(number)
    points = torch.randn(places, dimensions, generator=generator)
    where = torch.randint(0, places, (environments, steps), generator=generator)
    starts = torch.rand(environments, steps, generator=generator) < 0.1
    return where, points[where], starts


def counted(where, starts):
    """Count with a dictionary for each episode, state by state."""
    found = torch.zeros(where.shape, dtype=torch.int64)
    for environment, (mine, begins) in enumerate(zip(where.tolist(), starts.tolist(), strict=True)):
        visits = Counter()
        for step, (place, begin) in enumerate(zip(mine, begins, strict=True)):
            visits = Counter() if begin else visits
            visits[place] += 1
            found[environment, step] = visits[place]
    return found


def in_pieces(bonus, features, starts, bounds):
    """Pay for a rollout in several, one after the other."""
    paid = [
        bonus(features[:, a:b].flatten(0, 1), episode_starts=starts[:, a:b].flatten()).reward.view(len(features), -1)
        for a, b in pairwise(bounds)
    ]
    return torch.cat(paid, 1)


@pytest.mark.parametrize("bounds", [(0, 40), (0, 8, 16, 24, 32, 40), (0, 1, 2, 17, 40)])
@pytest.mark.parametrize("power", [0.5, 1.0])
def test_rewards_are_those_of_a_dictionary_however_rollouts_are_cut(bounds, power):
    where, features, starts = rollout()
    paid = in_pieces(EpisodicCounts(environments=3, power=power), features, starts, bounds)
    assert torch.equal(paid, counted(where, starts).float().pow(-power))
    assert paid.min() < 0.5
    assert (paid == 1).sum() > 3


def test_comparing_a_few_at_once_gives_the_same(monkeypatch):
    where, features, starts = rollout()
    monkeypatch.setattr(counts, "MOST_COMPARED", 1)
    paid = in_pieces(EpisodicCounts(environments=3), features, starts, (0, 7, 40))
    assert torch.equal(paid, counted(where, starts).float().rsqrt())


@pytest.mark.parametrize("bounds", [(0, 12), (0, 1, 5, 12)])
def test_only_the_last_steps_are_remembered(bounds):
    features, starts = torch.zeros(1, 12, 2), torch.zeros(1, 12, dtype=torch.bool)
    paid = in_pieces(EpisodicCounts(memory=3, power=1.0), features, starts, bounds)
    assert (1 / paid).tolist() == [[1, 2, 3, 4, 4, 4, 4, 4, 4, 4, 4, 4]]


def test_equal_states_are_those_whose_every_bit_is_equal_but_for_the_sign_of_zero():
    states = torch.tensor([[0.0, 1.0], [1.0, 0.0], [-0.0, 1.0], [0.0, 1.0 + 2**-23], [1e-30, 1.0]])
    starts = torch.tensor([True, False, False, False, False])
    for dtype in (torch.float32, torch.float64):
        paid = EpisodicCounts(power=1.0)(states.to(dtype), episode_starts=starts).reward
        assert (1 / paid).tolist() == [1, 1, 2, 1, 1]
    nearer = torch.tensor([[1.0], [1.0 + 2**-40]], dtype=torch.float64)  # alike in float32
    assert EpisodicCounts()(nearer, episode_starts=starts[:2]).reward.tolist() == [1, 1]


def test_many_states_are_told_apart():
    grid = torch.cartesian_prod(*[torch.arange(20.0)] * 3)  # 8,000 states of small whole numbers
    paid = EpisodicCounts(memory=8000)(grid, episode_starts=torch.zeros(8000, dtype=torch.bool)).reward
    assert paid.eq(1).all()


def test_the_same_state_of_another_environment_or_episode_is_another():
    bonus = EpisodicCounts(environments=4)
    starts = torch.tensor([False, False, False, False])
    assert bonus(torch.ones(4, 2), episode_starts=starts).reward.eq(1).all()
    again = bonus(torch.ones(4, 2), episode_starts=torch.tensor([False, True, False, True])).reward
    torch.testing.assert_close(again, torch.tensor([0.5, 1.0, 0.5, 1.0]).sqrt())


def test_hashed_states_are_those_on_the_same_side_of_all_projections():
    bonus = EpisodicCounts(hash_bits=6, dimensions=3, power=1.0, seed=4)
    states = torch.randn(200, 3, generator=torch.Generator().manual_seed(0))
    starts = torch.zeros(200, dtype=torch.bool)
    sides = (states.double() @ bonus.projections.double() > 0).long()
    where = (sides * 2 ** torch.arange(6)).sum(-1)
    paid = bonus(states, episode_starts=starts).reward
    assert torch.equal(1 / paid, (1 / counted(where[None], starts[None])[0].float()).reciprocal())
    assert 6 < len(where.unique()) <= 64
    other = EpisodicCounts(hash_bits=6, dimensions=3, seed=5)
    assert not torch.equal(other.projections, bonus.projections)


def test_learners_count_for_themselves():
    walks = [rollout(number) for number in range(3)]
    features, starts = (torch.stack([walk[part].flatten(0, 1) for walk in walks]) for part in (1, 2))
    paid = EpisodicCounts(environments=3, learners=3)(features, episode_starts=starts).reward
    for (where, _, begins), mine in zip(walks, paid, strict=True):
        assert torch.equal(mine, counted(where, begins).float().rsqrt().flatten())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"environments": 0}, "environments must be at least 1, got 0"),
        ({"power": 0.0}, r"power must be finite and above 0, got 0\.0"),
        ({"memory": 0}, "memory must be at least 1, got 0"),
        ({"hash_bits": 63, "dimensions": 2}, "hash_bits must be at most 62, got 63"),
        ({"hash_bits": 8}, "dimensions of the features must be given with hash_bits=8"),
    ],
)
def test_what_it_cannot_be_is_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        EpisodicCounts(**changes)


def test_what_does_not_fit_is_refused(without_type_checks):
    features, starts = torch.rand(6, 2), torch.zeros(6, dtype=torch.bool)
    with pytest.raises(ValueError, match="a batch of 6 states is no rollout of environments=4"):
        EpisodicCounts(environments=4)(features, episode_starts=starts)
    with pytest.raises(ValueError, match=r"episode_starts must have shape \(6,\) .*, got \(5,\)"):
        EpisodicCounts()(features, episode_starts=starts[:5])
    with pytest.raises(ValueError, match=r"as a tensor of True and False, got torch\.float32"):
        EpisodicCounts()(features, episode_starts=starts.float())
    with pytest.raises(ValueError, match="as a tensor of True and False, got none"):
        EpisodicCounts()(features, episode_starts=None)
    with pytest.raises(ValueError, match="features of 2 dimensions do not fit a bonus that was made for 3"):
        EpisodicCounts(hash_bits=4, dimensions=3)(features, episode_starts=starts)
    bonus = EpisodicCounts()
    features[1, 1] = torch.inf
    with pytest.raises(ValueError, match="features must be finite, but 1 of its 12 entries"):
        bonus(features, episode_starts=starts)
    assert not bonus.visits.any()
