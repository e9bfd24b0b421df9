"""A linear layer from very many inputs to few outputs: on CUDA, parts of the inputs are taken at the same time."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import linear

from vcse.nets.cuda.device_code import device_code, product_precision, product_size

MOST_OUTPUTS = 128
TILE_ROWS, TILE_INPUTS = 64, 64
WEIGHT_INPUTS = 64  # for whose weights one program computes the gradient
PARTS = 64


def wide_linear(
    inputs: Float[Tensor, "n i"], weight: Float[Tensor, "o i"], bias: Float[Tensor, " o"]
) -> Float[Tensor, "n o"]:
    """Apply a linear layer; what is multiplied is float32, whatever the inputs are."""
    if inputs.is_cuda and len(weight) <= MOST_OUTPUTS and device_code("images") is not None:
        outputs: Tensor = _WideLinear.apply(inputs, weight)  # type: ignore[no-untyped-call]
        return outputs + bias
    return linear(inputs.float(), weight, bias)


class _WideLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor) -> Tensor:
        inputs, weight = inputs.contiguous(), weight.contiguous()
        ctx.save_for_backward(inputs, weight)
        (rows, count), outputs = inputs.shape, len(weight)
        part = -(-count // (PARTS * TILE_INPUTS)) * TILE_INPUTS
        parts = -(-count // part)
        partial = weight.new_empty(parts, rows, outputs)
        device_code("images").wide_kernel[(-(-rows // TILE_ROWS), parts)](
            *(inputs, weight, partial, rows, count, outputs, part),
            ROWS=TILE_ROWS,
            INPUTS=TILE_INPUTS,
            OUTPUTS=product_size(outputs),
            PRECISION=product_precision(),
        )
        return partial.sum(0)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None]:
        inputs, weight = ctx.saved_tensors
        gradient = gradients[0].contiguous()
        of_inputs = (gradient @ weight).to(inputs.dtype) if ctx.needs_input_grad[0] else None
        return of_inputs, _weight_gradient(gradient, inputs) if ctx.needs_input_grad[1] else None


def _weight_gradient(gradient: Float[Tensor, "n o"], inputs: Float[Tensor, "n i"]) -> Float[Tensor, "o i"]:
    (rows, count), outputs = inputs.shape, gradient.shape[1]
    out = gradient.new_empty(outputs, count)
    device_code("images").wide_weight_kernel[(-(-count // WEIGHT_INPUTS),)](
        *(gradient, inputs, out, rows, count, outputs),
        ROWS=TILE_ROWS,
        INPUTS=WEIGHT_INPUTS,
        OUTPUTS=product_size(outputs),
        PRECISION=product_precision(),
    )
    return out
