from dataclasses import replace

import numpy as np
import pytest
import torch

from vcse.bonuses import Bonus, FeatureMemory, MatchedStateEntropy, NoNormalizer, ReleasedRunning, StateEntropy
from vcse.estimators import (
    CONDITIONAL_READINGS,
    STATE_ENTROPY_READINGS,
    kth_neighbor_distance,
    state_entropy_reward,
)

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


def test_duplicates_in_a_large_memory_change_no_bit():
    generator = torch.Generator().manual_seed(4)
    table = torch.randn(3, 60, 6, generator=generator)
    bonus = make("release-a2c", capacity=2000)
    for _ in range(20):
        # Squared, so that some are met often and some hardly ever.
        which = (torch.rand(3, 128, generator=generator).square() * 60).long()
        features = table.gather(1, which[..., None].expand(-1, -1, 6))
        found = bonus(features).radius
        expected = kth_neighbor_distance(
            features, k=5, pool=bonus.memory.pool(), pool_holds_features=True, self_in_k=True, average=True
        )
        assert torch.equal(found, expected)
    assert bonus.memory.distinct_pool()[1] is not None


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
    torch.testing.assert_close(MatchedStateEntropy(k=3, reading="release-a2c", learners=3)(FEATURES).reward, expected)
    expected = torch.log(2 * torch.cdist(FEATURES, FEATURES).sort(-1).values[..., 3] + 1)
    torch.testing.assert_close(
        MatchedStateEntropy(k=4, reading="release-sac", log_offset=1.0, learners=3)(FEATURES).reward,
        expected,
        rtol=1e-4,
        atol=1e-4,
    )


def with_first(features, number):
    return features.index_fill(0, torch.tensor(0), number)


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (with_first(FEATURES[1], torch.nan), "features must be finite, but 6 of its 240"),
        (with_first(FEATURES[1], 1e38), r"features reach 1e\+38"),
        (torch.randn(101, 6), "a batch of 101 features does not fit a memory of 100"),
        (FEATURES[1].double(), r"features has dtype torch\.float64 but the memory holds torch\.float32"),
        (FEATURES[1].long(), r"features must be a floating-point tensor, got torch\.int64"),
        (FEATURES[1, :, 0], r"features must have shape \[..., points, dimensions\], got \(40,\)"),
        (FEATURES[1, :1], "a standard deviation needs a batch of at least 2, got 1"),
        (FEATURES, r"features of shape \(3, 40, 6\) do not fit a bonus with learners=None"),
    ],
)
def test_a_refused_batch_leaves_memory_and_statistics_alone(features, message, without_type_checks):
    bonus, undisturbed = make("release-a2c", learners=None), make("release-a2c", learners=None)
    for each in (bonus, undisturbed):
        each(FEATURES[0])
    with pytest.raises(ValueError, match=message):
        bonus(features)
    assert torch.equal(bonus(FEATURES[2]).reward, undisturbed(FEATURES[2]).reward)
    assert torch.equal(bonus.memory.pool(), undisturbed.memory.pool())


def test_a_k_that_the_memory_cannot_answer_leaves_it_alone():
    bonus = StateEntropy(k=5, reading="release-a2c", memory=FeatureMemory(100, 6))
    with pytest.raises(ValueError, match="k=5 needs at least 6 points in memory, got 4"):
        bonus(FEATURES[0, :4])
    assert bonus.memory.filled == 0


@pytest.mark.parametrize("reading", READINGS)
def test_float64_features_stay_what_they_are(reading):
    original, restored = make(reading, capacity=70), make(reading, capacity=70)
    expected = make(reading, capacity=70)
    for scale in (1, 2):
        output = original(FEATURES.double() * scale)
        torch.testing.assert_close(output.reward.float(), expected(FEATURES * scale).reward, rtol=1e-4, atol=1e-5)
    assert output.reward.dtype == torch.float64
    restored.load_state_dict(original.state_dict())
    features = FEATURES.double() / 3
    assert torch.equal(original(features).reward, restored(features).reward)


def test_a_reading_that_needs_a_memory_asks_for_it():
    with pytest.raises(ValueError, match=r"pass memory=FeatureMemory\(10000"):
        StateEntropy(k=5, reading="release-a2c")


def test_a_reading_of_ones_own_is_taken_with_a_normaliser():
    own = replace(STATE_ENTROPY_READINGS["paper"], log_offset=0.5)
    found = StateEntropy(k=5, reading=own, normalizer=NoNormalizer(), learners=3)(FEATURES).reward
    assert torch.equal(found, state_entropy_reward(FEATURES, k=5, log_offset=0.5))
    with pytest.raises(ValueError, match=r"pass normalizer, such as RunningStd\(learners=3\)"):
        StateEntropy(k=5, reading=own, learners=3)
    before = StateEntropy(
        k=5,
        reading=STATE_ENTROPY_READINGS["re3"],
        normalizer=ReleasedRunning("std", learners=3),
        normalizes_before_log=True,
        memory=FeatureMemory(100, 6, learners=3),
        learners=3,
    )
    assert torch.equal(before(FEATURES).reward, make("re3")(FEATURES).reward)


def test_matched_takes_a_reading_of_ones_own():
    own = replace(CONDITIONAL_READINGS["paper"], self_in_k=True, log_offset=0.5)
    expected = torch.log(2 * kth_neighbor_distance(FEATURES, k=3) + 0.5)
    assert torch.equal(MatchedStateEntropy(k=4, reading=own, learners=3)(FEATURES).reward, expected)


@pytest.mark.parametrize(
    ("make_bonus", "message"),
    [
        (lambda: StateEntropy(k=5, reading="folklore"), "got 'folklore'"),
        (lambda: StateEntropy(k=0), "k must be at least 1, got 0"),
        (lambda: StateEntropy(k=2.0), r"k must be an integer, got 2\.0"),
        (lambda: MatchedStateEntropy(k=-1), "k must be at least 1, got -1"),
        (lambda: StateEntropy(k=1, reading="release-sac"), "k=1 with self_in_k=True .* the same constant"),
        (lambda: MatchedStateEntropy(k=1, reading="release-mwm"), "k=1 with self_in_k=True .* the same constant"),
        (lambda: MatchedStateEntropy(k=5, log_offset=-1.0), r"log_offset must be finite and not negative, got -1\.0"),
        (lambda: StateEntropy(k=5, check_finite="no"), "check_finite must be True or False, got 'no'"),
        (lambda: MatchedStateEntropy(k=5, check_finite=1), "check_finite must be True or False, got 1"),
        (lambda: StateEntropy(k=5, normalizes_before_log=1), "normalizes_before_log must be True or False, got 1"),
        (lambda: StateEntropy(k=5, learners=0), "learners must be at least 1, got 0"),
        (lambda: MatchedStateEntropy(k=5, learners=2.0), r"learners must be an integer, got 2\.0"),
        (lambda: StateEntropy(k=5, normalizer="batch-std"), "normalizer must be a Normalizer, got a str"),
        (lambda: StateEntropy(k=5, memory=torch.zeros(4, 6)), "memory must be a FeatureMemory, got a Tensor"),
        (
            lambda: StateEntropy(k=5, memory=FeatureMemory(9, 6, learners=3)),
            r"a memory of shape \(3, 9, 6\) does not fit a bonus with learners=None",
        ),
        (
            lambda: StateEntropy(
                k=5,
                reading=replace(STATE_ENTROPY_READINGS["paper"], log_offset=0.0),
                normalizer=NoNormalizer(),
                memory=FeatureMemory(9, 6),
            ),
            "log_offset=0 refuses duplicates",
        ),
    ],
)
def test_bad_settings_are_named(make_bonus, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        make_bonus()


def test_k_and_learners_may_be_whole_numbers_of_any_type(without_type_checks):
    bonus = StateEntropy(k=np.int64(5), reading="paper", learners=np.int64(3))
    assert torch.equal(bonus(FEATURES).reward, make("paper")(FEATURES).reward)


def test_a_bonus_without_a_forward_says_so():
    class Unfinished(Bonus):
        pass

    with pytest.raises(NotImplementedError, match="Unfinished does not define forward"):
        Unfinished()(FEATURES)
