"""Observation spaces of Stable-Baselines3, preprocessed for networks that take vectors and images."""

from typing import Any

from gymnasium import spaces
from stable_baselines3.common.preprocessing import preprocess_obs
from torch import Tensor, nn

from vcse.integrations.base import apply
from vcse.integrations.networks import Observations
from vcse.integrations.spaces import is_image

SUPPORTED = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class Preprocessed(nn.Module):
    """A network whose observations come as a buffer stores them.

    Discrete observations are one-hot encoded; images and grids of cells stay as they are, and all else is flattened.

    Args:
        network: Takes preprocessed observations, and actions too if it is a Q-function.
        space: The observation space.
    """

    def __init__(self, network: nn.Module, space: spaces.Space[Any]) -> None:
        super().__init__()
        self.network, self.space = network, space

    def forward(self, observations: Observations, *actions: Tensor) -> Tensor:
        """Compute the output of the network."""
        output: Tensor = self.network(apply(_preprocess, self.space, observations), *actions)
        return output


def _preprocess(space: spaces.Space[Any], observations: Tensor) -> Tensor:
    if isinstance(space, spaces.Box):
        return observations if is_image(space) else observations.flatten(1)
    one_hot = preprocess_obs(observations, space)
    assert isinstance(one_hot, Tensor)
    return one_hot.flatten(1)
