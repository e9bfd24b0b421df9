"""Networks that look at pictures: encoder, trunks, and the curiosity module whose features a bonus sees."""

from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import conv2d

from vcse.nets.cuda.convolutions import STRIDES, encoded
from vcse.nets.cuda.device_code import device_code
from vcse.nets.cuda.wide_linear import wide_linear

Precision = Literal["float32", "bfloat16"]

FEATURES = 32 * 35 * 35  # of an encoded picture


class PictureEncoder(nn.Module):
    """Four convolutions of 32 channels, 3 x 3, with ReLU; the first moves by two pixels.

    Args:
        channels: Of a picture.
        generator: Of the weights.
        precision: Of the numbers that are multiplied, and of the features; the parameters themselves are float32.
    """

    def __init__(self, channels: int, generator: torch.Generator, *, precision: Precision = "float32") -> None:
        super().__init__()
        self.dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]
        inputs = (channels, 32, 32, 32)
        layers = [nn.Conv2d(each, 32, 3, stride=stride) for each, stride in zip(inputs, STRIDES, strict=True)]
        for layer in layers:
            assert layer.bias is not None
            nn.init.orthogonal_(layer.weight, nn.init.calculate_gain("relu"), generator=generator)
            nn.init.zeros_(layer.bias)
            layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as the pictures are
        self.layers = nn.ModuleList(layers)

    def forward(self, pictures: UInt8[Tensor, "n c 84 84"]) -> Float[Tensor, "n 39200"]:
        """Encode pictures, whose pixels count from -0.5 to 0.5; features are given pixel by pixel."""
        # From -127.5 to 127.5 they are exact in bfloat16 too: the division is left to the weights of the first layer.
        first, *others = (layer.get_parameter("weight") for layer in self.layers)
        weights, biases = [first / 255, *others], [layer.get_parameter("bias") for layer in self.layers]
        if pictures.is_cuda and device_code("pictures") is not None:
            return encoded(pictures.permute(0, 2, 3, 1), weights, biases, self.dtype)
        hidden = pictures.to(self.dtype) - 127.5
        for weight, bias, stride in zip(weights, biases, STRIDES, strict=True):
            hidden = conv2d(hidden, weight.to(self.dtype), bias.to(self.dtype), stride).relu()
        return hidden.permute(0, 2, 3, 1).flatten(1)


class Trunk(nn.Module):
    """From the many features of a picture to a few: linear, layer norm, tanh."""

    def __init__(self, outputs: int, generator: torch.Generator, inputs: int = FEATURES) -> None:
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)
        nn.init.orthogonal_(self.linear.weight, generator=generator)
        nn.init.zeros_(self.linear.bias)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, features: Float[Tensor, "n f"]) -> Float[Tensor, "n d"]:
        """Apply the trunk."""
        normalized: Tensor = self.norm(wide_linear(features, self.linear.weight, self.linear.bias))
        return normalized.tanh()


class Curiosity(nn.Module):
    """The intrinsic curiosity module: features from which action and next features can be told.

    Only its features are used: they are what a bonus sees.
    """

    def __init__(self, outputs: int, action_size: int, hidden: int, generator: torch.Generator) -> None:
        super().__init__()
        self.trunk = Trunk(outputs, generator)
        self.forward_net = _two_layers(outputs + action_size, hidden, outputs, generator)
        self.inverse_net = nn.Sequential(*_two_layers(2 * outputs, hidden, action_size, generator), nn.Tanh())

    def loss(
        self, here: Float[Tensor, "n d"], actions: Float[Tensor, "n a"], there: Float[Tensor, "n d"]
    ) -> Float[Tensor, ""]:
        """Give how far the guesses of next features and of actions are off; lengths, not their squares."""
        guess = self.forward_net(torch.cat((here, actions), -1))
        guessed_actions = self.inverse_net(torch.cat((here, there), -1))
        off = (there - guess).norm(dim=-1) + (actions - guessed_actions).norm(dim=-1)
        mean: Tensor = off.mean()
        return mean


def _two_layers(inputs: int, hidden: int, outputs: int, generator: torch.Generator) -> nn.Sequential:
    net = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Linear(hidden, outputs))
    for layer in net:
        if isinstance(layer, nn.Linear):
            nn.init.orthogonal_(layer.weight, generator=generator)
            nn.init.zeros_(layer.bias)
    return net
