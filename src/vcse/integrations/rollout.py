"""A bonus for agents that learn from rollouts, whatever library they come from."""

from functools import partial
from typing import Any

import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from vcse.bonuses.base import Bonus, check_order
from vcse.estimators.checks import checks_run
from vcse.integrations.base import (
    BETA,
    BonusPart,
    apply,
    check_rewards,
    check_shaped,
    check_targets,
    detached,
    explained_variance,
    in_pieces,
    joined,
)
from vcse.integrations.networks import Observations, Shape, ValueNetwork
from vcse.returns import gae


class RolloutBonus(BonusPart):
    """The bonus of a rollout: add what a call returns to the rewards, before advantages are computed.

    A call also trains the extrinsic critic on the rollout's rewards, which must be the task's own.

    Args:
        shape: Of one observation: [size], [height, width, channels] or [channels, height, width]; or several by name,
            where observations are dictionaries; None if `critic` and `encoder` are given.
        bonus: Which bonus; `ValueConditionalStateEntropy.recommended()` if not given.
        beta: Its weight.
        encoder: Turns observations into the features among which neighbours are looked for; if not given, small vectors
            are features as they are and all else passes through a `RandomEncoder`.
        critic: Turns observations into the value of the task's own rewards, `[n]` or `[n, 1]`; a `ValueNetwork` if not
            given.
        discount: γ, the agent's.
        gae_lambda: λ, the agent's; the critic learns the returns of λ.
        learning_rate: Of the critic.
        epochs: How often the critic sees a rollout.
        batch_size: States of each of its steps.
        seed: Of the critic, the encoder and the order of the states.

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
                raise ValueError("critic is needed where observations are of no single shape")
            critic = ValueNetwork(shape, seed=seed)
        gives = frozenset(("values", "rewards", "actions", "next_features", "episode_starts"))
        super().__init__(
            gives, critic, shape, bonus=bonus, encoder=encoder, beta=beta, learning_rate=learning_rate, seed=seed
        )
        self.discount, self.gae_lambda = discount, gae_lambda
        self.epochs, self.batch_size = epochs, batch_size
        self._begins: Bool[Tensor, " environments"] | None = None  # whether the next step is the first of its episode

    def forward(
        self,
        observations: Observations,
        rewards: Float[Tensor, "steps environments"],
        next_observations: Observations,
        terminated: Shaped[Tensor, "steps environments"],
        ended: Shaped[Tensor, "steps environments"],
        *,
        valid: Shaped[Tensor, "steps environments"] | None = None,
        actions: Shaped[Tensor, "steps environments ..."] | None = None,
        begins: Bool[Tensor, " environments"] | None = None,
    ) -> Float[Tensor, "steps environments"]:
        """Return beta times the bonus of each state, and train the extrinsic critic.

        Args:
            observations: `[steps, environments, ...]`.
            rewards: The task's own, without the bonus.
            next_observations: What each action led to, before any reset.
            terminated: Whether the task was over: nothing comes after. Booleans, or numbers that are 0 or 1.
            ended: Whether the episode ended there, be it by termination or by a time limit.
            valid: Which transitions are real; those of automatic resets and padding are not. All if not given.
            actions: What was done; needed by bonuses that look at it.
            begins: Whether the first step of each environment is the first of its episode. If not given, an episode
                that the last call did not end goes on.
        """
        if rewards.ndim != 2:
            raise ValueError(f"rewards must have shape [steps, environments], got {tuple(rewards.shape)}")
        rewards, terminated, ended = detached(rewards), terminated.bool(), ended.bool()
        valid = None if valid is None else valid.bool()
        shape = rewards.shape[0], rewards.shape[1]
        given = {"terminated": terminated, "ended": ended, "valid": valid, "actions": actions}
        check_shaped(shape, observations, next_observations, **given)
        self._check(rewards, terminated, ended, valid, actions)
        # Environment by environment, so that what follows a state in its episode follows it here.
        flat, flat_next = (apply(_by_environment, each) for each in (observations, next_observations))
        with torch.no_grad():
            values, next_values = in_pieces(self.critic, joined(flat, flat_next)).reshape(2, shape[1], shape[0])
            returns = self._returns(rewards, values, next_values, terminated, ended, valid)

            def kept(each: Tensor) -> Tensor:
                return each if valid is None else each[valid.T.flatten()]

            inputs, values = apply(kept, flat), values.flatten()
            check_targets(kept(returns.flatten()))
            known = explained_variance(kept(values), kept(returns.flatten()))
            self._critic_metrics = {"extrinsic_explained_variance": known}
            # A bonus that goes by the order of steps is shown all of them; what is not real is paid nothing.
            seen = kept if self.bonus.environments is None else lambda each: each
            starts = self._episode_starts(ended, valid, begins)
            paid = self._pay(
                in_pieces(self.encoder, apply(seen, flat)),
                seen(rewards.T.flatten()),
                values=lambda: seen(values),
                next_features=lambda: in_pieces(self.encoder, apply(seen, flat_next)),
                episode_starts=lambda: seen(starts.T.flatten()),
                **({} if actions is None else {"actions": partial(seen, _by_environment(actions))}),
            )
        self._train_critic(inputs, kept(returns.flatten()))
        return _by_step(paid, valid, shape)

    def _check(
        self, rewards: Tensor, terminated: Tensor, ended: Tensor, valid: Tensor | None, actions: Tensor | None
    ) -> None:
        """Raise ValueError for a rollout that cannot be paid."""
        if "actions" in self.needs and actions is None:
            raise ValueError(f"actions is needed by {type(self.bonus).__name__}")
        if valid is not None and not valid.any():
            raise ValueError("valid is False everywhere: there is no transition to pay")
        check_rewards(rewards, valid=valid)
        if checks_run(True, rewards):
            contradicts = terminated & ~ended & (True if valid is None else valid)
            if contradicts.any():
                raise ValueError(
                    f"ended must be True wherever terminated is, but is False at {int(contradicts.sum())} of "
                    f"{contradicts.numel()} steps: pass terminated | truncated"
                )
        check_order(self.bonus, rewards.shape[1])

    def _episode_starts(
        self,
        ended: Bool[Tensor, "steps environments"],
        valid: Bool[Tensor, "steps environments"] | None,
        begins: Bool[Tensor, " environments"] | None,
    ) -> Bool[Tensor, "steps environments"]:
        """Return which states are the first of an episode, and remember whether the next ones are."""
        begins = self._begins if begins is None else begins
        if begins is not None and begins.shape != ended.shape[1:]:
            begins = None  # other environments than those of the last call
        starts = episode_starts(ended, valid, begins)
        self._begins = (ended if valid is None else ended | ~valid)[-1].clone()
        return starts

    def get_extra_state(self) -> dict[str, Any]:
        """Return the part of the state that is no tensor of a module."""
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
        """Compute what the critic learns: V(s) and the advantage of λ, without transitions that are not real."""
        rewards = rewards.T.to(values.dtype)
        if valid is not None:
            rewards, values, next_values = (each.masked_fill(~valid.T, 0) for each in (rewards, values, next_values))
            ended = ended.clone()
            ended[:-1] |= ~valid[1:]
        advantages = gae(
            rewards,
            values,
            next_values,
            terminated.T,
            ended.T,
            discount=self.discount,
            gae_lambda=self.gae_lambda,
        )
        return values + advantages

    def _train_critic(self, observations: Observations, returns: Float[Tensor, " n"]) -> None:
        """Fit the critic to returns, in minibatches."""
        loss = returns.new_zeros(())
        for _ in range(self.epochs):
            order = torch.randperm(len(returns), generator=self.generator).to(returns.device)
            for rows in torch.split(order, self.batch_size):
                with torch.enable_grad():
                    values = self.critic(apply(lambda each: each[rows], observations))  # noqa: B023
                    loss = mse_loss(values.reshape(-1), returns[rows])
                self._learn(loss)
        self._critic_metrics["extrinsic_critic_loss"] = loss.detach()


def episode_starts(
    ended: Bool[Tensor, "steps environments"],
    valid: Bool[Tensor, "steps environments"] | None,
    begins: Bool[Tensor, " environments"] | None = None,
) -> Bool[Tensor, "steps environments"]:
    """Return which states are the first of an episode, or of what is known of it.

    Args:
        ended: Whether the episode ended there.
        valid: Which transitions are real.
        begins: Whether the first step of each environment is; all are if not given.
    """
    before = ended if valid is None else ended | ~valid
    first = torch.ones_like(ended[0]) if begins is None else begins.to(ended.device)
    return torch.cat((first.unsqueeze(0), before[:-1]))


def _by_environment(tensor: Shaped[Tensor, "steps environments ..."]) -> Shaped[Tensor, "_ ..."]:
    """Return the steps of the first environment, then those of the second, ..."""
    return detached(tensor).transpose(0, 1).flatten(0, 1)


def _by_step(
    paid: Float[Tensor, " n"], valid: Bool[Tensor, "steps environments"] | None, shape: tuple[int, ...]
) -> Float[Tensor, "steps environments"]:
    """Return what was paid, environment by environment, as [steps, environments]; 0 for what is not real."""
    steps, environments = shape
    if valid is not None:
        real = valid.T.flatten()
        everything = paid.new_zeros(steps * environments)
        everything[real] = paid[real] if len(paid) == len(real) else paid
        paid = everything
    return paid.view(environments, steps).T
