"""A bonus for the agents of skrl, attached to an agent before training.

    agent = PPO(models=models, memory=memory, cfg=cfg, ...)
    ValueConditionalBonus().attach(agent)

So it serves agents that a `Runner` made from a file as well, as those of Isaac Lab are: `attach(runner.agent)`.
"""

import copy
import math
from collections.abc import Mapping
from typing import Any

import torch
from gymnasium import spaces
from torch import Tensor, nn

from vcse.bonuses.base import Bonus
from vcse.bonuses.value_conditional import ValueConditionalStateEntropy
from vcse.extras import install
from vcse.integrations.base import BETA, BonusPart
from vcse.integrations.networks import Observations, QNetwork, Shape, ValueNetwork, encoder_for, evaluating
from vcse.integrations.replay import ReplayBonus
from vcse.integrations.rollout import RolloutBonus
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

Batch = list[Tensor | None]  # the tensors of a memory, of which some agents do not have all
ON_POLICY, OFF_POLICY = (PPO, A2C, RPO), (SAC, TD3, DDPG)


class AgentBonus:
    """Pays an agent of skrl a bonus of any kind.

    The bonus joins the rewards before advantages or targets are computed; what is stored stays the task's own. What it
    learns is saved and loaded with the agent, as the module "bonus" of its checkpoints, and numbers are tracked under
    "Bonus / ".

    Args:
        bonus: Which; it serves as a pattern, and every agent gets a copy. `ValueConditionalStateEntropy.recommended()`
            if not given.
        beta: Its weight.
        encoder: Turns observations, of their space's shape, into the features among which neighbours are looked for.
            If not given, small vectors are features as they are, and all else passes through a `RandomEncoder`.
        learning_rate: Of the extrinsic critic; 1e-3 for agents that learn from rollouts and 3e-4 for others if not
            given.
        epochs: How often that critic sees a rollout; as often as the agent does if not given.
        batch_size: States of each of its steps; only where there are rollouts.
        seed: Of that critic, the encoder and the order of the states.
    """

    def __init__(
        self,
        bonus: Bonus | None = None,
        *,
        beta: float = BETA,
        encoder: nn.Module | None = None,
        learning_rate: float | None = None,
        epochs: int | None = None,
        batch_size: int = 256,
        seed: int = 0,
    ) -> None:
        self.bonus = ValueConditionalStateEntropy.recommended() if bonus is None else bonus
        self.beta, self.encoder, self.learning_rate = beta, encoder, learning_rate
        self.epochs, self.batch_size, self.seed = epochs, batch_size, seed

    def attach(self, agent: Agent) -> BonusPart:
        """Pay an agent from now on, and return the critic, the encoder and the bonus that do.

        Args:
            agent: PPO, A2C, RPO, SAC, TD3 or DDPG, and what derives from them, before it was trained or loaded.
        """
        is_on_policy = isinstance(agent, ON_POLICY)
        self._check(agent, is_on_policy)
        space, cfg = agent.observation_space, agent.cfg
        is_scaled = bool(cfg.observation_preprocessor)
        shape = _shape(space)
        encoder = encoder_for(shape, seed=self.seed) if self.encoder is None else copy.deepcopy(self.encoder)
        made: dict[str, Any] = {
            **{"bonus": copy.deepcopy(self.bonus), "beta": self.beta, "seed": self.seed},
            **{"encoder": OfSpace(encoder, space, is_scaled=is_scaled), "discount": cfg.discount_factor},
            **({} if self.learning_rate is None else {"learning_rate": self.learning_rate}),
        }
        payer: RolloutPayer | ReplayPayer
        if is_on_policy:
            critic: nn.Module = OfSpace(ValueNetwork(shape, seed=self.seed), space, is_scaled=is_scaled)
            epochs = self.epochs or getattr(cfg, "learning_epochs", 1)
            made |= {"gae_lambda": cfg.gae_lambda, "epochs": epochs, "batch_size": self.batch_size}
            payer = RolloutPayer(agent, RolloutBonus(critic=critic, **made))
        else:
            action_size = int(agent.action_space.shape[0])
            critic = OfSpace(QNetwork(shape, action_size, seed=self.seed), space, is_scaled=is_scaled)
            policy = MeanActions(agent.policy)
            payer = ReplayPayer(agent, ReplayBonus(policy, critic=critic, target_rate=cfg.polyak, **made))
        payer.part.to(agent.device)
        payer.begin()
        return payer.part

    def _check(self, agent: Agent, is_on_policy: bool) -> None:
        """Refuse what cannot be paid, and name it."""
        name = type(agent).__name__
        if not isinstance(agent, (*ON_POLICY, *OFF_POLICY)):
            served = ", ".join(each.__name__ for each in (*ON_POLICY, *OFF_POLICY))
            raise ValueError(f"{name} is not supported; supported are {served}, and what derives from them")
        if "bonus" in agent.checkpoint_modules:
            raise ValueError(f"this {name} already has a bonus: attach only one")
        if agent.memory is None:
            raise ValueError(f"this {name} has no memory, and so nothing to be paid for")
        if skrl.config.torch.is_distributed:
            raise ValueError(
                f"{skrl.config.torch.world_size} processes train one agent: each would have a critic alone"
            )
        if not is_on_policy and not isinstance(agent.action_space, spaces.Box):
            kind = type(agent.action_space).__name__
            raise ValueError(f"the action space is {kind}; where an agent has a replay, Box is served")
        k, environments = getattr(self.bonus, "k", 0), agent.memory.num_envs
        states = agent.memory.memory_size * environments if is_on_policy else agent.cfg.batch_size
        of_what = f"a rollout of {name} has {states} (memory_size={agent.memory.memory_size}, num_envs={environments})"
        if k >= states:
            told = of_what if is_on_policy else f"a batch of {name} has {states} (batch_size={states})"
            raise ValueError(f"k={k} needs more than {k} states, and {told}: take a smaller k, or more of them")


class ValueConditionalBonus(AgentBonus):
    """Pays an agent of skrl for exploring: value-conditional state entropy.

    Args:
        k: Which neighbour; 12 if not given.
        beta: The weight of the bonus: one standard deviation of it, in units of the reward.
        bonus: The bonus itself, such as `ValueConditionalStateEntropy(k=5, reading="paper")`; if not given, what
            `ValueConditionalStateEntropy.recommended(k=k)` says.
        encoder: As `AgentBonus` has it, and so are all the others.
        learning_rate: Of the extrinsic critic.
        epochs: How often that critic sees a rollout.
        batch_size: States of each of its steps.
        seed: Of that critic, the encoder and the order of the states.

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

    def __init__(
        self,
        *,
        k: int | None = None,
        beta: float = BETA,
        bonus: Bonus | None = None,
        encoder: nn.Module | None = None,
        learning_rate: float | None = None,
        epochs: int | None = None,
        batch_size: int = 256,
        seed: int = 0,
    ) -> None:
        if bonus is not None and k is not None:
            raise ValueError(f"k={k} is of the bonus that is made if none is given: give k or bonus, not both")
        super().__init__(
            ValueConditionalStateEntropy.recommended(**({} if k is None else {"k": k})) if bonus is None else bonus,
            beta=beta,
            encoder=encoder,
            learning_rate=learning_rate,
            epochs=epochs,
            batch_size=batch_size,
            seed=seed,
        )


class RolloutPayer:
    """Pays an agent that learns from rollouts."""

    def __init__(self, agent: Agent, part: RolloutBonus) -> None:
        self.agent, self.part = agent, part
        # As they lie in the memory: the task's own rewards, and where episodes ended.
        self.rewards: Tensor | None = None
        self.ended: Tensor | None = None

    def begin(self) -> None:
        """Stand before what the agent records and learns."""
        self.agent.checkpoint_modules["bonus"] = self.part
        self.agent.record_transition, self.agent.update = self.record_transition, self.update

    def record_transition(self, **transition: Any) -> None:
        """Keep the task's reward, to which the agent adds its own value where a time limit ends an episode."""
        agent, cfg = self.agent, self.agent.cfg
        place, shaper = agent.memory.memory_index, cfg.rewards_shaper

        def keep(rewards: Tensor, timestep: int, timesteps: int) -> Tensor:
            shaped: Tensor = rewards if shaper is None else shaper(rewards, timestep, timesteps)
            if self.rewards is None or self.ended is None:
                self.rewards = shaped.new_full((agent.memory.memory_size, *shaped.shape), torch.nan)
                self.ended = torch.zeros_like(self.rewards, dtype=torch.bool)
            self.rewards[place] = shaped
            self.ended[place] = transition["terminated"] | transition["truncated"]
            # A copy, since the agent adds to it in place, and it may be the environment's own.
            return shaped.clone()

        cfg.rewards_shaper = keep
        try:
            type(agent).record_transition(agent, **transition)
        finally:
            cfg.rewards_shaper = shaper

    def update(self, **times: int) -> None:
        """Add the bonus to the rewards, let the agent learn, and take it off again."""
        agent, get = self.agent, self.agent.memory.get_tensor_by_name
        if self.rewards is None or self.ended is None or self.rewards.shape != get("rewards").shape:
            recorded = None if self.rewards is None else tuple(self.rewards.shape)
            raise ValueError(
                f"rewards of shape {recorded} were recorded, but the memory has {tuple(get('rewards').shape)}: "
                "one agent to a memory, of as many environments, is served"
            )
        observations = get("observations")
        later = torch.cat((observations[1:], agent._current_next_observations.reshape(observations[:1].shape)))
        # Where an episode ended, many environments have begun the next: what it ended with is taken to be like what
        # came just before.
        later = torch.where(self.ended, observations, later)
        with torch.no_grad():
            observations, later = (_preprocessed(agent, each) for each in (observations, later))
        actions = get("actions")
        if isinstance(agent.action_space, spaces.Discrete):
            actions = actions.squeeze(-1).long()
        task, terminated, ended = (each.squeeze(-1) for each in (self.rewards, get("terminated"), self.ended))
        paid = self.part(observations, task, later, terminated, ended, actions=actions)
        rewards = get("rewards")
        stored = rewards.clone()
        rewards += paid.unsqueeze(-1)
        try:
            type(agent).update(agent, **times)
        finally:
            rewards.copy_(stored)
        _track(agent, self.part)


class ReplayPayer:
    """Pays an agent that learns from a replay, at each of its gradient steps."""

    def __init__(self, agent: Agent, part: ReplayBonus) -> None:
        self.agent, self.part = agent, part

    def begin(self) -> None:
        """Stand before what the agent learns."""
        self.agent.checkpoint_modules["bonus"] = self.part
        self.agent.update = self.update

    def update(self, **times: int) -> None:
        """Update the agent with the bonus added to every batch that it samples."""
        memory = self.agent.memory
        memory.sample = self.sample  # for now alone: other agents may have the same memory
        try:
            type(self.agent).update(self.agent, **times)
        finally:
            del memory.sample
        _track(self.agent, self.part)

    def sample(self, names: list[str], **choices: Any) -> list[Batch]:
        """Return batches of the memory, with the bonus in their rewards."""
        memory = self.agent.memory
        return [self.paid(names, batch) for batch in type(memory).sample(memory, names, **choices)]

    def paid(self, names: list[str], batch: Batch) -> Batch:
        """Return a batch with the bonus in its rewards."""
        known: dict[str, Any] = dict(zip(names, batch, strict=True))
        with torch.no_grad():
            now, later = (self._inputs(known, before) for before in ("", "next_"))
        bonus = self.part(now, known["actions"], known["rewards"], later, known["terminated"])
        return [*{**known, "rewards": known["rewards"] + bonus.view_as(known["rewards"])}.values()]

    def _inputs(self, batch: Mapping[str, Any], before: str) -> dict[str, Tensor]:
        """Return what a model of the agent gets: observations, and states where there are any."""
        states = self.agent._state_preprocessor(batch.get(f"{before}states"))
        observations = self.agent._observation_preprocessor(batch[f"{before}observations"])
        return {"observations": observations, **({} if states is None else {"states": states})}


class MeanActions:
    """The actions that a policy would take if it did not explore, which leave no trace in it.

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
            else:  # to act would be to sample
                actions = policy.compute({"states": None, **inputs}, "policy")[0]
        if getattr(policy, "_g_clip_actions", False):
            actions = actions.clamp(policy._g_min_actions, policy._g_max_actions)
        return actions


class OfSpace(nn.Module):
    """A network of observations as they were before skrl made vectors of them.

    Args:
        network: Of observations, and of actions where it is a critic.
        space: Of the observations: Box, or Dict of these.
        is_scaled: Whether a preprocessor has scaled them, so that pixels are no bytes any more.
    """

    def __init__(self, network: nn.Module, space: spaces.Space[Any], *, is_scaled: bool) -> None:
        super().__init__()
        self.network, self.space, self.is_scaled = network, space, is_scaled

    def forward(self, observations: Observations, *actions: Tensor) -> Tensor:
        """Compute what the network says."""
        vectors = observations["observations"] if isinstance(observations, Mapping) else observations
        shaped = unflatten_tensorized_space(self.space, vectors)
        if isinstance(self.space, spaces.Dict):
            shaped = {name: self._shaped(shaped[name], each) for name, each in self.space.spaces.items()}
        else:
            shaped = self._shaped(shaped, self.space)
        result: Tensor = self.network(shaped, *actions)
        return result

    def _shaped(self, observations: Tensor, space: spaces.Space[Any]) -> Tensor:
        is_image = len(space.shape or ()) == 3
        if is_image and not self.is_scaled and space.dtype == "uint8":
            return observations.to(torch.uint8)  # as it was: the memory has float32
        return observations if is_image else observations.flatten(1)


def _shape(space: spaces.Space[Any]) -> Shape:
    """Return the shape of one observation of a space, or of several by name."""
    each = space.spaces if isinstance(space, spaces.Dict) else {"": space}
    for name, part in each.items():
        if not isinstance(part, spaces.Box):
            where = f" {name!r}" if name else ""
            raise ValueError(f"the observation space{where} is {type(part).__name__}; served are Box, and Dict of Box")
    shapes = {name: _vector_or_image(part.shape) for name, part in each.items()}
    return shapes if isinstance(space, spaces.Dict) else shapes[""]


def _vector_or_image(shape: tuple[int, ...] | None) -> tuple[int, ...]:
    return shape if shape is not None and len(shape) == 3 else (math.prod(shape or ()),)


def _preprocessed(agent: Agent, observations: Tensor) -> Tensor:
    scaled: Tensor = agent._observation_preprocessor(observations.flatten(0, 1))
    return scaled.view_as(observations)


def _track(agent: Agent, part: BonusPart) -> None:
    if agent.write_interval > 0:
        for name, number in part.metrics().items():
            agent.track_data(f"Bonus / {name}", number)
