"""Ids that are registered with Gymnasium, and environments made of them: `ID`, or `MODULE:ID`, which imports a module.

Modules are searched in the working directory too, and in each process that makes an environment.
"""

import importlib
import importlib.util
import os
import re
import sys
from functools import cache
from typing import Any

from vcse.envs.mujoco.rendering import choose_gl_backend, missing_library
from vcse.extras import install
from vcse.nearest import nearest
from vcse.plugins import load_plugins

INSTALL = install("gymnasium")
LEAST_VERSION = (1, 1)
# Where neither its registration nor anything else that is known limits an episode: an evaluation must end.
MOST_STEPS = 10_000
IMAGES = "rgb_array"  # the render mode that gives them
# It would greet on standard output, and look for a display and a sound card, none of which images need.
_OF_PYGAME = {"PYGAME_HIDE_SUPPORT_PROMPT": "1", "SDL_VIDEODRIVER": "dummy", "SDL_AUDIODRIVER": "dummy"}


def is_installed() -> bool:
    """Whether Gymnasium can be imported."""
    return importlib.util.find_spec("gymnasium") is not None


def registered_ids() -> tuple[str, ...]:
    """Return all ids that are registered by now."""
    return tuple(_gymnasium().registry)


@cache
def check_id(name: str, *, family: str = "gymnasium") -> None:
    """Refuse a module that cannot be imported, and an id that is not registered, and name the nearest."""
    gymnasium, task = _gymnasium(f"{family}/{name}"), f"{family}/{name}"
    load_plugins()  # which may register some
    module, _, id_ = name.rpartition(":")
    if module:
        _import(module, task)
    if id_ in gymnasium.registry:
        return
    before = f"{family}/{module}:" if module else f"{family}/"
    likest = ", ".join(f"{before}{each}" for each in nearest(id_, gymnasium.registry))
    source = f"module {module!r} registers no {id_!r}" if module else f"{id_!r} is not registered with Gymnasium"
    raise ValueError(
        f"task '{task}' does not exist: {source}; nearest are {likest} ({family}/MODULE:ID imports the module that "
        "registers an id)"
    )


def make(name: str, *, renders: bool = False, family: str = "gymnasium") -> Any:
    """Make an environment, with the time limit that it is registered with.

    Args:
        name: An id, perhaps with a module before it.
        renders: Make it so that it renders images.
        family: Of the task, for errors.
    """
    check_id(name, family=family)
    gymnasium, task, id_ = _gymnasium(), f"{family}/{name}", name.rpartition(":")[2]
    for variable, value in _OF_PYGAME.items():
        os.environ.setdefault(variable, value)
    limit = gymnasium.registry[id_].max_episode_steps
    options: dict[str, Any] = {"max_episode_steps": MOST_STEPS} if limit is None else {}
    if renders:
        options["render_mode"] = IMAGES
        if importlib.util.find_spec("mujoco") is not None and missing_library("cpu") is None:
            choose_gl_backend("cpu")  # before anything of MuJoCo looks for a display
    try:
        made = gymnasium.make(id_, disable_env_checker=True, **options)
    except Exception as error:  # an environment from outside can fail in any way
        raise RuntimeError(f"{task} cannot be made: {one_line(error)}") from error
    if renders and IMAGES not in made.metadata.get("render_modes", ()):
        modes = ", ".join(map(str, made.metadata.get("render_modes", ()))) or "none"
        made.close()
        raise RuntimeError(f"{task} cannot be rendered: its metadata has no render mode {IMAGES!r}, but {modes}")
    return made


def render(environment: Any, task: str) -> Any:
    """Render an environment; what is missing for that, such as pygame for classic control, is reported in one line."""
    try:
        return environment.render()
    except Exception as error:
        raise RuntimeError(f"{task} cannot be rendered: {one_line(error)}") from error


def most_steps(environment: Any) -> int:
    """Return the time limit of an environment's episodes."""
    limit = environment.spec.max_episode_steps if environment.spec is not None else None
    return MOST_STEPS if limit is None else int(limit)


def one_line(error: Exception) -> str:
    """Return what an error is, in one line."""
    return " ".join(f"{type(error).__name__}: {error}".split())


def _import(module: str, task: str) -> None:
    """Import a module that registers environments."""
    if os.getcwd() not in sys.path:  # an installed command has its own directory there
        sys.path.append(os.getcwd())
    try:
        importlib.import_module(module)
    except Exception as error:  # a module from outside can fail in any way
        where = f"; {os.getcwd()} is searched too" if isinstance(error, ModuleNotFoundError) else ""
        raise ValueError(f"{task}: module {module!r} cannot be imported: {one_line(error)}{where}") from error


def _gymnasium(task: str = "gymnasium/...") -> Any:
    if not is_installed():
        raise RuntimeError(f"gymnasium, which simulates {task}, is not installed: {INSTALL}")
    gymnasium = importlib.import_module("gymnasium")
    numbers = tuple(map(int, re.findall(r"\d+", gymnasium.__version__)[:2]))
    if numbers < LEAST_VERSION:
        least = ".".join(map(str, LEAST_VERSION))
        raise RuntimeError(f"gymnasium {gymnasium.__version__} is not supported, but >={least} is: {INSTALL}")
    return gymnasium
