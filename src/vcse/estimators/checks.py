"""What the estimators accept, and the errors that name what they do not."""

import math

import torch
from torch import Tensor


def check_points(name: str, points: Tensor) -> None:
    """Refuse anything but floating-point points of shape [..., n, d] with n and d of at least 1."""
    if not points.is_floating_point():
        raise ValueError(f"{name} must be a floating-point tensor, got {points.dtype}")
    if points.ndim < 2:
        raise ValueError(f"{name} must have shape [..., points, dimensions], got {tuple(points.shape)}")
    if 0 in points.shape:
        raise ValueError(f"{name} is empty: its shape is {tuple(points.shape)}")


def check_alike(name: str, tensor: Tensor, other_name: str, other: Tensor, *, shape: torch.Size) -> None:
    """Refuse a tensor whose shape, device or dtype does not fit the other's."""
    if tensor.shape != shape:
        raise ValueError(
            f"{name} must have shape {tuple(shape)} to fit {other_name} of shape {tuple(other.shape)}, "
            f"got {tuple(tensor.shape)}"
        )
    if tensor.device != other.device:
        raise ValueError(f"{name} is on {tensor.device} but {other_name} is on {other.device}")
    if tensor.dtype != other.dtype:
        raise ValueError(f"{name} has dtype {tensor.dtype} but {other_name} has {other.dtype}")


def check_k(k: int, *, points: int, within_points: bool, name: str) -> None:
    """Refuse a k that the points cannot answer; a point is not its own neighbour, so k < points."""
    if isinstance(k, bool) or not isinstance(k, int):
        raise ValueError(f"k must be an integer, got {k!r}")
    if k < 1:
        raise ValueError(f"k must be at least 1, got {k}")
    if within_points and k >= points:
        raise ValueError(f"k={k} needs at least {k + 1} points in {name}, got {points}")
    if k > points:
        raise ValueError(f"k={k} needs at least {k} points in {name}, got {points}")


def checks_run(check_finite: bool, tensor: Tensor) -> bool:
    """Tell whether checks that look at the numbers run: never inside a CUDA graph that is being captured."""
    return check_finite and not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def is_finite(tensor: Tensor) -> bool:
    """Tell whether all numbers are finite, by their extremes. On CUDA this waits for the device."""
    return math.isfinite(float(tensor.amax())) and math.isfinite(float(tensor.amin()))


def check_all_finite(name: str, tensor: Tensor) -> None:
    """Refuse NaN and infinity."""
    if not is_finite(tensor):
        bad = tensor.numel() - int(torch.isfinite(tensor).sum())
        raise ValueError(f"{name} must be finite, but {bad} of its {tensor.numel()} entries are NaN or infinite")
