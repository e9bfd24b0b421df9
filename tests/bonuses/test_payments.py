import warnings

import pytest
import torch

from vcse.bonuses import BonusOutput, BonusWarning, MatchedStateEntropy, PaymentMonitor, ValueConditionalStateEntropy

GENERATOR = torch.Generator()


def output_of(reward, **parts):
    return BonusOutput(torch.as_tensor(reward, dtype=torch.float32), **parts)


def decided_by_values(share, states=200):
    """Return an output of which the value decides a share of the distances to the k-th neighbour."""
    radius = torch.full((states,), 2.0)
    value_distance = torch.where(torch.arange(states) < share * states, 2.0, 0.5)
    return output_of(
        torch.zeros(states), radius=radius, value_distance=value_distance, values=torch.arange(states).float()
    )


def watched(monitor, output, times, **known):
    """Return what is warned of when a monitor sees an output so often."""
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        for _ in range(times):
            monitor(output, **known)
    assert all(each.category is BonusWarning for each in given)
    return [str(each.message) for each in given]


def duplicates(share, states=200):
    radius = torch.where(torch.arange(states) < share * states, 0.0, 1.0)
    return output_of(torch.zeros(states), radius=radius)


@pytest.mark.parametrize(
    ("output", "rewards", "what", "remedy"),
    [
        (
            duplicates(0.99),
            None,
            "99% of the states have their k-th neighbour at distance 0",
            "Take a larger k or batch",
        ),
        (
            output_of(torch.full((8,), -11.5)),
            torch.tensor([0.0, 0.004]),
            "the bonus pays -0.0575 a step on average, where the task's rewards are of mean size 0.002",
            r"Take scaling='standardized' .*ValueConditionalStateEntropy\(\), whose reading is recommended",
        ),
        (
            decided_by_values(0.005),
            None,
            r"the value decides 0\.5% of the distances to the k-th neighbour: .* mean radius of 2",
            "Scale the features down",
        ),
    ],
)
def test_each_warning_is_given_once_after_three_batches_and_names_the_remedy(output, rewards, what, remedy):
    monitor = PaymentMonitor(beta=0.005)
    assert watched(monitor, output, 2, rewards=rewards) == []
    with pytest.warns(BonusWarning, match=f"{what}.*{remedy}"):
        monitor(output, rewards=rewards)
    assert watched(monitor, output, 5, rewards=rewards) == []


def test_one_odd_batch_is_no_alarm():
    monitor = PaymentMonitor(beta=1.0)
    for _ in range(4):
        assert watched(monitor, duplicates(1.0), 2) == []
        assert watched(monitor, duplicates(0.5), 1) == []


def test_what_was_warned_of_is_not_warned_of_again_after_a_good_batch():
    monitor = PaymentMonitor(beta=1.0)
    assert len(watched(monitor, duplicates(1.0), 3)) == 1
    assert watched(monitor, duplicates(0.5), 3) == []
    assert watched(monitor, duplicates(1.0), 9) == []


@pytest.mark.parametrize(
    ("output", "rewards"),
    [
        (duplicates(0.95), None),
        (decided_by_values(0.015), None),
        (decided_by_values(0.5), None),
        (output_of(torch.full((8,), -10.0)), torch.full((8,), 1.0)),  # 0.05 against 1
        (output_of(torch.full((8,), 10.0)), torch.zeros(8)),  # pays for going on
        (output_of(torch.tensor([-1.0, 1.0 - 1e-7])), torch.zeros(2)),  # a mean that is rounding
        (output_of(torch.full((8,), -10.0)), None),  # no rewards known to hold it against
    ],
)
def test_no_warning_where_all_is_well(output, rewards):
    assert PaymentMonitor(beta=0.005).findings(output, rewards=rewards) == {}


def test_a_weight_of_0_is_no_alarm():
    output = output_of(torch.full((8,), -11.5))
    assert PaymentMonitor(beta=0.0).findings(output, rewards=torch.zeros(8)) == {}


def test_a_negative_weight_turns_the_sign():
    monitor = PaymentMonitor(beta=-0.1)
    assert monitor.findings(output_of(torch.full((8,), -11.5)), rewards=torch.zeros(8)) == {}
    assert [*monitor.findings(output_of(torch.full((8,), 11.5)), rewards=torch.zeros(8))] == [
        "pays for ending episodes"
    ]


def test_rewards_are_those_of_all_batches_so_far():
    monitor, output = PaymentMonitor(beta=0.1), output_of(torch.full((8,), -1.0))
    assert monitor.findings(output, rewards=torch.ones(8)) == {}
    for _ in range(4):  # a sparse task: the mean goes from 1 to 1/5, of which the bonus pays half
        assert monitor.findings(output, rewards=torch.zeros(8)) == {}
    assert [*monitor.findings(output, rewards=torch.zeros(8))] == ["pays for ending episodes"]


def test_equal_values_decide_nothing_and_are_no_alarm():
    features = torch.randn(64, 3, generator=GENERATOR.manual_seed(0))
    output = ValueConditionalStateEntropy.recommended(k=3)(features, values=torch.zeros(64))
    assert (output.value_distance == 0).all()
    assert PaymentMonitor(beta=1.0).findings(output) == {}


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("scale", [0.1, 1.0])
def test_the_recommended_bonus_is_no_alarm_on_a_task_that_has_paid_nothing_yet(seed, scale):
    generator, monitor = GENERATOR.manual_seed(seed), PaymentMonitor(beta=0.02)
    bonus = ValueConditionalStateEntropy.recommended()
    for _ in range(4):
        features = scale * torch.randn(256, 4, generator=generator)
        output = bonus(features, values=torch.randn(256, generator=generator))
        assert monitor.findings(output, rewards=torch.zeros(256)) == {}


def test_features_that_are_far_apart_leave_nothing_to_the_value():
    generator = GENERATOR.manual_seed(0)
    features, values = 1e4 * torch.randn(256, 4, generator=generator), torch.randn(256, generator=generator)
    output = ValueConditionalStateEntropy.recommended()(features, values=values)
    assert [*PaymentMonitor(beta=0.02).findings(output)] == ["the value decides nothing"]


def test_few_distinct_states_are_not_taken_for_features_that_are_far_apart():
    cells = torch.randint(8, (512, 2), generator=GENERATOR.manual_seed(0)).float()
    output = ValueConditionalStateEntropy.recommended()(cells, values=cells.sum(-1))
    apart = output.radius > 0
    assert apart.any()
    assert (output.value_distance < output.radius)[apart].all()  # the value decides none of the distances
    assert PaymentMonitor(beta=0.02).findings(output) == {}


def test_duplicates_of_the_paper_s_formula_are_two_alarms():
    bonus = MatchedStateEntropy(k=3, reading="clean", log_offset=1e-5)
    found = PaymentMonitor(beta=0.005).findings(bonus(torch.zeros(32, 2)), rewards=torch.zeros(32))
    assert sorted(found) == ["pays for ending episodes", "radii are zero"]
