"""Exploration bonuses for the agents of Stable-Baselines3 and sb3-contrib, as one callback.

PPO("MlpPolicy", "CartPole-v1").learn(200_000, callback=ValueConditionalBonus())
"""

import copy
import io
import math
from typing import Any

import torch
from gymnasium import spaces
from torch import nn

from vcse.bonuses.base import Bonus
from vcse.extras import install
from vcse.integrations.base import (
    BETA,
    BonusPart,
    check_beta,
    check_decay_steps,
    check_enough_states,
    chosen_bonus,
    decayed,
)
from vcse.integrations.networks import DiscreteQNetwork, QNetwork, ValueNetwork, encoder_for
from vcse.integrations.replay import ReplayBonus
from vcse.integrations.rollout import RolloutBonus
from vcse.integrations.spaces import observation_shape
from vcse.integrations.versions import check_version

try:
    import stable_baselines3
    from stable_baselines3.common.callbacks import BaseCallback
    from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm
    from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm

    from vcse.integrations.sb3_replays import DeterministicPolicy, ReplayBonusCallback
    from vcse.integrations.sb3_rollouts import RolloutBonusCallback
    from vcse.integrations.sb3_spaces import SUPPORTED, Preprocessed
except ImportError as error:
    raise ImportError(f"vcse.integrations.sb3 needs stable-baselines3: {install('sb3')}") from error

check_version("stable-baselines3", stable_baselines3.__version__, least="2.9", below="3", extra="sb3")

ON_POLICY = ("PPO", "A2C", "TRPO", "MaskablePPO", "RecurrentPPO")
OFF_POLICY = ("SAC", "TD3", "DDPG", "DQN", "QRDQN", "TQC", "CrossQ")
STATE = "vcse_bonus"  # the attribute of a model that holds the state of its bonus
DISCRETE_HIDDEN_UNITS = 64  # as in the default networks of DQN and QRDQN
CONTINUOUS_HIDDEN_UNITS = 192  # with the 256 of SAC it explained returns as well, and a step took longer
TARGET_RATE = 0.005  # of the extrinsic target critic, for agents without slowly updated target networks


class BonusCallback(BaseCallback):
    """Adds an exploration bonus of any kind to the rewards that an agent learns from.

    The bonus joins the rewards before advantages or targets are computed; stored rewards stay the task's own. Its state
    is saved and loaded with the model, and its metrics are logged under "bonus/".

    Args:
        bonus: The bonus, of which each training uses a copy; `ValueConditionalStateEntropy()` if not given.
        beta: The weight of the bonus.
        decay_steps: Environment steps over which beta falls linearly to 0: those of the training if not given, and
            `math.inf` for a constant beta.
        encoder: Computes the features in which nearest neighbours are searched, from preprocessed observations: images
            and grids of cells as they are, one-hot vectors for discrete ones, a dictionary of these for a Dict. If not
            given, small vectors are their own features, and a `RandomEncoder` encodes all else.
        learning_rate: Of the extrinsic critic; 1e-3 for on-policy agents and 3e-4 for off-policy ones if not given.
        epochs: Of the extrinsic critic over each rollout; as many as the agent's own critic has if not given.
            On-policy agents only.
        batch_size: Of the extrinsic critic's minibatches; the agent's own if not given, 256 if it has none. On-policy
            agents only.
        seed: Of the extrinsic critic, its minibatches and the encoder.
        verbose: As for every callback of Stable-Baselines3.
    """

    def __init__(
        self,
        bonus: Bonus | None = None,
        *,
        beta: float = BETA,
        decay_steps: int | float | None = None,
        encoder: nn.Module | None = None,
        learning_rate: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        seed: int = 0,
        verbose: int = 0,
    ) -> None:
        super().__init__(verbose)
        check_beta(beta)
        check_decay_steps(decay_steps)
        self.bonus = chosen_bonus(bonus)
        self.beta, self.decay_steps, self.encoder, self.seed = beta, decay_steps, encoder, seed
        self.learning_rate, self.epochs, self.batch_size = learning_rate, epochs, batch_size
        self._child: RolloutBonusCallback | ReplayBonusCallback | None = None
        self._rollouts = 0

    @property
    def part(self) -> BonusPart:
        """The bonus of the last training, with its encoder and its extrinsic critic."""
        return self.child.part

    @property
    def child(self) -> RolloutBonusCallback | ReplayBonusCallback:
        """The callback of the last training that does the work for this kind of agent."""
        if self._child is None:
            raise ValueError("the bonus is built when training starts: pass this callback to learn() first")
        return self._child

    def _on_training_start(self) -> None:
        model, saved = self.model, vars(self.model).get(STATE)
        self._check(saved)
        self._child = self._build()
        self.part.to(model.device)
        if saved is not None:
            try:
                self.part.load_state_dict(saved.state_dict() if isinstance(saved, LiveState) else saved)
            except (RuntimeError, ValueError, KeyError) as error:
                raise ValueError(
                    f"the state in {type(model).__name__}.{STATE} is of another bonus, encoder or critic: pass the "
                    f"same ones as before, or start afresh with `del model.{STATE}`"
                ) from error
        setattr(model, STATE, LiveState(self.part, model.start_time))
        self._rollouts = 0
        self.child.init_callback(model)
        self.child.on_training_start(self.locals, self.globals)

    def update_child_locals(self, locals_: dict[str, Any]) -> None:
        """Pass the variables of the training loop on."""
        self.child.update_locals(locals_)

    def _on_rollout_start(self) -> None:
        model = self.model
        # Not `model._current_progress_remaining`, which in the first rollout still is that of the last training.
        decay_steps = model._total_timesteps if self.decay_steps is None else self.decay_steps
        self.part.beta = decayed(self.beta, model.num_timesteps, decay_steps)
        self.child.on_rollout_start()

    def _on_step(self) -> bool:
        if isinstance(self.model, OffPolicyAlgorithm) and self._episode_is_logged():
            self._log()
        return self.child.on_step()

    def _on_rollout_end(self) -> None:
        self.child.on_rollout_end()
        self._rollouts += 1
        if isinstance(self.model, OnPolicyAlgorithm):
            interval = self.locals.get("log_interval", 1)
            if interval is not None and self._rollouts % interval == 0:
                self._log()

    def _on_training_end(self) -> None:
        self.child.on_training_end()

    def _episode_is_logged(self) -> bool:
        """Return whether an off-policy agent, which logs every so many episodes, is about to do so."""
        ended, interval = int(self.locals["dones"].sum()), self.locals.get("log_interval")
        if ended == 0 or interval is None:
            return False
        episodes = vars(self.model)["_episode_num"]
        return bool((episodes + ended) // interval > episodes // interval)

    def _log(self) -> None:
        for name, number in self.part.metrics().items():
            self.logger.record(name, number)

    def _build(self) -> RolloutBonusCallback | ReplayBonusCallback:
        """Return the callback of the agent's kind, with a bonus that has learned nothing."""
        model, space, seed = self.model, self.model.observation_space, self.seed
        shape = observation_shape(space, *SUPPORTED)
        encoder = encoder_for(shape, seed=seed) if self.encoder is None else copy.deepcopy(self.encoder)
        arguments: dict[str, Any] = {
            "bonus": copy.deepcopy(self.bonus),
            "beta": self.beta,
            "encoder": Preprocessed(encoder, space),
            "seed": seed,
        }
        if self.learning_rate is not None:
            arguments["learning_rate"] = self.learning_rate
        if isinstance(model, OnPolicyAlgorithm):
            # As many gradient steps as the agent's own critic takes: with fewer it explains less of the returns.
            epochs = getattr(model, "n_epochs", getattr(model, "n_critic_updates", 1))  # the latter is TRPO's
            arguments |= {
                "discount": model.gamma,
                "gae_lambda": model.gae_lambda,
                "epochs": epochs if self.epochs is None else self.epochs,
                "batch_size": getattr(model, "batch_size", 256) if self.batch_size is None else self.batch_size,
            }
            critic: nn.Module = Preprocessed(ValueNetwork(shape, seed=seed), space)
            return RolloutBonusCallback(RolloutBonus(critic=critic, **arguments))
        assert isinstance(model, OffPolicyAlgorithm)
        if isinstance(model.action_space, spaces.Discrete):
            critic = DiscreteQNetwork(shape, int(model.action_space.n), hidden_units=DISCRETE_HIDDEN_UNITS, seed=seed)
        else:
            action_size = math.prod(model.action_space.shape or ())
            critic = QNetwork(shape, action_size, hidden_units=CONTINUOUS_HIDDEN_UNITS, seed=seed)
        arguments |= {"discount": model.gamma, "target_rate": model.tau if 0 < model.tau < 1 else TARGET_RATE}
        policy = DeterministicPolicy(model.policy)
        return ReplayBonusCallback(ReplayBonus(policy, critic=Preprocessed(critic, space), **arguments))

    def _check(self, saved: Any) -> None:
        """Raise ValueError for an agent that cannot have this bonus."""
        model, name = self.model, type(self.model).__name__
        if not isinstance(model, OnPolicyAlgorithm | OffPolicyAlgorithm):
            supported = ", ".join((*ON_POLICY, *OFF_POLICY))
            raise ValueError(f"{name} is not supported; supported are {supported}, and subclasses of these")
        if isinstance(saved, LiveState) and saved.start_time == model.start_time:
            raise ValueError(f"this {name} already has a bonus: pass only one bonus callback to learn()")
        is_off_policy = isinstance(model, OffPolicyAlgorithm)
        sees_actions = is_off_policy or self.bonus.needs_actions
        if sees_actions and not isinstance(model.action_space, spaces.Box | spaces.Discrete):
            where = "off-policy agents" if is_off_policy else f"{type(self.bonus).__name__}, which needs actions"
            raise ValueError(
                f"the action space is {type(model.action_space).__name__}; with {where}, Box and Discrete are supported"
            )
        if isinstance(model, OnPolicyAlgorithm):
            size, states = "n_steps", model.n_steps * model.n_envs
            given = f"a rollout of {name} has {states} (n_steps={model.n_steps}, n_envs={model.n_envs})"
        else:
            size, states, given = "batch_size", model.batch_size, f"a batch of {name} has {model.batch_size}"
        check_enough_states(self.bonus, states, given, size=size)


class ValueConditionalBonus(BonusCallback):
    """Adds value-conditional state entropy to the rewards that an agent learns from.

    Without arguments it is the recommended preset.

    Args:
        k: Which nearest neighbour; 12 if not given.
        beta: The weight of the bonus: one standard deviation of it, in units of the reward.
        bonus: The bonus itself, such as `ValueConditionalStateEntropy(k=5, reading="paper")`;
            `ValueConditionalStateEntropy(k=k)` if not given.
        options: As for `BonusCallback`: decay_steps, encoder, learning_rate, epochs, batch_size, seed, verbose.

    Example:
        >>> from stable_baselines3 import PPO
        >>> from vcse.integrations.sb3 import ValueConditionalBonus
        >>> callback = ValueConditionalBonus(beta=0.01)
        >>> model = PPO("MlpPolicy", "CartPole-v1", n_steps=64, n_epochs=1).learn(64, callback=callback)
        >>> callback.part.bonus.k, callback.part.beta
        (12, 0.01)
    """

    def __init__(self, k: int | None = None, beta: float = BETA, *, bonus: Bonus | None = None, **options: Any) -> None:
        if isinstance(k, dict):  # Stable-Baselines3 has called the class, with its locals
            raise ValueError("pass an instance of the callback, not its class: callback=ValueConditionalBonus()")
        super().__init__(chosen_bonus(bonus, k), beta=beta, **options)


class LiveState:
    """The state of a bonus in training, which is pickled as the dictionary of tensors that it is at that moment.

    So `model.save` and `CheckpointCallback` save the current state, and what they write can be loaded without vcse. It
    has no `__dict__`, because Stable-Baselines3 would write its attributes into the JSON of the file.

    Args:
        part: The bonus.
        start_time: When the training started, as the model has it.
    """

    __slots__ = ("part", "start_time")

    def __init__(self, part: BonusPart, start_time: int | float) -> None:
        self.part, self.start_time = part, start_time

    def state_dict(self) -> dict[str, Any]:
        """Return the current state, on the CPU."""
        file = io.BytesIO()
        torch.save(dict(self.part.state_dict()), file)
        file.seek(0)
        state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        return state

    def __reduce__(self) -> tuple[Any, ...]:
        return dict, (self.state_dict(),)
