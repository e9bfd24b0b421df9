"""Networks of the integrations: feature encoders and extrinsic critics."""

import math
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import SupportsIndex

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

FEATURES = 64  # of a random encoder
MOST_STATE_SIZE = 64  # of a vector that is used as features without an encoder
LEAST_IMAGE_SIDE = 36  # pixels; anything smaller is a grid of cells
IMAGE_LAYERS = ((32, 8, 4), (64, 4, 2), (64, 3, 1))  # channels, kernel, stride (Mnih et al. 2015)
GRID_LAYERS = ((16, 2, 1), (32, 2, 1), (64, 2, 1))
# Of one observation; for dictionaries of observations, one shape per name.
Shape = tuple[int, ...] | Mapping[str, tuple[int, ...]]
# A tensor, or a dictionary of tensors.
Observations = Shaped[Tensor, "..."] | Mapping[str, Shaped[Tensor, "..."]]


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed the initialisation of modules without touching the global random number generator."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)  # torch.manual_seed would seed every GPU too
        yield


class Trunk(nn.Module):
    """The first layers of a network: convolutions for images and grids, nothing for vectors; then flattened.

    Args:
        shape: Of one observation: [size], [height, width, channels] or [channels, height, width].
        channels_first: Whether the channel axis is the first. If not given, it is if that axis is the shortest.
    """

    def __init__(self, shape: tuple[int, ...], *, channels_first: bool | None = None) -> None:
        super().__init__()
        self.shape = tuple(shape)
        if len(shape) not in (1, 3):
            raise ValueError(
                f"observations of shape {self.shape} are not supported: there are networks for vectors, [size], and "
                "for images and grids, [height, width, channels] or [channels, height, width]"
            )
        layers: list[nn.Module] = []
        self.is_image = self.channels_last = False
        if len(shape) == 3:
            first = shape[0] < min(shape[1:]) if channels_first is None else channels_first
            self.channels_last = not first
            channels, *sides = shape if first else (shape[2], shape[0], shape[1])
            self.is_image = min(sides) >= LEAST_IMAGE_SIDE
            for outputs, kernel, stride in IMAGE_LAYERS if self.is_image else GRID_LAYERS:
                if min(sides) < kernel:
                    break  # a grid of few cells has fewer layers
                layers += [nn.Conv2d(channels, outputs, kernel, stride), nn.ReLU()]
                sides, channels = [(side - kernel) // stride + 1 for side in sides], outputs
            self.size = channels * math.prod(sides)
        else:
            self.size = shape[0]
        self.layers = nn.Sequential(*layers, nn.Flatten())

    def forward(self, observations: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Compute the vector of each observation."""
        if observations.shape[1:] != self.shape:
            raise ValueError(f"observations of shape {tuple(observations.shape)} are not of {self.shape} each")
        inputs = observations.permute(0, 3, 1, 2) if self.channels_last else observations
        inputs = inputs.float() / 255 if self.is_image and inputs.dtype == torch.uint8 else inputs.float()
        vectors: Tensor = self.layers(inputs)
        return vectors


class JoinedTrunk(nn.Module):
    """The trunks of a dictionary of observations, whose outputs are concatenated.

    Args:
        shapes: Of one observation, by name, each as for `Trunk`.
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        super().__init__()
        self.names = sorted(shapes)
        self.trunks = nn.ModuleList(Trunk(shapes[name]) for name in self.names)
        self.size = sum(trunk.size for trunk in self.trunks if isinstance(trunk, Trunk))

    def forward(self, observations: Mapping[str, Shaped[Tensor, "n ..."]]) -> Float[Tensor, "n d"]:
        """Compute the vector of each observation."""
        parts = zip(self.names, self.trunks, strict=True)
        return torch.cat([trunk(observations[name]) for name, trunk in parts], -1)


def trunk_for(shape: Shape) -> Trunk | JoinedTrunk:
    """Return the trunk for observations of a shape; refuse what is none."""
    for each in shape.values() if isinstance(shape, Mapping) else [shape]:
        if not isinstance(each, tuple | list) or not all(isinstance(size, SupportsIndex) for size in each):
            raise ValueError(f"shape must be a tuple of integers such as (4,), or a dictionary of these, got {shape!r}")
    return JoinedTrunk(shape) if isinstance(shape, Mapping) else Trunk(shape)


@contextmanager
def evaluating(modules: Iterable[nn.Module]) -> Iterator[None]:
    """Put modules of an agent into evaluation mode, and each back into its own mode afterwards.

    Args:
        modules: All of them, as `module.modules()` lists them.
    """
    training = [module for module in modules if module.training]
    for module in training:  # setting the attribute itself takes a hundred times as long
        module.__dict__["training"] = False
    try:
        yield
    finally:
        for module in training:
            module.__dict__["training"] = True


class StateFeatures(nn.Module):
    """Features of a small state vector: the state itself, divided by the square root of its size.

    Distances between states of scale 1 are then as large as distances between standardised values, however many
    dimensions the state has.

    Args:
        size: Of the state vector.

    Example:
        >>> import torch
        >>> from vcse.integrations import StateFeatures
        >>> StateFeatures(4)(torch.tensor([[2.0, 4.0, 6.0, 8.0]]))
        tensor([[1., 2., 3., 4.]])
    """

    def __init__(self, size: int) -> None:
        super().__init__()
        self.features = size

    def forward(self, observations: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Return the states."""
        return observations.flatten(1).float() / math.sqrt(self.features)


class RandomEncoder(nn.Module):
    """A randomly initialised encoder that is never trained, so that distances between states do not change.

    Vectors pass through a hidden layer, images and grids of cells through convolutions; a linear layer and layer
    normalisation follow, as in Seo et al. 2021.

    Args:
        shape: Of one observation: [size], [height, width, channels] or [channels, height, width].
        features: Number of features per observation.
        seed: Of the parameters.
        channels_first: Whether the channel axis is the first. If not given, it is if that axis is the shortest.

    Example:
        >>> import torch
        >>> from vcse.integrations import RandomEncoder
        >>> encoder = RandomEncoder((7, 7, 3))
        >>> encoder(torch.zeros(5, 7, 7, 3, dtype=torch.uint8)).shape
        torch.Size([5, 64])
    """

    def __init__(
        self, shape: tuple[int, ...], *, features: int = FEATURES, seed: int = 0, channels_first: bool | None = None
    ) -> None:
        super().__init__()
        self.features = features
        with seeded(seed):
            trunk = Trunk(shape, channels_first=channels_first)
            hidden = [nn.Linear(trunk.size, 256), nn.ReLU()] if len(shape) == 1 else []
            head = nn.Linear(256 if hidden else trunk.size, features)
            self.layers = nn.Sequential(trunk, *hidden, head, nn.LayerNorm(features, elementwise_affine=False))
        self.requires_grad_(False)

    @torch.no_grad()
    def forward(self, observations: Shaped[Tensor, "n ..."]) -> Float[Tensor, "n d"]:
        """Compute features of scale 1, divided by the square root of their number as in `StateFeatures`."""
        features: Tensor = self.layers(observations)
        return features / math.sqrt(self.features)


class JoinedEncoder(nn.Module):
    """Features of a dictionary of observations: of all vectors together, and of each image or grid.

    Each part has the same weight in a distance.

    Args:
        shapes: Of one observation, by name.
        seed: Of the parameters of random encoders.

    Example:
        >>> import torch
        >>> from vcse.integrations import JoinedEncoder
        >>> encoder = JoinedEncoder({"goal": (2,), "speed": (1,), "view": (3, 64, 64)})
        >>> encoder({"goal": torch.zeros(5, 2), "speed": torch.zeros(5, 1), "view": torch.zeros(5, 3, 64, 64)}).shape
        torch.Size([5, 67])
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], *, seed: int = 0) -> None:
        super().__init__()
        self.vectors = sorted(name for name, shape in shapes.items() if len(shape) == 1)
        self.others = sorted(set(shapes) - set(self.vectors))
        size = sum(shapes[name][0] for name in self.vectors)
        parts = ([(size,)] if self.vectors else []) + [shapes[name] for name in self.others]
        self.encoders = nn.ModuleList(encoder_for(shape, seed=seed + number) for number, shape in enumerate(parts))

    def forward(self, observations: Mapping[str, Shaped[Tensor, "n ..."]]) -> Float[Tensor, "n d"]:
        """Compute the features of observations."""
        parts = [observations[name] for name in self.others]
        if self.vectors:
            parts.insert(0, torch.cat([observations[name].float() for name in self.vectors], -1))
        encoded = [encoder(part) for encoder, part in zip(self.encoders, parts, strict=True)]
        return torch.cat(encoded, -1) / math.sqrt(len(encoded))


def encoder_for(shape: tuple[int, ...] | Mapping[str, tuple[int, ...]], *, seed: int = 0) -> nn.Module:
    """Return the default feature encoder for observations of a shape: `StateFeatures` for small vectors.

    Args:
        shape: Of one observation; for dictionaries of observations, one shape per name.
        seed: Of the parameters of random encoders.

    Example:
        >>> from vcse.integrations import encoder_for
        >>> [type(encoder_for(shape)).__name__ for shape in ((4,), (3, 84, 84), {"goal": (2,), "state": (6,)})]
        ['StateFeatures', 'RandomEncoder', 'JoinedEncoder']
    """
    if isinstance(shape, Mapping):
        return JoinedEncoder(shape, seed=seed)
    if len(shape) == 1 and shape[0] <= MOST_STATE_SIZE:
        return StateFeatures(shape[0])
    return RandomEncoder(shape, seed=seed)


class ValueNetwork(nn.Module):
    """An extrinsic critic V(s), for on-policy agents.

    Args:
        shape: Of one observation; for dictionaries of observations, one shape per name.
        hidden_units: Of each of the two hidden layers.
        seed: Of the parameters.

    Example:
        >>> import torch
        >>> from vcse.integrations import ValueNetwork
        >>> ValueNetwork((7, 7, 3))(torch.zeros(5, 7, 7, 3)).shape
        torch.Size([5])
    """

    def __init__(self, shape: Shape, *, hidden_units: int = 64, seed: int = 0) -> None:
        super().__init__()
        with seeded(seed):
            trunk = trunk_for(shape)
            self.layers = nn.Sequential(trunk, *_hidden(trunk.size, hidden_units, nn.Tanh), nn.Linear(hidden_units, 1))

    def forward(self, observations: Observations) -> Float[Tensor, " n"]:
        """Compute V(s)."""
        values: Tensor = self.layers(observations)
        return values.squeeze(-1)


class QNetwork(nn.Module):
    """An extrinsic critic Q(s, a) of continuous actions, for off-policy agents.

    Args:
        shape: Of one observation; for dictionaries of observations, one shape per name.
        action_size: Dimensions of an action.
        hidden_units: Of each of the two hidden layers.
        seed: Of the parameters.

    Example:
        >>> import torch
        >>> from vcse.integrations import QNetwork
        >>> QNetwork((3,), 2)(torch.zeros(5, 3), torch.zeros(5, 2)).shape
        torch.Size([5])
    """

    def __init__(self, shape: Shape, action_size: int, *, hidden_units: int = 256, seed: int = 0) -> None:
        super().__init__()
        self.action_size = action_size
        with seeded(seed):
            self.trunk = trunk_for(shape)
            inputs = self.trunk.size + action_size
            self.layers = nn.Sequential(*_hidden(inputs, hidden_units, nn.ReLU), nn.Linear(hidden_units, 1))

    def forward(self, observations: Observations, actions: Shaped[Tensor, "n ..."]) -> Float[Tensor, " n"]:
        """Compute Q(s, a)."""
        numbers = actions.reshape(len(actions), -1).float()
        is_discrete = actions.ndim == 1 and not actions.is_floating_point()
        if is_discrete or numbers.shape[1] != self.action_size:
            raise ValueError(
                f"actions must be vectors of {self.action_size} numbers, got {actions.dtype} of shape "
                f"{tuple(actions.shape[1:])} each; for discrete ones pass how many there are, "
                "ReplayBonus(policy, shape, actions=n), or take a DiscreteQNetwork"
            )
        q_values: Tensor = self.layers(torch.cat((self.trunk(observations), numbers), -1))
        return q_values.squeeze(-1)


class DiscreteQNetwork(nn.Module):
    """An extrinsic critic Q(s, a) of discrete actions, for off-policy agents.

    Args:
        shape: Of one observation; for dictionaries of observations, one shape per name.
        actions: Number of actions.
        hidden_units: Of each of the two hidden layers.
        seed: Of the parameters.

    Example:
        >>> import torch
        >>> from vcse.integrations import DiscreteQNetwork
        >>> DiscreteQNetwork((3,), 2)(torch.zeros(5, 3), torch.tensor([0, 1, 0, 1, 1])).shape
        torch.Size([5])
    """

    def __init__(self, shape: Shape, actions: int, *, hidden_units: int = 256, seed: int = 0) -> None:
        super().__init__()
        with seeded(seed):
            trunk = trunk_for(shape)
            hidden = _hidden(trunk.size, hidden_units, nn.ReLU)
            self.layers = nn.Sequential(trunk, *hidden, nn.Linear(hidden_units, actions))

    def forward(
        self, observations: Observations, actions: Shaped[Tensor, " n"] | Shaped[Tensor, "n 1"]
    ) -> Float[Tensor, " n"]:
        """Compute Q(s, a)."""
        q_values: Tensor = self.layers(observations)
        if actions.numel() != len(q_values):
            raise ValueError(
                f"actions must be the number of one action each, got shape {tuple(actions.shape[1:])} each"
            )
        return q_values.gather(-1, actions.long().reshape(-1, 1)).squeeze(-1)


def _hidden(inputs: int, units: int, activation: type[nn.Module]) -> list[nn.Module]:
    return [nn.Linear(inputs, units), activation(), nn.Linear(units, units), activation()]
