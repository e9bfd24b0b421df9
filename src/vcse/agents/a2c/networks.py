"""Networks of A2C, for many learners at once: heads on top of features, and the random encoder of the bonus."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor, nn

from vcse.nets.cached_encoder import CachedEncoder
from vcse.nets.encoders import Encoder, GridEncoder
from vcse.nets.observers import ObservationKind, VectorEncoder, make_encoder
from vcse.nets.stacked import Learners, StackedLayer, flatten_parameters

LARGEST_STATE = 64  # numbers of a state that is its own feature


class TanhMLP(nn.Module):
    """Linear, tanh, linear: actor and critics of A2C, one for each learner.

    Weights are normal numbers, scaled so that those of each unit have length 1; biases are 0.

    Args:
        inputs: How many there are.
        hidden: Units of each hidden layer.
        outputs: How many there are.
        generators: Of the parameters, one per learner.
        layers: Hidden layers.
    """

    def __init__(
        self, inputs: int, hidden: int, outputs: int, generators: Sequence[torch.Generator], *, layers: int = 1
    ) -> None:
        super().__init__()
        sizes = [inputs] + [hidden] * layers
        self.hidden = nn.ModuleList(
            StackedLayer.normal_unit_columns(before, hidden, generators) for before in sizes[:-1]
        )
        self.output = StackedLayer.normal_unit_columns(hidden, outputs, generators)

    def forward(self, features: Float[Tensor, "m n i"], learners: Learners | None = None) -> Float[Tensor, "m n o"]:
        """Apply the networks of all learners, or of those that are given."""
        for layer in self.hidden:
            features = layer(features, learners).tanh()
        outputs: Tensor = self.output(features, learners)
        return outputs


class RandomEncoder:
    """Encoders that are never trained, one per learner; of grids, on a CPU, they cache what they have encoded.

    Features of all but grids are normalised in each observation and divided by the root of their number, so that states
    are as far apart as standardised values are.

    Args:
        encoder: What encodes.
        device: Where its parameters are to be.
    """

    def __init__(self, encoder: Encoder, device: torch.device) -> None:
        self.encoder, self.features = encoder.to(device).requires_grad_(False), encoder.features
        self.parameters = flatten_parameters(self.encoder)
        self.encoder.cache_matrices()
        self.cached: CachedEncoder | None = None
        if device.type == "cpu" and isinstance(encoder, GridEncoder):
            self.cached = CachedEncoder(encoder, len(self.parameters))

    @torch.no_grad()
    def __call__(
        self, observations: Shaped[Tensor, "m n ..."], learners: Int[Tensor, " m"] | None = None
    ) -> Float[Tensor, "m n f"]:
        """Encode the observations of all learners, or of those that are given."""
        if self.cached is not None:
            return self.cached(observations, learners)
        features: Tensor = self.encoder(observations, learners)
        if isinstance(self.encoder, GridEncoder):
            return features
        return nn.functional.layer_norm(features, (self.features,)) / math.sqrt(self.features)

    def learner_state(self, row: int) -> dict[str, Any]:
        """Return one learner's part."""
        state: dict[str, Any] = {"random_encoder": self.parameters[row].cpu().clone()}
        if self.cached is not None:
            state["remembered"] = self.cached.learner_state(row)
        return state

    def load_learner_state(self, row: int, state: dict[str, Any]) -> None:
        """Load one learner's part; checkpoints of a GPU have no cache."""
        self.parameters[row].copy_(state["random_encoder"])
        self.encoder.cache_matrices()
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


def make_bonus_encoder(
    kind: ObservationKind, shape: tuple[int, ...], generators: Sequence[torch.Generator], device: torch.device
) -> RandomEncoder | StateFeatures:
    """Make the encoder whose features a bonus sees; for grids and images it is built as the agent's own.

    Args:
        kind: Of the observations.
        shape: Of an observation.
        generators: Of the parameters, one per learner.
        device: Where they are to be.
    """
    if kind != "state":
        return RandomEncoder(make_encoder(kind, shape, generators), device)
    [size] = shape
    return StateFeatures(size) if size <= LARGEST_STATE else RandomEncoder(VectorEncoder(size, generators), device)
