"""Masked World Models (Seo et al., CoRL 2022) with an exploration bonus.

A masked autoencoder learns what images look like, and nothing else does. Of its tokens a world model learns latent
states, how actions change them, and their rewards. In imagination, which begins at the states of a batch, actor and
critics learn: gradients of imagined returns reach the actor through the dynamics.

The bonus is computed of the states of the batch, from a random projection of them and the value that the slow extrinsic
critic sees. A head of the world model learns to predict it, so that imagination is paid it as well. The extrinsic
critic learns the task's own rewards alone. Without a bonus there is neither that head nor that critic.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vcse.agents.mwm.networks import Critic, Memory, Policy, RewardHead, autocast
from vcse.agents.mwm.settings import MWMSettings
from vcse.agents.output import UpdateOutput
from vcse.bonuses.base import Bonus, BonusBatch
from vcse.bonuses.normalizers import EmaAbs
from vcse.bonuses.registry import BonusContext
from vcse.bonuses.stacked import StackedBonus, StackedOutput
from vcse.nets.cuda.graphs import Captured, CapturedCall
from vcse.nets.heads import symlog
from vcse.nets.optimizers import adam_state, descend_bounded, make_adam, set_rate
from vcse.nets.rssm import State, kl_loss
from vcse.nets.truncated_normal import mean_and_std, truncated_normal_entropy, truncated_normal_sample
from vcse.replay.sequences import SequenceBatch
from vcse.returns import lambda_returns
from vcse.streams import Purpose, numbers, torch_generator, torch_seed

TINY = 1e-8  # that the running size of rewards is kept away from 0 by


@dataclass(frozen=True)
class MWMSpec:
    """What the agent must know of its environment. Actions lie between -1 and 1."""

    action_size: int


class Imagined(NamedTuple):
    """What comes of the policy's own actions, step by step, the first being where imagination begins."""

    features: Float[Tensor, "h n f"]
    entropies: Float[Tensor, "h_less_1 n"]  # of the policy at each state but the last
    weights: Float[Tensor, "h 1"]  # what each step counts: the discounts so far


class MWM:
    """One MWM learner.

    Args:
        spec: Sizes of actions.
        config: The settings.
        seed: Of the parameters, and of all that is sampled in updates.
        bonus: Anybody's, made with learners=1, in the place of the one that the settings choose.
        device: Where everything lives.
        check_finite: Let the bonus refuse NaN and infinity; on CUDA this waits for the device.
    """

    GIVES = frozenset(("values", "rewards"))  # that a bonus may need
    METRICS = (
        "batch_reward",
        "autoencoder_loss",
        "autoencoder_reward_loss",
        "feature_loss",
        "kl_loss",
        "reward_loss",
        "intrinsic_loss",
        "critic_loss",
        "extrinsic_critic_loss",
        "actor_loss",
        "critic_mean",
        "policy_entropy",
        "reward_size",
        "intrinsic_size",
    )

    def __init__(
        self,
        spec: MWMSpec,
        config: MWMSettings,
        seed: int,
        *,
        bonus: Bonus | None = None,
        device: torch.device | str = "cpu",
        check_finite: bool = False,
    ) -> None:
        self.spec, self.config, self.seed, self.device = spec, config, seed, torch.device(device)
        self.updates = self.autoencoder_updates = 0
        self.is_paid = bonus is not None or config.has_bonus
        choices = [config.bonus] if self.is_paid else []
        context = BonusContext(seeds=(torch_seed(seed, "bonus"),), gives=self.GIVES)
        self.bonus = StackedBonus.given(
            bonus, choices, context, agent="mwm", dimensions=config.projection_size, check_finite=check_finite
        ).to(self.device)

        # Networks that only a bonus needs come last, so that having one does not change the policy.
        generator = torch_generator(seed, "parameters")
        self.policy = Policy(config, spec.action_size, generator, self.device)
        self.autoencoder, self.model, self.actor = self.policy.autoencoder, self.policy.model, self.policy.actor
        self.critic = Critic(config, generator).to(self.device)
        has_extrinsic = "values" in self.bonus.needs
        self.extrinsic_critic = Critic(config, generator).to(self.device) if has_extrinsic else None
        self.intrinsic = RewardHead(config, generator).to(self.device) if self.is_paid else None
        shape = (config.feature_size, config.projection_size)
        projection = torch.randn(shape, generator=torch_generator(seed, "random encoder")) * config.projection_std
        self.projection = _rounded(projection, config.projection_precision).to(self.device)
        # Slow critics bootstrap, and a copy of the policy acts, so that a GPU can be at the next update meanwhile.
        self.slow_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.slow_extrinsic_critic = copy.deepcopy(self.extrinsic_critic)  # never asked for a gradient
        self.acting = copy.deepcopy(self.policy).requires_grad_(False)
        self._learned_policy, self._acting_policy = _parameters(self.policy), _parameters(self.acting)
        self._critics = _parameters(self.critic, self.extrinsic_critic)
        self._slow_critics = _parameters(self.slow_critic, self.slow_extrinsic_critic)

        learned = {
            "autoencoder": (_parameters(self.autoencoder), config.autoencoder_learning_rate),
            "model": (_parameters(self.model, self.intrinsic), config.model_learning_rate),
            "actor": (_parameters(self.actor), config.learning_rate),
            "critic": (_parameters(self.critic), config.learning_rate),
            "extrinsic_critic": (_parameters(self.extrinsic_critic), config.learning_rate),
        }
        self.adams = {
            name: make_adam(parameters, rate, self.device, epsilon=config.adam_epsilon)
            for name, (parameters, rate) in learned.items()
            if parameters
        }
        # The release lets all of the autoencoder decay, and the matrices alone of all else.
        self._decays = {
            name: [each for each in parameters if each.ndim > 1 or name == "autoencoder"]
            for name, (parameters, _) in learned.items()
        }
        self.reward_size = EmaAbs(momentum=config.reward_momentum).to(self.device)
        self.intrinsic_size = EmaAbs(momentum=config.reward_momentum).to(self.device)
        self.precision = autocast(config, self.device)
        self.generator = torch.Generator(self.device)  # seeded anew before each update
        self.uniforms = partial(torch.rand, generator=self.generator, device=self.device)
        self._captured: dict[str, tuple[SequenceBatch, Captured[Any]]] = {}
        self._captured_acts: dict[tuple[int, bool], CapturedCall[tuple[Tensor, Memory]]] = {}

    @torch.no_grad()
    def act(
        self,
        images: UInt8[Tensor, "n 3 h w"],
        memory: Memory,
        uniforms: Float[Tensor, "n v"],
        noise: Float[Tensor, "n a"] | None,
    ) -> tuple[Float[Tensor, "n a"], Memory]:
        """Choose actions, and remember; once there was a capture, both are overwritten by the next.

        Args:
            images: One of each environment, on the host or the device, and likewise below.
            memory: Of the step before.
            uniforms: In [0, 1), by which the latent states are sampled.
            noise: In [0, 1), by which the actions are; None for the mean of the policy.
        """
        size = self.config.image_size
        if images.shape[1:] != (3, size, size):
            raise ValueError(f"images must be [n, 3, {size}, {size}], got shape {tuple(images.shape)}")
        given = (images, uniforms) if noise is None else (images, uniforms, noise)
        if "update" not in self._captured:
            return self.acting(memory, *(each.to(self.device) for each in given))  # type: ignore[no-any-return]
        key = len(images), noise is None
        if key not in self._captured_acts:

            def act(*tensors: Tensor) -> tuple[Tensor, Memory]:
                return self.acting(Memory(*tensors[:3]), *tensors[3:])  # type: ignore[no-any-return]

            self._captured_acts[key] = CapturedCall(act, *memory, *given, device=self.device)
        return self._captured_acts[key](*memory, *given)

    def update_autoencoder(self, batch: SequenceBatch) -> dict[str, Tensor]:
        """Update the autoencoder on a batch, and return the metrics."""
        share = min(1.0, (self.autoencoder_updates + 1) / self.config.warm_up_updates)
        set_rate(self.adams["autoencoder"], share * self.config.autoencoder_learning_rate)
        self.generator.manual_seed(_seed(self.seed, "autoencoder", self.autoencoder_updates))
        metrics: dict[str, Tensor] = self._run("autoencoder", batch)
        self.autoencoder_updates += 1
        return metrics

    def update(self, batch: SequenceBatch) -> UpdateOutput:
        """Update everything but the autoencoder on a batch, and act with the new parameters from now on."""
        output = self.learn(batch)
        self.adopt()
        return output

    def learn(self, batch: SequenceBatch) -> UpdateOutput:
        """Do the same, and act as before until `adopt`; what is returned is overwritten by the next update."""
        self.generator.manual_seed(_seed(self.seed, "latent states", self.updates))
        output: UpdateOutput = self._run("update", batch)
        if self.updates % self.config.target_updates == 0:
            with torch.no_grad():
                torch._foreach_copy_(self._slow_critics, self._critics)
        self.updates += 1
        return output

    @torch.no_grad()
    def adopt(self) -> None:
        """Act on all that was learned so far."""
        torch._foreach_copy_(self._acting_policy, self._learned_policy)

    def capture(self, batch: SequenceBatch) -> None:
        """Replay updates, of batches of this shape, and the choice of actions as CUDA graphs from now on."""
        kept = SequenceBatch(*(each.clone() for each in batch))
        self._captured["update"] = kept, Captured(lambda: self._update(kept), [self.generator])

    def capture_autoencoder(self, batch: SequenceBatch) -> None:
        """Replay updates of the autoencoder, of batches of this shape, as a CUDA graph from now on."""
        kept = SequenceBatch(*(each.clone() for each in batch))
        self._captured["autoencoder"] = kept, Captured(lambda: self._update_autoencoder(kept), [self.generator])

    def _run(self, name: str, batch: SequenceBatch) -> Any:
        """Make an update, captured or not."""
        if name not in self._captured:
            return self._update(batch) if name == "update" else self._update_autoencoder(batch)
        kept, captured = self._captured[name]
        for mine, theirs in zip(kept, batch, strict=True):
            mine.copy_(theirs)
        return captured()

    def _update_autoencoder(self, batch: SequenceBatch) -> dict[str, Tensor]:
        images, rewards = batch.images.flatten(0, 1), batch.rewards.flatten()
        uniforms = self.uniforms(len(images), self.autoencoder.patches)
        with self.precision():
            pixel_loss, reward_loss = self.autoencoder.loss(images, rewards, uniforms)
        self._descend(pixel_loss + reward_loss, "autoencoder")
        return {"autoencoder_loss": pixel_loss.detach(), "autoencoder_reward_loss": reward_loss.detach()}

    def _update(self, batch: SequenceBatch) -> UpdateOutput:
        posterior, metrics, paid = self.learn_model(batch)
        start = State(*(each.detach().flatten(0, 1) for each in posterior))

        # What the policy's actions lead to, and what that is worth; both kinds of reward at a size of 1.
        with self.precision():
            imagined = self._imagine(start)
            extrinsic_rewards = _at_size_1(self.model.reward(imagined.features), self.reward_size)
            intrinsic_rewards = torch.zeros_like(extrinsic_rewards)
            if self.intrinsic is not None:
                intrinsic_rewards = _at_size_1(self.intrinsic(imagined.features), self.intrinsic_size)
            values = self.slow_critic(imagined.features)
        # The bonus enters here: the actor and its critic learn rewards and bonus, the extrinsic critic rewards alone.
        rewards = extrinsic_rewards + self.config.beta * intrinsic_rewards
        returns = _returns(rewards, values, self.config)

        extrinsic_loss = torch.zeros((), device=self.device)
        if self.extrinsic_critic is not None and self.slow_extrinsic_critic is not None:
            with torch.no_grad(), self.precision():
                values = self.slow_extrinsic_critic(imagined.features)
            extrinsic_returns = _returns(extrinsic_rewards, values, self.config)
            extrinsic_loss, _ = self._learn_critic(
                "extrinsic_critic", self.extrinsic_critic, imagined, extrinsic_returns
            )

        # The actor goes up the gradient of returns, through the dynamics and the rewards, which it does not change.
        entropies = imagined.entropies[:-1]
        objective = returns[1:] + self.config.entropy_weight * entropies
        actor_loss = -(imagined.weights[:-2] * objective).mean()
        self._descend(actor_loss, "actor")
        critic_loss, critic_mean = self._learn_critic("critic", self.critic, imagined, returns)

        metrics |= {
            "critic_loss": critic_loss,
            "extrinsic_critic_loss": extrinsic_loss,
            "actor_loss": actor_loss.detach(),
            "critic_mean": critic_mean,
            "policy_entropy": entropies.detach().mean(),
            "reward_size": self.reward_size.magnitude,
            "intrinsic_size": self.intrinsic_size.magnitude,
        }
        return UpdateOutput(metrics, paid)

    def learn_model(self, batch: SequenceBatch) -> tuple[State, dict[str, Tensor], StackedOutput | None]:
        """Update the world model, and return the latent states of the batch, the losses and the bonus."""
        with torch.no_grad(), self.precision():
            tokens = self.autoencoder.features(batch.images.flatten(0, 1))
        uniforms = self.uniforms(*batch.rewards.shape, self.config.variables)
        rewards = batch.rewards.flatten()
        with self.precision():
            embeddings = self.model.encoder(tokens).unflatten(0, batch.rewards.shape)
            posterior, prior = self.model.rssm.observe_sequence(embeddings, batch.actions, batch.is_first, uniforms)
            features = posterior.features.flatten(0, 1)
            guessed_tokens = self.model.decoder(features)
            guessed_rewards = self.model.reward.symlog(features)
        feature_loss = (guessed_tokens - tokens).square().sum(-1).mean()
        reward_loss = (guessed_rewards - symlog(rewards)).square().mean()
        divergence = kl_loss(
            posterior.logits,
            prior,
            balance=self.config.kl_balance,
            scale=self.config.kl_scale,
            least=self.config.kl_least,
        )

        # The bonus of the states, as they are; its head learns it, and sends no gradient to them.
        paid, intrinsic_loss = None, torch.zeros((), device=self.device)
        known = features.detach()
        if self.intrinsic is not None:
            paid = self.bonus_of(known, rewards)
            with self.precision():
                guessed_bonus = self.intrinsic.symlog(known)
            intrinsic_loss = (guessed_bonus - symlog(paid.reward[0])).square().mean()
        self._descend(feature_loss + divergence + reward_loss + intrinsic_loss, "model")
        metrics = {
            "batch_reward": rewards.mean(),
            "feature_loss": feature_loss.detach(),
            "kl_loss": divergence.detach(),
            "reward_loss": reward_loss.detach(),
            "intrinsic_loss": intrinsic_loss.detach(),
        }
        return posterior, metrics, paid

    @torch.no_grad()
    def bonus_of(self, features: Float[Tensor, "n f"], rewards: Float[Tensor, " n"]) -> StackedOutput:
        """Return the bonus of latent states among each other. It may learn from them, too."""
        precision = self.config.projection_precision
        known = _rounded(_rounded(features, precision) @ self.projection, precision)
        values = torch.zeros_like(rewards)
        if self.slow_extrinsic_critic is not None:
            with self.precision():
                values = self.slow_extrinsic_critic(features)
            values = _rounded(values, precision)
        given = {"values": values, "rewards": rewards}
        needed = {name: given[name][None] for name in self.bonus.needs}
        output = self.bonus(known[None], **needed)
        if self.bonus.learns:
            self.bonus.learn(BonusBatch(known[None], **needed))
        return output

    def _imagine(self, start: State) -> Imagined:
        """Return what the policy's actions lead to from latent states, by the dynamics alone."""
        config, count = self.config, len(start.deterministic)
        state, features, entropies = start, [start.features], []
        for _ in range(config.horizon):
            mean, std = mean_and_std(self.actor(features[-1].detach()))
            entropies.append(truncated_normal_entropy(mean, std))
            actions = truncated_normal_sample(mean, std, self.uniforms(count, self.spec.action_size))
            state = self.model.rssm.imagine(state, actions, self.uniforms(count, config.variables))
            features.append(state.features)
        steps = torch.arange(config.horizon + 1, device=self.device)[:, None]
        return Imagined(torch.stack(features), torch.stack(entropies), config.discount**steps)

    def _learn_critic(
        self, name: str, critic: Critic, imagined: Imagined, returns: Float[Tensor, "h_less_1 n"]
    ) -> tuple[Tensor, Tensor]:
        """Update a critic towards returns, and return its loss and mean value."""
        with self.precision():
            values = critic(imagined.features[:-1].detach())
        loss = (imagined.weights[:-1] * (values - returns.detach()).square()).mean()
        self._descend(loss, name)
        return loss.detach(), values.detach().mean()

    def _descend(self, loss: Tensor, name: str) -> None:
        """Take one step of an optimiser down the gradient of a loss."""
        bounds = {"most_norm": self.config.most_gradient_norm, "decay": self.config.weight_decay}
        descend_bounded(loss, self.adams[name], decays=self._decays[name], **bounds)

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a restart needs."""
        counts = {"updates": self.updates, "autoencoder_updates": self.autoencoder_updates}
        state: dict[str, Any] = {"seed": self.seed, **counts}  # by which updates sample
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
        self.seed = state["seed"]
        self.updates, self.autoencoder_updates = state["updates"], state["autoencoder_updates"]
        for name, tensors in self._tensors().items():
            _copy(tensors, state[name])
        for name, adam in self.adams.items():
            for each in adam.state.values():
                each["step"].fill_(self.autoencoder_updates if name == "autoencoder" else self.updates)
        if self.is_paid:
            self.bonus.load_learner_state(0, state["bonus"])

    @torch.no_grad()
    def load_policy(self, state: dict[str, Any]) -> None:
        """Load what acts, and the world model with it, from a learner's state, whatever its bonus was."""
        _copy(self._acting_policy, state["acting"])

    def _tensors(self) -> dict[str, list[Tensor]]:
        """Return all tensors of the learner, by what they belong to."""
        found = {
            "acting": self._acting_policy,
            "slow_critics": self._slow_critics,
            "reward_sizes": [self.reward_size.magnitude, self.intrinsic_size.magnitude],
            "projection": [self.projection] if self.is_paid else [],
        }
        for name, adam in self.adams.items():
            found[name] = [each for group in adam.param_groups for each in group["params"]]
            for moment in ("exp_avg", "exp_avg_sq"):
                found[f"{name}.{moment}"] = [adam_state(adam, each)[moment] for each in found[name]]
        return found


def _parameters(*modules: torch.nn.Module | None) -> list[Tensor]:
    return [parameter for module in modules if module is not None for parameter in module.parameters()]


def _returns(
    rewards: Float[Tensor, "h n"], values: Float[Tensor, "h n"], config: MWMSettings
) -> Float[Tensor, "h_less_1 n"]:
    """Return the lambda-returns of all imagined states but the last, whose value counts for all that comes after."""
    discounts = torch.full_like(rewards[:-1], config.discount)
    return lambda_returns(rewards[:-1], values[:-1], discounts, values[-1], config.return_lambda)


def _at_size_1(rewards: Float[Tensor, "h n"], size: EmaAbs) -> Float[Tensor, "h n"]:
    """Return rewards divided by the running mean of their size, through which no gradient goes."""
    with torch.no_grad():
        size(rewards.flatten())
    return rewards / (size.magnitude + TINY)


def _rounded(numbers_: Tensor, precision: str) -> Tensor:
    return numbers_.half().float() if precision == "float16" else numbers_


def _seed(seed: int, purpose: Purpose, update: int) -> int:
    return int(numbers(seed, purpose, update).integers(2**62))


def _copy(mine: Sequence[Tensor], theirs: Sequence[Tensor]) -> None:
    for each, saved in zip(mine, theirs, strict=True):
        each.copy_(saved)
