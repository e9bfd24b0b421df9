"""Networks of A2C, for many learners at once: heads on top of features, and the random encoder of the bonus."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vcse.nets.cached_encoder import CachedEncoder
from vcse.nets.encoders import GridEncoder
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

        def draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
            is_bias = len(shape) == 1
            return torch.zeros(shape) if is_bias else normal_unit_columns((shape[0], shape[1]), generator).flatten()

        shapes = self.layout.shapes.values()
        return torch.stack([torch.cat([draw(shape, each) for shape in shapes]) for each in generators])

    def __call__(self, pieces: Pieces, features: Float[Tensor, "l n i"]) -> Float[Tensor, "l n o"]:
        """Apply the head."""
        hidden = linear(features, pieces[f"{self.name}.hidden.weight"], pieces[f"{self.name}.hidden.bias"]).tanh()
        return linear(hidden, pieces[f"{self.name}.output.weight"], pieces[f"{self.name}.output.bias"])


class RandomEncoder:
    """Encoders that are never trained, one per learner; on a CPU they remember what they have encoded.

    Args:
        encoder: What encodes.
        generators: Of the parameters, one per learner.
        device: Where they live.
    """

    def __init__(self, encoder: GridEncoder, generators: Sequence[torch.Generator], device: torch.device) -> None:
        self.encoder = encoder
        self.parameters = encoder.initial(generators).to(device)
        self.pieces = encoder.prepare(encoder.layout.pieces(self.parameters))
        self.cached: CachedEncoder | None = None
        if device.type == "cpu":
            self.cached = CachedEncoder(encoder, self.pieces, len(self.parameters))

    def __call__(self, observations: UInt8[Tensor, "l n h w c"]) -> Float[Tensor, "l n f"]:
        """Encode."""
        return self.encoder(self.pieces, observations) if self.cached is None else self.cached(observations)

    def learner_state(self, row: int) -> dict[str, Any]:
        """Return one learner's part."""
        state: dict[str, Any] = {"random_encoder": self.parameters[row].detach().cpu().clone()}
        if self.cached is not None:
            state["remembered"] = self.cached.learner_state(row)
        return state

    def load_learner_state(self, row: int, state: dict[str, Any]) -> None:
        """Load one learner's part; what was remembered is not there in checkpoints of a GPU."""
        self.parameters[row].copy_(state["random_encoder"])
        pieces = self.encoder.prepare(self.encoder.layout.pieces(self.parameters[row : row + 1]))
        for name, piece in pieces.items():
            self.pieces[name][row] = piece[0]
        if self.cached is not None:
            nothing = {"observations": torch.empty(0), "features": torch.empty(0, self.encoder.features)}
            self.cached.load_learner_state(row, state.get("remembered") or nothing)
