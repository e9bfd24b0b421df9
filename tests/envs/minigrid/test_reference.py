from collections import Counter
from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
import torch
from minigrid.core.grid import Grid
from scipy.stats import chi2_contingency

from vcse.agents.a2c.networks import TanhMLP
from vcse.envs import minigrid, tasks
from vcse.envs.interface import Making, Step
from vcse.envs.minigrid import names
from vcse.envs.minigrid.envpool import EnvPoolMiniGrid
from vcse.envs.minigrid.full_map import AGENT, COLOURS, OBJECTS, PLANES, STATES, map_planes
from vcse.envs.minigrid.names import TASKS
from vcse.envs.minigrid.reference import ReferenceMiniGrid
from vcse.estimators import joint_neighbors
from vcse.nets.encoders import GridEncoder
from vcse.streams import torch_generator

BACKENDS = ("envpool", "minigrid")
LEFT, RIGHT, FORWARD, PICK_UP, DROP, TOGGLE, REST = range(7)
UNSEEN, EMPTY, WALL, DOOR, KEY, LAVA = 0, 1, 2, 4, 5, 9
FRONT, OWN = (3, 5), (3, 6)  # cells of the view: ahead of the agent, and below it, where it shows what it carries
STEP_LIMITS = {
    "LavaGapS7": 196,
    "Empty-16x16": 1024,
    "DoorKey-6x6": 360,
    "DoorKey-8x8": 640,
    "Unlock": 288,
    "SimpleCrossingS9N1": 324,
}


def make(task, seeds, *, shown="view", **how):
    return minigrid.make([task] * len(seeds), Making(seeds=seeds, **how), shown=shown)


def act(environments, actions):
    environments.send(np.asarray(actions))
    return environments.receive()


def walk(environments, choosers, steps, *, actions=7):
    """Act at random, each environment by a generator of its own, and keep everything."""
    kept = [(environments.reset(), environments.positions)]
    kept += [act(environments, [chooser.integers(actions) for chooser in choosers]) for _ in range(steps)]
    environments.close()
    return kept


def choosers_of(seeds):
    return [np.random.default_rng([seed, 1]) for seed in seeds]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", TASKS)
def test_time_limits_and_shapes(task, backend):
    environments = make(task, [1, 2], backend=backend)
    observations, positions = environments.reset(), environments.positions
    assert environments.most_steps == STEP_LIMITS[task]
    assert (environments.count, environments.actions, environments.observation_shape) == (2, 7, (7, 7, 3))
    assert (observations.shape, observations.dtype) == ((2, 7, 7, 3), np.uint8)
    assert positions.shape == (2, 2)
    environments.close()


OBSTACLES = "Dynamic-Obstacles-"
ALLOW_OLD_VERSIONS = pytest.mark.filterwarnings("ignore:.* is out of date:DeprecationWarning")


@ALLOW_OLD_VERSIONS
@pytest.mark.parametrize("backend", BACKENDS)
def test_an_agent_has_as_many_actions_as_its_task_declares(backend):
    found = {}
    for task in names.buildable_tasks(full=backend == "minigrid"):
        environments = make(task, [0], backend=backend)
        found[task] = environments.actions
        environments.close()
    assert sum(task.startswith(OBSTACLES) for task in found) == 6
    assert found == {task: 3 if task.startswith(OBSTACLES) else 7 for task in found}


@ALLOW_OLD_VERSIONS
def test_what_rewards_the_goal_alone_is_what_the_minigrid_package_says():
    buildable = names.buildable_tasks(full=True)
    rewarded = {task: ReferenceMiniGrid(task, [0]).worlds[0].reward_range for task in buildable}
    assert set(rewarded.values()) == {(0, 1), (-1, 1)}
    assert rewarded == {task: (0 if names.rewards_only_the_goal(task) else -1, 1) for task in rewarded}


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("task", ["LavaGapS5", "Dynamic-Obstacles-5x5", "Fetch-5x5-N2", "RedBlueDoors-6x6", "MemoryS7"])
def test_other_rewards_than_the_goals_are_where_they_are_said_to_be(task, backend):
    seeds = range(8)
    environments = make(task, seeds, backend=backend)
    steps = walk(environments, choosers_of(seeds), 300, actions=environments.actions)[1:]
    failures = {float(reward) for step in steps for reward in step.rewards[step.terminated & (step.rewards <= 0)]}
    assert failures == {0.0 if names.rewards_only_the_goal(task) else -1.0}
    assert all((step.rewards[~step.terminated] == 0).all() for step in steps)


@cache
def first_worlds(task):
    """The missions of a few episodes, and how often each thing is on their maps."""
    world = ReferenceMiniGrid(task, [0]).worlds[0]
    return [
        (world.reset(seed=seed)[0]["mission"], Counter(thing.type for thing in world.grid.grid if thing is not None))
        for seed in range(6)
    ]


class TestMissions:
    TASKS = names.buildable_tasks(full=True)

    @ALLOW_OLD_VERSIONS
    def test_they_change_where_they_are_said_to(self):
        missions = {task: {mission for mission, _ in first_worlds(task)} for task in self.TASKS}
        changing = {task for task, texts in missions.items() if len(texts) > 1}
        assert changing == {task for task in self.TASKS if names.mission_of(task) != "constant"}
        assert len(changing) == 19

    @pytest.mark.parametrize("task", [task for task in TASKS if names.mission_of(task) == "names"])
    def test_what_is_named_is_the_only_thing_of_its_kind(self, task):
        for mission, things in first_worlds(task):
            assert things[mission.split()[-1]] == 1  # pick up the red ball, ... and go to the goal

    @pytest.mark.parametrize("task", [task for task in TASKS if names.mission_of(task) == "chooses"])
    def test_what_is_chosen_is_one_of_several_things(self, task):
        for mission, things in first_worlds(task):
            assert things[mission.split()[-1]] >= 1
            assert sum(count for thing, count in things.items() if thing != "wall") >= 2


class TestFirstLooks:
    """Both backends draw their layouts from the same distribution, as far as the first observation shows it."""

    @staticmethod
    @cache
    def counts(task):
        pool = EnvPoolMiniGrid(task, range(20_000))
        observations, positions = pool.reset(), pool.positions
        pool.close()
        looks = np.concatenate((observations.reshape(len(positions), -1), positions.astype(np.uint8)), -1)
        world = ReferenceMiniGrid(task, [0]).worlds[0]
        reference: Counter[bytes] = Counter()
        for seed in range(1_000):
            image = world.reset(seed=seed)[0]["image"]
            reference[image.tobytes() + np.array(world.agent_pos, dtype=np.uint8).tobytes()] += 1
        return Counter(look.tobytes() for look in looks), reference

    @pytest.mark.parametrize(("task", "distinct"), [("LavaGapS7", 15), ("Empty-16x16", 1), ("SimpleCrossingS9N1", 30)])
    def test_the_same_few(self, task, distinct):
        pool, reference = self.counts(task)
        assert pool.keys() == reference.keys()
        assert len(pool) == distinct

    @pytest.mark.parametrize("task", ["DoorKey-6x6", "DoorKey-8x8", "Unlock"])
    def test_what_the_one_shows_the_other_shows(self, task):
        pool, reference = self.counts(task)
        missed = sum(count for look, count in reference.items() if look not in pool) / reference.total()
        # Of a sample of many kinds, the share of kinds seen once is that of kinds not seen yet (Good and Turing).
        seen_once = sum(count == 1 for count in pool.values()) / pool.total()
        assert missed == pytest.approx(seen_once, abs=0.04)
        assert missed < 0.2

    @pytest.mark.parametrize("task", [task for task in TASKS if task != "Empty-16x16"])
    def test_as_often(self, task):
        pool, reference = self.counts(task)
        looks = [look for look, count in pool.items() if count > 100]  # 5 are expected of the other
        table = np.array([[counts[look] for look in looks] for counts in (pool, reference)])
        rare = np.array([[pool.total()], [reference.total()]]) - table.sum(-1, keepdims=True)
        table = np.concatenate((table, rare), -1)
        assert table.shape[-1] > 10
        assert chi2_contingency(table[:, table.sum(0) > 0]).pvalue > 0.001


class Episode(NamedTuple):
    observation: np.ndarray  # the first
    position: np.ndarray
    actions: list[int]
    steps: list[tuple]  # of each action: seen, reward, terminated, truncated, position


def curious_actions(observations, chooser):
    """Act at random, but take keys, open doors and shun lava, so that something happens."""
    actions = chooser.choice(7, len(observations), p=[0.15, 0.15, 0.5, 0.05, 0.05, 0.05, 0.05])
    kind, state = observations[:, *FRONT, 0], observations[:, *FRONT, 2]
    does = chooser.random(len(observations)) < 0.8
    actions[does & (kind == KEY)] = PICK_UP
    actions[does & (kind == DOOR) & (state > 0)] = TOGGLE
    actions[does & (kind == LAVA)] = RIGHT
    return actions


def episodes_of(task, count, *, per_environment=2):
    """Play whole episodes with EnvPool, the first ones of each environment and those after a reset."""
    pool, chooser = EnvPoolMiniGrid(task, range(100, 100 + count)), np.random.default_rng(7)
    observations, positions = pool.reset(), pool.positions
    running = [Episode(*start, [], []) for start in zip(observations, positions, strict=True)]
    done: list[list[Episode]] = [[] for _ in range(count)]
    while min(map(len, done)) < per_environment:
        actions = curious_actions(observations, chooser)
        step = act(pool, actions)
        for index, episode in enumerate(running):
            episode.actions.append(int(actions[index]))
            seen, position = step.next_observations[index], step.next_positions[index]
            flags = bool(step.terminated[index]), bool(step.truncated[index])
            episode.steps.append((seen, float(step.rewards[index]), *flags, position))
            if any(flags):
                done[index].append(episode)
                running[index] = Episode(step.observations[index], step.positions[index], [], [])
        observations = step.observations
    pool.close()
    return [episode for each in done for episode in each[:per_environment]]


DIRECTIONS = np.array([[1, 0], [0, 1], [-1, 0], [0, -1]])


def layout_of(episode, direction, size):
    """Put together what the agent saw of the map before it changed anything there, if it first looked this way.

    It sees whatever it picks up or opens, and wherever it drops something, before it does. Where the map ends, walls
    are seen; None if anything else was.
    """
    cells = np.zeros((*size, 3), dtype=np.uint8)
    across, down = np.meshgrid(np.arange(7), np.arange(7), indexing="ij")
    cells[tuple(episode.position)] = (EMPTY, 0, 0)
    looks = [(None, episode.observation, episode.position)]
    looks += [(action, step[0], step[-1]) for action, step in zip(episode.actions, episode.steps, strict=True)]
    for action, look, position in looks:
        direction = (direction + {LEFT: -1, RIGHT: 1}.get(action, 0)) % 4
        ahead, right = DIRECTIONS[direction], DIRECTIONS[(direction + 1) % 4]
        places = position + (6 - down)[..., None] * ahead + (across - 3)[..., None] * right
        seen = look[..., 0] != UNSEEN
        seen[OWN] = False
        inside = seen & ((places >= 0) & (places < size)).all(-1)
        if (look[seen & ~inside, 0] != WALL).any():
            return None
        x, y = places[inside].T
        new = cells[x, y, 0] == UNSEEN
        cells[x[new], y[new]] = look[inside][new]
    return cells


def replays(episode, world, cells, direction):
    """Return whether the `minigrid` package goes through the whole episode on this map."""
    world.reset(seed=0)
    world.grid, _ = Grid.decode(cells)
    world.agent_pos, world.agent_dir = tuple(map(int, episode.position)), direction
    doors = [each for each in world.grid.grid if each is not None and each.type == "door"]
    if doors and hasattr(world, "door"):  # Unlock asks its own door whether it is open
        [world.door] = doors
    if not np.array_equal(world.gen_obs()["image"], episode.observation):
        return False
    for action, (seen, reward, terminated, truncated, position) in zip(episode.actions, episode.steps, strict=True):
        observation, paid, ends, runs_out, _ = world.step(action)
        alike = (ends, runs_out and not ends) == (terminated, truncated) and abs(paid - reward) < 1e-6
        if not alike or tuple(world.agent_pos) != tuple(position):
            return False
        if not np.array_equal(observation["image"], seen):
            return False
    return True


class TestReplay:
    """What EnvPool played, the `minigrid` package plays too, step by step, on the map that the agent saw."""

    @staticmethod
    @cache
    def replayed(task):
        world = ReferenceMiniGrid(task, [0]).worlds[0]
        found = []
        for episode in episodes_of(task, {"Empty-16x16": 3, "DoorKey-8x8": 5}.get(task, 10)):
            # The direction at the start is not told; the agent's moves fit one of the four.
            maps = [(way, layout_of(episode, way, (world.width, world.height))) for way in range(4)]
            fits = [(way, cells) for way, cells in maps if cells is not None and replays(episode, world, cells, way)]
            found.append((episode, fits))
        return found

    @pytest.mark.parametrize("task", TASKS)
    def test_every_episode_agrees_to_its_end(self, task):
        found = self.replayed(task)
        assert all(len(fits) == 1 for _, fits in found)
        rewards = [episode.steps[-1][1] for episode, _ in found]
        assert sum(len(episode.actions) for episode, _ in found) > 500
        assert sum(reward > 0 for reward in rewards) >= 2  # or the end of the task would not have been seen

    def test_all_ways_to_end_are_seen(self):
        ends = {episode.steps[-1][2:4] for task in TASKS for episode, _ in self.replayed(task)}
        assert ends == {(True, False), (False, True)}
        lost = [episode for episode, _ in self.replayed("LavaGapS7") if episode.steps[-1][1:3] == (0, True)]
        assert lost  # in the lava

    @pytest.mark.parametrize(
        ("task", "seeds"), [("LavaGapS7", 150), ("Empty-16x16", 1), ("SimpleCrossingS9N1", 400), ("DoorKey-6x6", 6000)]
    )
    def test_the_maps_are_among_those_of_the_minigrid_package(self, task, seeds):
        world = ReferenceMiniGrid(task, [0]).worlds[0]
        candidates = {}
        for seed in range(seeds):
            world.np_random = np.random.default_rng(seed)
            world._gen_grid(world.width, world.height)  # a reset without the view, which takes most of its time
            cells = world.grid.encode()
            start = (*map(int, world.agent_pos), int(world.agent_dir))
            candidates[cells.tobytes(), start] = (cells, start)
        matched = 0
        found = self.replayed(task)
        for episode, [(direction, cells)] in found:
            seen = cells[..., 0] != UNSEEN
            start = (*map(int, episode.position), direction)
            matched += any(
                start == at and np.array_equal(candidate[seen], cells[seen]) for candidate, at in candidates.values()
            )
        assert matched >= 0.97 * len(found)


@pytest.mark.parametrize("backend", BACKENDS)
def test_success_with_the_last_step_is_a_success(backend):
    environments = make("Empty-16x16", [0], backend=backend)
    environments.reset()
    way = [FORWARD] * 13 + [RIGHT] + [FORWARD] * 13
    for action in [REST] * (1024 - len(way)) + way[:-1]:
        assert not act(environments, [action]).ended[0]
    step = act(environments, way[-1:])
    assert (step.terminated[0], step.truncated[0]) == (True, False)
    assert step.rewards[0] == pytest.approx(0.1)
    assert step.next_positions[0].tolist() == [14, 14]
    assert step.positions[0].tolist() == [1, 1]
    environments.close()


@pytest.mark.parametrize(
    "backend",
    [
        "envpool",
        "minigrid",
    ],
)
def test_lava_with_the_last_step_is_lava(backend):
    environments = make("LavaGapS7", range(30), backend=backend)
    observations = environments.reset()
    burns = observations[:, *FRONT, 0] == LAVA
    assert burns.any()
    for _ in range(195):
        act(environments, [REST] * 30)
    step = act(environments, [FORWARD] * 30)
    environments.close()
    assert np.array_equal(step.terminated, burns)
    assert np.array_equal(step.truncated, ~burns)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_collision_with_the_last_step_is_a_collision(backend):
    environments = make("Dynamic-Obstacles-5x5", range(3), backend=backend)
    environments.reset()
    for action in [LEFT] * 98 + [RIGHT]:  # which leaves it in its corner, before the upper wall
        assert not act(environments, [action] * 3).ended.any()
    step = act(environments, [FORWARD] * 3)
    environments.close()
    assert environments.most_steps == 100
    assert step.rewards.tolist() == [-1] * 3
    assert step.terminated.all()
    assert not step.truncated.any()


class TestReset:
    @pytest.mark.parametrize("backend", BACKENDS)
    def test_no_step_is_lost_between_episodes(self, backend):
        environments = make("LavaGapS7", range(4), backend=backend)
        environments.reset()
        cuts = [index for index in range(1, 3 * 196 + 2) if act(environments, [REST] * 4).truncated.all()]
        assert cuts == [196, 392, 588]
        environments.close()

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_the_first_action_after_a_reset_counts(self, backend):
        environments = make("Empty-16x16", [0], backend=backend)
        environments.reset()
        for action in [FORWARD] * 13 + [RIGHT] + [FORWARD] * 13:
            step = act(environments, [action])
        assert step.terminated[0]
        assert act(environments, [FORWARD]).positions[0].tolist() == [2, 1]
        environments.close()

    @pytest.mark.parametrize("backend", BACKENDS)
    @pytest.mark.parametrize("task", ["LavaGapS7", "DoorKey-6x6"])
    def test_next_observations_differ_from_what_is_shown_only_at_ends(self, task, backend):
        seeds = range(6)
        ends = different = 0
        for step in walk(make(task, seeds, backend=backend), choosers_of(seeds), 450)[1:]:
            same = (step.next_observations == step.observations).all((1, 2, 3))
            same &= (step.next_positions == step.positions).all(-1)
            assert same[~step.ended].all()
            assert not (step.terminated & step.truncated).any()
            assert (step.rewards[~step.terminated] == 0).all()
            ends += step.ended.sum()
            different += (~same).sum()
        assert ends >= 6
        assert different > 0


class TestStreams:
    SEEDS = (3, 14, 15, 92)

    @staticmethod
    def assert_same(some, others, which):
        for one, other in zip(some, others, strict=True):
            for part, counterpart in zip(one, other, strict=True):
                np.testing.assert_array_equal(None if part is None else part[which], counterpart)

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_an_environment_does_the_same_alone_and_among_others(self, backend):
        def play(seeds, **settings):
            return walk(make("LavaGapS7", seeds, backend=backend, **settings), choosers_of(seeds), 250)

        crowd = play(self.SEEDS)
        assert sum(step.ended.sum() for step in crowd[1:]) > 8  # resets draw new maps, from the own stream
        self.assert_same(crowd, play(self.SEEDS[1:3]), slice(1, 3))
        self.assert_same(crowd, play(self.SEEDS[3:]), slice(3, 4))

    def test_threads_do_not_matter(self):
        def play(threads):
            environments = make("Unlock", self.SEEDS, backend="envpool", threads=threads)
            return walk(environments, choosers_of(self.SEEDS), 700)

        one = play(1)
        assert sum(step.ended.sum() for step in one[1:]) >= 8
        self.assert_same(one, play(4), slice(None))

    @pytest.mark.parametrize("backend", BACKENDS)
    def test_other_seeds_give_other_maps(self, backend):
        environments = make("Unlock", range(20), backend=backend)
        observations = environments.reset()
        environments.close()
        assert len(np.unique(observations.reshape(20, -1), axis=0)) > 10


# Distinct observations, and joint radii that are 0 with k = 3 and with k = 5.
SHARES = {
    "SimpleCrossingS9N1": (0.33, 0.61, 0.37),
    "LavaGapS7": (0.31, 0.62, 0.38),
    "Empty-16x16": (0.17, 0.86, 0.72),
    "DoorKey-6x6": (0.32, 0.61, 0.37),
    "DoorKey-8x8": (0.35, 0.56, 0.31),
    "Unlock": (0.35, 0.56, 0.32),
}


def encode(generator, batches):
    return GridEncoder(7, 7, 3, [generator])(torch.from_numpy(batches).view(1, -1, 7, 7, 3))


class TestBatches:
    """How much is equal in a batch of 16 environments x 8 steps under a random policy."""

    @staticmethod
    def batches(task, seed):
        environments = make(task, [1000 * seed + index for index in range(16)], backend="envpool")
        chooser = np.random.default_rng(seed)
        observations = environments.reset()
        kept = []
        for _ in range(150 * 8):
            kept.append(observations)
            observations = act(environments, chooser.integers(0, 7, 16)).observations
        environments.close()
        return np.stack(kept[120 * 8 :]).reshape(30, 128, 7, 7, 3)

    @pytest.mark.parametrize("task", TASKS)
    def test_shares(self, task):
        measured = []
        for seed in range(2):
            batches = self.batches(task, seed)
            distinct = np.mean([len(np.unique(batch.reshape(128, -1), axis=0)) / 128 for batch in batches])
            generator = torch_generator(seed, "parameters")
            trained = encode(generator, batches)
            values = TanhMLP(64, 64, 1, [generator])(trained).view(30, 128)
            values = torch.nn.functional.layer_norm(values, (128,), eps=0.0)
            seen = encode(torch_generator(seed, "random encoder"), batches).view(30, 128, -1)
            zero = [(joint_neighbors(seen, values, k=k).radius == 0).double().mean().item() for k in (3, 5)]
            measured.append((distinct, *zero))
        np.testing.assert_allclose(np.mean(measured, 0), SHARES[task], atol=0.07)


class TestWholeMap:
    def test_every_cell_has_one_object_one_colour_and_one_state(self):
        seeds = range(3)
        environments = make("DoorKey-6x6", seeds, shown="map")
        assert environments.observation_shape == (6, 6, PLANES)
        chooser, carried = np.random.default_rng(0), 0
        observations, positions = environments.reset(), environments.positions
        for _ in range(800):
            assert (observations.shape, observations.dtype) == ((3, 6, 6, PLANES), np.uint8)
            objects, colours, states, carrying = np.split(
                observations, np.cumsum((OBJECTS, COLOURS, STATES)).tolist(), -1
            )
            for planes in (objects, colours, states):
                assert (planes.sum(-1) == 1).all()
            where = np.argwhere(objects[..., AGENT])
            assert np.array_equal(where, np.column_stack((np.arange(3), positions)))
            directions = [world.agent_dir for world in environments.worlds]
            assert (states[*where.T].argmax(-1) == directions).all()
            holds = np.array([world.carrying is not None for world in environments.worlds])
            assert (carrying == holds[:, None, None, None]).all()
            assert np.array_equal(objects[..., KEY].any((1, 2)), ~holds)
            carried += holds.sum()
            assert np.array_equal(observations, [map_planes(world) for world in environments.worlds])
            looks = np.stack([type(world).gen_obs(world)["image"] for world in environments.worlds])
            step = act(environments, curious_actions(looks, chooser))
            assert np.array_equal(np.argwhere(step.next_observations[..., AGENT])[:, 1:], step.next_positions)
            observations, positions = step.observations, step.positions
        assert carried > 100

    @pytest.mark.parametrize("task", ["Unlock", "Dynamic-Obstacles-8x8", "Fetch-8x8-N3"])
    def test_worlds_that_change_by_themselves_are_shown_as_they_are(self, task):
        environments = make(task, range(2), shown="map")
        chooser = np.random.default_rng(0)
        environments.reset()
        for _ in range(200):
            step = act(environments, chooser.integers(environments.actions, size=2))
            assert np.array_equal(step.observations, [map_planes(world) for world in environments.worlds])

    def test_the_partial_view_is_of_the_same_worlds(self):
        whole, partial = make("DoorKey-6x6", [5, 6], shown="map"), make("DoorKey-6x6", [5, 6], backend="minigrid")
        whole.reset()
        observations = partial.reset()
        assert np.array_equal(whole.positions, partial.positions)
        assert observations.shape == (2, 7, 7, 3)


class TestChoice:
    def test_unknown_tasks_are_refused_with_the_valid_ones(self):
        with pytest.raises(ValueError, match="task 'minigrid/LavaGap' does not exist") as caught:
            tasks.check_task("minigrid/LavaGap")
        assert all(f"minigrid/{task}" in str(caught.value) for task in TASKS)

    @pytest.mark.parametrize("name", ["LavaGapS77", "lavagaps7", "MiniGrid-LavGapS7-v0"])
    def test_unknown_tasks_are_refused_with_the_nearest(self, name):
        message = f"task 'minigrid-full/{name}' does not exist; nearest are minigrid-full/LavaGapS7, "
        with pytest.raises(ValueError, match=message):
            tasks.check_task(f"minigrid-full/{name}")

    @pytest.mark.parametrize(
        "task", ["MiniGrid-LavaGapS7-v0", "minigrid/MiniGrid-LavaGapS7-v0", "minigrid/LavaGapS7-v0"]
    )
    def test_names_of_gymnasium_are_answered_with_ours(self, task):
        with pytest.raises(ValueError, match=r"is spelt as in Gymnasium: write minigrid/LavaGapS7$"):
            tasks.check_task(task)

    def test_no_seeds_are_refused(self):
        with pytest.raises(ValueError, match="at least one environment is needed, got no seeds"):
            tasks.make_environments(["minigrid/LavaGapS7"], Making())

    def test_envpool_does_not_show_the_whole_map(self):
        with pytest.raises(
            ValueError, match="backend envpool does not show the whole map of minigrid-full/LavaGapS7: use minigrid"
        ):
            make("LavaGapS7", [0], shown="map", backend="envpool")

    def test_auto_takes_envpool_and_says_when_it_cannot(self, monkeypatch, capsys):
        assert isinstance(make("LavaGapS7", [0]), EnvPoolMiniGrid)
        assert capsys.readouterr().err == ""
        monkeypatch.setattr(names, "is_installed", lambda package: package == "minigrid")
        monkeypatch.setattr(names, "fastest_backend", names.fastest_backend.__wrapped__)  # without its cache
        assert isinstance(make("LavaGapS7", [0]), ReferenceMiniGrid)
        assert "pip install 'vcse[minigrid]'" in capsys.readouterr().err
        with pytest.raises(RuntimeError, match="EnvPool is not installed"):
            make("LavaGapS7", [0], backend="envpool")

    def test_without_any_backend_it_says_what_to_install(self, monkeypatch):
        monkeypatch.setattr(names, "is_installed", lambda package: False)
        with pytest.raises(RuntimeError, match=r"neither EnvPool nor minigrid is installed: pip install"):
            tasks.make_environments(["minigrid/LavaGapS7"], Making(seeds=[0]))

    def test_what_the_minigrid_package_has_no_files_for_is_refused_and_not_listed(self, monkeypatch, tmp_path):
        monkeypatch.setattr(names, "patterns", lambda: tmp_path / "patterns")
        with pytest.raises(RuntimeError, match=r"WFC-MazeSimple cannot be filmed, .* lacks the files in .*patterns; "):
            ReferenceMiniGrid("WFC-MazeSimple", [0])
        every, whole = (set(names.buildable_tasks(full=full)) for full in (False, True))
        assert every - whole == {task for task in every if task.startswith("WFC-")}
        assert len(every - whole) == 6
        monkeypatch.setattr(names, "is_installed", lambda package: package == "minigrid")
        assert not any(task.startswith("WFC-") for task in names.buildable_tasks(full=False))
        (tmp_path / "patterns").mkdir()
        assert {task for task in names.buildable_tasks(full=True) if task.startswith("WFC-")} == every - whole

    def test_the_minigrid_package_reads_its_patterns_where_they_are_looked_for(self):
        from minigrid.envs.wfc.config import PATTERN_PATH

        assert names.patterns() == PATTERN_PATH

    def test_one_task_of_the_minigrid_package_is_not_in_envpool(self, monkeypatch):
        of_envpool = set(names.registered_tasks())
        monkeypatch.setattr(names, "is_installed", lambda package: package == "minigrid")
        own = {"Mine"}  # which tests of gymnasium/... register
        assert (set(names.registered_tasks()) ^ of_envpool) - own == {"MultiRoom-N4-S5-v1"}

    def test_an_action_must_be_under_way(self):
        environments = ReferenceMiniGrid("LavaGapS7", [0])
        environments.reset()
        with pytest.raises(RuntimeError, match="without send"):
            environments.receive()

    def test_all_the_papers_tasks_are_registered(self):
        assert set(TASKS) <= set(names.registered_tasks())


def test_a_step_ends_for_either_reason():
    nothing = np.zeros((3, 7, 7, 3), dtype=np.uint8)
    where = np.zeros((3, 2), dtype=np.int32)
    terminated, truncated = np.array([True, False, False]), np.array([False, True, False])
    step = Step(nothing, nothing, np.zeros(3), terminated, truncated, where, where)
    assert step.ended.tolist() == [True, True, False]
