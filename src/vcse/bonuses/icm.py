"""The Intrinsic Curiosity Module (Pathak et al. 2017): how badly the next state is foretold from state and action."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import cross_entropy, elu, relu

from vcse.bonuses.base import BonusBatch, BonusOutput, FeatureBonus
from vcse.bonuses.networks import Adam, LearnedRows, Pieces, applied, generators_of, in_shares
from vcse.bonuses.scaling import RewardScaling, ScalingName
from vcse.estimators.checks import check_booleans, checks_run, whole_number, wrong_shape

ENCODER_ACTIVATIONS = (elu, elu)
MODEL_ACTIVATIONS = (relu, None)

Actions = Int[Tensor, "*learners n"] | Float[Tensor, "*learners n a"]


class IntrinsicCuriosity(FeatureBonus):
    """Intrinsic Curiosity Module (ICM): half the squared error of a forward model in features that are learned.

    An encoder learns features that predict the action between two states (the inverse model); a forward model
    learns the features of the next state from those of the state and the action; its error ‖φ̂(s') − φ(s')‖²/2 is the
    reward. The paper's factor η is the weight of the bonus, beta. In the paper states are images, and the encoder has
    convolutions; here two layers are in their place.

    Args:
        dimensions: Of the features.
        actions: How many there are, where they are discrete: the inverse model's loss is their cross-entropy.
        action_size: Numbers of an action, where they are continuous, which they are not in the paper: the loss is half
            the squared error.
        forward_weight: Of the forward model's loss (β in the paper); the inverse model's has the rest.
        forward_trains_encoder: Let the forward model's loss reach the encoder too, as it does in the released code.
        encoded: Dimensions of the learned features.
        hidden_units: Of each hidden layer.
        learning_rate: Of Adam.
        epochs: How often a call of `learn` sees its batch.
        minibatches: Steps of an epoch.
        seed: Of the networks: one for all learners, or one for each. No other random number depends on it.
        learners: The size of the leading learner axis, or None where there is none.
        scaling: Mean and scale of the rewards: "raw" as the formula says, "centered" less the mean of the batch,
            "standardized" divided by its standard deviation too; or a `RewardScaling`.
        check_finite: Refuse NaN and infinity, and discrete actions that do not exist.

    Example:
        >>> import torch
        >>> from vcse.bonuses import BonusBatch, IntrinsicCuriosity
        >>> bonus = IntrinsicCuriosity(3, actions=4)
        >>> generator = torch.Generator().manual_seed(0)
        >>> features, next_features = torch.rand(2, 64, 3, generator=generator)
        >>> batch = BonusBatch(features, actions=torch.arange(64) % 4, next_features=next_features)
        >>> bonus(batch.features, actions=batch.actions, next_features=batch.next_features).reward.shape
        torch.Size([64])
        >>> sorted(bonus.learn(batch))
        ['forward_loss', 'inverse_loss']
    """

    needs_actions = True
    needs_next_features = True
    learns = True

    def __init__(
        self,
        dimensions: int,
        *,
        actions: int | None = None,
        action_size: int | None = None,
        forward_weight: float = 0.2,
        forward_trains_encoder: bool = False,
        encoded: int = 64,
        hidden_units: int = 256,
        learning_rate: float = 1e-3,
        epochs: int = 1,
        minibatches: int = 1,
        seed: int | Sequence[int] = 0,
        learners: int | None = None,
        scaling: ScalingName | RewardScaling = "raw",
        check_finite: bool = True,
    ) -> None:
        super().__init__(dimensions, learners=learners, scaling=scaling, check_finite=check_finite)
        if (actions is None) == (action_size is None):
            raise ValueError(
                "one of actions, how many discrete ones there are, and action_size, the numbers of a continuous one, "
                f"must be given, got actions={actions} and action_size={action_size}"
            )
        if not 0 <= forward_weight <= 1:
            raise ValueError(f"forward_weight must be from 0 to 1, got {forward_weight}")
        check_booleans(forward_trains_encoder=forward_trains_encoder)
        for name, number in (("encoded", encoded), ("hidden_units", hidden_units)):
            whole_number(name, number, least=1)
        self.is_discrete = actions is not None
        name, count = ("actions", actions) if self.is_discrete else ("action_size", action_size)
        self.action_size = whole_number(name, count, least=1)
        self.forward_weight, self.forward_trains_encoder = forward_weight, forward_trains_encoder
        sizes = {
            "encoder": (dimensions, hidden_units, encoded),
            "inverse": (2 * encoded, hidden_units, self.action_size),
            "forward": (encoded + self.action_size, hidden_units, encoded),
        }
        adam = Adam(learning_rate, epochs=epochs, minibatches=minibatches)
        self.networks = LearnedRows(sizes, generators_of(seed, learners), learners, adam)

    @torch.no_grad()
    def forward(
        self,
        features: Float[Tensor, "*learners n d"],
        *,
        actions: Actions,
        next_features: Float[Tensor, "*learners n d"],
    ) -> BonusOutput:
        """Compute the forward model's error of each transition."""
        rows = self._rows(features, actions, next_features)
        error = in_shares(self._error, self.networks.stack, *rows)
        return BonusOutput(error.view(features.shape[:-1]))

    def learn(self, batch: BonusBatch) -> dict[str, Float[Tensor, "*learners"]]:
        """Update all three networks on transitions."""
        losses = self.networks.fit(self._loss, *self._rows(batch.features, batch.actions, batch.next_features))
        forward, inverse = losses.view(*self.learner_shape, 2).unbind(-1)
        return {"forward_loss": forward, "inverse_loss": inverse}

    def _rows(
        self, features: Tensor, actions: Tensor | None, next_features: Tensor | None
    ) -> tuple[Float[Tensor, "l n d"], Float[Tensor, "l n a"], Float[Tensor, "l n d"]]:
        """Return transitions with a learner axis, and discrete actions as a 1 at their place."""
        now = self.checked("features", features, features)
        later = self.checked("next_features", next_features, features)
        if actions is None:
            raise ValueError(f"actions is needed by {type(self).__name__}")
        expected = features.shape[:-1] if self.is_discrete else (*features.shape[:-1], self.action_size)
        if actions.shape != expected:
            raise wrong_shape("actions", actions, str(tuple(expected)), "features", features)
        if actions.is_floating_point() == self.is_discrete:
            kind = "whole numbers" if self.is_discrete else "floating-point numbers"
            raise ValueError(f"actions must be {kind}, as the bonus was made for, got {actions.dtype}")
        if not self.is_discrete:
            return now, actions.detach().float().reshape(*now.shape[:2], -1), later
        if (
            checks_run(self.check_finite, actions)
            and not 0 <= int(actions.min()) <= int(actions.max()) < self.action_size
        ):
            raise ValueError(
                f"actions must be from 0 to {self.action_size - 1}, got {int(actions.min())} to {int(actions.max())}"
            )
        places = torch.arange(self.action_size, device=actions.device)
        return now, (actions.reshape(*now.shape[:2], 1) == places).float(), later

    def _encoded(self, pieces: Pieces, states: Float[Tensor, "l n d"]) -> Float[Tensor, "l n e"]:
        return applied(pieces, "encoder", states, ENCODER_ACTIVATIONS)

    def _error(
        self,
        rows: Float[Tensor, "l p"],
        states: Float[Tensor, "l n d"],
        actions: Float[Tensor, "l n a"],
        next_states: Float[Tensor, "l n d"],
    ) -> Float[Tensor, "l n"]:
        pieces = self.networks.pieces(rows)
        return _forward_error(pieces, self._encoded(pieces, states), actions, self._encoded(pieces, next_states))

    def _loss(
        self,
        pieces: Pieces,
        states: Float[Tensor, "l n d"],
        actions: Float[Tensor, "l n a"],
        next_states: Float[Tensor, "l n d"],
    ) -> tuple[Float[Tensor, " l"], Float[Tensor, "l 2"]]:
        """Return the weighted loss, and the losses of both models."""
        here, there = self._encoded(pieces, states), self._encoded(pieces, next_states)
        predicted = applied(pieces, "inverse", torch.cat((here, there), -1), MODEL_ACTIVATIONS)
        if self.is_discrete:
            off = cross_entropy(predicted.mT, actions.argmax(-1), reduction="none")
        else:
            off = (predicted - actions).square().sum(-1) / 2
        inverse = off.mean(-1)
        if not self.forward_trains_encoder:
            here, there = here.detach(), there.detach()
        forward = _forward_error(pieces, here, actions, there).mean(-1)
        loss = self.forward_weight * forward + (1 - self.forward_weight) * inverse
        return loss, torch.stack((forward, inverse), -1)


def _forward_error(
    pieces: Pieces, here: Float[Tensor, "l n e"], actions: Float[Tensor, "l n a"], there: Float[Tensor, "l n e"]
) -> Float[Tensor, "l n"]:
    predicted = applied(pieces, "forward", torch.cat((here, actions), -1), MODEL_ACTIVATIONS)
    return (predicted - there).square().sum(-1) / 2
