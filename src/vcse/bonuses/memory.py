"""A memory of features, first in, first out: where state entropy looks for neighbours in MiniGrid."""

import math
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vcse.bonuses.bonus import learner_shape
from vcse.estimators.checks import check_all_finite, check_points, whole_number


class FeatureMemory(nn.Module):
    """Keeps the last `capacity` features of each learner, in the dtype of the first that it was given.

    Where to write next is a tensor on the device, so that writing can be captured in a CUDA graph once the memory
    is full; how many there are until then is known to the host, because it is how many were written.
    """

    features: Float[Tensor, "*learners capacity d"]
    position: Int[Tensor, ""]

    def __init__(self, capacity: int, dimensions: int, *, learners: int | None = None) -> None:
        super().__init__()
        self.capacity = whole_number("capacity", capacity, least=1)
        dimensions = whole_number("dimensions", dimensions, least=1)
        self.filled = 0
        self.register_buffer("features", torch.zeros(*learner_shape(learners), self.capacity, dimensions))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    def check_fits(self, features: Float[Tensor, "*learners n d"]) -> None:
        """Refuse a batch that cannot be remembered, by all but its numbers."""
        check_points("features", features)
        if features.shape[:-2] != self.features.shape[:-2] or features.shape[-1] != self.features.shape[-1]:
            raise ValueError(
                f"features of shape {tuple(features.shape)} do not fit a memory of shape {tuple(self.features.shape)}"
            )
        if features.shape[-2] > self.capacity:
            raise ValueError(f"a batch of {features.shape[-2]} features does not fit a memory of {self.capacity}")
        if features.device != self.features.device:
            raise ValueError(f"features is on {features.device} but the memory is on {self.features.device}")
        if self.filled and features.dtype != self.features.dtype:
            raise ValueError(f"features has dtype {features.dtype} but the memory holds {self.features.dtype}")
        if features.is_cuda and torch.cuda.is_current_stream_capturing() and self.filled < self.capacity:
            raise ValueError(
                f"the memory holds {self.filled} of {self.capacity} features: its pool grows with each batch "
                "until it is full, and can be captured in a CUDA graph only then"
            )

    def check_numbers(self, features: Float[Tensor, "*learners n d"]) -> None:
        """Refuse NaN, infinity, and numbers so large that distances to later features could overflow.

        What is remembered stays and meets whatever comes, so it must be good whatever that is.
        """
        check_all_finite("features", features)
        computed_in = torch.float64 if features.dtype == torch.float64 else torch.float32
        most = torch.finfo(computed_in).max / (4 * math.sqrt(features.shape[-1]))
        largest = float(features.abs().amax())
        if largest > most:
            raise ValueError(
                f"features reach {largest:.3g}, and beyond {most:.3g} their distances in a memory "
                f"could overflow {computed_in}"
            )

    @torch.no_grad()
    def push(self, features: Float[Tensor, "*learners n d"]) -> None:
        """Write a batch over the oldest."""
        self.check_fits(features)
        if not self.filled:
            self.features = self.features.to(features.dtype)
        count = features.shape[-2]
        slots = (self.position + torch.arange(count, device=self.position.device)) % self.capacity
        self.features.index_copy_(-2, slots, features)
        self.position.add_(count).remainder_(self.capacity)
        self.filled = self.filled_after(count)

    def filled_after(self, count: int) -> int:
        """Tell how many features there will be when `count` more have been pushed."""
        return min(self.capacity, self.filled + count)

    def pool(self) -> Float[Tensor, "*learners m d"]:
        """Give what is remembered, in no order."""
        return self.features[..., : self.filled, :]

    def get_extra_state(self) -> int:
        """Put how many features there are into the `state_dict`."""
        return self.filled

    def set_extra_state(self, state: int) -> None:
        """Take it back from there."""
        self.filled = state

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take the dtype of what is loaded, which a fresh memory does not know, or it would be rounded."""
        stored = state_dict.get(f"{prefix}features")
        if isinstance(stored, Tensor):
            self.features = self.features.to(stored.dtype)
        super()._load_from_state_dict(state_dict, prefix, *args)
