"""MLPs with two hidden layers, many in one stack: actors and critics of many learners."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vcse.nets.cuda.device_code import device_code, masked_gradient, product_precision, product_size

FEW_INPUTS = 128  # that one program of a GPU holds at once
TILE_ROWS, TILE_UNITS = 64, 128
OUTPUT_ROWS, OUTPUT_UNITS = 16, 256


class StackedMLP(nn.Module):
    """MLPs with two hidden layers and ReLU, one for each generator; every parameter has a leading network axis.

    The networks share nothing, and what each computes does not depend on how many there are. Weights begin orthogonal,
    biases at 0.

    Args:
        inputs: Of a network.
        hidden: Units of each hidden layer.
        outputs: Of a network.
        generators: From which the weights of each network are sampled.
        normalized: Divide the last hidden layer by its Euclidean norm.
    """

    def __init__(
        self,
        inputs: int,
        hidden: int,
        outputs: int,
        generators: Sequence[torch.Generator],
        *,
        normalized: bool = False,
    ) -> None:
        super().__init__()
        self.normalized = normalized
        sizes = _layer_sizes(inputs, hidden, outputs)
        weights = [[_orthogonal(size, generator) for size in sizes] for generator in generators]
        self.layers = nn.ParameterList()  # weight and bias of each layer in turn
        for weight in zip(*weights, strict=True):
            self.layers.extend([torch.stack(weight), torch.zeros(len(generators), weight[0].shape[-1])])

    @staticmethod
    def parameter_count(inputs: int, hidden: int, outputs: int) -> int:
        """Return the number of weights and biases of one network."""
        return sum((before + 1) * after for before, after in _layer_sizes(inputs, hidden, outputs))

    def forward(
        self, inputs: Float[Tensor, "b n i"], *, networks: slice | None = None, detach_parameters: bool = False
    ) -> Float[Tensor, "b n o"]:
        """Apply each network to its own inputs.

        Args:
            inputs: Of each network.
            networks: Those that are applied; all if not given.
            detach_parameters: Send gradients to the inputs alone.
        """
        layers = [each.detach() if detach_parameters else each for each in self.layers]
        layers = layers if networks is None else [each[networks] for each in layers]
        hidden = _rectified(inputs, layers[0], layers[1])
        has_kernel = layers[4].shape[-1] == 1 and not self.normalized  # that needs the last hidden layer itself
        if hidden.is_cuda and has_kernel and device_code("mlp") is not None:
            before = torch.bmm(hidden, layers[2])
            return _RectifiedOutput.apply(before, layers[3], layers[4]) + layers[5].unsqueeze(1)  # type: ignore[no-any-return, no-untyped-call]
        hidden = _rectified(hidden, layers[2], layers[3])
        if self.normalized:
            hidden = nn.functional.normalize(hidden, dim=-1)
        return _linear(hidden, layers[4], layers[5])


def _layer_sizes(inputs: int, hidden: int, outputs: int) -> tuple[tuple[int, int], ...]:
    return (inputs, hidden), (hidden, hidden), (hidden, outputs)


def _orthogonal(size: tuple[int, int], generator: torch.Generator) -> Float[Tensor, "i o"]:
    inputs, outputs = size
    return nn.init.orthogonal_(torch.empty(outputs, inputs), generator=generator).T.contiguous()


def _linear(
    inputs: Float[Tensor, "b n i"], weight: Float[Tensor, "b i o"], bias: Float[Tensor, "b o"]
) -> Float[Tensor, "b n o"]:
    if inputs.is_cuda:
        return torch.baddbmm(bias.unsqueeze(1), inputs, weight)
    # One product after the other: a batched one sums in another order where the batch has another size.
    return torch.stack([torch.addmm(*each) for each in zip(bias, inputs, weight, strict=True)])


def _rectified(
    inputs: Float[Tensor, "b n i"], weight: Float[Tensor, "b i o"], bias: Float[Tensor, "b o"]
) -> Float[Tensor, "b n o"]:
    if inputs.is_cuda and device_code("mlp") is not None:
        rectified: Tensor = _RectifiedLayer.apply(inputs, weight, bias)  # type: ignore[no-untyped-call]
        return rectified
    return _linear(inputs, weight, bias).relu()


class _RectifiedLayer(torch.autograd.Function):
    """A hidden layer on CUDA in as few passes over its memory as can be."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        hidden = (
            _few_inputs(inputs, weight, bias) if inputs.shape[-1] <= FEW_INPUTS else _many_inputs(inputs, weight, bias)
        )
        ctx.save_for_backward(inputs, weight, hidden)
        return hidden

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        inputs, weight, hidden = ctx.saved_tensors
        gradient, bias_gradient = masked_gradient(gradients[0], hidden)
        wanted_inputs, wanted_weight, wanted_bias = ctx.needs_input_grad
        return (
            torch.bmm(gradient, weight.transpose(1, 2)) if wanted_inputs else None,
            torch.bmm(inputs.transpose(1, 2), gradient) if wanted_weight else None,
            bias_gradient if wanted_bias else None,
        )


def _many_inputs(inputs: Tensor, weight: Tensor, bias: Tensor) -> Float[Tensor, "b n o"]:
    code, hidden = device_code("mlp"), torch.bmm(inputs, weight)
    networks, rows, units = hidden.shape
    programs = (-(-rows * units // code.BLOCK), networks)
    code.rectify_kernel[programs](hidden, bias.contiguous(), units, rows * units, BLOCK=code.BLOCK)
    return hidden


def _few_inputs(inputs: Tensor, weight: Tensor, bias: Tensor) -> Float[Tensor, "b n o"]:
    networks, rows, count = inputs.shape
    units = weight.shape[-1]
    hidden = inputs.new_empty(networks, rows, units)
    programs = (-(-rows // TILE_ROWS), -(-units // TILE_UNITS), networks)
    device_code("mlp").first_layer_kernel[programs](
        *(inputs.contiguous(), weight.contiguous(), bias.contiguous(), hidden),
        *(rows, count, units),
        INPUTS=product_size(count),
        ROWS=TILE_ROWS,
        UNITS=TILE_UNITS,
        PRECISION=product_precision(),
    )
    return hidden


class _RectifiedOutput(torch.autograd.Function):
    """Bias and ReLU of the last hidden layer and the one output after it, on CUDA in one pass each way."""

    @staticmethod
    def forward(ctx: Any, before: Tensor, bias: Tensor, weight: Tensor) -> Tensor:
        networks, rows, units = before.shape
        bias, weight = bias.contiguous(), weight.contiguous()
        ctx.save_for_backward(before, bias, weight)
        out = before.new_empty(networks, rows, 1)
        programs = (-(-rows // OUTPUT_ROWS), networks)
        device_code("mlp").output_kernel[programs](
            *(before, bias, weight, out), rows, units, ROWS=OUTPUT_ROWS, UNITS=OUTPUT_UNITS
        )
        return out

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        before, bias, weight = ctx.saved_tensors
        networks, rows, units = before.shape
        tiles = -(-rows // TILE_ROWS)
        out, sums = torch.empty_like(before), before.new_empty(2, networks, tiles, units)
        programs = (tiles, -(-units // TILE_UNITS), networks)
        device_code("mlp").output_gradient_kernel[programs](
            *(gradients[0].contiguous(), before, bias, weight, out, sums[0], sums[1]),
            *(rows, units),
            ROWS=TILE_ROWS,
            UNITS=TILE_UNITS,
        )
        bias_gradient, weight_gradient = sums.sum(2)
        return out, bias_gradient, weight_gradient.unsqueeze(-1)
