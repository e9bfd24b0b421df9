"""The device code of `random_shift`, `convolutions` and `wide_linear`; imported only where Triton is installed.

An image's channels, or the units of a hidden layer, lie side by side for every pixel. A convolution is nine small
matrix products for a tile of pixels, one for each place of its window. Sums have a fixed order, so that results are
deterministic.
"""

from typing import no_type_check

import triton
import triton.language as tl

from vcse.nets.cuda.triton_mlp import rectified


@triton.jit
@no_type_check  # or the checks of shapes that the tests switch on would wrap what Triton compiles
def shift_kernel(
    image_ptr,
    shift_ptr,
    out_ptr,
    height,
    width,
    pad,
    CHANNELS: tl.constexpr,
    PITCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Write one row of one shifted image, with all channels of a pixel side by side, and zeros up to the next."""
    row, image = tl.program_id(0), tl.program_id(1).to(tl.int64)
    place = tl.arange(0, BLOCK)
    inside = place < width * PITCH
    channel = place % PITCH
    from_row = row + tl.load(shift_ptr + 2 * image) - pad
    from_row = tl.minimum(tl.maximum(from_row, 0), height - 1)
    from_column = place // PITCH + tl.load(shift_ptr + 2 * image + 1) - pad
    from_column = tl.minimum(tl.maximum(from_column, 0), width - 1)
    here = ((image * CHANNELS + channel) * height + from_row) * width + from_column
    value = tl.load(image_ptr + here, mask=inside & (channel < CHANNELS), other=0)
    tl.store(out_ptr + (image * height + row) * width * PITCH + place, value, mask=inside)


@triton.jit
@no_type_check
def centred(loaded, like):
    """Shift pixels to the range -127.5 to 127.5; other inputs stay as they are."""
    if loaded.dtype == tl.uint8:
        loaded = (loaded.to(tl.float32) - 127.5).to(like.dtype)
    return loaded


@triton.jit
@no_type_check
def corner_of(pixel, out_side, in_side, stride):
    """Return the first pixel of the window that each pixel of a convolution's output sees."""
    image, rest = pixel // (out_side * out_side), pixel % (out_side * out_side)
    return (image * in_side + rest // out_side * stride) * in_side + rest % out_side * stride


@triton.jit
@no_type_check
def convolve_kernel(
    input_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    pixels,
    in_side,
    out_side,
    stride,
    INPUTS: tl.constexpr,
    UNITS: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write a tile of pixels of a rectified convolution with windows of 3 x 3."""
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    corner = corner_of(pixel, out_side, in_side, stride)
    channel, unit = tl.arange(0, INPUTS), tl.arange(0, UNITS)
    total = tl.zeros((BLOCK, UNITS), dtype=tl.float32)
    for tap in tl.static_range(9):
        seen = corner + tap // 3 * in_side + tap % 3
        shown = tl.load(input_ptr + seen[:, None] * INPUTS + channel[None, :], mask=inside[:, None], other=0)
        weight = tl.load(weight_ptr + (tap * INPUTS + channel[:, None]) * UNITS + unit[None, :])
        total = tl.dot(centred(shown, weight), weight, total, input_precision=PRECISION)
    value = rectified(total + tl.load(bias_ptr + unit)[None, :])
    here = out_ptr + pixel[:, None] * UNITS + unit[None, :]
    tl.store(here, value.to(out_ptr.dtype.element_ty), mask=inside[:, None])


@triton.jit
@no_type_check
def input_gradient_kernel(
    gradient_ptr,
    weight_ptr,
    input_ptr,
    out_ptr,
    sum_ptr,
    pixels,
    in_side,
    out_side,
    INPUTS: tl.constexpr,
    UNITS: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write a tile of the gradient of a convolution's input, where that was on, and its sum over the tile.

    The window moves by one pixel. What comes in is the gradient before the convolution's own ReLU.
    """
    pixel = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = pixel < pixels
    image, rest = pixel // (in_side * in_side), pixel % (in_side * in_side)
    row, column = rest // in_side, rest % in_side
    channel, unit = tl.arange(0, INPUTS), tl.arange(0, UNITS)
    total = tl.zeros((BLOCK, INPUTS), dtype=tl.float32)
    for tap in tl.static_range(9):
        from_row, from_column = row - tap // 3, column - tap % 3
        exists = (from_row >= 0) & (from_row < out_side) & (from_column >= 0) & (from_column < out_side) & inside
        seen_by = (image * out_side + from_row) * out_side + from_column
        gradient = tl.load(gradient_ptr + seen_by[:, None] * UNITS + unit[None, :], mask=exists[:, None], other=0.0)
        weight = tl.load(weight_ptr + (tap * INPUTS + channel[None, :]) * UNITS + unit[:, None])
        total = tl.dot(gradient, weight, total, input_precision=PRECISION)
    place = pixel[:, None] * INPUTS + channel[None, :]
    was_on = tl.load(input_ptr + place, mask=inside[:, None], other=0.0) > 0
    masked = tl.where(was_on, total, 0.0)
    tl.store(out_ptr + place, masked.to(out_ptr.dtype.element_ty), mask=inside[:, None])
    tl.store(sum_ptr + tl.program_id(0) * INPUTS + channel, tl.sum(masked, 0))


@triton.jit
@no_type_check
def weight_gradient_kernel(
    gradient_ptr,
    input_ptr,
    partial_ptr,
    pixels,
    in_side,
    out_side,
    stride,
    part,
    INPUTS: tl.constexpr,
    UNITS: tl.constexpr,
    BLOCK: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the gradient of one row of a convolution's window, over a part of all pixels."""
    first, window_row = tl.program_id(0) * part, tl.program_id(1)
    channel, unit = tl.arange(0, INPUTS), tl.arange(0, UNITS)
    left = tl.zeros((INPUTS, UNITS), dtype=tl.float32)
    middle = tl.zeros((INPUTS, UNITS), dtype=tl.float32)
    right = tl.zeros((INPUTS, UNITS), dtype=tl.float32)
    for start in range(first, first + part, BLOCK):
        pixel = start + tl.arange(0, BLOCK)
        inside = pixel < pixels
        seen = corner_of(pixel, out_side, in_side, stride) + window_row * in_side
        here = input_ptr + channel[:, None] + seen[None, :] * INPUTS
        gradient = tl.load(gradient_ptr + pixel[:, None] * UNITS + unit[None, :], mask=inside[:, None], other=0.0)
        shown = centred(tl.load(here, mask=inside[None, :], other=0), gradient)
        left = tl.dot(shown, gradient, left, input_precision=PRECISION)
        here += INPUTS
        shown = centred(tl.load(here, mask=inside[None, :], other=0), gradient)
        middle = tl.dot(shown, gradient, middle, input_precision=PRECISION)
        here += INPUTS
        shown = centred(tl.load(here, mask=inside[None, :], other=0), gradient)
        right = tl.dot(shown, gradient, right, input_precision=PRECISION)
    tap = tl.program_id(0) * 9 + window_row * 3
    place = partial_ptr + (tap * INPUTS + channel[:, None]) * UNITS + unit[None, :]
    tl.store(place, left)
    tl.store(place + INPUTS * UNITS, middle)
    tl.store(place + 2 * INPUTS * UNITS, right)


@triton.jit
@no_type_check
def wide_kernel(
    input_ptr,
    weight_ptr,
    partial_ptr,
    rows,
    inputs,
    outputs,
    part,
    ROWS: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write what a part of the inputs of a linear layer adds to each of its few outputs."""
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    output = tl.arange(0, OUTPUTS)
    first = tl.program_id(1) * part
    total = tl.zeros((ROWS, OUTPUTS), dtype=tl.float32)
    for start in range(first, first + part, INPUTS):
        which = start + tl.arange(0, INPUTS)
        left = tl.load(
            input_ptr + row[:, None] * inputs + which[None, :],
            mask=(row[:, None] < rows) & (which[None, :] < inputs),
            other=0.0,
        )
        right = tl.load(
            weight_ptr + output[None, :] * inputs + which[:, None],
            mask=(output[None, :] < outputs) & (which[:, None] < inputs),
            other=0.0,
        )
        total = tl.dot(left.to(tl.float32), right, total, input_precision=PRECISION)
    place = (tl.program_id(1) * rows + row[:, None]) * outputs + output[None, :]
    tl.store(partial_ptr + place, total, mask=(row[:, None] < rows) & (output[None, :] < outputs))


@triton.jit
@no_type_check
def wide_weight_kernel(
    gradient_ptr,
    input_ptr,
    out_ptr,
    rows,
    inputs,
    outputs,
    ROWS: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write the gradient of the weights of some inputs of a linear layer with few outputs."""
    which = tl.program_id(0) * INPUTS + tl.arange(0, INPUTS)
    output = tl.arange(0, OUTPUTS)
    total = tl.zeros((OUTPUTS, INPUTS), dtype=tl.float32)
    for start in range(0, rows, ROWS):
        row = start + tl.arange(0, ROWS)
        left = tl.load(
            gradient_ptr + row[None, :] * outputs + output[:, None],
            mask=(row[None, :] < rows) & (output[:, None] < outputs),
            other=0.0,
        )
        right = tl.load(
            input_ptr + row[:, None] * inputs + which[None, :],
            mask=(row[:, None] < rows) & (which[None, :] < inputs),
            other=0.0,
        )
        total = tl.dot(left, right.to(tl.float32), total, input_precision=PRECISION)
    inside = (output[:, None] < outputs) & (which[None, :] < inputs)
    tl.store(out_ptr + output[:, None] * inputs + which[None, :], total, mask=inside)
