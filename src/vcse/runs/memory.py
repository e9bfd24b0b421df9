"""Where something large finds room."""

import shutil
from pathlib import Path

import torch

GB = 1e9
MOST_SHARE = 0.8  # of memory that is free; networks and their gradients need some too
DISK = "disk"


def place_for(what: str, needed: int, device: str, *, disk: Path | None = None) -> str:
    """Choose where so many bytes lie: on the device where they fit, else in the memory of the host, else on disk.

    Args:
        what: That needs the room.
        needed: Bytes.
        device: Where they are used.
        disk: A directory in which they may lie, where memory is too small; None: nowhere.
    """
    free = {place: free_bytes(place) for place in dict.fromkeys((device, "cpu"))}
    for place, there in free.items():
        if there is None or needed <= MOST_SHARE * there:
            return place
    if disk is not None:
        free[DISK] = free_on_disk(disk)
        if needed <= free_on_disk(disk):
            return DISK
    most = " and ".join(f"{each / GB:.1f} GB on {place}" for place, each in free.items() if each is not None)
    raise ValueError(
        f"{what} needs {needed / GB:.1f} GB, but free are {most}: train fewer runs at once, or with a smaller "
        "--replay-capacity"
    )


def check_disk(what: str, needed: int, directory: Path) -> None:
    """Refuse what will not fit on the disk on which a directory lies."""
    free = free_on_disk(directory)
    if needed > free:
        raise ValueError(f"{what} will need {needed / GB:.1f} GB on disk, but free are {free / GB:.1f} GB: {directory}")


def free_bytes(device: str) -> int | None:
    """Give the memory that is free; None where the system does not say."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    lines = [line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:")]
    return 1024 * int(lines[0].split()[1]) if lines else None


def free_on_disk(directory: Path) -> int:
    """Give the bytes that are free on the disk on which a directory lies."""
    return shutil.disk_usage(directory).free
