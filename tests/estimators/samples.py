"""Inputs: fixed random tensors, and small lattices for property tests."""

import torch
from hypothesis import strategies as st
from torch import Tensor


def gaussians(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def lattice(*shape: int, side: int = 2, seed: int = 0) -> Tensor:
    """Whole numbers: float32 computes with them exactly, and there are many ties and duplicates."""
    return torch.randint(-side, side + 1, shape, generator=torch.Generator().manual_seed(seed)).float()


def mixed_learners(learners: int, points: int, dimensions: int) -> Tensor:
    """Learners that must not see each other: plain, tied, all equal, far from 0, tiny and huge."""
    kinds = (
        gaussians(points, dimensions),
        lattice(points, dimensions, side=1),
        torch.ones(points, dimensions),
        1e6 + gaussians(points, dimensions, seed=1),
        1e-20 * gaussians(points, dimensions, seed=2),
        1e20 * gaussians(points, dimensions, seed=3),
    )
    return torch.stack([kinds[learner % len(kinds)] for learner in range(learners)])


def numbers(count: int, side: int) -> st.SearchStrategy[list[int]]:
    return st.lists(st.integers(-side, side), min_size=count, max_size=count)


@st.composite
def lattices(draw: st.DrawFn, *, least_points: int = 2, most_points: int = 9, most_dimensions: int = 3) -> Tensor:
    """A few points on a small lattice."""
    points = draw(st.integers(least_points, most_points))
    dimensions = draw(st.integers(1, most_dimensions))
    return torch.tensor(draw(numbers(points * dimensions, 2))).float().view(points, dimensions)


@st.composite
def problems(draw: st.DrawFn, *, most_value_dimensions: int = 1, self_in_k: bool = False) -> tuple[Tensor, Tensor, int]:
    """Features and values on small lattices, and a k that they can answer and a reward can take."""
    least_k = 2 if self_in_k else 1
    features = draw(lattices(least_points=least_k + 1))
    points = len(features)
    dimensions = draw(st.integers(1, most_value_dimensions))
    values = torch.tensor(draw(numbers(points * dimensions, 3))).float().view(points, dimensions)
    return features, values if most_value_dimensions > 1 else values[:, 0], draw(st.integers(least_k, points - 1))
