"""The machine, the versions and the arithmetic of a run, as in `meta.json`."""

import os
import platform
import subprocess
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import torch

from vcse import __version__
from vcse.runs.arithmetic import Arithmetic
from vcse.runs.cgroups import cores_in_groups
from vcse.runs.command import current_command

PACKAGES = ("torch", "numpy", "envpool", "minigrid", "gymnasium", "dm_control", "mujoco", "metaworld")


def describe_machine(device: str, arithmetic: Arithmetic) -> dict[str, Any]:
    """Return on what, with what and how exactly a run is made."""
    return {
        "vcse": __version__,
        "commit": commit_of(Path(__file__)),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "platform": platform.platform(),
        "cpus": os.cpu_count(),
        "device": torch.cuda.get_device_name() if device == "cuda" else "cpu",
        "deterministic_algorithms": torch.are_deterministic_algorithms_enabled(),
        "cudnn_deterministic": torch.backends.cudnn.deterministic,
        "cudnn_allow_tf32": torch.backends.cudnn.allow_tf32,
        **arithmetic._asdict(),
        "command": current_command(),
    }


def cores() -> int:
    """Return the number of cores that this process may keep busy."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([allowed, *cores_in_groups()])


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


@cache
def commit_of(source: Path) -> str | None:
    """Return the commit of a file; None where no repository tracks it, though one may hold the environment it is in."""
    try:
        for asked in (("ls-files", "--error-unmatch", source.name), ("rev-parse", "HEAD")):
            done = subprocess.run(("git", "-C", source.parent, *asked), capture_output=True, text=True, check=False)
            if done.returncode != 0:
                return None
    except OSError:  # there is no git
        return None
    return done.stdout.strip()
