"""A memory of features, first in, first out: where state entropy looks for neighbours in MiniGrid."""

import math
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vcse.bonuses.normalizers import learner_shape
from vcse.estimators.checks import check_all_finite, check_points, whole_number
from vcse.estimators.neighbors.rows import row_bytes

# Keeping track of which features are different pays in a large memory where few of them are.
LEAST_CAPACITY = 1024
MOST_DIFFERENT = 0.25


class FeatureMemory(nn.Module):
    """Memory of the last `capacity` features of each learner, in the dtype of the first that it was given.

    Where to write next is a tensor on the device, so that writing can be captured in a CUDA graph once the memory
    is full; how many there are until then is known to the host, because it is how many were written.

    Args:
        capacity: How many features it holds; more are written over the oldest.
        dimensions: The dimensions of a feature.
        learners: The size of the leading learner axis, or None where there is none.

    Example:
        >>> import torch
        >>> from vcse.bonuses import FeatureMemory, StateEntropy
        >>> memory = FeatureMemory(10_000, dimensions=1)
        >>> bonus = StateEntropy(k=2, reading="release-a2c", memory=memory)
        >>> rewards = [bonus(torch.tensor([[0.0], [1.0], [3.0]])).reward for _ in range(2)]
        >>> memory.filled
        6
    """

    features: Float[Tensor, "*learners capacity d"]
    position: Int[Tensor, ""]

    def __init__(self, capacity: int, dimensions: int, *, learners: int | None = None) -> None:
        super().__init__()
        self.capacity = whole_number("capacity", capacity, least=1)
        dimensions = whole_number("dimensions", dimensions, least=1)
        self.filled = 0
        self._distinct: DistinctFeatures | None = None
        self.register_buffer("features", torch.zeros(*learner_shape(learners), self.capacity, dimensions))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    def check_fits(self, features: Float[Tensor, "*learners n d"]) -> None:
        """Raise ValueError for a batch that cannot be remembered, by all but its numbers."""
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
        """Raise ValueError for NaN, infinity, and numbers so large that distances to later features could overflow.

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
            self._take_dtype(features.dtype)
        count = features.shape[-2]
        slots = (self.position + torch.arange(count, device=self.position.device)) % self.capacity
        if self._distinct is not None:
            self._distinct.replace(slots.numpy(), features.reshape(-1, *features.shape[-2:]).numpy())
        self.features.index_copy_(-2, slots, features)
        self.position.add_(count).remainder_(self.capacity)
        self.filled = self.filled_after(count)

    def _take_dtype(self, dtype: torch.dtype) -> None:
        with torch.inference_mode(False):  # else a first call in that mode would spoil it for all others
            self.features = self.features.to(dtype)

    def filled_after(self, count: int) -> int:
        """Return how many features there will be when `count` more have been pushed."""
        return min(self.capacity, self.filled + count)

    def pool(self) -> Float[Tensor, "*learners m d"]:
        """Return what is remembered, in no order."""
        return self.features[..., : self.filled, :]

    def distinct_pool(self) -> tuple[Float[Tensor, "*learners m d"], Int[Tensor, "*learners m"] | None]:
        """Return each different feature once, and how often it is there.

        Where that is not known to pay, and on CUDA, all that is remembered is given, with None for the counts.
        """
        # NumPy, which compares them, has no bfloat16.
        is_on_cpu = self.features.device.type == "cpu"
        if not is_on_cpu or self.features.dtype == torch.bfloat16 or self.capacity < LEAST_CAPACITY:
            return self.pool(), None
        if self._distinct is None:
            self._distinct = DistinctFeatures(self.features.reshape(-1, *self.features.shape[-2:]).numpy(), self.filled)
        if self._distinct.width > MOST_DIFFERENT * self.filled:
            return self.pool(), None
        table, counts = self._distinct.pool()
        return table.view(*self.features.shape[:-2], *table.shape[1:]), counts.view(*self.features.shape[:-2], -1)

    def counts_of_latest(self, latest: int) -> Int[Tensor, "*learners {latest}"] | None:
        """Return how often each of the latest features is there, in the order of their push.

        None until `distinct_pool` has found out which are different.
        """
        if latest > self.filled:
            raise ValueError(f"the memory holds {self.filled} features, not {latest}")
        if self._distinct is None:
            return None
        slots = (int(self.position) - latest + np.arange(latest)) % self.capacity
        return self._distinct.counts_of(slots).view(*self.features.shape[:-2], latest)

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Forget which features are different when they move to another device or dtype."""
        self._distinct = None
        return super()._apply(*args, **kwargs)  # type: ignore[no-untyped-call]

    def get_extra_state(self) -> Int[Tensor, ""]:
        """Return the number of features for the `state_dict`, as a tensor, so that it holds nothing else."""
        return torch.tensor(self.filled)

    def set_extra_state(self, state: Int[Tensor, ""] | int) -> None:
        """Load it from there; it was a number in earlier commits."""
        self.filled = int(state)
        self._distinct = None

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        """Take the dtype of what is loaded, which a fresh memory does not know, or it would be rounded."""
        stored = state_dict.get(f"{prefix}features")
        if isinstance(stored, Tensor):
            self._take_dtype(stored.dtype)
        super()._load_from_state_dict(state_dict, prefix, *args)


class DistinctFeatures:
    """The different features of each learner's memory and how often each is there, kept up to date on the host.

    The memory itself stays the truth: this can be made of it at any time. In a grid world ten thousand features
    are a few hundred different ones.
    """

    def __init__(self, features: Float[np.ndarray, "l capacity d"], filled: int) -> None:
        learners, capacity, dimensions = features.shape
        self.places: list[dict[bytes, int]] = [{} for _ in range(learners)]  # where each feature is in the table
        self.free: list[list[int]] = [[] for _ in range(learners)]
        self.place_of_slot = np.full((learners, capacity), -1, dtype=np.int64)
        self.table = np.zeros((learners, 256, dimensions), dtype=features.dtype)
        self.counts = np.zeros((learners, 256), dtype=np.int64)
        self.replace(np.arange(filled), features[:, :filled])

    @property
    def width(self) -> int:
        """Columns of the table that may be in use: the most different features that any learner had."""
        return max(len(places) + len(free) for places, free in zip(self.places, self.free, strict=True))

    def pool(self) -> tuple[Float[Tensor, "l m d"], Int[Tensor, "l m"]]:
        """Return the different features and their counts; a count of 0 where a learner has fewer than others."""
        width = max(1, self.width)
        return torch.from_numpy(self.table[:, :width]), torch.from_numpy(self.counts[:, :width])

    def counts_of(self, slots: Int[np.ndarray, " n"]) -> Int[Tensor, "l n"]:
        """Return how often the feature of each slot is there."""
        learner = np.arange(len(self.counts))[:, None]
        return torch.from_numpy(self.counts[learner, self.place_of_slot[:, slots]])

    def replace(self, slots: Int[np.ndarray, " n"], features: Float[np.ndarray, "l n d"]) -> None:
        """Follow the memory, in which features are written to slots."""
        for learner in range(len(features)):
            gone = self.place_of_slot[learner, slots]
            came = self._places(learner, features[learner])
            np.add.at(self.counts[learner], came, 1)
            np.subtract.at(self.counts[learner], gone[gone >= 0], 1)
            self.place_of_slot[learner, slots] = came
            self._drop(learner, gone)

    def _places(self, learner: int, features: Float[np.ndarray, "n d"]) -> Int[np.ndarray, " n"]:
        """Find each feature in the table, or put it there."""
        places, free = self.places[learner], self.free[learner]
        keys = row_bytes(features)
        found = list(map(places.get, keys))
        if None not in found:
            return np.array(found, dtype=np.int64)
        for row, key in enumerate(keys):
            if key not in places:
                place = places[key] = free.pop() if free else len(places)
                if place == self.table.shape[1]:
                    self.table = np.concatenate((self.table, np.zeros_like(self.table)), 1)
                    self.counts = np.concatenate((self.counts, np.zeros_like(self.counts)), 1)
                self.table[learner, place] = features[row]
        return np.array([places[key] for key in keys], dtype=np.int64)

    def _drop(self, learner: int, gone: Int[np.ndarray, " n"]) -> None:
        """Free the places of features that are no longer there."""
        touched = gone[gone >= 0]
        for place in set(touched[self.counts[learner, touched] == 0].tolist()):
            del self.places[learner][self.table[learner, place].tobytes()]
            self.free[learner].append(place)
