"""Between the features of an image, token by token, and one vector: encoder and decoder of a world model."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from vcse.nets.initializers import learnable_token, linear
from vcse.nets.precision import at_least_float32
from vcse.nets.transformers import Transformer, grid_positions


class FeatureEncoder(nn.Module):
    """From the features of side x side patches and a class token, which is the last, to their mean after a transformer.

    Args:
        side: Patches of a row, and of a column.
        inputs: Features of a token.
        generator: Source of the weights.
        dimensions: Numbers of a token of the transformer.
        blocks: Number of blocks.
        heads: Heads of each attention.
    """

    positions: Tensor

    def __init__(
        self, side: int, inputs: int, generator: torch.Generator, *, dimensions: int, blocks: int, heads: int
    ) -> None:
        super().__init__()
        self.embedding = linear(inputs, dimensions, generator)
        self.transformer = Transformer(dimensions, blocks, generator, heads=heads)
        self.register_buffer("positions", grid_positions(side, dimensions), persistent=False)

    def forward(self, tokens: Float[Tensor, "n t i"]) -> Float[Tensor, "n d"]:
        """Encode the tokens of images."""
        encoded: Tensor = self.transformer(self.embedding(tokens) + self.positions)
        return encoded.mean(1)


class FeatureDecoder(nn.Module):
    """From one vector to the features of side x side patches and of a class token, which is the last.

    Args:
        side: Patches of a row, and of a column.
        inputs: Numbers of the vector.
        outputs: Features of a token.
        generator: Source of the weights.
        dimensions: Numbers of a token of the transformer.
        blocks: Number of blocks.
        heads: Heads of each attention.
    """

    positions: Tensor

    def __init__(
        self,
        side: int,
        inputs: int,
        outputs: int,
        generator: torch.Generator,
        *,
        dimensions: int,
        blocks: int,
        heads: int,
    ) -> None:
        super().__init__()
        self.embedding = linear(inputs, dimensions, generator)
        self.mask_token = learnable_token(dimensions, generator)
        self.transformer = Transformer(dimensions, blocks, generator, heads=heads)
        self.output = linear(dimensions, outputs, generator)
        self.register_buffer("positions", grid_positions(side, dimensions), persistent=False)

    def forward(self, features: Float[Tensor, "n i"]) -> Float[Tensor, "n t o"]:
        """Predict the tokens of images, in float32 under `torch.autocast` too."""
        embedded = self.embedding(features).unsqueeze(1)  # its position is zeros
        masks = (self.mask_token + self.positions).expand(len(features), -1, -1)
        decoded = self.transformer(torch.cat((embedded, masks), 1))
        return at_least_float32(self.output(decoded[:, 1:]))
