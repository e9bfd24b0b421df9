"""The trained policies that ship in a package of their own, `vcse-policies`, by name: TASK/METHOD."""

from importlib.util import find_spec
from pathlib import Path

from vcse.nearest import nearest

PACKAGE = "vcse_policies"
INSTALL = "in a clone of vcse: pip install ./policies"
# What the package holds, to be named where it is not installed.
NAMES = (
    "minigrid/DoorKey-6x6/vcse",
    "minigrid/DoorKey-8x8/vcse",
    "minigrid/Empty-16x16/vcse",
    "minigrid/LavaGapS7/vcse",
    "minigrid/SimpleCrossingS9N1/vcse",
    "minigrid/Unlock/vcse",
)


def shipped_home() -> Path | None:
    """Return the directory of the policies that ship; None where their package is not installed."""
    package = find_spec(PACKAGE)
    places = None if package is None else package.submodule_search_locations
    return Path(places[0]) if places else None


def shipped_names(home: Path) -> list[str]:
    """Return the names of the policies that ship: their directories, from that of all of them."""
    return sorted(each.parent.relative_to(home).as_posix() for each in home.rglob("config.json"))


def find_policies(path_or_name: str | Path) -> Path:
    """Return the directory that is meant: a path, or, where nothing has that path, the name of a policy that ships.

    The beginning of names, such as minigrid, is the directory of all of them.
    """
    path = Path(path_or_name)
    if path.exists():
        return path
    if path.parent != Path() and path.parent.is_dir():
        there = nearest(path.name, [each.name for each in path.parent.iterdir() if each.is_dir()])
        raise ValueError(f"{path} does not exist; in {path.parent} are {', '.join(there) or 'no directories'}")
    home, name = shipped_home(), path.as_posix()
    if home is None:
        raise ValueError(
            f"{path} does not exist, and the package of trained policies is not installed ({INSTALL}); "
            f"it has {', '.join(NAMES)}"
        )
    names = shipped_names(home)
    if not any(f"{each}/".startswith(f"{name}/") for each in names):
        raise ValueError(
            f"{path} does not exist, and no policy of this name ships with vcse-policies; nearest are "
            f"{', '.join(nearest(name, names))}"
        )
    return home / name
