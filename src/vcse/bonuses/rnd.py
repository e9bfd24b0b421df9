"""Random Network Distillation (Burda et al. 2018): the error of a network that predicts the output of a random one."""

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import leaky_relu, relu

from vcse.bonuses.base import BonusBatch, BonusOutput, FeatureBonus
from vcse.bonuses.networks import Adam, LearnedRows, NetworkRows, Pieces, applied, generators_of, in_shares
from vcse.bonuses.normalizers import RunningMoments, divided
from vcse.bonuses.scaling import RewardScaling, ScalingName
from vcse.estimators.checks import check_booleans, whole_number

State = Literal["next", "present"]
MOST_INPUT = 5.0  # standard deviations
LEAK = 0.2


def _leaky(inputs: Tensor) -> Tensor:
    return leaky_relu(inputs, LEAK)


TARGET_ACTIVATIONS = (_leaky, None)
PREDICTOR_ACTIVATIONS = (_leaky, relu, relu, None)


class RandomNetworkDistillation(FeatureBonus):
    """Random Network Distillation (RND): the mean squared error of a predictor of a fixed random network.

    Inputs are standardised with running moments of all batches so far, the present one among them, and clipped to ±5.
    The predictor learns when `learn` is called. In the paper observations are images, and both networks begin with
    convolutions; here features pass through one layer in their place, and the predictor has two layers more than the
    target, as there. That intrinsic rewards have a critic of their own, and continue beyond the end of an episode,
    belongs to the paper's agent, not to its bonus.

    Args:
        dimensions: Of the features.
        environments: Rows are rollouts of so many environments, one after the other: the error is divided by the
            standard deviation, over all batches so far, of its discounted sum, which continues from rollout to rollout,
            as in the paper. None: rows have no order, and it is divided by its own standard deviation.
        state: Whose error is the reward: that of the "next" state, as in the paper, or that of the "present" one.
        normalize_inputs: Standardise and clip features; the paper does.
        normalize_reward: Divide the error; the paper does.
        discount: Of the sum of errors.
        hidden_units: Of each hidden layer.
        outputs: Numbers that the random network makes of a state.
        learning_rate: Of Adam.
        epochs: How often a call of `learn` sees its batch.
        minibatches: Steps of an epoch.
        seed: Of the networks: one for all learners, or one for each. No other random number depends on it.
        learners: The size of the leading learner axis, or None where there is none.
        scaling: Mean and scale of the rewards: "raw" as the formula says, "centered" less the mean of the batch,
            "standardized" divided by its standard deviation too; or a `RewardScaling`.
        check_finite: Refuse NaN and infinity; see `vcse.estimators.kth_neighbor_distance`.

    Example:
        >>> import torch
        >>> from vcse.bonuses import BonusBatch, RandomNetworkDistillation
        >>> bonus = RandomNetworkDistillation(2, state="present", normalize_reward=False, learning_rate=1e-3)
        >>> familiar = torch.rand(256, 2, generator=torch.Generator().manual_seed(0))
        >>> for _ in range(20):
        ...     first = bonus(familiar)
        ...     learned = bonus.learn(BonusBatch(familiar))
        >>> reward = bonus(torch.cat((familiar, torch.tensor([[3.0, -3.0]])))).reward
        >>> bool(reward[-1] > 5 * reward[:-1].mean())
        True
    """

    learns = takes_valid = True
    sums: Float[Tensor, "*learners environments"] | None  # of errors, discounted, so far

    def __init__(
        self,
        dimensions: int,
        *,
        environments: int | None = None,
        state: State = "next",
        normalize_inputs: bool = True,
        normalize_reward: bool = True,
        discount: float = 0.99,
        hidden_units: int = 256,
        outputs: int = 128,
        learning_rate: float = 1e-4,
        epochs: int = 4,
        minibatches: int = 4,
        seed: int | Sequence[int] = 0,
        learners: int | None = None,
        scaling: ScalingName | RewardScaling = "raw",
        check_finite: bool = True,
    ) -> None:
        super().__init__(dimensions, learners=learners, scaling=scaling, check_finite=check_finite)
        check_booleans(normalize_inputs=normalize_inputs, normalize_reward=normalize_reward)
        if state not in get_args(State):
            raise ValueError(f"state must be one of {', '.join(get_args(State))}, got {state!r}")
        if not 0 <= discount <= 1:
            raise ValueError(f"discount must be from 0 to 1, got {discount}")
        for name, number in (("hidden_units", hidden_units), ("outputs", outputs)):
            whole_number(name, number, least=1)
        self.needs_next_features = state == "next"
        self.environments = None if environments is None else whole_number("environments", environments, least=1)
        self.discount = discount
        generators = generators_of(seed, learners)
        target = {"target": (dimensions, hidden_units, outputs)}
        self.target = NetworkRows(target, generators, learners)
        predictor = {"predictor": (dimensions, hidden_units, hidden_units, hidden_units, outputs)}
        adam = Adam(learning_rate, epochs=epochs, minibatches=minibatches)
        self.predictor = LearnedRows(predictor, generators, learners, adam)
        self.input_moments = RunningMoments(learners=learners, dimensions=dimensions) if normalize_inputs else None
        self.reward_moments = RunningMoments(learners=learners) if normalize_reward else None
        sums = torch.zeros(*self.learner_shape, environments or 1, dtype=torch.float64)
        self.register_buffer("sums", sums if normalize_reward and environments else None)

    @torch.no_grad()
    def forward(
        self,
        features: Float[Tensor, "*learners n d"],
        *,
        next_features: Float[Tensor, "*learners n d"] | None = None,
        valid: Bool[Tensor, " n"] | None = None,
    ) -> BonusOutput:
        """Compute the error of each state, after the running moments have seen it; those of valid rows if not all."""
        seen = self._seen(features, next_features)
        if self.input_moments is not None:
            known = seen if valid is None else seen[:, valid]
            self.input_moments.update(known.mT.reshape(*self.learner_shape, self.dimensions, -1))
        inputs = self._normalized(seen)
        error = in_shares(self._error, self.target.stack, self.predictor.stack, inputs)
        return BonusOutput(self._scaled(error.view(features.shape[:-1]), valid))

    def learn(self, batch: BonusBatch) -> dict[str, Float[Tensor, "*learners"]]:
        """Update the predictor towards the random network's features of the states."""
        with torch.no_grad():
            inputs = self._normalized(self._seen(batch.features, batch.next_features))
            targets = in_shares(self._told, self.target.stack, inputs)
        loss = self.predictor.fit(_loss, inputs, targets)
        return {"predictor_loss": loss[:, 0].view(self.learner_shape)}

    def _seen(self, features: Tensor, next_features: Tensor | None) -> Float[Tensor, "l n d"]:
        if self.needs_next_features:
            return self.checked("next_features", next_features, features)
        return self.checked("features", features, features)

    def _normalized(self, seen: Float[Tensor, "l n d"]) -> Float[Tensor, "l n d"]:
        """Standardise and clip; a dimension that never changed is 0."""
        if self.input_moments is None:
            return seen
        mean, spread = (
            each.view(len(seen), -1, 1) for each in (self.input_moments.mean, self.input_moments.variance.sqrt())
        )
        standardized = divided(seen.mT.double() - mean, spread.squeeze(-1))
        return standardized.mT.clamp(-MOST_INPUT, MOST_INPUT).float().contiguous()

    def _told(self, rows: Float[Tensor, "l p"], inputs: Float[Tensor, "l n d"]) -> Float[Tensor, "l n o"]:
        return applied(self.target.pieces(rows), "target", inputs, TARGET_ACTIVATIONS)

    def _error(
        self, target: Float[Tensor, "l p"], predictor: Float[Tensor, "l q"], inputs: Float[Tensor, "l n d"]
    ) -> Float[Tensor, "l n"]:
        return _squared_error(self.predictor.pieces(predictor), inputs, self._told(target, inputs))

    def _scaled(
        self, error: Float[Tensor, "*learners n"], valid: Bool[Tensor, " n"] | None
    ) -> Float[Tensor, "*learners n"]:
        """Divide errors by the running standard deviation of their discounted sums, or by their own."""
        if self.reward_moments is None:
            return error
        sums = error
        if self.environments is not None and self.sums is not None:
            if error.shape[-1] % self.environments:
                raise ValueError(
                    f"a batch of {error.shape[-1]} states is no rollout of environments={self.environments}, "
                    "each with as many steps"
                )
            by_step = error.double().view(*self.sums.shape, -1).unbind(-1)
            valid = None if valid is None else valid.view(self.environments, -1).T  # [steps, environments]
            so_far = [self.sums]
            for step, now in enumerate(by_step):
                later = self.discount * so_far[-1] + now
                so_far.append(later if valid is None else torch.where(valid[step], later, so_far[-1]))
            self.sums.copy_(so_far[-1])
            sums = torch.cat(so_far[1:], -1)
        self.reward_moments.update(sums if valid is None else sums[..., valid.flatten()])
        return divided(error, self.reward_moments.variance.sqrt().to(error.dtype))


def _squared_error(
    pieces: Pieces, inputs: Float[Tensor, "l n d"], targets: Float[Tensor, "l n o"]
) -> Float[Tensor, "l n"]:
    predicted = applied(pieces, "predictor", inputs, PREDICTOR_ACTIVATIONS)
    return (predicted - targets).square().mean(-1)


def _loss(
    pieces: Pieces, inputs: Float[Tensor, "l n d"], targets: Float[Tensor, "l n o"]
) -> tuple[Float[Tensor, " l"], Float[Tensor, "l 1"]]:
    loss = _squared_error(pieces, inputs, targets).mean(-1)
    return loss, loss.unsqueeze(-1)
