"""`--device`: on what a command computes."""

from collections.abc import Iterable
from typing import Literal

import torch

from vcse.envs.rendering import gl_backend_for
from vcse.runs.agents import AGENTS
from vcse.runs.config import RunConfig

Device = Literal["auto", "cpu", "cuda"]


def resolve_device(device: Device) -> Literal["cpu", "cuda"]:
    """Take the GPU for `auto` where there is one, and refuse one that is not there."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ValueError("--device cuda: PyTorch finds no CUDA GPU here")
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return device


def check_drawing(configs: Iterable[RunConfig], device: Literal["cpu", "cuda"]) -> None:
    """Refuse runs that see pictures where nothing can draw them, before anything is made."""
    if any(AGENTS[config.agent].sees_pictures for config in configs):
        gl_backend_for(device)
