"""On what runs are trained and played."""

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

import torch

from vcse.envs.mujoco.rendering import gl_backend_for
from vcse.envs.tasks import is_rendered
from vcse.launch.cohorts import saved_frame
from vcse.launch.device_names import Device as Device  # noqa: PLC0414 (others import it from here)
from vcse.launch.device_names import check_device
from vcse.runs.config import RunConfig
from vcse.runs.directory import begun_on


def resolve_device(device: Device) -> Literal["cpu", "cuda"]:
    """Take the GPU for `auto` where there is one, and refuse one that is not there."""
    check_device(device)
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("device cuda: PyTorch finds no CUDA GPU on this machine; cpu or auto runs without one")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def device_for(left: Iterable[RunConfig], out: Path, device: Device) -> Literal["cpu", "cuda"]:
    """Find where runs are trained that are left; those that were begun on a CPU go on there unless told otherwise.

    There they have the same numbers as if they had not been stopped.
    """
    was_begun_on_cpu = any(begun_on(out / config.name) == "cpu" for config in left if saved_frame(config, out) > 0)
    if device != "auto" or not was_begun_on_cpu:
        return resolve_device(device)
    if torch.cuda.is_available():
        print(
            "vcse: these runs were begun on the CPU and continue there; --device cuda moves them to the GPU",
            file=sys.stderr,
        )
    return "cpu"


def check_rendering(configs: Iterable[RunConfig], device: Literal["cpu", "cuda"]) -> None:
    """Refuse runs that see images where nothing can draw them, before anything is made."""
    if any(is_rendered(config.task) for config in configs):
        gl_backend_for(device)
