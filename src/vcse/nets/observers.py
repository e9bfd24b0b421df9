"""What turns observations of any kind into features, for many learners at once: an agent's trunk, by what it sees."""

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor, nn

from vcse.nets.encoders import GridEncoder
from vcse.nets.stacked import Layout, Pieces, Stack, linear, uniform_fan_in

Seen = Literal["grid", "state", "image"]

IMAGE_FEATURES = 128
LARGE_SIDE = 36  # pixels: from there on images lose more in the first layers
LARGE_LAYERS = ((16, 8, 4), (32, 4, 2))  # channels, kernel, stride
SMALL_LAYERS = ((16, 3, 2), (32, 3, 1))
VECTOR_HIDDEN_UNITS, VECTOR_FEATURES = 256, 64


@runtime_checkable
class Encoder(Protocol):
    """An encoder of one kind of observation; its parameters are rows of learners."""

    @property
    def features(self) -> int:
        """How many there are of each observation."""

    @property
    def layout(self) -> Layout:
        """Which piece of a row is which parameter."""

    def initial(self, generators: Sequence[torch.Generator]) -> Stack:
        """Sample the parameters of each learner from its own generator."""

    def prepare(self, pieces: Pieces) -> dict[str, Float[Tensor, "l ..."]]:
        """Return the parameters in the form that is applied."""

    def __call__(self, prepared: Pieces, observations: Shaped[Tensor, "l n ..."]) -> Float[Tensor, "l n f"]:
        """Encode."""


class Untouched:
    """States as they are: their heads are deep enough. There are no parameters.

    Args:
        size: Numbers of a state.
    """

    def __init__(self, size: int) -> None:
        self.features = size
        self.layout = Layout({})

    def initial(self, generators: Sequence[torch.Generator]) -> Stack:
        """Sample nothing."""
        return torch.zeros(len(generators), 0)

    def prepare(self, pieces: Pieces) -> dict[str, Float[Tensor, "l ..."]]:
        """Return nothing."""
        del pieces
        return {}

    def __call__(self, prepared: Pieces, observations: Float[Tensor, "l n d"]) -> Float[Tensor, "l n d"]:
        """Return the states."""
        del prepared
        return observations


class VectorEncoder:
    """Linear, ReLU, linear: for vectors that are too long to be their own features.

    Args:
        size: Numbers of a vector.
    """

    def __init__(self, size: int) -> None:
        self.features = VECTOR_FEATURES
        units = VECTOR_HIDDEN_UNITS
        self.layout = Layout(
            {
                "dense1.weight": (size, units),
                "dense1.bias": (units,),
                "dense2.weight": (units, VECTOR_FEATURES),
                "dense2.bias": (VECTOR_FEATURES,),
            }
        )
        self.fan_in = {"dense1": size, "dense2": units}

    def initial(self, generators: Sequence[torch.Generator]) -> Stack:
        """Sample the parameters of each learner from its own generator, as PyTorch initialises linear layers."""
        return _initial(self.layout, self.fan_in, generators)

    def prepare(self, pieces: Pieces) -> dict[str, Float[Tensor, "l ..."]]:
        """Return the parameters as they are."""
        return {name: pieces[name] for name in self.layout.shapes}

    def __call__(self, prepared: Pieces, observations: Float[Tensor, "l n d"]) -> Float[Tensor, "l n f"]:
        """Encode."""
        hidden = linear(observations, prepared["dense1.weight"], prepared["dense1.bias"]).relu()
        return linear(hidden, prepared["dense2.weight"], prepared["dense2.bias"])


class ImageEncoder:
    """Two convolutions and a linear layer, each with ReLU, of images of bytes whose channels come last.

    A convolution is an operation of each learner's own, which gives the same bits however many there are.

    Args:
        height: Pixels.
        width: Pixels.
        channels: Of a pixel.
    """

    def __init__(self, height: int, width: int, channels: int) -> None:
        self.features = IMAGE_FEATURES
        self.layers = LARGE_LAYERS if min(height, width) >= LARGE_SIDE else SMALL_LAYERS
        shapes: dict[str, tuple[int, ...]] = {}
        self.fan_in: dict[str, int] = {}
        sides, before = (height, width), channels
        for number, (after, kernel, stride) in enumerate(self.layers, start=1):
            if min(sides) < kernel:
                raise ValueError(f"the encoder needs an image of at least 7x7 pixels, got {height}x{width}")
            sides = ((sides[0] - kernel) // stride + 1, (sides[1] - kernel) // stride + 1)
            shapes |= {f"conv{number}.weight": (after, before, kernel, kernel), f"conv{number}.bias": (after,)}
            self.fan_in[f"conv{number}"] = before * kernel * kernel
            before = after
        self.fan_in["dense"] = sides[0] * sides[1] * before
        shapes |= {"dense.weight": (self.fan_in["dense"], IMAGE_FEATURES), "dense.bias": (IMAGE_FEATURES,)}
        self.layout = Layout(shapes)

    def initial(self, generators: Sequence[torch.Generator]) -> Stack:
        """Sample the parameters of each learner from its own generator, as PyTorch initialises such layers."""
        return _initial(self.layout, self.fan_in, generators)

    def prepare(self, pieces: Pieces) -> dict[str, Float[Tensor, "l ..."]]:
        """Return the parameters as they are."""
        return {name: pieces[name] for name in self.layout.shapes}

    def __call__(self, prepared: Pieces, observations: UInt8[Tensor, "l n h w c"]) -> Float[Tensor, "l n f"]:
        """Encode bytes, which are scaled to [0, 1]."""
        flat = torch.stack([self._convolved(prepared, learner, mine) for learner, mine in enumerate(observations)])
        return linear(flat, prepared["dense.weight"], prepared["dense.bias"]).relu()

    def _convolved(
        self, prepared: Pieces, learner: int, observations: UInt8[Tensor, "n h w c"]
    ) -> Float[Tensor, "n d"]:
        hidden = observations.permute(0, 3, 1, 2).contiguous().float() / 255
        for number, (_, _, stride) in enumerate(self.layers, start=1):
            # Copies lie where memory is aligned, whichever row of all learners' parameters they are of.
            weight, bias = (prepared[f"conv{number}.{part}"][learner].clone() for part in ("weight", "bias"))
            hidden = nn.functional.conv2d(hidden, weight, bias, stride).relu()
        return hidden.flatten(1)


def trunk_for(seen: Seen, shape: tuple[int, ...]) -> Encoder:
    """Return the trunk of an agent, whose heads begin with what it gives.

    Args:
        seen: What kind of observation it is.
        shape: Of one.
    """
    if seen == "state":
        return Untouched(shape[0])
    return GridEncoder(*shape) if seen == "grid" else ImageEncoder(*shape)


def _initial(layout: Layout, fan_in: dict[str, int], generators: Sequence[torch.Generator]) -> Stack:
    rows = [
        torch.cat(
            [
                uniform_fan_in(shape, fan_in[name.partition(".")[0]], generator).flatten()
                for name, shape in layout.shapes.items()
            ]
        )
        for generator in generators
    ]
    return torch.stack(rows)
