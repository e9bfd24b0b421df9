"""Networks that look at pictures: encoder, trunks, and the curiosity module whose features a bonus sees."""

from collections.abc import Sequence
from typing import Any, Literal

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn
from torch.nn.functional import conv2d

from vcse.nets.device_code import device_code, masked_gradient

Precision = Literal["float32", "bfloat16"]

PICTURE_SIDE = 84
FEATURES = 32 * 35 * 35  # of an encoded picture


class PictureEncoder(nn.Module):
    """Four convolutions of 32 channels, 3 x 3, with ReLU; the first moves by two pixels.

    Args:
        channels: Of a picture.
        generator: Of the weights.
        precision: Of the numbers that are multiplied; the parameters themselves, sums and features are float32.
    """

    def __init__(self, channels: int, generator: torch.Generator, *, precision: Precision = "float32") -> None:
        super().__init__()
        self.dtype = {"float32": torch.float32, "bfloat16": torch.bfloat16}[precision]
        sizes = [(channels, 2), (32, 1), (32, 1), (32, 1)]
        self.layers = nn.ModuleList(nn.Conv2d(inputs, 32, 3, stride=stride) for inputs, stride in sizes)
        for layer in self.layers:
            assert isinstance(layer, nn.Conv2d)
            assert layer.bias is not None
            nn.init.orthogonal_(layer.weight, nn.init.calculate_gain("relu"), generator=generator)
            nn.init.zeros_(layer.bias)
            layer.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # as the pictures are

    def forward(self, pictures: UInt8[Tensor, "n c 84 84"]) -> Float[Tensor, "n 39200"]:
        """Encode pictures, whose pixels count from -0.5 to 0.5; features are given pixel by pixel."""
        # From -127.5 to 127.5 they are exact in bfloat16 too: the division is left to the weights of the first layer.
        hidden = pictures.to(self.dtype) - 127.5
        for number, layer in enumerate(self.layers):
            assert isinstance(layer, nn.Conv2d)
            assert layer.bias is not None
            weight = layer.weight / 255 if number == 0 else layer.weight
            hidden = _convolved(hidden, weight.to(self.dtype), layer.bias.to(self.dtype), layer.stride[0])
        return hidden.permute(0, 2, 3, 1).flatten(1).float()


def _convolved(
    inputs: Float[Tensor, "n i h w"], weight: Float[Tensor, "o i 3 3"], bias: Float[Tensor, " o"], stride: int
) -> Float[Tensor, "n o y x"]:
    """Convolve, and rectify."""
    if inputs.is_cuda and device_code("perceptrons") is not None:
        rectified: Tensor = _RectifiedConvolution.apply(inputs, weight, bias, stride)  # type: ignore[no-untyped-call]
        return rectified
    return conv2d(inputs, weight, bias, stride).relu()


class _RectifiedConvolution(torch.autograd.Function):
    """A convolution of pictures on CUDA, with bias and ReLU on the way there, and their gradients in one pass."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor, stride: int) -> Tensor:
        ctx.stride = stride
        hidden = torch.cudnn_convolution_relu(inputs, weight, bias, (stride, stride), (0, 0), (1, 1), 1)
        ctx.save_for_backward(inputs, weight, hidden)
        return hidden

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor, Tensor, None]:
        inputs, weight, hidden = ctx.saved_tensors
        rows = [each.permute(0, 2, 3, 1).flatten(0, 2)[None] for each in (gradients[0], hidden)]
        masked, [bias_gradient] = masked_gradient(*rows)
        gradient = masked.view(len(hidden), *hidden.shape[2:], hidden.shape[1]).permute(0, 3, 1, 2)
        inputs_gradient, weight_gradient, _ = torch.ops.aten.convolution_backward(
            *(gradient, inputs, weight, None, (ctx.stride, ctx.stride), (0, 0), (1, 1), False, (0, 0), 1),
            (ctx.needs_input_grad[0], True, False),
        )
        return inputs_gradient, weight_gradient, bias_gradient.to(hidden.dtype), None


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
        return self.finish(self.linear(features))

    def finish(self, outputs: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        """Do what comes after the linear layer."""
        normalized: Tensor = self.norm(outputs)
        return normalized.tanh()


def through_trunks(trunks: Sequence[Trunk], features: Float[Tensor, "n f"]) -> list[Float[Tensor, "n d"]]:
    """Apply several trunks to the same features, which are read once for all of them."""
    weight = torch.cat([trunk.linear.weight for trunk in trunks])
    bias = torch.cat([trunk.linear.bias for trunk in trunks])
    outputs = nn.functional.linear(features, weight, bias)
    parts = torch.split(outputs, [trunk.linear.out_features for trunk in trunks], dim=-1)
    return [trunk.finish(part) for trunk, part in zip(trunks, parts, strict=True)]


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
