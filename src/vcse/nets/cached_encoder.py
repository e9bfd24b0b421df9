"""Features of an encoder that is never trained, computed once for each different observation.

In a grid world the same few hundred observations occur again and again: on a CPU, looking one up takes a fraction of
the time of encoding it. New ones are encoded in blocks of one size, so that the bits of a learner's features depend
neither on the other learners nor on how many are new, and the cache is part of a checkpoint.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from vcse.estimators.neighbors.rows import row_bytes, rows_at
from vcse.nets.encoders import GridEncoder

BLOCK = 16  # observations that are encoded together
MOST_CACHED = 2048  # for a learner; then its cache is cleared


class CachedEncoder:
    """An encoder with fixed parameters and a cache of features for each learner.

    Args:
        encoder: What encodes.
        learners: How many there are.
    """

    def __init__(self, encoder: GridEncoder, learners: int) -> None:
        self.encoder = encoder
        self.places: list[dict[bytes, int]] = [{} for _ in range(learners)]
        self.table = torch.zeros(learners, 256, encoder.features)

    @torch.no_grad()
    def __call__(
        self, observations: UInt8[Tensor, "m n h w c"], learners: Int[Tensor, " m"] | None = None
    ) -> Float[Tensor, "m n f"]:
        """Return features from the cache, and encode what is new.

        Args:
            observations: Of each learner.
            learners: Which they are; all if not given.
        """
        count = observations.shape[1]
        rows = np.ascontiguousarray(observations.numpy()).reshape(len(observations), count, -1)
        places = np.empty((len(rows), count), dtype=np.int64)
        who = range(len(self.places)) if learners is None else learners.tolist()
        fresh: list[list[int]] = []
        for row, learner in enumerate(who):
            if len(self.places[learner]) > MOST_CACHED - count:
                self.places[learner].clear()
            places[row], new = self._look_up(self.places[learner], rows[row])
            fresh.append(new)
        if any(fresh):
            self._encode(observations, places, fresh, who)
        found = torch.from_numpy(places)
        return rows_at(self.table, found) if learners is None else self.table[learners.unsqueeze(-1), found]

    def learner_state(self, learner: int) -> dict[str, Tensor]:
        """Return one learner's cache, in the order in which it was filled."""
        known = b"".join(self.places[learner])  # a dictionary keeps its order
        return {
            "observations": torch.frombuffer(bytearray(known), dtype=torch.uint8) if known else torch.empty(0),
            "features": self.table[learner, : len(self.places[learner])].clone(),
        }

    def load_learner_state(self, learner: int, state: Mapping[str, Tensor]) -> None:
        """Load what `learner_state` returned."""
        count = len(state["features"])
        known = state["observations"].numpy().tobytes() if count else b""
        size = len(known) // max(count, 1)
        self.places[learner] = {known[place * size : (place + 1) * size]: place for place in range(count)}
        self._make_room(count)
        self.table[learner, :count] = state["features"]

    def _look_up(
        self, places: dict[bytes, int], rows: UInt8[np.ndarray, "n size"]
    ) -> tuple[Int[np.ndarray, " n"], list[int]]:
        """Return the place of each observation, and which of them are the first of their kind."""
        keys = row_bytes(rows)
        new = []
        found = list(map(places.get, keys))
        if None in found:
            for row, key in enumerate(keys):
                if key not in places:
                    places[key] = len(places)
                    new.append(row)
            found = list(map(places.get, keys))
        return np.array(found, dtype=np.int64), new

    def _encode(
        self,
        observations: UInt8[Tensor, "m n h w c"],
        places: Int[np.ndarray, "m n"],
        fresh: list[list[int]],
        who: Sequence[int],
    ) -> None:
        self._make_room(max(map(len, self.places)))
        for start in range(0, max(map(len, fresh)), BLOCK):
            some = [(row, new[start : start + BLOCK]) for row, new in enumerate(fresh) if len(new) > start]
            block = observations.new_zeros(len(some), BLOCK, *observations.shape[2:])
            for mine, (row, new) in zip(block, some, strict=True):
                mine[: len(new)] = observations[row, new]
            learners = [who[row] for row, _ in some]
            features = self.encoder(block, None if learners == list(range(len(self.places))) else learners)
            for mine, (row, new) in zip(features, some, strict=True):
                self.table[who[row], places[row, new]] = mine[: len(new)]

    def _make_room(self, count: int) -> None:
        while self.table.shape[1] < count:
            self.table = torch.cat((self.table, torch.zeros_like(self.table)), 1)
