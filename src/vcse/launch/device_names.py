"""The names of devices. This module imports no torch, so that commands parse their options at once."""

from typing import Literal, cast, get_args

Device = Literal["auto", "cpu", "cuda"]


def check_device(name: str) -> Device:
    """Return the name of a device; raise ValueError, with what may have been meant, for others such as gpu."""
    if name in get_args(Device):
        return cast(Device, name)
    kind, _, index = name.lower().partition(":")
    hint = "; did you mean cuda?" if kind in ("cuda", "gpu") else ""
    if hint and index.isdecimal():
        hint = f": use cuda, and CUDA_VISIBLE_DEVICES={index} to choose the GPU"
    raise ValueError(f"device must be auto, cpu or cuda, got {name!r}{hint}")
