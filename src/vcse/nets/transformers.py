"""Transformers of the patches of an image: pre-norm blocks, and fixed positions."""

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import gelu, scaled_dot_product_attention

from vcse.nets.initializers import linear

NORM_EPSILON = 1e-6
LONGEST_PERIOD = 10_000


class Transformer(nn.Module):
    """Pre-norm blocks of attention and perceptron, and a layer norm after the last.

    Args:
        dimensions: Numbers of a token.
        blocks: Number of blocks.
        generator: Source of the weights.
        heads: Heads of each attention.
        mlp_ratio: Hidden units of a perceptron over the dimensions.
    """

    def __init__(
        self, dimensions: int, blocks: int, generator: torch.Generator, *, heads: int = 4, mlp_ratio: int = 4
    ) -> None:
        super().__init__()
        if dimensions % heads:
            raise ValueError(f"dimensions must be a multiple of heads, got {dimensions} and {heads}")
        self.blocks = nn.ModuleList(_Block(dimensions, heads, mlp_ratio, generator) for _ in range(blocks))
        self.norm = nn.LayerNorm(dimensions, NORM_EPSILON)

    def forward(self, tokens: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        """Apply the blocks; what becomes of a token does not depend on the order."""
        for block in self.blocks:
            tokens = block(tokens)
        normalized: Tensor = self.norm(tokens)
        return normalized


class _Block(nn.Module):
    def __init__(self, dimensions: int, heads: int, mlp_ratio: int, generator: torch.Generator) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(dimensions, NORM_EPSILON)
        self.queries_keys_values = linear(dimensions, 3 * dimensions, generator)
        self.projection = linear(dimensions, dimensions, generator)
        self.perceptron_norm = nn.LayerNorm(dimensions, NORM_EPSILON)
        self.hidden = linear(dimensions, mlp_ratio * dimensions, generator)
        self.output = linear(mlp_ratio * dimensions, dimensions, generator)

    def forward(self, tokens: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        tokens = tokens + self._attention(self.attention_norm(tokens))
        perceptron: Tensor = self.output(gelu(self.hidden(self.perceptron_norm(tokens))))
        return tokens + perceptron

    def _attention(self, tokens: Float[Tensor, "n t d"]) -> Float[Tensor, "n t d"]:
        by_head = self.queries_keys_values(tokens).unflatten(-1, (3, self.heads, -1))
        queries, keys, values = by_head.permute(2, 0, 3, 1, 4)
        attended = scaled_dot_product_attention(queries, keys, values)
        projected: Tensor = self.projection(attended.transpose(1, 2).flatten(2))
        return projected


def grid_positions(side: int, dimensions: int) -> Float[Tensor, "t d"]:
    """Compute fixed positions of side x side patches of an image, row by row, and of one extra token.

    The first half of the numbers encodes x, the second y, each as sines and then cosines of frequencies that fall
    geometrically from 1 towards 1/10,000. The extra token is the last, at the cell (side, side), outside of the corner
    of the grid.

    Args:
        side: Patches of a row, and of a column.
        dimensions: Numbers of a position.
    """
    if dimensions % 4:
        raise ValueError(f"dimensions must be a multiple of 4, got {dimensions}")
    quarter = dimensions // 4
    frequencies = LONGEST_PERIOD ** (-torch.arange(quarter, dtype=torch.float64) / quarter)
    angles = torch.arange(side + 1, dtype=torch.float64)[:, None] * frequencies
    along = torch.cat((angles.sin(), angles.cos()), -1).float()
    x = along[:side].expand(side, side, -1)
    grid = torch.cat((x, x.transpose(0, 1)), -1).flatten(0, 1)
    return torch.cat((grid, along[side].repeat(1, 2)))
