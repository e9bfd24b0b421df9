"""SAC (soft actor-critic) with an exploration bonus, for a cohort of learners at once.

Every tensor has a leading learner axis `l`; learners share operations, never numbers. The critics are one stack of
networks, whose rows are, where only the second of two learners has a bonus that wants values:

    0, 1: twins of the first    2, 3: twins of the second    4, 5: extrinsic twins of the second

The critic learns the task's rewards plus the bonus, which is computed anew for each batch. The extrinsic critic
learns the task's rewards alone: it is the value that VCSE conditions on, and the bonus cannot reach it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from vcse.agents.output import UpdateOutput
from vcse.agents.sac.settings import SACSettings
from vcse.bonuses.base import Bonus, BonusBatch
from vcse.bonuses.registry import BonusContext
from vcse.bonuses.stacked import StackedBonus, StackedOutput
from vcse.nets.cuda.graphs import Captured, CapturedCall
from vcse.nets.optimizers import adam_state, descend, make_adam
from vcse.nets.perceptrons import Perceptrons
from vcse.nets.stacked import among_all, indices, per_learner, place_of, rows_of
from vcse.nets.tanh_normal import mean_and_log_std, squashed_sample
from vcse.replay.transitions import Batch
from vcse.settings import check_cohort
from vcse.streams import torch_generator, torch_seed

TWIN = 2
ACTION_SAMPLES = 3  # normal numbers of an update: the next action of each critic, and the actor's own


@dataclass(frozen=True)
class SACSpec:
    """What the agent must know of its environments. Actions lie between -1 and 1."""

    observation_size: int
    action_size: int


class SAC:
    """A cohort of SAC learners.

    Args:
        spec: Sizes of observations and actions, the same for all learners.
        configs: The settings of each learner. `SHARED` ones must agree; all else may differ.
        seeds: The seed of each learner's parameters.
        bonus: Anybody's, made with as many learners as there are, in the place of those that the settings choose.
        device: Where everything lives.
        check_finite: Let the bonus refuse NaN and infinity; on CUDA this waits for the device.
    """

    GIVES = frozenset(("values", "rewards", "actions", "next_features"))  # that a bonus may need
    SHARED = ("hidden_units", "batch_size", "learning_rate", "target_every_updates")
    METRICS = (
        "batch_reward",
        "critic_loss",
        "extrinsic_critic_loss",
        "critic_mean",
        "actor_loss",
        "policy_entropy",
        "temperature",
    )

    def __init__(
        self,
        spec: SACSpec,
        configs: Sequence[SACSettings],
        seeds: Sequence[int],
        *,
        bonus: Bonus | None = None,
        device: torch.device | str = "cpu",
        check_finite: bool = False,
    ) -> None:
        check_cohort(configs, seeds, self.SHARED)
        self.device = torch.device(device)
        self.configs, self.learners = tuple(configs), len(configs)
        self.spec, self.updates = spec, 0
        common = configs[0]
        paid = [learner for learner, config in enumerate(configs) if bonus is not None or config.has_bonus]
        choices = [configs[learner].bonus for learner in paid]
        mine = tuple(torch_seed(seeds[learner], "bonus") for learner in paid)
        context = BonusContext(seeds=mine, action_size=spec.action_size, gives=self.GIVES)
        self.bonus = StackedBonus.given(
            bonus, choices, context, agent="sac", dimensions=spec.observation_size, check_finite=check_finite
        ).to(self.device)
        valued = [each for row, each in enumerate(paid) if "values" in self.bonus.needs_of(row)]
        self.valued, self.paid = indices(valued, self.device), indices(paid, self.device)

        # A generator per learner and kind of network, so that having a bonus does not change a learner's policy.
        self.actor_net = Perceptrons(spec.observation_size, common.hidden_units, 2 * spec.action_size)
        self.critic_net = Perceptrons(spec.observation_size + spec.action_size, common.hidden_units, 1)
        generators = [torch_generator(seed, "parameters") for seed in seeds]
        actor = self.actor_net.initial(generators)
        twins = [generator for generator in generators for _ in range(TWIN)]
        extrinsic = [generators[learner] for learner in valued for _ in range(TWIN)]
        critic = self.critic_net.initial(twins + extrinsic)
        self.twin_rows = TWIN * self.learners  # rows of the stack; the extrinsic ones come after
        self.actor = [each.to(self.device).requires_grad_() for each in actor]
        self.critic = [each.to(self.device).requires_grad_() for each in critic]
        self.target_critic = [each.detach().clone() for each in self.critic]
        first_temperatures = torch.tensor([_first_temperature(config) for config in configs])
        self.log_temperature = first_temperatures.log().to(self.device).requires_grad_()
        self.actor_adam, self.critic_adam, self.temperature_adam = (
            make_adam(each, common.learning_rate, self.device)
            for each in (self.actor, self.critic, [self.log_temperature])
        )

        self._read_settings()
        self.target_entropy = -float(spec.action_size)
        self._captured_update: Captured[UpdateOutput] | None = None
        self._captured_acts: dict[tuple[int, ...], CapturedCall[Tensor]] = {}

    def _read_settings(self) -> None:
        """Bring the settings of all learners into tensors."""
        configs, valued = self.configs, self.valued.tolist()
        self.discount = per_learner(configs, "discount", self.device)[:, None]
        self.beta = per_learner(configs, "beta", self.device)[self.paid, None]
        self.learns_temperature = torch.tensor(
            [config.temperature == "learned" for config in configs], device=self.device
        )
        self.step_cost = per_learner(configs, "step_cost", self.device)[:, None]
        trains_value = [float(configs[learner].values != "frozen") for learner in valued for _ in range(TWIN)]
        self.trains = torch.tensor([1.0] * self.twin_rows + trains_value, device=self.device)
        counts_entropy = torch.tensor([config.extrinsic_entropy for config in configs], device=self.device)
        self.extrinsic_entropy = counts_entropy[self.valued, None].float()
        from_target = torch.tensor([config.value_critic == "target" for config in configs], device=self.device)
        self.values_from_target = from_target[self.valued, None]
        self.any_value_online = any(configs[learner].value_critic == "online" for learner in valued)
        rates = per_learner(configs, "target_rate", self.device)
        network_rates = torch.cat((rates, rates[self.valued])).repeat_interleave(TWIN)
        self.target_rates = [network_rates.view(-1, *[1] * (each.ndim - 1)) for each in self.critic]

    @torch.no_grad()
    def act(self, observations: Float[Tensor, "l n d"], noise: Float[Tensor, "l n a"] | None) -> Float[Tensor, "l n a"]:
        """Choose an action for every environment.

        Args:
            observations: What the environments show, on the host or the device.
            noise: Standard normal numbers, which draw the actions; None for the mean of the policy.
        """
        if self._captured_update is None or noise is None:
            noise = None if noise is None else noise.to(self.device)
            return self._act(observations.to(self.device), noise)
        shape = tuple(observations.shape)
        if shape not in self._captured_acts:
            self._captured_acts[shape] = CapturedCall(self._act, observations, noise, device=self.device)
        return self._captured_acts[shape](observations, noise)

    def _act(
        self, observations: Float[Tensor, "l n d"], noise: Float[Tensor, "l n a"] | None
    ) -> Float[Tensor, "l n a"]:
        mean, log_std = self._policy(observations)
        return mean.tanh() if noise is None else squashed_sample(mean, log_std, noise)[0]

    def update(
        self, batch: Batch, noise: Float[Tensor, "l 3 n a"], order: Int[Tensor, "l n"] | None = None
    ) -> UpdateOutput:
        """Learn from a batch; what is returned is overwritten by the next update.

        Args:
            batch: Transitions of every learner.
            noise: Standard normal numbers for `ACTION_SAMPLES` actions of each transition.
            order: Whose value, by its place in the batch, the bonus sees with each state; its own if not given.
        """
        output = self._update(batch, noise, order) if self._captured_update is None else self._captured_update()
        if self.updates % self.configs[0].target_every_updates == 0:
            for target, each, rate in zip(self.target_critic, self.critic, self.target_rates, strict=True):
                target.lerp_(each.detach(), rate)
        self.updates += 1
        return output

    def capture(self, batch: Batch, noise: Float[Tensor, "l 3 n a"], order: Int[Tensor, "l n"] | None = None) -> None:
        """Replay updates from this memory, and the choice of actions, as CUDA graphs from now on."""
        self._captured_update = Captured(lambda: self._update(batch, noise, order))

    def _update(self, batch: Batch, noise: Float[Tensor, "l 3 n a"], order: Int[Tensor, "l n"] | None) -> UpdateOutput:
        next_noise, next_extrinsic_noise, own_noise = noise.unbind(1)
        temperature = self.log_temperature.exp()
        # The policy at s_t, once: its mean for the value, and a sample for the actor's loss, which comes last.
        mean, log_std = self._policy(batch.observations)

        with torch.no_grad():
            # The bonus of s_t joins the task's reward, weighted by beta, less the cost of a step.
            values = self._values(batch.observations, mean.tanh())
            paid, bonus = self.weighted_bonus(batch, values if order is None else values.gather(1, order))
            rewards = batch.rewards + (bonus - self.step_cost)
            targets = self._targets(batch, rewards, temperature, next_noise, next_extrinsic_noise)

        # Every critic of every learner that is trained takes one step towards its own target.
        guesses = self._q_values(self.critic, batch.observations, batch.actions, batch.actions)
        critic_losses = (guesses - targets).square().mean(-1)
        descend((critic_losses * self.trains).sum(), [self.critic_adam])

        # The actor goes where the critics, as they are now, see most reward and entropy.
        action, log_probability = squashed_sample(mean, log_std, own_noise)
        frozen = [each.detach()[: self.twin_rows] for each in self.critic]
        inputs = torch.cat((batch.observations, action), -1).repeat_interleave(TWIN, 0)
        seen = self._min_of_twins(self.critic_net(frozen, inputs)[..., 0])
        actor_loss = (temperature.detach()[:, None] * log_probability - seen).mean(-1)
        descend(actor_loss.sum(), [self.actor_adam])

        # The temperature, where it is learned, rises while the policy has less entropy than wanted.
        entropy = -log_probability.detach().mean(-1)
        temperature_loss = temperature * (entropy - self.target_entropy) * self.learns_temperature
        descend(temperature_loss.sum(), [self.temperature_adam])
        losses = critic_losses.detach()
        metrics = {
            "batch_reward": batch.rewards.mean(-1),
            "critic_loss": losses[: self.twin_rows].view(-1, TWIN).sum(-1),
            "extrinsic_critic_loss": among_all(
                self.valued, losses[self.twin_rows :].view(-1, TWIN).sum(-1), self.learners
            ),
            "critic_mean": guesses.detach()[: self.twin_rows].view(self.learners, -1).mean(-1),
            "actor_loss": actor_loss.detach(),
            "policy_entropy": entropy,
            "temperature": temperature.detach(),
        }
        return UpdateOutput(metrics, paid)

    def _policy(self, observations: Float[Tensor, "l n d"]) -> tuple[Float[Tensor, "l n a"], Float[Tensor, "l n a"]]:
        return mean_and_log_std(self.actor_net(self.actor, observations))

    def _q_values(
        self,
        critic: Sequence[Tensor],
        observations: Float[Tensor, "l n d"],
        actions: Float[Tensor, "l n a"],
        extrinsic_actions: Float[Tensor, "l n a"],
    ) -> Float[Tensor, "networks n"]:
        """Return the Q values of a whole stack of critics; extrinsic critics may be given other actions."""
        inputs = torch.cat((observations, actions), -1)
        if len(self.valued):
            extrinsic = torch.cat((observations, extrinsic_actions), -1)
            inputs = torch.cat((inputs, rows_of(self.valued, extrinsic)))
        return self.critic_net(critic, inputs.repeat_interleave(TWIN, 0))[..., 0]

    def _values(self, observations: Float[Tensor, "l n d"], actions: Float[Tensor, "l n a"]) -> Float[Tensor, "l n"]:
        """Return the extrinsic value of states, at the policy's mean action; 0 for learners that have none."""
        if not len(self.valued):
            return torch.zeros(observations.shape[:-1], device=self.device)
        inputs = rows_of(self.valued, torch.cat((observations, actions), -1)).repeat_interleave(TWIN, 0)
        values = self._min_of_twins(
            self.critic_net([each[self.twin_rows :] for each in self.target_critic], inputs)[..., 0]
        )
        if self.any_value_online:
            online = self._min_of_twins(
                self.critic_net([each[self.twin_rows :] for each in self.critic], inputs)[..., 0]
            )
            values = torch.where(self.values_from_target, values, online)
        return among_all(self.valued, values, self.learners)

    def weighted_bonus(
        self, batch: Batch, values: Float[Tensor, "l n"]
    ) -> tuple[StackedOutput | None, Float[Tensor, "l n"]]:
        """Return the bonus of those who are paid one, and beta times it for each state; zeros for learners without."""
        if not len(self.paid):
            return None, torch.zeros_like(values)
        # The state is its own feature, divided by its dimension, as the release has it.
        features = rows_of(self.paid, batch.observations) / self.spec.observation_size
        given = {"values": values, "rewards": batch.rewards, "actions": batch.actions}
        needed = {name: rows_of(self.paid, given[name]) for name in self.bonus.needs if name in given}
        if "next_features" in self.bonus.needs:
            needed["next_features"] = rows_of(self.paid, batch.next_observations) / self.spec.observation_size
        output = self.bonus(features, **needed)
        if self.bonus.learns:
            self.bonus.learn(BonusBatch(features, **needed))
        return output, among_all(self.paid, self.beta * output.reward, self.learners)

    def _targets(
        self,
        batch: Batch,
        rewards: Float[Tensor, "l n"],
        temperature: Float[Tensor, " l"],
        noise: Float[Tensor, "l n a"],
        extrinsic_noise: Float[Tensor, "l n a"],
    ) -> Float[Tensor, "networks n"]:
        """Return what each network of the stack is to learn: the reward and the discounted value of what follows."""
        mean, log_std = self._policy(batch.next_observations)
        action, log_probability = squashed_sample(mean, log_std, noise)
        extrinsic_action, extrinsic_log_probability = squashed_sample(mean, log_std, extrinsic_noise)
        q_values = self._min_of_twins(
            self._q_values(self.target_critic, batch.next_observations, action, extrinsic_action)
        )
        discounts = self.discount * (1 - batch.terminated)
        soft = q_values[: self.learners] - temperature[:, None] * log_probability
        targets = rewards + discounts * soft
        if len(self.valued):
            who = self.valued
            entropy = -temperature[who, None] * rows_of(who, extrinsic_log_probability)
            extrinsic = q_values[self.learners :] + self.extrinsic_entropy * entropy
            extrinsic_targets = rows_of(who, batch.rewards) + rows_of(who, discounts) * extrinsic
            targets = torch.cat((targets, extrinsic_targets))
        return targets.repeat_interleave(TWIN, 0)

    @staticmethod
    def _min_of_twins(q_values: Float[Tensor, "networks n"]) -> Float[Tensor, "pairs n"]:
        """Return the lower of each two twins."""
        return q_values.view(-1, TWIN, q_values.shape[-1]).amin(1)

    def learner_state(self, learner: int) -> dict[str, Any]:
        """Return everything of one learner that a restart needs; it does not depend on the rest of the cohort."""
        state: dict[str, Any] = {"updates": self.updates}
        for name, (tensors, rows) in self._learner_tensors(learner).items():
            state[name] = [each[rows].detach().cpu().clone() for each in tensors]
        row = place_of(learner, self.paid)
        return state if row is None else {**state, "bonus": self.bonus.learner_state(row)}

    @torch.no_grad()
    def load_learner_state(self, learner: int, state: dict[str, Any]) -> None:
        """Load one learner's state; all learners of a cohort have had as many updates."""
        mine, theirs = sorted(self.learner_state(learner)), sorted(state)
        if mine != theirs:
            raise ValueError(f"the learner has {mine}, but the checkpoint holds {theirs}")
        self.updates = state["updates"]
        for name, (tensors, rows) in self._learner_tensors(learner).items():
            for each, saved in zip(tensors, state[name], strict=True):
                each[rows] = saved.to(self.device)
        for adam in (self.actor_adam, self.critic_adam, self.temperature_adam):
            for each in adam.state.values():
                each["step"].fill_(self.updates)
        row = place_of(learner, self.paid)
        if row is not None:
            self.bonus.load_learner_state(row, state["bonus"])

    @torch.no_grad()
    def load_policy(self, learner: int, state: dict[str, Any]) -> None:
        """Load the policy alone from one learner's state, whatever its critics and its bonus were."""
        for each, saved in zip(self.actor, state["actor"], strict=True):
            each[learner] = saved[0].to(self.device)

    def _learner_tensors(self, learner: int) -> dict[str, tuple[list[Tensor], list[int]]]:
        """Return all tensors that a learner has a part of, by name, and the rows of each that are its own."""
        twins = [TWIN * learner + twin for twin in range(TWIN)]
        rows = (self.valued == learner).nonzero().flatten().tolist()
        extrinsic = [self.twin_rows + TWIN * row + twin for row in rows for twin in range(TWIN)]
        found = {"target_critic": (self.target_critic, twins + extrinsic)}
        for name, parameters, mine, adam in (
            ("actor", self.actor, [learner], self.actor_adam),
            ("critic", self.critic, twins + extrinsic, self.critic_adam),
            ("log_temperature", [self.log_temperature], [learner], self.temperature_adam),
        ):
            found[name] = (parameters, mine)
            for moment in ("exp_avg", "exp_avg_sq"):
                found[f"{name}.{moment}"] = ([adam_state(adam, each)[moment] for each in parameters], mine)
        return found

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every learner."""
        return {str(learner): self.learner_state(learner) for learner in range(self.learners)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state of every learner."""
        for learner in range(self.learners):
            self.load_learner_state(learner, state[str(learner)])


def _first_temperature(settings: SACSettings) -> float:
    return settings.initial_temperature if settings.temperature == "learned" else settings.temperature
