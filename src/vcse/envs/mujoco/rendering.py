"""Images of what MuJoCo simulates, rendered by OpenGL without a display.

On a CPU, rendering takes far more time than simulating, and most of it goes into what small images hardly show:
a map of shadows with millions of points, and balls of hundreds of faces. There are three qualities: faithful is what
`dm_control` and `gymnasium` render, bit for bit; light renders the same with less waste; fast leaves things out.
"""

import ctypes
import ctypes.util
import importlib
import os
import sys
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Literal, NamedTuple

import numpy as np
from jaxtyping import UInt8

from vcse.envs.interface import Rendering

INSTALL = "apt install libosmesa6 (where that does not exist any more: libegl1 and libgl1-mesa-dri)"

_MOST_GEOMS = 10_000  # in one image; there is room for them from the start
_SHADOW_MAP = 512  # points a side
_SLICES, _STACKS = 12, 6  # faces around and along anything round
# What MuJoCo reads from MUJOCO_GL, and the backends that it means.
_OFF = "off"
_BACKENDS = {
    **{"egl": "egl", "osmesa": "osmesa"},
    **dict.fromkeys(("glfw", "glx", "on", "enable", "enabled", "true", "1"), "glfw"),
    **dict.fromkeys(("off", "disable", "disabled", "false", "0"), _OFF),
}
_WITHOUT_DISPLAY = "leave MUJOCO_GL unset, or set it to osmesa or egl, which need no display"
# The library behind each backend that renders without a display, how to install it, and on which devices, best first.
_LIBRARY = {"osmesa": "OSMesa", "egl": "EGL"}
_INSTALL = {"osmesa": "apt install libosmesa6", "egl": "apt install libegl1 (and libgl1-mesa-dri where no GPU renders)"}
_WITHOUT_WINDOW = {"cpu": ("osmesa", "egl"), "cuda": ("egl",)}
_VERSIONS = ("", ".1", ".8", ".6")  # that the names of their files may end with


class MissingLibrary(NamedTuple):
    """What to report where nothing renders."""

    reason: str
    install: str  # the command


_MISSING = {
    "cpu": MissingLibrary("images need a library that renders, and neither OSMesa nor EGL is here", INSTALL),
    "cuda": MissingLibrary(
        "a GPU renders with EGL, which is not here", "apt install libegl1, in addition to the GPU's driver"
    ),
}


def missing_library(device: Literal["cpu", "cuda"]) -> MissingLibrary | None:
    """Return which rendering library is missing on a device; None where there is one.

    Nothing is chosen yet. Where MUJOCO_GL names one that is not here, that is an error.
    """
    return None if named_backend() or _first_here(device) else _MISSING[device]


def named_backend() -> str | None:
    """Return what MUJOCO_GL names: egl, osmesa, glfw or off; None where it is not set, or empty.

    What it must not be is refused here, before MuJoCo and dm_control refuse it, each in words of its own; and what is
    not here, at which they fail without saying what is missing.
    """
    setting = os.environ.get("MUJOCO_GL", "")
    word = setting.lower().strip()
    if not word:
        return None
    if word not in _BACKENDS:
        raise RuntimeError(f"MUJOCO_GL must be egl, osmesa, glfw or off, or not be set, got {setting!r}")
    backend = _BACKENDS[word]
    if backend in _LIBRARY and not _loads(_LIBRARY[backend]):
        remedy = f"{_INSTALL[backend]}, or leave MUJOCO_GL unset"
        raise RuntimeError(f"MUJOCO_GL={setting} renders with {_LIBRARY[backend]}, which is not here: {remedy}")
    return backend


def gl_backend_for(device: Literal["cpu", "cuda"]) -> str:
    """Return what would render on a device, and refuse what cannot; nothing is chosen yet."""
    backend = named_backend() or _first_here(device)
    if backend is None:
        raise RuntimeError(": ".join(_MISSING[device]))
    if backend == _OFF:
        raise RuntimeError(f"images are asked for, but MUJOCO_GL={os.environ['MUJOCO_GL']} turns drawing off")
    has_display = os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    if backend == "glfw" and sys.platform == "linux" and not has_display:
        raise RuntimeError(
            f"MUJOCO_GL={os.environ['MUJOCO_GL']} renders on a display, and there is none: {_WITHOUT_DISPLAY}"
        )
    return backend


def choose_gl_backend(device: Literal["cpu", "cuda"], index: int = 0) -> str:
    """Choose what renders in this process, for MuJoCo and all that is built on it: egl, osmesa or glfw.

    This must run before `mujoco` and `dm_control` are imported, which look once. What MUJOCO_GL says already is kept.

    Args:
        device: The CPU renders with the first library of software that is there: OSMesa, then EGL.
        index: Of the GPU among those that CUDA sees. MUJOCO_EGL_DEVICE_ID has the last word.
    """
    backend = gl_backend_for(device)
    _check_is_not_fixed(backend)
    if device == "cuda" and backend == "egl" and (number := _egl_number(index)) is not None:
        os.environ.setdefault("MUJOCO_EGL_DEVICE_ID", number)
    if device == "cpu" or backend == "osmesa":
        # The software would render with threads that wait for each other. An image is too small for that, and there are
        # processes for all cores already.
        os.environ.setdefault("LP_NUM_THREADS", "0")
    os.environ["MUJOCO_GL"] = backend
    if backend == "glfw":
        os.environ.pop("PYOPENGL_PLATFORM", None)
    else:
        os.environ["PYOPENGL_PLATFORM"] = backend  # it may have come down from a process that chose something else
    return backend


class Renderer:
    """A camera of one model, which renders whatever state the model is in.

    Args:
        model: MuJoCo's own.
        camera: Name or number.
        size: Height and width of images.
        rendering: Quality of images: faithful, light or fast.
        is_upside_down: The camera was hung up that way: rows are left in OpenGL's order, from the bottom up.

    Attributes:
        close: Call it to release what OpenGL holds, after the last image.
    """

    def __init__(
        self,
        model: Any,
        camera: str | int,
        size: tuple[int, int],
        rendering: Rendering,
        *,
        is_upside_down: bool = False,
    ) -> None:
        backend = choose_gl_backend("cpu")  # which keeps what was chosen
        import mujoco

        self._mujoco, self._model, self._is_upside_down = mujoco, model, is_upside_down
        height, width = size
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", module="glfw")  # what it warns of is the error below
                self._window: Any = importlib.import_module(f"mujoco.{backend}").GLContext(width, height)
                self._window.make_current()
            with _quality(model, height, width, rendering):
                self._context = mujoco.MjrContext(model, mujoco.mjtFontScale.mjFONTSCALE_150.value)
        except Exception as error:
            remedy = _WITHOUT_DISPLAY if backend == "glfw" else INSTALL
            raise RuntimeError(
                f"nothing can be rendered with MUJOCO_GL={backend} ({type(error).__name__}: {error}); {remedy}"
            ) from error
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        self._scene = mujoco.MjvScene(model, _MOST_GEOMS)
        if rendering == "fast":
            self._scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW] = False
            self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION] = False
        self._option, self._perturb = mujoco.MjvOption(), mujoco.MjvPerturb()
        self._option.flags[mujoco.mjtVisFlag.mjVIS_RANGEFINDER] = False  # as dm_control has it: rays are not rendered
        self._camera = mujoco.MjvCamera()
        self._camera.type, self._camera.fixedcamid = mujoco.mjtCamera.mjCAMERA_FIXED, model.camera(camera).id
        self._frame = mujoco.MjrRect(0, 0, width, height)
        self._pixels = np.empty((height, width, 3), dtype=np.uint8)
        # What OpenGL holds is given back to the window that is current, which must be this one.
        self.close = weakref.finalize(self, _free, self._window, self._context)

    def render(self, data: Any) -> UInt8[np.ndarray, "3 h w"]:
        """Return an image of a state of the model."""
        self._window.make_current()
        everything = self._mujoco.mjtCatBit.mjCAT_ALL.value
        self._mujoco.mjv_updateScene(
            self._model, data, self._option, self._perturb, self._camera, everything, self._scene
        )
        self._mujoco.mjr_render(self._frame, self._scene, self._context)
        self._mujoco.mjr_readPixels(self._pixels, None, self._frame, self._context)
        rows = self._pixels if self._is_upside_down else self._pixels[::-1]
        return np.ascontiguousarray(rows.transpose(2, 0, 1))

    def renew_terrain(self) -> None:
        """Take over the heights of the model's terrain, which OpenGL has a copy of, where the model has any."""
        if self._model.nhfield:
            self._window.make_current()
            for number in range(self._model.nhfield):
                self._mujoco.mjr_uploadHField(self._model, self._context, number)


def _free(window: Any, context: Any) -> None:
    """Release what OpenGL holds."""
    window.make_current()
    context.free()
    window.free()


def _check_is_not_fixed(backend: str) -> None:
    """Refuse a backend where PyOpenGL was imported for another one, which it cannot leave."""
    fixed = os.environ.get("PYOPENGL_PLATFORM", "")
    if backend != "glfw" and "OpenGL.GL" in sys.modules and fixed != backend:
        raise RuntimeError(
            f"this process renders with {fixed or 'what PyOpenGL chose'} already and cannot change to {backend}: "
            f"choose_gl_backend() must run before dm_control is imported, or MUJOCO_GL={fixed or backend} be set"
        )


def _egl_number(index: int) -> str | None:
    """Return the number that EGL has for a GPU, which CUDA_VISIBLE_DEVICES does not hide from it.

    None, so that MuJoCo takes the first that renders, where GPUs are not listed by number: EGL knows no MIG, no UUIDs.
    """
    listed = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [name.strip() for name in listed.split(",")] if listed.strip() else list(map(str, range(index + 1)))
    return names[index] if index < len(names) and names[index].isdecimal() else None


def _first_here(device: str) -> str | None:
    """Return the best backend whose library is here."""
    return next((backend for backend in _WITHOUT_WINDOW[device] if _loads(_LIBRARY[backend])), None)


def _loads(library: str) -> bool:
    """Whether a library is here: in a place that the system knows, or in LD_LIBRARY_PATH."""
    for name in (ctypes.util.find_library(library), *(f"lib{library}.so{version}" for version in _VERSIONS)):
        with suppress(OSError):
            if name is not None and ctypes.CDLL(name):
                return True
    return False


@contextmanager
def _quality(model: Any, height: int, width: int, rendering: Rendering) -> Iterator[None]:
    """Set what the OpenGL context is made from, for a while: a model may have several cameras."""
    buffer, quality = model.vis.global_, model.vis.quality
    if rendering == "faithful":
        height, width = max(height, buffer.offheight), max(width, buffer.offwidth)
    changes = [(buffer, "offheight", height), (buffer, "offwidth", width)]
    if rendering != "faithful":
        changes += [(quality, "numslices", _SLICES), (quality, "numstacks", _STACKS)]
        changes.append((quality, "shadowsize", _SHADOW_MAP if rendering == "light" else 0))
    if rendering == "fast":
        changes.append((quality, "offsamples", 0))
    before = [(where, name, getattr(where, name)) for where, name, _ in changes]
    try:
        for where, name, value in changes:
            setattr(where, name, value)
        yield
    finally:
        for where, name, value in before:
            setattr(where, name, value)
