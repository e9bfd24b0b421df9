import subprocess
import sys

import numpy as np
import pytest
from gl import needs_gl

from vcse.envs.interface import Making, TaskSpec
from vcse.envs.mujoco import metaworld
from vcse.envs.mujoco.metaworld import TASKS, Arm, check_task
from vcse.envs.mujoco.pixels import Pixels
from vcse.envs.tasks import task_spec

pytest.importorskip("metaworld", reason="metaworld is not installed: pip install 'vcse[metaworld]'")


def state_of(arm):
    """All that the arm, the things around it and the image depend on."""
    parts = (arm.data.qpos, arm.data.qvel, arm.data.mocap_pos, arm.data.geom_xpos, arm.data.site_xpos)
    return np.concatenate([*map(np.ravel, parts), arm._simulator._target_pos])


def play(arm, seed, frames):
    arm.begin(seed)
    kept = [state_of(arm)]
    for action in np.random.default_rng(seed).uniform(-1, 1, (frames, 4)):
        told = arm.step(action)
        kept.append(np.append(state_of(arm), told))
    return kept


class TestTasks:
    def test_they_are_all_there(self):
        from metaworld.env_dict import ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE

        assert {f"{name}-v3-goal-observable" for name in TASKS} == set(ALL_V3_ENVIRONMENTS_GOAL_OBSERVABLE)
        assert len(TASKS) == 50
        assert task_spec("metaworld/door-open") == TaskSpec(500, action_size=4, has_success=True)

    def test_unknown_ones_are_refused(self):
        for name in TASKS:
            check_task(name)
        for name in ("door-opn", "door-open-v3"):
            with pytest.raises(ValueError, match=rf"'metaworld/{name}' does not exist; nearest are metaworld/door-"):
                check_task(name)


class TestEpisodes:
    @pytest.mark.parametrize("name", ["door-open", "push", "push-back", "box-close", "peg-insert-side", "basketball"])
    def test_they_depend_on_seed_and_actions_alone(self, name):
        used, fresh = Arm(name), Arm(name)
        for seed in (7, 8):
            play(used, seed, 30)
        np.random.seed(1)  # noqa: NPY002 - metaworld would draw from it
        some = play(used, 3, 10)
        np.random.seed(2)  # noqa: NPY002
        others = play(fresh, 3, 10)
        for one, other in zip(some, others, strict=True):
            np.testing.assert_array_equal(one, other)

    @pytest.mark.parametrize("name", ["door-open", "push", "reach"])
    def test_seeds_put_things_elsewhere(self, name):
        arm = Arm(name)
        goals = set()
        for seed in range(5):
            arm.begin(seed)
            goal = arm._simulator._target_pos
            assert np.array_equal(arm.data.site("goal").xpos, goal)  # which is what is drawn
            goals.add(tuple(goal))
            arm.step(np.zeros(4))
            np.testing.assert_allclose(arm._simulator._target_pos, goal)
        assert len(goals) == 5

    def test_the_time_limit_is_that_of_metaworld(self):
        arm = Arm("reach")
        arm.begin(0)
        assert arm._simulator.max_path_length == metaworld.MOST_FRAMES
        ends = [arm.step(np.zeros(4))[2] for _ in range(metaworld.MOST_FRAMES)]
        assert ends == [False] * 499 + [True]


# Draws what is to be drawn here with gymnasium's renderer too. That one does not say which window is meant.
SCRIPT = """
import sys
import numpy as np
from vcse.envs.mujoco.rendering import Renderer, choose_gl_backend
choose_gl_backend("cpu")
from gymnasium.envs.mujoco.mujoco_rendering import MujocoRenderer
from vcse.envs.mujoco.metaworld import CAMERA, Arm

kept, held = {}, []
for name in ("door-open", "drawer-open"):
    arm = Arm(name)
    stock = MujocoRenderer(arm.model, arm.data, width=84, height=84, camera_name="corner4")
    window = stock._get_viewer("rgb_array")
    held.append(stock)  # its end would take things of other windows with it
    renderer = Renderer(arm.model, CAMERA, (84, 84), "faithful", is_upside_down=True)
    arm.begin(4)
    for action in np.random.default_rng(0).uniform(-1, 1, (10, 4)):
        arm.step(action)
    window.make_context_current()
    kept[f"{name} stock"] = stock.render("rgb_array")
    kept[f"{name} faithful"] = renderer.render(arm.data)
    renderer.close()
    for quality in ("light", "fast"):
        renderer = Renderer(arm.model, CAMERA, (84, 84), quality, is_upside_down=True)
        kept[f"{name} {quality}"] = renderer.render(arm.data)
        renderer.close()
np.savez(sys.argv[1], **kept)
"""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    file = tmp_path_factory.mktemp("drawn") / "drawn.npz"
    subprocess.run([sys.executable, "-c", SCRIPT, file], check=True)
    with np.load(file) as kept:
        return dict(kept)


@needs_gl
@pytest.mark.parametrize("name", ["door-open", "drawer-open"])
class TestView:
    def test_it_is_the_corner_of_metaworld_turned_upright(self, drawn, name):
        assert np.array_equal(drawn[f"{name} faithful"], drawn[f"{name} stock"][::-1].transpose(2, 0, 1))

    def test_qualities(self, drawn, name):
        faithful, light, fast = (drawn[f"{name} {quality}"].astype(float) for quality in ("faithful", "light", "fast"))
        assert 0 < np.abs(light - faithful).mean() < 0.5  # of 255
        assert np.abs(fast - faithful).mean() > 2
        assert np.corrcoef(fast.ravel(), faithful.ravel())[0, 1] > 0.8


# The six of the paper, and the policies that metaworld has written for them.
PAPER_TASKS = {
    "door-open": "SawyerDoorOpenV3Policy",
    "drawer-open": "SawyerDrawerOpenV3Policy",
    "faucet-open": "SawyerFaucetOpenV3Policy",
    "faucet-close": "SawyerFaucetCloseV3Policy",
    "window-open": "SawyerWindowOpenV3Policy",
    "button-press": "SawyerButtonPressV3Policy",
}


@pytest.mark.filterwarnings("ignore:Constant")  # of policies, which are said to be too high
@pytest.mark.parametrize("name", PAPER_TASKS)
def test_the_tasks_of_the_paper_can_be_done(name):
    from metaworld import policies

    policy, arm = getattr(policies, PAPER_TASKS[name])(), Arm(name)
    arm.begin(2)
    told = [arm.step(np.zeros(4))]
    while not told[-1][2]:
        told.append(arm.step(np.clip(policy.get_action(arm._simulator._last_stable_obs), -1, 1)))
    rewards, _, _, success = zip(*told, strict=True)
    assert len(told) == metaworld.MOST_FRAMES
    assert not success[0]
    assert any(success)
    assert min(rewards) >= 0
    assert max(rewards) <= 10
    assert max(rewards) > 2 * min(rewards)


def actions_that_open_the_door(seed):
    """Play metaworld's own scripted policy, with every action twice."""
    from metaworld.policies import SawyerDoorOpenV3Policy

    policy, arm = SawyerDoorOpenV3Policy(), Arm("door-open")
    arm.begin(seed)
    arm.step(np.zeros(4))
    arm.step(np.zeros(4))
    actions, told = [np.zeros(4)], []
    for _ in range(249):
        action = np.clip(policy.get_action(arm._simulator._last_stable_obs), -1, 1).astype(np.float32)
        actions.append(action)
        frames = [arm.step(action) for _ in range(2)]
        told.append((sum(reward for reward, *_ in frames), any(success for *_, success in frames)))
    return np.array(actions, dtype=np.float32), told


@needs_gl
class TestPixels:
    @pytest.mark.filterwarnings("ignore:Constant")  # of the policy, which are said to be too high
    def test_a_door_is_opened(self):
        environments = Pixels(["metaworld/door-open"], Making(rendering="fast", action_repeat=2))
        assert (environments.has_success, environments.most_steps, environments.action_size) == (True, 250, 4)
        actions, told = actions_that_open_the_door(5)
        shown = environments.reset([5])
        steps = []
        for action in actions:
            environments.send(action[None])
            steps.append(environments.receive())
        environments.close()
        assert [bool(step.truncated[0]) for step in steps] == [False] * 249 + [True]
        assert not any(step.terminated[0] for step in steps)
        rewards, success = zip(*told, strict=True)
        np.testing.assert_allclose([step.rewards[0] for step in steps[1:]], rewards, rtol=1e-6)
        assert [bool(step.success[0]) for step in steps[1:]] == list(success)
        assert {(step.success.shape, step.success.dtype) for step in steps} == {((1,), np.dtype(np.bool_))}
        assert any(success)
        assert not success[0]
        assert np.abs(steps[-1].next_observations.astype(int) - shown).mean() > 3

    def test_seeds_processes_and_markers(self):
        tasks = ["metaworld/door-open", "metaworld/door-open", "metaworld/push"]
        some = Pixels(tasks, Making(rendering="fast", threads=2, action_repeat=2))
        first = some.reset([1, 1, 1])
        assert np.array_equal(first[0], first[1])  # which are in two processes
        others = some.reset([1, 2, 2])
        assert np.array_equal(others[0], first[0])
        assert np.abs(others[1].astype(int) - first[1]).mean() > 0.5
        assert np.abs(others[2].astype(int) - first[2]).mean() > 0.05  # a small thing
        some.close()
        unmarked = Pixels(tasks[:1], Making(rendering="fast", goal_marker=False, action_repeat=2))
        red, green, blue = unmarked.reset([1])[0].astype(int)
        unmarked.close()
        assert not ((green > red + 60) & (green > blue + 60)).any()
        red, green, blue = first[0].astype(int)
        assert ((green > red + 60) & (green > blue + 60)).any()
        # It is the right way up: the arm comes from above, and what is left of the image below is table.
        arm = np.argwhere(red > green + 80)
        assert arm[:, 0].mean() < 42
