import gc
import importlib.util
import multiprocessing
import os
import signal
from pathlib import Path

import numpy as np
import pytest
from gl import needs_gl

from vcse.envs.interface import Making, TaskSpec
from vcse.envs.mujoco import dmc, pixels
from vcse.envs.mujoco.dmc import DMCStates
from vcse.envs.mujoco.pixels import Pixels
from vcse.envs.tasks import check_task, task_spec

HOPPERS = ("dmc-pixels/hopper_stand", "dmc-pixels/hopper_hop")


def act(environments, actions):
    environments.send(np.asarray(actions, dtype=np.float32))
    return environments.receive()


def actions_of(seed, steps, size):
    return np.random.default_rng([seed, 1]).uniform(-1, 1, (steps, size)).astype(np.float32)


def play(environments, seeds, steps):
    """Play an episode of each seed at random, and keep everything."""
    actions = np.stack([actions_of(seed, steps, environments.action_size) for seed in seeds], 1)
    return [(environments.reset(seeds),), *[act(environments, each) for each in actions]]


def assert_same(some, others):
    for one, other in zip(some, others, strict=True):
        for part, counterpart in zip(one, other, strict=True):
            np.testing.assert_array_equal(part, counterpart)


class TestTasks:
    def test_sizes_are_known_without_drawing(self):
        assert task_spec("dmc-pixels/hopper_stand") == TaskSpec(1000, action_size=4)
        assert task_spec("dmc-pixels/cheetah_run_sparse") == TaskSpec(1000, action_size=6)

    def test_unknown_ones_are_refused(self):
        check_task("dmc-pixels/hopper_stand")
        with pytest.raises(ValueError, match=r"'dmc-pixels/hoper_stand' does not exist; nearest are dmc-pixels/hopper"):
            check_task("dmc-pixels/hoper_stand")
        with pytest.raises(ValueError, match="'dmc-pixels/hop' does not exist"):
            Pixels(["dmc-pixels/hop"], Making())

    def test_missing_packages_are_named(self, monkeypatch):
        monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
        with pytest.raises(
            RuntimeError, match=r"simulates dmc-pixels/hopper_stand, is not installed: pip install 'vcse\[dmc\]'"
        ):
            check_task("dmc-pixels/hopper_stand")
        with pytest.raises(
            RuntimeError, match=r"simulates metaworld/door-open, is not installed: pip install 'vcse\[metaworld\]'"
        ):
            check_task("metaworld/door-open")


class TestMisuse:
    @pytest.mark.parametrize(
        ("tasks", "options", "message"),
        [
            (["dmc-pixels/hopper_stand"], {"threads": 0}, "processes must be at least 1, got 0"),
            (["dmc-pixels/hopper_stand"], {"rendering": "nice"}, "one of faithful, light, fast, got 'nice'"),
            (["dmc-pixels/hopper_stand"], {"device": "tpu"}, "device must be cpu, cuda, .* got 'tpu'"),
            (["dmc-pixels/hopper_stand"], {"device": "cuda:x"}, "device must be cpu, cuda, .* got 'cuda:x'"),
            (["dmc-pixels/hopper_stand", "dmc-pixels/walker_run"], {}, "actions of 4 numbers, .*walker_run of 6"),
        ],
    )
    def test_it_is_refused(self, without_type_checks, tasks, options, message):
        with pytest.raises(ValueError, match=message):
            Pixels(tasks, Making(**options))
        assert not multiprocessing.active_children()

    def test_drawing_that_is_turned_off_is_told(self, monkeypatch):
        monkeypatch.setenv("MUJOCO_GL", "off")
        with pytest.raises(RuntimeError, match=r"^images are asked for, but MUJOCO_GL=off turns drawing off$"):
            Pixels(["dmc-pixels/hopper_stand"], Making())
        assert not multiprocessing.active_children()


class Blind:
    """A camera that sees nothing, so that episodes can be played in this process."""

    def __init__(self, *_, **__):
        self.rendered = 0

    def render(self, _):
        self.rendered += 1
        return np.zeros((3, 84, 84), dtype=np.uint8)

    def renew_terrain(self):
        pass


@pytest.fixture
def blind(monkeypatch):
    monkeypatch.setattr(pixels, "Renderer", Blind)
    making = Making(rendering="fast", action_repeat=2)
    return lambda name: pixels._Environment(dmc.simulate(name, observes=False), making)


def physics_of(environment):
    return environment.simulation._simulator.physics


class TestFrames:
    @pytest.mark.parametrize(("name", "push"), [("walker_walk_sparse", 2.0), ("cheetah_run_sparse", 4.0)])
    def test_sparse_rewards_are_cut_in_each_frame_and_summed(self, blind, name, push):
        environment, states = blind(name), DMCStates([name])
        environment.begin(3)
        states.reset([3])
        both = [physics_of(environment), states._simulators._environments[0]._simulator.physics]
        paid = []
        for index, action in enumerate(actions_of(3, 500, 6)):
            if index % 25 < 5:  # at random nobody walks: they are put on their feet, and pushed
                for physics in both:
                    if name.startswith("walker"):
                        physics.data.qpos[:] = 0
                    physics.named.data.qvel["rootx"] = push
            _, reward, terminated, truncated, success = environment.step(action)
            frames = [act(states, action[None]) for _ in range(2)]
            assert reward == pytest.approx(float(sum(frame.rewards[0] for frame in frames)), rel=1e-6)
            assert (terminated, truncated, success) == (False, bool(frames[1].truncated[0]), False)
            assert truncated == (index == 499)
            paid.append(tuple(frame.rewards[0] > 0 for frame in frames))
        assert len(set(paid)) >= 3  # also in one frame of two
        assert environment._camera.rendered == 501

    def test_an_end_in_the_first_frame_is_the_last(self, blind):
        environment = blind("lqr_lqr_2_1")
        environment.begin(0)
        physics_of(environment).data.qpos[:] = 0
        physics_of(environment).forward()
        _, _, terminated, truncated, _ = environment.step(np.zeros(1))
        assert (terminated, truncated) == (True, False)
        assert environment.simulation._steps == 1


@pytest.fixture(scope="class")
def hoppers():
    environments = Pixels(HOPPERS, Making(rendering="light", action_repeat=2))
    yield environments
    environments.close()


@needs_gl
class TestPixels:
    def test_shapes(self, hoppers):
        assert (hoppers.count, hoppers.action_size, hoppers.most_steps, hoppers.action_repeat) == (2, 4, 500, 2)
        assert (hoppers.image_shape, hoppers.has_success) == ((3, 84, 84), False)
        assert hoppers.gl_backend in {"osmesa", "egl", "glfw"}
        shown = hoppers.reset([0, 1])
        step = act(hoppers, np.ones((2, 4)))
        for image in (shown, step.next_observations):
            assert (image.shape, image.dtype) == ((2, 3, 84, 84), np.uint8)
            assert all(each.std() > 10 for each in image)
        assert (step.rewards.shape, step.rewards.dtype) == ((2,), np.float32)
        for flag in (step.terminated, step.truncated, step.ended):
            assert (flag.tolist(), flag.dtype) == ([False, False], np.bool_)
        assert step.success is None

    def test_images_are_upright(self, hoppers):
        image = hoppers.reset([0, 1])[0].astype(int)
        orange = np.argwhere(image[0] - image[2] > 60)
        assert len(orange) > 20
        assert orange[:, 0].mean() < 60  # it is above the ground
        sky, ground = image[:, :20].mean(), image[:, -20:].mean()
        assert sky > ground + 10

    def test_an_episode_depends_on_its_seed_and_actions_alone(self, hoppers):
        first = play(hoppers, [3, 4], 12)
        play(hoppers, [5, 6], 3)
        assert_same(play(hoppers, [3, 4], 12), first)
        others = Pixels(HOPPERS, Making(rendering="light", threads=2, spins=True, action_repeat=2))
        assert len(multiprocessing.active_children()) == 3
        assert_same(play(others, [3, 4], 12), first)
        shown = others.reset([None, 9])
        assert np.array_equal(shown[0], first[-1].next_observations[0])
        others.close()
        assert len(multiprocessing.active_children()) == 1

    def test_other_seeds_give_other_images(self, hoppers):
        assert len(np.unique(np.stack([hoppers.reset([seed, 0])[0] for seed in range(4)]), axis=0)) == 4

    def test_what_was_received_stays_as_it_is(self, hoppers):
        shown = hoppers.reset([0, 1])
        kept = shown.copy()
        next_observations = act(hoppers, np.ones((2, 4))).next_observations
        assert np.array_equal(shown, kept)
        assert (next_observations != shown).any()

    def test_rewards_are_those_of_states(self, hoppers):
        states = DMCStates([task.partition("/")[2] for task in HOPPERS])
        states.reset([1, 2])
        hoppers.reset([1, 2])
        for actions in actions_of(0, 20, 8).reshape(20, 2, 4):
            frames = [act(states, actions) for _ in range(2)]
            np.testing.assert_allclose(act(hoppers, actions).rewards, sum(frame.rewards for frame in frames), rtol=1e-6)

    def test_the_time_limit_truncates(self):
        environments = Pixels(["dmc-pixels/pendulum_swingup"], Making(rendering="fast", action_repeat=2))
        environments.reset([0])
        steps = [act(environments, [[0.5]]) for _ in range(500)]
        ends = [(step.terminated[0], step.truncated[0], step.ended[0]) for step in steps]
        assert ends == [(False, False, False)] * 499 + [(False, True, True)]
        with pytest.raises(ValueError, match=r"environment 0 \(dmc-pixels/pendulum_swingup\) must be reset"):
            environments.send(np.zeros((1, 1), dtype=np.float32))
        environments.close()

    def test_a_quadruped_is_seen_from_its_side_on_the_terrain_of_its_episode(self):
        environments = Pixels(["dmc-pixels/quadruped_escape"] * 2, Making(rendering="fast", action_repeat=2))
        shown = environments.reset([0, 1])
        ground = shown[:, :, 60:]
        assert np.abs(ground[0].astype(int) - ground[1]).mean() > 2
        environments.reset([1, 1])
        assert np.array_equal(environments.reset([0, None])[0], shown[0])
        environments.close()


@needs_gl
class TestWorkers:
    def test_the_death_of_one_is_told(self):
        environments = Pixels(["dmc-pixels/pendulum_swingup"] * 2, Making(rendering="fast", threads=2, action_repeat=2))
        environments.reset([0, 1])
        victim = environments._simulators._workers[1].process
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        actions = np.zeros((2, 1), dtype=np.float32)
        with pytest.raises(RuntimeError, match=r"worker process of environments 1 ended unexpectedly, .* code -9 "):
            act(environments, actions)
        assert not multiprocessing.active_children()
        with pytest.raises(RuntimeError, match=r"send\(\) after close\(\)"):
            environments.send(actions)
        environments.close()

    def test_a_simulation_that_diverges_is_told_and_nothing_is_left_behind(self):
        shared = set(Path("/dev/shm").glob("*")) if Path("/dev/shm").exists() else set()
        environments = Pixels(["dmc-pixels/lqr_lqr_2_1"] * 2, Making(rendering="fast", action_repeat=2))
        environments.reset([0, 1])
        with pytest.raises(RuntimeError, match=r"environment 1 \(dmc-pixels/lqr_lqr_2_1\) failed: PhysicsError"):
            act(environments, [[0], [1e30]])
        environments.reset([0, 1])
        act(environments, np.zeros((2, 1)))
        environments.send(np.zeros((2, 1), dtype=np.float32))
        del environments
        gc.collect()
        assert not multiprocessing.active_children()
        assert not set(Path("/dev/shm").glob("pym-*")) - shared


def test_the_names_of_both_families_of_dm_control_are_the_same():
    names = dmc.registered_tasks()
    assert len(names) > 50
    assert [check_task(f"dmc-pixels/{name}") for name in names] == [None] * len(names)
    with pytest.raises(ValueError, match="task 'dmc-pixels/hopper_stnd' does not exist"):
        check_task("dmc-pixels/hopper_stnd")
