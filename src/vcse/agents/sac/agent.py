"""SAC (soft actor-critic, Haarnoja et al. 2018) with an exploration bonus, for a cohort of learners at once.

The critics learn the task's reward plus beta times the bonus, which is computed anew for each batch, minus a step
cost. Extrinsic critics learn the task's reward alone: theirs is the value that VCSE conditions on, and no gradient of
the bonus reaches them.

Every tensor has a leading learner axis: `l` for all learners, `v` for those with an extrinsic critic. Learners share
operations, never numbers. `gather_rows` and `scatter_rows` select the rows of some learners and put them back among
zeros. Other axes: `n` transitions or environments, `d` dimensions of an observation, `a` of an action.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.agents.output import UpdateOutput
from vcse.agents.sac.networks import Actor, TwinCritic
from vcse.agents.sac.settings import SACSettings
from vcse.agents.state import check_same_entries
from vcse.bonuses.base import Bonus
from vcse.bonuses.registry import BonusContext
from vcse.bonuses.stacked import StackedBonus, StackedOutput
from vcse.nets.cuda.graphs import CUDAGraph, CUDAGraphs
from vcse.nets.optimizers import adam_tensors, gradient_step, make_adam, parameters_of, set_adam_steps
from vcse.nets.stacked import gather_rows, index_of, index_tensor, per_learner, scatter_rows
from vcse.nets.tanh_normal import squashed_sample
from vcse.replay.transitions import Batch
from vcse.settings import check_cohort
from vcse.streams import torch_generator, torch_seed

ACTION_SAMPLES = 3  # of each transition in an update: one for each critic's next action, one for the actor's loss


@dataclass(frozen=True)
class SACSpec:
    """What the agent needs to know about its environments. Actions lie between -1 and 1."""

    observation_size: int
    action_size: int


class SAC:
    """A cohort of SAC learners.

    Args:
        spec: Sizes of observations and actions, the same for all learners.
        configs: The settings of each learner. `SHARED_SETTINGS` must agree; all else may differ.
        seeds: The seed of each learner's parameters.
        bonus: Overrides the bonuses that the settings choose; made with as many learners as there are configs.
        device: Of all parameters and buffers.
    """

    # What the agent can give a bonus beside features; a bonus that needs anything else is refused.
    BONUS_INPUTS = frozenset(("values", "rewards", "actions", "next_features"))
    SHARED_SETTINGS = ("hidden_units", "batch_size", "learning_rate", "target_every_updates")
    METRICS = (
        *("batch_reward", "critic_loss", "extrinsic_critic_loss", "critic_mean", "actor_loss"),
        *("policy_entropy", "temperature"),
    )

    def __init__(
        self,
        spec: SACSpec,
        configs: Sequence[SACSettings],
        seeds: Sequence[int],
        *,
        bonus: Bonus | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        check_cohort(configs, seeds, self.SHARED_SETTINGS)
        self.device = torch.device(device)
        self.configs, self.learners = tuple(configs), len(configs)
        self.spec, self.updates = spec, 0
        common = configs[0]
        with_bonus = [learner for learner, config in enumerate(configs) if bonus is not None or config.has_bonus]
        self.with_bonus = index_tensor(with_bonus, self.device)
        choices = [configs[learner].bonus for learner in with_bonus]
        bonus_seeds = tuple(torch_seed(seeds[learner], "bonus") for learner in with_bonus)
        context = BonusContext(bonus_seeds, action_size=spec.action_size, gives=self.BONUS_INPUTS)
        stacked = StackedBonus.for_agent(bonus, choices, context, agent="sac", dimensions=spec.observation_size)
        self.bonus = stacked.to(self.device)
        with_extrinsic = [each for row, each in enumerate(with_bonus) if "values" in self.bonus.needs_of(row)]
        self.with_extrinsic = index_tensor(with_extrinsic, self.device)

        # A generator per learner. Extrinsic critics are initialised last, so that having one changes no policy.
        sizes = (spec.observation_size, spec.action_size, common.hidden_units)
        generators = [torch_generator(seed, "parameters") for seed in seeds]
        self.actor = Actor(*sizes, generators).to(self.device)
        self.critic = TwinCritic(*sizes, generators, self.with_extrinsic).to(self.device)
        self.target_critic = copy.deepcopy(self.critic).requires_grad_(False)
        initial_temperatures = [
            config.initial_temperature if config.temperature == "learned" else config.temperature for config in configs
        ]
        self.log_temperature = torch.tensor(initial_temperatures).log().to(self.device).requires_grad_()
        self.actor_optimizer, self.critic_optimizer, self.temperature_optimizer = (
            make_adam(parameters, common.learning_rate, self.device)
            for parameters in (self.actor.parameters(), self.critic.parameters(), [self.log_temperature])
        )

        self._read_settings()
        self.target_entropy = -float(spec.action_size)
        self._update_graph: CUDAGraph[UpdateOutput] | None = None
        self._act_graphs: CUDAGraphs[Tensor] = CUDAGraphs(self.device)

    def _read_settings(self) -> None:
        """Put the settings of all learners into tensors."""
        configs, device = self.configs, self.device
        self.discount = per_learner(configs, "discount", device)[:, None]
        self.beta = per_learner(configs, "beta", device)[self.with_bonus, None]
        self.step_cost = per_learner(configs, "step_cost", device)[:, None]
        self.learns_temperature = torch.tensor([each.temperature == "learned" for each in configs], device=device)
        # Only for the learners with an extrinsic critic.
        extrinsic = [configs[learner] for learner in self.with_extrinsic.tolist()]
        self.trains_extrinsic = torch.tensor([float(each.values != "frozen") for each in extrinsic], device=device)
        self.extrinsic_entropy = per_learner(extrinsic, "extrinsic_entropy", device)[:, None]
        uses_target = [each.value_critic == "target" for each in extrinsic]
        self.value_from_target = torch.tensor(uses_target, dtype=torch.bool, device=device)[:, None]
        self.any_value_online = not all(uses_target)

        # The twins of all learners are one stack, [2 * (l + v), ...]: those of the critics, then the extrinsic ones.
        rates = per_learner(configs, "target_rate", device)
        rates = torch.cat((rates, rates[self.with_extrinsic])).repeat_interleave(2)  # of twins
        self.target_rates = [rates.view(-1, *[1] * (each.ndim - 1)) for each in self.critic.parameters()]

    @torch.no_grad()
    def act(self, observations: Float[Tensor, "l n d"], noise: Float[Tensor, "l n a"] | None) -> Float[Tensor, "l n a"]:
        """Choose an action for every environment; after `capture`, sampled ones are overwritten by the next call.

        Args:
            observations: One per environment, on the host or the device.
            noise: Standard normal numbers from which actions are sampled; None for the mean of the policy.
        """
        if noise is None:
            return self._act(observations.to(self.device))
        return self._act_graphs(self._act, observations, noise)

    def _act(
        self, observations: Float[Tensor, "l n d"], noise: Float[Tensor, "l n a"] | None = None
    ) -> Float[Tensor, "l n a"]:
        mean, log_std = self.actor(observations)
        return mean.tanh() if noise is None else squashed_sample(mean, log_std, noise)[0]

    def update(
        self, batch: Batch, noise: Float[Tensor, "l 3 n a"], value_permutation: Int[Tensor, "l n"] | None = None
    ) -> UpdateOutput:
        """Update actor, critics, temperature and target critics; the output is overwritten by the next update.

        After `capture` the arguments must be the memory that was captured, with new contents: no other is read.

        Args:
            batch: Transitions of every learner.
            noise: Standard normal numbers for `ACTION_SAMPLES` actions of each transition.
            value_permutation: For each state, the index of the state whose value the bonus is given, as a control; its
                own if not given.
        """
        graph = self._update_graph
        output = self._update(batch, noise, value_permutation) if graph is None else graph()
        if self.updates % self.configs[0].target_every_updates == 0:
            # Target critics move towards the critics: target += rate * (parameter - target).
            pairs = zip(self.target_critic.parameters(), self.critic.parameters(), self.target_rates, strict=True)
            for target, parameter, rate in pairs:
                target.lerp_(parameter.detach(), rate)
        self.updates += 1
        return output

    def _update(
        self, batch: Batch, noise: Float[Tensor, "l 3 n a"], value_permutation: Int[Tensor, "l n"] | None
    ) -> UpdateOutput:
        next_noise, extrinsic_next_noise, actor_noise = noise.unbind(1)
        temperature = self.log_temperature.exp()
        mean, log_std = self.actor(batch.observations)  # for the value of s_t, and for the actor's loss

        # The bonus enters here: the reward of the critics is the task's, plus beta times the bonus, less a step cost.
        with torch.no_grad():
            values = self._extrinsic_values(batch.observations, mean.tanh())
            if value_permutation is not None:
                values = values.gather(1, value_permutation)
            bonus, weighted_bonus = self.weighted_bonus(batch, values)
            rewards = batch.rewards + (weighted_bonus - self.step_cost)
            targets, extrinsic_targets = self._critic_targets(
                batch, rewards, temperature, next_noise, extrinsic_next_noise
            )

        # Critics and extrinsic critics, both at the actions taken: mean (Q_i(s, a) - target)², summed over the twins.
        # One pass, [l, 2, n] and [v, 2, n]: the first actions are for the critics, the second for the extrinsic ones.
        q_values, extrinsic_q_values = self.critic(batch.observations, batch.actions, batch.actions)
        critic_loss = (q_values - targets[:, None]).square().mean(-1).sum(-1)
        extrinsic_loss = (extrinsic_q_values - extrinsic_targets[:, None]).square().mean(-1).sum(-1)
        gradient_step(critic_loss.sum() + (extrinsic_loss * self.trains_extrinsic).sum(), self.critic_optimizer)

        # Actor: mean of temperature * log pi(a|s) - min_i Q_i(s, a).
        action, log_prob = squashed_sample(mean, log_std, actor_noise)
        min_q_value = self.critic.q_values(batch.observations, action, detach_parameters=True).amin(1)
        actor_loss = (temperature.detach()[:, None] * log_prob - min_q_value).mean(-1)
        gradient_step(actor_loss.sum(), self.actor_optimizer)

        # Temperature, where it is learned: it rises while the policy's entropy is below the target.
        entropy = -log_prob.detach().mean(-1)
        temperature_loss = temperature * (entropy - self.target_entropy) * self.learns_temperature
        gradient_step(temperature_loss.sum(), self.temperature_optimizer)

        metrics = {
            "batch_reward": batch.rewards.mean(-1),
            "critic_loss": critic_loss.detach(),
            "extrinsic_critic_loss": scatter_rows(extrinsic_loss.detach(), self.with_extrinsic, self.learners),
            "critic_mean": q_values.detach().flatten(1).mean(-1),
            "actor_loss": actor_loss.detach(),
            "policy_entropy": entropy,
            "temperature": temperature.detach(),
        }
        return UpdateOutput(metrics, bonus)

    def _critic_targets(
        self,
        batch: Batch,
        rewards: Float[Tensor, "l n"],
        temperature: Float[Tensor, " l"],
        noise: Float[Tensor, "l n a"],
        extrinsic_noise: Float[Tensor, "l n a"],
    ) -> tuple[Float[Tensor, "l n"], Float[Tensor, "v n"]]:
        """Return r + discount * (1 - terminated) * (min_i Q_i(s', a') - temperature * log pi(a'|s')).

        The second target is that of the extrinsic critics, without the bonus, and by default without the entropy.
        """
        mean, log_std = self.actor(batch.next_observations)
        action, log_prob = squashed_sample(mean, log_std, noise)
        extrinsic_action, extrinsic_log_prob = squashed_sample(mean, log_std, extrinsic_noise)
        q_values, extrinsic_q_values = self.target_critic(batch.next_observations, action, extrinsic_action)
        discounts = self.discount * (1 - batch.terminated)
        targets = rewards + discounts * (q_values.amin(1) - temperature[:, None] * log_prob)

        subset = self.with_extrinsic
        entropy = -temperature[subset, None] * gather_rows(extrinsic_log_prob, subset)
        extrinsic_values = extrinsic_q_values.amin(1) + self.extrinsic_entropy * entropy
        return targets, gather_rows(batch.rewards, subset) + gather_rows(discounts, subset) * extrinsic_values

    def _extrinsic_values(
        self, observations: Float[Tensor, "l n d"], mean_actions: Float[Tensor, "l n a"]
    ) -> Float[Tensor, "l n"]:
        """Return V(s) = min_i Q_i(s, mean action) of the extrinsic critics; 0 for learners that have none."""
        if not len(self.with_extrinsic):
            return torch.zeros(observations.shape[:-1], device=self.device)
        values = self.target_critic.extrinsic_q_values(observations, mean_actions).amin(1)
        if self.any_value_online:
            online = self.critic.extrinsic_q_values(observations, mean_actions).amin(1)
            values = torch.where(self.value_from_target, values, online)
        return scatter_rows(values, self.with_extrinsic, self.learners)

    def weighted_bonus(
        self, batch: Batch, values: Float[Tensor, "l n"]
    ) -> tuple[StackedOutput | None, Float[Tensor, "l n"]]:
        """Compute the bonus, which may learn, and beta times it for each state; zeros for learners without a bonus."""
        subset = self.with_bonus
        if not len(subset):
            return None, torch.zeros_like(values)
        # The state is its own feature, divided by its dimension, as in the paper's released code.
        output = self.bonus.compute_and_learn(
            gather_rows(batch.observations, subset) / self.spec.observation_size,
            values=gather_rows(values, subset),
            rewards=gather_rows(batch.rewards, subset),
            actions=gather_rows(batch.actions, subset),
            next_features=gather_rows(batch.next_observations, subset) / self.spec.observation_size,
        )
        return output, scatter_rows(self.beta * output.reward, subset, self.learners)

    def capture(
        self, batch: Batch, noise: Float[Tensor, "l 3 n a"], value_permutation: Int[Tensor, "l n"] | None = None
    ) -> None:
        """Capture updates from this memory, and the choice of actions, as CUDA graphs to be replayed from now on."""
        self._update_graph = CUDAGraph(lambda: self._update(batch, noise, value_permutation))
        self._act_graphs.enable()

    def learner_state(self, learner: int) -> dict[str, Any]:
        """Return everything of one learner that a restart needs; it does not depend on the rest of the cohort."""
        state: dict[str, Any] = {"updates": self.updates}
        for name, (tensors, rows) in self._learner_tensors(learner).items():
            state[name] = [each[rows].detach().cpu().clone() for each in tensors]
        row = index_of(learner, self.with_bonus)
        return state if row is None else {**state, "bonus": self.bonus.learner_state(row)}

    @torch.no_grad()
    def load_learner_state(self, learner: int, state: dict[str, Any]) -> None:
        """Load one learner's state; all learners of a cohort have had as many updates."""
        check_same_entries(self.learner_state(learner), state)
        self.updates = state["updates"]
        for name, (tensors, rows) in self._learner_tensors(learner).items():
            for each, saved in zip(tensors, state[name], strict=True):
                each[rows] = saved.to(self.device)
        for optimizer in (self.actor_optimizer, self.critic_optimizer, self.temperature_optimizer):
            set_adam_steps(optimizer, self.updates)
        row = index_of(learner, self.with_bonus)
        if row is not None:
            self.bonus.load_learner_state(row, state["bonus"])

    @torch.no_grad()
    def load_policy(self, learner: int, state: dict[str, Any]) -> None:
        """Load only the policy from one learner's state, whatever its critics and its bonus were."""
        for parameter, saved in zip(self.actor.parameters(), state["actor"], strict=True):
            parameter[learner] = saved[0].to(self.device)

    def _learner_tensors(self, learner: int) -> dict[str, tuple[list[Tensor], list[int]]]:
        """Return by name the tensors that hold a learner's state, with the indices of its rows."""
        critic_rows = self.critic.rows_of(learner)
        tensors = {"target_critic": (parameters_of(self.target_critic), critic_rows)}
        for name, optimizer, rows in (
            ("actor", self.actor_optimizer, [learner]),
            ("critic", self.critic_optimizer, critic_rows),
            ("log_temperature", self.temperature_optimizer, [learner]),
        ):
            tensors |= {key: (each, rows) for key, each in adam_tensors(optimizer, name).items()}
        return tensors

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every learner."""
        return {str(learner): self.learner_state(learner) for learner in range(self.learners)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state of every learner."""
        for learner in range(self.learners):
            self.load_learner_state(learner, state[str(learner)])
