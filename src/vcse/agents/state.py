"""Helpers for the states of agents: what their checkpoints hold."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor


def check_same_entries(
    state: Mapping[str, Any], loaded: Mapping[str, Any], *, optional: frozenset[str] = frozenset()
) -> None:
    """Refuse a loaded state with other entries than the learner's own, but for optional ones."""
    mine, theirs = (sorted(each.keys() - optional) for each in (state, loaded))
    if mine != theirs:
        raise ValueError(f"the learner has {mine}, but the checkpoint holds {theirs}")


def clones(tensors: Mapping[str, Sequence[Tensor]]) -> dict[str, list[Tensor]]:
    """Return copies of tensors on the CPU."""
    return {name: [each.detach().cpu().clone() for each in group] for name, group in tensors.items()}


@torch.no_grad()
def copy_tensors(tensors: Sequence[Tensor], sources: Sequence[Tensor]) -> None:
    """Copy tensors into others of the same shapes, in one operation."""
    if tensors:
        torch._foreach_copy_(list(tensors), list(sources))
