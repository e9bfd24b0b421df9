import numpy as np
import pytest
from play.remembering import remembering_entry, remembering_policies
from play.test_load import make_run

import vcse
from vcse import agents
from vcse.play.policy import Policy


@pytest.fixture
def policy(monkeypatch):
    monkeypatch.setitem(agents._AGENTS, "remembering", remembering_entry())
    return Policy(remembering_policies())


def images(*values):
    return np.stack([np.full((3, 84, 84), value, dtype=np.uint8) for value in values])


def test_a_state_that_is_passed_back_is_carried_from_step_to_step(policy):
    state, found = None, []
    for value in (5, 9, 7):
        action, state = policy.predict(images(value)[0], state)
        found.append(action.tolist())
    assert found == [[1, 5], [2, 9], [3, 9]]
    assert policy.predict(images(7)[0])[0].tolist() == [1, 7]
    assert policy.predict(images(7)[0], state, deterministic=False)[0].tolist() == [104, 109]


@pytest.mark.parametrize(
    ("episode_start", "expected"),
    [
        (None, [[2, 9], [2, 8], [2, 7]]),
        (False, [[2, 9], [2, 8], [2, 7]]),
        (True, [[1, 1], [1, 2], [1, 3]]),
        (np.array([False, True, False]), [[2, 9], [1, 2], [2, 7]]),
        (np.array([True, True, True]), [[1, 1], [1, 2], [1, 3]]),
    ],
)
def test_the_state_of_environments_whose_episodes_begin_is_reset(policy, episode_start, expected):
    _, state = policy.predict(images(9, 8, 7))
    actions, after = policy.predict(images(1, 2, 3), state, episode_start)
    assert actions.tolist() == expected
    assert after.name == "memory"
    assert state.steps.tolist() == [1, 1, 1]  # what the caller holds is not written to
    assert policy.predict(images(1, 2, 3), None, episode_start)[0].tolist() == [[1, 1], [1, 2], [1, 3]]


def test_as_many_beginnings_as_observations_are_needed(policy):
    with pytest.raises(ValueError, match=r"episode_start must be one bool, or one for each of 3, got shape \(2,\)"):
        policy.predict(images(1, 2, 3), None, np.array([True, False]))


def test_a_policy_without_memory_has_no_state_and_needs_no_beginnings(tmp_path):
    policy = vcse.load_policy(make_run(tmp_path)[0])
    seen = np.random.default_rng(0).integers(6, size=(4, 7, 7, 3), dtype=np.uint8)
    actions, state = policy.predict(seen)
    assert state is None
    assert np.array_equal(policy.predict(seen, state, np.array([True, False, True, False]))[0], actions)
    assert policy.predict(seen[0])[0] == actions[0]


def test_states_may_be_of_the_type_that_numpy_and_environments_have(tmp_path, without_type_checks):
    policy = vcse.load_policy(make_run(tmp_path, task="fork/ratio1-first1")[0])
    seen = np.random.default_rng(0).normal(size=(4, 2))
    assert seen.dtype == np.float64
    actions, _ = policy.predict(seen)
    assert np.array_equal(policy.predict(seen.astype(np.float32))[0], actions)


def test_no_observations_are_refused(tmp_path):
    policy = vcse.load_policy(make_run(tmp_path)[0])
    with pytest.raises(
        ValueError, match=r"observation must be of shape \(7, 7, 3\), or several of them, got \(0, 7, 7, 3\)"
    ):
        policy.predict(np.zeros((0, 7, 7, 3), dtype=np.uint8))
