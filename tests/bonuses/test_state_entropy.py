import pytest
import torch

from vcse.bonuses import FeatureMemory, MatchedStateEntropy, NoNormalizer, StateEntropy
from vcse.estimators import state_entropy_reward

FEATURES = torch.randn(3, 40, 6, generator=torch.Generator().manual_seed(1))  # learners, batch, dimensions


def make(reading, learners=3, capacity=100):
    memory = FeatureMemory(capacity, 6, learners=learners) if reading in ("release-a2c", "re3") else None
    return StateEntropy(k=5, reading=reading, learners=learners, memory=memory)


READINGS = ["paper", "clean", "release-a2c", "release-drqv2", "release-sac", "release-mwm", "re3"]


def test_paper_is_the_reward_over_its_batch_deviation():
    raw = state_entropy_reward(FEATURES, k=5)
    torch.testing.assert_close(make("paper")(FEATURES).reward, raw / raw.std(-1, keepdim=True))


def test_release_a2c_averages_the_five_smallest_with_itself_in_the_memory():
    bonus = StateEntropy(k=5, reading="release-a2c", memory=FeatureMemory(60, 6), normalizer=NoNormalizer())
    first, second = FEATURES[0], FEATURES[1]
    bonus(first)
    pool = torch.cat((first, second))[-60:]
    nearest = torch.cdist(second.double(), pool.double()).sort(-1).values[:, :5]
    torch.testing.assert_close(bonus(second).reward.double(), torch.log(1 + nearest.mean(-1)), rtol=1e-5, atol=1e-6)


def test_re3_divides_before_the_logarithm_and_the_release_after_it():
    released, upstream = make("release-a2c"), make("re3")
    after, before = released(FEATURES), upstream(FEATURES)
    assert torch.equal(after.radius, before.radius)
    deviation_of_rewards = released.normalizer.variance.sqrt().unsqueeze(-1)
    torch.testing.assert_close(after.reward, torch.log(1 + after.radius) / deviation_of_rewards)
    deviation_of_distances = upstream.normalizer.variance.sqrt().unsqueeze(-1)
    torch.testing.assert_close(before.reward, torch.log(1 + before.radius / deviation_of_distances))


@pytest.mark.parametrize("reading", READINGS)
def test_a_learner_axis_equals_a_loop(reading):
    together, apart = make(reading), [make(reading, learners=None) for _ in range(3)]
    for features in (FEATURES, FEATURES.flip(0) + 1, FEATURES * 2):
        expected = torch.stack([bonus(own).reward for bonus, own in zip(apart, features, strict=True)])
        assert torch.equal(together(features).reward, expected)


@pytest.mark.parametrize("reading", READINGS)
def test_state_dict_continues_where_it_was(reading):
    original, restored = make(reading, capacity=70), make(reading, capacity=70)
    for scale in (1, 2, 3):
        original(FEATURES * scale)
    restored.load_state_dict(original.state_dict())
    assert torch.equal(original(FEATURES + 1).reward, restored(FEATURES + 1).reward)


def test_a_novel_state_earns_more_than_a_repeated_one():
    features = torch.zeros(30, 6)
    features[0] = 5.0
    for bonus in (StateEntropy(k=3), MatchedStateEntropy(k=3)):
        reward = bonus(features).reward
        assert (reward[0] > reward[1:]).all()


def test_matched_is_the_logarithm_of_twice_the_distance():
    distance = torch.cdist(FEATURES.double(), FEATURES.double()).sort(-1).values[..., 3]
    expected = torch.log(2 * distance + 1e-5).float()
    torch.testing.assert_close(MatchedStateEntropy(k=3, reading="release-a2c")(FEATURES).reward, expected)
    expected = torch.log(2 * torch.cdist(FEATURES, FEATURES).sort(-1).values[..., 3] + 1)
    torch.testing.assert_close(
        MatchedStateEntropy(k=4, reading="release-sac", log_offset=1.0)(FEATURES).reward, expected, rtol=1e-4, atol=1e-4
    )


def test_a_nan_does_not_enter_the_memory():
    bonus = make("release-a2c", learners=None)
    bonus(FEATURES[0])
    broken = FEATURES[1].clone()
    broken[0, 0] = torch.nan
    with pytest.raises(ValueError, match="features must be finite, but 1 of its 240"):
        bonus(broken)
    assert torch.isfinite(bonus(FEATURES[1]).reward).all()


def test_a_reading_that_needs_a_memory_asks_for_it():
    with pytest.raises(ValueError, match=r"pass memory=FeatureMemory\(10000"):
        StateEntropy(k=5, reading="release-a2c")


def test_a_memory_with_too_few_for_k_is_named():
    bonus = StateEntropy(k=5, reading="release-a2c", memory=FeatureMemory(100, 6))
    with pytest.raises(ValueError, match="k=5 needs at least 6 points in pool, got 4"):
        bonus(FEATURES[0, :4])


def test_unknown_reading_is_named():
    with pytest.raises(ValueError, match="got 'folklore'"):
        StateEntropy(k=5, reading="folklore")
