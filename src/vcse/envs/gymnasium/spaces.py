"""Spaces of Gymnasium as agents here see and act: vectors of float32 and images of bytes; numbers from -1 to 1.

A space that is not supported is refused in one line, which names it and says what is.
"""

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Num, Shaped, UInt8

from vcse.envs.interface import ObservationKind

MOST_NUMBERS = 4_096  # of a vector
MOST_ACTIONS = 256  # a run keeps a byte of each
LEAST_SIDE = 7  # pixels: what is smaller is a vector
MOST_SIDE = 96  # pixels: what is larger is shrunk
SHRUNK_SIDE = 84
MOST_SPAN = 65_535  # of whole numbers that are scaled by their bounds
IMAGE_KEYS = ("image", "pixels")  # of dictionaries: MiniGrid's, and what Gymnasium's own wrappers write

_SERVED = (
    "Box, Discrete, MultiDiscrete and MultiBinary are, Dict and Tuple of these, of up to "
    f"{MOST_NUMBERS:,} numbers, and images as a bounded Box [height, width, channels] or [channels, height, width]"
)
_LONGEST_TEXT = 160  # characters of a space


@dataclass(frozen=True)
class Sight:
    """What an agent sees of an environment, and how it comes from what that shows."""

    kind: ObservationKind
    shape: tuple[int, ...]
    convert: Callable[[Any], np.ndarray]

    @property
    def dtype(self) -> type[np.generic]:
        """The type of its numbers."""
        return np.float32 if self.kind == "state" else np.uint8


@dataclass(frozen=True)
class Acts:
    """What an agent may do, and how the environment's own action comes from it."""

    count: int  # of discrete actions; 0 where they are continuous
    size: int  # numbers of a continuous action; 0 where they are discrete
    convert: Callable[[Any], Any]


def sight_of(environment: Any, task: str) -> Sight:
    """Return what is seen of an environment's observations.

    Args:
        environment: Made by Gymnasium.
        task: Its name, for errors.
    """
    from gymnasium import spaces

    space = environment.observation_space
    key = ""
    if isinstance(space, spaces.Dict):
        key = next((each for each in IMAGE_KEYS if each in space.spaces and _is_image(space[each])), "")
    shown = space[key] if key else space

    def part(observation: Any) -> Any:
        return observation[key] if key else observation

    if _is_grid_of_cells(environment, shown):
        return Sight("grid", tuple(shown.shape), lambda seen: np.asarray(part(seen), dtype=np.uint8))
    if _is_image(shown):
        image = ImageOf(shown)
        return Sight("image", image.shape, lambda seen: image(part(seen)))
    for leaf in _leaves(space):
        if not isinstance(leaf, spaces.Box | spaces.Discrete | spaces.MultiDiscrete | spaces.MultiBinary):
            reason = "" if leaf is space else f", because of {_told(leaf)}"
            raise ValueError(f"{task}: the observation space {_told(space)} is not supported{reason}; {_SERVED}")
    flat: Any = spaces.flatten_space(space)
    [size] = flat.shape
    if not 1 <= size <= MOST_NUMBERS:
        raise ValueError(
            f"{task}: the observation space {_told(space)} of {size:,} numbers is not supported; {_SERVED}"
        )
    if isinstance(space, spaces.Box):
        return Sight("state", (size,), _of_box(space))
    flatten: Callable[[Any, Any], Any] = spaces.flatten
    return Sight("state", (size,), lambda seen: _float32(flatten(space, seen)))


def sight_of_images(environment: Any, task: str) -> Sight:
    """Return what is seen of the images that an environment renders, whatever it shows otherwise."""
    return Sight(
        "image",
        (SHRUNK_SIDE, SHRUNK_SIDE, 3),
        lambda image: shrunk(rendered(image, task), (SHRUNK_SIDE, SHRUNK_SIDE)),
    )


def acts_of(environment: Any, task: str) -> Acts:
    """Return what an agent may do in an environment."""
    from gymnasium import spaces

    space = environment.action_space
    if isinstance(space, spaces.Discrete) and 1 <= space.n <= MOST_ACTIONS:
        first = int(space.start)
        return Acts(int(space.n), 0, lambda action: first + int(action))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        if not (np.isfinite(space.low).all() and np.isfinite(space.high).all()):
            raise ValueError(
                f"{task}: the action space {_told(space)} is not supported: its bounds must be finite; "
                "gymnasium.wrappers.TransformAction takes an action space that has them"
            )
        if space.shape and space.low.size:
            return Acts(0, int(space.low.size), _rescaled(space))
    raise ValueError(
        f"{task}: the action space {_told(space)} is not supported; supported are Discrete of "
        f"up to {MOST_ACTIONS} actions, and a Box of floating-point numbers with finite bounds"
    )


def _rescaled(space: Any) -> Callable[[Any], np.ndarray]:
    """Return what brings actions from [-1, 1] to the bounds of a Box, at which those beyond end."""
    low, high = space.low.astype(np.float64), space.high.astype(np.float64)

    def rescaled(action: Float[np.ndarray, " a"]) -> Float[np.ndarray, "..."]:
        share = (np.asarray(action, dtype=np.float64).reshape(space.shape) + 1) / 2
        within: np.ndarray = np.clip(low + share * (high - low), low, high)
        return within.astype(space.dtype)

    return rescaled


class ImageOf:
    """Brings the images of a Box to bytes, [height, width, channels], and large ones to 84 x 84.

    Args:
        space: The Box, which is bounded.
    """

    def __init__(self, space: Any) -> None:
        shape = (*space.shape, 1) if len(space.shape) == 2 else space.shape
        self.has_channels = len(space.shape) == 3
        self.channels_first = self.has_channels and shape[0] < shape[2]
        height, width, channels = (shape[1], shape[2], shape[0]) if self.channels_first else shape
        self.shrinks = max(height, width) > MOST_SIDE
        self.shape = (SHRUNK_SIDE, SHRUNK_SIDE, channels) if self.shrinks else (height, width, channels)
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        self.is_bytes = space.dtype == np.uint8 and bool((low == 0).all() and (high == 255).all())
        self.low, self.scale = low, 255 / np.where(high > low, high - low, 1)

    def __call__(self, shown: Num[np.ndarray, "..."]) -> UInt8[np.ndarray, "h w c"]:
        """Return an image of bytes; what has other bounds than 0 and 255 is scaled to them."""
        image = np.asarray(shown)
        if not self.is_bytes:
            image = ((image - self.low) * self.scale).round().clip(0, 255).astype(np.uint8)
        if not self.has_channels:
            image = image[..., None]
        if self.channels_first:
            image = image.transpose(1, 2, 0)
        return shrunk(image, (SHRUNK_SIDE, SHRUNK_SIDE)) if self.shrinks else image


def shrunk(image: UInt8[np.ndarray, "h w c"], size: tuple[int, int]) -> UInt8[np.ndarray, "h2 w2 c"]:
    """Return an image at another height and width: each pixel is the mean of those that it covers."""
    if image.shape[:2] == size:
        return image
    channels_first = torch.from_numpy(np.array(image.transpose(2, 0, 1), dtype=np.float32))
    small = torch.nn.functional.interpolate(channels_first[None], size=size, mode="area")[0]
    bytes_: UInt8[np.ndarray, "h2 w2 c"] = small.round().byte().permute(1, 2, 0).numpy()
    return np.ascontiguousarray(bytes_)


def rendered(image: Any, task: str) -> UInt8[np.ndarray, "h w 3"]:
    """Return a rendered image, and refuse what is none."""
    if not isinstance(image, np.ndarray) or image.ndim != 3 or image.shape[-1] != 3:
        shape = image.shape if isinstance(image, np.ndarray) else type(image).__name__
        raise ValueError(f"{task}: render() must give an image [height, width, 3], got {shape}")
    return image.astype(np.uint8, copy=False)


def channels_of_three(image: UInt8[np.ndarray, "h w c"], side: int) -> UInt8[np.ndarray, "3 side side"]:
    """Return an image as agents with continuous actions see it: three channels, which come first, and square."""
    colours = image.repeat(3, axis=-1) if image.shape[-1] == 1 else image
    return np.ascontiguousarray(shrunk(colours, (side, side)).transpose(2, 0, 1))


def _is_image(space: Any) -> bool:
    """Whether a space is that of images: bounded, with two sides that are long enough; of floats, three axes."""
    from gymnasium import spaces

    if not isinstance(space, spaces.Box) or not space.is_bounded():
        return False
    if len(space.shape) == 2:
        return space.dtype == np.uint8 and min(space.shape) >= LEAST_SIDE
    if len(space.shape) != 3:
        return False
    sides = space.shape[1:] if space.shape[0] < space.shape[2] else space.shape[:2]
    return min(sides) >= LEAST_SIDE


def _is_grid_of_cells(environment: Any, space: Any) -> bool:
    """Whether a space is that of MiniGrid's cells, each a code of three numbers, and not that of an image of them."""
    package = sys.modules.get("minigrid.minigrid_env")  # where it is not loaded, this is none of its environments
    world = environment.unwrapped
    if package is None or not isinstance(world, package.MiniGridEnv) or len(getattr(space, "shape", None) or ()) != 3:
        return False
    views = (world.agent_view_size, world.agent_view_size), (world.width, world.height)
    return min(space.shape[:2]) >= LEAST_SIDE and tuple(space.shape[:2]) in views


def _leaves(space: Any) -> Iterator[Any]:
    """Return the spaces that a space is made of, however deep; itself if it is neither a Dict nor a Tuple."""
    from gymnasium import spaces

    if isinstance(space, spaces.Dict | spaces.Tuple):
        for part in space.spaces.values() if isinstance(space, spaces.Dict) else space.spaces:
            yield from _leaves(part)
    else:
        yield space


def _of_box(space: Any) -> Callable[[Any], Float[np.ndarray, " d"]]:
    """Return what flattens the observations of a Box; whole numbers with close bounds are scaled to [0, 1]."""
    low, span = space.low.astype(np.float64), space.high.astype(np.float64) - space.low.astype(np.float64)
    is_scaled = not np.issubdtype(space.dtype, np.floating) and bool((span <= MOST_SPAN).all())
    scale = np.where(span > 0, span, 1)

    def flattened(seen: Any) -> Float[np.ndarray, " d"]:
        numbers = (np.asarray(seen) - low) / scale if is_scaled else np.asarray(seen)
        return _float32(numbers)

    return flattened


def _float32(numbers: Shaped[np.ndarray, "..."]) -> Float[np.ndarray, " d"]:
    return np.asarray(numbers, dtype=np.float32).reshape(-1)


def _told(space: Any) -> str:
    """Return how a space is written, in one line that is not endless."""
    text = " ".join(str(space).split())
    return text if len(text) <= _LONGEST_TEXT else f"{text[: _LONGEST_TEXT - 4]} ..."
