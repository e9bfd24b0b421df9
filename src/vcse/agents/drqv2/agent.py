"""DrQ-v2 (a deterministic actor-critic from pictures, with random shifts) with an exploration bonus.

One learner: its networks fill a GPU by themselves. The encoder learns from the critic of rewards and bonus alone. The
extrinsic critic, the actor and the curiosity module see its features detached; the extrinsic critic learns the task's
rewards alone, and is the value that VCSE conditions on. A copy of encoder and actor acts, so that the learner can be at
its next update already while the policy of the last one still chooses actions.
"""

import copy
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from vcse.agents.drqv2.networks import Curiosity, PictureEncoder, Trunk
from vcse.agents.drqv2.settings import DrQv2Settings
from vcse.bonuses.stacked import StackedBonus, StackedOutput
from vcse.nets.cuda.graphs import Captured, CapturedCall
from vcse.nets.cuda.side_stream import Beside
from vcse.nets.optimizers import adam_state, make_adam
from vcse.nets.perceptrons import Perceptrons
from vcse.nets.random_shift import shifted
from vcse.replay.images import PictureBatch
from vcse.streams import torch_generator

TWIN = 2
NOISE_DRAWS = 3  # normal numbers of an update: the next action of each critic, and the actor's own
SHIFT_DRAWS = 3  # of each picture that an update may look at: now, n steps later, one step later
MOST_ACTION = 1 - 1e-6
SATURATED = 0.99  # from here on a tanh passes less than 2 % of a gradient on
REWARD_DECAY, REWARD_EPSILON = 0.99, 1e-8  # of the running mean that rewards are divided by


@dataclass(frozen=True)
class DrQv2Spec:
    """What the agent must know of its environment. Actions lie between -1 and 1."""

    channels: int  # of a stack of frames
    action_size: int


class DrQv2:
    """One DrQ-v2 learner.

    Args:
        spec: Sizes of pictures and actions.
        config: The settings.
        seed: Of the parameters.
        device: Where everything lives.
        check_finite: Let the bonus refuse NaN and infinity; on CUDA this waits for the device.
    """

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
        device: torch.device | str = "cpu",
        check_finite: bool = False,
    ) -> None:
        self.device = torch.device(device)
        self.config = config
        self.spec = spec
        self.updates = 0
        features, hidden = config.features, config.hidden_units
        # Networks that only a bonus needs come last, so that having one does not change the policy.
        generator = torch_generator(seed, "parameters")
        self.encoder = PictureEncoder(spec.channels, generator, precision=config.encoder_precision).to(self.device)
        self.actor_trunk = Trunk(features, generator).to(self.device)
        self.actor_net = Perceptrons(features, hidden, spec.action_size)
        self.actor_head = self._leaves(self.actor_net.initial([generator]))
        self.critic_net = Perceptrons(features + spec.action_size, hidden, 1)
        self.critic_trunk = Trunk(features, generator).to(self.device)
        self.critic_head = self._leaves(self.critic_net.initial([generator] * TWIN))
        self.extrinsic_trunk: Trunk | None = None
        self.extrinsic_head: list[Tensor] = []
        self.curiosity: Curiosity | None = None
        if config.has_extrinsic_critic:
            self.extrinsic_trunk = Trunk(features, generator).to(self.device)
            self.extrinsic_head = self._leaves(self.critic_net.initial([generator] * TWIN))
        if config.has_bonus:
            self.curiosity = Curiosity(features, spec.action_size, hidden, generator).to(self.device)
        self.target_trunk, self.target_head = copy.deepcopy(self.critic_trunk), _copies(self.critic_head)
        self.extrinsic_target_trunk = copy.deepcopy(self.extrinsic_trunk)
        self.extrinsic_target_head = _copies(self.extrinsic_head)
        self.acting_encoder, self.acting_trunk = copy.deepcopy(self.encoder), copy.deepcopy(self.actor_trunk)
        self.acting_head = _copies(self.actor_head)
        self._acting_policy = [*self.acting_encoder.parameters(), *self.acting_trunk.parameters(), *self.acting_head]
        self._learned_policy = [*self.encoder.parameters(), *self.actor_trunk.parameters(), *self.actor_head]

        learned: dict[str, Iterable[Tensor]] = {
            "encoder": self.encoder.parameters(),
            "actor": [*self.actor_trunk.parameters(), *self.actor_head],
            "critic": [*self.critic_trunk.parameters(), *self.critic_head],
        }
        if self.extrinsic_trunk is not None:
            learned["extrinsic_critic"] = [*self.extrinsic_trunk.parameters(), *self.extrinsic_head]
        if self.curiosity is not None:
            learned["curiosity"] = self.curiosity.parameters()
        self.adams = {name: make_adam(each, config.learning_rate, self.device) for name, each in learned.items()}
        choices = [config.bonus] if config.has_bonus else []
        self.bonus = StackedBonus(choices, dimensions=features, check_finite=check_finite).to(self.device)
        self.bonus_output: StackedOutput

        # What changes from update to update, in memory that a CUDA graph can read.
        self.action_noise = torch.tensor(config.noise(0), device=self.device)
        self.beta = torch.tensor(config.weight(0), device=self.device)
        self.reward_scale = torch.ones((), device=self.device)
        self.beside = Beside(self.device)
        self._captured_update: Captured[dict[str, Tensor]] | None = None
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
            return self._mean(observations.to(self.device))
        noise = self.config.noise(step) * noise
        if self._captured_update is None:
            return self._act(observations.to(self.device), noise.to(self.device))
        count = len(observations)
        if count not in self._captured_acts:
            self._captured_acts[count] = CapturedCall(self._act, observations, noise, device=self.device)
        return self._captured_acts[count](observations, noise)

    def _act(self, observations: UInt8[Tensor, "n c h w"], noise: Float[Tensor, "n a"]) -> Float[Tensor, "n a"]:
        return (self._mean(observations) + noise).clamp(-MOST_ACTION, MOST_ACTION)

    def _mean(self, observations: UInt8[Tensor, "n c h w"]) -> Float[Tensor, "n a"]:
        return self._policy(self.acting_head, self.acting_trunk(self.acting_encoder(observations)))

    def update(
        self,
        batch: PictureBatch,
        noise: Float[Tensor, "3 n a"],
        shifts: Int[Tensor, "3 m 2"],
        *,
        step: int,
    ) -> dict[str, Tensor]:
        """Learn from a batch, and act on it from now on; for the arguments see `learn`."""
        metrics = self.learn(batch, noise, shifts, step=step)
        self.adopt()
        return metrics

    def learn(
        self,
        batch: PictureBatch,
        noise: Float[Tensor, "3 n a"],
        shifts: Int[Tensor, "3 m 2"],
        *,
        step: int,
    ) -> dict[str, Tensor]:
        """Learn from a batch, and act as before until `adopt`; what is returned is overwritten by the next update.

        After `capture` the arguments must be the memory that was captured, filled anew: no other is read.

        Args:
            batch: Transitions; those beyond the batch size serve the bonus alone.
            noise: Standard normal numbers for `NOISE_DRAWS` actions of each transition that is learned from.
            shifts: Of the pictures now, n steps later, and one step later.
            step: How far training is: schedules depend on it.
        """
        self.action_noise.fill_(self.config.noise(step))
        self.beta.fill_(self.config.weight(step))
        metrics = self._update(batch, noise, shifts) if self._captured_update is None else self._captured_update()
        self.updates += 1
        return metrics

    @torch.no_grad()
    def adopt(self) -> None:
        """Act on all that was learned so far."""
        torch._foreach_copy_(self._acting_policy, self._learned_policy)

    def capture(self, batch: PictureBatch, noise: Tensor, shifts: Tensor) -> None:
        """Replay updates from this memory, and the choice of actions with noise, as CUDA graphs from now on."""
        self._captured_update = Captured(lambda: self._update(batch, noise, shifts))

    def _update(
        self, batch: PictureBatch, noise: Float[Tensor, "3 n a"], shifts: Int[Tensor, "3 m 2"]
    ) -> dict[str, Tensor]:
        learned = slice(self.config.batch_size)
        actions = batch.actions[learned]
        first_rewards, returns = self._scaled(batch)
        pictures = shifted(batch.observations, shifts[0])
        encoded = self.encoder(pictures[learned])
        features = encoded.detach()
        with torch.no_grad():
            next_features = self.encoder(shifted(batch.arrived[learned], shifts[1, learned]))

        # The policy at o_t, once: its mean for the value, and again for the actor's loss, which comes last.
        mean = self._policy(self.actor_head, self.actor_trunk(features))

        # What only a bonus needs runs beside the rest: the curiosity module takes a step, and gives its features.
        with self.beside:
            curiosity_loss = self._learn_curiosity(batch, shifts, features, next_features)
            extrinsic_seen = None if self.extrinsic_trunk is None else self.extrinsic_trunk(features)
            with torch.no_grad():
                everyone = self._of_bonus(pictures, features, mean.detach(), extrinsic_seen)
                bonus = self.weighted_bonus(*everyone, first_rewards)[learned]
                bonus = bonus + self._later_bonuses(batch, shifts[0, learned])
        with torch.no_grad():
            next_mean = self._policy(self.actor_head, self.actor_trunk(next_features))
            future = self._future(self.target_trunk, self.target_head, batch, next_features, next_mean, noise[0])
        judged = self._judge(self.critic_head, self.critic_trunk(encoded), actions)
        self.beside.wait()

        # The extrinsic critic learns the task's rewards alone.
        extrinsic_loss = torch.zeros((), device=self.device)
        if self.extrinsic_target_trunk is not None and extrinsic_seen is not None:
            with self.beside:
                target = self.extrinsic_target_trunk, self.extrinsic_target_head
                with torch.no_grad():
                    extrinsic_future = self._future(*target, batch, next_features, next_mean, noise[1])
                extrinsic = self._judge(self.extrinsic_head, extrinsic_seen, actions)
                extrinsic_loss = (extrinsic - (returns[learned] + extrinsic_future)).square().mean(-1).sum()
                self._step(extrinsic_loss, "extrinsic_critic")

        # The bonus of o_t joins the return, weighted by beta. The critic takes a step, and the encoder with it.
        critic_loss = (judged - (returns[learned] + bonus + future)).square().mean(-1).sum()
        self._step(critic_loss, "encoder", "critic")

        # The actor goes where the critic, as it is now, sees most.
        with torch.no_grad():
            seen = self.critic_trunk(features)
        frozen = [each.detach() for each in self.critic_head]
        actor_loss = -self._judge(frozen, seen, self._noisy(mean, noise[2])).amin(0).mean()
        self._step(actor_loss, "actor")
        self.beside.wait()
        self._follow()
        return {
            "batch_reward": batch.rewards[learned].mean(),
            "critic_loss": critic_loss.detach(),
            "extrinsic_critic_loss": extrinsic_loss.detach(),
            "critic_mean": judged.detach().mean(),
            "actor_loss": actor_loss.detach(),
            "curiosity_loss": curiosity_loss,
            "action_noise": self.action_noise,
            "beta": self.beta,
            "reward_scale": self.reward_scale,
            "saturated_share": (mean.detach().abs() > SATURATED).float().mean(),
        }

    @torch.no_grad()
    def _scaled(self, batch: PictureBatch) -> tuple[Float[Tensor, " m"], Float[Tensor, " m"]]:
        """Give rewards of the first step and returns over n, divided by the running mean of the size of rewards."""
        if self.config.normalize_reward:
            self.reward_scale.lerp_(batch.first_rewards[: self.config.batch_size].abs().mean(), 1 - REWARD_DECAY)
        return self._divided(batch.first_rewards), self._divided(batch.rewards)

    def _divided(self, rewards: Float[Tensor, " m"]) -> Float[Tensor, " m"]:
        return rewards / (self.reward_scale + REWARD_EPSILON) if self.config.normalize_reward else rewards

    def _learn_curiosity(
        self,
        batch: PictureBatch,
        shifts: Int[Tensor, "3 m 2"],
        features: Float[Tensor, "n f"],
        next_features: Float[Tensor, "n f"],
    ) -> Tensor:
        """Let the curiosity module take a step, where there is one, on features that it cannot change."""
        if self.curiosity is None:
            return torch.zeros((), device=self.device)
        learned = slice(self.config.batch_size)
        if self.config.needs_next:
            assert batch.next_observations is not None
            with torch.no_grad():
                next_features = self.encoder(shifted(batch.next_observations[learned], shifts[2, learned]))
        here, there = self.curiosity.trunk(features), self.curiosity.trunk(next_features)
        loss = self.curiosity.loss(here, batch.actions[learned], there)
        self._step(loss, "curiosity")
        return loss.detach()

    def _of_bonus(
        self,
        pictures: UInt8[Tensor, "m c h w"],
        features: Float[Tensor, "n f"],
        mean: Float[Tensor, "n a"],
        extrinsic_seen: Float[Tensor, "n d"] | None,
    ) -> tuple[Float[Tensor, "m f"], Float[Tensor, "m a"], Float[Tensor, "m d"] | None]:
        """Give features, mean actions and what the extrinsic critic sees, of all states that the bonus looks at."""
        extra = pictures[self.config.batch_size :]
        if not len(extra) or not self.config.has_bonus:
            return features, mean, extrinsic_seen
        more = self.encoder(extra)
        mean = torch.cat((mean, self._policy(self.actor_head, self.actor_trunk(more))))
        if self.extrinsic_trunk is not None and extrinsic_seen is not None:
            extrinsic_seen = torch.cat((extrinsic_seen, self.extrinsic_trunk(more)))
        return torch.cat((features, more)), mean, extrinsic_seen

    def _later_bonuses(self, batch: PictureBatch, shifts: Int[Tensor, "n 2"]) -> Tensor:
        """Give the discounted bonuses of the pictures between o_t and n steps later, where they are wanted."""
        total = torch.zeros(self.config.batch_size, device=self.device)
        if batch.between is None or not self.config.has_bonus:
            return total
        shown = self.bonus_output
        for pictures, rewards, discounts in zip(*batch.between, strict=True):
            features = self.encoder(shifted(pictures[: len(total)], shifts))
            mean = self._policy(self.actor_head, self.actor_trunk(features))
            seen = None if self.extrinsic_trunk is None else self.extrinsic_trunk(features)
            bonus = self.weighted_bonus(features, mean, seen, self._divided(rewards[: len(total)]))
            total = total + discounts[: len(total)] * bonus
        self.bonus_output = shown  # what is logged is of o_t
        return total

    def weighted_bonus(
        self,
        features: Float[Tensor, "m f"],
        mean: Float[Tensor, "m a"],
        extrinsic_seen: Float[Tensor, "m d"] | None,
        rewards: Float[Tensor, " m"],
    ) -> Float[Tensor, " m"]:
        """Give beta times the bonus of each state, and keep what it was made of; zeros without a bonus."""
        if self.curiosity is None:
            return torch.zeros_like(rewards)
        values = torch.zeros_like(rewards)
        if self.config.value_critic == "target" and self.extrinsic_target_trunk is not None:
            seen = self.extrinsic_target_trunk(features)
            values = self._judge(self.extrinsic_target_head, seen, mean).amin(0)
        elif extrinsic_seen is not None:
            values = self._judge(self.extrinsic_head, extrinsic_seen, mean).amin(0)
        known = self.curiosity.trunk(features)
        self.bonus_output = self.bonus(known[None], values=values[None], rewards=rewards[None])
        reward: Tensor = self.bonus_output.reward[0]
        return self.beta * reward

    def _future(
        self,
        target_trunk: Trunk,
        target_head: Sequence[Tensor],
        batch: PictureBatch,
        next_features: Float[Tensor, "n f"],
        next_mean: Float[Tensor, "n a"],
        noise: Float[Tensor, "n a"],
    ) -> Float[Tensor, " n"]:
        """Give the discounted value, by a target critic, of what comes after n steps."""
        judged = self._judge(target_head, target_trunk(next_features), self._noisy(next_mean, noise)).amin(0)
        return batch.discounts[: self.config.batch_size] * judged

    def _policy(self, head: Sequence[Tensor], seen: Float[Tensor, "n d"]) -> Float[Tensor, "n a"]:
        return self.actor_net(head, seen[None])[0].tanh()

    def _noisy(self, mean: Float[Tensor, "n a"], noise: Float[Tensor, "n a"]) -> Float[Tensor, "n a"]:
        """Add clipped noise; an action that is cut off at the border passes its gradient on all the same."""
        clip = self.config.noise_clip
        actions = mean + (self.action_noise * noise).clamp(-clip, clip)
        return actions + (actions.clamp(-MOST_ACTION, MOST_ACTION) - actions).detach()

    def _judge(
        self, head: Sequence[Tensor], seen: Float[Tensor, "n d"], actions: Float[Tensor, "n a"]
    ) -> Float[Tensor, "2 n"]:
        inputs = torch.cat((seen, actions), -1)
        return self.critic_net(head, inputs.expand(TWIN, *inputs.shape).contiguous())[..., 0]

    def _step(self, loss: Float[Tensor, ""], *names: str) -> None:
        """Take a step of some optimisers down the gradient of a loss, and touch nothing else."""
        parameters = [each for name in names for group in self.adams[name].param_groups for each in group["params"]]
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        for name in names:
            self.adams[name].step()

    @torch.no_grad()
    def _follow(self) -> None:
        """Let the target critics go part of the way to the critics."""
        targets, sources = zip(*self._target_pairs(), strict=True)
        torch._foreach_lerp_(targets, sources, self.config.target_rate)

    def _target_pairs(self) -> list[tuple[Tensor, Tensor]]:
        pairs: list[tuple[Tensor, Tensor]] = []
        pairs += zip(self.target_trunk.parameters(), self.critic_trunk.parameters(), strict=True)
        pairs += zip(self.target_head, self.critic_head, strict=True)
        if self.extrinsic_trunk is not None and self.extrinsic_target_trunk is not None:
            pairs += zip(self.extrinsic_target_trunk.parameters(), self.extrinsic_trunk.parameters(), strict=True)
            pairs += zip(self.extrinsic_target_head, self.extrinsic_head, strict=True)
        return pairs

    def _leaves(self, layers: Iterable[Tensor]) -> list[Tensor]:
        return [each.to(self.device).requires_grad_() for each in layers]

    def state_dict(self) -> dict[str, Any]:
        """Give everything that a restart needs."""
        state: dict[str, Any] = {"updates": self.updates, "reward_scale": self.reward_scale.cpu().clone()}
        for name, tensors in self._tensors().items():
            state[name] = [each.detach().cpu().clone() for each in tensors]
        if self.config.has_bonus:
            state["bonus"] = self.bonus.learner_state(0)
        return state

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take it back."""
        mine, theirs = sorted(self.state_dict()), sorted(state)
        if mine != theirs:
            raise ValueError(f"the learner has {mine}, but the checkpoint holds {theirs}")
        self.updates = state["updates"]
        self.reward_scale.copy_(state["reward_scale"])
        for name, tensors in self._tensors().items():
            for each, saved in zip(tensors, state[name], strict=True):
                each.copy_(saved)
        for adam in self.adams.values():
            for each in adam.state.values():
                each["step"].fill_(self.updates)
        if self.config.has_bonus:
            self.bonus.load_learner_state(0, state["bonus"])

    @torch.no_grad()
    def load_policy(self, state: dict[str, Any]) -> None:
        """Take the policy that acts alone from a learner's state, whatever its critics and its bonus were."""
        for each, saved in zip(self._acting_policy, state["acting"], strict=True):
            each.copy_(saved)

    def _tensors(self) -> dict[str, list[Tensor]]:
        """Give all tensors of the learner, by what they belong to."""
        found = {"targets": [target for target, _ in self._target_pairs()], "acting": self._acting_policy}
        for name, adam in self.adams.items():
            found[name] = [each for group in adam.param_groups for each in group["params"]]
            for moment in ("exp_avg", "exp_avg_sq"):
                found[f"{name}.{moment}"] = [adam_state(adam, each)[moment] for each in found[name]]
        return found


def _copies(layers: Iterable[Tensor]) -> list[Tensor]:
    return [each.detach().clone() for each in layers]
