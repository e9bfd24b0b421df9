"""What a bonus is: features in, an intrinsic reward and its diagnostics out."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Generic, TypeVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from vcse.bonuses.normalizers import learner_shape
from vcse.bonuses.scaling import RewardScaling, ScalingName
from vcse.estimators.checks import (
    check_all_finite,
    check_booleans,
    check_numbers,
    check_pays,
    check_points,
    checks_run,
    whole_number,
    wrong_shape,
)
from vcse.estimators.readings import Reading

SomeBonus = TypeVar("SomeBonus")
# One number per feature; a critic's output with its trailing axis of 1 will do.
PerFeature = Float[Tensor, "*learners n"] | Float[Tensor, "*learners n 1"]


@dataclass(frozen=True)
class BonusOutput:
    """The intrinsic reward of each feature, before beta, and what it was made of."""

    reward: Float[Tensor, "*learners n"]
    radius: Float[Tensor, "*learners n"] | None = None  # distance to the k-th neighbour; ε/2 under a condition
    value_distance: Float[Tensor, "*learners n"] | None = None  # the neighbour's distance in the condition: ε_v/2
    value_count: Int[Tensor, "*learners n"] | None = None  # n_v
    # What was conditioned on, before it was normalised: values, or extrinsic rewards in their place.
    values: Float[Tensor, "*learners n"] | None = None
    rewards: Float[Tensor, "*learners n"] | None = None
    formula: Float[Tensor, "*learners n"] | None = None  # what the formula says, where the reward was scaled

    def of(self, rows: Bool[Tensor, " n"]) -> "BonusOutput":
        """Return the output of some of the rows."""
        given = ((field.name, getattr(self, field.name)) for field in fields(self))
        return BonusOutput(**{name: each[..., rows] for name, each in given if each is not None})

    def diagnostics(self) -> dict[str, Float[Tensor, "*learners"]]:
        """Return the numbers to log, one per learner. Computed when asked for, so that not asking is free.

        Where rewards were conditioned on, the names that begin with or hold "value" have "reward" there.
        """
        spread, mean = torch.std_mean(self.reward, dim=-1, correction=0)
        shown = {
            "bonus_mean": mean,
            "bonus_std": spread,
            "bonus_min": self.reward.amin(-1),
            "bonus_max": self.reward.amax(-1),
        }
        name, condition = ("value", self.values) if self.rewards is None else ("reward", self.rewards)
        if self.radius is not None:
            shown["radius_mean"] = self.radius.mean(-1)
            shown["zero_radius_share"] = (self.radius == 0).to(self.radius.dtype).mean(-1)
        if self.radius is not None and self.value_distance is not None:
            by_value = (self.value_distance == self.radius) & (self.radius > 0)
            shown[f"decided_by_{name}_share"] = by_value.to(self.radius.dtype).mean(-1)
        if self.value_count is not None:
            shown[f"{name}_count_mean"] = self.value_count.to(self.reward.dtype).mean(-1)
        if condition is not None:
            shown[f"{name}_std"], shown[f"{name}_mean"] = torch.std_mean(condition, dim=-1, correction=0)
        return shown


@dataclass(frozen=True)
class BonusBatch:
    """Features and what else is known of the same transitions. A bonus reads what it declares to need."""

    features: Float[Tensor, "*learners n d"]
    values: PerFeature | None = None  # extrinsic value of each state
    rewards: PerFeature | None = None  # extrinsic reward of each transition
    actions: Int[Tensor, "*learners n"] | Float[Tensor, "*learners n a"] | None = None
    next_features: Float[Tensor, "*learners n d"] | None = None  # of the state after each action
    # Whether a state is the first of its episode. Where these are given, rows are in order: environment by environment.
    episode_starts: Bool[Tensor, "*learners n"] | None = None


class Bonus(nn.Module):
    """Base class of exploration bonuses.

    A subclass defines `forward`, declares in class variables what it needs besides the features, and keeps all of its
    state in its `state_dict`, as tensors with a leading learner axis; what has no axis is the same for all learners.
    With `learners`, features have a leading learner axis too, and learners never see each other.

    Args:
        learners: The size of the leading learner axis, or None where there is none.
        scaling: Mean and scale of the rewards: "raw", as the formula of `forward` says; "centered", less the mean
            of the batch; "standardized", divided by its standard deviation too; or a `RewardScaling`.

    Example:
        >>> import torch
        >>> from vcse.bonuses import Bonus, BonusOutput
        >>> class DistanceFromOrigin(Bonus):
        ...     def forward(self, features):
        ...         return BonusOutput(features.norm(dim=-1))
        >>> DistanceFromOrigin()(torch.tensor([[3.0, 4.0], [0.0, 1.0]])).reward
        tensor([5., 1.])
    """

    # Each is passed to `forward` as a keyword argument of that name where it is declared, and only there. What follows
    # from the arguments of a bonus is declared by the object.
    needs_values: bool = False
    needs_rewards: bool = False
    needs_actions: bool = False
    needs_next_features: bool = False
    needs_episode_starts: bool = False
    learns: ClassVar[bool] = False  # defines `learn`
    takes_valid: ClassVar[bool] = False  # `forward` is told which rows of a rollout are transitions, if not all
    # Of whose rollouts a batch consists, one after the other, each in the order of its steps; None: rows have no order.
    environments: int | None = None

    def __init__(self, *, learners: int | None = None, scaling: ScalingName | RewardScaling = "raw") -> None:
        super().__init__()
        self.learner_shape = learner_shape(learners)
        self.scaling = scaling if isinstance(scaling, RewardScaling) else RewardScaling(scaling)
        self.scaling.check_learners(learners)

    def __call__(self, *args: Any, valid: Bool[Tensor, " n"] | None = None, **needed: Any) -> BonusOutput:
        """Compute the reward of each feature and scale it.

        Args:
            args: The features.
            valid: Which rows of a rollout are transitions, if not all: those whose rewards are returned. The others,
                resets and padding, are there for the order alone.
            needed: What the bonus declares to need.
        """
        given = needed | {"valid": valid} if valid is not None and self.takes_valid else needed
        output: BonusOutput = super().__call__(*args, **given)
        if valid is not None:
            output = output.of(valid)
        if self.scaling.name == "raw":
            return output
        return replace(output, reward=self.scaling(output.reward), formula=output.reward)

    def forward(self, features: Float[Tensor, "*learners n d"], *args: Any, **needed: Any) -> BonusOutput:
        """Compute the reward of each feature, without gradient: `bonus(features, values=..., rewards=..., ...)`."""
        raise NotImplementedError(f"{type(self).__name__} does not define forward")

    def learn(self, batch: BonusBatch) -> dict[str, Float[Tensor, "*learners"]]:
        """Train networks of the bonus's own on a batch, and return the numbers to log, one per learner.

        It is called after the rewards of the batch were computed, so that the bonus has not yet learned from the batch
        that it rewards.
        """
        return {}

    @property
    def is_capturable(self) -> bool:
        """Whether a call can be captured in a CUDA graph, as its shapes no longer change."""
        return True

    def check_features(self, features: Float[Tensor, "*learners n d"]) -> None:
        """Raise ValueError for what are not the features of as many learners as the bonus was made for.

        Neighbours are looked for along one axis alone, so that a rollout of shape [steps, environments, dimensions]
        would be searched step by step if its steps were taken for learners.
        """
        check_points("features", features)
        leading = tuple(features.shape[:-2])
        if leading == self.learner_shape:
            return
        learners = self.learner_shape[0] if self.learner_shape else None
        expected = ", ".join([*map(str, self.learner_shape), "points", "dimensions"])
        if not leading:
            remedy = "say learners=None where there is no learner axis"
        elif len(leading) == 1:
            remedy = (
                f"flatten the batch, or say learners={leading[0]} where these are learners that never see each other"
            )
        else:
            remedy = "flatten the batch"
        raise ValueError(
            f"features of shape {tuple(features.shape)} do not fit a bonus with learners={learners}, "
            f"which takes [{expected}]: {remedy}"
        )


class FeatureBonus(Bonus):
    """Base class of bonuses that have networks for features of a number of dimensions, and compute in float32.

    Args:
        dimensions: Of the features.
        learners: The size of the leading learner axis, or None where there is none.
        scaling: Mean and scale of the rewards; see `Bonus`.
        check_finite: Refuse NaN and infinity.
    """

    def __init__(
        self, dimensions: int, *, learners: int | None, scaling: ScalingName | RewardScaling, check_finite: bool
    ) -> None:
        super().__init__(learners=learners, scaling=scaling)
        self.dimensions = whole_number("dimensions", dimensions, least=1)
        check_booleans(check_finite=check_finite)
        self.check_finite = check_finite

    def checked(self, name: str, given: Tensor | None, features: Tensor) -> Float[Tensor, "l n d"]:
        """Return features, or those of the next states, with a learner axis even where there is none.

        Args:
            name: Of what is given.
            given: What may be too few, of another shape, or not finite.
            features: Those that it must fit.
        """
        self.check_features(features)
        if given is None:
            raise ValueError(f"{name} is needed by {type(self).__name__}")
        if given.shape != features.shape:
            raise wrong_shape(name, given, str(tuple(features.shape)), "features", features)
        if given.shape[-1] != self.dimensions:
            raise ValueError(
                f"{name} of {given.shape[-1]} dimensions do not fit a bonus that was made for {self.dimensions}"
            )
        check_numbers(name, given)
        given = given.detach()
        if checks_run(self.check_finite, given):
            check_all_finite(name, given)
        return given.float().reshape(-1, *given.shape[-2:])


class EntropyBonus(Bonus, Generic[Reading]):
    """Base class of bonuses that look for the k-th neighbour of each feature, as a reading says.

    Args:
        rule: The reading, with all deviations.
        k: Which neighbour, counted as the reading says.
        learners: The size of the leading learner axis, or None where there is none.
        scaling: Mean and scale of the rewards; see `Bonus`.
        check_finite: Refuse NaN and infinity.
    """

    def __init__(
        self,
        rule: Reading,
        *,
        k: int,
        learners: int | None,
        scaling: ScalingName | RewardScaling,
        check_finite: bool,
    ) -> None:
        super().__init__(learners=learners, scaling=scaling)
        self.rule: Reading = rule
        # Rewards are refused that are all zero, or all equal.
        self.k = whole_number("k", k, least=1)
        check_pays(self.k, self_in_k=rule.self_in_k)
        check_booleans(check_finite=check_finite)
        self.check_finite = check_finite

    @classmethod
    def recommended(cls: type[SomeBonus], **deviations: Any) -> SomeBonus:
        """Return the bonus for an agent of one's own, as it is by default: with the reading `recommended`.

        Args:
            deviations: Arguments of the constructor, such as k or learners, that are to be others.

        Example:
            >>> from vcse.bonuses import ValueConditionalStateEntropy
            >>> bonus = ValueConditionalStateEntropy.recommended(k=5)
            >>> bonus.k, bonus.rule.log_offset, bonus.scaling.name
            (5, 1.0, 'standardized')
        """
        return cls(**deviations)

    @torch.no_grad()
    def forward(
        self,
        features: Float[Tensor, "*learners n d"],
        *,
        values: PerFeature | None = None,
        rewards: PerFeature | None = None,
    ) -> BonusOutput:
        """Compute the reward of each feature; values and rewards matter where they are conditioned on.

        They may have a trailing axis of 1, as a critic gives it. Half precision is computed in float32, and may meet
        float32; float64 goes with float64 alone.
        """
        self.check_features(features)
        return self.compute(features, values, rewards)

    def compute(self, features: Tensor, values: Tensor | None, rewards: Tensor | None) -> BonusOutput:
        """Compute the reward of each feature, once the features are known to be those of the learners."""
        raise NotImplementedError(f"{type(self).__name__} does not define compute")


def needed_by(bonus: Bonus | type[Bonus]) -> tuple[str, ...]:
    """Return the names of what a bonus declares to need besides the features."""
    return tuple(field.name for field in fields(BonusBatch)[1:] if getattr(bonus, f"needs_{field.name}"))


def check_order(bonus: Bonus, environments: int | None) -> None:
    """Refuse a bonus for rollouts of another number of environments than there are; None: there are no rollouts."""
    if bonus.environments is None or bonus.environments == environments:
        return
    there = f"batches are rollouts of {environments}" if environments else "batches have no order"
    raise ValueError(
        f"{type(bonus).__name__} was made with environments={bonus.environments}, but {there}: "
        f"make it with environments={environments}"
    )


def check_served(bonus: str, needs: Iterable[str], agent: str, gives: Iterable[str]) -> None:
    """Refuse a bonus that needs inputs that an agent does not have, and name both."""
    missing = sorted(set(needs) - set(gives))
    if missing:
        given = ", ".join(sorted(gives)) or "nothing but features"
        raise ValueError(f"the bonus {bonus} needs {', '.join(missing)}, but the agent {agent} gives {given}")
