"""What control groups leave to this process: containers and batch systems limit memory and cores by them."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

MEMBERSHIP = Path("/proc/self/cgroup")  # lists the groups of this process
GROUPS = Path("/sys/fs/cgroup")  # below which they lie


class Group(NamedTuple):
    """A group that this process is in, or one above it."""

    path: Path
    is_unified: bool  # of the second version, in which all controllers share a group


def free_in_groups(membership: Path = MEMBERSHIP, groups: Path = GROUPS) -> list[int]:
    """Return the bytes of memory that each group leaves to this process; who takes more is ended."""
    left = (_left_by(group) for group in _groups_of("memory", membership, groups))
    return [free for free in left if free is not None]


def cores_in_groups(membership: Path = MEMBERSHIP, groups: Path = GROUPS) -> list[int]:
    """Return the cores that each group leaves to this process; who keeps more busy is slowed down."""
    limits = (_cores_of(group) for group in _groups_of("cpu", membership, groups))
    return [cores for cores in limits if cores is not None]


def _groups_of(controller: str, membership: Path, groups: Path) -> Iterator[Group]:
    """Return the groups of a controller; a group takes part in the limits of all above it."""
    for line in membership.read_text().splitlines() if membership.exists() else []:
        _, controllers, name = line.split(":", 2)
        is_unified = controllers == ""
        if not is_unified and controller not in controllers.split(","):
            continue
        top = groups if is_unified else groups / controller
        path = top / name.lstrip("/")
        yield from (Group(each, is_unified) for each in (path, *path.parents) if each.is_relative_to(top))


def _left_by(group: Group) -> int | None:
    """Return the limit of a group less what it uses; files that it has read and may forget do not count as used."""
    of_version = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    limit_name, usage_name, cache_name = (
        ("memory.max", "memory.current", "inactive_file") if group.is_unified else of_version
    )
    try:
        limit = int((group.path / limit_name).read_text())
        usage = int((group.path / usage_name).read_text())
        stat = dict(line.split() for line in (group.path / "memory.stat").read_text().splitlines())
    except (OSError, ValueError):  # there is no such group here, or no limit
        return None
    return max(0, limit - usage + int(stat.get(cache_name, 0)))


def _cores_of(group: Group) -> int | None:
    """Return how many cores a group may keep busy: its time in a period, of which a part of a core counts as one."""
    try:
        if group.is_unified:
            quota, period = map(int, (group.path / "cpu.max").read_text().split())
        else:
            quota, period = (int((group.path / f"cpu.cfs_{name}_us").read_text()) for name in ("quota", "period"))
    except (OSError, ValueError):  # there is no such group here, or no limit
        return None
    return math.ceil(quota / period) if quota > 0 and period > 0 else None
