"""Small networks on top of features, for many learners at once."""

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from vcse.nets.stacked import Layout, Pieces, Stack, linear, normal_unit_columns


class TanhHead:
    """Linear, tanh, linear: actor and critics of A2C.

    Weights are normal numbers, scaled so that what leads to each unit has length 1; biases are 0.
    """

    def __init__(self, name: str, inputs: int, hidden: int, outputs: int) -> None:
        self.name = name
        self.layout = Layout(
            {
                f"{name}.hidden.weight": (inputs, hidden),
                f"{name}.hidden.bias": (hidden,),
                f"{name}.output.weight": (hidden, outputs),
                f"{name}.output.bias": (outputs,),
            }
        )

    def initial(self, generators: Sequence[torch.Generator]) -> Stack:
        """Draw the parameters of each learner from its own generator."""
        rows = []
        for generator in generators:
            row = []
            for shape in self.layout.shapes.values():
                if len(shape) == 1:
                    row.append(torch.zeros(shape))
                else:
                    row.append(normal_unit_columns((shape[0], shape[1]), generator).flatten())
            rows.append(torch.cat(row))
        return torch.stack(rows)

    def __call__(self, pieces: Pieces, features: Float[Tensor, "l n i"]) -> Float[Tensor, "l n o"]:
        """Apply the head."""
        hidden = linear(features, pieces[f"{self.name}.hidden.weight"], pieces[f"{self.name}.hidden.bias"]).tanh()
        return linear(hidden, pieces[f"{self.name}.output.weight"], pieces[f"{self.name}.output.bias"])
