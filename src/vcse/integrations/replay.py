"""A bonus for agents that learn from a replay, whatever library they come from."""

import copy
from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn
from torch.nn.functional import mse_loss

from vcse.bonuses.base import Bonus
from vcse.integrations.base import (
    BETA,
    BonusPart,
    apply,
    check_rewards,
    check_shaped,
    check_targets,
    detached,
    joined,
)
from vcse.integrations.networks import Observations, QNetwork, Shape


class ReplayBonus(BonusPart):
    """The bonus of a batch sampled from a replay: add what a call returns to the rewards, before targets are computed.

    A call also trains the extrinsic critic on the batch's rewards, which must be the task's own: what is stored stays
    as it is.

    Args:
        policy: Turns observations into the actions that the agent would take: its mean, or the likeliest.
        shape: Of one observation: [size], [height, width, channels] or [channels, height, width]; or several by name,
            where observations are dictionaries; None if `critic` and `encoder` are given.
        action_size: Numbers of an action; not needed if `critic` is given.
        bonus: Which bonus; `ValueConditionalStateEntropy.recommended()` if not given.
        beta: Its weight.
        encoder: Turns observations into the features among which neighbours are looked for; if not given, small vectors
            are features as they are and all else passes through a `RandomEncoder`.
        critic: Turns observations and actions into the value of the task's own rewards, `[n]` or `[n, 1]`; a `QNetwork`
            if not given.
        discount: γ, the agent's.
        target_rate: How far the target critic goes to the critic after each step (τ).
        learning_rate: Of the critic.
        seed: Of the critic and the encoder.

    Example:
        >>> import torch
        >>> from vcse.integrations import ReplayBonus
        >>> bonus = ReplayBonus(lambda observations: observations[:, :1].tanh(), (3,), 1)
        >>> observations, next_observations = torch.rand(2, 256, 3)
        >>> actions, rewards, terminated = torch.rand(256, 1), torch.zeros(256), torch.zeros(256)
        >>> rewards = rewards + bonus(observations, actions, rewards, next_observations, terminated)
        >>> rewards.shape
        torch.Size([256])
    """

    # Looking takes as long as a part of a gradient step; and of the first steps, before the critic knows anything, the
    # values are of no use, and say nothing.
    check_every = 250

    def __init__(
        self,
        policy: Callable[[Any], Tensor],  # of one tensor, or of a dictionary
        shape: Shape | None = None,
        action_size: int | None = None,
        *,
        bonus: Bonus | None = None,
        beta: float = BETA,
        encoder: nn.Module | None = None,
        critic: nn.Module | None = None,
        discount: float = 0.99,
        target_rate: float = 0.005,
        learning_rate: float = 3e-4,
        seed: int = 0,
    ) -> None:
        if critic is None:
            if shape is None or action_size is None:
                raise ValueError("critic is needed where shape and action_size are not given")
            critic = QNetwork(shape, action_size, seed=seed)
        gives = frozenset(("values", "rewards", "actions", "next_features"))
        super().__init__(
            gives, critic, shape, bonus=bonus, encoder=encoder, beta=beta, learning_rate=learning_rate, seed=seed
        )
        self.target_critic = copy.deepcopy(critic).requires_grad_(False)
        both = zip(self.target_critic.parameters(), critic.parameters(), strict=True)
        self._target_parameters: list[Tensor] = [target for target, learned in both if learned.requires_grad]
        self._has_buffers = any(True for _ in critic.buffers())
        self._policy = [policy]  # in a list, so that the agent's parameters are not taken for this module's
        self.discount, self.target_rate = discount, target_rate

    def forward(
        self,
        observations: Observations,
        actions: Shaped[Tensor, "n ..."],
        rewards: Float[Tensor, " n"] | Float[Tensor, "n 1"],
        next_observations: Observations,
        terminated: Shaped[Tensor, " n"] | Shaped[Tensor, "n 1"],
        *,
        discount: Float[Tensor, " n"] | Float[Tensor, "n 1"] | None = None,
    ) -> Float[Tensor, " n"]:
        """Return beta times the bonus of each state, and train the extrinsic critic.

        Args:
            observations: `[n, ...]`.
            actions: What was done.
            rewards: The task's own, without the bonus.
            next_observations: What it led to, before any reset.
            terminated: Whether the task was over: nothing comes after. A time limit is none.
            discount: γ of each transition where they differ, as γ to the power of n for returns of n steps.
        """
        rewards, actions = detached(rewards).reshape(-1), detached(actions)
        not_terminated = 1 - terminated.reshape(-1).float()
        gamma = self.discount if discount is None else discount.reshape(-1)
        check_rewards(rewards)
        check_shaped(tuple(rewards.shape), observations, next_observations, actions=actions, terminated=not_terminated)
        observations, next_observations = (apply(detached, each) for each in (observations, next_observations))
        with torch.no_grad():
            both = joined(observations, next_observations)
            values, next_values = self.target_critic(both, self._policy[0](both)).reshape(2, -1)
            targets = rewards + gamma * not_terminated * next_values
            check_targets(targets)
            # Paid first: a batch that the bonus refuses must not have changed the critic.
            paid = self._pay(
                self.encoder(observations),
                rewards,
                values=lambda: values,
                actions=lambda: actions,
                next_features=lambda: self.encoder(next_observations),
            )
        self._train_critic(observations, actions, targets.to(values.dtype))
        return paid

    def _train_critic(self, observations: Observations, actions: Tensor, targets: Float[Tensor, " n"]) -> None:
        """Take one step towards the targets, and let the target critic follow."""
        with torch.enable_grad():
            q_values = self.critic(observations, actions).reshape(-1)
            loss = mse_loss(q_values, targets)
        self._learn(loss)
        with torch.no_grad():
            torch._foreach_lerp_(self._target_parameters, self.optimizer.param_groups[0]["params"], self.target_rate)
            if self._has_buffers:
                for target, buffer in zip(self.target_critic.buffers(), self.critic.buffers(), strict=True):
                    target.copy_(buffer)
        self._critic_metrics |= {"extrinsic_critic_loss": loss.detach(), "extrinsic_q_mean": q_values.detach()}
