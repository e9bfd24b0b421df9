"""A2C (advantage actor-critic) with an exploration bonus, for a cohort of learners at once.

One update per rollout, by default of 16 environments x 8 steps. The extrinsic critic learns from detached features and
the task's rewards alone: its value is what VCSE conditions on, and no gradient of the bonus reaches it (gradients of
all networks are clipped by one norm, as in the release). A step cost is not a reward of the task: it enters where the
bonus enters.

Every tensor has a leading learner axis: `l` for all learners, `v` for those with an extrinsic critic. Learners share
operations, never numbers: each has its own parameters, optimizer state, gradient norm and random numbers.
`gather_rows` and `scatter_rows` select the rows of some learners and put them back among zeros. Other axes: `n`
environments, `t` steps, `m` = n * t states.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from vcse.agents.a2c.bonus_inputs import episode_starts, next_features_of
from vcse.agents.a2c.networks import RandomEncoder, StateFeatures, TanhMLP, make_bonus_encoder
from vcse.agents.a2c.settings import A2CSettings
from vcse.agents.output import UpdateOutput
from vcse.agents.state import check_same_entries
from vcse.bonuses.base import Bonus
from vcse.bonuses.registry import BonusContext
from vcse.bonuses.stacked import StackedBonus, StackedOutput
from vcse.nets.cuda.graphs import CUDAGraph, CUDAGraphs
from vcse.nets.observers import ObservationKind, make_encoder
from vcse.nets.optimizers import parameters_of, rmsprop_step
from vcse.nets.stacked import flatten_parameters, gather_rows, index_of, index_tensor, per_learner, scatter_rows
from vcse.replay.rollouts import Rollout
from vcse.returns import gae
from vcse.settings import check_cohort
from vcse.streams import torch_generator, torch_seed

HIDDEN_UNITS = 64


@dataclass(frozen=True)
class A2CSpec:
    """What the agent needs to know about its environments."""

    observation_shape: tuple[int, ...]  # [height, width, channels], or [size] of state vectors
    actions: int
    observes: ObservationKind = "grid"


class A2C:
    """A cohort of A2C learners.

    Args:
        spec: Shape of the observations and number of actions, the same for all learners.
        configs: The settings of each learner. `SHARED_SETTINGS` must agree; all else may differ.
        seeds: The seed of each learner's parameters.
        bonus: Overrides the bonuses that the settings choose; made with as many learners as there are configs.
        device: Of all parameters and buffers.

    Attributes:
        parameters: All parameters of encoder, actor and critic, one row per learner; those of the modules are views.
        extrinsic_parameters: Those of the extrinsic critic, one row for each of the learners `with_extrinsic`.
    """

    SHARED_SETTINGS = ("environments", "rollout_steps", "bonus_features")
    # What the agent can give a bonus beside features; a bonus that needs anything else is refused.
    BONUS_INPUTS = frozenset(("values", "rewards", "actions", "next_features", "episode_starts"))

    def __init__(
        self,
        spec: A2CSpec,
        configs: Sequence[A2CSettings],
        seeds: Sequence[int],
        *,
        bonus: Bonus | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        check_cohort(configs, seeds, self.SHARED_SETTINGS)
        self.device = torch.device(device)
        self.configs, self.learners = tuple(configs), len(configs)
        self.everyone = index_tensor(range(self.learners), self.device)
        with_bonus = [each for each in range(self.learners) if bonus is not None or configs[each].has_bonus]
        with_extrinsic = [
            each for each in range(self.learners) if each in with_bonus or configs[each].keep_extrinsic_critic
        ]
        self.with_bonus = index_tensor(with_bonus, self.device)
        self.with_extrinsic = index_tensor(with_extrinsic, self.device)

        # A generator per learner. Extrinsic critics are initialised last, so that having one changes no policy's start.
        generators = [torch_generator(seed, "parameters") for seed in seeds]
        layers = 2 if spec.observes == "state" else 1  # the encoder of states is the identity
        self.encoder = make_encoder(spec.observes, spec.observation_shape, generators).to(self.device)
        sizes = (self.encoder.features, HIDDEN_UNITS)
        self.actor = TanhMLP(*sizes, spec.actions, generators, layers=layers).to(self.device)
        self.critic = TanhMLP(*sizes, 1, generators, layers=layers).to(self.device)
        self.extrinsic_critic: TanhMLP | None = None
        if with_extrinsic:
            generators = [generators[each] for each in with_extrinsic]
            self.extrinsic_critic = TanhMLP(*sizes, 1, generators, layers=layers).to(self.device)
        self.parameters = flatten_parameters(self.encoder, self.actor, self.critic)
        self.squares = torch.zeros_like(self.parameters)  # RMSprop's average of squared gradients
        self.extrinsic_parameters = flatten_parameters(self.extrinsic_critic)  # of no rows where there is none
        self.extrinsic_squares = torch.zeros_like(self.extrinsic_parameters)

        self._make_bonus(bonus, spec, seeds)
        self._read_settings()
        self.encoder.cache_matrices()  # after each change of parameters: for passes without gradient
        self._update_graph: CUDAGraph[UpdateOutput] | None = None
        self._captured_memory: tuple[Rollout, Int[Tensor, "l m"] | None] | None = None
        self._act_graphs: CUDAGraphs[Tensor] = CUDAGraphs(self.device)

    def _make_bonus(self, bonus: Bonus | None, spec: A2CSpec, seeds: Sequence[int]) -> None:
        """Make the bonus, and choose its features: those of a frozen random encoder, or positions."""
        mine = [(self.configs[each], seeds[each]) for each in self.with_bonus.tolist()]  # the learners with a bonus
        common = self.configs[0]
        self.random_encoder: RandomEncoder | StateFeatures | None = None
        if mine and common.bonus_features != "position":
            generators = [torch_generator(seed, "random encoder") for _, seed in mine]
            self.random_encoder = make_bonus_encoder(spec.observes, spec.observation_shape, generators, self.device)
        context = BonusContext(
            seeds=tuple(torch_seed(seed, "bonus") for _, seed in mine),
            environments=common.environments,
            actions=spec.actions,
            gives=self.BONUS_INPUTS,
        )
        self.bonus = StackedBonus.for_agent(
            bonus,
            [config.bonus for config, _ in mine],
            context,
            agent="a2c",
            dimensions=2 if self.random_encoder is None else self.random_encoder.features,
        ).to(self.device)
        # Rows, among the learners with a bonus, of those whose bonus needs the features of next states.
        needs_next = [row for row in range(len(mine)) if "next_features" in self.bonus.needs_of(row)]
        self.needs_next_features = index_tensor(needs_next, self.device)
        # Whether the first observations of the next rollout are the first of their episodes.
        self.begins_episode = torch.ones(len(mine), common.environments, dtype=torch.bool, device=self.device)

    def _read_settings(self) -> None:
        """Put the settings of all learners into tensors."""
        configs = self.configs

        def each(name: str) -> Float[Tensor, " l"]:
            return per_learner(configs, name, self.device)

        def whether(conditions: Sequence[bool]) -> Bool[Tensor, " l"]:
            return torch.tensor(conditions, device=self.device)

        self.discount, self.gae_lambda = each("discount"), each("gae_lambda")
        self.learning_rate = each("learning_rate")
        self.rms_decay, self.rms_epsilon = each("rms_decay"), each("rms_epsilon")
        self.entropy_coefficient, self.value_coefficient = each("entropy_coefficient"), each("value_coefficient")
        self.most_gradient_norm = each("most_gradient_norm")
        self.beta = each("beta")[self.with_bonus, None, None]
        self.step_cost = each("step_cost")[:, None, None]
        self.trains_extrinsic = whether([config.values != "frozen" for config in configs]).float()
        # Whether the bonus is added to the reward, before GAE; or to the advantage, after it.
        self.adds_to_reward = whether([config.injection == "reward" for config in configs])[:, None, None].float()
        bootstraps = whether([config.time_limit == "bootstraps" for config in configs])
        self.truncation_terminates = ~bootstraps[:, None, None]
        self.any_bootstraps = bool(bootstraps.any())
        self.needs_next_observations = self.any_bootstraps or len(self.needs_next_features) > 0

    @torch.no_grad()
    def act(
        self,
        observations: Shaped[Tensor, "l n ..."],
        uniforms: Float[Tensor, "l n"] | None,
        learners: slice = slice(None),
    ) -> Int[Tensor, "l n"]:
        """Choose an action for every environment of some learners.

        Args:
            observations: One per environment, on the host or the device.
            uniforms: Random numbers in [0, 1) from which actions are sampled; None for greedy actions.
            learners: Whose environments these are.
        """
        if uniforms is None:
            return self._logits(observations.to(self.device), learners).argmax(-1)
        return self._act_graphs(self._act, observations, uniforms, learners=learners)

    def _act(
        self, observations: Shaped[Tensor, "l n ..."], uniforms: Float[Tensor, "l n"], learners: slice
    ) -> Int[Tensor, "l n"]:
        cumulative = self._logits(observations, learners).softmax(-1).cumsum(-1)
        return (cumulative <= uniforms.unsqueeze(-1))[..., :-1].sum(-1)

    @torch.no_grad()
    def action_probabilities(
        self, observations: Shaped[Tensor, "l n ..."], learners: slice = slice(None)
    ) -> Float[Tensor, "l n a"]:
        """Return the policy's distribution over actions."""
        return self._logits(observations, learners).softmax(-1)

    def _logits(self, observations: Shaped[Tensor, "l n ..."], learners: slice) -> Float[Tensor, "l n a"]:
        logits: Tensor = self.actor(self.encoder(observations, learners), learners)
        return logits

    def update(
        self,
        rollout: Rollout,
        exact_values: Float[Tensor, "l n t"] | None = None,
        value_permutation: Int[Tensor, "l m"] | None = None,
    ) -> UpdateOutput:
        """Update actor and critics on a rollout; the output is overwritten by the next update.

        Args:
            rollout: Collected with the current policies.
            exact_values: Replace the extrinsic critic's values that the bonus is given, except where they are NaN.
            value_permutation: For each state, the index of the state whose value the bonus is given, as a control; its
                own if not given.
        """
        memory = self._captured_memory
        is_captured = memory is not None and rollout is memory[0] and value_permutation is memory[1]
        if self._update_graph is not None and is_captured and exact_values is None:
            return self._update_graph()
        return self._update(rollout, exact_values, value_permutation)

    def _update(
        self,
        rollout: Rollout,
        exact_values: Float[Tensor, "l n t"] | None,
        value_permutation: Int[Tensor, "l m"] | None,
    ) -> UpdateOutput:
        learners, environments, steps = shape = rollout.actions.shape
        ended = rollout.terminated | rollout.truncated
        terminated = rollout.terminated | (rollout.truncated & self.truncation_terminates)
        features = self.encoder(rollout.observations.flatten(1, 2))
        next_observations = rollout.next_observations if self.any_bootstraps else None
        with torch.no_grad():
            next_features = None if next_observations is None else self.encoder(next_observations.flatten(1, 2))
        values = self.critic(features).view(learners, environments, steps + 1)

        # The extrinsic critic: the task's rewards alone, and no gradient to the encoder.
        extrinsic_loss, extrinsic_values = self._extrinsic(features.detach(), next_features, rollout, terminated, ended)

        # The bonus enters here: beta times it, less a step cost, is added to the rewards or to the advantages.
        with torch.no_grad():
            condition = extrinsic_values
            if exact_values is not None:
                condition = torch.where(exact_values.isnan(), extrinsic_values, exact_values)
            if value_permutation is not None:
                condition = condition.flatten(1).gather(1, value_permutation).view_as(condition)
            bonus, weighted_bonus = self.weighted_bonus(rollout, condition)
            added = weighted_bonus - self.step_cost
            advantages = gae(
                rollout.rewards + added * self.adds_to_reward,
                values[..., :-1],
                values[..., 1:] if next_features is None else self.critic(next_features).view(shape),
                terminated,
                ended,
                discount=self.discount[:, None],
                gae_lambda=self.gae_lambda[:, None],
            )
            advantages += added * (1 - self.adds_to_reward)
            returns = values[..., :-1] + advantages  # in the release too the critic learns what is added after GAE

        # -log pi(a|s) * advantage - entropy, and the squared errors of the critics.
        logits = self.actor(features.view(learners, environments, steps + 1, -1)[:, :, :-1].flatten(1, 2))
        log_probs = logits.log_softmax(-1)
        log_prob = log_probs.gather(-1, rollout.actions.reshape(learners, -1, 1)).view(shape)
        policy_loss = -(log_prob * advantages).mean((1, 2))
        entropy = -(log_probs.exp() * log_probs).sum(-1).mean(1)
        value_loss = (values[..., :-1] - returns).square().mean((1, 2))
        loss = policy_loss - self.entropy_coefficient * entropy
        loss = loss + self.value_coefficient * (value_loss + extrinsic_loss * self.trains_extrinsic)
        gradient_norm = self._gradient_step(loss)
        metrics = {
            "policy_entropy": entropy.detach(),
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "extrinsic_value_loss": extrinsic_loss.detach(),
            "critic_mean": values.detach().mean((1, 2)),
            "gradient_norm": gradient_norm,
        }
        if exact_values is not None:
            metrics |= _agreement(extrinsic_values.flatten(1), exact_values.flatten(1))
        return UpdateOutput(metrics, bonus)

    def _extrinsic(
        self,
        features: Float[Tensor, "l m_and_n f"],
        next_features: Float[Tensor, "l m f"] | None,
        rollout: Rollout,
        terminated: Bool[Tensor, "l n t"],
        ended: Bool[Tensor, "l n t"],
    ) -> tuple[Float[Tensor, " l"], Float[Tensor, "l n t"]]:
        """Return the extrinsic critic's loss and values; zeros for learners that have none."""
        learners, environments, steps = rollout.actions.shape
        if self.extrinsic_critic is None:
            return features.new_zeros(learners), torch.zeros_like(rollout.rewards)
        subset = self.with_extrinsic
        values = self.extrinsic_critic(gather_rows(features, subset)).view(len(subset), environments, steps + 1)
        with torch.no_grad():
            next_values = values[..., 1:]
            if next_features is not None:
                next_values = self.extrinsic_critic(gather_rows(next_features, subset)).view_as(next_values)
            advantages = gae(
                gather_rows(rollout.rewards, subset),
                values[..., :-1],
                next_values,
                gather_rows(terminated, subset),
                gather_rows(ended, subset),
                discount=self.discount[subset, None],
                gae_lambda=self.gae_lambda[subset, None],
            )
            returns = values[..., :-1] + advantages
        loss = (values[..., :-1] - returns).square().mean((1, 2))
        return scatter_rows(loss, subset, learners), scatter_rows(values[..., :-1].detach(), subset, learners)

    def weighted_bonus(
        self, rollout: Rollout, values: Float[Tensor, "l n t"]
    ) -> tuple[StackedOutput | None, Float[Tensor, "l n t"]]:
        """Compute the bonus, which may learn, and beta times it for each state; zeros for learners without a bonus."""
        subset = self.with_bonus
        if not len(subset):
            return None, torch.zeros_like(values)
        if self.random_encoder is None:
            features = gather_rows(rollout.positions, subset).flatten(1, 2)
        else:
            features = self.random_encoder(gather_rows(rollout.observations, subset)[:, :, :-1].flatten(1, 2))
        inputs: dict[str, Callable[[], Tensor]] = {
            "values": lambda: gather_rows(values, subset).flatten(1),
            "rewards": lambda: gather_rows(rollout.rewards, subset).flatten(1),
            "actions": lambda: gather_rows(rollout.actions, subset).flatten(1),
            "next_features": lambda: next_features_of(rollout, self.random_encoder, subset, self.needs_next_features),
            "episode_starts": lambda: episode_starts(rollout, subset, self.begins_episode),
        }
        output = self.bonus.compute_and_learn(features, **{name: inputs[name]() for name in self.bonus.needs})
        reward = output.reward.view(len(subset), *values.shape[1:])
        return output, scatter_rows(self.beta * reward, subset, self.learners)

    def _gradient_step(self, loss: Float[Tensor, " l"]) -> Float[Tensor, " l"]:
        """Take one RMSprop step per learner, with its gradient clipped by its own norm, and return the norms."""
        modules, extrinsic = parameters_of(self.encoder, self.actor, self.critic), parameters_of(self.extrinsic_critic)
        gradients = [each.flatten(1) for each in torch.autograd.grad(loss.sum(), modules + extrinsic)]
        with torch.no_grad():
            gradient = torch.cat(gradients[: len(modules)], 1)
            stacks = [(self.parameters, self.squares, gradient, self.everyone)]
            square_norm = gradient.square().sum(1)
            if extrinsic:
                gradient = torch.cat(gradients[len(modules) :], 1)
                stacks.append((self.extrinsic_parameters, self.extrinsic_squares, gradient, self.with_extrinsic))
                square_norm = square_norm.index_add(0, self.with_extrinsic, gradient.square().sum(1))
            norm = square_norm.sqrt()
            scale = (self.most_gradient_norm / (norm + 1e-6)).clamp(max=1.0)
            for parameters, squares, gradient, learners in stacks:
                rmsprop_step(
                    parameters,
                    squares,
                    gradient.mul_(scale[learners, None]),
                    rate=self.learning_rate[learners, None],
                    decay=self.rms_decay[learners, None],
                    epsilon=self.rms_epsilon[learners, None],
                )
        self.encoder.cache_matrices()
        return norm

    @property
    def can_be_captured(self) -> bool:
        """Whether updates are not captured yet but could be: the memory of a bonus grows at first."""
        return self._update_graph is None and self.bonus.is_capturable

    def capture(self, rollout: Rollout, value_permutation: Int[Tensor, "l m"] | None = None) -> None:
        """Capture updates from this memory, and the choice of actions, as CUDA graphs to be replayed from now on."""
        self._update_graph = CUDAGraph(lambda: self._update(rollout, None, value_permutation))
        self._captured_memory = rollout, value_permutation
        self._act_graphs.enable()

    def release_capture(self) -> None:
        """Return to eager execution."""
        self._update_graph, self._captured_memory = None, None
        self._act_graphs.disable()

    def learner_state(self, learner: int) -> dict[str, Any]:
        """Return everything of one learner that a restart needs; it does not depend on the rest of the cohort."""
        state: dict[str, Any] = {name: row.cpu().clone() for name, row in self._learner_rows(learner).items()}
        row = index_of(learner, self.with_bonus)
        if row is not None:
            state["bonus"] = self.bonus.learner_state(row)
            state |= self.random_encoder.learner_state(row) if isinstance(self.random_encoder, RandomEncoder) else {}
            if "episode_starts" in self.bonus.needs_of(row):
                state["starts"] = self.begins_episode[row].cpu().clone()
        return state

    @torch.no_grad()
    def load_learner_state(self, learner: int, state: dict[str, Any]) -> None:
        """Load one learner's state."""
        # Checkpoints written on a GPU have no cache of the random encoder.
        check_same_entries(self.learner_state(learner), state, optional=frozenset(("remembered",)))
        for name, rows in self._learner_rows(learner).items():
            rows.copy_(state[name])
        row = index_of(learner, self.with_bonus)
        if row is not None:
            self.bonus.load_learner_state(row, state["bonus"])
            if isinstance(self.random_encoder, RandomEncoder):
                self.random_encoder.load_learner_state(row, state)
            if "starts" in state:
                self.begins_episode[row] = state["starts"].to(self.device)
        self.encoder.cache_matrices()

    def _learner_rows(self, learner: int) -> dict[str, Tensor]:
        """Return the rows of all matrices that belong to a learner."""
        rows = {"parameters": self.parameters[learner], "squares": self.squares[learner]}
        row = index_of(learner, self.with_extrinsic)
        if row is not None:
            rows["extrinsic_parameters"] = self.extrinsic_parameters[row]
            rows["extrinsic_squares"] = self.extrinsic_squares[row]
        return rows

    @torch.no_grad()
    def load_policy(self, learner: int, state: dict[str, Any]) -> None:
        """Load only the policy from one learner's state, whatever its bonus was."""
        self.parameters[learner].copy_(state["parameters"])
        self.encoder.cache_matrices()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every learner."""
        return {str(learner): self.learner_state(learner) for learner in range(self.learners)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state of every learner."""
        for learner in range(self.learners):
            self.load_learner_state(learner, state[str(learner)])


def _agreement(values: Float[Tensor, "l m"], exact: Float[Tensor, "l m"]) -> dict[str, Float[Tensor, " l"]]:
    """Return how close the extrinsic critic is to the exact values; NaN for learners without those."""
    error = (values - exact).square().mean(-1).sqrt()
    centred, exact_centred = (each - each.mean(-1, keepdim=True) for each in (values, exact))
    spread = centred.square().sum(-1).sqrt() * exact_centred.square().sum(-1).sqrt()
    return {"exact_value_rmse": error, "exact_value_correlation": (centred * exact_centred).sum(-1) / spread}
