from itertools import pairwise

import gymnasium
import minigrid  # noqa: F401 - registers its environments
import numpy as np
import pytest
import torch

from vcse.envs.minigrid.crossing import (
    DIRECTIONS,
    FORWARD,
    GOAL,
    LEFT,
    MAPS,
    MOST_STEPS,
    RIGHT,
    START,
    STAY,
    TableCrossing,
    crossing_tables,
    goal_rewards,
    map_number,
)
from vcse.envs.minigrid.exact_values import _backward, _check_policy, _Problems, stationary_values, time_exact_values_at

TABLES = crossing_tables()
OUTCOME_OF = np.array([LEFT, RIGHT, FORWARD, STAY, STAY, STAY, STAY])
OPEN_ROW = map_number("vertical", wall=4, opening=1)  # six steps ahead, a turn, and six more to the goal
WAY = [FORWARD] * 6 + [RIGHT] + [FORWARD] * 6
REST = 6  # an action that does nothing


def policies(learners, seed=0):
    """Return stochastic policies that like to go forward, so that some of the episodes succeed."""
    generator = torch.Generator().manual_seed(seed)
    logits = 0.3 * torch.randn(learners, len(TABLES.observations), 7, dtype=torch.float64, generator=generator)
    logits[..., FORWARD] += 2
    return logits.softmax(-1)


def act(environments, actions):
    environments.send(np.asarray(actions))
    return environments.receive()


def walk(seeds, steps, **settings):
    """Act at random, each environment by a generator of its own, and keep everything."""
    environments = TableCrossing(seeds, **settings)
    choosers = [np.random.default_rng([seed, 1]) for seed in seeds]
    observations, positions = environments.reset(), environments.positions
    kept = [(observations, positions, environments.states)]
    for _ in range(steps):
        step = act(environments, [chooser.integers(7) for chooser in choosers])
        kept.append((*step, environments.states, environments.steps_used))
    return kept


def columns(kept, which):
    return [[None if part is None else part[which] for part in moment] for moment in kept]


def assert_same(left, right):
    for one, other in zip(left, right, strict=True):
        for part, counterpart in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, counterpart)


@torch.no_grad()
def time_exact_values(tables, probabilities, discount):
    """Compute the value of every state at every step index: 18 MB per learner in float64."""
    _check_policy(tables, probabilities, discount)
    flat = probabilities.reshape(-1, *probabilities.shape[-2:])
    learners, maps = len(flat), len(tables.starts)
    learner = torch.arange(learners, device=flat.device).repeat_interleave(maps)
    number = torch.arange(maps, device=flat.device).repeat(learners)
    values = flat.new_empty(learners, MOST_STEPS, tables.states)
    for step, now in _backward(_Problems(tables, flat, learner, number), discount):
        values[:, step] = now.view(learners, tables.states)
    return values.view(*probabilities.shape[:-2], MOST_STEPS, tables.states)


class TestTables:
    def test_counts(self):
        assert len(MAPS) == len(set(MAPS)) == 42
        assert TABLES.states == 42 * 42 * 4 == 7056
        assert len(TABLES.observations) == 1962
        assert len(np.unique(TABLES.observations.reshape(1962, -1), axis=0)) == 1962
        assert np.array_equal(np.unique(TABLES.observation_index), np.arange(1962))
        assert np.array_equal(np.bincount(TABLES.maps), np.full(42, 168))

    def test_every_state_is_found_by_what_it_is(self):
        states = TABLES.first_states[TABLES.maps, *TABLES.positions.T] + TABLES.directions
        assert np.array_equal(states, np.arange(TABLES.states))
        assert np.array_equal(TABLES.first_states[:, *START], TABLES.starts)

    def test_turns_undo_each_other_and_no_outcome_leaves_the_map(self):
        states = np.arange(TABLES.states)
        left, right, forward, stay = TABLES.successor.T
        assert np.array_equal(right[left], states)
        assert np.array_equal(left[left[left[left]]], states)
        assert np.array_equal(stay, states)
        assert (TABLES.maps[TABLES.successor] == TABLES.maps[:, None]).all()
        assert (TABLES.positions[left] == TABLES.positions).all()
        moved = TABLES.positions[forward] - TABLES.positions
        stands = (moved == 0).all(-1)
        assert np.array_equal(moved[~stands], np.array(DIRECTIONS)[TABLES.directions[~stands]])
        assert stands[TABLES.enters_goal].all()

    def test_the_goal_is_entered_from_two_cells_unless_the_wall_takes_one(self):
        closed = {
            map_number(orientation, 6, opening) for orientation in ("vertical", "horizontal") for opening in range(1, 7)
        }
        entries = np.bincount(TABLES.maps[TABLES.enters_goal], minlength=42)
        assert {number for number in range(42) if entries[number] == 1} == closed
        assert set(entries) == {1, 2}

    def test_only_what_lies_behind_the_goal_cannot_be_reached(self):
        reached = np.zeros(TABLES.states, dtype=bool)
        reached[TABLES.starts] = True
        for _ in range(60):
            reached[TABLES.successor[reached]] = True
        behind = np.zeros_like(reached)
        behind[(TABLES.maps == map_number("vertical", 6, 7)) & (TABLES.positions[:, 0] == 7)] = True
        behind[(TABLES.maps == map_number("horizontal", 6, 7)) & (TABLES.positions[:, 1] == 7)] = True
        assert behind.sum() == 48
        assert np.array_equal(reached, ~behind)

    def test_tables_are_made_once_and_cannot_be_changed(self):
        assert crossing_tables() is TABLES
        with pytest.raises(ValueError, match="read-only"):
            TABLES.successor[0, 0] = 1

    def test_maps_have_numbers(self):
        number = map_number("vertical", wall=4, opening=3)
        assert MAPS[number] == ("vertical", 4, 3)
        assert MAPS[map_number("horizontal", 2, 7)] == ("horizontal", 2, 7)
        walls = TABLES.first_states[number, 4, 1:8] < 0
        assert walls.tolist() == [y != 3 for y in range(1, 8)]

    def test_what_is_no_map_is_refused(self):
        with pytest.raises(
            ValueError, match=r"wall=3, opening=1; there are vertical and horizontal walls at \(2, 4, 6\)"
        ):
            map_number("vertical", 3, 1)


def map_of(world):
    """Read the number of a map from a world of the `minigrid` package."""
    cells = world.grid.encode()[..., 0]
    walls = cells == 2
    [number] = [
        number
        for number, each in enumerate(MAPS)
        if all(walls[x, y] == each.is_wall(x, y) for x in range(9) for y in range(9))
    ]
    return number


def test_ten_thousand_steps_agree_with_the_minigrid_package():
    world = gymnasium.make("MiniGrid-SimpleCrossingS9N1-v0").unwrapped
    # More forward than at random, and every action, so that some episodes succeed and some run out of time.
    actions = np.random.default_rng(0).choice(7, 10_000, p=[0.15, 0.15, 0.5, 0.05, 0.05, 0.05, 0.05])
    state, used, ends, seen_maps = -1, 0, [], set()
    for index, action in enumerate(actions):
        if state < 0:
            observation, _ = world.reset(seed=index)
            number, used = map_of(world), 0
            seen_maps.add(number)
            state = int(TABLES.starts[number])
            assert np.array_equal(observation["image"], TABLES.observations[TABLES.observation_index[state]])
        observation, reward, terminated, truncated, _ = world.step(int(action))
        outcome = OUTCOME_OF[action]
        enters = bool(TABLES.enters_goal[state] and outcome == FORWARD)
        direction = TABLES.directions[state]
        state = int(TABLES.successor[state, outcome])
        assert terminated == enters
        assert truncated == (used + 1 == MOST_STEPS)
        assert reward == pytest.approx(goal_rewards(np.array([used]))[0] if enters else 0, abs=1e-12)
        if enters:
            assert tuple(world.agent_pos) == GOAL
            assert np.array_equal(observation["image"], TABLES.goal_observations[number, direction])
        else:
            assert tuple(world.agent_pos) == tuple(TABLES.positions[state])
            assert world.agent_dir == TABLES.directions[state]
            assert np.array_equal(observation["image"], TABLES.observations[TABLES.observation_index[state]])
        used += 1
        if terminated or truncated:
            ends.append((terminated, truncated))
            state = -1
    assert {(True, False), (False, True)} <= set(ends)
    assert len(seen_maps) > 20


class TestTableCrossing:
    def test_shows_the_start_first(self):
        environments = TableCrossing(range(5))
        observations, positions = environments.reset(), environments.positions
        assert environments.count == 5
        assert (environments.observation_shape, environments.actions, environments.most_steps) == ((7, 7, 3), 7, 324)
        assert (positions == START).all()
        assert np.isin(environments.states, TABLES.starts).all()
        assert np.array_equal(observations, TABLES.observations[TABLES.observation_index[environments.states]])
        assert environments.steps_used.tolist() == [0] * 5

    def test_success_ends_the_episode_and_the_next_one_is_shown(self):
        environments = TableCrossing([3, 4], fixed_map=OPEN_ROW)
        environments.reset()
        for used, action in enumerate(WAY[:-1]):
            step = act(environments, [action, REST])
            assert not step.ended.any()
            assert step.next_observations is step.observations or np.array_equal(
                step.next_observations, step.observations
            )
            assert environments.steps_used.tolist() == [used + 1] * 2
        step = act(environments, [FORWARD, REST])
        assert step.terminated.tolist() == [True, False]
        assert step.truncated.tolist() == [False, False]
        np.testing.assert_allclose(step.rewards, [1 - 0.9 * 13 / 324, 0], rtol=1e-6)
        assert step.next_positions.tolist() == [list(GOAL), list(START)]
        assert step.positions.tolist() == [list(START), list(START)]
        assert np.array_equal(step.next_observations[0], TABLES.goal_observations[OPEN_ROW, 1])
        assert np.array_equal(
            step.observations[0], TABLES.observations[TABLES.observation_index[TABLES.starts[OPEN_ROW]]]
        )
        assert np.array_equal(step.next_observations[1], step.observations[1])
        assert environments.steps_used.tolist() == [0, 13]
        assert environments.states.tolist() == [TABLES.starts[OPEN_ROW]] * 2

    def test_the_time_limit_cuts_at_its_step(self):
        environments = TableCrossing([1], fixed_map=OPEN_ROW)
        environments.reset()
        act(environments, [RIGHT])
        for _ in range(MOST_STEPS - 2):
            assert not act(environments, [REST]).ended.any()
        step = act(environments, [FORWARD])
        assert (step.terminated[0], step.truncated[0], step.rewards[0]) == (False, True, 0)
        assert step.next_positions[0].tolist() == [1, 2]
        assert step.positions[0].tolist() == list(START)
        assert environments.steps_used.tolist() == [0]

    def test_success_with_the_last_step_is_a_success(self):
        environments = TableCrossing([1], fixed_map=OPEN_ROW)
        environments.reset()
        for action in [REST] * (MOST_STEPS - len(WAY)) + WAY[:-1]:
            assert not act(environments, [action]).ended.any()
        step = act(environments, [FORWARD])
        assert (step.terminated[0], step.truncated[0]) == (True, False)
        assert step.rewards[0] == pytest.approx(0.1)

    def test_next_observations_differ_from_what_is_shown_only_at_ends(self):
        ends = 0
        for step in walk(range(50, 60), 700)[1:]:
            ended = step[3] | step[4]
            same = (step[0] == step[1]).all((1, 2, 3)) & (step[5] == step[6]).all(-1)
            assert same[~ended].all()
            assert (step[5][ended] == START).all()
            ends += ended.sum()
        assert ends >= 20

    def test_same_seeds_same_stream(self):
        assert_same(walk([5, 6], 400), walk([5, 6], 400))
        states = [[moment[2].tolist() for moment in walk([seed] * 3, 1)[:1]] for seed in range(20)]
        assert len({str(each) for each in states}) > 5

    def test_reset_starts_again(self):
        environments = TableCrossing(range(8))
        environments.reset()
        first = environments.states
        for _ in range(400):
            act(environments, [REST] * 8)
        assert not np.array_equal(environments.states, first)
        environments.reset()
        assert np.array_equal(environments.states, first)
        assert environments.steps_used.tolist() == [0] * 8

    def test_neighbours_do_not_matter(self):
        crowd = walk([11, 12, 13, 14], 700)
        for which, seed in enumerate((11, 12, 13, 14)):
            assert_same(columns(crowd, [which]), walk([seed], 700))

    def test_maps_are_equally_likely(self):
        environments = TableCrossing(range(400))
        environments.reset()
        counts = np.bincount(TABLES.maps[environments.states], minlength=42)
        for _ in range(10):  # further episodes draw from the same generators
            for _ in range(MOST_STEPS):
                act(environments, [REST] * 400)
            counts += np.bincount(TABLES.maps[environments.states], minlength=42)
        expected = counts.sum() / 42
        chi_square = ((counts - expected) ** 2 / expected).sum()
        assert counts.sum() == 4400
        assert 15 < chi_square < 80  # 41 degrees of freedom: 41 ± 9

    def test_a_fixed_map_stays(self):
        for moment in walk([1, 2, 3], 700, fixed_map=17)[1:]:
            assert (TABLES.maps[moment[-2]] == 17).all()

    def test_what_is_given_away_is_not_what_is_kept(self):
        environments = TableCrossing([1])
        observations, positions = environments.reset(), environments.positions
        states, start = environments.states, environments.states
        states[:], observations[:], positions[:] = 0, 99, 99
        other = TableCrossing([1])
        again, where = other.reset(), other.positions
        assert np.array_equal(environments.states, start)
        assert where[0].tolist() == list(START)
        assert again.max() < 99

    def test_bad_use_is_refused(self):
        with pytest.raises(ValueError, match="fixed_map must be from 0 to 41, got 42"):
            TableCrossing([0], fixed_map=42)
        environments = TableCrossing([0, 1])
        with pytest.raises(RuntimeError, match="before reset"):
            environments.send(np.array([0, 0]))
        environments.reset()
        with pytest.raises(RuntimeError, match="without send"):
            environments.receive()
        with pytest.raises(ValueError, match=r"one for each of 2 environments, got shape \(3,\)"):
            environments.send(np.array([0, 0, 0]))
        with pytest.raises(ValueError, match="from 0 to 6, got numbers from 0 to 7"):
            environments.send(np.array([0, 7]))


class TestTimeExactValues:
    def test_a_good_policy_has_its_closed_form(self):
        # A policy that knows the way on one map; what it does elsewhere does not matter there.
        policy = policies(1)[0]
        states = [int(TABLES.starts[OPEN_ROW])]
        for action in WAY[:-1]:
            states.append(int(TABLES.successor[states[-1], action]))
        seen = TABLES.observation_index[states]
        assert len(set(seen)) == len(WAY)  # else one observation would have to ask for two actions
        policy[seen] = torch.eye(7, dtype=torch.float64)[WAY]
        values = time_exact_values(TABLES, policy, 0.99)
        for passed, state in enumerate(states):
            left = len(WAY) - passed
            steps = np.arange(MOST_STEPS)
            arrival = steps + left  # steps used when the goal is entered
            expected = np.where(arrival <= MOST_STEPS, 0.99 ** (left - 1) * (1 - 0.9 * arrival / MOST_STEPS), 0)
            np.testing.assert_allclose(values[:, state], expected, rtol=1e-12)

    def test_the_bellman_equation_holds_action_by_action(self):
        policy = policies(1)[0]
        values = time_exact_values(TABLES, policy, 0.97).numpy()
        by_state = policy.numpy()[TABLES.observation_index]
        for step in (0, 100, 322, 323):
            after = values[step + 1] if step < MOST_STEPS - 1 else np.zeros(TABLES.states)
            expected = np.zeros(TABLES.states)
            for action in range(7):
                outcome = OUTCOME_OF[action]
                ends = TABLES.enters_goal & (outcome == FORWARD)
                gain = np.where(ends, 1 - 0.9 * (step + 1) / 324, 0.97 * after[TABLES.successor[:, outcome]])
                expected += by_state[:, action] * gain
            np.testing.assert_allclose(values[step], expected, rtol=1e-12, atol=1e-15)

    def test_monte_carlo_agrees(self):
        policy, discount, count = policies(1, seed=3)[0], 0.99, 3000
        exact = time_exact_values(TABLES, policy, discount).numpy()
        cumulative = policy.numpy().cumsum(-1)
        environments, chooser = TableCrossing(range(count)), np.random.default_rng(0)
        environments.reset()
        returns = np.zeros(count)  # of the first episode of each environment
        first = exact[0, environments.states].copy()
        running = np.ones(count, dtype=bool)
        surprises = []
        for step_index in range(MOST_STEPS):
            states, used = environments.states, environments.steps_used
            below = cumulative[TABLES.observation_index[states]] <= chooser.random((count, 1))
            step = act(environments, below[:, :-1].sum(-1))
            returns += running * discount**step_index * step.rewards
            running &= ~step.ended
            after = np.where(step.ended, 0, exact[environments.steps_used, environments.states])
            surprises.append(step.rewards + discount * after - exact[used, states])
        assert not running.any()
        assert (returns > 0).mean() > 0.1
        error = returns - first
        assert abs(error.mean()) < 4 * error.std() / np.sqrt(count)
        # Each step's surprise has mean 0 whatever came before, so that their sum grows like a random walk.
        flat = np.concatenate(surprises)
        assert abs(flat.mean()) < 4 * flat.std() / np.sqrt(len(flat))
        late = np.concatenate(surprises[200:])
        assert abs(late.mean()) < 4 * late.std() / np.sqrt(len(late))

    @pytest.mark.parametrize("learners", [(), (3,), (2, 2)])
    def test_asking_for_some_gives_the_same_numbers(self, learners):
        policy = policies(4)[: int(np.prod(learners))].view(*learners, -1, 7)
        generator = torch.Generator().manual_seed(1)
        states = torch.randint(TABLES.states, (*learners, 50), generator=generator)
        states[..., 25:] %= 168  # many on one map
        steps = torch.randint(40, MOST_STEPS, (*learners, 50), generator=generator)
        all_values = time_exact_values(TABLES, policy, 0.99)
        assert all_values.shape == (*learners, MOST_STEPS, TABLES.states)
        expected = all_values.flatten(-2).gather(-1, steps * TABLES.states + states)
        assert torch.equal(time_exact_values_at(TABLES, policy, 0.99, states, steps), expected)

    def test_learners_do_not_see_each_other(self):
        policy = policies(3)
        together = time_exact_values(TABLES, policy, 0.99)
        for learner in range(3):
            assert torch.equal(time_exact_values(TABLES, policy[learner], 0.99), together[learner])

    def test_single_precision_stays_close(self):
        policy = policies(1)[0]
        single = time_exact_values(TABLES, policy.float(), 0.99)
        assert single.dtype == torch.float32
        torch.testing.assert_close(single.double(), time_exact_values(TABLES, policy, 0.99), atol=1e-5, rtol=0)

    def test_nothing_asked_nothing_given(self):
        none = torch.zeros(0, dtype=torch.int64)
        assert time_exact_values_at(TABLES, policies(1)[0], 0.99, none, none).shape == (0,)


def stationary_backup(policy, values, discount):
    after = discount * values[TABLES.successor]
    after[TABLES.enters_goal, FORWARD] = 1
    return (policy[TABLES.observation_index] * after[:, OUTCOME_OF]).sum(-1)


class TestStationaryValues:
    def test_solves_its_bellman_equation(self):
        policy = policies(2)
        values = stationary_values(TABLES, policy, 0.99)
        assert values.shape == (2, TABLES.states)
        for each, policy_of in zip(values.numpy(), policy.numpy(), strict=True):
            np.testing.assert_allclose(each, stationary_backup(policy_of, each, 0.99), atol=1e-12)

    def test_plain_iteration_gets_there(self):
        policy = policies(1)[0]
        values = np.zeros(TABLES.states)
        for _ in range(400):
            values = stationary_backup(policy.numpy(), values, 0.9)
        assert values.max() > 0.5
        np.testing.assert_allclose(stationary_values(TABLES, policy, 0.9), values, atol=1e-12)

    def test_time_only_takes_away(self):
        policy = policies(1)[0]
        stationary = stationary_values(TABLES, policy, 0.99)
        exact = time_exact_values(TABLES, policy, 0.99)
        assert (exact <= stationary + 1e-12).all()
        assert all((later <= sooner + 1e-12).all() for sooner, later in pairwise(exact[::20]))

    def test_many_learners_are_solved_in_parts(self, monkeypatch):
        policy = policies(2)
        whole = stationary_values(TABLES, policy, 0.99)
        monkeypatch.setattr("vcse.envs.minigrid.exact_values.SYSTEMS_AT_ONCE", 25)
        torch.testing.assert_close(stationary_values(TABLES, policy, 0.99), whole, atol=1e-12, rtol=0)

    def test_a_policy_that_stays_earns_nothing(self):
        policy = torch.zeros(len(TABLES.observations), 7)
        policy[:, REST] = 1
        values = stationary_values(TABLES, policy, 0.99)
        assert values.dtype == torch.float32
        assert (values == 0).all()


@pytest.mark.usefixtures("without_type_checks")
class TestBadInput:
    @pytest.mark.parametrize("function", [time_exact_values, stationary_values])
    def test_policies(self, function):
        good = policies(1)[0]
        with pytest.raises(
            ValueError, match=r"1962 observations and 7 actions, got torch.float64 of shape \(1962, 6\)"
        ):
            function(TABLES, good[:, :6], 0.99)
        with pytest.raises(ValueError, match="sum to 1, got a sum that is off by 1 "):
            function(TABLES, 2 * good, 0.99)
        with pytest.raises(ValueError, match=r"must not be negative .* smallest of -1"):
            function(TABLES, torch.tensor([2.0, -1, 0, 0, 0, 0, 0]).expand(1962, 7), 0.99)
        with pytest.raises(ValueError, match=r"discount must be from 0 to 1, got 1\.5"):
            function(TABLES, good, 1.5)

    def test_no_discount_without_a_time_limit(self):
        with pytest.raises(ValueError, match="discount must be below 1"):
            stationary_values(TABLES, policies(1)[0], 1.0)

    def test_what_is_asked_for(self):
        policy, some = policies(2), torch.zeros(2, 5, dtype=torch.int64)
        with pytest.raises(ValueError, match="states must be from 0 to 7055, got numbers from 7056 to 7056"):
            time_exact_values_at(TABLES, policy, 0.99, some + 7056, some)
        with pytest.raises(ValueError, match="steps_used must be from 0 to 323, got numbers from 324 to 324"):
            time_exact_values_at(TABLES, policy, 0.99, some, some + 324)
        with pytest.raises(ValueError, match=r"states must have the learner axes of probabilities, \(2,\)"):
            time_exact_values_at(TABLES, policy, 0.99, some[0], some[0])
