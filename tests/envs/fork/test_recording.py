import numpy as np

from vcse.envs.fork.recording import AGENT, WALL, picture, record_fork
from vcse.envs.fork.world import CORRIDOR, EPISODE_STEPS, TASKS


def test_every_step_of_an_episode_is_drawn_and_its_end_told():
    east, north = (lambda seen, generator: 1), (lambda seen, generator: 0)
    moments = list(record_fork("ratio4-first1", east, episodes=2, seed=0))
    assert [each.step for each in moments] == 2 * list(range(EPISODE_STEPS + 1))
    assert [each.outcome for each in moments if each.outcome] == ["goal", "goal"]
    assert 0.8 < moments[EPISODE_STEPS].return_so_far < 1
    assert moments[-1].return_so_far == moments[EPISODE_STEPS].return_so_far
    [*_, last] = record_fork("ratio4-first1", north, episodes=1, seed=0)
    assert last.outcome == "out of time"


def test_the_agent_is_where_it_is():
    world = TASKS["ratio1-first6"]
    start, end = picture(world, 0), picture(world, CORRIDOR)
    columns = [np.flatnonzero((drawn == AGENT).all(-1).any(0)).mean() for drawn in (start, end)]
    cell = start.shape[1] / (4 + 1 + CORRIDOR + 2)  # the room, the fork, the corridor, a wall at either end
    assert np.isclose((columns[1] - columns[0]) / cell, CORRIDOR)
    assert (start[0] == WALL).all()


def test_what_pays_more_is_greener():
    drawn = picture(TASKS["ratio1-first6"], 0)
    cell = drawn.shape[1] // (4 + 1 + CORRIDOR + 2)
    middle = drawn.shape[0] // cell // 2 * cell + cell // 2
    shades = drawn[middle, 5 * cell + cell // 2 :: cell, 0].astype(int)[1 : CORRIDOR + 1]  # the less red, the greener
    assert len(set(shades[:5])) == 1
    assert (np.diff(shades[4:]) < 0).all()
