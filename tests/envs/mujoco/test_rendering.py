import os
import subprocess
import sys
import types

import numpy as np
import pytest
from gl import needs_gl

from vcse.envs.mujoco import rendering
from vcse.envs.mujoco.rendering import choose_gl_backend, gl_backend_for, missing_library

VARIABLES = ("MUJOCO_GL", "PYOPENGL_PLATFORM", "MUJOCO_EGL_DEVICE_ID", "LP_NUM_THREADS")


@pytest.fixture
def nothing_chosen(monkeypatch):
    """Reset the choice of a backend, before and after."""
    before = dict(os.environ)
    for variable in VARIABLES:
        os.environ.pop(variable, None)
    for module in [name for name in sys.modules if name.partition(".")[0] == "OpenGL"]:
        monkeypatch.delitem(sys.modules, module)
    yield
    for variable in VARIABLES:
        os.environ.pop(variable, None)
        if variable in before:
            os.environ[variable] = before[variable]


def have(monkeypatch, *libraries):
    monkeypatch.setattr(rendering, "_loads", lambda library: library in libraries)


@pytest.mark.usefixtures("nothing_chosen")
class TestBackend:
    @pytest.mark.parametrize(
        ("libraries", "chosen"), [(("OSMesa", "EGL"), "osmesa"), (("OSMesa",), "osmesa"), (("EGL",), "egl")]
    )
    def test_the_cpu_draws_with_the_first_that_is_there(self, monkeypatch, libraries, chosen):
        have(monkeypatch, *libraries)
        os.environ["PYOPENGL_PLATFORM"] = "egl"  # from a process above, which does not draw
        assert choose_gl_backend("cpu") == chosen
        assert [os.environ.get(variable) for variable in VARIABLES] == [chosen, chosen, None, "0"]
        have(monkeypatch, "OSMesa", "EGL")
        assert choose_gl_backend("cpu") == chosen  # which stays

    def test_a_gpu_draws_with_egl(self, monkeypatch):
        have(monkeypatch, "OSMesa")
        with pytest.raises(RuntimeError, match="EGL, which is not here: apt install libegl1"):
            choose_gl_backend("cuda")
        have(monkeypatch, "EGL")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        assert choose_gl_backend("cuda", 3) == "egl"
        assert [os.environ.get(variable) for variable in VARIABLES] == ["egl", "egl", "3", None]

    @pytest.mark.parametrize(
        ("listed", "index", "number"),
        [
            (None, 0, "0"),
            ("", 1, "1"),
            ("3", 0, "3"),
            ("2, 5,7", 1, "5"),
            ("2", 1, None),
            ("GPU-8932f937-d72c-4106", 0, None),
        ],
    )
    def test_a_gpu_is_the_one_that_cuda_sees(self, monkeypatch, listed, index, number):
        have(monkeypatch, "EGL")
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        if listed is not None:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", listed)
        choose_gl_backend("cuda", index)
        assert os.environ.get("MUJOCO_EGL_DEVICE_ID") == number

    def test_a_gpu_that_was_named_for_drawing_is_kept(self, monkeypatch):
        have(monkeypatch, "EGL")
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
        os.environ["MUJOCO_EGL_DEVICE_ID"] = "1"
        choose_gl_backend("cuda")
        assert os.environ["MUJOCO_EGL_DEVICE_ID"] == "1"

    @pytest.mark.parametrize("device", ["cpu", "cuda"])
    @pytest.mark.parametrize(("said", "chosen"), [("egl", "egl"), ("OSMesa ", "osmesa"), ("on", "glfw")])
    def test_what_was_said_before_is_kept(self, monkeypatch, device, said, chosen):
        have(monkeypatch, "OSMesa", "EGL")
        monkeypatch.setenv("DISPLAY", ":0")
        os.environ["MUJOCO_GL"] = said
        assert choose_gl_backend(device) == chosen
        assert os.environ["MUJOCO_GL"] == chosen
        assert os.environ.get("PYOPENGL_PLATFORM") == (None if chosen == "glfw" else chosen)
        draws_in_software = device == "cpu" or chosen == "osmesa"
        assert os.environ.get("LP_NUM_THREADS") == ("0" if draws_in_software else None)

    @pytest.mark.parametrize(("said", "library"), [("osmesa", "OSMesa"), ("EGL", "EGL")])
    def test_what_was_said_but_is_not_here_is_refused_with_how_to_install_it(self, monkeypatch, said, library):
        have(monkeypatch, *({"OSMesa", "EGL"} - {library}))
        os.environ["MUJOCO_GL"] = said
        expected = f"MUJOCO_GL={said} renders with {library}, which is not here: apt install lib{library.lower()}"
        for ask in (missing_library, gl_backend_for, choose_gl_backend):
            with pytest.raises(RuntimeError, match=expected):
                ask("cpu")

    def test_an_empty_name_is_none(self, monkeypatch):
        have(monkeypatch, "OSMesa")
        os.environ["MUJOCO_GL"] = " "
        assert choose_gl_backend("cpu") == "osmesa"
        os.environ["MUJOCO_GL"] = ""
        assert missing_library("cpu") is None
        have(monkeypatch)
        assert missing_library("cpu") is not None

    def test_a_window_needs_a_display(self, monkeypatch):
        monkeypatch.setattr(sys, "platform", "linux")
        monkeypatch.delenv("DISPLAY", raising=False)
        monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
        os.environ["MUJOCO_GL"] = "glfw"
        with pytest.raises(RuntimeError, match=r"MUJOCO_GL=glfw renders on a display, and there is none: .* egl"):
            gl_backend_for("cpu")
        monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
        assert gl_backend_for("cpu") == "glfw"

    def test_without_a_library_it_says_which_to_install(self, monkeypatch):
        have(monkeypatch)
        with pytest.raises(RuntimeError, match="neither OSMesa nor EGL is here: apt install libosmesa6"):
            choose_gl_backend("cpu")
        assert "MUJOCO_GL" not in os.environ

    @pytest.mark.parametrize(
        ("device", "libraries", "install"),
        [
            ("cpu", ("OSMesa",), None),
            ("cpu", ("EGL",), None),
            ("cpu", (), "libosmesa6"),
            ("cuda", ("EGL",), None),
            ("cuda", ("OSMesa",), "libegl1"),
        ],
    )
    def test_what_is_missing_can_be_asked_and_changes_nothing(self, monkeypatch, device, libraries, install):
        have(monkeypatch, *libraries)
        before = dict(os.environ)
        missing = missing_library(device)
        assert missing is None if install is None else missing.install.startswith(f"apt install {install}")
        assert dict(os.environ) == before
        os.environ["MUJOCO_GL"] = "glfw"  # which draws on a display, and none of these libraries
        assert missing_library(device) is None

    def test_drawing_may_be_turned_off(self):
        os.environ["MUJOCO_GL"] = "off"
        with pytest.raises(RuntimeError, match="MUJOCO_GL=off turns drawing off"):
            choose_gl_backend("cpu")
        os.environ["MUJOCO_GL"] = "vulkan"
        with pytest.raises(
            RuntimeError, match="MUJOCO_GL must be egl, osmesa, glfw or off, or not be set, got 'vulkan'"
        ):
            choose_gl_backend("cpu")

    def test_what_opengl_was_loaded_for_cannot_change(self, monkeypatch):
        have(monkeypatch, "OSMesa", "EGL")
        monkeypatch.setitem(sys.modules, "OpenGL.GL", types.ModuleType("OpenGL.GL"))
        os.environ["PYOPENGL_PLATFORM"] = "egl"
        with pytest.raises(RuntimeError, match="renders with egl already and cannot change to osmesa"):
            choose_gl_backend("cpu")
        assert choose_gl_backend("cuda") == "egl"

    def test_libraries_are_found(self):
        assert rendering._loads("m")
        assert not rendering._loads("drawnothing")


# Draws the second of two episodes, with what dm_control draws with and with all qualities, and keeps where bodies are.
SCRIPT = """
import sys
import numpy as np
from vcse.envs.mujoco.rendering import Renderer, choose_gl_backend
choose_gl_backend("cpu")
from vcse.envs.mujoco import dmc

def play(name, draw):
    domain, task, _ = dmc._tasks()[name]
    simulator = dmc._suite().load(domain, task, task_kwargs={"random": 5})
    size = simulator.action_spec().shape
    take = draw(simulator.physics)
    for episode in range(2):
        simulator.reset()
        images = [take()]
        for action in np.random.default_rng(0).uniform(-1, 1, (12, *size)):
            simulator.step(action)
        images.append(take())
    return np.stack(images), simulator.physics.get_state()

def stock(camera):
    return lambda physics: lambda: physics.render(84, 84, camera_id=camera).transpose(2, 0, 1)

def ours(camera, rendering):
    def draw(physics):
        physics.__class__ = dmc._without_images(type(physics))
        renderer = Renderer(physics.model.ptr, camera, (84, 84), rendering)
        def take():
            renderer.renew_terrain()
            return renderer.render(physics.data.ptr)
        return take
    return draw

kept = {}
for name, camera in (("hopper_stand", 0), ("walker_walk", 0), ("quadruped_escape", 2)):
    kept[f"{name} nothing"] = play(name, lambda physics: lambda: np.zeros(0))[1]
    kept[f"{name} stock"], _ = play(name, stock(camera))
    for rendering in ("faithful", "light", "fast"):
        kept[f"{name} {rendering}"], kept[f"{name} {rendering} state"] = play(name, ours(camera, rendering))
np.savez(sys.argv[1], **kept)
"""


@pytest.fixture(scope="module")
def drawn(tmp_path_factory):
    file = tmp_path_factory.mktemp("drawn") / "drawn.npz"
    subprocess.run([sys.executable, "-c", SCRIPT, file], check=True)
    with np.load(file) as kept:
        return dict(kept)


@needs_gl
@pytest.mark.parametrize("name", ["hopper_stand", "walker_walk", "quadruped_escape"])
class TestQualities:
    def test_faithful_is_what_dm_control_draws(self, drawn, name):
        assert drawn[f"{name} faithful"].shape == (2, 3, 84, 84)
        assert np.array_equal(drawn[f"{name} faithful"], drawn[f"{name} stock"])
        first, last = drawn[f"{name} stock"]
        assert (first != last).any()

    def test_light_is_nearly_the_same(self, drawn, name):
        difference = np.abs(drawn[f"{name} light"].astype(float) - drawn[f"{name} stock"])
        assert 0 < difference.mean() < 1.5  # of 255
        assert (difference > 16).mean() < 0.03  # shadows on rough ground differ most

    def test_fast_is_another_image_of_the_same(self, drawn, name):
        fast, stock = drawn[f"{name} fast"], drawn[f"{name} stock"]
        assert fast.shape == stock.shape
        assert np.abs(fast.astype(float) - stock).mean() > np.abs(drawn[f"{name} light"].astype(float) - stock).mean()
        assert np.corrcoef(fast.ravel(), stock.ravel())[0, 1] > 0.8

    def test_the_simulation_does_not_notice(self, drawn, name):
        for quality in ("faithful", "light", "fast"):
            assert np.array_equal(drawn[f"{name} {quality} state"], drawn[f"{name} nothing"])
