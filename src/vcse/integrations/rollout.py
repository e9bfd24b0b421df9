"""The bonus for any on-policy agent, such as PPO or A2C."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from vcse.bonuses.base import Bonus, check_order
from vcse.integrations.base import (
    BETA,
    BonusPart,
    apply,
    check_rewards,
    check_shapes,
    check_targets,
    concatenated,
    detached,
    explained_variance,
    in_chunks,
    rows_of,
)
from vcse.integrations.networks import Observations, Shape, ValueNetwork
from vcse.returns import gae


class RolloutBonus(BonusPart):
    """Computes the bonus of a rollout: add it to the rewards before advantages are computed.

    Each call also trains the extrinsic critic on the rollout's rewards, which must be those of the task alone.

    Args:
        shape: Of one observation: [size], [height, width, channels] or [channels, height, width]; for dictionaries of
            observations, one shape per name. Not needed if `critic` and `encoder` are given.
        bonus: The bonus; `ValueConditionalStateEntropy()` if not given.
        beta: The weight of the bonus.
        encoder: Computes the features in which nearest neighbours are searched. If not given, small vectors are their
            own features, and a `RandomEncoder` encodes all else.
        critic: The extrinsic critic: computes the values of observations, `[n]` or `[n, 1]`. A `ValueNetwork` if not
            given.
        discount: γ of the agent.
        gae_lambda: λ of the agent. The extrinsic critic learns the λ-returns.
        learning_rate: Of the extrinsic critic.
        epochs: Passes of the extrinsic critic over each rollout.
        batch_size: Of the extrinsic critic's minibatches.
        seed: Of the extrinsic critic, its minibatches and the encoder.

    Example:
        >>> import torch
        >>> from vcse.integrations import RolloutBonus
        >>> bonus = RolloutBonus((4,))
        >>> steps, environments = 64, 2
        >>> observations, next_observations = torch.rand(2, steps, environments, 4)
        >>> rewards, terminated = torch.zeros(steps, environments), torch.zeros(steps, environments, dtype=torch.bool)
        >>> rewards = rewards + bonus(observations, rewards, next_observations, terminated, terminated)
        >>> rewards.shape
        torch.Size([64, 2])
    """

    provides = frozenset(("values", "rewards", "actions", "next_features", "episode_starts"))

    def __init__(
        self,
        shape: Shape | None = None,
        *,
        bonus: Bonus | None = None,
        beta: float = BETA,
        encoder: nn.Module | None = None,
        critic: nn.Module | None = None,
        discount: float = 0.99,
        gae_lambda: float = 0.95,
        learning_rate: float = 1e-3,
        epochs: int = 10,
        batch_size: int = 256,
        seed: int = 0,
    ) -> None:
        if critic is None:
            if shape is None:
                raise ValueError("pass a critic, or the shape of an observation")
            critic = ValueNetwork(shape, seed=seed)
        super().__init__(critic, shape, bonus=bonus, encoder=encoder, beta=beta, learning_rate=learning_rate, seed=seed)
        self.discount, self.gae_lambda = discount, gae_lambda
        self.epochs, self.batch_size = epochs, batch_size
        self._begins: Bool[Tensor, " environments"] | None = None  # whether the next step starts an episode

    def forward(
        self,
        observations: Observations,
        rewards: Float[Tensor, "steps environments"],
        next_observations: Observations,
        terminated: Shaped[Tensor, "steps environments"],
        truncated: Shaped[Tensor, "steps environments"],
        *,
        valid: Shaped[Tensor, "steps environments"] | None = None,
        actions: Shaped[Tensor, "steps environments ..."] | None = None,
        begins: Shaped[Tensor, " environments"] | None = None,
        learn: bool = True,
    ) -> Float[Tensor, "steps environments"]:
        """Return beta times the bonus of each state, and train the extrinsic critic.

        Args:
            observations: `[steps, environments, ...]`.
            rewards: Of the task, without the bonus.
            next_observations: After each action, before any reset.
            terminated: Whether the task terminated. Booleans, or numbers that are 0 or 1.
            truncated: Whether a time limit, or anything else but the task, ended the episode. Where `terminated` is
                True, it may be either.
            valid: False for transitions to be left out: those of automatic resets, and padding. All are valid if not
                given.
            actions: Only for bonuses that need them.
            begins: Whether the first step of each environment starts an episode. If not given, episodes continue
                from the last call unless they ended there.
            learn: False computes the bonus and changes nothing, for evaluation or logging: the critic, the statistics
                and the memory of the bonus, and `metrics()` stay as they are. `eval()` does not have this effect.
        """
        if rewards.ndim != 2:
            raise ValueError(f"rewards must have shape [steps, environments], got {tuple(rewards.shape)}")
        shape = rewards.shape[0], rewards.shape[1]
        flags = {"terminated": terminated, "truncated": truncated, "valid": valid}
        check_shapes(shape, observations, next_observations, actions=actions, **flags)
        rewards, terminated, ended = detached(rewards), terminated.bool(), terminated.bool() | truncated.bool()
        valid = None if valid is None else valid.bool()
        self._check(rewards, valid, actions, begins)
        # Environment by environment, so that each state is followed by the next state of its episode.
        flat, flat_next = (apply(_by_environment, each) for each in (observations, next_observations))
        with torch.no_grad():
            values, next_values = in_chunks(self.critic, concatenated(flat, flat_next)).reshape(2, shape[1], shape[0])
            returns = self._returns(rewards, values, next_values, terminated, ended, valid)
            mask = None if valid is None else valid.T.flatten()

            def kept(each: Tensor) -> Tensor:
                return each if mask is None else each[mask]

            values, returns = values.flatten(), kept(returns.flatten())
            check_targets(returns)
            self._critic_metrics = {"extrinsic_explained_variance": explained_variance(kept(values), returns)}
            # A bonus that depends on the order of steps gets all of them, and the mask.
            is_ordered = self.bonus.environments is not None
            selected = (lambda each: each) if is_ordered else kept
            over = ended if valid is None else ended | ~valid
            starts = self._episode_starts(over, begins)
            bonus = self._weighted_bonus(
                in_chunks(self.encoder, apply(selected, flat)),
                selected(rewards.T.flatten()),
                learn=learn,
                valid=mask if is_ordered else None,
                values=lambda: selected(values),
                next_features=lambda: in_chunks(self.encoder, apply(selected, flat_next)),
                episode_starts=lambda: selected(starts.T.flatten()),
                **({} if actions is None else {"actions": partial(selected, _by_environment(actions))}),
            )
        if learn:
            self._train_critic(apply(kept, flat), returns)
            self._begins = over[-1].clone()
        return _by_step(bonus, valid, shape)

    def _check(self, rewards: Tensor, valid: Tensor | None, actions: Tensor | None, begins: Tensor | None) -> None:
        """Raise ValueError for a rollout whose bonus cannot be computed."""
        if "actions" in self.needs and actions is None:
            raise ValueError(f"actions is needed by {type(self.bonus).__name__}")
        if valid is not None and not valid.any():
            raise ValueError("valid is False everywhere: the rollout has no valid transition")
        if begins is not None and begins.shape != rewards.shape[1:]:
            environments = tuple(rewards.shape[1:])
            raise ValueError(f"begins must have shape [environments], {environments}, got {tuple(begins.shape)}")
        check_rewards(rewards, valid=valid)
        check_order(self.bonus, rewards.shape[1])

    def _episode_starts(
        self, over: Bool[Tensor, "steps environments"], begins: Shaped[Tensor, " environments"] | None
    ) -> Bool[Tensor, "steps environments"]:
        """Return which states start an episode, or the valid part of one.

        Args:
            over: Where one ends, or is not valid.
            begins: Whether the first states do; if not given, they do where the last call ended an episode.
        """
        first = self._begins if begins is None else begins.bool()
        if first is None or first.shape != over.shape[1:]:  # where the number of environments has changed
            first = torch.ones_like(over[0])
        return torch.cat((first.to(over.device).unsqueeze(0), over[:-1]))

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state that is not in parameters and buffers."""
        return super().get_extra_state() | {"begins": self._begins}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Load what `get_extra_state` returned."""
        super().set_extra_state(state)
        self._begins = state.get("begins")

    def _returns(
        self,
        rewards: Float[Tensor, "steps environments"],
        values: Float[Tensor, "environments steps"],
        next_values: Float[Tensor, "environments steps"],
        terminated: Bool[Tensor, "steps environments"],
        ended: Bool[Tensor, "steps environments"],
        valid: Bool[Tensor, "steps environments"] | None,
    ) -> Float[Tensor, "environments steps"]:
        """Compute the λ-returns, V(s) plus the advantage, as if invalid transitions ended their episodes."""
        rewards = rewards.T.to(values.dtype)
        if valid is not None:
            rewards, values, next_values = (each.masked_fill(~valid.T, 0) for each in (rewards, values, next_values))
            ended = ended.clone()
            ended[:-1] |= ~valid[1:]
        factors = {"discount": self.discount, "gae_lambda": self.gae_lambda}
        return values + gae(rewards, values, next_values, terminated.T, ended.T, **factors)

    def _train_critic(self, observations: Observations, returns: Float[Tensor, " n"]) -> None:
        """Fit the extrinsic critic to returns, in minibatches."""
        loss = returns.new_zeros(())
        for _ in range(self.epochs):
            order = torch.randperm(len(returns), generator=self.generator).to(returns.device)
            for rows in torch.split(order, self.batch_size):
                with torch.enable_grad():
                    values = self.critic(rows_of(observations, rows))
                    loss = mse_loss(values.reshape(-1), returns[rows])
                self._learn(loss)
        self._critic_metrics["extrinsic_critic_loss"] = loss.detach()


def _by_environment(tensor: Shaped[Tensor, "steps environments ..."]) -> Shaped[Tensor, "_ ..."]:
    """Return the steps of the first environment, then those of the second, and so on."""
    return detached(tensor).transpose(0, 1).flatten(0, 1)


def _by_step(
    bonus: Float[Tensor, " n"], valid: Bool[Tensor, "steps environments"] | None, shape: tuple[int, ...]
) -> Float[Tensor, "steps environments"]:
    """Return a bonus that is ordered by environment as [steps, environments], with 0 for invalid transitions."""
    steps, environments = shape
    if valid is not None:
        bonus = bonus.new_zeros(steps * environments).masked_scatter(valid.T.flatten(), bonus)
    return bonus.view(environments, steps).T
