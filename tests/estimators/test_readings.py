import dataclasses
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from estimators import brute_force
from estimators.samples import gaussians, problems
from vcse.estimators import (
    CONDITIONAL_READINGS,
    STATE_ENTROPY_READINGS,
    StateEntropyReading,
    state_entropy_reward,
    state_entropy_terms,
    value_conditional_reward,
    value_conditional_terms,
)

# Written out once more on purpose: a reading must not change unnoticed.
STATE_ENTROPY = {  # self_in_k, average, doubled
    "paper": (False, False, True),
    "clean": (False, False, True),
    "recommended": (False, False, True),
    "release-a2c": (True, True, False),
    "release-drqv2": (True, False, False),
    "release-sac": (True, False, False),
    "release-mwm": (True, False, False),
    "re3": (True, True, False),
}
CONDITIONAL = {  # nv_radius, self_in_k, self_in_nv, log_offset
    "paper": ("value", False, False, 1e-5),
    "clean": ("joint", False, False, 1e-5),
    "recommended": ("joint", False, False, 1.0),
    "release-a2c": ("joint", False, True, 1e-5),
    "release-drqv2": ("joint", True, True, 1e-5),
    "release-sac": ("joint", True, True, 1e-5),
    "release-mwm": ("joint", True, True, 1e-4),
}


def test_every_reading_is_tested():
    assert STATE_ENTROPY_READINGS.keys() == STATE_ENTROPY.keys()
    assert CONDITIONAL_READINGS.keys() == CONDITIONAL.keys()


@pytest.mark.parametrize("reading", STATE_ENTROPY)
@settings(max_examples=12)
@given(data=st.data())
def test_state_entropy_rewards_are_those_of_plain_loops(reading, data):
    self_in_k, average, doubled = STATE_ENTROPY[reading]
    features, _, k = data.draw(problems(self_in_k=self_in_k))
    distances = brute_force.kth_distances(features, k, self_in_k=self_in_k, average=average)
    expected = brute_force.log_reward(distances, doubled=doubled, log_offset=1.0)
    found = state_entropy_reward(features, k=k, reading=reading)
    torch.testing.assert_close(found, torch.tensor(expected), rtol=1e-6, atol=1e-6)


def draw_for(reading, data, **how):
    return data.draw(problems(self_in_k=CONDITIONAL[reading][1], **how))


def conditional_by_loops(reading, features, values, k):
    nv_radius, self_in_k, self_in_nv, log_offset = CONDITIONAL[reading]
    return torch.tensor(
        brute_force.value_conditional_reward(
            features,
            values,
            k,
            nv_radius=nv_radius,
            self_in_k=self_in_k,
            self_in_nv=self_in_nv,
            doubled=True,
            log_offset=log_offset,
        )
    )


@pytest.mark.parametrize("reading", CONDITIONAL)
@settings(max_examples=12)
@given(data=st.data())
def test_conditional_rewards_are_those_of_plain_loops(reading, data):
    features, values, k = draw_for(reading, data)
    found = value_conditional_reward(features, values, k=k, reading=reading)
    expected = conditional_by_loops(reading, features, values, k)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize("reading", CONDITIONAL)
@settings(max_examples=12)
@given(data=st.data())
def test_conditional_rewards_with_vector_values_are_those_of_plain_loops(reading, data):
    features, values, k = draw_for(reading, data, most_value_dimensions=3)
    found = value_conditional_reward(features, values, k=k, reading=reading)
    expected = conditional_by_loops(reading, features, values, k)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=2e-6)


@pytest.mark.parametrize(("reading", "offset"), [("release-a2c", 1e-5), ("release-mwm", 1e-4)])
@pytest.mark.parametrize("points", [20, 128, 500])
def test_identical_states_and_values_get_the_least_reward_of_the_release(reading, offset, points):
    state, value = gaussians(1, 64), gaussians(1)
    reward = value_conditional_reward(state.expand(points, 64), value.expand(points), k=12, reading=reading)
    expected = -brute_force.EULER / 64 + math.log(offset)
    torch.testing.assert_close(reward, torch.full((points,), expected), rtol=0, atol=2e-6)


def test_the_least_reward_of_the_a2c_release_is_the_known_number():
    reward = value_conditional_reward(torch.ones(128, 64), torch.ones(128), k=12, reading="release-a2c")
    assert float(reward[0]) == pytest.approx(-11.522, abs=1e-3)


def test_the_paper_is_the_reading_where_none_is_named():
    features, values = gaussians(50, 3), gaussians(50, seed=1)
    by_name = value_conditional_reward(features, values, k=3, reading="paper")
    assert torch.equal(value_conditional_reward(features, values, k=3), by_name)
    assert not torch.equal(value_conditional_reward(features, values, k=3, reading="clean"), by_name)
    by_name = state_entropy_reward(features, k=3, reading="paper")
    assert torch.equal(state_entropy_reward(features, k=3), by_name)


@pytest.mark.parametrize("start", CONDITIONAL)
@pytest.mark.parametrize("end", CONDITIONAL)
def test_deviations_turn_one_conditional_reading_into_another(start, end):
    features, values = gaussians(50, 3), gaussians(50, seed=1)
    details = dataclasses.asdict(CONDITIONAL_READINGS[end])
    turned = value_conditional_reward(features, values, k=3, reading=start, **details)
    assert torch.equal(turned, value_conditional_reward(features, values, k=3, reading=end))


@pytest.mark.parametrize("start", STATE_ENTROPY)
@pytest.mark.parametrize("end", STATE_ENTROPY)
def test_deviations_turn_one_state_entropy_reading_into_another(start, end):
    features = gaussians(50, 3)
    details = dataclasses.asdict(STATE_ENTROPY_READINGS[end])
    turned = state_entropy_reward(features, k=3, reading=start, **details)
    assert torch.equal(turned, state_entropy_reward(features, k=3, reading=end))


def test_a_reading_of_ones_own_is_taken_wherever_a_name_is():
    features, values = gaussians(50, 3), gaussians(50, seed=1)
    own = dataclasses.replace(CONDITIONAL_READINGS["clean"], log_offset=0.5)
    expected = value_conditional_reward(features, values, k=3, reading="clean", log_offset=0.5)
    assert torch.equal(value_conditional_reward(features, values, k=3, reading=own), expected)
    assert torch.equal(value_conditional_terms(features, values, k=3, reading=own).reward, expected)
    turned = value_conditional_reward(features, values, k=3, reading=own, log_offset=1e-5)
    assert torch.equal(turned, value_conditional_reward(features, values, k=3, reading="clean"))

    of_states = StateEntropyReading(self_in_k=True, average=False, doubled=True, log_offset=0.5)
    expected = state_entropy_reward(features, k=3, self_in_k=True, log_offset=0.5)
    assert torch.equal(state_entropy_reward(features, k=3, reading=of_states), expected)
    assert torch.equal(state_entropy_terms(features, k=3, reading=of_states).reward, expected)


def test_drqv2_and_sac_share_one_formula():
    assert CONDITIONAL_READINGS["release-drqv2"] == CONDITIONAL_READINGS["release-sac"]
    assert STATE_ENTROPY_READINGS["release-drqv2"] == STATE_ENTROPY_READINGS["release-sac"]


@pytest.mark.parametrize(
    ("details", "message"),
    [
        ({"nv_radius": "both"}, "nv_radius must be 'value' or 'joint', got 'both'"),
        ({"self_in_k": 1}, "self_in_k must be True or False, got 1"),
        ({"self_in_nv": None}, "self_in_nv must be True or False, got None"),
        ({"doubled": "no"}, "doubled must be True or False, got 'no'"),
        ({"log_offset": -1.0}, "log_offset must be finite and not negative, got -1.0"),
        ({"log_offset": math.inf}, "log_offset must be finite and not negative, got inf"),
        ({"log_offset": "1e-5"}, "log_offset must be finite and not negative, got '1e-5'"),
        ({"log_offset": True}, "log_offset must be finite and not negative, got True"),
    ],
)
def test_a_reading_with_details_that_mean_nothing_cannot_be_made(details, message, without_type_checks):
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(CONDITIONAL_READINGS["paper"], **details)


def test_a_state_entropy_reading_with_details_that_mean_nothing_cannot_be_made(without_type_checks):
    with pytest.raises(ValueError, match="average must be True or False, got 0"):
        dataclasses.replace(STATE_ENTROPY_READINGS["paper"], average=0)
    with pytest.raises(ValueError, match="log_offset must be finite and not negative, got nan"):
        dataclasses.replace(STATE_ENTROPY_READINGS["paper"], log_offset=math.nan)


def test_a_reading_cannot_be_changed_in_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        CONDITIONAL_READINGS["paper"].log_offset = 0.0
