"""A masked autoencoder of images, whose features a world model reads (Seo et al., CoRL 2022)."""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor, nn

from vcse.nets.heads import symlog
from vcse.nets.initializers import convolution, learnable_token, linear
from vcse.nets.precision import at_least_float32
from vcse.nets.transformers import Transformer, grid_positions

PATCH = 8  # pixels of a patch's side: three convolutions halve an image
PIXELS = 3 * PATCH**2
IMAGENET_MEANS = (0.485, 0.456, 0.406)
IMAGENET_STDS = (0.229, 0.224, 0.225)


class Reconstruction(NamedTuple):
    """What the decoder predicts."""

    patches: Float[Tensor, "n patches pixels"]  # standardised, as `MaskedAutoencoder.targets` has them
    rewards: Float[Tensor, " n"]  # symlog of the rewards


class MaskedAutoencoder(nn.Module):
    """Convolutions that make a token of each patch, a transformer of the tokens that are kept, and a decoder.

    Tokens of the convolutions are masked, not pixels: a token sees 7 pixels of the patches around its own.

    Args:
        image_size: Height and width of an image.
        generator: Source of the weights.
        dimensions: Numbers of a token.
        encoder_blocks: Blocks of the encoder.
        decoder_blocks: Blocks of the decoder.
        heads: Heads of each attention.
        mask_ratio: Part of the patches that the encoder does not see in training.
        convolutions: Channels of each convolution.
        reads_reward: Where the reward is predicted from: "token" is the decoded reward token, "pixels" the predicted
            pixels of the last patch, as in the released code of the authors.
    """

    positions: Tensor
    means: Tensor
    stds: Tensor

    def __init__(
        self,
        image_size: int,
        generator: torch.Generator,
        *,
        dimensions: int = 256,
        encoder_blocks: int = 4,
        decoder_blocks: int = 3,
        heads: int = 4,
        mask_ratio: float = 0.75,
        convolutions: tuple[int, int, int] = (32, 64, 128),
        reads_reward: Literal["token", "pixels"] = "token",
    ) -> None:
        super().__init__()
        self.side = patches_of_a_side(image_size)
        self.patches = self.side**2
        self.kept = kept_patches(self.patches, mask_ratio)
        self.tokens = self.patches + 1
        self.reads_reward = reads_reward

        channels = (3, *convolutions)
        self.convolutions = nn.ModuleList(
            convolution(before, after, 4, 2, generator) for before, after in zip(channels, convolutions, strict=False)
        )
        self.embedding = convolution(convolutions[-1], dimensions, 1, 1, generator)
        self.class_token = learnable_token(dimensions, generator)
        self.encoder = Transformer(dimensions, encoder_blocks, generator, heads=heads)
        self.decoder_embedding = linear(dimensions, dimensions, generator)
        self.mask_token = learnable_token(dimensions, generator)
        self.decoder = Transformer(dimensions, decoder_blocks, generator, heads=heads)
        self.pixel_output = linear(dimensions, PIXELS, generator)
        self.reward_output = linear(dimensions if reads_reward == "token" else PIXELS, 1, generator)

        self.register_buffer("positions", grid_positions(self.side, dimensions), persistent=False)
        self.register_buffer("means", torch.tensor(IMAGENET_MEANS), persistent=False)
        self.register_buffer("stds", torch.tensor(IMAGENET_STDS), persistent=False)

    def features(self, images: UInt8[Tensor, "n 3 h w"]) -> Float[Tensor, "n tokens d"]:
        """Encode images of which nothing is masked: a token of each patch, row by row, and the class token."""
        return self._encoded(self._embedded(self._standardized(images)))

    def forward(self, images: UInt8[Tensor, "n 3 h w"], uniforms: Float[Tensor, "n patches"]) -> Reconstruction:
        """Predict images and rewards from a few patches.

        Args:
            images: What is encoded.
            uniforms: Random numbers; the patches with the smallest are kept.
        """
        order = uniforms.argsort(dim=1, stable=True)
        tokens = _chosen(self._embedded(self._standardized(images)), order[:, : self.kept])
        decoded = self._decoded(self._encoded(tokens), order.argsort(1))
        patches = at_least_float32(self.pixel_output(decoded[:, : self.patches]))
        read = decoded[:, -1] if self.reads_reward == "token" else patches[:, -1]
        return Reconstruction(patches, at_least_float32(self.reward_output(read).squeeze(-1)))

    def loss(
        self,
        images: UInt8[Tensor, "n 3 h w"],
        rewards: Float[Tensor, " n"],
        uniforms: Float[Tensor, "n patches"],
    ) -> tuple[Float[Tensor, ""], Float[Tensor, ""]]:
        """Return the mean squared errors of the pixels, in masked patches and in others, and of the rewards' symlog.

        Args:
            images: What is encoded.
            rewards: The reward that came with each image.
            uniforms: Random numbers; the patches with the smallest are kept.
        """
        predicted = self(images, uniforms)
        pixel_loss = (predicted.patches - self.targets(images)).square().mean()
        reward_loss = (predicted.rewards - symlog(rewards)).square().mean()
        return pixel_loss, reward_loss

    def targets(self, images: UInt8[Tensor, "n 3 h w"]) -> Float[Tensor, "n patches pixels"]:
        """Return the standardised pixels of each patch, row by row; the channels of a pixel are side by side."""
        by_patch = self._standardized(images).reshape(-1, 3, self.side, PATCH, self.side, PATCH)
        return by_patch.permute(0, 2, 4, 3, 5, 1).reshape(-1, self.patches, PIXELS)

    def images_of(self, features: Float[Tensor, "n tokens d"]) -> UInt8[Tensor, "n 3 h w"]:
        """Return the images that features, perhaps predicted ones, decode to: for people, not to learn from."""
        places = torch.arange(self.patches, device=features.device).expand(len(features), -1)
        decoded = self._decoded(features, places)
        return self.image_of(self.pixel_output(decoded[:, : self.patches]))

    def image_of(self, patches: Float[Tensor, "n patches pixels"]) -> UInt8[Tensor, "n 3 h w"]:
        """Return the image that standardised patches make; what lies outside of its range is clipped."""
        by_patch = at_least_float32(patches).reshape(-1, self.side, self.side, PATCH, PATCH, 3)
        pixels = (255 * (by_patch * self.stds + self.means)).round().clamp(0, 255).to(torch.uint8)
        return pixels.permute(0, 5, 1, 3, 2, 4).reshape(-1, 3, self.side * PATCH, self.side * PATCH)

    def _standardized(self, images: UInt8[Tensor, "n 3 h w"]) -> Float[Tensor, "n 3 h w"]:
        return (images / 255 - self.means[:, None, None]) / self.stds[:, None, None]

    def _embedded(self, standardized: Float[Tensor, "n 3 h w"]) -> Float[Tensor, "n patches d"]:
        """Return the tokens of all patches with their positions."""
        hidden = standardized
        for layer in self.convolutions:
            hidden = layer(hidden).relu()
        embedded: Tensor = self.embedding(hidden)
        return embedded.flatten(2).transpose(1, 2) + self.positions[:-1]

    def _encoded(self, tokens: Float[Tensor, "n t d"]) -> Float[Tensor, "n t_and_class d"]:
        class_token = self.class_token.expand(len(tokens), 1, -1)  # its position is zeros
        encoded: Tensor = self.encoder(torch.cat((tokens, class_token), 1))
        return encoded

    def _decoded(
        self, encoded: Float[Tensor, "n kept_and_class d"], places: Int[Tensor, "n patches"]
    ) -> Float[Tensor, "n patches_class_reward d"]:
        """Decode a token of each patch, the class token and the reward token."""
        embedded = self.decoder_embedding(encoded)
        kept, class_token = embedded[:, :-1], embedded[:, -1:]
        count = len(encoded)
        masks = self.mask_token.expand(count, self.patches - kept.shape[1], -1)
        patches = _chosen(torch.cat((kept, masks), 1), places) + self.positions[:-1]
        reward_token = (self.mask_token + self.positions[-1]).expand(count, 1, -1)
        decoded: Tensor = self.decoder(torch.cat((patches, class_token, reward_token), 1))
        return decoded


def patches_of_a_side(image_size: int) -> int:
    """Return how many patches lie side by side in an image of so many pixels, which must leave none over."""
    if image_size < PATCH or image_size % PATCH:
        raise ValueError(f"image_size must be a multiple of the {PATCH} pixels of a patch, got {image_size}")
    return image_size // PATCH


def kept_patches(patches: int, mask_ratio: float) -> int:
    """Return how many patches a masked image keeps, which must be one at least."""
    kept = round(patches * (1 - mask_ratio))
    if not 1 <= kept <= patches:
        raise ValueError(f"mask_ratio must leave 1 to {patches} of {patches} patches, got {mask_ratio}")
    return kept


def _chosen(tokens: Float[Tensor, "n t d"], places: Int[Tensor, "n m"]) -> Float[Tensor, "n m d"]:
    return tokens.gather(1, places.unsqueeze(-1).expand(-1, -1, tokens.shape[-1]))
