"""A bonus for the agents of TorchRL: `RolloutReward` for PPO, A2C and the like, `ReplayReward` for SAC, TD3, DDPG, DQN.

Both add the bonus to `("next", "reward")` before advantages or targets are computed, and keep the task's own reward as
`("next", "reward_extrinsic")`.
"""

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
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

Key = str | tuple[str, ...]
REWARD, EXTRINSIC, INTRINSIC = (("next", name) for name in ("reward", "reward_extrinsic", "reward_intrinsic"))
TERMINATED, DONE, MASK = ("next", "terminated"), ("next", "done"), ("collector", "mask")
STEPS = "steps_to_next_obs"  # of returns of several steps


class RolloutReward(TensorDictModuleBase):  # type: ignore[misc]
    """Pays the bonus of a batch that a collector returns: for agents that learn from rollouts.

    Called once on each batch, before the epochs in which advantages are computed; a batch that was paid is not paid
    again. In a `Trainer`, `register` puts it there.

    Args:
        bonus: The critic of the task's own rewards and the bonus, with all their settings.
        in_keys: The observations that it looks at; several are given to it as a dictionary.
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
        later = [_next(key) for key in self.observation_keys]
        self.in_keys = [*self.observation_keys, *later, REWARD, TERMINATED, DONE]
        self.out_keys = [REWARD, EXTRINSIC, INTRINSIC]

    @classmethod
    def from_env(cls, env: EnvBase, *, in_keys: Sequence[Key] = ("observation",), **choices: Any) -> "RolloutReward":
        """Return one for an environment's observations.

        Args:
            env: Only its specs are read.
            in_keys: The observations that it looks at.
            choices: Arguments of `RolloutBonus`, such as beta, bonus, discount and gae_lambda.
        """
        return cls(RolloutBonus(_shape(env, in_keys), **choices).to(env.device), in_keys=in_keys)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Add the bonus to the rewards of a batch, `[*environments, time]`, and train the extrinsic critic."""
        if _is_paid(tensordict):
            return tensordict
        _check_holds(tensordict, self.in_keys, "RolloutReward is called on what a collector returns")
        if not tensordict.ndim:
            raise ValueError("a batch of shape [] has no time: RolloutReward takes [*environments, time]")
        time = tensordict.names.index("time") if "time" in tensordict.names else tensordict.ndim - 1
        shape = tensordict.batch_size

        def steps(key: Key) -> Tensor:
            entry: Tensor = tensordict.get(key).movedim(time, 0)
            return entry.unsqueeze(1) if tensordict.ndim == 1 else entry.flatten(1, tensordict.ndim - 1)

        mask = tensordict.get(MASK, None)
        rewards = tensordict.get(REWARD)
        paid = self.bonus(
            _together(self.observation_keys, steps),
            steps(REWARD).squeeze(-1),
            _together(self.observation_keys, lambda key: steps(_next(key))),
            steps(TERMINATED).squeeze(-1),
            steps(DONE).squeeze(-1),
            valid=None if mask is None else steps(MASK).reshape(shape[time], -1),
            actions=steps(self.action_key) if "actions" in self.bonus.needs else None,
        )
        others = [size for axis, size in enumerate(shape) if axis != time]
        return _add(tensordict, rewards, paid.reshape(shape[time], *others).movedim(0, time).reshape(rewards.shape))

    def register(self, trainer: Any, name: str = "rollout_reward") -> None:
        """Pay the batches of a `Trainer`, and save with it."""
        trainer.register_op("batch_process", self)
        trainer.register_module(name, self)


class ReplayReward(Transform):  # type: ignore[misc]
    """Pays the bonus of batches sampled from a replay buffer, whose stored rewards stay the task's own.

    Either called on what `replay_buffer.sample()` returns, or appended to the replay buffer, which then pays whatever
    is read from it but for `replay_buffer.storage`; it must be one without prefetching.

    Args:
        bonus: The critic of the task's own rewards and the bonus, with all their settings; its policy is to be an
            `ActorActions` where observations are other than those of `in_keys`.
        in_keys: The observations that it looks at, and those of the actor; several are given to it as a dictionary.
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
            in_keys=[*keys, action_key, *map(_next, keys), REWARD, TERMINATED],
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
        **choices: Any,
    ) -> "ReplayReward":
        """Return one for an environment's observations and actions, and an agent's actor.

        Args:
            env: Only its specs are read.
            actor: The agent's: a module that writes the action, and may have an exploration that stands still where
                `ExplorationType` says so.
            in_keys: The observations that the bonus looks at.
            action_key: Of the actions.
            choices: Arguments of `ReplayBonus`, such as beta, bonus, discount and target_rate.
        """
        looked_at = [unravel_key(key) for key in in_keys]
        needed = [unravel_key(key) for key in getattr(actor, "in_keys", in_keys)]
        keys = [*looked_at, *(key for key in needed if key not in looked_at)]
        action = env.full_action_spec_unbatched[action_key]
        if len(action.shape) != 1 and "critic" not in choices:
            raise ValueError(
                f"actions of shape {tuple(action.shape)} are not supported: vectors are, and actions in one-hot "
                "encoding (categorical_action_encoding=False); or give a critic"
            )
        actions = ActorActions(actor, keys, action_key)
        part = ReplayBonus(actions, _shape(env, in_keys), action.shape[-1] if action.shape else None, **choices)
        if len(keys) > len(looked_at):  # the actor looks at more than the bonus does
            part.encoder, part.critic, part.target_critic = (
                SomeObservations(network, [_name(key) for key in looked_at])
                for network in (part.encoder, part.critic, part.target_critic)
            )
        return cls(part.to(env.device), in_keys=keys, action_key=action_key)

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        """Add the bonus to the rewards of a batch, and train the extrinsic critic."""
        if self._thread not in (None, threading.get_ident()):
            raise ValueError(
                "ReplayReward is called from another thread than the one that appended it to the replay buffer, where "
                "several batches at a time would train its critic: make the buffer with prefetch=None, or leave it "
                "without this transform and call this on what sample() returns"
            )
        if _is_paid(tensordict):
            return tensordict
        _check_holds(tensordict, self.in_keys, "ReplayReward is called on what a replay buffer samples")
        axes = tensordict.ndim

        def rows(key: Key) -> Tensor:
            entry: Tensor = tensordict.get(key)
            return entry.unsqueeze(0) if axes == 0 else entry.flatten(0, axes - 1)

        rewards, has_steps = tensordict.get(REWARD), tensordict.get(STEPS, None) is not None
        paid = self.bonus(
            _together(self.observation_keys, rows),
            rows(self.action_key),
            rows(REWARD),
            _together(self.observation_keys, lambda key: rows(_next(key))),
            rows(TERMINATED),
            discount=self.bonus.discount ** rows(STEPS).reshape(-1) if has_steps else None,
        )
        return _add(tensordict, rewards, paid.reshape(rewards.shape))

    def set_container(self, container: Any) -> None:
        """Remember who appended it; an environment is refused."""
        super().set_container(container)
        while isinstance(container, Compose):
            outer = container.__dict__["_container"]
            container = outer and outer()
        if container is not None:
            raise ValueError(
                "a bonus is of a batch of states, and an environment has one at a time: append ReplayReward to a "
                "replay buffer, or call RolloutReward on what a collector returns"
            )
        self._thread = threading.get_ident()


class ActorActions:
    """The actions that an actor would take if it did not explore, which leave no trace in it.

    Args:
        actor: A module that writes the action into a tensordict.
        keys: The observations that it is given.
        action_key: Where it writes the action.
    """

    def __init__(self, actor: Callable[[TensorDictBase], TensorDictBase], keys: Sequence[Key], action_key: Key) -> None:
        self.actor, self.keys, self.action_key = actor, list(keys), action_key
        self.modules = [*actor.modules()] if isinstance(actor, nn.Module) else []

    @torch.no_grad()
    def __call__(self, observations: Observations) -> Tensor:
        """Compute the actions."""
        each = observations if isinstance(observations, Mapping) else {_name(self.keys[0]): observations}
        given = TensorDict(batch_size=[len(next(iter(each.values())))])
        for key in self.keys:
            given.set(key, each[_name(key)])
        with set_exploration_type(ExplorationType.DETERMINISTIC), evaluating(self.modules):
            actions: Tensor = self.actor(given).get(self.action_key)
        return actions


class SomeObservations(nn.Module):
    """A network that looks at some of the observations: at one as it is, at several as a dictionary.

    Args:
        network: Of observations, and of actions where it is a critic.
        names: Of the observations that it looks at.
    """

    def __init__(self, network: nn.Module, names: Sequence[str]) -> None:
        super().__init__()
        self.network, self.names = network, list(names)

    def forward(self, observations: Mapping[str, Tensor], *actions: Tensor) -> Tensor:
        """Compute what the network says."""
        seen = {name: observations[name] for name in self.names}
        result: Tensor = self.network(seen[self.names[0]] if len(seen) == 1 else seen, *actions)
        return result


def _next(key: Key) -> tuple[str, ...]:
    return ("next", *((key,) if isinstance(key, str) else key))


def _name(key: Key) -> str:
    return key if isinstance(key, str) else ".".join(key)


def _shape(env: EnvBase, keys: Sequence[Key]) -> Shape:
    """Return the shape of one observation, or of several by name."""
    spec = env.full_observation_spec_unbatched
    known = list(spec.keys(include_nested=True, leaves_only=True))
    for key in keys:
        if unravel_key(key) not in known:
            raise ValueError(f"in_keys has {key!r}, which is none of the environment's observations: {known}")
    shapes = {_name(unravel_key(key)): tuple(spec[key].shape) for key in keys}
    return next(iter(shapes.values())) if len(shapes) == 1 else shapes


def _together(keys: Sequence[Key], entry: Callable[[Key], Tensor]) -> Observations:
    """Return one entry as it is, or several by name."""
    entries = {_name(key): entry(key) for key in keys}
    return next(iter(entries.values())) if len(entries) == 1 else entries


def _is_paid(tensordict: TensorDictBase) -> bool:
    """Return whether a batch was paid already, and refuse one whose reward was changed since."""
    if tensordict.get(EXTRINSIC, None) is None:
        return False
    if torch.equal(tensordict.get(REWARD), tensordict.get(EXTRINSIC) + tensordict.get(INTRINSIC)):
        return True
    raise ValueError(
        f"{REWARD} is no longer {EXTRINSIC} + {INTRINSIC}: the batch was paid, and its reward changed since. Change "
        f"rewards before they are paid; where a collector gives the same tensordict again (return_same_td), delete "
        f"{EXTRINSIC} from it first"
    )


def _check_holds(tensordict: TensorDictBase, keys: Sequence[Key], place: str) -> None:
    missing = [key for key in keys if tensordict.get(key, None) is None]
    if missing:
        raise ValueError(f"the batch has no {', '.join(map(repr, missing))}: {place}")


def _add(tensordict: TensorDictBase, rewards: Tensor, paid: Tensor) -> TensorDictBase:
    # New tensors, since the batch may be a view of what a buffer stores.
    return tensordict.set(EXTRINSIC, rewards).set(INTRINSIC, paid).set(REWARD, rewards + paid)
