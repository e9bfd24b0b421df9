import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from multiprocessing.context import SpawnProcess
from pathlib import Path

import numpy as np
import pytest

from vcse.envs.interface import TaskSpec
from vcse.envs.mujoco import dmc
from vcse.envs.mujoco.dmc import DMCStates, check_task, registered_tasks, task_spec

SIZES = {
    "hopper_stand": (15, 4),
    "hopper_hop": (15, 4),
    "walker_walk": (24, 6),
    "walker_walk_sparse": (24, 6),
    "cheetah_run": (17, 6),
    "cheetah_run_sparse": (17, 6),
    "cartpole_swingup_sparse": (5, 1),
    "pendulum_swingup": (3, 1),
    "ball_in_cup_catch": (8, 2),
    "humanoid_CMU_stand": (137, 56),
    "lqr_lqr_2_1": (4, 1),
}
ALL_TASKS = registered_tasks()


def act(environments, actions):
    environments.send(np.asarray(actions, dtype=np.float32))
    return environments.receive()


def actions_of(seed, steps, size, *, most=1.0):
    return np.random.default_rng([seed, 1]).uniform(-most, most, (steps, size)).astype(np.float32)


def play(environments, seeds, steps):
    """Play an episode of each seed at random, and keep everything."""
    actions = np.stack([actions_of(seed, steps, environments.action_size) for seed in seeds], 1)
    return [(environments.reset(seeds),), *[act(environments, each) for each in actions]]


def assert_same(some, others, which=...):
    for one, other in zip(some, others, strict=True):
        for part, counterpart in zip(one, other, strict=True):
            np.testing.assert_array_equal(None if part is None else np.asarray(part)[which], counterpart)


def simulator_of(environments, place=0):
    """Reach for dm_control's own environment."""
    return environments._simulators._environments[place]._simulator


def load(domain, task, seed):
    """Make an environment as dm_control means it to be made."""
    return dmc._suite().load(domain, task, task_kwargs={"random": seed})


def flat(observation):
    return np.concatenate([np.ravel(part) for part in observation.values()]).astype(np.float32)


class TestTasks:
    def test_every_task_of_the_suite_has_a_name_of_its_own(self):
        assert len(ALL_TASKS) == len(dmc._suite().ALL_TASKS) + 2
        assert {"ball_in_cup_catch", "point_mass_easy", "humanoid_CMU_stand", "lqr_lqr_2_1"} <= set(ALL_TASKS)
        for name in ALL_TASKS:
            check_task(name)

    @pytest.mark.parametrize(("name", "sizes"), SIZES.items())
    def test_sizes(self, name, sizes):
        assert task_spec(name) == TaskSpec(1000, observation_shape=sizes[:1], action_size=sizes[1])
        environments = DMCStates([name, name])
        assert (environments.count, environments.observation_size, environments.action_size) == (2, *sizes)
        assert environments.most_steps == 1000
        observations = environments.reset([1, 2])
        step = act(environments, np.zeros((2, sizes[1])))
        for shown in (observations, step.next_observations):
            assert (shown.shape, shown.dtype) == ((2, sizes[0]), np.float32)
        assert (step.rewards.shape, step.rewards.dtype) == ((2,), np.float32)
        assert not step.ended.any()

    def test_a_typo_is_answered_with_the_nearest(self):
        with pytest.raises(
            ValueError, match="task 'dmc/hoper_stand' does not exist; nearest are dmc/hopper_stand, "
        ) as e:
            check_task("hoper_stand")
        assert str(e.value).count("dmc/") == 4
        assert f"vcse tasks lists all {len(ALL_TASKS)}" in str(e.value)
        with pytest.raises(ValueError, match="does not exist; nearest are"):
            DMCStates(["zzz"])

    def test_without_dm_control_it_says_what_to_install(self, monkeypatch):
        monkeypatch.setattr(dmc, "_installed", lambda: False)
        missing = r"dm_control, which simulates dmc/hopper_stand, is not installed: pip install 'vcse\[dmc\]'"
        with pytest.raises(RuntimeError, match=missing):
            check_task("hopper_stand")
        with pytest.raises(RuntimeError, match="dm_control is not installed"):
            registered_tasks()

    def test_a_library_that_cannot_draw_is_refused_in_our_words(self, monkeypatch):
        monkeypatch.setenv("MUJOCO_GL", "vulkan")
        with pytest.raises(RuntimeError, match="MUJOCO_GL must be egl, osmesa, glfw or off, or not be set, got 'vulk"):
            dmc._suite.__wrapped__()  # without its cache

    def test_sizes_must_agree(self):
        with pytest.raises(ValueError, match=r"dmc/hopper_stand has observations of 15 .* dmc/walker_walk of 24 and 6"):
            DMCStates(["hopper_stand", "hopper_hop", "walker_walk"])

    def test_there_must_be_processes(self):
        with pytest.raises(ValueError, match="processes must be at least 1, got 0"):
            DMCStates(["hopper_stand"], processes=0)

    def test_nothing_is_imported_before_it_is_needed_and_opengl_never(self):
        code = (
            "import sys, vcse.envs.mujoco.dmc as dmc; assert 'dm_control' not in sys.modules\n"
            "dmc.task_spec('hopper_stand'); assert 'dm_control' in sys.modules; assert 'OpenGL' not in sys.modules"
        )
        environment = {name: value for name, value in os.environ.items() if name not in ("MUJOCO_GL", "DISPLAY")}
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
        )
        assert (done.returncode, done.stderr) == (0, "")


class TestRewards:
    def test_observations_and_rewards_are_those_of_dm_control(self):
        environments = DMCStates(["walker_run"])
        reference = load("walker", "run", 11)
        assert np.array_equal(environments.reset([11])[0], flat(reference.reset().observation))
        for action in actions_of(11, 200, 6):
            step, told = act(environments, action[None]), reference.step(action)
            assert np.array_equal(step.next_observations[0], flat(told.observation))
            assert step.rewards[0] == np.float32(told.reward)

    @pytest.mark.parametrize(
        "task", ["hopper_stand", "walker_walk_sparse", "quadruped_escape", "manipulator_bring_ball"]
    )
    def test_what_is_not_observed_changes_nothing_else(self, task):
        seen, unseen = dmc.simulate(task), dmc.simulate(task, observes=False)
        assert seen.begin(3).size > 0
        assert unseen.begin(3).size == 0
        for action in np.random.default_rng(0).uniform(-1, 1, (20, seen.action_size)):
            assert seen.step(action)[1:] == unseen.step(action)[1:]
        np.testing.assert_array_equal(seen.data.qpos, unseen.data.qpos)

    def test_standing_of_the_hopper(self):
        environments = DMCStates(["hopper_stand"])
        paid = set()
        for seed in range(6):
            environments.reset([seed])
            physics = simulator_of(environments).physics
            for action in actions_of(seed, 300, 4, most=1.2):  # beyond 1 the reward for small actions is 0
                step = act(environments, action[None])
                height = physics.named.data.xipos["torso", "z"] - physics.named.data.xipos["foot", "z"]
                small = np.mean([max(0.0, 1 - float(force) ** 2) for force in action])
                reward = float(0.6 <= height <= 2) * (small + 4) / 5
                assert step.rewards[0] == pytest.approx(reward, abs=1e-7)
                paid.add(reward > 0)
        assert paid == {True, False}

    @pytest.mark.parametrize(
        ("name", "domain", "task", "least", "push"),
        [("walker_walk_sparse", "walker", "walk", 0.7, 2.0), ("cheetah_run_sparse", "cheetah", "run", 0.25, 4.0)],
    )
    def test_sparse_rewards_are_the_dense_ones_from_a_threshold_on(self, name, domain, task, least, push):
        environments = DMCStates([name])
        dense = []
        for seed in (1, 2):
            reference = load(domain, task, seed)
            reference.reset()
            environments.reset([seed])
            both = [simulator.physics for simulator in (simulator_of(environments), reference)]
            for index, action in enumerate(actions_of(seed, 1000, 6)):
                if index % 50 < 10:  # at random nobody walks: they are put on their feet, and pushed
                    for physics in both:
                        if domain == "walker":
                            physics.data.qpos[:] = 0
                        physics.named.data.qvel["rootx"] = push
                told, step = reference.step(action), act(environments, action[None])
                assert np.array_equal(step.next_observations[0], flat(told.observation))
                assert step.rewards[0] == (0 if told.reward < least else np.float32(told.reward))
                dense.append(told.reward)
            assert (told.last(), step.truncated[0]) == (True, True)
        above = np.array(dense) >= least
        assert above.sum() > 30
        assert (~above & (np.array(dense) > 0)).sum() > 30

    def test_actions_reach_the_bounds_of_the_task(self):
        environments = DMCStates(["hopper_stand"])
        environments.reset([0])
        reacher = environments._simulators._environments[0]
        reacher._middle, reacher._reach = np.array([1.0, 0, 0, 0]), np.array([2.0, 1, 1, 1])
        act(environments, [[-1, 0.5, -1, 1]])
        assert np.array_equal(simulator_of(environments).physics.control(), [-1, 0.5, -1, 1])
        act(environments, [[1, 0.5, -1, 1]])
        assert np.array_equal(simulator_of(environments).physics.control(), [3, 0.5, -1, 1])

    def test_actions_without_bounds_are_passed_as_they_are(self):
        environments = DMCStates(["lqr_lqr_6_2"])
        environments.reset([0])
        act(environments, [[0.25, -3]])
        assert np.array_equal(simulator_of(environments).physics.control(), [0.25, -3])


def bring_to_rest(environments, place):
    physics = simulator_of(environments, place).physics
    physics.data.qpos[:] = 0
    physics.forward()


class TestEnds:
    @pytest.mark.parametrize("name", ["hopper_stand", "cartpole_swingup_sparse", "lqr_lqr_2_1"])
    def test_the_time_limit_truncates(self, name):
        environments = DMCStates([name])
        for seed in (0, 1):
            environments.reset([seed])
            ends = []
            for action in actions_of(seed, 1000, environments.action_size):
                step = act(environments, action[None])
                ends.append((step.terminated[0], step.truncated[0], step.ended[0]))
            assert ends == [(False, False, False)] * 999 + [(False, True, True)]

    def test_only_lqr_terminates(self):
        environments = DMCStates(["lqr_lqr_2_1", "lqr_lqr_2_1"])
        environments.reset([0, 1])
        bring_to_rest(environments, 1)
        step = act(environments, np.zeros((2, 1)))
        assert step.terminated.tolist() == step.ended.tolist() == [False, True]
        assert not step.truncated.any()

    def test_an_ended_episode_wants_a_reset(self):
        environments = DMCStates(["lqr_lqr_2_1", "lqr_lqr_2_1"])
        environments.reset([0, 1])
        bring_to_rest(environments, 1)
        last = act(environments, np.zeros((2, 1)))
        with pytest.raises(ValueError, match=r"environment 1 \(dmc/lqr_lqr_2_1\) must be reset .* has ended"):
            environments.send(np.zeros((2, 1), dtype=np.float32))
        shown = environments.reset([None, 5])
        assert np.array_equal(shown[0], last.next_observations[0])
        assert not np.array_equal(shown[1], last.next_observations[1])
        assert np.array_equal(environments.reset([None, None]), shown)
        act(environments, np.zeros((2, 1)))


class TestDeterminism:
    @pytest.mark.parametrize("name", ALL_TASKS)
    def test_an_episode_does_not_depend_on_the_one_before(self, name):
        def episode(environment, seed, steps):
            actions = actions_of(seed, steps, environment.action_size)
            return [(environment.begin(seed),), *[environment.step(action) for action in actions]]

        used, fresh = dmc._Environment(name), dmc._Environment(name)
        episode(used, 7, 12)
        assert_same(episode(used, 3, 6), episode(fresh, 3, 6))

    @pytest.mark.parametrize("name", ["manipulator_insert_peg", "point_mass_hard", "quadruped_escape", "lqr_lqr_6_2"])
    def test_nor_where_the_task_changes_the_model(self, name):
        used = DMCStates([name])
        for seed in range(5):
            assert_same(play(used, [seed], 10), play(DMCStates([name]), [seed], 10))

    def test_other_seeds_give_other_episodes(self):
        environments = DMCStates(["hopper_stand"] * 6)
        assert len(np.unique(environments.reset(range(6)), axis=0)) == 6

    def test_a_reset_leaves_the_neighbours_alone(self):
        actions = np.stack([actions_of(seed, 40, 4) for seed in (5, 6)], 1)
        alone, together = DMCStates(["hopper_hop"]), DMCStates(["hopper_hop", "hopper_stand"])
        alone.reset([5])
        together.reset([5, 6])
        for index, each in enumerate(actions):
            if index % 7 == 3:
                together.reset([None, index])
            assert_same([act(together, each)], [act(alone, each[:1])], slice(1))


# Something holds the environments when a process ends: what it failed in, or nothing but the process itself.
HELD_IN_A_FAILURE = """
import multiprocessing
from vcse.envs.mujoco.dmc import DMCStates

class Holder:
    def __init__(self):
        self.environments = DMCStates(["pendulum_swingup"] * 2, processes=2)
        raise OSError("no space is left")

if __name__ == "__main__":
    process = multiprocessing.get_context("spawn").Process(target=Holder)
    process.start()
    process.join(30)
    print("ended", process.exitcode)
    process.kill()
"""
HELD_TO_THE_END = """
import tempfile
folder = tempfile.TemporaryDirectory()  # which is cleaned up by a finaliser of weakref's
from vcse.envs.mujoco.dmc import DMCStates

if __name__ == "__main__":
    environments = DMCStates(["pendulum_swingup"] * 2, processes=2)
    print("ended", len(environments.reset([0, 1])) - 1)
"""


class TestWorkers:
    TASKS = ("walker_walk", "walker_walk_sparse", "walker_run", "walker_stand", "walker_walk")

    def test_they_do_the_same_as_one_process(self):
        def episodes(processes):
            environments = DMCStates(self.TASKS, processes=processes)
            kept = play(environments, [1, 2, 3, 4, 5], 30)
            kept.append((environments.reset([None, 9, None, 8, None]),))
            kept += [act(environments, each) for each in actions_of(0, 50, 30).reshape(50, 5, 6)]
            environments.close()
            return kept

        assert_same(episodes(1), episodes(3))
        assert not multiprocessing.active_children()

    def test_they_are_no_more_than_environments_and_tell_of_ends(self):
        environments = DMCStates(["pendulum_swingup"] * 2, processes=9)
        assert len(multiprocessing.active_children()) == 2
        environments.reset([0, 1])
        before = act(environments, np.zeros((2, 1)))
        kept = before.next_observations.copy()
        for _ in range(998):
            assert not act(environments, np.ones((2, 1))).truncated.any()
        assert act(environments, np.ones((2, 1))).truncated.all()
        assert np.array_equal(before.next_observations, kept)  # what was received stays as it is
        with pytest.raises(ValueError, match="environment 0"):
            environments.send(np.zeros((2, 1), dtype=np.float32))
        environments.close()

    def test_the_death_of_one_is_told(self):
        environments = DMCStates(["hopper_stand"] * 3, processes=2)
        environments.reset([0, 1, 2])
        actions = np.zeros((3, 4), dtype=np.float32)
        act(environments, actions)
        victim = environments._simulators._workers[1].process
        os.kill(victim.pid, signal.SIGKILL)
        victim.join()
        with pytest.raises(
            RuntimeError, match=r"worker process of environments 1 ended unexpectedly, with exit code -9 "
        ):
            act(environments, actions)
        assert not multiprocessing.active_children()
        with pytest.raises(RuntimeError, match=r"send\(\) after close\(\)"):
            environments.send(actions)
        environments.close()

    @pytest.mark.parametrize("processes", [1, 2])
    def test_a_simulation_that_diverges_is_told(self, processes):
        environments = DMCStates(["lqr_lqr_2_1"] * 4, processes=processes)
        environments.reset([0, 1, 2, 3])
        with pytest.raises(RuntimeError, match=r"environment 2 \(dmc/lqr_lqr_2_1\) failed: PhysicsError: .*invalid"):
            act(environments, [[0], [0], [1e30], [0]])
        with pytest.raises(ValueError, match="must be reset"):
            act(environments, np.zeros((4, 1)))
        assert_same(play(environments, [5, 6, 7, 8], 9), play(DMCStates(["lqr_lqr_2_1"] * 4), [5, 6, 7, 8], 9))
        environments.close()

    def test_nothing_is_left_behind_when_they_are_forgotten(self):
        shared = set(Path("/dev/shm").glob("*")) if Path("/dev/shm").exists() else set()
        environments = DMCStates(["pendulum_swingup"] * 2, processes=2)
        environments.reset([0, 1])
        environments.send(np.zeros((2, 1), dtype=np.float32))
        assert len(multiprocessing.active_children()) == 2
        del environments
        gc.collect()
        assert not multiprocessing.active_children()
        assert not set(Path("/dev/shm").glob("pym-*")) - shared

    def test_a_failure_at_the_start_leaves_nothing_behind(self, monkeypatch):
        monkeypatch.setattr(dmc, "SPARSE", {"hopper_stand_again": ("hopper_stand", 0.5)})
        monkeypatch.setattr(dmc, "_tasks", dmc._tasks.__wrapped__)  # without its cache
        with pytest.raises(RuntimeError, match=r"environment 0 .* KeyError"):  # the workers do not know it
            DMCStates(["hopper_stand_again"] * 2, processes=2)
        assert not multiprocessing.active_children()

    @pytest.mark.parametrize("script", [HELD_IN_A_FAILURE, HELD_TO_THE_END], ids=["failure", "end"])
    def test_the_process_that_holds_them_can_end(self, tmp_path, script):
        (tmp_path / "script.py").write_text(script)
        done = subprocess.run(
            [sys.executable, tmp_path / "script.py"], timeout=60, check=True, capture_output=True, text=True
        )
        assert done.stdout == "ended 1\n"

    def test_a_signal_that_comes_while_they_start_waits(self, monkeypatch):
        held, start = [], SpawnProcess.start

        def start_and_look(process):
            held.append(signal.pthread_sigmask(signal.SIG_BLOCK, ()))
            start(process)

        monkeypatch.setattr(SpawnProcess, "start", start_and_look)
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ())
        DMCStates(["pendulum_swingup"] * 2, processes=2).close()
        assert [{signal.SIGINT, signal.SIGTERM} <= each for each in held] == [True, True]
        assert signal.pthread_sigmask(signal.SIG_BLOCK, ()) == before

    def test_they_end_when_the_process_that_waits_is_killed(self):
        code = (
            "import multiprocessing, time; from vcse.envs.mujoco.dmc import DMCStates\n"
            "if __name__ == '__main__':\n"
            "    environments = DMCStates(['pendulum_swingup'] * 2, processes=2)\n"
            "    print(*[each.pid for each in multiprocessing.active_children()], flush=True)\n"
            "    time.sleep(60)"
        )
        with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
            workers = [int(number) for number in parent.stdout.readline().split()]
            assert len(workers) == 2
            parent.kill()
        deadline = time.monotonic() + 60
        while any(is_running(worker) for worker in workers):
            assert time.monotonic() < deadline
            time.sleep(0.05)


def is_running(process):
    """Whether a process does something; one that has ended may still wait for somebody to notice."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


class TestMisuse:
    def test_bad_actions_are_refused(self, without_type_checks):
        environments = DMCStates(["hopper_stand", "hopper_stand"])
        environments.reset([0, 1])
        for shape in ((2, 3), (1, 4), (8,)):
            with pytest.raises(ValueError, match="actions must be 4 numbers for each of 2 environments, got shape"):
                environments.send(np.zeros(shape, dtype=np.float32))
        for bad in (np.nan, np.inf):
            with pytest.raises(
                ValueError, match=rf"actions must be finite, got \[0.0, {bad}, 0.0, 0.0\] for environment 1"
            ):
                environments.send(np.array([[0, 0, 0, 0], [0, bad, 0, 0]], dtype=np.float32))
        act(environments, np.zeros((2, 4)))  # nothing was begun

    def test_bad_seeds_are_refused(self):
        environments = DMCStates(["hopper_stand", "hopper_stand"])
        with pytest.raises(ValueError, match="seeds must be one for each of 2 environments, got 1"):
            environments.reset([0])
        with pytest.raises(ValueError, match=r"environment 1 \(dmc/hopper_stand\) has had no episode: it needs a seed"):
            environments.reset([0, None])
        for seed in (-1, 2**32):
            with pytest.raises(ValueError, match=rf"seeds must be from 0 to 2\*\*32 - 1, got {seed} for environment 1"):
                environments.reset([0, seed])

    def test_order(self):
        environments = DMCStates(["hopper_stand"])
        actions = np.zeros((1, 4), dtype=np.float32)
        with pytest.raises(ValueError, match="must be reset before its next action: its episode has not begun"):
            environments.send(actions)
        environments.reset([0])
        with pytest.raises(RuntimeError, match=r"receive\(\) without send\(\)"):
            environments.receive()
        environments.send(actions)
        with pytest.raises(RuntimeError, match=r"send\(\) between send\(\) and receive\(\)"):
            environments.send(actions)
        with pytest.raises(RuntimeError, match=r"reset\(\) between send\(\) and receive\(\)"):
            environments.reset([0])
        environments.receive()
        environments.close()
        environments.close()
        with pytest.raises(RuntimeError, match=r"reset\(\) after close\(\)"):
            environments.reset([0])
