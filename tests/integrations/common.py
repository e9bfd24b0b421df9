"""What tests of the integrations share: global random numbers that must stay, and states that must be equal."""

import random
from contextlib import contextmanager

import numpy as np
import torch


@contextmanager
def no_global_random_numbers():
    """Assert that no random number of torch, NumPy or Python was drawn, and none seeded.

    Type checks draw some of Python's, so tests that use this do without them.
    """
    torch.manual_seed(1)
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 - the global generator is what must stay
    before = [torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()]  # noqa: NPY002
    yield
    after = [torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()]  # noqa: NPY002
    assert after == before


def same(one, other):
    """Return whether two states are equal bit for bit."""
    if isinstance(one, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(one, other)
    if isinstance(one, np.ndarray):
        return np.array_equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def copy_of(module):
    """Return the parameters of a module as they are now."""
    return [each.detach().clone() for each in module.parameters()]
