"""The device code of `mlp`; imported only where Triton is installed, which comes with PyTorch for CUDA.

A hidden layer of 1024 units is large compared with the matrix products that lead to it, and every pass over it costs:
bias and ReLU are one pass; a first layer, whose inputs are few, is one pass with its product; on the way back, the
gradient is masked and summed for the bias in one pass. A critic has one output: its last hidden layer is rectified,
weighted and summed in one pass, and never written. Sums have a fixed order, so that results are deterministic.
"""

from typing import no_type_check

import triton
import triton.language as tl

BLOCK = 2048


@triton.jit
@no_type_check  # or the checks of shapes that the tests switch on would wrap what Triton compiles
def rectified(value):
    """Return max(value, 0); NaN stays NaN, which Triton's own maximum would hide."""
    return tl.where(value < 0, 0.0, value)


@triton.jit
@no_type_check
def rectify_kernel(hidden_ptr, bias_ptr, units, size, BLOCK: tl.constexpr):
    """Replace each number of a network by max(number + bias, 0), where it lies."""
    network = tl.program_id(1).to(tl.int64)
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    here = hidden_ptr + network * size + place
    value = tl.load(here, mask=inside) + tl.load(bias_ptr + network * units + place % units, mask=inside)
    tl.store(here, rectified(value), mask=inside)


@triton.jit
@no_type_check
def first_layer_kernel(
    input_ptr,
    weight_ptr,
    bias_ptr,
    out_ptr,
    rows,
    inputs,
    units,
    INPUTS: tl.constexpr,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Write max(inputs x weight + bias, 0) of one tile, all inputs at once."""
    network = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    which = tl.arange(0, INPUTS)
    left = tl.load(
        input_ptr + network * rows * inputs + row[:, None] * inputs + which[None, :],
        mask=(row[:, None] < rows) & (which[None, :] < inputs),
        other=0.0,
    )
    right = tl.load(
        weight_ptr + network * inputs * units + which[:, None] * units + unit[None, :],
        mask=(which[:, None] < inputs) & (unit[None, :] < units),
        other=0.0,
    )
    bias = tl.load(bias_ptr + network * units + unit, mask=unit < units, other=0.0)
    value = rectified(tl.dot(left, right, input_precision=PRECISION) + bias[None, :])
    inside = (row[:, None] < rows) & (unit[None, :] < units)
    tl.store(out_ptr + network * rows * units + row[:, None] * units + unit[None, :], value, mask=inside)


@triton.jit
@no_type_check
def mask_kernel(
    gradient_ptr,
    hidden_ptr,
    masked_ptr,
    sum_ptr,
    rows,
    units,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """Pass the gradient of one tile where the hidden unit was on, and sum it over the tile's rows."""
    network = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    inside = (row[:, None] < rows) & (unit[None, :] < units)
    place = network * rows * units + row[:, None] * units + unit[None, :]
    gradient = tl.load(gradient_ptr + place, mask=inside, other=0.0)
    hidden = tl.load(hidden_ptr + place, mask=inside, other=0.0)
    masked = tl.where(hidden > 0, gradient, 0.0)
    tl.store(masked_ptr + place, masked, mask=inside)
    tile = network * tl.num_programs(0) + tl.program_id(0)
    tl.store(sum_ptr + tile * units + unit, tl.sum(masked.to(tl.float32), 0), mask=unit < units)


@triton.jit
@no_type_check
def output_kernel(
    before_ptr,
    bias_ptr,
    weight_ptr,
    out_ptr,
    rows,
    units,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """Write, for some rows, the sum of weight x max(number + bias, 0) over all units."""
    network = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    total = tl.zeros((ROWS,), dtype=tl.float32)
    for start in range(0, units, UNITS):
        unit = start + tl.arange(0, UNITS)
        inside = (row[:, None] < rows) & (unit[None, :] < units)
        before = tl.load(
            before_ptr + network * rows * units + row[:, None] * units + unit[None, :], mask=inside, other=0.0
        )
        bias = tl.load(bias_ptr + network * units + unit, mask=unit < units, other=0.0)
        weight = tl.load(weight_ptr + network * units + unit, mask=unit < units, other=0.0)
        total += tl.sum(rectified(before + bias[None, :]) * weight[None, :], 1)
    tl.store(out_ptr + network * rows + row, total, mask=row < rows)


@triton.jit
@no_type_check
def output_gradient_kernel(
    gradient_ptr,
    before_ptr,
    bias_ptr,
    weight_ptr,
    out_ptr,
    bias_sum_ptr,
    weight_sum_ptr,
    rows,
    units,
    ROWS: tl.constexpr,
    UNITS: tl.constexpr,
):
    """Write the gradient of one tile before the ReLU, and its sums over the tile's rows for bias and weight."""
    network = tl.program_id(2).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    unit = tl.program_id(1) * UNITS + tl.arange(0, UNITS)
    inside = (row[:, None] < rows) & (unit[None, :] < units)
    place = network * rows * units + row[:, None] * units + unit[None, :]
    gradient = tl.load(gradient_ptr + network * rows + row, mask=row < rows, other=0.0)
    bias = tl.load(bias_ptr + network * units + unit, mask=unit < units, other=0.0)
    weight = tl.load(weight_ptr + network * units + unit, mask=unit < units, other=0.0)
    hidden = tl.load(before_ptr + place, mask=inside, other=0.0) + bias[None, :]
    masked = tl.where(hidden > 0, gradient[:, None] * weight[None, :], 0.0)
    tl.store(out_ptr + place, masked, mask=inside)
    tile = (network * tl.num_programs(0) + tl.program_id(0)) * units
    tl.store(bias_sum_ptr + tile + unit, tl.sum(masked, 0), mask=unit < units)
    weighted = rectified(hidden) * gradient[:, None]
    tl.store(weight_sum_ptr + tile + unit, tl.sum(weighted, 0), mask=unit < units)
