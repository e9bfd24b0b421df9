"""Encoders of observations, for many learners at once.

Convolutions with small kernels on small images are products of patches with a matrix; with a learner axis they
are one batched product. Channels come last.
"""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Shaped, UInt8
from torch import Tensor, nn

from vcse.nets.stacked import Learners, StackedLayer, product

CHANNELS = (16, 32, 64)
KERNEL = 2
WIDEST_BAND = 9  # cells of a row that are multiplied as one
CPU_TILE = 1 << 19  # numbers of the largest layer that exist at once


class Encoder(nn.Module):
    """An encoder of one kind of observation, with parameters for each learner.

    Attributes:
        features: How many there are of each observation.
    """

    features: int

    def cache_matrices(self) -> None:
        """Prepare for calls without gradients, until parameters change; then it must be called again."""

    def forward(
        self, observations: Shaped[Tensor, "m n ..."], learners: Learners | None = None
    ) -> Float[Tensor, "m n f"]:
        """Encode the observations of all learners, or of those that are given."""
        raise NotImplementedError


class GridEncoder(Encoder):
    """The trunk of A2C on MiniGrid.

    Convolution 2x2 to 16 channels, max-pooling 2x2, convolutions 2x2 to 32 and 64, each with ReLU: a view of 7x7
    cells becomes 64 features; larger maps leave several places, whose features are put side by side.
    """

    def __init__(self, height: int, width: int, channels: int, generators: Sequence[torch.Generator]) -> None:
        super().__init__()
        self.width = width
        self.places = tuple((side - 1) // 2 - 2 for side in (height, width))
        if min(self.places) < 1:
            raise ValueError(f"the encoder needs an image of at least 7x7 cells, got {height}x{width}")
        self.features = self.places[0] * self.places[1] * CHANNELS[-1]
        self.convolutions = nn.ModuleList(
            StackedLayer.uniform((KERNEL * KERNEL * before, after), after, KERNEL * KERNEL * before, generators)
            for before, after in zip((channels, *CHANNELS), CHANNELS, strict=False)
        )
        self._cached: list[Float[Tensor, "l _ _"]] | None = None

    @torch.no_grad()
    def cache_matrices(self) -> None:
        """Keep the band matrices of the convolutions for calls without gradients, until the parameters change."""
        matrices = self._band_matrices()
        self._cached = self._cached or matrices
        for mine, each in zip(self._cached, matrices, strict=True):  # in place: a CUDA graph may read them
            mine.copy_(each)

    def _band_matrices(self) -> list[Float[Tensor, "l _ _"]]:
        pooled = (self.width - 1) // 2
        widths = (self.width, pooled, pooled - 1)
        weights = [layer.get_parameter("weight") for layer in self.convolutions]
        return [_band(weight, width) for weight, width in zip(weights, widths, strict=True)]

    def forward(
        self, observations: UInt8[Tensor, "m n h w c"], learners: Learners | None = None
    ) -> Float[Tensor, "m n f"]:
        """Encode raw cells, not scaled."""
        bands = self._band_matrices() if torch.is_grad_enabled() or self._cached is None else self._cached
        biases: list[Tensor] = [layer.get_parameter("bias") for layer in self.convolutions]
        if learners is not None:
            bands, biases = [each[learners] for each in bands], [each[learners] for each in biases]
        count, n, height, width, _ = observations.shape
        some = max(1, CPU_TILE // (n * height * width * CHANNELS[0]))
        if observations.is_cuda or bands[0].requires_grad or some >= count:
            return self._encode(observations, bands, biases)
        # On a CPU most of the time is spent on memory: a few learners at a time stay in the cache.
        encoded = []
        for start in range(0, count, some):
            these = slice(start, start + some)
            encoded.append(
                self._encode(observations[these], [each[these] for each in bands], [each[these] for each in biases])
            )
        return torch.cat(encoded)

    @staticmethod
    def _encode(
        observations: UInt8[Tensor, "m n h w c"],
        bands: Sequence[Float[Tensor, "m _ _"]],
        biases: Sequence[Float[Tensor, "m _"]],
    ) -> Float[Tensor, "m n f"]:
        # Adding a bias and ReLU come after the maximum, which they cannot change, on a quarter of the numbers.
        hidden = _biased_relu(_pool(_convolve(observations.float(), bands[0])), biases[0])
        for band, bias in zip(bands[1:], biases[1:], strict=True):
            hidden = _biased_relu(_convolve(hidden, band), bias)
        return hidden.flatten(2)


def _biased_relu(hidden: Float[Tensor, "l n h w c"], bias: Float[Tensor, "l c"]) -> Float[Tensor, "l n h w c"]:
    return (hidden + bias[:, None, None, None]).relu_()


def _convolve(image: Float[Tensor, "l n h w c"], band: Float[Tensor, "l i o"]) -> Float[Tensor, "l n h2 w2 c2"]:
    """Convolve 2x2, as products of pairs of rows with a band matrix.

    Cutting small images into patches of 2x2 cells takes longer than multiplying them. Two rows that follow each
    other are copied in long runs; the band matrix makes a whole row of outputs of them. It is mostly zeros in wide
    images, which are cut into patches after all.
    """
    learners, n, h, w, channels = image.shape
    if w > WIDEST_BAND:
        corners = [image[:, :, y : h - 1 + y, x : w - 1 + x] for y in range(KERNEL) for x in range(KERNEL)]
        patches = torch.cat(corners, -1).view(learners, n * (h - 1) * (w - 1), KERNEL**2 * channels)
        return product(patches, band).view(learners, n, h - 1, w - 1, -1)
    rows = image.flatten(3)
    pairs = torch.cat((rows[:, :, :-1], rows[:, :, 1:]), -1) if h > KERNEL else rows.flatten(2)
    return product(pairs.view(learners, n * (h - 1), -1), band).view(learners, n, h - 1, w - 1, -1)


def _band(weight: Float[Tensor, "l i o"], width: int) -> Float[Tensor, "l wide_i wide_o"]:
    """Spread the weights of a 2x2 convolution so that two whole rows of cells go in and one of outputs comes out."""
    if width == KERNEL or width > WIDEST_BAND:
        return weight
    learners, inputs, outputs = weight.shape
    columns = torch.arange(width, device=weight.device)
    offset = columns[:, None] - columns[None, :-1]  # of an input column from an output column
    shifts = torch.stack([(offset == side).to(weight.dtype) for side in range(KERNEL)])
    kernel = weight.view(learners, KERNEL, KERNEL, inputs // KERNEL**2, outputs)
    return torch.einsum("lykco,kxp->lyxcpo", kernel, shifts).reshape(learners, -1, (width - 1) * outputs)


def _pool(image: Float[Tensor, "l n h w c"]) -> Float[Tensor, "l n h2 w2 c"]:
    """Maximum over 2x2 cells; a last odd row or column is left out."""
    if not image.requires_grad:  # half the time of `max_pool2d`, but its gradient is slow
        height, width = (side // 2 * 2 for side in image.shape[2:4])
        rows = torch.maximum(image[:, :, 0:height:2, :width], image[:, :, 1:height:2, :width])
        return torch.maximum(rows[:, :, :, 0::2], rows[:, :, :, 1::2])
    channels_first = image.flatten(0, 1).permute(0, 3, 1, 2)
    pooled = nn.functional.max_pool2d(channels_first, 2)
    return pooled.permute(0, 2, 3, 1).view(*image.shape[:2], *pooled.shape[2:], -1)
