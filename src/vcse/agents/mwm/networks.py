"""Networks of Masked World Models, put together: the world model, and the policy that acts on its latent states."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor, nn

from vcse.agents.mwm.settings import PADDED_ACTIONS, MWMSettings
from vcse.nets.feature_transformers import FeatureDecoder, FeatureEncoder
from vcse.nets.heads import Head
from vcse.nets.initializers import linear
from vcse.nets.masked_autoencoder import MaskedAutoencoder, patches_of_a_side
from vcse.nets.rssm import RSSM, State
from vcse.nets.truncated_normal import mean_and_std, truncated_normal_sample

OUTPUT_SCALE = 0.1  # of the last layers of rewards, values and mean actions, which begin near 0


def make_autocast(config: MWMSettings, device: torch.device) -> Callable[[], AbstractContextManager[Any]]:
    """Return what makes contexts in which products are of the settings' precision.

    One is entered anew after parameters have changed, and apart from what takes no gradient: PyTorch keeps the
    parameters that it has rounded until the context is left.
    """
    return partial(torch.autocast, device.type, torch.bfloat16, enabled=config.precision == "bfloat16")


class ScalarHead(Head):
    """One number of a latent state, near 0 at first: a value, or the symlog of a reward."""

    def __init__(self, config: MWMSettings, generator: torch.Generator) -> None:
        super().__init__(config.feature_size, 1, generator, units=config.hidden_units, output_scale=OUTPUT_SCALE)

    def forward(self, features: Float[Tensor, "*b f"]) -> Float[Tensor, "*b"]:
        """Return the number, in float32."""
        return super().forward(features)[..., 0]


class Actor(Head):
    """The outputs that `mean_and_std` turns into a policy, of a latent state."""

    def __init__(self, config: MWMSettings, action_size: int, generator: torch.Generator) -> None:
        super().__init__(config.feature_size, 2 * action_size, generator, units=config.hidden_units)
        # Side by side, the weights of two layers: only the means begin near 0.
        layers = [linear(config.hidden_units, action_size, generator, scale=scale) for scale in (OUTPUT_SCALE, 1.0)]
        with torch.no_grad():
            self.output.weight.copy_(torch.cat([each.weight for each in layers]))


class WorldModel(nn.Module):
    """Latent dynamics of the autoencoder's tokens, and the reward of a latent state.

    Args:
        config: The learner's settings.
        action_size: Numbers of an action.
        generator: Of the weights.
    """

    def __init__(self, config: MWMSettings, action_size: int, generator: torch.Generator) -> None:
        super().__init__()
        side, tokens = patches_of_a_side(config.image_size), config.token_dimensions
        sizes = {"dimensions": config.model_dimensions, "blocks": config.model_blocks, "heads": config.heads}
        self.encoder = FeatureEncoder(side, tokens, generator, **sizes)
        self.rssm = RSSM(
            action_size,
            config.model_dimensions,
            generator,
            deterministic=config.deterministic,
            hidden=config.deterministic,
            variables=config.variables,
            classes=config.classes,
            action_inputs=PADDED_ACTIONS,
        )
        self.decoder = FeatureDecoder(side, config.feature_size, tokens, generator, **sizes)
        self.reward = ScalarHead(config, generator)  # predicts the symlog


class PolicyState(NamedTuple):
    """The recurrent state of a policy; rows of zeros begin an episode."""

    deterministic: Float[Tensor, "n d"]
    stochastic: Float[Tensor, "n v c"]
    actions: Float[Tensor, "n a"]  # the last ones


class Policy(nn.Module):
    """All that acts: the autoencoder and the world model, by which a state is known, and the actor.

    Args:
        config: The learner's settings.
        action_size: Numbers of an action.
        generator: Of the weights.
        device: Where it lives.
    """

    def __init__(self, config: MWMSettings, action_size: int, generator: torch.Generator, device: torch.device) -> None:
        super().__init__()
        self.config, self.action_size, self.device = config, action_size, device
        self.autoencoder = MaskedAutoencoder(
            config.image_size,
            generator,
            dimensions=config.token_dimensions,
            encoder_blocks=config.encoder_blocks,
            decoder_blocks=config.decoder_blocks,
            heads=config.heads,
            mask_ratio=config.mask_ratio,
            reads_reward=config.reward_token,
        )
        self.model = WorldModel(config, action_size, generator)
        self.actor = Actor(config, action_size, generator)
        self.autocast = make_autocast(config, device)
        self.to(device)

    def initial_state(self, count: int) -> PolicyState:
        """Return the state at the beginning of the episodes of so many environments."""
        config = self.config
        shapes = (config.deterministic,), (config.variables, config.classes), (self.action_size,)
        return PolicyState(*(torch.zeros(count, *shape, device=self.device) for shape in shapes))

    @torch.no_grad()
    def forward(
        self,
        state: PolicyState,
        images: UInt8[Tensor, "n 3 h w"],
        latent_uniforms: Float[Tensor, "n v"],
        action_uniforms: Float[Tensor, "n a"] | None = None,
    ) -> tuple[Float[Tensor, "n a"], PolicyState]:
        """Choose actions, and return the next state.

        Args:
            state: That the previous step returned.
            images: One of each environment.
            latent_uniforms: Random numbers in [0, 1), by which the latent states are sampled.
            action_uniforms: Likewise for the actions; None for the mean of the policy.
        """
        previous = State(state.deterministic, state.stochastic, torch.zeros_like(state.stochastic))
        # Where an episode begins, a state of zeros has the same effect.
        is_first = torch.zeros(len(images), dtype=torch.bool, device=self.device)
        with self.autocast():
            embeddings = self.model.encoder(self.autoencoder.features(images))
            latent, _ = self.model.rssm.observe(previous, state.actions, embeddings, is_first, latent_uniforms)
            outputs = self.actor(latent.features)
        mean, std = mean_and_std(outputs)
        actions = mean if action_uniforms is None else truncated_normal_sample(mean, std, action_uniforms)
        return actions, PolicyState(latent.deterministic.float(), latent.stochastic.float(), actions)
