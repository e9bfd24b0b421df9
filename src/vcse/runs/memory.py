"""Where something large finds room."""

from pathlib import Path

import torch

GB = 1e9
MOST_SHARE = 0.8  # of what is free; networks and their gradients need some too


def place_for(what: str, needed: int, device: str) -> str:
    """Choose where so many bytes lie: on the device where they fit, else in the memory of the host, else nowhere."""
    free = {place: free_bytes(place) for place in dict.fromkeys((device, "cpu"))}
    for place, there in free.items():
        if there is None or needed <= MOST_SHARE * there:
            return place
    most = " and ".join(f"{each / GB:.1f} GB on {place}" for place, each in free.items() if each is not None)
    raise ValueError(
        f"{what} needs {needed / GB:.1f} GB, but free are {most}: train fewer runs at once, or with a smaller "
        "--replay-capacity"
    )


def free_bytes(device: str) -> int | None:
    """Give the memory that is free; None where the system does not say."""
    if device == "cuda":
        return torch.cuda.mem_get_info()[0]
    meminfo = Path("/proc/meminfo")
    if not meminfo.exists():
        return None
    lines = [line for line in meminfo.read_text().splitlines() if line.startswith("MemAvailable:")]
    return 1024 * int(lines[0].split()[1]) if lines else None
