"""Networks of DrQ-v2: encoder, actor, twin critics, and the curiosity module whose features a bonus sees."""

from typing import Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import conv2d

from vcse.nets.cuda.convolutions import STRIDES, encode_images
from vcse.nets.cuda.device_code import device_code
from vcse.nets.cuda.wide_linear import wide_linear
from vcse.nets.mlp import StackedMLP

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
        """Encode images, whose pixels count from -0.5 to 0.5; features are in the order of pixels."""
        # From -127.5 to 127.5 they are exact in bfloat16 too: the division is left to the weights of the first layer.
        first, *others = (layer.get_parameter("weight") for layer in self.layers)
        weights, biases = [first / 255, *others], [layer.get_parameter("bias") for layer in self.layers]
        if images.is_cuda and device_code("images") is not None:
            return encode_images(images.permute(0, 2, 3, 1), weights, biases, self.dtype)
        hidden = images.to(self.dtype) - 127.5
        for weight, bias, stride in zip(weights, biases, STRIDES, strict=True):
            hidden = conv2d(hidden, weight.to(self.dtype), bias.to(self.dtype), stride).relu()
        return hidden.permute(0, 2, 3, 1).flatten(1)


class Trunk(nn.Module):
    """From the many features of an image to a few: linear, layer norm, tanh."""

    def __init__(self, outputs: int, generator: torch.Generator, inputs: int = FEATURES) -> None:
        super().__init__()
        self.linear = _linear(inputs, outputs, generator)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, features: Float[Tensor, "n f"]) -> Float[Tensor, "n d"]:
        """Apply the trunk."""
        normalized: Tensor = self.norm(wide_linear(features, self.linear.weight, self.linear.bias))
        return normalized.tanh()


class Actor(nn.Module):
    """The mean of the actions, from the features of an image.

    Args:
        features: Of the trunk.
        hidden: Units of each hidden layer.
        action_size: Numbers of an action.
        generator: Of the weights.
        normalized: Divide the last hidden layer by its norm (Bjorck, Gomes and Weinberger, ICLR 2022).
    """

    def __init__(
        self, features: int, hidden: int, action_size: int, generator: torch.Generator, *, normalized: bool = False
    ) -> None:
        super().__init__()
        self.trunk = Trunk(features, generator)
        self.head = StackedMLP(features, hidden, action_size, [generator], normalized=normalized)

    def forward(self, features: Float[Tensor, "n f"]) -> Float[Tensor, "n a"]:
        """Return the mean of the actions."""
        return self.pre_tanh(features).tanh()

    def pre_tanh(self, features: Float[Tensor, "n f"]) -> Float[Tensor, "n a"]:
        """Return the mean of the actions before tanh."""
        outputs: Tensor = self.head(self.trunk(features)[None])
        return outputs[0]


class TwinCritic(nn.Module):
    """Q_1 and Q_2 of features and an action, with one trunk for both."""

    def __init__(self, features: int, hidden: int, action_size: int, generator: torch.Generator) -> None:
        super().__init__()
        self.trunk = Trunk(features, generator)
        self.head = StackedMLP(features + action_size, hidden, 1, [generator] * TWIN)

    def forward(self, features: Float[Tensor, "n f"], actions: Float[Tensor, "n a"]) -> Float[Tensor, "2 n"]:
        """Return both Q values."""
        return self.q_values(self.trunk(features), actions)

    def q_values(
        self, hidden: Float[Tensor, "n d"], actions: Float[Tensor, "n a"], *, detach_parameters: bool = False
    ) -> Float[Tensor, "2 n"]:
        """Return both Q values from the output of the trunk.

        Args:
            hidden: Output of the trunk.
            actions: One for each.
            detach_parameters: Send gradients to the inputs alone.
        """
        inputs = torch.cat((hidden, actions), -1).expand(TWIN, -1, -1).contiguous()
        outputs: Tensor = self.head(inputs, detach_parameters=detach_parameters)
        return outputs[..., 0]


class CuriosityModule(nn.Module):
    """The intrinsic curiosity module (Pathak et al. 2017). Only the features of its trunk are used, by the bonus."""

    def __init__(self, features: int, hidden: int, action_size: int, generator: torch.Generator) -> None:
        super().__init__()
        self.trunk = Trunk(features, generator)
        self.forward_net = _two_layers(features + action_size, hidden, features, generator)
        self.inverse_net = nn.Sequential(*_two_layers(2 * features, hidden, action_size, generator), nn.Tanh())

    def loss(
        self, features: Float[Tensor, "n d"], actions: Float[Tensor, "n a"], next_features: Float[Tensor, "n d"]
    ) -> Float[Tensor, ""]:
        """Return the mean error (norm, not squared) of predicted next features and actions, from the trunk's output."""
        predicted = self.forward_net(torch.cat((features, actions), -1))
        predicted_actions = self.inverse_net(torch.cat((features, next_features), -1))
        errors = (next_features - predicted).norm(dim=-1) + (actions - predicted_actions).norm(dim=-1)
        mean: Tensor = errors.mean()
        return mean


def _two_layers(inputs: int, hidden: int, outputs: int, generator: torch.Generator) -> nn.Sequential:
    return nn.Sequential(_linear(inputs, hidden, generator), nn.ReLU(), _linear(hidden, outputs, generator))


def _linear(inputs: int, outputs: int, generator: torch.Generator) -> nn.Linear:
    layer = nn.Linear(inputs, outputs)
    nn.init.orthogonal_(layer.weight, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer
