"""MiniGrid's tasks by name: which there are, what simulates them, and what is known of each before it runs.

Two backends give the same worlds. EnvPool steps thousands of grids in C++ threads and is what training uses. The
`minigrid` package is the reference: it shows the whole map, renders images, and serves where EnvPool is not
installed, at about a tenth of the speed. A seed gives other layouts in the one than in the other.
"""

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from typing import Literal

from vcse.envs.interface import Mission
from vcse.extras import install
from vcse.nearest import nearest

TASKS = ("LavaGapS7", "Empty-16x16", "DoorKey-6x6", "DoorKey-8x8", "Unlock", "SimpleCrossingS9N1")
ID_PREFIX = "MiniGrid-"  # of the names under which Gymnasium knows the tasks
FROM_PATTERNS = "WFC-"  # how the tasks begin whose maps the minigrid package makes from images
COSTLY_COLLISIONS = "Dynamic-Obstacles-"  # how the tasks begin that give -1 for walking into something
VIEW = (7, 7, 3)
INSTALL = install("minigrid")

# A mission is a text in addition to the image, which no agent here observes. How the names of tasks begin in which it
# changes from episode to episode: there it names the only thing of its kind, or chooses among several.
NAMING_MISSIONS = ("BlockedUnlockPickup", "KeyCorridor", "LockedRoom", "UnlockPickup")
CHOOSING_MISSIONS = ("Fetch-", "GoToDoor-", "GoToObject-", "PutNear-")


@cache
def fastest_backend() -> Literal["envpool", "minigrid"]:
    """Return EnvPool where it is installed; else log, once, what doing without it costs."""
    if is_installed("envpool"):
        return "envpool"
    print(
        f"vcse: EnvPool is not installed; the minigrid package steps about ten times slower ({INSTALL})",
        file=sys.stderr,
    )
    return "minigrid"


def check_task(name: str, *, family: str = "minigrid") -> None:
    """Refuse a task that MiniGrid does not have, and name those that are written most like it and the paper's."""
    known = registered_tasks()
    if name in known:
        return
    plain = _plain(name)
    if plain in known:
        raise ValueError(f"task {name!r} is spelt as in Gymnasium: write {family}/{plain}")
    likest, paper = (", ".join(f"{family}/{each}" for each in some) for some in (nearest(plain, known), TASKS))
    raise ValueError(
        f"task '{family}/{name}' does not exist; nearest are {likest} (vcse tasks lists all {len(known)}); the "
        f"paper's are {paper}"
    )


def _plain(name: str) -> str:
    """Take off what Gymnasium writes around the name of a task: MiniGrid-NAME-v0."""
    return name.removeprefix(ID_PREFIX).removesuffix("-v0")


def registered_tasks() -> tuple[str, ...]:
    """Return the names of all tasks of the faster backend that is installed, without MiniGrid- and -v0 around them."""
    if is_installed("envpool"):
        import envpool

        ids = envpool.list_all_envs()
    elif is_installed("minigrid"):
        import gymnasium
        import minigrid  # noqa: F401 - registers its environments

        ids = list(gymnasium.registry)
    else:
        raise RuntimeError(f"neither EnvPool nor minigrid is installed: {INSTALL}")
    return tuple(sorted(_plain(name) for name in ids if name.startswith(ID_PREFIX)))


def buildable_tasks(*, full: bool) -> tuple[str, ...]:
    """Return those of all tasks that can be stepped here, with the agent's view or the whole map."""
    known = registered_tasks()
    if not full and is_installed("envpool"):
        return known
    return tuple(name for name in known if not (name.startswith(FROM_PATTERNS) and lacks_patterns()))


def lacks_patterns() -> bool:
    """Whether the minigrid package came without the images that some of its maps are made from."""
    return not patterns().is_dir()


def patterns() -> Path:
    """Return where the minigrid package keeps the images that some of its maps are made from."""
    package = importlib.util.find_spec("minigrid")
    return Path(package.origin if package and package.origin else "minigrid").parent / "envs" / "wfc" / "patterns"


def rewards_only_the_goal(task: str) -> bool:
    """Whether every reward of a task but the one that ends it well is 0."""
    return not task.startswith(COSTLY_COLLISIONS)


def mission_of(task: str) -> Mission:
    """Return whether the mission of a task is always the same, or names or chooses the goal of an episode."""
    if task.startswith(CHOOSING_MISSIONS):
        return "chooses"
    return "names" if task.startswith(NAMING_MISSIONS) else "constant"


def gymnasium_id(task: str) -> str:
    """Return the name under which Gymnasium and EnvPool know a task."""
    return f"MiniGrid-{task}" if re.search(r"-v\d+$", task) else f"MiniGrid-{task}-v0"


def is_installed(package: str) -> bool:
    """Whether a package can be imported."""
    return importlib.util.find_spec(package) is not None
