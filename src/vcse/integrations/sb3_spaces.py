"""Observation spaces of Stable-Baselines3, preprocessed for networks that take vectors and images."""

import math
from collections.abc import Mapping
from typing import Any

from gymnasium import spaces
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, preprocess_obs
from torch import Tensor, nn

from vcse.integrations.networks import Observations, Shape

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
        inputs: Any
        if isinstance(self.space, spaces.Dict):
            assert isinstance(observations, Mapping)
            inputs = {name: _preprocess(observations[name], each) for name, each in self.space.spaces.items()}
        else:
            assert isinstance(observations, Tensor)
            inputs = _preprocess(observations, self.space)
        output: Tensor = self.network(inputs, *actions)
        return output


def preprocessed_shape(space: spaces.Space[Any]) -> Shape:
    """Return the shape of one preprocessed observation; one shape per key if the space is a Dict."""
    if not isinstance(space, spaces.Dict):
        return _preprocessed_shape(space, "")
    return {name: _preprocessed_shape(each, f" {name!r}") for name, each in space.spaces.items()}


def _preprocessed_shape(space: spaces.Space[Any], name: str) -> tuple[int, ...]:
    if not isinstance(space, SUPPORTED):
        supported = ", ".join(each.__name__ for each in SUPPORTED)
        raise ValueError(
            f"the observation space{name} is {type(space).__name__}, which is not supported; "
            f"supported are {supported}, and Dict of these"
        )
    if isinstance(space, spaces.Box):
        return space.shape if len(space.shape) == 3 else (math.prod(space.shape),)
    return (int(get_flattened_obs_dim(space)),)


def _preprocess(observations: Tensor, space: spaces.Space[Any]) -> Tensor:
    if isinstance(space, spaces.Box):
        return observations if len(space.shape) == 3 else observations.reshape(len(observations), -1)
    one_hot = preprocess_obs(observations, space)
    assert isinstance(one_hot, Tensor)
    return one_hot.flatten(1)
