"""Episodic counts: how often the episode has been in a state, as Raileanu and Rocktäschel 2020 and others count."""

import math
from collections.abc import Sequence

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from vcse.bonuses.base import Bonus, BonusOutput
from vcse.bonuses.networks import generators_of, in_shares
from vcse.bonuses.scaling import RewardScaling, ScalingName
from vcse.estimators.checks import check_all_finite, check_booleans, checks_run, whole_number, wrong_shape

MOST_BITS = 62
MOST_COMPARED = 1 << 25  # pairs of visits that are compared at once
# Odd multipliers of 64 bits, as two's complements (SplitMix64, and the golden ratio).
FIRST, SECOND, GOLDEN = -0x40A7B892E31B1A47, -0x6B2FB644ECCEEE15, -0x61C8864680B583EB


class EpisodicCounts(Bonus):
    """Episodic counts: 1/√N, where N is how often the episode has been in this state, this time among them.

    States are the same where all of their features are equal or, with `hash_bits`, where the signs of so many random
    projections are (SimHash, Tang et al. 2017), which is for continuous states: these are rarely equal. An episode that
    a batch does not end continues in the next batch. An encoder must give equal states equal features to the last bit,
    wherever in a batch and in whichever batch they are, or they count as different.

    Args:
        environments: Rows are rollouts of so many environments, one after the other, each in the order of its steps.
        power: Of 1/N; the literature has 1/2.
        hash_bits: Signs of so many projections make a state; None: all of its features.
        dimensions: Of the features; needed for hash_bits.
        memory: Steps of an unfinished episode that are remembered; what is older is forgotten.
        seed: Of the projections: one for all learners, or one for each. No other random number depends on it.
        learners: The size of the leading learner axis, or None where there is none.
        scaling: Mean and scale of the rewards: "raw" as the formula says, "centered" less the mean of the batch,
            "standardized" divided by its standard deviation too; or a `RewardScaling`.
        check_finite: Refuse NaN and infinity; see `vcse.estimators.kth_neighbor_distance`.

    Example:
        >>> import torch
        >>> from vcse.bonuses import EpisodicCounts
        >>> bonus = EpisodicCounts()
        >>> states = torch.tensor([[0.0], [1.0], [0.0], [0.0], [1.0]])
        >>> bonus(states, episode_starts=torch.tensor([True, False, False, False, True])).reward
        tensor([1.0000, 1.0000, 0.7071, 0.5774, 1.0000])
        >>> bonus(states[1:3], episode_starts=torch.tensor([False, True])).reward  # the last episode continues
        tensor([0.7071, 1.0000])
    """

    needs_episode_starts = True
    visits: Int[Tensor, "*learners environments memory"]
    episodes: Int[Tensor, "*learners environments"]
    projections: Float[Tensor, "*learners d b"] | None

    def __init__(
        self,
        *,
        environments: int = 1,
        power: float = 0.5,
        hash_bits: int | None = None,
        dimensions: int | None = None,
        memory: int = 4096,
        seed: int | Sequence[int] = 0,
        learners: int | None = None,
        scaling: ScalingName | RewardScaling = "raw",
        check_finite: bool = True,
    ) -> None:
        super().__init__(learners=learners, scaling=scaling)
        self.environments = count = whole_number("environments", environments, least=1)
        if not 0 < power < math.inf:
            raise ValueError(f"power must be finite and above 0, got {power}")
        check_booleans(check_finite=check_finite)
        self.power, self.check_finite = power, check_finite
        memory = whole_number("memory", memory, least=1)
        self.register_buffer("visits", torch.zeros(*self.learner_shape, count, memory, dtype=torch.int64))
        self.register_buffer("episodes", torch.zeros(*self.learner_shape, count, dtype=torch.int64))
        projections = None
        if hash_bits is not None:
            if not 1 <= whole_number("hash_bits", hash_bits, least=1) <= MOST_BITS:
                raise ValueError(f"hash_bits must be at most {MOST_BITS}, got {hash_bits}")
            if dimensions is None:
                raise ValueError(f"dimensions of the features must be given with hash_bits={hash_bits}")
            shape = (whole_number("dimensions", dimensions, least=1), hash_bits)
            sampled = [torch.randn(shape, generator=each) for each in generators_of(seed, learners)]
            projections = torch.stack(sampled).view(*self.learner_shape, *shape)
        self.register_buffer("projections", projections)

    @torch.no_grad()
    def forward(
        self, features: Float[Tensor, "*learners n d"], *, episode_starts: Bool[Tensor, "*learners n"]
    ) -> BonusOutput:
        """Count the visits of each state in its episode so far, and remember them."""
        self._check(features, episode_starts)
        by_environment = (*self.episodes.shape, -1)
        states = features.reshape(-1, *features.shape[-2:])
        if self.projections is None:
            keys = _keys(states)
        else:
            projections = self.projections.view(-1, *self.projections.shape[-2:])
            keys = in_shares(_signs, states, projections)
        # Numbers of episodes, and of environments, are mixed in: what is equal after that is one state of one episode.
        episodes = self.episodes.unsqueeze(-1) + episode_starts.reshape(by_environment).long().cumsum(-1)
        places = torch.arange(self.episodes.shape[-1], device=features.device).unsqueeze(-1)
        fresh = _mixed(_mixed(keys.reshape(by_environment) + episodes * FIRST) + places * SECOND)
        known = torch.cat((self.visits, fresh), -1)
        counts = self._counts(fresh, known)
        self.visits.copy_(known[..., -self.visits.shape[-1] :])
        self.episodes.copy_(episodes[..., -1])
        return BonusOutput(counts.float().pow(-self.power).view(features.shape[:-1]))

    def _check(self, features: Tensor, episode_starts: Tensor) -> None:
        self.check_features(features)
        if episode_starts is None or episode_starts.dtype != torch.bool:
            given = "none" if episode_starts is None else episode_starts.dtype
            raise ValueError(f"episode_starts must be given as a tensor of True and False, got {given}")
        if episode_starts.shape != features.shape[:-1]:
            expected = str(tuple(features.shape[:-1]))
            raise wrong_shape("episode_starts", episode_starts, expected, "features", features)
        if features.shape[-2] % self.episodes.shape[-1]:
            raise ValueError(
                f"a batch of {features.shape[-2]} states is no rollout of environments={self.environments}, "
                "each with as many steps"
            )
        if self.projections is not None and features.shape[-1] != self.projections.shape[-2]:
            raise ValueError(
                f"features of {features.shape[-1]} dimensions do not fit a bonus that was made for "
                f"{self.projections.shape[-2]}"
            )
        if checks_run(self.check_finite, features):
            check_all_finite("features", features.detach())

    def _counts(
        self, fresh: Int[Tensor, "*learners e t"], known: Int[Tensor, "*learners e m"]
    ) -> Int[Tensor, "*learners e t"]:
        """Count for each visit those of the same state of the same episode among the remembered ones and itself."""
        # Of each visit the last `memory` before it are known, whichever batch they came in.
        windows = known.unfold(-1, self.visits.shape[-1] + 1, 1)  # a view; each ends with the visit itself
        at_once = max(1, MOST_COMPARED // (windows[..., 0, :].numel()))
        pairs = zip(torch.split(fresh, at_once, -1), torch.split(windows, at_once, -2), strict=True)
        return torch.cat([(some.unsqueeze(-1) == before).sum(-1, dtype=torch.int32) for some, before in pairs], -1)


def _keys(states: Float[Tensor, "l n d"]) -> Int[Tensor, "l n"]:
    """Return 64 bits for each state, made of the bits of all of its features; 0 and -0 are the same."""
    wide = states.dtype == torch.float64
    bits = (states if wide else states.float()) + 0.0
    numbers = bits.contiguous().view(torch.int64 if wide else torch.int32).long()
    places = torch.arange(states.shape[-1], device=states.device)
    return _mixed(_mixed(numbers + places * GOLDEN).sum(-1))


def _signs(states: Float[Tensor, "l n d"], projections: Float[Tensor, "l d b"]) -> Int[Tensor, "l n"]:
    """Return the signs of projections as bits. In float64, so that equal states have equal signs in any row."""
    above = (states.double() @ projections.double()) > 0
    return (above.long() << torch.arange(above.shape[-1], device=states.device)).sum(-1)


def _mixed(numbers: Int[Tensor, "..."]) -> Int[Tensor, "..."]:
    """Mix the bits of numbers so that each depends on all (SplitMix64, Steele et al. 2014)."""
    numbers = (numbers ^ _shifted(numbers, 30)) * FIRST
    numbers = (numbers ^ _shifted(numbers, 27)) * SECOND
    return numbers ^ _shifted(numbers, 31)


def _shifted(numbers: Int[Tensor, "..."], bits: int) -> Int[Tensor, "..."]:
    """Shift to the right, and fill with zeros whatever the sign."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
