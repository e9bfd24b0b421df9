"""What the estimators accept, and the errors that name what they do not."""

import math
import operator
from numbers import Real
from typing import Any

import torch
from torch import Tensor


def whole_number(name: str, given: Any, *, least: int) -> int:
    """Return a whole number of any type, such as NumPy's, as an int; raise ValueError for anything else."""
    try:
        number = operator.index(given)
    except TypeError:
        raise ValueError(f"{name} must be an integer, got {given!r}") from None
    if isinstance(given, bool):
        raise ValueError(f"{name} must be an integer, got {given!r}")
    if number < least:
        raise ValueError(f"{name} must be at least {least}, got {number}")
    return number


def check_booleans(**flags: Any) -> None:
    """Raise ValueError for anything but True and False: a misplaced number or word would count as True."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise ValueError(f"{name} must be True or False, got {flag!r}")


def check_instance(name: str, given: Any, kind: type) -> None:
    """Raise ValueError for an argument of the wrong type."""
    if not isinstance(given, kind):
        raise ValueError(f"{name} must be a {kind.__name__}, got a {type(given).__name__}")


def check_nv_radius(nv_radius: Any) -> None:
    """Raise ValueError for a radius of the count n_v that does not exist."""
    if nv_radius not in ("value", "joint"):
        raise ValueError(f"nv_radius must be 'value' or 'joint', got {nv_radius!r}")


def check_log_offset(log_offset: Any) -> None:
    """Raise ValueError for what cannot be added to a distance inside a logarithm."""
    if isinstance(log_offset, bool) or not isinstance(log_offset, Real) or not 0 <= float(log_offset) < math.inf:
        raise ValueError(f"log_offset must be finite and not negative, got {log_offset!r}")


def check_numbers(name: str, given: Any) -> None:
    """Raise ValueError for anything but a floating-point tensor."""
    if not isinstance(given, Tensor):
        raise ValueError(f"{name} must be a torch tensor, got a {type(given).__name__}")
    if not given.is_floating_point():
        raise ValueError(f"{name} must be a floating-point tensor, got {given.dtype}")


def check_points(name: str, points: Any) -> None:
    """Raise ValueError for anything but floating-point points of shape [..., n, d] with n and d of at least 1."""
    check_numbers(name, points)
    if points.ndim < 2:
        raise ValueError(f"{name} must have shape [..., points, dimensions], got {tuple(points.shape)}")
    if 0 in points.shape:
        raise ValueError(f"{name} is empty: its shape is {tuple(points.shape)}")


def wrong_shape(name: str, tensor: Tensor, wanted: str, other_name: str, other: Tensor) -> ValueError:
    """Return the error for a tensor that does not fit the other."""
    fitting = f"{wanted} to fit {other_name} of shape {tuple(other.shape)}"
    return ValueError(f"{name} must have shape {fitting}, got {tuple(tensor.shape)}")


def check_alike(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise ValueError for a tensor whose device or dtype is not the other's."""
    _check_same_device(name, tensor, other_name, other)
    if tensor.dtype != other.dtype:
        raise ValueError(f"{name} has dtype {tensor.dtype} but {other_name} has {other.dtype}")


def check_computed_alike(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Raise ValueError for a tensor that is not on the other's device, or of which only one is float64.

    All else is computed in float32, so that bfloat16 features go together with float32 values, as under autocast.
    A float64 on one side is more likely NumPy's than meant, and would make everything slower without a word.
    """
    _check_same_device(name, tensor, other_name, other)
    if (tensor.dtype == torch.float64) != (other.dtype == torch.float64):
        raise ValueError(
            f"{name} has dtype {tensor.dtype} but {other_name} has {other.dtype}: make both float64, or neither"
        )


def _check_same_device(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    if tensor.device != other.device:
        raise ValueError(f"{name} is on {tensor.device} but {other_name} is on {other.device}")


def check_k(k: Any, *, points: int, within_points: bool, name: str) -> int:
    """Return k as an int, or refuse one that the points cannot answer.

    Where the points find themselves among those that are searched, they are no neighbours of their own: k < points.
    """
    wanted = whole_number("k", k, least=1)
    least = wanted + 1 if within_points else wanted
    if points < least:
        raise ValueError(f"k={wanted} needs at least {least} points in {name}, got {points}")
    return wanted


def check_pays(k: int, *, self_in_k: bool) -> None:
    """Raise ValueError for a reward that is the same for all: a point that counts is its own first neighbour."""
    if self_in_k and k == 1:
        raise ValueError(
            "k=1 with self_in_k=True makes each point its own neighbour at distance 0, "
            "so that all earn the same constant: k must be at least 2"
        )


def checks_run(check_finite: bool, tensor: Tensor) -> bool:
    """Return whether checks that look at the numbers run: never inside a CUDA graph that is being captured."""
    return check_finite and not (tensor.is_cuda and torch.cuda.is_current_stream_capturing())


def is_finite(tensor: Tensor) -> bool:
    """Return whether all numbers are finite. On CUDA this waits for the device."""
    if math.isfinite(float(tensor.sum())):
        return True
    least, most = tensor.aminmax()  # a sum of finite numbers may overflow
    return math.isfinite(float(most)) and math.isfinite(float(least))


def check_all_finite(name: str, tensor: Tensor) -> None:
    """Raise ValueError for NaN and infinity."""
    if not is_finite(tensor):
        bad = tensor.numel() - int(torch.isfinite(tensor).sum())
        raise ValueError(f"{name} must be finite, but {bad} of its {tensor.numel()} entries are NaN or infinite")


def check_above_zero(name: str, distance: Tensor, *, which: str, remedy: str) -> None:
    """Raise ValueError for distances of 0, whose logarithm is minus infinity, and say which they are and what helps."""
    zeros = int((distance == 0).sum())
    if zeros:
        raise ValueError(
            f"{name}: {zeros} of {distance.numel()} {which} are 0 (duplicates), "
            f"and their logarithm is minus infinity; {remedy}"
        )
