"""DrQ-v2 (a deterministic actor-critic from images, with random shifts) with an exploration bonus.

One learner: its networks fill a GPU by themselves. The encoder learns from the critic of rewards and bonus alone. The
extrinsic critic, the actor and the curiosity module see its features detached; the extrinsic critic learns the task's
rewards alone, and is the value that VCSE conditions on. A copy of encoder and actor acts, so that the learner can be at
its next update already while the policy of the last one still chooses actions.
"""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from vcse.agents.drqv2.networks import Actor, Curiosity, ImageEncoder, TwinCritic
from vcse.agents.drqv2.reward_scale import RewardScale
from vcse.agents.drqv2.settings import DrQv2Settings
from vcse.agents.output import UpdateOutput
from vcse.bonuses.base import Bonus, BonusBatch
from vcse.bonuses.registry import BonusContext
from vcse.bonuses.stacked import StackedBonus, StackedOutput
from vcse.nets.cuda.graphs import Captured, CapturedCall
from vcse.nets.cuda.side_stream import SideStream
from vcse.nets.optimizers import adam_state, descend, make_adam
from vcse.nets.random_shift import shifted
from vcse.replay.images import ImageBatch
from vcse.streams import torch_generator, torch_seed

NOISE_SAMPLES = 3  # normal numbers of an update: the next action of each critic, and the actor's own
SHIFT_SAMPLES = 3  # of each image that an update may look at: now, n steps later, one step later
Noise = Float[Tensor, "3 n a"]
Shifts = Int[Tensor, "3 m 2"]
MOST_ACTION = 1 - 1e-6
SATURATED = 0.99  # from here on a tanh passes less than 2 % of a gradient on


@dataclass(frozen=True)
class DrQv2Spec:
    """What the agent must know of its environment. Actions lie between -1 and 1."""

    channels: int  # of a stack of frames
    action_size: int


class DrQv2:
    """One DrQ-v2 learner.

    Args:
        spec: Sizes of images and actions.
        config: The settings.
        seed: Of the parameters.
        bonus: Anybody's, made with learners=1, in the place of the one that the settings choose.
        device: Where everything lives.
        check_finite: Let the bonus refuse NaN and infinity; on CUDA this waits for the device.
    """

    GIVES = frozenset(("values", "rewards", "actions"))  # that a bonus may need
    METRICS = (
        "batch_reward",
        "critic_loss",
        "extrinsic_critic_loss",
        "critic_mean",
        "actor_loss",
        "curiosity_loss",
        "action_noise",
        "beta",
        "reward_scale",
        "saturated_share",
    )

    def __init__(
        self,
        spec: DrQv2Spec,
        config: DrQv2Settings,
        seed: int,
        *,
        bonus: Bonus | None = None,
        device: torch.device | str = "cpu",
        check_finite: bool = False,
    ) -> None:
        self.device = torch.device(device)
        self.config, self.spec = config, spec
        self.updates = 0
        self.is_paid = bonus is not None or config.has_bonus
        choices = [config.bonus] if self.is_paid else []
        context = BonusContext(seeds=(torch_seed(seed, "bonus"),), action_size=spec.action_size, gives=self.GIVES)
        self.bonus = StackedBonus.given(
            bonus, choices, context, agent="drqv2", dimensions=config.features, check_finite=check_finite
        ).to(self.device)

        # Networks that only a bonus needs come last, so that having one does not change the policy.
        generator = torch_generator(seed, "parameters")
        sizes = (config.features, config.hidden_units, spec.action_size, generator, self.device)
        self.encoder = ImageEncoder(spec.channels, generator, precision=config.encoder_precision).to(self.device)
        self.actor = Actor(*sizes, normalized=config.actor_normalization)
        self.critic = TwinCritic(*sizes)
        self.extrinsic_critic = TwinCritic(*sizes) if "values" in self.bonus.needs else None
        self.curiosity: Curiosity | None = None
        if self.is_paid:
            curiosity = Curiosity(config.features, spec.action_size, config.hidden_units, generator)
            self.curiosity = curiosity.to(self.device)
        self.target_critic = copy.deepcopy(self.critic)
        self.extrinsic_target_critic = copy.deepcopy(self.extrinsic_critic)
        # A copy of encoder and actor acts. What follows what, in lists that stay the same.
        self.acting_encoder, self.acting_actor = copy.deepcopy(self.encoder), copy.deepcopy(self.actor)
        self._acting_policy = [*self.acting_encoder.parameters(), *self.acting_actor.parameters()]
        self._learned_policy = [*self.encoder.parameters(), *self.actor.parameters()]
        self._targets = _parameters(self.target_critic, self.extrinsic_target_critic)
        self._sources = _parameters(self.critic, self.extrinsic_critic)

        learned: dict[str, ImageEncoder | Actor | TwinCritic | Curiosity | None] = {
            "encoder": self.encoder,
            "actor": self.actor,
            "critic": self.critic,
            "extrinsic_critic": self.extrinsic_critic,
            "curiosity": self.curiosity,
        }
        self.adams = {
            name: make_adam(each.parameters(), config.learning_rate, self.device)
            for name, each in learned.items()
            if each is not None
        }

        # What changes from update to update, in memory that a CUDA graph can read.
        self.action_noise = torch.tensor(config.noise(0), device=self.device)
        self.beta = torch.tensor(config.weight(0) if self.is_paid else 0.0, device=self.device)
        self.reward_scale = RewardScale(config.reward_normalization, config.discount, self.device)
        self.side_stream = SideStream(self.device)
        self._captured_update: Captured[UpdateOutput] | None = None
        self._captured_acts: dict[int, CapturedCall[Tensor]] = {}  # by how many are chosen at once

    @torch.no_grad()
    def act(
        self, observations: UInt8[Tensor, "n c h w"], noise: Float[Tensor, "n a"] | None, *, step: int = 0
    ) -> Float[Tensor, "n a"]:
        """Choose actions; once there was a capture, those with noise are overwritten by the next.

        Args:
            observations: Stacks of frames, on the host or the device.
            noise: Standard normal numbers, which are added as the schedule says; None for the mean of the policy.
            step: How far training is.
        """
        if observations.ndim != 4 or observations.shape[1] != self.spec.channels:
            raise ValueError(
                f"observations must be [n, {self.spec.channels}, height, width], stacks of frames, "
                f"got shape {tuple(observations.shape)}"
            )
        if noise is None:
            return self.acting_actor(self.acting_encoder(observations.to(self.device)))
        noise = self.config.noise(step) * noise
        if self._captured_update is None:
            return self._act(observations.to(self.device), noise.to(self.device))
        count = len(observations)
        if count not in self._captured_acts:
            self._captured_acts[count] = CapturedCall(self._act, observations, noise, device=self.device)
        return self._captured_acts[count](observations, noise)

    def _act(self, observations: UInt8[Tensor, "n c h w"], noise: Float[Tensor, "n a"]) -> Float[Tensor, "n a"]:
        return (self.acting_actor(self.acting_encoder(observations)) + noise).clamp(-MOST_ACTION, MOST_ACTION)

    def update(self, batch: ImageBatch, noise: Noise, shifts: Shifts, *, step: int) -> UpdateOutput:
        """Learn from a batch, and act on it from now on; for the arguments see `learn`."""
        output = self.learn(batch, noise, shifts, step=step)
        self.adopt()
        return output

    def learn(self, batch: ImageBatch, noise: Noise, shifts: Shifts, *, step: int) -> UpdateOutput:
        """Learn from a batch, and act as before until `adopt`; what is returned is overwritten by the next update.

        After `capture` the arguments must be the memory that was captured, filled anew: no other is read.

        Args:
            batch: Transitions; those beyond the batch size serve the bonus alone.
            noise: Standard normal numbers for `NOISE_SAMPLES` actions of each transition that is learned from.
            shifts: Of the images now, n steps later, and one step later.
            step: How far training is: schedules depend on it.
        """
        self.action_noise.fill_(self.config.noise(step))
        self.beta.fill_(self.config.weight(step) if self.is_paid else 0.0)
        output = self._update(batch, noise, shifts) if self._captured_update is None else self._captured_update()
        self.updates += 1
        return output

    @torch.no_grad()
    def adopt(self) -> None:
        """Act on all that was learned so far."""
        torch._foreach_copy_(self._acting_policy, self._learned_policy)

    def capture(self, batch: ImageBatch, noise: Tensor, shifts: Tensor) -> None:
        """Replay updates from this memory, and the choice of actions with noise, as CUDA graphs from now on."""
        self._captured_update = Captured(lambda: self._update(batch, noise, shifts))

    def _update(self, batch: ImageBatch, noise: Noise, shifts: Shifts) -> UpdateOutput:
        learned = slice(self.config.batch_size)
        actions = batch.actions[learned]
        self.reward_scale.take(batch.first_rewards[learned], batch.rewards[learned])
        first_rewards = self.reward_scale.scaled(batch.first_rewards)
        returns = self.reward_scale.returns(batch.rewards[learned], batch.discounts[learned])
        images = shifted(batch.observations, shifts[0])
        encoded = self.encoder(images[learned])
        features = encoded.detach()
        with torch.no_grad():
            next_features = self.encoder(shifted(batch.next_observations[learned], shifts[1, learned]))

        # The policy at o_t, once: its mean for the value, and again for the actor's loss, which comes last.
        pre_activation = self.actor.pre_activation(features)
        mean = pre_activation.tanh()

        # What only a bonus needs runs beside the rest: the curiosity module takes a step, and gives its features.
        with self.side_stream:
            curiosity_loss = self._learn_curiosity(batch, shifts, features, next_features)
            extrinsic_seen = None if self.extrinsic_critic is None else self.extrinsic_critic.trunk(features)
            with torch.no_grad():
                everyone = self._of_bonus(images, features, mean.detach(), extrinsic_seen)
                paid, bonus = self.weighted_bonus(*everyone, first_rewards, batch.actions)
                bonus = bonus[learned] + self._later_bonuses(batch, shifts[0, learned])
        with torch.no_grad():
            next_mean = self.actor(next_features)
            future = self._future(self.target_critic, batch, next_features, next_mean, noise[0])
        q_values = self.critic.q_values(self.critic.trunk(encoded), actions)
        self.side_stream.wait()

        # The extrinsic critic learns the task's rewards alone.
        extrinsic_loss = torch.zeros((), device=self.device)
        if self.extrinsic_critic is not None and self.extrinsic_target_critic is not None:
            with self.side_stream:
                with torch.no_grad():
                    extrinsic_future = self._future(
                        self.extrinsic_target_critic, batch, next_features, next_mean, noise[1]
                    )
                assert extrinsic_seen is not None
                extrinsic = self.extrinsic_critic.q_values(extrinsic_seen, actions)
                extrinsic_loss = (extrinsic - (returns + extrinsic_future)).square().mean(-1).sum()
                descend(extrinsic_loss, [self.adams["extrinsic_critic"]])

        # The bonus of o_t joins the return, weighted by beta. The critic takes a step, and the encoder with it.
        critic_loss = (q_values - (returns + bonus + future)).square().mean(-1).sum()
        descend(critic_loss, [self.adams["encoder"], self.adams["critic"]])

        actor_loss = self._learn_policy(features, pre_activation, self._noisy(mean, noise[2]))
        self.side_stream.wait()
        with torch.no_grad():  # the target critics go part of the way to the critics
            torch._foreach_lerp_(self._targets, self._sources, self.config.target_rate)
        losses = {"critic": critic_loss, "extrinsic_critic": extrinsic_loss, "actor": actor_loss}
        return UpdateOutput(self._metrics(batch, losses, curiosity_loss, q_values, mean), paid)

    def _metrics(
        self,
        batch: ImageBatch,
        losses: dict[str, Tensor],
        curiosity_loss: Tensor,
        q_values: Float[Tensor, "2 n"],
        mean: Float[Tensor, "n a"],
    ) -> dict[str, Tensor]:
        """Return the numbers to log, as `METRICS` names them."""
        return {
            "batch_reward": batch.rewards[: self.config.batch_size].mean(),
            "critic_loss": losses["critic"].detach(),
            "extrinsic_critic_loss": losses["extrinsic_critic"].detach(),
            "critic_mean": q_values.detach().mean(),
            "actor_loss": losses["actor"].detach(),
            "curiosity_loss": curiosity_loss,
            "action_noise": self.action_noise,
            "beta": self.beta,
            "reward_scale": self.reward_scale.size,
            "saturated_share": (mean.detach().abs() > SATURATED).float().mean(),
        }

    def _learn_policy(
        self,
        features: Float[Tensor, "n f"],
        pre_activation: Float[Tensor, "n a"],
        actions: Float[Tensor, "n a"],
    ) -> Tensor:
        """Take a step of the actor towards actions in which the critic, as it is now, sees most."""
        with torch.no_grad():
            seen = self.critic.trunk(features)
        loss = -self.critic.q_values(seen, actions, frozen=True).amin(0).mean()
        if self.config.pre_activation_penalty > 0:
            loss = loss + self.config.pre_activation_penalty * pre_activation.square().mean()
        descend(loss, [self.adams["actor"]])
        return loss

    def _learn_curiosity(
        self,
        batch: ImageBatch,
        shifts: Shifts,
        features: Float[Tensor, "n f"],
        next_features: Float[Tensor, "n f"],
    ) -> Tensor:
        """Take a gradient step of the curiosity module, where there is one, on features that it cannot change."""
        if self.curiosity is None:
            return torch.zeros((), device=self.device)
        learned = slice(self.config.batch_size)
        if self.config.curiosity_pair == "one-step":
            assert batch.one_step_observations is not None
            with torch.no_grad():
                next_features = self.encoder(shifted(batch.one_step_observations[learned], shifts[2, learned]))
        here, there = self.curiosity.trunk(features), self.curiosity.trunk(next_features)
        loss = self.curiosity.loss(here, batch.actions[learned], there)
        descend(loss, [self.adams["curiosity"]])
        return loss.detach()

    def _of_bonus(
        self,
        images: UInt8[Tensor, "m c h w"],
        features: Float[Tensor, "n f"],
        mean: Float[Tensor, "n a"],
        extrinsic_seen: Float[Tensor, "n d"] | None,
    ) -> tuple[Float[Tensor, "m f"], Float[Tensor, "m a"], Float[Tensor, "m d"] | None]:
        """Return features, mean actions and what the extrinsic critic sees, of all states that the bonus looks at."""
        extra = images[self.config.batch_size :]
        if not len(extra) or not self.is_paid:
            return features, mean, extrinsic_seen
        more = self.encoder(extra)
        mean = torch.cat((mean, self.actor(more)))
        if self.extrinsic_critic is not None and extrinsic_seen is not None:
            extrinsic_seen = torch.cat((extrinsic_seen, self.extrinsic_critic.trunk(more)))
        return torch.cat((features, more)), mean, extrinsic_seen

    def _later_bonuses(self, batch: ImageBatch, shifts: Int[Tensor, "n 2"]) -> Tensor:
        """Return the discounted bonuses of the images between o_t and n steps later, where they are wanted."""
        total = torch.zeros(self.config.batch_size, device=self.device)
        if batch.between is None or not self.is_paid:
            return total
        for images, rewards, discounts in zip(*batch.between, strict=True):
            features = self.encoder(shifted(images[: len(total)], shifts))
            mean = self.actor(features)
            seen = None if self.extrinsic_critic is None else self.extrinsic_critic.trunk(features)
            divided = self.reward_scale.scaled(rewards[: len(total)])
            played = batch.actions[: len(total)]
            _, bonus = self.weighted_bonus(features, mean, seen, divided, played, learns=False)
            total = total + discounts[: len(total)] * bonus
        return total

    def weighted_bonus(
        self,
        features: Float[Tensor, "m f"],
        mean: Float[Tensor, "m a"],
        extrinsic_seen: Float[Tensor, "m d"] | None,
        rewards: Float[Tensor, " m"],
        actions: Float[Tensor, "m a"],
        *,
        learns: bool = True,
    ) -> tuple[StackedOutput | None, Float[Tensor, " m"]]:
        """Return the bonus, and beta times it for each state; zeros without a bonus. It may learn from them, too."""
        if self.curiosity is None:
            return None, torch.zeros_like(rewards)
        values = torch.zeros_like(rewards)
        if self.config.value_critic == "target" and self.extrinsic_target_critic is not None:
            seen = self.extrinsic_target_critic.trunk(features)
            values = self.extrinsic_target_critic.q_values(seen, mean).amin(0)
        elif self.extrinsic_critic is not None and extrinsic_seen is not None:
            values = self.extrinsic_critic.q_values(extrinsic_seen, mean).amin(0)
        known = self.curiosity.trunk(features)[None]
        given = {"values": values, "rewards": rewards, "actions": actions}
        needed = {name: given[name][None] for name in self.bonus.needs}
        output = self.bonus(known, **needed)
        if self.bonus.learns and learns:
            self.bonus.learn(BonusBatch(known, **needed))
        return output, self.beta * output.reward[0]

    def _future(
        self,
        target: TwinCritic,
        batch: ImageBatch,
        next_features: Float[Tensor, "n f"],
        next_mean: Float[Tensor, "n a"],
        noise: Float[Tensor, "n a"],
    ) -> Float[Tensor, " n"]:
        """Return the discounted value, by a target critic, of what comes after n steps."""
        q_values = target.q_values(target.trunk(next_features), self._noisy(next_mean, noise)).amin(0)
        return batch.discounts[: self.config.batch_size] * q_values

    def _noisy(self, mean: Float[Tensor, "n a"], noise: Float[Tensor, "n a"]) -> Float[Tensor, "n a"]:
        """Add clipped noise; an action that is cut off at the border passes its gradient on all the same."""
        clip = self.config.noise_clip
        actions = mean + (self.action_noise * noise).clamp(-clip, clip)
        return actions + (actions.clamp(-MOST_ACTION, MOST_ACTION) - actions).detach()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a restart needs."""
        state: dict[str, Any] = {"updates": self.updates, **self.reward_scale.state_dict()}
        for name, tensors in self._tensors().items():
            state[name] = [each.detach().cpu().clone() for each in tensors]
        if self.is_paid:
            state["bonus"] = self.bonus.learner_state(0)
        return state

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        mine, theirs = sorted(self.state_dict()), sorted(state)
        if mine != theirs:
            raise ValueError(f"the learner has {mine}, but the checkpoint holds {theirs}")
        self.updates = state["updates"]
        self.reward_scale.load_state_dict(state)
        for name, tensors in self._tensors().items():
            for each, saved in zip(tensors, state[name], strict=True):
                each.copy_(saved)
        for adam in self.adams.values():
            for each in adam.state.values():
                each["step"].fill_(self.updates)
        if self.is_paid:
            self.bonus.load_learner_state(0, state["bonus"])

    @torch.no_grad()
    def load_policy(self, state: dict[str, Any]) -> None:
        """Load the policy that acts alone from a learner's state, whatever its critics and its bonus were."""
        for each, saved in zip(self._acting_policy, state["acting"], strict=True):
            each.copy_(saved)

    def _tensors(self) -> dict[str, list[Tensor]]:
        """Return all tensors of the learner, by what they belong to."""
        found = {"targets": self._targets, "acting": self._acting_policy}
        for name, adam in self.adams.items():
            found[name] = [each for group in adam.param_groups for each in group["params"]]
            for moment in ("exp_avg", "exp_avg_sq"):
                found[f"{name}.{moment}"] = [adam_state(adam, each)[moment] for each in found[name]]
        return found


def _parameters(*critics: TwinCritic | None) -> list[Tensor]:
    return [parameter for critic in critics if critic is not None for parameter in critic.parameters()]
