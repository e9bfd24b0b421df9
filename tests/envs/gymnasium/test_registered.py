import sys

import gymnasium
import pytest
from runs.small_gymnasium import task

from vcse.agents import agents_for
from vcse.envs.gymnasium import registered
from vcse.envs.tasks import check_task, observation_kind, task_spec

OWN = """
import gymnasium
from gymnasium.envs.classic_control import CartPoleEnv

gymnasium.register("{id}", entry_point=CartPoleEnv, max_episode_steps=7)
"""


@pytest.fixture(autouse=True)
def _fresh(monkeypatch):
    """Forget what other tests registered, and leave nothing behind."""
    monkeypatch.setattr(registered, "check_id", registered.check_id.__wrapped__)
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = dict(gymnasium.registry)
    yield
    gymnasium.registry.clear()
    gymnasium.registry.update(before)


def test_a_module_in_the_working_directory_is_imported(tmp_path, monkeypatch):
    (tmp_path / "one_of_mine.py").write_text(OWN.format(id="OneOfMine-v0"))
    monkeypatch.chdir(tmp_path)
    registered.check_id("one_of_mine:OneOfMine-v0")
    made = registered.make("one_of_mine:OneOfMine-v0")
    assert registered.most_steps(made) == 7
    registered.check_id("OneOfMine-v0")  # from now on, in this process


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gymnasium/CartPole-v3", "'CartPole-v3' is not registered with Gymnasium; nearest are gymnasium/CartPole-v1"),
        ("gymnasium-pixels/cartpole-v1", "nearest are gymnasium-pixels/CartPole-v1, "),
        ("gymnasium/minigrid:MiniGrid-Emty-5x5-v0", "module 'minigrid' registers no 'MiniGrid-Emty-5x5-v0'; nearest"),
        ("gymnasium/minigrid:MiniGrid-Emty-5x5-v0", "are gymnasium/minigrid:MiniGrid-Empty-5x5-v0"),
        ("gymnasium/not_here:Mine-v0", "module 'not_here' cannot be imported: ModuleNotFoundError: No module named"),
    ],
)
def test_what_does_not_exist_is_named_with_what_is_nearest(name, said):
    with pytest.raises(ValueError, match=said) as refused:
        registered.check_id(name.partition("/")[2], family=name.partition("/")[0])
    assert "\n" not in str(refused.value)


def test_a_module_that_fails_is_told_in_one_line(tmp_path, monkeypatch):
    (tmp_path / "broken_of_mine.py").write_text("raise KeyError('first line\\nsecond line')")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"module 'broken_of_mine' cannot be imported: KeyError: ") as refused:
        registered.check_id("broken_of_mine:Mine-v0")
    assert "\n" not in str(refused.value)


def test_without_gymnasium_the_extra_is_named(monkeypatch):
    monkeypatch.setattr(registered, "is_installed", lambda: False)
    with pytest.raises(RuntimeError, match=r"CartPole-v1, is not installed: .*pip install 'vcse\[gymnasium\]'"):
        registered.check_id("CartPole-v1")


def test_a_version_that_is_too_old_is_named_with_what_is_served(monkeypatch):
    monkeypatch.setattr(gymnasium, "__version__", "0.29.1")
    with pytest.raises(RuntimeError, match=r"gymnasium 0.29.1 is not supported, but >=1.1 is: .*pip install"):
        registered.check_id("CartPole-v1")


def test_what_cannot_be_made_says_why_in_one_line():
    def make(**_):
        raise OSError("no robot\nis connected")

    gymnasium.register("Unplugged-v0", entry_point=make)
    with pytest.raises(RuntimeError, match="gymnasium/Unplugged-v0 cannot be made: OSError: no robot is connected"):
        registered.make("Unplugged-v0")


def test_what_renders_nothing_is_refused():
    class Dark(gymnasium.Env):
        metadata = {"render_modes": ["human"]}  # noqa: RUF012

        def __init__(self, render_mode=None):
            pass

    gymnasium.register("Dark-v0", entry_point=Dark)
    said = "gymnasium/Dark-v0 cannot be rendered: its metadata has no render mode 'rgb_array', but human"
    with pytest.warns(UserWarning, match="render"), pytest.raises(RuntimeError, match=said):
        registered.make("Dark-v0", renders=True)


def test_what_is_missing_to_render_is_said(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)  # as if it were not installed
    world = registered.make("CartPole-v1", renders=True)
    world.reset(seed=0)
    with pytest.raises(RuntimeError, match=r"gymnasium/CartPole-v1 cannot be rendered: .*pygame is not installed"):
        registered.render(world, "gymnasium/CartPole-v1")


def test_a_task_that_says_nothing_of_a_limit_has_one_here():
    gymnasium.register("Endless-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")
    made = registered.make("Endless-v0")
    assert registered.most_steps(made) == registered.MOST_STEPS
    assert registered.most_steps(registered.make("CartPole-v1")) == 500


def test_a_plugin_may_register_an_id(monkeypatch):
    monkeypatch.setattr(registered, "load_plugins", lambda: gymnasium.register("OfPlugin-v0", entry_point="nowhere:X"))
    registered.check_id("OfPlugin-v0")


@pytest.mark.parametrize(
    ("name", "kind", "agent", "sizes"),
    [
        ("gymnasium/CartPole-v1", "state", "a2c", ((4,), 2, 0)),
        ("gymnasium/FrozenLake-v1", "state", "a2c", ((16,), 4, 0)),
        ("gymnasium/Pendulum-v1", "state", "sac", ((3,), 0, 1)),
        ("gymnasium-pixels/Pendulum-v1", "image", "drqv2", ((), 0, 1)),
        ("gymnasium-pixels/CartPole-v1", "image", "a2c", ((84, 84, 3), 2, 0)),
        (task("Image"), "image", "a2c", ((12, 14, 3), 2, 0)),
        (task("SteeredImage"), "image", "drqv2", ((), 0, 1)),
        (task("MiniGrid-Mine"), "grid", "a2c", ((7, 7, 3), 7, 0)),
    ],
)
def test_what_a_task_shows_and_how_one_acts_choose_the_agent(name, kind, agent, sizes):
    check_task(name)
    spec = task_spec(name)
    assert observation_kind(name) == kind
    assert agents_for(name) == (agent,)
    assert (spec.observation_shape, spec.actions, spec.action_size) == sizes
    assert spec.is_foreign
    assert spec.warning == ""


def test_what_is_not_deterministic_at_once_is_known_before():
    assert "the same seed and actions led to something else: it is not determ" in task_spec(task("Noisy")).warning
    assert task_spec(task("LateNoise")).warning == ""
