"""Perceptrons on the state of a world model, and the scale on which they predict rewards."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vcse.nets.initializers import linear
from vcse.nets.precision import at_least_float32


class Head(nn.Module):
    """Hidden layers with ELU, and a linear one.

    Args:
        inputs: Numbers that come in.
        outputs: Numbers that go out.
        generator: Source of the weights.
        units: Units of each hidden layer.
        layers: Number of hidden layers.
        output_scale: Scale of the variance of the last layer's weights; 1 is Glorot's.
    """

    def __init__(
        self,
        inputs: int,
        outputs: int,
        generator: torch.Generator,
        *,
        units: int = 512,
        layers: int = 4,
        output_scale: float = 1.0,
    ) -> None:
        super().__init__()
        hidden: list[nn.Module] = []
        for layer in range(layers):
            hidden += [linear(units if layer else inputs, units, generator), nn.ELU()]
        self.hidden = nn.Sequential(*hidden)
        self.output = linear(units, outputs, generator, scale=output_scale)

    def forward(self, features: Float[Tensor, "*b i"]) -> Float[Tensor, "*b o"]:
        """Apply the layers; the outputs are float32 under `torch.autocast` too."""
        return at_least_float32(self.output(self.hidden(features)))


def symlog(x: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """Compute sign(x) log(1 + |x|)."""
    return x.sign() * x.abs().log1p()


def symexp(x: Float[Tensor, "*b"]) -> Float[Tensor, "*b"]:
    """Compute the inverse of `symlog`: sign(x) (exp |x| − 1)."""
    return x.sign() * x.abs().expm1()
