"""Exploration bonuses for the agents of skrl, attached to an agent before training.

    agent = PPO(models=models, memory=memory, cfg=cfg, ...)
    ValueConditionalBonus().attach(agent)

Agents that a `Runner` built from a file, as in Isaac Lab, work too: `attach(runner.agent)`.
"""

import copy
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from vcse.bonuses.base import Bonus
from vcse.extras import install
from vcse.integrations.base import (
    BETA,
    BonusPart,
    apply,
    check_beta,
    check_decay_steps,
    check_enough_states,
    check_processes,
    chosen_bonus,
    decayed,
)
from vcse.integrations.networks import Observations, QNetwork, ValueNetwork, encoder_for, evaluating
from vcse.integrations.replay import ReplayBonus
from vcse.integrations.rollout import RolloutBonus
from vcse.integrations.spaces import is_image, observation_shape
from vcse.integrations.versions import check_version

try:
    import skrl
    from skrl.agents.torch import Agent
    from skrl.agents.torch.a2c import A2C
    from skrl.agents.torch.ddpg import DDPG
    from skrl.agents.torch.ppo import PPO
    from skrl.agents.torch.rpo import RPO
    from skrl.agents.torch.sac import SAC
    from skrl.agents.torch.td3 import TD3
    from skrl.models.torch import DeterministicMixin
    from skrl.utils.spaces.torch import unflatten_tensorized_space
except ImportError as error:
    raise ImportError(f"vcse.integrations.skrl needs skrl: {install('skrl')}") from error

check_version("skrl", skrl.__version__, least="2.0", below="3", extra="skrl")

Batch = list[Tensor | None]  # the tensors of a memory; None for those that an agent does not store
ON_POLICY, OFF_POLICY = (PPO, A2C, RPO), (SAC, TD3, DDPG)


class AgentBonus:
    """Adds an exploration bonus of any kind to the rewards that an agent learns from.

    The bonus joins the rewards before advantages or targets are computed; stored rewards stay the task's own. Its state
    is saved and loaded with the agent, as the module "bonus" of its checkpoints, and its metrics are tracked under
    "bonus/".

    Args:
        bonus: The bonus, of which each agent uses a copy; `ValueConditionalStateEntropy()` if not given.
        beta: The weight of the bonus.
        decay_steps: Environment steps, of all environments together, over which beta falls linearly to 0: those of the
            training if not given, and `math.inf` for a constant beta.
        encoder: Computes the features in which nearest neighbours are searched, from observations in the shape of their
            space. If not given, small vectors are their own features, and a `RandomEncoder` encodes all else.
        learning_rate: Of the extrinsic critic; 1e-3 for on-policy agents and 3e-4 for off-policy ones if not given.
        epochs: Of the extrinsic critic over each rollout; as many as the agent's own critic has if not given.
            On-policy agents only.
        batch_size: Of the extrinsic critic's minibatches. On-policy agents only.
        seed: Of the extrinsic critic, its minibatches and the encoder.
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
        batch_size: int = 256,
        seed: int = 0,
    ) -> None:
        check_beta(beta)
        check_decay_steps(decay_steps)
        self.bonus = chosen_bonus(bonus)
        self.beta, self.decay_steps, self.encoder, self.learning_rate = beta, decay_steps, encoder, learning_rate
        self.epochs, self.batch_size, self.seed = epochs, batch_size, seed

    def attach(self, agent: Agent) -> BonusPart:
        """Add the bonus to an agent, and return the bonus with its encoder and its extrinsic critic.

        Args:
            agent: PPO, A2C, RPO, SAC, TD3, DDPG or a subclass, not yet trained or loaded.
        """
        is_on_policy = isinstance(agent, ON_POLICY)
        self._check(agent, is_on_policy)
        space, cfg = agent.observation_space, agent.cfg
        shape = observation_shape(space, spaces.Box)
        unflattened = partial(Unflattened, space=space, is_scaled=bool(cfg.observation_preprocessor))
        encoder = encoder_for(shape, seed=self.seed) if self.encoder is None else copy.deepcopy(self.encoder)
        arguments: dict[str, Any] = {
            "bonus": copy.deepcopy(self.bonus),
            "beta": self.beta,
            "encoder": unflattened(encoder),
            "discount": cfg.discount_factor,
            "seed": self.seed,
        }
        if self.learning_rate is not None:
            arguments["learning_rate"] = self.learning_rate
        hooks: RolloutHooks | ReplayHooks
        if is_on_policy:
            critic = unflattened(ValueNetwork(shape, seed=self.seed))
            epochs = getattr(cfg, "learning_epochs", 1) if self.epochs is None else self.epochs
            arguments |= {"gae_lambda": cfg.gae_lambda, "epochs": epochs, "batch_size": self.batch_size}
            hooks = RolloutHooks(agent, RolloutBonus(critic=critic, **arguments), self.beta_at)
            agent.record_transition = hooks.record_transition
        else:
            critic = unflattened(QNetwork(shape, int(agent.action_space.shape[0]), seed=self.seed))
            policy = DeterministicPolicy(agent.policy)
            part = ReplayBonus(policy, critic=critic, target_rate=cfg.polyak, **arguments)
            hooks = ReplayHooks(agent, part, self.beta_at)
        agent.update = hooks.update
        agent.checkpoint_modules["bonus"] = hooks.part.to(agent.device)
        return hooks.part

    def beta_at(self, steps: int, total: int) -> float:
        """Compute the weight of the bonus after a number of environment steps, of all those of the training."""
        return decayed(self.beta, steps, total if self.decay_steps is None else self.decay_steps)

    def _check(self, agent: Agent, is_on_policy: bool) -> None:
        """Raise ValueError for an agent that cannot have this bonus."""
        name = type(agent).__name__
        if not isinstance(agent, (*ON_POLICY, *OFF_POLICY)):
            supported = ", ".join(each.__name__ for each in (*ON_POLICY, *OFF_POLICY))
            raise ValueError(f"{name} is not supported; supported are {supported}, and subclasses of these")
        if "bonus" in agent.checkpoint_modules:
            raise ValueError(f"this {name} already has a bonus: attach only one")
        if agent.memory is None:
            raise ValueError(f"this {name} has no memory, from which the bonus would be computed")
        check_processes(skrl.config.torch.world_size)
        if not is_on_policy and not isinstance(agent.action_space, spaces.Box):
            kind = type(agent.action_space).__name__
            raise ValueError(f"the action space is {kind}; with off-policy agents, Box is supported")
        if is_on_policy:
            steps, environments = agent.memory.memory_size, agent.memory.num_envs
            size, states = "memory_size", steps * environments
            given = f"a rollout of {name} has {states} (memory_size={steps}, num_envs={environments})"
        else:
            size, states, given = "batch_size", agent.cfg.batch_size, f"a batch of {name} has {agent.cfg.batch_size}"
        check_enough_states(self.bonus, states, given, size=size)


class ValueConditionalBonus(AgentBonus):
    """Adds value-conditional state entropy to the rewards that an agent learns from.

    Without arguments it is the recommended preset.

    Args:
        k: Which nearest neighbour; 12 if not given.
        beta: The weight of the bonus: one standard deviation of it, in units of the reward.
        bonus: The bonus itself, such as `ValueConditionalStateEntropy(k=5, reading="paper")`;
            `ValueConditionalStateEntropy(k=k)` if not given.
        options: As for `AgentBonus`: decay_steps, encoder, learning_rate, epochs, batch_size, seed.

    Example:
        >>> import torch
        >>> from gymnasium import spaces
        >>> from skrl.agents.torch.ppo import PPO
        >>> from skrl.memories.torch import RandomMemory
        >>> from vcse.integrations.skrl import ValueConditionalBonus
        >>> memory = RandomMemory(memory_size=64, num_envs=4, device="cpu")
        >>> space = spaces.Box(-1, 1, (3,))
        >>> agent = PPO(models={}, memory=memory, observation_space=space, action_space=space, device="cpu", cfg={})
        >>> part = ValueConditionalBonus(beta=0.01).attach(agent)
        >>> agent.checkpoint_modules["bonus"] is part
        True
    """

    def __init__(self, *, k: int | None = None, beta: float = BETA, bonus: Bonus | None = None, **options: Any) -> None:
        super().__init__(chosen_bonus(bonus, k), beta=beta, **options)


class Hooks:
    """What replaces methods of an agent.

    Args:
        agent: The agent.
        part: Its bonus.
        beta_at: Computes beta after a number of environment steps, of all those of the training.
    """

    def __init__(self, agent: Agent, part: BonusPart, beta_at: Callable[[int, int], float]) -> None:
        self.agent, self.part, self.beta_at = agent, part, beta_at

    def set_beta(self, timestep: int, timesteps: int) -> None:
        """Set beta for what an agent has collected since a step of all its environments."""
        environments = self.agent.memory.num_envs
        self.part.beta = self.beta_at(timestep * environments, timesteps * environments)

    def track(self) -> None:
        """Log the metrics of the bonus."""
        if self.agent.write_interval > 0:
            for name, number in self.part.metrics().items():
                self.agent.track_data(name, number)


class RolloutHooks(Hooks):
    """What replaces `record_transition` and `update` of an on-policy agent, and adds the bonus."""

    def __init__(self, agent: Agent, part: RolloutBonus, beta_at: Callable[[int, int], float]) -> None:
        super().__init__(agent, part, beta_at)
        # Laid out like the memory: the task's rewards, and where episodes ended.
        self.rewards: Tensor | None = None
        self.ended: Tensor | None = None

    def record_transition(self, **transition: Any) -> None:
        """Record a transition, and keep its reward: the agent adds γV to it where a time limit ends an episode."""
        agent, cfg = self.agent, self.agent.cfg
        index, shaper = agent.memory.memory_index, cfg.rewards_shaper

        def keep(rewards: Tensor, timestep: int, timesteps: int) -> Tensor:
            shaped: Tensor = rewards if shaper is None else shaper(rewards, timestep, timesteps)
            if self.rewards is None or self.ended is None:
                self.rewards = shaped.new_full((agent.memory.memory_size, *shaped.shape), torch.nan)
                self.ended = torch.zeros_like(self.rewards, dtype=torch.bool)
            self.rewards[index] = shaped
            self.ended[index] = transition["terminated"] | transition["truncated"]
            # A copy, since the agent adds to it in place, and it may belong to the environment.
            return shaped.clone()

        cfg.rewards_shaper = keep
        try:
            type(agent).record_transition(agent, **transition)
        finally:
            cfg.rewards_shaper = shaper

    def update(self, *, timestep: int, timesteps: int) -> None:
        """Update the agent with the bonus added to the rewards, and restore the stored rewards."""
        agent, get = self.agent, self.agent.memory.get_tensor_by_name
        if self.rewards is None or self.ended is None or self.rewards.shape != get("rewards").shape:
            recorded = None if self.rewards is None else tuple(self.rewards.shape)
            raise ValueError(
                f"rewards of shape {recorded} were recorded, but the memory has {tuple(get('rewards').shape)}: each "
                "agent needs a memory of its own, with as many environments"
            )
        observations = get("observations")
        next_observations = torch.cat(
            (observations[1:], agent._current_next_observations.reshape(observations[:1].shape))
        )
        # Where an episode ended, vectorised environments return the first observation of the next. The last one of the
        # episode is not stored, so the one before it takes its place.
        next_observations = torch.where(self.ended, observations, next_observations)
        with torch.no_grad():
            observations, next_observations = (_preprocessed(agent, each) for each in (observations, next_observations))
        actions = get("actions")
        if isinstance(agent.action_space, spaces.Discrete):
            actions = actions.squeeze(-1).long()
        task_rewards, terminated, ended = (each.squeeze(-1) for each in (self.rewards, get("terminated"), self.ended))
        self.set_beta(max(0, timestep + 1 - len(observations)), timesteps)
        bonus = self.part(observations, task_rewards, next_observations, terminated, ended, actions=actions)
        rewards = get("rewards")
        stored = rewards.clone()
        rewards += bonus.unsqueeze(-1)
        try:
            type(agent).update(agent, timestep=timestep, timesteps=timesteps)
        finally:
            rewards.copy_(stored)
        self.track()


class ReplayHooks(Hooks):
    """What replaces `update` of an off-policy agent, and adds the bonus to each batch that it samples."""

    def update(self, *, timestep: int, timesteps: int) -> None:
        """Update the agent with the bonus added to every batch that it samples."""
        self.set_beta(timestep, timesteps)
        memory = self.agent.memory
        memory.sample = self.sample  # during this update only: other agents may share the memory
        try:
            type(self.agent).update(self.agent, timestep=timestep, timesteps=timesteps)
        finally:
            del memory.sample
        self.track()

    def sample(self, names: list[str], **choices: Any) -> list[Batch]:
        """Sample batches from the memory, and add the bonus to their rewards."""
        memory = self.agent.memory
        return [self.add_bonus(names, batch) for batch in type(memory).sample(memory, names, **choices)]

    def add_bonus(self, names: list[str], batch: Batch) -> Batch:
        """Return a batch with the bonus added to its rewards, and train the extrinsic critic."""
        named: dict[str, Any] = dict(zip(names, batch, strict=True))
        with torch.no_grad():
            inputs, next_inputs = (self._inputs(named, prefix) for prefix in ("", "next_"))
        bonus = self.part(inputs, named["actions"], named["rewards"], next_inputs, named["terminated"])
        return [*{**named, "rewards": named["rewards"] + bonus}.values()]

    def _inputs(self, batch: Mapping[str, Any], prefix: str) -> dict[str, Tensor]:
        """Return the inputs of the agent's models: observations, and states if there are any."""
        states = self.agent._state_preprocessor(batch.get(f"{prefix}states"))
        observations = self.agent._observation_preprocessor(batch[f"{prefix}observations"])
        return {"observations": observations, **({} if states is None else {"states": states})}


class DeterministicPolicy:
    """The actions of a policy without exploration. Computing them changes nothing in the policy.

    Args:
        policy: A model of skrl, Gaussian or deterministic.
    """

    def __init__(self, policy: Any) -> None:
        self.policy, self.modules = policy, [*policy.modules()]

    @torch.no_grad()
    def __call__(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Compute the actions."""
        policy = self.policy
        with evaluating(self.modules):
            if isinstance(policy, DeterministicMixin):
                actions: Tensor = policy.act({"states": None, **inputs}, role="policy")[0]
            else:  # act() would sample
                actions = policy.compute({"states": None, **inputs}, "policy")[0]
        if getattr(policy, "_g_clip_actions", False):
            actions = actions.clamp(policy._g_min_actions, policy._g_max_actions)
        return actions


class Unflattened(nn.Module):
    """A network whose observations come flattened, as skrl stores them.

    Args:
        network: Takes observations in the shape of their space, and actions too if it is a Q-function.
        space: The observation space: Box, or a Dict of these.
        is_scaled: Whether a preprocessor has scaled the observations, so that pixels are no longer bytes.
    """

    def __init__(self, network: nn.Module, space: spaces.Space[Any], *, is_scaled: bool) -> None:
        super().__init__()
        self.network, self.space, self.is_scaled = network, space, is_scaled

    def forward(self, observations: Observations, *actions: Tensor) -> Tensor:
        """Compute the output of the network."""
        vectors = observations["observations"] if isinstance(observations, Mapping) else observations
        shaped = unflatten_tensorized_space(self.space, vectors)
        result: Tensor = self.network(apply(self._shaped, self.space, shaped), *actions)
        return result

    def _shaped(self, space: spaces.Space[Any], observations: Tensor) -> Tensor:
        if not is_image(space):
            return observations.flatten(1)
        is_bytes = space.dtype == "uint8" and not self.is_scaled  # the memory stores float32
        return observations.to(torch.uint8) if is_bytes else observations


def _preprocessed(agent: Agent, observations: Tensor) -> Tensor:
    scaled: Tensor = agent._observation_preprocessor(observations.flatten(0, 1))
    return scaled.view_as(observations)
