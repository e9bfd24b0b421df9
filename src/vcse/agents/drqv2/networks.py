"""Networks of DrQ-v2: encoder, actor, twin critics, and the curiosity module whose features a bonus sees."""

from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import conv2d

from vcse.nets.cuda.convolutions import STRIDES, encoded
from vcse.nets.cuda.device_code import device_code
from vcse.nets.cuda.wide_linear import wide_linear
from vcse.nets.perceptrons import Perceptrons

Precision = Literal["float32", "bfloat16"]

FEATURES = 32 * 35 * 35  # of an encoded image
TWIN = 2


class ImageEncoder(nn.Module):
    """Four convolutions of 32 channels, 3 x 3, with ReLU; the first moves by two pixels.

    Args:
        channels: Of an image.
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
            layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as the images are
        self.layers = nn.ModuleList(layers)

    def forward(self, images: UInt8[Tensor, "n c 84 84"]) -> Float[Tensor, "n 39200"]:
        """Encode images, whose pixels count from -0.5 to 0.5; features are given pixel by pixel."""
        # From -127.5 to 127.5 they are exact in bfloat16 too: the division is left to the weights of the first layer.
        first, *others = (layer.get_parameter("weight") for layer in self.layers)
        weights, biases = [first / 255, *others], [layer.get_parameter("bias") for layer in self.layers]
        if images.is_cuda and device_code("images") is not None:
            return encoded(images.permute(0, 2, 3, 1), weights, biases, self.dtype)
        hidden = images.to(self.dtype) - 127.5
        for weight, bias, stride in zip(weights, biases, STRIDES, strict=True):
            hidden = conv2d(hidden, weight.to(self.dtype), bias.to(self.dtype), stride).relu()
        return hidden.permute(0, 2, 3, 1).flatten(1)


class Trunk(nn.Module):
    """From the many features of an image to a few: linear, layer norm, tanh."""

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


class Actor:
    """From the features of an image to the mean of the actions.

    Args:
        features: Of the trunk.
        hidden: Units of each hidden layer.
        action_size: Numbers of an action.
        generator: Of the weights.
        device: Where they live.
        normalized: Divide the last hidden layer by its norm (Bjorck, Gomes and Weinberger, ICLR 2022).
    """

    def __init__(
        self,
        features: int,
        hidden: int,
        action_size: int,
        generator: torch.Generator,
        device: torch.device,
        *,
        normalized: bool = False,
    ) -> None:
        self.net = Perceptrons(features, hidden, action_size, normalized=normalized)
        self.trunk = Trunk(features, generator).to(device)
        self.head = [each.to(device).requires_grad_() for each in self.net.initial([generator])]

    def parameters(self) -> list[Tensor]:
        """Return all that is learned."""
        return [*self.trunk.parameters(), *self.head]

    def __call__(self, features: Float[Tensor, "n f"]) -> Float[Tensor, "n a"]:
        """Return the mean of the actions."""
        return self.pre_activation(features).tanh()

    def pre_activation(self, features: Float[Tensor, "n f"]) -> Float[Tensor, "n a"]:
        """Return the mean of the actions before tanh."""
        return self.net(self.head, self.trunk(features)[None])[0]


class TwinCritic:
    """Two Q-functions of an action and of features, which they share."""

    def __init__(
        self, features: int, hidden: int, action_size: int, generator: torch.Generator, device: torch.device
    ) -> None:
        self.net = Perceptrons(features + action_size, hidden, 1)
        self.trunk = Trunk(features, generator).to(device)
        self.head = [each.to(device).requires_grad_() for each in self.net.initial([generator] * TWIN)]

    def parameters(self) -> list[Tensor]:
        """Return all that is learned."""
        return [*self.trunk.parameters(), *self.head]

    def q_values(
        self, seen: Float[Tensor, "n d"], actions: Float[Tensor, "n a"], *, frozen: bool = False
    ) -> Float[Tensor, "2 n"]:
        """Return both values of actions, from the trunk's output.

        Args:
            seen: What the trunk makes of the features.
            actions: One for each.
            frozen: Send no gradient to the heads.
        """
        inputs = torch.cat((seen, actions), -1)
        head = [each.detach() for each in self.head] if frozen else self.head
        return self.net(head, inputs.expand(TWIN, *inputs.shape).contiguous())[..., 0]


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
        """Return how far the guesses of next features and of actions are off; lengths, not their squares."""
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
