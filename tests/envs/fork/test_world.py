import numpy as np
import pytest

from vcse.envs.fork.world import CELL_SIZE, CORRIDOR, END_PAYS, EPISODE_STEPS, MOVES, ROOMS, TASKS, Fork
from vcse.envs.interface import Making
from vcse.envs.tasks import check_task, make_environments, task_spec

ALONG = ["NESW".index(move) for move in "EENNEESSEENN"]  # from the fork to the end of the corridor
# From the fork (0), which is in the first column of the last row, to the end (c).
CORRIDOR_DRAWN = ("  456 c", "  3 7 b", "012 89a")


class LoopFork:
    """One agent on a drawn map, moved by hand."""

    def __init__(self, name):
        ratio, first = (int(part.lstrip("ratiofs")) for part in name.split("-"))
        rows, columns = ROOMS[ratio]
        drawn = [(row - 2, column, cell) for row, line in enumerate(CORRIDOR_DRAWN) for column, cell in enumerate(line)]
        self.numbers = {(row, column): int(cell, 16) for row, column, cell in drawn if cell != " "}
        room = [(row - rows // 2, -1 - column) for row in range(rows) for column in range(columns)]
        self.numbers |= dict.fromkeys(room, 0)
        self.first, self.cell = first, (0, 0)

    def step(self, action):
        moved = tuple(np.add(self.cell, MOVES[action]).tolist())
        self.cell = moved if moved in self.numbers else self.cell
        number = self.numbers[self.cell]
        paid = END_PAYS * number / CORRIDOR if number >= self.first else 0
        return CELL_SIZE * np.array(self.cell), paid, number == CORRIDOR


@pytest.mark.parametrize("name", TASKS)
def test_a_batch_moves_as_a_plain_loop_does(name):
    generator, count = np.random.default_rng(0), 5
    fork, loops = Fork(name, count), [LoopFork(name) for _ in range(count)]
    assert fork.reset().tolist() == [[0, 0]] * count
    places = set()
    for step in range(1, EPISODE_STEPS + 1):
        actions = generator.integers(4, size=count)
        actions[:2] = ALONG[step - 1] if step <= CORRIDOR else actions[:2]  # some go to the end of the corridor first
        actions[2] = 3 if step < 9 else actions[2]  # and one into the room
        fork.send(actions)
        told = fork.receive()
        moved = [loop.step(action) for loop, action in zip(loops, actions, strict=True)]
        seen, paid, success = zip(*moved, strict=True)
        assert np.array_equal(told.next_observations, seen)
        np.testing.assert_allclose(told.rewards, paid, rtol=1e-6)
        assert told.success.tolist() == list(success)
        assert not told.terminated.any()
        assert told.truncated.tolist() == [step == EPISODE_STEPS] * count
        places |= {tuple(place) for place in told.next_observations.tolist()}
    assert told.observations.tolist() == [[0, 0]] * count
    assert told.next_observations.any()
    assert len(places) > CORRIDOR + 4


@pytest.mark.parametrize("name", TASKS)
def test_the_room_has_as_many_cells_as_the_ratio_says_and_all_can_be_reached(name):
    world, ratio = TASKS[name], int(name.removeprefix("ratio").partition("-")[0])
    assert (world.cells[:, 1] < 0).sum() == ratio * CORRIDOR
    assert len({*map(tuple, world.cells.tolist())}) == len(world.cells) == (ratio + 1) * CORRIDOR + 1
    reached = {0}
    while (more := reached | set(world.next_cells[sorted(reached)].flatten().tolist())) != reached:
        reached = more
    assert len(reached) == len(world.cells)


@pytest.mark.parametrize(("first", "unpaid"), [(1, 0), (6, 5), (12, 11)])
def test_the_corridor_pays_from_its_first_paying_cell_on_and_most_at_its_end(first, unpaid):
    fork = Fork(f"ratio4-first{first}", 1)
    fork.reset()
    rewards = []
    for action in [*ALONG, *[0] * (EPISODE_STEPS - CORRIDOR)]:  # in the north of the end is a wall
        fork.send(np.array([action]))
        rewards.append(float(fork.receive().rewards[0]))
    shares = [0] * unpaid + [number / CORRIDOR for number in range(unpaid + 1, CORRIDOR + 1)]
    np.testing.assert_allclose(rewards[:CORRIDOR], END_PAYS * np.array(shares), rtol=1e-6)
    assert rewards[CORRIDOR:] == [END_PAYS] * (EPISODE_STEPS - CORRIDOR)


def test_the_same_actions_lead_to_the_same_numbers_whoever_else_moves():
    actions = np.random.default_rng(1).integers(4, size=(2 * EPISODE_STEPS, 3))
    both, alone = Fork("ratio16-first1", 3), Fork("ratio16-first1", 1)
    for fork in (both, alone):
        fork.reset(seeds=[7] * fork.count)
    for taken in actions:
        both.send(taken)
        alone.send(taken[:1])
        one, other = both.receive(), alone.receive()
        assert np.array_equal(one.observations[:1], other.observations)
        assert np.array_equal(one.rewards[:1], other.rewards)


def test_what_is_known_of_tasks():
    spec = task_spec("fork/ratio64-first12")
    assert (spec.most_frames, spec.observation_shape, spec.actions) == (EPISODE_STEPS, (2,), 4)
    assert spec.has_success
    assert spec.rewards_only_the_goal
    assert not task_spec("fork/ratio64-first6").rewards_only_the_goal


@pytest.mark.parametrize("name", ["ratio16-first7", "ratio-16-first6", "Ratio16-First6"])
def test_a_task_that_does_not_exist_is_answered_with_those_that_are_near(name):
    with pytest.raises(ValueError, match=f"task 'fork/{name}' does not exist; nearest are fork/ratio16-first6"):
        check_task(f"fork/{name}")


def test_environments_are_of_one_task():
    with pytest.raises(ValueError, match="of one task, got ratio1-first1, ratio4-first1"):
        make_environments(["fork/ratio4-first1", "fork/ratio1-first1"], Making(seeds=[0, 1]))
