"""Observation spaces of Gymnasium as networks here see them."""

from typing import Any

from gymnasium import spaces

from vcse.integrations.networks import Shape


def is_image(space: spaces.Space[Any]) -> bool:
    """Return whether observations of a space are images or grids of cells, which keep their axes."""
    return isinstance(space, spaces.Box) and len(space.shape) == 3


def observation_shape(space: spaces.Space[Any], *supported: type[spaces.Space[Any]]) -> Shape:
    """Return the shape of one observation of a space, all but images flattened; one shape per key if it is a Dict.

    Args:
        space: The observation space.
        supported: The kinds of spaces that are; Dicts of these are too.
    """
    shapes: dict[str, tuple[int, ...]] = {}
    for name, part in space.spaces.items() if isinstance(space, spaces.Dict) else [("", space)]:
        if not isinstance(part, supported):
            raise ValueError(
                f"the observation space{f' {name!r}' if name else ''} is {type(part).__name__}, which is not "
                f"supported; supported are {', '.join(each.__name__ for each in supported)}, and Dict of these"
            )
        shapes[name] = tuple(part.shape or ()) if is_image(part) else (spaces.flatdim(part),)
    return shapes if isinstance(space, spaces.Dict) else shapes[""]
