"""What all tests share: one thread, repeatable property tests, and a way past the type checks."""

import jaxtyping
import pytest
import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("repeatable", deadline=None, derandomize=True, max_examples=40, database=None)
settings.load_profile("repeatable")


@pytest.fixture
def without_type_checks():
    """Pass bad input through to the library's own errors, which a user without beartype gets."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
