import math
from dataclasses import replace

import pytest
import torch

from vcse.bonuses import (
    BatchStd,
    MatchedStateEntropy,
    NoBonus,
    RawValues,
    RewardConditionalStateEntropy,
    RunningStandardized,
    ValueConditionalStateEntropy,
)
from vcse.estimators import CONDITIONAL_READINGS, value_conditional_reward

GENERATOR = torch.Generator().manual_seed(2)
FEATURES = torch.randn(3, 40, 6, generator=GENERATOR)  # learners, batch, dimensions
VALUES = 5 + 2 * torch.randn(3, 40, generator=GENERATOR)
READINGS = ["paper", "clean", "release-a2c", "release-drqv2", "release-sac", "release-mwm"]


@pytest.mark.parametrize(
    ("reading", "epsilon"), [("paper", 0.0), ("clean", 0.0), ("release-a2c", 1e-5), ("release-mwm", 1e-3)]
)
def test_values_are_standardised_over_the_batch_first(reading, epsilon):
    standardised = torch.nn.functional.layer_norm(VALUES, (40,), eps=epsilon)
    expected = value_conditional_reward(FEATURES, standardised, k=3, reading=reading)
    bonus = ValueConditionalStateEntropy(k=3, reading=reading, learners=3)
    torch.testing.assert_close(bonus(FEATURES, values=VALUES).reward, expected)


def test_deviations_override_the_reading():
    bonus = ValueConditionalStateEntropy(
        k=3,
        reading="paper",
        nv_radius="joint",
        self_in_k=True,
        self_in_nv=True,
        log_offset=1.0,
        value_normalizer=RawValues(),
        learners=3,
    )
    expected = value_conditional_reward(
        FEATURES, VALUES, k=3, nv_radius="joint", self_in_k=True, self_in_nv=True, log_offset=1.0
    )
    assert torch.equal(bonus(FEATURES, values=VALUES).reward, expected)


def test_release_pays_a_batch_of_duplicates_what_the_release_pays():
    same = torch.ones(128, 64)
    reward = ValueConditionalStateEntropy(k=3, reading="release-a2c")(same, values=same[:, 0]).reward
    torch.testing.assert_close(reward, torch.full((128,), -0.5772157 / 64 + math.log(1e-5)))


def test_far_away_value_bands_do_not_interact():
    # States of the second band lie between those of the first, but their values are far off.
    features, values = FEATURES[0], torch.zeros(40)
    alone = ValueConditionalStateEntropy(k=3, reading="clean", value_normalizer=RawValues())
    expected = alone(features, values=values).reward
    both = alone(torch.cat((features, features + 0.01)), values=torch.cat((values, values + 1000.0))).reward
    assert torch.equal(both[:40], expected)


def test_without_spread_in_the_values_radius_is_that_of_the_matched_control():
    output = ValueConditionalStateEntropy(k=3, learners=3)(FEATURES, values=torch.zeros(3, 40))
    assert torch.equal(output.radius, MatchedStateEntropy(k=3, learners=3)(FEATURES).radius)


def test_rcse_is_vcse_with_rewards():
    expected = ValueConditionalStateEntropy(k=3, reading="release-drqv2", learners=3)(FEATURES, values=VALUES)
    output = RewardConditionalStateEntropy(k=3, reading="release-drqv2", learners=3)(FEATURES, rewards=VALUES)
    assert torch.equal(output.reward, expected.reward)


def test_rcse_logs_rewards_by_their_name():
    shown = RewardConditionalStateEntropy(k=3, learners=3)(FEATURES, rewards=VALUES).diagnostics()
    expected = ValueConditionalStateEntropy(k=3, learners=3)(FEATURES, values=VALUES).diagnostics()
    assert not [name for name in shown if "value" in name]
    for name in ("decided_by_{}_share", "{}_count_mean", "{}_mean", "{}_std"):
        assert torch.equal(shown[name.format("reward")], expected[name.format("value")])


@pytest.mark.parametrize(("features", "values", "learners"), [(FEATURES, VALUES, 3), (FEATURES[0], VALUES[0], None)])
def test_a_trailing_axis_of_one_is_taken_off(features, values, learners):
    expected = ValueConditionalStateEntropy(k=3, learners=learners)(features, values=values)
    output = ValueConditionalStateEntropy(k=3, learners=learners)(features, values=values.unsqueeze(-1))
    assert torch.equal(output.reward, expected.reward)
    assert torch.equal(output.values, values)
    rewarded = RewardConditionalStateEntropy(k=3, learners=learners)(features, rewards=values.unsqueeze(-1))
    assert torch.equal(rewarded.reward, expected.reward)


@pytest.mark.parametrize("reading", ["paper", "release-a2c"])
@pytest.mark.parametrize(
    ("features", "values"),
    [
        (FEATURES.bfloat16(), VALUES),  # what autocast gives
        (FEATURES, VALUES.bfloat16()),
        (FEATURES.half(), VALUES),
        (FEATURES.half(), VALUES.bfloat16()),
    ],
)
def test_features_and_values_of_two_dtypes_are_those_that_are_computed_in(features, values, reading):
    def of_both(bonus, features, values):
        given = {"values": values} if bonus.needs_values else {"rewards": values}
        return bonus(features, **given)

    for kind in (ValueConditionalStateEntropy, RewardConditionalStateEntropy):
        bonus = kind(k=3, reading=reading, learners=3)
        output, expected = of_both(bonus, features, values), of_both(bonus, features.float(), values.float())
        assert output.reward.dtype == torch.float32
        assert torch.equal(output.reward, expected.reward)
        assert output.diagnostics().keys() == expected.diagnostics().keys()
        for name, number in expected.diagnostics().items():
            assert torch.equal(output.diagnostics()[name], number)


def test_values_of_any_scale_condition_alike():
    expected = ValueConditionalStateEntropy(k=3, learners=3)(FEATURES, values=VALUES)
    output = ValueConditionalStateEntropy(k=3, learners=3)(FEATURES, values=2.0**83 * VALUES)
    assert torch.equal(output.reward, expected.reward)


def test_a_reading_of_ones_own_is_taken_with_a_normaliser():
    own = replace(CONDITIONAL_READINGS["clean"], self_in_nv=True, log_offset=0.5)
    expected = value_conditional_reward(FEATURES, VALUES, k=3, reading=own)
    bonus = ValueConditionalStateEntropy(k=3, reading=own, value_normalizer=RawValues(), learners=3)
    assert torch.equal(bonus(FEATURES, values=VALUES).reward, expected)
    ablation = RewardConditionalStateEntropy(k=3, reading=own, reward_normalizer=RawValues(), learners=3)
    assert torch.equal(ablation(FEATURES, rewards=VALUES).reward, expected)


@pytest.mark.parametrize("reading", READINGS)
def test_a_learner_axis_equals_a_loop(reading):
    together, alone = (ValueConditionalStateEntropy(k=3, reading=reading, learners=learners) for learners in (3, None))
    expected = torch.stack([alone(f, values=v).reward for f, v in zip(FEATURES, VALUES, strict=True)])
    assert torch.equal(together(FEATURES, values=VALUES).reward, expected)


def test_running_value_statistics_are_in_the_state_dict():
    def make():
        return ValueConditionalStateEntropy(k=3, value_normalizer=RunningStandardized(learners=3), learners=3)

    original, restored = make(), make()
    original(FEATURES, values=VALUES)
    restored.load_state_dict(original.state_dict())
    expected = original(FEATURES, values=VALUES + 3).reward
    assert torch.equal(restored(FEATURES, values=VALUES + 3).reward, expected)
    assert not torch.equal(make()(FEATURES, values=VALUES + 3).reward, expected)


def test_no_gradient_flows_through_a_bonus():
    features, values = FEATURES.clone().requires_grad_(), VALUES.clone().requires_grad_()
    output = ValueConditionalStateEntropy(k=3, learners=3)(features, values=2 * values)
    assert not output.reward.requires_grad
    # A log of these would keep the critic's graph alive.
    assert not any(each.requires_grad for each in output.diagnostics().values())


def test_a_bonus_says_what_it_needs():
    needs = {
        bonus: (bonus.needs_values, bonus.needs_rewards)
        for bonus in (NoBonus, MatchedStateEntropy, ValueConditionalStateEntropy, RewardConditionalStateEntropy)
    }
    assert list(needs.values()) == [(False, False), (False, False), (True, False), (False, True)]


def test_diagnostics_on_a_batch_worked_out_by_hand():
    # Four pairs: two duplicates, one near in state, one far in value.
    features = torch.tensor([[0.0], [0.0], [1.0], [0.0]])
    values = torch.tensor([0.0, 0.0, 0.0, 10.0])
    bonus = ValueConditionalStateEntropy(k=1, reading="clean", value_normalizer=RawValues())
    shown = bonus(features, values=values).diagnostics()
    assert shown["zero_radius_share"] == 0.5
    assert shown["decided_by_value_share"] == 0.25
    assert shown["radius_mean"] == (0 + 0 + 1 + 10) / 4
    assert shown["value_count_mean"] == (0 + 0 + 2 + 0) / 4
    assert shown["value_mean"] == 2.5
    assert shown["bonus_min"] == shown["bonus_min"].clamp(max=math.log(1e-5))


def test_no_bonus_pays_nothing():
    assert torch.equal(NoBonus(learners=3)(FEATURES).reward, torch.zeros(3, 40))


@pytest.mark.parametrize(
    ("bonus", "given", "message"),
    [
        (ValueConditionalStateEntropy(k=3, learners=3), {}, "values is needed"),
        (RewardConditionalStateEntropy(k=3, learners=3), {}, "rewards is needed"),
        (
            ValueConditionalStateEntropy(k=3, learners=3),
            {"values": VALUES[:, :39]},
            r"values must have shape \(3, 40\)",
        ),
        (RewardConditionalStateEntropy(k=3, learners=3), {"rewards": VALUES[0]}, r"rewards must have shape \(3, 40\)"),
        (
            ValueConditionalStateEntropy(k=3, learners=3),
            {"values": VALUES / 0},
            "values must be finite, but 120 of its 120",
        ),
        (
            ValueConditionalStateEntropy(k=40, learners=3),
            {"values": VALUES},
            "k=40 needs at least 41 points in features, got 40",
        ),
        (
            ValueConditionalStateEntropy(k=3, learners=3),
            {"values": VALUES.numpy()},
            "values must be a torch tensor, got a ndarray",
        ),
        (
            ValueConditionalStateEntropy(k=3, learners=3),
            {"values": VALUES.long()},
            "values must be a floating-point tensor",
        ),
        (
            ValueConditionalStateEntropy(k=3, learners=3),
            {"values": VALUES.double()},
            r"values has dtype torch\.float64 but",
        ),
        (
            ValueConditionalStateEntropy(k=3, learners=3),
            {"values": VALUES[..., None, None]},
            r"values must have shape \(3, 40\) .*, got \(3, 40, 1, 1\)",
        ),
        (
            ValueConditionalStateEntropy(k=3, learners=3),
            {"values": VALUES[..., None].expand(3, 40, 2)},
            r"values must have shape \(3, 40\) .*, got \(3, 40, 2\)",
        ),
    ],
)
def test_bad_input_is_named(bonus, given, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        bonus(FEATURES, **given)


@pytest.mark.parametrize("bonus", [NoBonus(), MatchedStateEntropy(k=3), ValueConditionalStateEntropy(k=3)])
@pytest.mark.parametrize(
    ("features", "message"),
    [
        (FEATURES.long(), r"features must be a floating-point tensor, got torch\.int64"),
        (FEATURES.numpy(), "features must be a torch tensor, got a ndarray"),
        (FEATURES[0, 0], r"features must have shape \[..., points, dimensions\], got \(6,\)"),
    ],
)
def test_features_are_looked_at_before_their_values(bonus, features, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        bonus(features, values=VALUES)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ValueConditionalStateEntropy(k=0), "k must be at least 1, got 0"),
        (lambda: RewardConditionalStateEntropy(k="3"), "k must be an integer, got '3'"),
        (lambda: ValueConditionalStateEntropy(k=1, self_in_k=True), "k=1 with self_in_k=True .* the same constant"),
        (lambda: RewardConditionalStateEntropy(k=1, reading="release-sac"), "k=1 with self_in_k=True"),
        (lambda: ValueConditionalStateEntropy(k=3, nv_radius="both"), "nv_radius must be 'value' or 'joint'"),
        (lambda: ValueConditionalStateEntropy(k=3, self_in_nv=1), "self_in_nv must be True or False, got 1"),
        (lambda: ValueConditionalStateEntropy(k=3, log_offset=math.nan), "log_offset must be finite"),
        (lambda: ValueConditionalStateEntropy(k=3, check_finite=None), "check_finite must be True or False, got None"),
        (
            lambda: ValueConditionalStateEntropy(k=3, value_normalizer=BatchStd()),
            "value_normalizer must be a ValueNormalizer, got a BatchStd",
        ),
        (
            lambda: RewardConditionalStateEntropy(k=3, reward_normalizer=RunningStandardized),
            "reward_normalizer must be a ValueNormalizer, got a type",
        ),
        (
            lambda: ValueConditionalStateEntropy(k=3, reading=CONDITIONAL_READINGS["clean"]),
            r"pass value_normalizer, such as BatchStandardized\(\)",
        ),
        (
            lambda: RewardConditionalStateEntropy(k=3, reading=CONDITIONAL_READINGS["clean"]),
            r"pass reward_normalizer, such as BatchStandardized\(\)",
        ),
    ],
)
def test_bad_settings_are_named(make, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize(
    ("features", "values", "k"),
    [(FEATURES, VALUES * torch.nan, 3), (FEATURES * torch.nan, VALUES, 3), (FEATURES, VALUES, 40)],
)
def test_a_refused_batch_leaves_the_statistics_alone(features, values, k):
    normalizer = RunningStandardized(learners=3)
    bonus = ValueConditionalStateEntropy(k=k, value_normalizer=normalizer, learners=3)
    with pytest.raises(ValueError, match=r"must be finite|needs at least 41 points"):
        bonus(features, values=values)
    assert normalizer.moments.count.sum() == 0
