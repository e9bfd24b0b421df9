import itertools

import numpy as np

from vcse.envs.fork.recording import AGENT, ROOM, UNPAID, WALL, image, record_fork
from vcse.envs.fork.world import CORRIDOR, END_PAYS, EPISODE_STEPS, TASKS

ALONG = ["NESW".index(move) for move in "EENNEESSEENN"]


def test_every_step_of_an_episode_is_drawn_and_its_end_told():
    moves = itertools.cycle([*ALONG, *[0] * (EPISODE_STEPS - CORRIDOR)])
    moments = list(record_fork("ratio4-first1", lambda seen, generator: next(moves), episodes=2, seed=0))
    assert [each.step for each in moments] == 2 * list(range(EPISODE_STEPS + 1))
    assert [each.outcome for each in moments if each.outcome] == ["goal", "goal"]
    assert 0.8 < moments[EPISODE_STEPS].return_so_far / (EPISODE_STEPS * END_PAYS) < 1
    assert moments[-1].return_so_far == moments[EPISODE_STEPS].return_so_far
    end = image(TASKS["ratio4-first1"], CORRIDOR)
    assert np.array_equal(moments[CORRIDOR].image, end)
    assert np.array_equal(moments[-1].image, end)  # not where the next episode begins
    [*_, last] = record_fork("ratio4-first1", lambda seen, generator: 0, episodes=1, seed=0)
    assert last.outcome == "out of time"


def test_a_map_is_drawn_from_above_and_what_pays_more_is_greener():
    world = TASKS["ratio1-first6"]
    cell = 480 // (4 + 7 + 2)  # columns of the room and of the corridor, and walls all around
    drawn = image(world, agent=0)[cell // 2 :: cell, cell // 2 :: cell].tolist()
    assert [len(drawn), len(drawn[0])] == [2 + 1 + 1 + 2, 4 + 7 + 2]
    assert drawn[0] == [list(WALL)] * 13
    assert drawn[3][:8] == [list(colour) for colour in (WALL, *[ROOM] * 4, AGENT, UNPAID, UNPAID)]
    reds = [drawn[row][column][0] for row, column in ((1, 8), (1, 9), (3, 9), (3, 11), (1, 11))]
    assert reds == sorted(reds, reverse=True)
    assert len(set(reds)) == 5
