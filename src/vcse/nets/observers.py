"""Encoders of other observations than grids, for many learners at once, and an agent's encoder by what it observes."""

from collections.abc import Sequence
from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from vcse.nets.encoders import Encoder, GridEncoder
from vcse.nets.stacked import Learners, StackedLayer

ObservationKind = Literal["grid", "state", "image"]

IMAGE_FEATURES = 128
LARGE_SIDE = 36  # pixels: from there on images lose more in the first layers
LARGE_LAYERS = ((16, 8, 4), (32, 4, 2))  # channels, kernel, stride
SMALL_LAYERS = ((16, 3, 2), (32, 3, 1))
VECTOR_HIDDEN_UNITS, VECTOR_FEATURES = 256, 64


class IdentityEncoder(Encoder):
    """States as they are: the networks after it are deep enough. There are no parameters.

    Args:
        size: Numbers of a state.
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.features = size

    def forward(self, observations: Float[Tensor, "m n d"], learners: Learners | None = None) -> Float[Tensor, "m n d"]:
        """Return the states."""
        del learners
        return observations


class VectorEncoder(Encoder):
    """Linear, ReLU, linear: for vectors that are too long to be their own features.

    Args:
        size: Numbers of a vector.
        generators: Of the parameters, one per learner.
    """

    def __init__(self, size: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.features = VECTOR_FEATURES
        units = VECTOR_HIDDEN_UNITS
        self.dense1 = StackedLayer.uniform((size, units), units, size, generators)
        self.dense2 = StackedLayer.uniform((units, VECTOR_FEATURES), VECTOR_FEATURES, units, generators)

    def forward(self, observations: Float[Tensor, "m n d"], learners: Learners | None = None) -> Float[Tensor, "m n f"]:
        """Encode vectors."""
        features: Tensor = self.dense2(self.dense1(observations, learners).relu(), learners)
        return features


class ImageEncoder(Encoder):
    """Two convolutions and a linear layer, each with ReLU, of images of bytes whose channels come last.

    A convolution is an operation of each learner's own, which gives the same bits however many there are.

    Args:
        height: Pixels.
        width: Pixels.
        channels: Of a pixel.
        generators: Of the parameters, one per learner.
    """

    def __init__(self, height: int, width: int, channels: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.features = IMAGE_FEATURES
        layers = LARGE_LAYERS if min(height, width) >= LARGE_SIDE else SMALL_LAYERS
        self.strides = [stride for _, _, stride in layers]
        self.convolutions = nn.ModuleList()
        sides, before = (height, width), channels
        for after, kernel, stride in layers:
            if min(sides) < kernel:
                raise ValueError(f"the encoder needs an image of at least 7x7 pixels, got {height}x{width}")
            sides = ((sides[0] - kernel) // stride + 1, (sides[1] - kernel) // stride + 1)
            shape, fan_in = (after, before, kernel, kernel), before * kernel * kernel
            self.convolutions.append(StackedLayer.uniform(shape, after, fan_in, generators))
            before = after
        pixels = sides[0] * sides[1] * before
        self.dense = StackedLayer.uniform((pixels, IMAGE_FEATURES), IMAGE_FEATURES, pixels, generators)

    def forward(
        self, observations: UInt8[Tensor, "m n h w c"], learners: Learners | None = None
    ) -> Float[Tensor, "m n f"]:
        """Encode bytes, which are scaled to [0, 1]."""
        parameters: list[Tensor] = list(self.convolutions.parameters())
        if learners is not None:
            parameters = [each[learners] for each in parameters]
        rows = zip(observations, *parameters, strict=True)
        flat = torch.stack([self._convolve(images, *mine) for images, *mine in rows])
        features: Tensor = self.dense(flat, learners)
        return features.relu()

    def _convolve(self, images: UInt8[Tensor, "n h w c"], *parameters: Tensor) -> Float[Tensor, "n d"]:
        """Apply one learner's convolutions, of which weights and biases come in turn."""
        hidden = images.permute(0, 3, 1, 2).contiguous().float() / 255
        for weight, bias, stride in zip(parameters[::2], parameters[1::2], self.strides, strict=True):
            # Copies lie where memory is aligned, whichever row of all learners' parameters they are of.
            hidden = nn.functional.conv2d(hidden, weight.clone(), bias.clone(), stride).relu()
        return hidden.flatten(1)


def make_encoder(kind: ObservationKind, shape: tuple[int, ...], generators: Sequence[torch.Generator]) -> Encoder:
    """Make the encoder of an agent.

    Args:
        kind: Of the observations.
        shape: Of an observation.
        generators: Of the parameters, one per learner.
    """
    if kind == "state":
        return IdentityEncoder(shape[0])
    height, width, channels = shape
    encoder = GridEncoder if kind == "grid" else ImageEncoder
    return encoder(height, width, channels, generators)
