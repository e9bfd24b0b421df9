"""The bonus of on-policy agents of Stable-Baselines3."""

from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from jaxtyping import Bool, Float, Shaped
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import Tensor

from vcse.integrations.base import apply
from vcse.integrations.rollout import RolloutBonus
from vcse.returns import gae

Array = Shaped[np.ndarray, "..."]


class RolloutBonusCallback(BaseCallback):
    """Adds a bonus to the advantages and returns of each rollout.

    When a callback sees a rollout, its advantages have been computed. They are linear in the rewards, so that those of
    r + b are those of r plus those of b with all values 0.

    Args:
        part: The bonus and its extrinsic critic.
    """

    model: OnPolicyAlgorithm

    def __init__(self, part: RolloutBonus) -> None:
        super().__init__()
        self.part = part

    def _on_rollout_start(self) -> None:
        self._rewards: list[Array] = []
        self._dones: list[Array] = []
        # By step and environment, for episodes that ended: the last observation, and whether a time limit ended it.
        self._terminal: dict[tuple[int, int], tuple[Any, bool]] = {}

    def _on_step(self) -> bool:
        dones = np.array(self.locals["dones"], dtype=bool)
        for environment in np.flatnonzero(dones):
            info = self.locals["infos"][environment]
            if info.get("terminal_observation") is not None:
                index = len(self._dones), int(environment)
                self._terminal[index] = info["terminal_observation"], bool(info.get("TimeLimit.truncated", False))
        self._dones.append(dones)
        # A copy: where a time limit ends an episode, the agent adds γV of the last observation in place.
        self._rewards.append(np.array(self.locals["rewards"], dtype=np.float32))
        return True

    def _on_rollout_end(self) -> None:
        model, buffer = self.model, self.model.rollout_buffer
        ended = torch.from_numpy(np.stack(self._dones)).to(model.device)
        terminated = ended.clone()
        for index, (_, is_truncated) in self._terminal.items():
            terminated[index] = not is_truncated
        # Copies, aligned as PyTorch allocates memory: the last bits of results depend on that.
        observations = apply(partial(torch.tensor, device=model.device), buffer.observations)
        bonus = self.part(
            observations,
            torch.from_numpy(np.stack(self._rewards)).to(model.device),
            self._next_observations(observations),
            terminated,
            ended,
            actions=self._actions() if "actions" in self.part.needs else None,
            begins=torch.from_numpy(buffer.episode_starts[0].astype(bool)).to(model.device),
        )
        added = self._advantages(bonus, ended).cpu().numpy()
        buffer.advantages += added
        buffer.returns += added

    def _next_observations(self, observations: Any) -> Any:
        """Return the observation after each step: the next one in the buffer, or the last one of its episode."""
        last = [observation for observation, _ in self._terminal.values()]
        return apply(partial(_shifted, list(self._terminal)), observations, self.locals["new_obs"], *last)

    def _actions(self) -> Tensor:
        actions = torch.tensor(self.model.rollout_buffer.actions, device=self.model.device)
        return actions.squeeze(-1).long() if isinstance(self.model.action_space, spaces.Discrete) else actions

    def _advantages(
        self, bonus: Float[Tensor, "steps environments"], ended: Bool[Tensor, "steps environments"]
    ) -> Float[Tensor, "steps environments"]:
        """Compute the advantages of the bonus alone, with all values 0."""
        zeros = torch.zeros_like(bonus.T)
        discounts = {"discount": self.model.gamma, "gae_lambda": self.model.gae_lambda}
        return gae(bonus.T, zeros, zeros, ended.T, ended.T, **discounts).T


def _shifted(
    ends: list[tuple[int, int]], observations: Shaped[Tensor, "steps environments ..."], newest: Array, *last: Any
) -> Shaped[Tensor, "steps environments ..."]:
    """Return observations one step later, with the last observation of an episode where it ended.

    Args:
        ends: Where episodes ended, by step and environment.
        observations: As the buffer has them.
        newest: What follows the last step.
        last: The last observation of each of these episodes.
    """
    last_step = torch.as_tensor(newest, device=observations.device).reshape(observations[:1].shape)
    shifted = torch.cat((observations[1:], last_step.to(observations.dtype)))
    for index, each in zip(ends, last, strict=True):
        shifted[index] = torch.as_tensor(np.asarray(each), device=shifted.device).reshape(shifted[index].shape)
    return shifted
