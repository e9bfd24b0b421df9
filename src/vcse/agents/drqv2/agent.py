"""DrQ-v2 (Yarats et al. 2021: a deterministic actor-critic from images) with an exploration bonus.

One learner: its networks fill a GPU by themselves. The encoder learns from the loss of the critic alone, whose reward
is the task's plus beta times the bonus. The extrinsic critic, the actor and the curiosity module see its features
detached; the extrinsic critic learns the task's reward alone, and its value is what VCSE conditions on. A copy of
encoder and actor acts, so that on a GPU an update can be in progress while the policy of the last one chooses actions.

Axes: `m` states of a batch, of which the first `n` are learned from and the others are for the bonus alone; `f`
features of the encoder, `d` of a trunk; `a` dimensions of an action. Twin critics return [2, n].
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from vcse.agents.drqv2.networks import Actor, CuriosityModule, ImageEncoder, TwinCritic
from vcse.agents.drqv2.reward_scale import RewardScale
from vcse.agents.drqv2.settings import DrQv2Settings
from vcse.agents.output import UpdateOutput
from vcse.agents.state import check_same_entries, clones, copy_tensors
from vcse.bonuses.base import Bonus
from vcse.bonuses.registry import BonusContext
from vcse.bonuses.stacked import StackedBonus, StackedOutput
from vcse.nets.cuda.graphs import CUDAGraph, CUDAGraphs
from vcse.nets.cuda.side_stream import SideStream
from vcse.nets.optimizers import adam_tensors, gradient_step, make_adam, parameters_of, set_adam_steps
from vcse.nets.random_shift import shift_images
from vcse.replay.images import ImageBatch
from vcse.streams import torch_generator, torch_seed

NOISE_SAMPLES = 3  # of each transition in an update: one for each critic's next action, one for the actor's loss
SHIFT_SAMPLES = 3  # random shifts in an update: of the images at step t, at t + n and at t + 1
Noise = Float[Tensor, "3 n a"]
Shifts = Int[Tensor, "3 m 2"]
LARGEST_ACTION = 1 - 1e-6
SATURATED = 0.99  # size of an action beyond which the derivative of tanh is below 2 %


@dataclass(frozen=True)
class DrQv2Spec:
    """What the agent needs to know about its environment. Actions lie between -1 and 1."""

    channels: int  # of a stack of images
    action_size: int


class DrQv2:
    """One DrQ-v2 learner.

    Args:
        spec: Sizes of images and actions.
        config: The settings.
        seed: Of the parameters.
        bonus: Overrides the bonus that the settings choose; made with learners=1.
        device: Of all parameters and buffers.
    """

    # What the agent can give a bonus beside features; a bonus that needs anything else is refused.
    BONUS_INPUTS = frozenset(("values", "rewards", "actions"))
    METRICS = (
        *("batch_reward", "critic_loss", "extrinsic_critic_loss", "critic_mean", "actor_loss", "curiosity_loss"),
        *("action_noise", "beta", "reward_scale", "saturated_share"),
    )

    def __init__(
        self,
        spec: DrQv2Spec,
        config: DrQv2Settings,
        seed: int,
        *,
        bonus: Bonus | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.device = torch.device(device)
        self.config, self.spec = config, spec
        self.updates = 0
        self.has_bonus = bonus is not None or config.has_bonus
        choices = [config.bonus] if self.has_bonus else []
        inputs, name = self.BONUS_INPUTS, "drqv2"
        if config.return_injection == "every_step" and config.n_step > 1:  # the replay has only a return's first action
            inputs, name = inputs - {"actions"}, "drqv2 with return_injection='every_step'"
        context = BonusContext((torch_seed(seed, "bonus"),), action_size=spec.action_size, gives=inputs)
        stacked = StackedBonus.for_agent(bonus, choices, context, agent=name, dimensions=config.features)
        self.bonus = stacked.to(self.device)

        # Networks that only a bonus needs come last, so that having one does not change the policy.
        generator = torch_generator(seed, "parameters")
        sizes = (config.features, config.hidden_units, spec.action_size)
        self.encoder = ImageEncoder(spec.channels, generator, precision=config.encoder_precision).to(self.device)
        self.actor = Actor(*sizes, generator, normalized=config.actor_normalization).to(self.device)
        self.critic = TwinCritic(*sizes, generator).to(self.device)
        needs_values = "values" in self.bonus.needs
        self.extrinsic_critic = TwinCritic(*sizes, generator).to(self.device) if needs_values else None
        self.curiosity = CuriosityModule(*sizes, generator).to(self.device) if self.has_bonus else None
        self.target_critic = copy.deepcopy(self.critic)
        self.extrinsic_target_critic = copy.deepcopy(self.extrinsic_critic)
        self.acting_encoder, self.acting_actor = copy.deepcopy(self.encoder), copy.deepcopy(self.actor)
        # As lists, so that all are copied in one operation.
        self._critic_parameters = parameters_of(self.critic, self.extrinsic_critic)
        self._target_parameters = parameters_of(self.target_critic, self.extrinsic_target_critic)
        self._policy_parameters = parameters_of(self.encoder, self.actor)
        self._acting_parameters = parameters_of(self.acting_encoder, self.acting_actor)

        learned = {
            "encoder": self.encoder,
            "actor": self.actor,
            "critic": self.critic,
            "extrinsic_critic": self.extrinsic_critic,
            "curiosity": self.curiosity,
        }
        self.optimizers = {
            name: make_adam(each.parameters(), config.learning_rate, self.device)
            for name, each in learned.items()
            if each is not None
        }

        # What changes from update to update, in memory that a CUDA graph can read.
        self.action_noise = torch.tensor(config.noise(0), device=self.device)
        self.beta = torch.tensor(config.weight(0) if self.has_bonus else 0.0, device=self.device)
        self.reward_scale = RewardScale(config.reward_normalization, config.discount, self.device)
        self.side_stream = SideStream(self.device)
        self._update_graph: CUDAGraph[UpdateOutput] | None = None
        self._act_graphs: CUDAGraphs[Tensor] = CUDAGraphs(self.device)

    @torch.no_grad()
    def act(
        self, observations: UInt8[Tensor, "n c h w"], noise: Float[Tensor, "n a"] | None, *, step: int = 0
    ) -> Float[Tensor, "n a"]:
        """Choose actions; after `capture`, those with noise are overwritten by the next call.

        Args:
            observations: Stacks of images, on the host or the device.
            noise: Standard normal numbers, scaled by the schedule of the action noise; None for the mean of the policy.
            step: Steps of training so far.
        """
        if observations.ndim != 4 or observations.shape[1] != self.spec.channels:
            raise ValueError(
                f"observations must be [n, {self.spec.channels}, height, width], stacks of images, "
                f"got shape {tuple(observations.shape)}"
            )
        if noise is None:
            return self.acting_actor(self.acting_encoder(observations.to(self.device)))  # type: ignore[no-any-return]
        return self._act_graphs(self._act, observations, self.config.noise(step) * noise)

    def _act(self, observations: UInt8[Tensor, "n c h w"], noise: Float[Tensor, "n a"]) -> Float[Tensor, "n a"]:
        mean: Tensor = self.acting_actor(self.acting_encoder(observations))
        return (mean + noise).clamp(-LARGEST_ACTION, LARGEST_ACTION)

    def update(self, batch: ImageBatch, noise: Noise, shifts: Shifts, *, step: int) -> UpdateOutput:
        """Update all networks, and act with the new policy from now on; for the arguments see `update_networks`."""
        output = self.update_networks(batch, noise, shifts, step=step)
        self.update_acting_policy()
        return output

    def update_networks(self, batch: ImageBatch, noise: Noise, shifts: Shifts, *, step: int) -> UpdateOutput:
        """Update all networks but the copy that acts; the output is overwritten by the next update.

        After `capture` the arguments must be the memory that was captured, with new contents: no other is read.

        Args:
            batch: Transitions; those beyond the batch size are for the bonus alone.
            noise: Standard normal numbers for `NOISE_SAMPLES` actions of each transition that is learned from.
            shifts: Of the images at step t, at t + n and at t + 1.
            step: Steps of training so far, on which schedules depend.
        """
        self.action_noise.fill_(self.config.noise(step))
        self.beta.fill_(self.config.weight(step) if self.has_bonus else 0.0)
        output = self._update(batch, noise, shifts) if self._update_graph is None else self._update_graph()
        self.updates += 1
        return output

    def update_acting_policy(self) -> None:
        """Copy the encoder and the actor to the copies that act."""
        copy_tensors(self._acting_parameters, self._policy_parameters)

    def _update(self, batch: ImageBatch, noise: Noise, shifts: Shifts) -> UpdateOutput:
        size = self.config.batch_size  # transitions beyond it are for the bonus alone
        next_noise, extrinsic_next_noise, actor_noise = noise
        actions, discounts = batch.actions[:size], batch.discounts[:size]
        # The batch has discounted sums of n rewards, and the first of them, which the bonus sees. In Meta-World both
        # are divided by a running mean of their size, elsewhere if `reward_normalization` asks for it.
        self.reward_scale.update(batch.first_rewards[:size], batch.rewards[:size])
        first_rewards = self.reward_scale.scale(batch.first_rewards)
        n_step_rewards = self.reward_scale.scale_returns(batch.rewards[:size], discounts)

        # Augment and encode, as in DrQ-v2.
        images = shift_images(batch.observations, shifts[0])
        encoded = self.encoder(images[:size])
        features = encoded.detach()
        with torch.no_grad():
            next_features = self.encoder(shift_images(batch.next_observations[:size], shifts[1, :size]))
        pre_tanh = self.actor.pre_tanh(features)  # for the value of s_t, and for the actor's loss
        mean = pre_tanh.tanh()

        # Curiosity module (ICM), and the bonus of its features. On a GPU the side stream runs concurrently with what
        # follows, until `wait`.
        extrinsic_hidden = None
        with self.side_stream:
            curiosity_loss = self._update_curiosity(batch, shifts, features, next_features)
            if self.extrinsic_critic is not None:
                extrinsic_hidden = self.extrinsic_critic.trunk(features)
            with torch.no_grad():
                states = self._with_extra_states(images[size:], features, mean.detach(), extrinsic_hidden)
                bonus, weighted_bonus = self.weighted_bonus(*states, first_rewards, batch.actions)
                weighted_bonus = weighted_bonus[:size] + self._later_bonuses(batch, shifts[0, :size])

        # Target: the lower of both target critics at a noisy action of the policy.
        with torch.no_grad():
            next_mean = self.actor(next_features)
            next_actions = self._noisy_actions(next_mean, next_noise)
            next_values = self.target_critic(next_features, next_actions).amin(0)
        q_values = self.critic(encoded, actions)
        self.side_stream.wait()

        # Extrinsic critic: the task's rewards alone, its own target critic and noise, no gradient to the encoder.
        extrinsic_loss = torch.zeros((), device=self.device)
        if extrinsic_hidden is not None:
            with self.side_stream:
                extrinsic_next_actions = self._noisy_actions(next_mean, extrinsic_next_noise)
                extrinsic_loss = self._update_extrinsic_critic(
                    extrinsic_hidden, actions, next_features, extrinsic_next_actions, n_step_rewards, discounts
                )

        # Critic and encoder. The bonus enters here: rewards + beta * bonus + discount * min_i Q_i(s_{t+n}, a_{t+n}).
        target_q = n_step_rewards + weighted_bonus + discounts * next_values
        critic_loss = (q_values - target_q).square().mean(-1).sum()
        gradient_step(critic_loss, self.optimizers["encoder"], self.optimizers["critic"])

        # Actor, then target critics.
        actor_loss = self._update_actor(features, pre_tanh, self._noisy_actions(mean, actor_noise))
        self.side_stream.wait()
        with torch.no_grad():
            torch._foreach_lerp_(self._target_parameters, self._critic_parameters, self.config.target_rate)
        losses = critic_loss, extrinsic_loss, actor_loss, curiosity_loss
        return UpdateOutput(self._metrics(batch, losses, q_values, mean), bonus)

    def _update_curiosity(
        self,
        batch: ImageBatch,
        shifts: Shifts,
        features: Float[Tensor, "n f"],
        next_features: Float[Tensor, "n f"],
    ) -> Tensor:
        """Update the curiosity module, if there is one, on detached features."""
        if self.curiosity is None:
            return torch.zeros((), device=self.device)
        size = self.config.batch_size
        if self.config.curiosity_pair == "one-step":
            assert batch.one_step_observations is not None
            with torch.no_grad():
                next_features = self.encoder(shift_images(batch.one_step_observations[:size], shifts[2, :size]))
        features, next_features = self.curiosity.trunk(features), self.curiosity.trunk(next_features)
        loss = self.curiosity.loss(features, batch.actions[:size], next_features)
        gradient_step(loss, self.optimizers["curiosity"])
        return loss.detach()

    def weighted_bonus(
        self,
        features: Float[Tensor, "m f"],
        mean: Float[Tensor, "m a"],
        extrinsic_hidden: Float[Tensor, "m d"] | None,
        rewards: Float[Tensor, " m"],
        actions: Float[Tensor, "m a"],
        *,
        learn: bool = True,
    ) -> tuple[StackedOutput | None, Float[Tensor, " m"]]:
        """Compute the bonus, and beta times it for each state; zeros without a bonus.

        Args:
            features: Of the encoder.
            mean: The policy's mean actions.
            extrinsic_hidden: Output of the extrinsic critic's trunk.
            rewards: Of one step, as scaled for the bonus.
            actions: Taken in these states.
            learn: Let a bonus such as RND learn from these states.
        """
        if self.curiosity is None:  # there is no bonus
            return None, torch.zeros_like(rewards)
        # V(s) = min_i Q_i(s, mean action), of the extrinsic critic or its target.
        values = torch.zeros_like(rewards)
        if self.config.value_critic == "target" and self.extrinsic_target_critic is not None:
            values = self.extrinsic_target_critic(features, mean).amin(0)
        elif self.extrinsic_critic is not None and extrinsic_hidden is not None:
            values = self.extrinsic_critic.q_values(extrinsic_hidden, mean).amin(0)
        inputs = {"values": values[None], "rewards": rewards[None], "actions": actions[None]}
        compute = self.bonus.compute_and_learn if learn else self.bonus
        output = compute(self.curiosity.trunk(features)[None], **inputs)
        return output, self.beta * output.reward[0]

    def _with_extra_states(
        self,
        extra_images: UInt8[Tensor, "e c h w"],
        features: Float[Tensor, "n f"],
        mean: Float[Tensor, "n a"],
        extrinsic_hidden: Float[Tensor, "n d"] | None,
    ) -> tuple[Float[Tensor, "m f"], Float[Tensor, "m a"], Float[Tensor, "m d"] | None]:
        """Append the states that are for the bonus alone."""
        if not len(extra_images) or not self.has_bonus:
            return features, mean, extrinsic_hidden
        extra = self.encoder(extra_images)
        mean = torch.cat((mean, self.actor(extra)))
        if self.extrinsic_critic is not None and extrinsic_hidden is not None:
            extrinsic_hidden = torch.cat((extrinsic_hidden, self.extrinsic_critic.trunk(extra)))
        return torch.cat((features, extra)), mean, extrinsic_hidden

    def _later_bonuses(self, batch: ImageBatch, shifts: Int[Tensor, "n 2"]) -> Float[Tensor, " n"]:
        """Compute the discounted bonuses of steps after the first, if an n-step return counts one at every step."""
        size = self.config.batch_size
        total = torch.zeros(size, device=self.device)
        if batch.between is None or not self.has_bonus:
            return total
        for images, rewards, discounts in zip(*batch.between, strict=True):
            features = self.encoder(shift_images(images[:size], shifts))
            mean = self.actor(features)
            hidden = None if self.extrinsic_critic is None else self.extrinsic_critic.trunk(features)
            scaled = self.reward_scale.scale(rewards[:size])
            # The actions are those of the first step: bonuses that need them are refused with every_step.
            _, bonus = self.weighted_bonus(features, mean, hidden, scaled, batch.actions[:size], learn=False)
            total = total + discounts[:size] * bonus
        return total

    def _update_extrinsic_critic(
        self,
        hidden: Float[Tensor, "n d"],
        actions: Float[Tensor, "n a"],
        next_features: Float[Tensor, "n f"],
        next_actions: Float[Tensor, "n a"],
        n_step_rewards: Float[Tensor, " n"],
        discounts: Float[Tensor, " n"],
    ) -> Tensor:
        """Update the extrinsic critic, as the critic but without the bonus and without the encoder."""
        assert self.extrinsic_critic is not None
        assert self.extrinsic_target_critic is not None
        with torch.no_grad():
            next_values = self.extrinsic_target_critic(next_features, next_actions).amin(0)
        q_values = self.extrinsic_critic.q_values(hidden, actions)
        loss: Tensor = (q_values - (n_step_rewards + discounts * next_values)).square().mean(-1).sum()
        gradient_step(loss, self.optimizers["extrinsic_critic"])
        return loss

    def _update_actor(
        self, features: Float[Tensor, "n f"], pre_tanh: Float[Tensor, "n a"], actions: Float[Tensor, "n a"]
    ) -> Tensor:
        """Update the actor towards actions with a higher min_i Q_i(s, a)."""
        with torch.no_grad():
            hidden = self.critic.trunk(features)
        loss: Tensor = -self.critic.q_values(hidden, actions, detach_parameters=True).amin(0).mean()
        if self.config.pre_activation_penalty > 0:
            loss = loss + self.config.pre_activation_penalty * pre_tanh.square().mean()
        gradient_step(loss, self.optimizers["actor"])
        return loss

    def _noisy_actions(self, mean: Float[Tensor, "n a"], noise: Float[Tensor, "n a"]) -> Float[Tensor, "n a"]:
        """Add clipped noise; clamping to the range of actions passes gradients straight through, as in DrQ-v2."""
        clip = self.config.noise_clip
        actions = mean + (self.action_noise * noise).clamp(-clip, clip)
        return actions + (actions.clamp(-LARGEST_ACTION, LARGEST_ACTION) - actions).detach()

    def _metrics(
        self,
        batch: ImageBatch,
        losses: tuple[Tensor, Tensor, Tensor, Tensor],
        q_values: Float[Tensor, "2 n"],
        mean: Float[Tensor, "n a"],
    ) -> dict[str, Tensor]:
        """Return the numbers to log, as `METRICS` names them."""
        critic_loss, extrinsic_loss, actor_loss, curiosity_loss = (each.detach() for each in losses)
        return {
            "batch_reward": batch.rewards[: self.config.batch_size].mean(),
            "critic_loss": critic_loss,
            "extrinsic_critic_loss": extrinsic_loss,
            "critic_mean": q_values.detach().mean(),
            "actor_loss": actor_loss,
            "curiosity_loss": curiosity_loss,
            "action_noise": self.action_noise,
            "beta": self.beta,
            "reward_scale": self.reward_scale.magnitude,
            "saturated_share": (mean.detach().abs() > SATURATED).float().mean(),
        }

    def capture(self, batch: ImageBatch, noise: Tensor, shifts: Tensor) -> None:
        """Capture updates from this memory, and the choice of actions with noise, as CUDA graphs."""
        self._update_graph = CUDAGraph(lambda: self._update(batch, noise, shifts))
        self._act_graphs.enable()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a restart needs."""
        state = {"updates": self.updates, **self.reward_scale.state_dict(), **clones(self._tensors())}
        return state | ({"bonus": self.bonus.learner_state(0)} if self.has_bonus else {})

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        check_same_entries(self.state_dict(), state)
        self.updates = state["updates"]
        self.reward_scale.load_state_dict(state)
        for name, tensors in self._tensors().items():
            copy_tensors(tensors, state[name])
        for optimizer in self.optimizers.values():
            set_adam_steps(optimizer, self.updates)
        if self.has_bonus:
            self.bonus.load_learner_state(0, state["bonus"])

    def load_policy(self, state: dict[str, Any]) -> None:
        """Load only the acting policy from a learner's state, whatever its critics and its bonus were."""
        copy_tensors(self._acting_parameters, state["acting"])

    def _tensors(self) -> dict[str, list[Tensor]]:
        """Return all tensors of the learner, by what they belong to."""
        tensors = {"targets": self._target_parameters, "acting": self._acting_parameters}
        for name, optimizer in self.optimizers.items():
            tensors |= adam_tensors(optimizer, name)
        return tensors
