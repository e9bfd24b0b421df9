"""Random numbers that depend on nothing but a run's seed, what they are for, and how far the run is.

They come from a counter (Philox), so that a stopped run goes on with the numbers it would have had, and a run
in a cohort has the same numbers as alone.
"""

from typing import Literal, get_args

import numpy as np
import torch
from numpy.typing import NDArray

# New ones come last: what a run draws depends on the place of its purpose.
Purpose = Literal[
    "parameters",
    "random encoder",
    "actions",
    "evaluation",
    "episodes",
    "updates",
    "bonus",
    "autoencoder",
    "latent states",
    "acting",
    "value permutation",
]
_PURPOSES: dict[Purpose, int] = {name: number for number, name in enumerate(get_args(Purpose), start=1)}


def numbers(seed: int, purpose: Purpose, index: int = 0) -> np.random.Generator:
    """Return the generator of a seed for a purpose; with an index, the one of a moment in the run."""
    return np.random.Generator(np.random.Philox(key=[seed, _PURPOSES[purpose]], counter=[0, 0, 0, index]))


def uniforms(seed: int, purpose: Purpose, index: int, shape: tuple[int, ...]) -> NDArray[np.float32]:
    """Return numbers in [0, 1) of a moment in the run."""
    return numbers(seed, purpose, index).random(shape, dtype=np.float32)


def episode_seeds(generator: np.random.Generator, count: int) -> list[int]:
    """Draw what episodes begin from: whole numbers that every simulator takes as a seed."""
    return [int(seed) for seed in generator.integers(2**31 - 1, size=count)]


def episode_seed(seed: int, begin: int) -> int:
    """Return what the episode of a run begins from, by the moment at which it begins."""
    return episode_seeds(numbers(seed, "episodes", begin), 1)[0]


def torch_seed(seed: int, purpose: Purpose, index: int = 0) -> int:
    """Return the seed of a generator of PyTorch; with an index, the one of a moment in the run."""
    return int(numbers(seed, purpose, index).integers(2**62))


def torch_generator(seed: int, purpose: Purpose) -> torch.Generator:
    """Return a generator for PyTorch's own initialisers, on the CPU."""
    return torch.Generator().manual_seed(torch_seed(seed, purpose))
