"""The bonus for any off-policy agent, such as SAC or DQN."""

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
    check_shapes,
    check_targets,
    concatenated,
    detached,
)
from vcse.integrations.networks import DiscreteQNetwork, Observations, QNetwork, Shape


class ReplayBonus(BonusPart):
    """Computes the bonus of a batch from a replay buffer: add it to the rewards before targets are computed.

    Each call also trains the extrinsic critic on the batch's rewards, which must be those of the task alone: do not
    change the stored rewards.

    Args:
        policy: Computes the agent's actions without exploration: the mean, or the most probable action.
        shape: Of one observation: [size], [height, width, channels] or [channels, height, width]; for dictionaries of
            observations, one shape per name. Not needed if `critic` and `encoder` are given.
        action_size: Dimensions of an action, if they are continuous. Not needed if `critic` is given.
        actions: Number of actions, if they are discrete, in place of `action_size`.
        bonus: The bonus; `ValueConditionalStateEntropy()` if not given.
        beta: The weight of the bonus.
        encoder: Computes the features in which nearest neighbours are searched. If not given, small vectors are their
            own features, and a `RandomEncoder` encodes all else.
        critic: The extrinsic critic: computes Q-values of observations and actions, `[n]` or `[n, 1]`. A `QNetwork` if
            not given, or a `DiscreteQNetwork`.
        discount: γ of the agent.
        target_rate: Of the extrinsic target critic (τ).
        learning_rate: Of the extrinsic critic.
        seed: Of the extrinsic critic and the encoder.

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

    provides = frozenset(("values", "rewards", "actions", "next_features"))
    # A check takes a good part of a gradient step's time, and before the critic has learned anything its values say
    # nothing about the bonus.
    check_every = 250

    def __init__(
        self,
        policy: Callable[[Any], Tensor],  # of one tensor, or of a dictionary
        shape: Shape | None = None,
        action_size: int | None = None,
        *,
        actions: int | None = None,
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
            if shape is not None and action_size is not None and actions is None:
                critic = QNetwork(shape, action_size, seed=seed)
            elif shape is not None and actions is not None and action_size is None:
                critic = DiscreteQNetwork(shape, actions, seed=seed)
            else:
                raise ValueError("pass a critic, or shape and action_size, or shape and actions if they are discrete")
        super().__init__(critic, shape, bonus=bonus, encoder=encoder, beta=beta, learning_rate=learning_rate, seed=seed)
        self.target_critic = copy.deepcopy(critic).requires_grad_(False)
        both = zip(self.target_critic.parameters(), critic.parameters(), strict=True)
        self._target_parameters: list[Tensor] = [target for target, trained in both if trained.requires_grad]
        self._has_buffers = any(True for _ in critic.buffers())
        self._policy = [policy]  # in a list, so that the agent's parameters do not become this module's
        self.discount, self.target_rate, self.is_discrete = discount, target_rate, actions is not None

    def forward(
        self,
        observations: Observations,
        actions: Shaped[Tensor, "n ..."],
        rewards: Float[Tensor, " n"] | Float[Tensor, "n 1"],
        next_observations: Observations,
        terminated: Shaped[Tensor, " n"] | Shaped[Tensor, "n 1"],
        *,
        discount: Float[Tensor, " n"] | Float[Tensor, "n 1"] | None = None,
        learn: bool = True,
    ) -> Float[Tensor, " n"] | Float[Tensor, "n 1"]:
        """Return beta times the bonus of each state, in the shape of the rewards, and train the extrinsic critic.

        Args:
            observations: `[n, ...]`.
            actions: `[n, ...]`; discrete ones `[n]` or `[n, 1]`.
            rewards: Of the task, without the bonus: `[n]`, or `[n, 1]` as many replay buffers have them.
            next_observations: After each action, before any reset.
            terminated: Whether the task terminated; truncation by a time limit does not count.
            discount: γ of each transition if they differ, such as γⁿ for n-step returns.
            learn: False computes the bonus and changes nothing, for evaluation or logging: the critic, the statistics
                and the memory of the bonus, and `metrics()` stay as they are. `eval()` does not have this effect.
        """
        shape = rewards.shape
        if len(shape) not in (1, 2) or shape[1:].numel() != 1:
            raise ValueError(f"rewards must have shape [n] or [n, 1], got {tuple(shape)}")
        rewards, actions = detached(rewards).reshape(-1), detached(actions)
        if self.is_discrete and actions.ndim > 1:
            actions = actions.squeeze(-1)
        not_terminated = 1 - terminated.reshape(-1).float()
        gamma = self.discount if discount is None else discount.reshape(-1)
        check_rewards(rewards)
        check_shapes(tuple(rewards.shape), observations, next_observations, actions=actions, terminated=not_terminated)
        observations, next_observations = (apply(detached, each) for each in (observations, next_observations))
        with torch.no_grad():
            both = concatenated(observations, next_observations)
            # A policy may autocast by itself: its actions get the type of those in the batch.
            values, next_values = self.target_critic(both, self._policy[0](both).to(actions.dtype)).reshape(2, -1)
            targets = rewards + gamma * not_terminated * next_values
            check_targets(targets)
            # Before the critic learns: a batch that the bonus refuses must not have changed the critic.
            bonus = self._weighted_bonus(
                self.encoder(observations),
                rewards,
                learn=learn,
                values=lambda: values,
                actions=lambda: actions,
                next_features=lambda: self.encoder(next_observations),
            )
        if learn:
            self._train_critic(observations, actions, targets.to(values.dtype))
        return bonus.view(shape)

    def _train_critic(self, observations: Observations, actions: Tensor, targets: Float[Tensor, " n"]) -> None:
        """Take one gradient step, and update the target critic."""
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
