"""The bonus of off-policy agents of Stable-Baselines3."""

from functools import cache
from typing import Any

import torch
from gymnasium import spaces
from stable_baselines3.common.buffers import ReplayBuffer
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.distributions import SquashedDiagGaussianDistribution
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
from stable_baselines3.common.policies import BasePolicy
from torch import Tensor

from vcse.integrations.networks import Observations, evaluating
from vcse.integrations.replay import ReplayBonus

HOOK = "bonus_callback"  # the attribute of a replay buffer that is only there in training


class ReplayBonusCallback(BaseCallback):
    """Adds a bonus to the rewards of each batch that the agent samples in training; stored rewards stay as they are.

    Args:
        part: The bonus and its extrinsic critic.
    """

    model: OffPolicyAlgorithm

    def __init__(self, part: ReplayBonus) -> None:
        super().__init__()
        self.part = part
        self._start_time: float | None = None  # which identifies a training

    def _on_training_start(self) -> None:
        self.detach()  # from a training that was interrupted
        self._start_time = self.model.start_time
        buffer: Any = self.model.replay_buffer
        plain: Any = type(buffer)
        buffer.__class__ = with_bonus(plain)
        setattr(buffer, HOOK, self)

    def _on_step(self) -> bool:
        return True

    def _on_training_end(self) -> None:
        self.detach()

    @property
    def is_current(self) -> bool:
        """Whether the agent is in the training that this callback was passed to."""
        return self.model.start_time == self._start_time

    def detach(self) -> None:
        """Turn the agent's replay buffer back into a plain one."""
        buffer: Any = self.model.replay_buffer
        if HOOK in vars(buffer):
            delattr(buffer, HOOK)
            buffer.__class__ = type(buffer).plain

    def add_bonus(self, batch: Any) -> Any:
        """Return a batch with the bonus added to its rewards, and train the extrinsic critic.

        Args:
            batch: `ReplayBufferSamples`, or `DictReplayBufferSamples`.
        """
        is_discrete = isinstance(self.model.action_space, spaces.Discrete)
        bonus = self.part(
            batch.observations,
            batch.actions.reshape(-1) if is_discrete else batch.actions,
            batch.rewards,
            batch.next_observations,
            batch.dones,
            discount=batch.discounts,  # None but for returns of n steps
        )
        return batch._replace(rewards=batch.rewards + bonus)


class DeterministicPolicy:
    """The actions of a policy without exploration, as a replay buffer stores them, scaled to [-1, 1].

    Computing them changes nothing in the policy, whichever mode it is in.

    Args:
        policy: Of an off-policy agent.
    """

    def __init__(self, policy: BasePolicy) -> None:
        self.policy: Any = policy
        self.actor: Any = getattr(policy, "actor", None)
        self.modules = list((policy if self.actor is None else self.actor).modules())
        self.is_squashed = isinstance(getattr(self.actor, "action_dist", None), SquashedDiagGaussianDistribution)

    @torch.no_grad()
    def __call__(self, observations: Observations) -> Tensor:
        """Compute the action of each observation."""
        with evaluating(self.modules):
            actions: Tensor
            if self.is_squashed:  # making the distribution whose mode this is takes longer than the network
                actions = self.actor.get_action_dist_params(observations)[0].tanh()
            else:
                actions = self.policy._predict(observations, deterministic=True)
        return actions


@cache
def with_bonus(plain: type[ReplayBuffer]) -> type[ReplayBuffer]:
    """Return a subclass of a replay buffer that adds the bonus to what it samples, and is pickled as the plain class.

    Args:
        plain: The class of the agent's replay buffer.
    """

    class BonusReplayBuffer(plain):  # type: ignore[misc, valid-type]
        """A replay buffer that adds a bonus to what it samples."""

        def sample(self, *args: Any, **kwargs: Any) -> Any:
            """Return a batch with the bonus added to its rewards."""
            batch, callback = super().sample(*args, **kwargs), getattr(self, HOOK)
            if callback.is_current:
                return callback.add_bonus(batch)
            callback.detach()  # its training was interrupted, and this is another, without a bonus
            return batch

        def __reduce_ex__(self, protocol: Any) -> Any:
            # Protocol 1 can rebuild another class than the object's own; later protocols cannot.
            rebuild, (_, *bases), state = super().__reduce_ex__(1)
            return rebuild, (plain, *bases), {name: each for name, each in state.items() if name != HOOK}

    BonusReplayBuffer.plain = plain
    BonusReplayBuffer.__name__ = BonusReplayBuffer.__qualname__ = f"Bonus{plain.__name__}"
    return BonusReplayBuffer
