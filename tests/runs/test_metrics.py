import math

import numpy as np
import pytest
import torch

from vcse.bonuses.stacked import StackedOutput
from vcse.runs.metrics import BonusMean, Episodes


def make_step(rewards, ended):
    return np.array(rewards, np.float32), np.array(ended)


def make_bonus(rewards):
    return StackedOutput(torch.tensor(rewards), [])


def test_returns_are_those_of_finished_episodes_of_each_learner():
    episodes = Episodes(learners=2, environments=2, recent=100)
    episodes.add(slice(0, 2), *make_step([0.5, 0, 0, 0], [False, False, False, False]))
    episodes.add(slice(0, 2), *make_step([0.25, 0, 0, 1], [True, True, False, False]))
    assert episodes.finished == [2, 0]
    assert episodes.return_mean(0) == pytest.approx(0.375)
    assert episodes.success_rate(0) == 0.5
    assert math.isnan(episodes.return_mean(1))
    assert math.isnan(episodes.success_rate(1))
    episodes.add(slice(1, 2), *make_step([0, 1], [True, True]))
    assert (episodes.finished, episodes.return_mean(1), episodes.success_rate(1)) == ([2, 2], 1.0, 0.5)


def test_only_the_last_hundred_episodes_count_and_come_back_from_a_state():
    episodes = Episodes(learners=1, environments=1, recent=100)
    for number in range(150):
        episodes.add(slice(0, 1), *make_step([float(number >= 100)], [True]))
    episodes.add(slice(0, 1), *make_step([0.5], [False]))
    assert (episodes.finished[0], episodes.return_mean(0)) == (150, 0.5)
    again = Episodes(learners=1, environments=1, recent=100)
    again.load_learner_state(0, episodes.learner_state(0))
    for each in (episodes, again):
        each.add(slice(0, 1), *make_step([0.25], [True]))
        assert each.return_mean(0) == pytest.approx(0.5075)


def test_the_mean_bonus_is_that_of_the_updates_since_the_last_row_and_0_for_who_is_not_paid():
    mean = BonusMean(3, torch.tensor([0, 2]))
    assert all(math.isnan(each) for each in mean.of_last_row)
    assert all(math.isnan(each) for each in mean.of_row())  # before the first update nothing is known
    for bonus in ([[1.0, 3.0], [-1.0, -2.0]], [[4.0, 4.0], [0.0, 0.5]]):
        mean.add(make_bonus(bonus))
    assert mean.of_row() == mean.of_last_row == [3, 0, -0.625]
    mean.add(make_bonus([[0.5, 0.5], [0.25, 0.25]]))
    assert mean.of_last_row == [3, 0, -0.625]
    assert mean.of_row() == [0.5, 0, 0.25]
    nobody = BonusMean(1, torch.zeros(0, dtype=torch.int64))
    nobody.add(None)
    assert (nobody.updates, nobody.of_row()) == (1, [0])


def test_the_mean_bonus_goes_on_from_a_state():
    mean, again = (BonusMean(2, torch.tensor([1])) for _ in range(2))
    mean.add(make_bonus([[0.5, 1.0]]))
    assert mean.learner_state(1) == {"bonus_sum": 0.75, "bonus_updates": 1}
    for learner in range(2):
        again.load_learner_state(learner, mean.learner_state(learner))
    for each in (mean, again):
        each.add(make_bonus([[0.25, 0.25]]))
        assert each.of_row() == [0, 0.5]


def test_where_tasks_say_what_success_is_a_return_does_not_count_for_it():
    episodes = Episodes(learners=2, environments=2, recent=100)
    nowhere = np.zeros(4, dtype=np.bool_)
    episodes.add(slice(None), *make_step([1, 1, 1, 1], nowhere), np.array([True, False, False, False]))
    assert math.isnan(episodes.success_rate(0))
    episodes.add(slice(None), *make_step([1, 1, 1, 1], ~nowhere), nowhere)  # the goal was reached a step before the end
    assert [episodes.success_rate(learner) for learner in range(2)] == [0.5, 0]
    episodes.add(slice(1, 2), *make_step([0, 0], [True, True]), np.array([True, True]))
    assert [episodes.success_rate(learner) for learner in range(2)] == [0.5, 0.5]
    episodes.add(slice(None), *make_step([0, 0, 0, 0], ~nowhere), nowhere)  # of which the next episode knows nothing
    assert [episodes.success_rate(learner) for learner in range(2)] == [0.25, 2 / 6]


def test_success_in_the_last_episodes_and_in_the_running_one_comes_back_from_a_state():
    episodes, again = (Episodes(learners=1, environments=1, recent=2) for _ in range(2))
    for success in (True, False, False):
        episodes.add(slice(None), *make_step([1], [True]), np.array([success]))
    assert episodes.success_rate(0) == 0  # only the last two count
    episodes.add(slice(None), *make_step([1], [False]), np.array([True]))
    assert episodes.success_state(0) == {"has_succeeded": True, "successes": [False, False]}
    again.load_learner_state(0, episodes.learner_state(0))
    again.load_success_state(0, episodes.success_state(0))
    for each in (episodes, again):
        each.add(slice(None), *make_step([0], [True]), np.array([False]))
        assert (each.success_rate(0), each.return_mean(0)) == (0.5, 1)
