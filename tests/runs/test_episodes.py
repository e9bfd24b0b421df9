import math

import numpy as np
import pytest

from vcse.runs.episodes import Episodes


def make_step(rewards, ended):
    return np.array(rewards, np.float32), np.array(ended)


def test_returns_are_those_of_finished_episodes_of_each_learner():
    episodes = Episodes(learners=2, environments=2)
    episodes.take(slice(0, 2), *make_step([0.5, 0, 0, 0], [False, False, False, False]))
    episodes.take(slice(0, 2), *make_step([0.25, 0, 0, 1], [True, True, False, False]))
    assert episodes.finished == [2, 0]
    assert episodes.return_mean(0) == pytest.approx(0.375)
    assert episodes.success_rate(0) == 0.5
    assert math.isnan(episodes.return_mean(1))
    assert math.isnan(episodes.success_rate(1))
    episodes.take(slice(1, 2), *make_step([0, 1], [True, True]))
    assert (episodes.finished, episodes.return_mean(1), episodes.success_rate(1)) == ([2, 2], 1.0, 0.5)


def test_only_the_last_hundred_episodes_count_and_come_back_from_a_state():
    episodes = Episodes(learners=1, environments=1)
    for number in range(150):
        episodes.take(slice(0, 1), *make_step([float(number >= 100)], [True]))
    episodes.take(slice(0, 1), *make_step([0.5], [False]))
    assert (episodes.finished[0], episodes.return_mean(0)) == (150, 0.5)
    again = Episodes(learners=1, environments=1)
    again.load_learner_state(0, episodes.learner_state(0))
    for each in (episodes, again):
        each.take(slice(0, 1), *make_step([0.25], [True]))
        assert each.return_mean(0) == pytest.approx(0.5075)
