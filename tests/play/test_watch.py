from dataclasses import replace

import numpy as np
import pytest
from play.remembering import remembering_entry, remembering_policies

from vcse import agents
from vcse.envs import tasks
from vcse.envs.moments import Moment
from vcse.play.watch import record

TASK = "dmc-pixels/hopper_stand"


@pytest.fixture
def played(monkeypatch):
    """Actions that are taken in two episodes of three steps, of which the middle one is not shown."""
    actions = []

    def record_steps(name, choose, *, episodes, seed, **unused):
        generator, image = np.random.default_rng(seed), np.zeros((8, 8, 3), dtype=np.uint8)
        for episode in range(1, episodes + 1):
            yield Moment(image, episode, 0, 0.0, "")
            for step in (1, 2, 3):
                actions.append(choose([np.full((3, 84, 84), 10 * episode + step, dtype=np.uint8)], generator).tolist())
                if step != 2:
                    yield Moment(image, episode, step, 0.0, "over" if step == 3 else "")

    family = replace(tasks.family_of(TASK), record=record_steps)
    monkeypatch.setitem(agents._AGENTS, "remembering", remembering_entry())
    monkeypatch.setitem(tasks._FAMILIES, "dmc-pixels", family)
    return actions


def test_a_state_is_carried_through_an_episode_and_forgotten_where_the_next_begins(played):
    moments = list(record(remembering_policies(), episodes=2, sampled=False, seed=0))
    assert [(moment.episode, moment.step) for moment in moments] == [(1, 0), (1, 1), (1, 3), (2, 0), (2, 1), (2, 3)]
    assert played == [[1, 11], [2, 12], [3, 13], [1, 21], [2, 22], [3, 23]]


def test_a_task_that_renders_nothing_for_people_is_not_filmed(played, monkeypatch):
    monkeypatch.setitem(tasks._FAMILIES, "dmc-pixels", replace(tasks._FAMILIES["dmc-pixels"], record=None))
    with pytest.raises(ValueError, match="hopper_stand cannot be filmed: its family renders nothing for people"):
        list(record(remembering_policies(), episodes=1, sampled=False, seed=0))
