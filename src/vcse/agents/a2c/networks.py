"""Networks of A2C, for many learners at once: heads on top of features, and the random encoder of the bonus."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from vcse.nets.cached_encoder import CachedEncoder
from vcse.nets.encoders import GridEncoder
from vcse.nets.observers import Encoder, Seen, VectorEncoder
from vcse.nets.stacked import Layout, Pieces, Stack, linear, normal_unit_columns

MOST_STATE_SIZE = 64  # numbers of a state that is its own feature


class TanhHead:
    """Linear, tanh, linear: actor and critics of A2C.

    Weights are normal numbers, scaled so that what leads to each unit has length 1; biases are 0.

    Args:
        name: Of the head, with which the names of its parameters begin.
        inputs: How many there are.
        hidden: Units of each hidden layer.
        outputs: How many there are.
        layers: Hidden layers: two where no trunk comes before.
    """

    def __init__(self, name: str, inputs: int, hidden: int, outputs: int, *, layers: int = 1) -> None:
        self.name = name
        self.layers = [f"{name}.hidden{'' if number == 1 else number}" for number in range(1, layers + 1)]
        widths = [inputs, *[hidden] * layers, outputs]
        shapes: dict[str, tuple[int, ...]] = {}
        for layer, before, after in zip([*self.layers, f"{name}.output"], widths[:-1], widths[1:], strict=True):
            shapes |= {f"{layer}.weight": (before, after), f"{layer}.bias": (after,)}
        self.layout = Layout(shapes)

    def initial(self, generators: Sequence[torch.Generator]) -> Stack:
        """Sample the parameters of each learner from its own generator."""

        def draw(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
            is_bias = len(shape) == 1
            return torch.zeros(shape) if is_bias else normal_unit_columns((shape[0], shape[1]), generator).flatten()

        shapes = self.layout.shapes.values()
        return torch.stack([torch.cat([draw(shape, each) for shape in shapes]) for each in generators])

    def __call__(self, pieces: Pieces, features: Float[Tensor, "l n i"]) -> Float[Tensor, "l n o"]:
        """Apply the head."""
        hidden = features
        for layer in self.layers:
            hidden = linear(hidden, pieces[f"{layer}.weight"], pieces[f"{layer}.bias"]).tanh()
        return linear(hidden, pieces[f"{self.name}.output.weight"], pieces[f"{self.name}.output.bias"])


class RandomEncoder:
    """Encoders that are never trained, one per learner; of grids, on a CPU, they remember what they have encoded.

    Features of all but grids are normalised in each observation and divided by the root of their number, so that states
    are as far apart as standardised values are.

    Args:
        encoder: What encodes.
        generators: Of the parameters, one per learner.
        device: Where they live.
    """

    def __init__(self, encoder: Encoder, generators: Sequence[torch.Generator], device: torch.device) -> None:
        self.encoder, self.features = encoder, encoder.features
        self.parameters = encoder.initial(generators).to(device)
        self.pieces = encoder.prepare(encoder.layout.pieces(self.parameters))
        self.cached: CachedEncoder | None = None
        if device.type == "cpu" and isinstance(encoder, GridEncoder):
            self.cached = CachedEncoder(encoder, self.pieces, len(self.parameters))

    def __call__(
        self, observations: Shaped[Tensor, "m n ..."], learners: Int[Tensor, " m"] | None = None
    ) -> Float[Tensor, "m n f"]:
        """Encode what all learners saw, or some of them."""
        if self.cached is not None:
            return self.cached(observations, learners)
        pieces = self.pieces if learners is None else {name: piece[learners] for name, piece in self.pieces.items()}
        features = self.encoder(pieces, observations)
        if isinstance(self.encoder, GridEncoder):
            return features
        return nn.functional.layer_norm(features, (self.features,)) / math.sqrt(self.features)

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


class StateFeatures:
    """Small states, which are their own features, divided by the root of their size. Nothing is random, nor saved.

    Args:
        size: Numbers of a state.
    """

    def __init__(self, size: int) -> None:
        self.features = size

    def __call__(
        self, observations: Float[Tensor, "m n d"], learners: Int[Tensor, " m"] | None = None
    ) -> Float[Tensor, "m n d"]:
        """Return the states, whosever they are."""
        del learners
        return observations / math.sqrt(self.features)

    def learner_state(self, row: int) -> dict[str, Any]:
        """Return nothing."""
        del row
        return {}

    def load_learner_state(self, row: int, state: dict[str, Any]) -> None:
        """Load nothing."""


def bonus_encoder(
    seen: Seen, trunk: Encoder, generators: Sequence[torch.Generator], device: torch.device
) -> RandomEncoder | StateFeatures:
    """Return what makes features for a bonus, a learner for each generator.

    Args:
        seen: What kind of observation it is.
        trunk: The encoder of the agent, whose architecture is taken for grids and images.
        generators: Of the parameters.
        device: Where they live.
    """
    if seen != "state":
        return RandomEncoder(trunk, generators, device)
    if trunk.features <= MOST_STATE_SIZE:
        return StateFeatures(trunk.features)
    return RandomEncoder(VectorEncoder(trunk.features), generators, device)
