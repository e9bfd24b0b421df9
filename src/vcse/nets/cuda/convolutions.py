"""The convolutions of an image encoder on CUDA: kernels for few channels, which libraries are slow with.

All tensors of images here have the channels last: [image, row, column, channel].
"""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor
from torch.nn.functional import pad

from vcse.nets.cuda.device_code import device_code, masked_gradient, product_precision, product_size

STRIDES = (2, 1, 1, 1)
WINDOW = 3
TILE_PIXELS = 64  # more do not fit into the registers
PARTS = 128  # in which the pixels are taken for the gradients of weights


def encode_images(
    images: UInt8[Tensor, "n h w c"],
    weights: Sequence[Float[Tensor, "_ _ 3 3"]],
    biases: Sequence[Float[Tensor, " _"]],
    dtype: torch.dtype,
) -> Float[Tensor, "n f"]:
    """Apply rectified convolutions to pixels from -127.5 to 127.5, one after the other.

    Args:
        images: Square, with the channels last.
        weights: Of each convolution.
        biases: Of each convolution.
        dtype: Of the numbers that are multiplied, and of hidden layers.
    """
    features: Tensor = _Encoded.apply(images, dtype, *weights, *biases)  # type: ignore[no-untyped-call]
    return features


class _Encoded(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, images: Tensor, dtype: torch.dtype, *parameters: Tensor) -> Tensor:
        weights, biases = parameters[: len(STRIDES)], parameters[len(STRIDES) :]
        inputs, taps = [_padded(images)], []
        for weight, bias, stride in zip(weights, biases, STRIDES, strict=True):
            taps.append(_by_tap(weight, inputs[-1].shape[-1], dtype))
            inputs.append(_convolved(inputs[-1], taps[-1], bias, stride))
        ctx.save_for_backward(*inputs, *taps)
        ctx.channels = [weight.shape[1] for weight in weights]
        return inputs[-1].flatten(1)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        *inputs, features = ctx.saved_tensors[: len(STRIDES) + 1]
        taps = ctx.saved_tensors[len(STRIDES) + 1 :]
        rows = features.flatten(0, 2)[None]
        gradient, [bias_gradient] = masked_gradient(gradients[0].reshape(rows.shape), rows)
        gradient = gradient.view_as(features)
        of_weights: list[Tensor] = []
        of_biases: list[Tensor] = []
        for number in reversed(range(len(STRIDES))):
            of_biases.insert(0, bias_gradient)
            of_taps = _weight_gradient(gradient, inputs[number], STRIDES[number])
            of_weight = of_taps[:, :, : ctx.channels[number]].permute(3, 2, 0, 1)
            of_weights.insert(0, of_weight.contiguous(memory_format=torch.channels_last))
            if number > 0:  # images have no gradient
                gradient, bias_gradient = _input_gradient(gradient, taps[number], inputs[number])
        return None, None, *of_weights, *of_biases


def _padded(images: UInt8[Tensor, "n h w c"]) -> UInt8[Tensor, "n h w i"]:
    """Return pixels as far apart as kernels expect them. What is between them has weights of 0."""
    count, height, width, channels = images.shape
    pitch = product_size(channels)
    whole, strides = (count, height, width, pitch), (height * width * pitch, width * pitch, pitch, 1)
    if images.stride() == strides:
        return images.as_strided(whole, strides)
    padded = images.new_zeros(whole)
    padded[..., :channels] = images
    return padded


def _by_tap(weight: Float[Tensor, "u c 3 3"], inputs: int, dtype: torch.dtype) -> Float[Tensor, "3 3 i u"]:
    """Lay weights out by their place in the window, with zeros for channels that are padding."""
    ordered = weight.detach().permute(2, 3, 1, 0)
    return pad(ordered, (0, 0, 0, inputs - weight.shape[1])).to(dtype).contiguous()


def _convolved(
    inputs: Shaped[Tensor, "n h w i"], taps: Float[Tensor, "3 3 i u"], bias: Float[Tensor, " u"], stride: int
) -> Float[Tensor, "n y x u"]:
    count, in_side, _, channels = inputs.shape
    out_side, units = (in_side - WINDOW) // stride + 1, taps.shape[-1]
    out = taps.new_empty(count, out_side, out_side, units)
    pixels = count * out_side**2
    device_code("images").convolve_kernel[(-(-pixels // TILE_PIXELS),)](
        *(inputs, taps, bias.contiguous(), out, pixels, in_side, out_side, stride),
        INPUTS=channels,
        UNITS=units,
        BLOCK=TILE_PIXELS,
        PRECISION=product_precision(),
    )
    return out


def _input_gradient(
    gradient: Float[Tensor, "n y x u"], taps: Float[Tensor, "3 3 i u"], inputs: Float[Tensor, "n h w i"]
) -> tuple[Float[Tensor, "n h w i"], Float[Tensor, " i"]]:
    """Return the gradient before the ReLU that the inputs come from, and its sum over all pixels."""
    count, in_side, _, channels = inputs.shape
    pixels = count * in_side**2
    tiles = -(-pixels // TILE_PIXELS)
    out, sums = torch.empty_like(inputs), inputs.new_empty(tiles, channels, dtype=torch.float32)
    device_code("images").input_gradient_kernel[(tiles,)](
        *(gradient, taps, inputs, out, sums, pixels, in_side, gradient.shape[1]),
        INPUTS=channels,
        UNITS=taps.shape[-1],
        BLOCK=TILE_PIXELS,
        PRECISION=product_precision(),
    )
    return out, sums.sum(0)


def _weight_gradient(
    gradient: Float[Tensor, "n y x u"], inputs: Shaped[Tensor, "n h w i"], stride: int
) -> Float[Tensor, "3 3 i u"]:
    count, out_side, _, units = gradient.shape
    in_side, channels = inputs.shape[1], inputs.shape[-1]
    pixels = count * out_side**2
    part = -(-pixels // (PARTS * TILE_PIXELS)) * TILE_PIXELS
    parts = -(-pixels // part)
    partial = gradient.new_empty(parts, WINDOW, WINDOW, channels, units, dtype=torch.float32)
    device_code("images").weight_gradient_kernel[(parts, WINDOW)](
        *(gradient, inputs, partial, pixels, in_side, out_side, stride, part),
        INPUTS=channels,
        UNITS=units,
        BLOCK=TILE_PIXELS,
        PRECISION=product_precision(),
    )
    return partial.sum(0)
