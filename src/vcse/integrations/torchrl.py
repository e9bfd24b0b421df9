"""Exploration bonuses for TorchRL: `RolloutReward` for PPO and A2C, `ReplayReward` for SAC, TD3, DDPG and DQN.

Both add the bonus to `("next", "reward")` before advantages or targets are computed, and keep the task's own reward as
`("next", "reward_extrinsic")`.
"""

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from jaxtyping import Bool
from torch import Tensor, nn

from vcse.extras import install
from vcse.integrations.networks import Observations, Shape, evaluating
from vcse.integrations.replay import ReplayBonus
from vcse.integrations.rollout import RolloutBonus
from vcse.integrations.versions import check_version

try:
    import torchrl
    from tensordict import TensorDict, TensorDictBase, unravel_key
    from tensordict.nn import TensorDictModuleBase
    from torchrl.envs import EnvBase
    from torchrl.envs.transforms import Compose, Transform
    from torchrl.envs.utils import ExplorationType, set_exploration_type
except ImportError as error:
    raise ImportError(f"vcse.integrations.torchrl needs torchrl: {install('torchrl')}") from error

check_version("torchrl", str(torchrl.__version__), least="0.14", below="0.15", extra="torchrl")

Key = str | tuple[Any, ...]  # nested
REWARD, EXTRINSIC, INTRINSIC = (("next", name) for name in ("reward", "reward_extrinsic", "reward_intrinsic"))
TERMINATED, DONE, MASK = ("next", "terminated"), ("next", "done"), ("collector", "mask")
STARTS, TRAJECTORIES = "is_init", ("collector", "traj_ids")  # of an InitTracker, and of a collector
STEPS = "steps_to_next_obs"  # of n-step returns


class RolloutReward(TensorDictModuleBase):  # type: ignore[misc]
    """Adds the bonus to the rewards of a collector's batch, for on-policy agents.

    Call it once on each batch, before the epochs in which advantages are computed; a second call changes nothing. In a
    `Trainer`, `register` does this. For bonuses that depend on the order of steps, an episode continues in the next
    batch where the collector's trajectory, or the `is_init` of an `InitTracker`, says so; without both, each batch
    starts episodes of its own.

    Args:
        bonus: The bonus, with its encoder and its extrinsic critic.
        in_keys: Of the observations; several are passed to the bonus as a dictionary.
        action_key: Of the actions, for bonuses that need them.

    Example:
        >>> import torch
        >>> from torchrl.envs import GymEnv
        >>> from vcse.integrations.torchrl import RolloutReward
        >>> env = GymEnv("CartPole-v1")
        >>> bonus = RolloutReward.from_env(env)
        >>> batch = bonus(env.rollout(64, break_when_any_done=False))
        >>> added = batch["next", "reward_extrinsic"] + batch["next", "reward_intrinsic"]
        >>> torch.equal(batch["next", "reward"], added)
        True
    """

    def __init__(
        self, bonus: RolloutBonus, *, in_keys: Sequence[Key] = ("observation",), action_key: Key = "action"
    ) -> None:
        super().__init__()
        self.bonus, self.action_key = bonus, action_key
        self.observation_keys = [unravel_key(key) for key in in_keys]
        next_keys = [unravel_key(("next", key)) for key in self.observation_keys]
        self.in_keys = [*self.observation_keys, *next_keys, REWARD, TERMINATED, DONE]
        self.out_keys = [REWARD, EXTRINSIC, INTRINSIC]
        self._last_trajectories: Tensor | None = None  # of each environment, at the end of the last batch

    @classmethod
    def from_env(cls, env: EnvBase, *, in_keys: Sequence[Key] = ("observation",), **options: Any) -> "RolloutReward":
        """Return a `RolloutReward` for an environment's observations.

        Args:
            env: Only its specs are read.
            in_keys: Of the observations.
            options: Arguments of `RolloutBonus`, such as beta, bonus, discount and gae_lambda.
        """
        return cls(RolloutBonus(_shape(env, in_keys), **options).to(env.device), in_keys=in_keys)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Add the bonus to the rewards of a batch, `[*environments, time]`, and train the extrinsic critic."""
        if _has_bonus(tensordict):
            return tensordict
        _check_keys(tensordict, self.in_keys, "call RolloutReward on what a collector returns")
        if not tensordict.ndim:
            raise ValueError("a batch of shape [] has no time axis: RolloutReward takes [*environments, time]")
        time = tensordict.names.index("time") if "time" in tensordict.names else tensordict.ndim - 1

        def steps(key: Key) -> Tensor:
            entry: Tensor = tensordict.get(key).movedim(time, 0)
            return entry.unsqueeze(1) if tensordict.ndim == 1 else entry.flatten(1, tensordict.ndim - 1)

        mask = tensordict.get(MASK, None)
        rewards = tensordict.get(REWARD)
        # Rows of trajectories that were split apart and padded are no environments: all of them begin.
        present = () if mask is not None else tensordict.keys(include_nested=True)
        bonus = self.bonus(
            _entries(self.observation_keys, steps),
            steps(REWARD).squeeze(-1),
            _entries(self.observation_keys, lambda key: steps(("next", key))),
            steps(TERMINATED).squeeze(-1),
            steps(DONE).squeeze(-1),
            valid=None if mask is None else steps(MASK).flatten(1),
            actions=steps(self.action_key) if "actions" in self.bonus.needs else None,
            begins=self._begins(steps, {key for key in (STARTS, TRAJECTORIES) if key in present}),
        )
        return _add(tensordict, rewards, bonus.reshape(rewards.movedim(time, 0).shape).movedim(0, time))

    def _begins(self, steps: Callable[[Key], Tensor], present: Collection[Key]) -> Bool[Tensor, " environments"]:
        """Return whether the first step of each environment starts an episode.

        Args:
            steps: Returns an entry of the batch, `[steps, environments, ...]`.
            present: Which of `is_init` and the collector's trajectories the batch has.
        """
        last, self._last_trajectories = self._last_trajectories, None
        begins = torch.full_like(steps(DONE)[0], not present, dtype=torch.bool).reshape(-1)
        if STARTS in present:
            begins |= steps(STARTS)[0].reshape(-1)
        if TRAJECTORIES in present:
            trajectories = steps(TRAJECTORIES).reshape(-1, len(begins))
            begins |= True if last is None or last.shape != begins.shape else trajectories[0] != last
            self._last_trajectories = trajectories[-1].clone()
        return begins

    def register(self, trainer: Any, name: str = "rollout_reward") -> None:
        """Register with a `Trainer`, which then calls this on each batch, logs its metrics and saves its state."""
        trainer.register_op("batch_process", self)
        trainer.register_op("pre_steps_log", lambda batch: self.bonus.metrics())
        trainer.register_module(name, self)


class ReplayReward(Transform):  # type: ignore[misc]
    """Adds the bonus to the rewards of batches from a replay buffer, for off-policy agents.

    Either call it on what `replay_buffer.sample()` returns, or append it to a replay buffer without prefetching, which
    then adds the bonus to all that is read from it. The rewards in `replay_buffer.storage` stay the task's own.

    Args:
        bonus: The bonus, with its encoder and its extrinsic critic. Its policy is a `DeterministicPolicy` if the actor
            takes other observations than those of `in_keys`.
        in_keys: Of the observations of the bonus and of the actor; several are passed on as a dictionary.
        action_key: Of the actions.

    Example:
        >>> import torch
        >>> from tensordict.nn import TensorDictModule
        >>> from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
        >>> from torchrl.envs import GymEnv
        >>> from vcse.integrations.torchrl import ReplayReward
        >>> env = GymEnv("Pendulum-v1")
        >>> actor = TensorDictModule(torch.nn.Linear(3, 1), in_keys=["observation"], out_keys=["action"])
        >>> buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(1000), batch_size=32)
        >>> _ = buffer.append_transform(ReplayReward.from_env(env, actor))
        >>> _ = buffer.extend(env.rollout(64))
        >>> batch = buffer.sample()
        >>> torch.equal(batch["next", "reward"], batch["next", "reward_extrinsic"] + batch["next", "reward_intrinsic"])
        True
    """

    def __init__(
        self, bonus: ReplayBonus, *, in_keys: Sequence[Key] = ("observation",), action_key: Key = "action"
    ) -> None:
        keys = [unravel_key(key) for key in in_keys]
        super().__init__(
            in_keys=[*keys, action_key, *(unravel_key(("next", key)) for key in keys), REWARD, TERMINATED],
            out_keys=[REWARD, EXTRINSIC, INTRINSIC],
        )
        self.bonus, self.observation_keys, self.action_key = bonus, keys, action_key
        self._thread: int | None = None  # in which it was appended to a replay buffer

    @classmethod
    def from_env(
        cls,
        env: EnvBase,
        actor: Callable[[TensorDictBase], TensorDictBase],
        *,
        in_keys: Sequence[Key] = ("observation",),
        action_key: Key = "action",
        **options: Any,
    ) -> "ReplayReward":
        """Return a `ReplayReward` for an environment's observations and actions, and an agent's actor.

        Args:
            env: Only its specs are read.
            actor: Writes the action into a tensordict. Its exploration, if any, must respect `set_exploration_type`.
            in_keys: Of the observations of the bonus.
            action_key: Of the actions.
            options: Arguments of `ReplayBonus`, such as beta, bonus, discount and target_rate.
        """
        bonus_keys = [unravel_key(key) for key in in_keys]
        needed = [unravel_key(key) for key in getattr(actor, "in_keys", in_keys)]
        keys = [*bonus_keys, *(key for key in needed if key not in bonus_keys)]
        action = env.full_action_spec_unbatched[action_key]
        if len(action.shape) != 1 and "critic" not in options:
            raise ValueError(
                f"actions of shape {tuple(action.shape)} are not supported by the default critic: use vectors or "
                "one-hot actions (categorical_action_encoding=False), or pass a critic"
            )
        actions = DeterministicPolicy(actor, keys, action_key)
        part = ReplayBonus(actions, _shape(env, in_keys), action.shape[-1] if action.shape else None, **options)
        if len(keys) > len(bonus_keys):  # the actor takes more observations than the bonus
            part.encoder, part.critic, part.target_critic = (
                SelectObservations(network, [_name(key) for key in bonus_keys])
                for network in (part.encoder, part.critic, part.target_critic)
            )
        return cls(part.to(env.device), in_keys=keys, action_key=action_key)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Add the bonus to the rewards of a batch, and train the extrinsic critic."""
        if self._thread not in (None, threading.get_ident()):
            raise ValueError(
                "ReplayReward was called from another thread than the one that appended it to the replay buffer. "
                "Several threads must not train its critic at once: create the buffer with prefetch=None, or do not "
                "append this transform and call it on what sample() returns"
            )
        if _has_bonus(tensordict):
            return tensordict
        _check_keys(tensordict, self.in_keys, "call ReplayReward on what a replay buffer samples")
        axes = tensordict.ndim

        def rows(key: Key) -> Tensor:
            entry: Tensor = tensordict.get(key)
            return entry.unsqueeze(0) if axes == 0 else entry.flatten(0, axes - 1)

        rewards, has_steps = tensordict.get(REWARD), tensordict.get(STEPS, None) is not None
        bonus = self.bonus(
            _entries(self.observation_keys, rows),
            rows(self.action_key),
            rows(REWARD),
            _entries(self.observation_keys, lambda key: rows(("next", key))),
            rows(TERMINATED),
            discount=self.bonus.discount ** rows(STEPS).reshape(-1) if has_steps else None,
        )
        return _add(tensordict, rewards, bonus.reshape(rewards.shape))

    def set_container(self, container: Any) -> None:
        """Set the container; raise ValueError if it is an environment."""
        super().set_container(container)
        while isinstance(container, Compose):
            outer = container.__dict__["_container"]
            container = outer and outer()
        if container is not None:
            raise ValueError(
                "a bonus needs a batch of states, and an environment has one at a time: append ReplayReward to a "
                "replay buffer, or call RolloutReward on what a collector returns"
            )
        self._thread = threading.get_ident()


class DeterministicPolicy:
    """The actions of an actor without exploration. Computing them changes nothing in the actor.

    Args:
        actor: Writes the action into a tensordict.
        keys: Of the actor's observations.
        action_key: Of the action.
    """

    def __init__(self, actor: Callable[[TensorDictBase], TensorDictBase], keys: Sequence[Key], action_key: Key) -> None:
        self.actor, self.keys, self.action_key = actor, list(keys), action_key
        self.modules = [*actor.modules()] if isinstance(actor, nn.Module) else []

    @torch.no_grad()
    def __call__(self, observations: Observations) -> Tensor:
        """Compute the actions."""
        entries = observations if isinstance(observations, Mapping) else {_name(self.keys[0]): observations}
        inputs = TensorDict(batch_size=[len(next(iter(entries.values())))])
        for key in self.keys:
            inputs.set(key, entries[_name(key)])
        with set_exploration_type(ExplorationType.DETERMINISTIC), evaluating(self.modules):
            actions: Tensor = self.actor(inputs).get(self.action_key)
        return actions


class SelectObservations(nn.Module):
    """A network that takes some of the observations: one as a tensor, several as a dictionary.

    Args:
        network: Takes observations, and actions too if it is a Q-function.
        names: Of the observations that the network takes.
    """

    def __init__(self, network: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.network, self.names = network, list(names)

    def forward(self, observations: Mapping[str, Tensor], *actions: Tensor) -> Tensor:
        """Compute the output of the network."""
        selected = {name: observations[name] for name in self.names}
        result: Tensor = self.network(selected[self.names[0]] if len(selected) == 1 else selected, *actions)
        return result


def _name(key: Key) -> str:
    return key if isinstance(key, str) else ".".join(key)


def _shape(env: EnvBase, keys: Sequence[Key]) -> Shape:
    """Return the shape of one observation; one shape per name if there are several keys."""
    spec = env.full_observation_spec_unbatched
    available = list(spec.keys(include_nested=True, leaves_only=True))
    for key in keys:
        if unravel_key(key) not in available:
            raise ValueError(f"in_keys has {key!r}, which is not among the environment's observations: {available}")
    shape: Shape = _entries([unravel_key(key) for key in keys], lambda key: tuple(spec[key].shape))
    return shape


def _entries(keys: Sequence[Key], entry: Callable[[Key], Any]) -> Any:
    """Return one entry as it is, or several as a dictionary."""
    entries = {_name(key): entry(key) for key in keys}
    return next(iter(entries.values())) if len(entries) == 1 else entries


def _has_bonus(tensordict: TensorDictBase) -> bool:
    """Return whether a batch has its bonus already. Raise ValueError if its reward was changed since."""
    if tensordict.get(EXTRINSIC, None) is None:
        return False
    if torch.equal(tensordict.get(REWARD), tensordict.get(EXTRINSIC) + tensordict.get(INTRINSIC)):
        return True
    raise ValueError(
        f"{REWARD} is no longer {EXTRINSIC} + {INTRINSIC}: the reward was changed after the bonus was added. Change "
        f"rewards before that; where a collector returns the same tensordict again (return_same_td), delete "
        f"{EXTRINSIC} from it first"
    )


def _check_keys(tensordict: TensorDictBase, keys: Sequence[Key], remedy: str) -> None:
    missing = [key for key in keys if tensordict.get(key, None) is None]
    if missing:
        raise ValueError(f"the batch has no {', '.join(map(repr, missing))}: {remedy}")


def _add(tensordict: TensorDictBase, rewards: Tensor, bonus: Tensor) -> TensorDictBase:
    # New tensors, since the batch may be a view of what a buffer stores.
    return tensordict.set(EXTRINSIC, rewards).set(INTRINSIC, bonus).set(REWARD, rewards + bonus)
