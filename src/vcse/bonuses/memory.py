"""A memory of features, first in, first out: where state entropy looks for neighbours in MiniGrid."""

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vcse.bonuses.bonus import learner_shape


class FeatureMemory(nn.Module):
    """Keeps the last `capacity` features of each learner.

    Where to write next is a tensor on the device, so that writing can be captured in a CUDA graph once the memory
    is full; how many there are until then is known to the host, because it is how many were written.
    """

    features: Float[Tensor, "*learners capacity d"]
    position: Int[Tensor, ""]

    def __init__(self, capacity: int, dimensions: int, *, learners: int | None = None) -> None:
        super().__init__()
        if capacity < 1 or dimensions < 1:
            raise ValueError(f"capacity and dimensions must be at least 1, got {capacity} and {dimensions}")
        self.capacity = capacity
        self.filled = 0
        self.register_buffer("features", torch.zeros(*learner_shape(learners), capacity, dimensions))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, features: Float[Tensor, "*learners n d"]) -> None:
        """Write a batch over the oldest; of a batch larger than the memory, its end."""
        if features.shape[:-2] != self.features.shape[:-2] or features.shape[-1] != self.features.shape[-1]:
            raise ValueError(
                f"features of shape {tuple(features.shape)} do not fit a memory of shape {tuple(self.features.shape)}"
            )
        if features.is_cuda and torch.cuda.is_current_stream_capturing() and self.filled < self.capacity:
            raise ValueError(
                f"the memory holds {self.filled} of {self.capacity} features: its pool grows with each batch "
                "until it is full, and can be captured in a CUDA graph only then"
            )
        latest = features[..., -self.capacity :, :].to(self.features.dtype)
        count = latest.shape[-2]
        slots = (self.position + torch.arange(count, device=self.position.device)) % self.capacity
        self.features.index_copy_(-2, slots, latest)
        self.position.add_(count).remainder_(self.capacity)
        self.filled = min(self.capacity, self.filled + count)

    def pool(self) -> Float[Tensor, "*learners m d"]:
        """Give what is remembered, in no order."""
        return self.features[..., : self.filled, :]

    def get_extra_state(self) -> int:
        """Put how many features there are into the `state_dict`."""
        return self.filled

    def set_extra_state(self, state: int) -> None:
        """Take it back from there."""
        self.filled = state
