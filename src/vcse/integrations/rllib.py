"""Exploration bonuses for the agents of RLlib's new API stack, as a learner class.

    config = PPOConfig().environment("CartPole-v1").learners(learner_class=PPOBonusLearner)

`learners(learner_config_dict={"bonus": {"beta": 0.01, "decay_steps": 500_000}})` sets options;
`BonusOptions` lists them.
"""

import abc
import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

import torch
from torch import Tensor, nn

from vcse.bonuses.base import Bonus
from vcse.extras import install
from vcse.integrations.base import (
    BETA,
    BonusPart,
    apply,
    check_decay_steps,
    check_enough_states,
    chosen_bonus,
    decayed,
)
from vcse.integrations.networks import DiscreteQNetwork, Observations, QNetwork, Shape, evaluating
from vcse.integrations.replay import ReplayBonus
from vcse.integrations.rollout import RolloutBonus
from vcse.integrations.versions import check_version

try:
    import ray
    from gymnasium import spaces
    from ray.rllib.algorithms.dqn.torch.dqn_torch_learner import DQNTorchLearner
    from ray.rllib.algorithms.ppo.torch.ppo_torch_learner import PPOTorchLearner
    from ray.rllib.algorithms.sac.torch.sac_torch_learner import SACTorchLearner
    from ray.rllib.connectors.common.numpy_to_tensor import NumpyToTensor
    from ray.rllib.connectors.connector_v2 import ConnectorV2
    from ray.rllib.core import DEFAULT_MODULE_ID, Columns
    from ray.rllib.core.distribution.torch.torch_distribution import TorchSquashedGaussian
    from ray.rllib.core.learner.torch.torch_learner import TorchLearner
    from ray.rllib.utils.metrics import NUM_ENV_STEPS_SAMPLED_LIFETIME
    from ray.rllib.utils.torch_utils import copy_torch_tensors
except ImportError as error:
    raise ImportError(f"vcse.integrations.rllib needs Ray's RLlib ({error}): {install('rllib')}") from error

check_version("ray", ray.__version__, least="2.60", below="2.61", extra="rllib")

BONUS = "bonus"  # the key in learner_config_dict, in a learner's state and in a module's results
TARGET_RATE = 0.005  # of the extrinsic critic's target, for agents whose own target is copied as a whole
SUPPORTED = ("PPO", "SAC", "DQN")


@dataclass(frozen=True)
class BonusOptions:
    """The options of `learner_config_dict={"bonus": {...}}`.

    Args:
        k: Which nearest neighbour; 12 if not given. Only where `bonus` is not given.
        beta: The weight of the bonus: its standard deviation, in units of the reward.
        bonus: Any bonus; each learner uses a copy. `ValueConditionalStateEntropy(k=k)` if not given.
        decay_steps: Environment steps over which beta falls linearly to 0; beta is constant if not given, since RLlib
            does not know how long it trains.
        encoder: Computes the features in which nearest neighbours are searched. If not given, small vectors are their
            own features, and a `RandomEncoder` encodes all else.
        learning_rate: Of the extrinsic critic. If not given, 1e-3 for PPO and 3e-4 for SAC and DQN.
        epochs: Passes of the extrinsic critic over a rollout; the agent's `num_epochs` if not given. PPO only.
        batch_size: States per gradient step of the extrinsic critic. PPO only.
        seed: Of the extrinsic critic, the encoder and the order of minibatches.
    """

    k: int | None = None
    beta: float = BETA
    bonus: Bonus | None = None
    decay_steps: int | float | None = None
    encoder: nn.Module | None = None
    learning_rate: float | None = None
    epochs: int | None = None
    batch_size: int = 256
    seed: int = 0

    def __post_init__(self) -> None:
        if self.bonus is not None and self.k is not None:
            raise ValueError(f"k={self.k} belongs to the default bonus, and bonus is given: pass one of the two")
        check_decay_steps(self.decay_steps)

    @classmethod
    def from_config(cls, config: Any) -> "BonusOptions":
        """Return the options that an algorithm's configuration sets."""
        given = config.learner_config_dict.get(BONUS, {})
        if not isinstance(given, Mapping):
            raise ValueError(f"learner_config_dict[{BONUS!r}] must be a dictionary of options, got {given!r}")
        names = [each.name for each in fields(cls)]
        unknown = [name for name in given if name not in names]
        if unknown:
            raise ValueError(
                f"learner_config_dict[{BONUS!r}] has {', '.join(map(repr, unknown))}; options are {', '.join(names)}"
            )
        return cls(**given)

    def beta_at(self, steps: int | float) -> float:
        """Compute the weight of the bonus after a number of environment steps."""
        return decayed(self.beta, steps, math.inf if self.decay_steps is None else self.decay_steps)

    def part_arguments(self) -> dict[str, Any]:
        """Return the arguments that `RolloutBonus` and `ReplayBonus` share."""
        # Copies, since a learner's checkpoints contain its configuration, which must stay as it was given.
        bonus = copy.deepcopy(chosen_bonus(self.bonus, self.k))
        encoder = copy.deepcopy(self.encoder)
        rate = {} if self.learning_rate is None else {"learning_rate": self.learning_rate}
        return {"bonus": bonus, "beta": self.beta, "encoder": encoder, "seed": self.seed, **rate}


class BonusLearner(TorchLearner):
    """A mixin for learners of RLlib: adds a bonus to the rewards of train batches, saves it and logs it.

    The bonus joins the rewards before advantages or targets are computed; episodes, stored ones among them, keep the
    task's own. The learner's checkpoints have its state and the module's results have its metrics, both under "bonus".
    """

    part: BonusPart  # the extrinsic critic, the encoder and the bonus

    def build(self) -> None:
        """Build the learner, and insert the bonus into its pipeline before rewards are used."""
        self.options = BonusOptions.from_config(self.config)
        self._check_config()
        super().build()
        arguments = self.options.part_arguments()
        states = self.config.train_batch_size_per_learner
        given = f"a train batch has {states}"
        check_enough_states(arguments["bonus"], states, given, size="train_batch_size_per_learner")
        self.part = self._make_part(**arguments).to(self._device)
        pipeline = self._learner_connector
        if pipeline is None or not any(type(each) is NumpyToTensor for each in pipeline.connectors):
            raise ValueError(
                "the bonus is added after NumpyToTensor, which the learner's pipeline does not have: leave "
                "add_default_connectors_to_learner_pipeline=True"
            )
        pipeline.insert_after(NumpyToTensor, AddBonus(self._add_bonus))

    def before_gradient_based_update(self, *, timesteps: dict[str, Any]) -> None:
        """Set the weight of the bonus."""
        super().before_gradient_based_update(timesteps=timesteps)
        self.part.beta = self.options.beta_at(timesteps.get(NUM_ENV_STEPS_SAMPLED_LIFETIME, 0))

    def get_state(self, components: Any = None, *, not_components: Any = None, **kwargs: Any) -> dict[str, Any]:
        """Return the state of the learner and of its bonus."""
        state: dict[str, Any] = super().get_state(components, not_components=not_components, **kwargs)
        if self._check_component(BONUS, components, not_components):
            # Tensors that are on the CPU already are not copied by the inner call.
            state[BONUS] = copy.deepcopy(copy_torch_tensors(dict(self.part.state_dict()), device="cpu"))
        return state

    def set_state(self, state: dict[str, Any]) -> None:
        """Load what `get_state` returned; the state of a plain learner leaves the bonus as it is."""
        super().set_state(state)
        if BONUS not in state:
            return
        try:
            self.part.load_state_dict(state[BONUS])
        except (RuntimeError, ValueError, KeyError) as error:
            raise ValueError(
                "the checkpoint has the state of another bonus, encoder or critic: set learner_config_dict"
                f"[{BONUS!r}] as it was when the checkpoint was saved"
            ) from error

    @abc.abstractmethod
    def _make_part(self, **arguments: Any) -> BonusPart:
        """Return the extrinsic critic, the encoder and the bonus of this learner."""

    @abc.abstractmethod
    def _compute_bonus(self, batch: dict[str, Any]) -> Tensor:
        """Compute beta times the bonus of a train batch, of the shape of its rewards."""

    def _add_bonus(self, batch: dict[str, Any]) -> None:
        """Add the bonus to the rewards of a train batch, and log it."""
        rewards = batch[Columns.REWARDS]
        batch[Columns.REWARDS] = rewards + self._compute_bonus(batch).to(rewards.dtype)
        metrics = {name.removeprefix("bonus/"): value for name, value in self.part.metrics().items()}
        # Under the module, since RLlib takes other keys at that level for names of modules.
        self.metrics.log_dict(metrics, key=(DEFAULT_MODULE_ID, BONUS), window=1)

    def _check_config(self) -> None:
        """Raise ValueError for a configuration that is not supported."""
        config = self.config
        default: Any = config.get_default_learner_class()
        if not isinstance(self, default):
            supported = ", ".join(f"{name}Config by {name}BonusLearner" for name in SUPPORTED)
            raise ValueError(
                f"{type(config).__name__} is not supported by {type(self).__name__}; supported are {supported}"
            )
        if config.num_learners > 1:
            raise ValueError(
                f"num_learners must be 0 or 1, got {config.num_learners}: each learner would train an extrinsic critic "
                "of its own, and they would diverge"
            )
        if config.is_multi_agent:
            raise ValueError(f"multi-agent configurations are not supported, got policies {', '.join(config.policies)}")

    def _rl_module(self) -> Any:
        return self.module[DEFAULT_MODULE_ID].unwrapped()


class RolloutBonusLearner(BonusLearner):
    """A mixin for learners like PPO's, whose train batches are episodes, one after the other."""

    part: RolloutBonus

    def _make_part(self, **arguments: Any) -> RolloutBonus:
        config: Any = self.config
        bonus, epochs = arguments["bonus"], self.options.epochs
        if bonus.environments is not None and config.batch_mode != "complete_episodes":
            raise ValueError(
                f"{type(bonus).__name__} depends on the order of steps, and batch_mode={config.batch_mode!r} splits "
                "episodes: set env_runners(batch_mode='complete_episodes')"
            )
        return RolloutBonus(
            shape_of(self._rl_module().observation_space),
            discount=config.gamma,
            gae_lambda=config.lambda_,
            epochs=config.num_epochs if epochs is None else epochs,
            batch_size=self.options.batch_size,
            **arguments,
        )

    def _compute_bonus(self, batch: dict[str, Any]) -> Tensor:
        rewards = batch[Columns.REWARDS]

        def rows(each: Tensor) -> Tensor:
            return each.flatten(0, rewards.ndim - 1).unsqueeze(1)  # [steps, 1], as of one environment

        # RLlib has appended an artificial step to each episode, with its last observation, and padding to the last
        # sequence of each where the module is recurrent. So row t + 1 follows row t, and the loss mask is False at rows
        # that are no transitions.
        observations = apply(rows, batch[Columns.OBS])
        terminated, truncated = rows(batch[Columns.TERMINATEDS]).bool(), rows(batch[Columns.TRUNCATEDS]).bool()
        bonus: Tensor = self.part(
            observations,
            rows(rewards),
            apply(lambda each: each.roll(-1, 0), observations),
            terminated,
            terminated | truncated,
            valid=rows(batch[Columns.LOSS_MASK]),
            actions=rows(batch[Columns.ACTIONS]) if "actions" in self.part.needs else None,
        )
        return bonus.view_as(rewards)


class ReplayBonusLearner(BonusLearner):
    """A mixin for learners like those of SAC and DQN, whose train batches are transitions from a replay buffer."""

    part: ReplayBonus

    def _make_part(self, **arguments: Any) -> ReplayBonus:
        config: Any = self.config
        module = self._rl_module()
        if module.is_stateful():
            raise ValueError(f"{type(module).__name__} is recurrent, which is supported for PPO only")
        shape, actions, seed = shape_of(module.observation_space), module.action_space, self.options.seed
        if isinstance(actions, spaces.Discrete):
            critic: nn.Module = DiscreteQNetwork(shape, int(actions.n), seed=seed)
        else:  # Box: RLlib has no replay agent for any other
            critic = QNetwork(shape, math.prod(actions.shape), seed=seed)
        target_rate = config.tau if 0 < config.tau < 1 else TARGET_RATE
        policy = DeterministicPolicy(module)
        return ReplayBonus(policy, shape, critic=critic, discount=config.gamma, target_rate=target_rate, **arguments)

    def _compute_bonus(self, batch: dict[str, Any]) -> Tensor:
        return self.part(
            batch[Columns.OBS],
            batch[Columns.ACTIONS],
            batch[Columns.REWARDS],
            batch[Columns.NEXT_OBS],
            batch[Columns.TERMINATEDS],
            discount=self.part.discount ** batch["n_step"],
        )


class PPOBonusLearner(RolloutBonusLearner, PPOTorchLearner):
    """A learner of PPO with a bonus: `PPOConfig().learners(learner_class=PPOBonusLearner)`.

    Example:
        >>> from ray.rllib.algorithms.ppo import PPOConfig
        >>> from vcse.integrations.rllib import PPOBonusLearner
        >>> config = PPOConfig().environment("CartPole-v1").learners(learner_class=PPOBonusLearner)
        >>> config = config.learners(learner_config_dict={"bonus": {"beta": 0.01, "decay_steps": 500_000}})
        >>> config.learner_class.__name__
        'PPOBonusLearner'
    """


class SACBonusLearner(ReplayBonusLearner, SACTorchLearner):  # type: ignore[misc] # RLlib's own bases disagree
    """A learner of SAC with a bonus: `SACConfig().learners(learner_class=SACBonusLearner)`."""


class DQNBonusLearner(ReplayBonusLearner, DQNTorchLearner):
    """A learner of DQN with a bonus: `DQNConfig().learners(learner_class=DQNBonusLearner)`."""


class AddBonus(ConnectorV2):
    """The piece of a learner's pipeline that adds the bonus to a train batch.

    Args:
        add: Adds the bonus to the rewards of a module's batch.
    """

    def __init__(self, add: Callable[[dict[str, Any]], None]) -> None:
        super().__init__()
        self.add = add

    def __call__(self, *, batch: dict[str, Any], **kwargs: Any) -> dict[str, Any]:
        """Return the batch with the bonus in its rewards."""
        self.add(batch[DEFAULT_MODULE_ID])
        return batch


class DeterministicPolicy:
    """The actions of a module without exploration. Computing them changes nothing in the module.

    Args:
        module: Of an agent with a replay buffer.
    """

    def __init__(self, module: Any) -> None:
        self.module, self.modules = module, [*module.modules()]

    @torch.no_grad()
    def __call__(self, observations: Observations) -> Tensor:
        """Compute the actions, in the form that train batches have."""
        with evaluating(self.modules):
            outputs = self.module.forward_inference({Columns.OBS: observations})
        actions: Any = outputs.get(Columns.ACTIONS)
        if actions is None:
            logits = outputs[Columns.ACTION_DIST_INPUTS]
            distribution = self.module.get_inference_action_dist_cls().from_logits(logits)
            if isinstance(distribution, TorchSquashedGaussian):  # whose to_deterministic() does not squash
                actions = distribution._squash(distribution.loc)
            else:
                actions = distribution.to_deterministic().sample()
        return torch.as_tensor(actions)


def shape_of(space: spaces.Space[Any]) -> Shape:
    """Return the shape of one observation of a space; one shape per key if the space is a Dict."""
    if isinstance(space, spaces.Dict):
        return {name: _box_shape(each, f" {name!r}") for name, each in space.spaces.items()}
    return _box_shape(space, "")


def _box_shape(space: spaces.Space[Any], name: str) -> tuple[int, ...]:
    if isinstance(space, spaces.Box) and len(space.shape) in (1, 3):
        return tuple(space.shape)
    shape = f" of shape {space.shape}" if isinstance(space, spaces.Box) else ""
    raise ValueError(
        f"the observation space{name} must be a Box of one axis or three, or a Dict of these, got "
        f"{type(space).__name__}{shape}; FlattenObservations, as an env_to_module_connector, turns others into vectors"
    )
