"""Masked World Models (Seo et al., CoRL 2022) with an exploration bonus.

A masked autoencoder learns to represent images. On its tokens, without a gradient to it, a world model (an RSSM) learns
latent states, how actions change them, and the task's rewards. Actor and critics learn from trajectories that are
imagined from the latent states of a batch: gradients of imagined returns reach the actor through the dynamics.

The bonus of a batch is computed from a random projection of its latent states and from their value, that of the slow
extrinsic critic. A head of the world model learns to predict it, so that imagined states have a bonus too. The
extrinsic critic learns the task's rewards alone. Without a bonus there is neither that head nor that critic.

In a batch, actions[t] led to images[t] and rewards[t] came with it. Axes: `n` latent states of a batch of sequences;
`h` imagined states, horizon + 1 of them; `f` features of a latent state (its deterministic part and its `v`
categorical variables, concatenated); `a` dimensions of an action.
"""

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, UInt8
from torch import Tensor

from vcse.agents.mwm.networks import Policy, PolicyState, ScalarHead, make_autocast
from vcse.agents.mwm.settings import MWMSettings
from vcse.agents.output import UpdateOutput
from vcse.agents.state import check_same_entries, clones, copy_tensors
from vcse.bonuses.base import Bonus
from vcse.bonuses.normalizers import EmaAbs
from vcse.bonuses.registry import BonusContext
from vcse.bonuses.stacked import StackedBonus, StackedOutput
from vcse.nets.cuda.graphs import BatchGraph, CUDAGraphs
from vcse.nets.heads import symexp, symlog
from vcse.nets.optimizers import (
    adam_tensors,
    clipped_gradient_step,
    make_adam,
    parameters_of,
    set_adam_steps,
    set_rate,
)
from vcse.nets.rssm import State, kl_loss
from vcse.nets.truncated_normal import mean_and_std, truncated_normal_entropy, truncated_normal_sample
from vcse.replay.sequences import SequenceBatch
from vcse.returns import lambda_returns
from vcse.streams import torch_generator, torch_seed

EPSILON = 1e-8  # added to the running scale of rewards


@dataclass(frozen=True)
class MWMSpec:
    """What the agent needs to know about its environment. Actions lie between -1 and 1."""

    action_size: int


class Trajectories(NamedTuple):
    """Imagined trajectories; the first state of each is one of the batch."""

    features: Float[Tensor, "h n f"]
    entropies: Float[Tensor, "h_less_1 n"]  # of the policy at each state but the last
    weights: Float[Tensor, "h 1"]  # discount ** step, the weight of each step in the losses


class MWM:
    """One MWM learner.

    Args:
        spec: Sizes of actions.
        config: The settings.
        seed: Of the parameters, and of all sampling in updates.
        bonus: Overrides the bonus that the settings choose; made with learners=1.
        device: Of all parameters and buffers.
    """

    BONUS_INPUTS = frozenset(("values", "rewards"))
    METRICS = (
        *("batch_reward", "autoencoder_loss", "autoencoder_reward_loss"),
        *("feature_loss", "kl_loss", "reward_loss", "intrinsic_loss"),
        *("critic_loss", "extrinsic_critic_loss", "actor_loss", "critic_mean", "policy_entropy"),
        *("reward_size", "intrinsic_size"),
    )

    def __init__(
        self,
        spec: MWMSpec,
        config: MWMSettings,
        seed: int,
        *,
        bonus: Bonus | None = None,
        device: torch.device | str = "cpu",
    ) -> None:
        self.spec, self.config, self.seed, self.device = spec, config, seed, torch.device(device)
        self.updates = self.autoencoder_updates = 0
        self.has_bonus = bonus is not None or config.has_bonus
        choices = [config.bonus] if self.has_bonus else []
        context = BonusContext((torch_seed(seed, "bonus"),), gives=self.BONUS_INPUTS)
        stacked = StackedBonus.for_agent(bonus, choices, context, agent="mwm", dimensions=config.projection_size)
        self.bonus = stacked.to(self.device)

        # Networks that only a bonus needs come last, so that having one does not change the policy.
        generator = torch_generator(seed, "parameters")
        self.policy = Policy(config, spec.action_size, generator, self.device)
        self.autoencoder, self.model, self.actor = self.policy.autoencoder, self.policy.model, self.policy.actor
        self.critic = ScalarHead(config, generator).to(self.device)
        needs_values = "values" in self.bonus.needs
        self.extrinsic_critic = ScalarHead(config, generator).to(self.device) if needs_values else None
        self.bonus_head = ScalarHead(config, generator).to(self.device) if self.has_bonus else None
        shape = (config.feature_size, config.projection_size)
        projection = torch.randn(shape, generator=torch_generator(seed, "random encoder")) * config.projection_std
        self.projection = _rounded(projection, config.projection_precision).to(self.device)
        self.slow_critic = copy.deepcopy(self.critic).requires_grad_(False)
        self.slow_extrinsic_critic = copy.deepcopy(self.extrinsic_critic)  # only called without gradients
        # A copy of the policy acts, so that on a GPU the next update can be in progress meanwhile.
        self.acting_policy = copy.deepcopy(self.policy).requires_grad_(False)
        self._make_optimizers()
        # As lists, so that all are copied in one operation.
        self._policy_parameters, self._acting_parameters = parameters_of(self.policy), parameters_of(self.acting_policy)
        self._critic_parameters = parameters_of(self.critic, self.extrinsic_critic)
        self._slow_critic_parameters = parameters_of(self.slow_critic, self.slow_extrinsic_critic)
        self.reward_scale = EmaAbs(momentum=config.reward_momentum).to(self.device)
        self.bonus_scale = EmaAbs(momentum=config.reward_momentum).to(self.device)
        self.autocast = make_autocast(config, self.device)
        self.generator = torch.Generator(self.device)  # seeded anew before each update
        self.rand = partial(torch.rand, generator=self.generator, device=self.device)
        self._update_graph: BatchGraph[SequenceBatch, UpdateOutput] | None = None
        self._autoencoder_graph: BatchGraph[SequenceBatch, dict[str, Tensor]] | None = None
        self._act_graphs: CUDAGraphs[tuple[Tensor, PolicyState]] = CUDAGraphs(self.device)

    def _make_optimizers(self) -> None:
        config = self.config
        learned = {
            "autoencoder": (parameters_of(self.autoencoder), config.autoencoder_learning_rate),
            "model": (parameters_of(self.model, self.bonus_head), config.model_learning_rate),
            "actor": (parameters_of(self.actor), config.learning_rate),
            "critic": (parameters_of(self.critic), config.learning_rate),
            "extrinsic_critic": (parameters_of(self.extrinsic_critic), config.learning_rate),
        }
        self.optimizers = {
            name: make_adam(parameters, rate, self.device, epsilon=config.adam_epsilon)
            for name, (parameters, rate) in learned.items()
            if parameters
        }
        # As in the release, weight decay is for all parameters of the autoencoder, and elsewhere only for matrices.
        self._decayed_parameters = {
            name: [each for each in parameters if each.ndim > 1 or name == "autoencoder"]
            for name, (parameters, _) in learned.items()
        }

    @torch.no_grad()
    def act(
        self,
        images: UInt8[Tensor, "n 3 h w"],
        state: PolicyState,
        latent_uniforms: Float[Tensor, "n v"],
        action_uniforms: Float[Tensor, "n a"] | None,
    ) -> tuple[Float[Tensor, "n a"], PolicyState]:
        """Choose actions, and return the policy's next state; after a capture, both are overwritten by the next call.

        Args:
            images: One of each environment, on the host or the device, and likewise below.
            state: Returned by the previous call.
            latent_uniforms: Random numbers in [0, 1), by which the latent states are sampled.
            action_uniforms: Likewise for the actions; None for the mean of the policy.
        """
        size = self.config.image_size
        if images.shape[1:] != (3, size, size):
            raise ValueError(f"images must be [n, 3, {size}, {size}], got shape {tuple(images.shape)}")
        uniforms = (latent_uniforms,) if action_uniforms is None else (latent_uniforms, action_uniforms)
        return self._act_graphs(self._act, *state, images, *uniforms)

    def _act(self, *inputs: Tensor) -> tuple[Float[Tensor, "n a"], PolicyState]:
        actions, state = self.acting_policy(PolicyState(*inputs[:3]), *inputs[3:])
        return actions, state

    def update_autoencoder(self, batch: SequenceBatch) -> dict[str, Tensor]:
        """Update the autoencoder on a batch, and return the metrics."""
        warm_up = min(1.0, (self.autoencoder_updates + 1) / self.config.warm_up_updates)
        set_rate(self.optimizers["autoencoder"], warm_up * self.config.autoencoder_learning_rate)
        self.generator.manual_seed(torch_seed(self.seed, "autoencoder", self.autoencoder_updates))
        graph = self._autoencoder_graph
        metrics = self._update_autoencoder(batch) if graph is None else graph(batch)
        self.autoencoder_updates += 1
        return metrics

    def update(self, batch: SequenceBatch) -> UpdateOutput:
        """Update everything but the autoencoder on a batch, and act with the new policy from now on."""
        output = self.update_networks(batch)
        self.update_acting_policy()
        return output

    def update_networks(self, batch: SequenceBatch) -> UpdateOutput:
        """Update everything but the autoencoder and the copy that acts; the next update overwrites the output."""
        self.generator.manual_seed(torch_seed(self.seed, "latent states", self.updates))
        output = self._update(batch) if self._update_graph is None else self._update_graph(batch)
        if self.updates % self.config.target_updates == 0:
            copy_tensors(self._slow_critic_parameters, self._critic_parameters)
        self.updates += 1
        return output

    def update_acting_policy(self) -> None:
        """Copy the policy to the one that acts."""
        copy_tensors(self._acting_parameters, self._policy_parameters)

    def _update_autoencoder(self, batch: SequenceBatch) -> dict[str, Tensor]:
        images, rewards = batch.images.flatten(0, 1), batch.rewards.flatten()
        uniforms = self.rand(len(images), self.autoencoder.patches)  # which patches are masked
        with self.autocast():
            pixel_loss, reward_loss = self.autoencoder.loss(images, rewards, uniforms)
        self._gradient_step(pixel_loss + reward_loss, "autoencoder")
        return {"autoencoder_loss": pixel_loss.detach(), "autoencoder_reward_loss": reward_loss.detach()}

    def _update(self, batch: SequenceBatch) -> UpdateOutput:
        posterior, metrics, bonus = self.update_world_model(batch)

        # Imagine trajectories from every latent state of the batch; predicted rewards are divided by running scales.
        with self.autocast():
            imagined = self._imagine(State(*(each.detach().flatten(0, 1) for each in posterior)))
            task_rewards = _normalized(symexp(self.model.reward(imagined.features)), self.reward_scale)
            bonuses = torch.zeros_like(task_rewards)
            if self.bonus_head is not None:
                bonuses = _normalized(symexp(self.bonus_head(imagined.features)), self.bonus_scale)
            values = self.slow_critic(imagined.features)
        # The bonus enters here, for the actor and its critic.
        returns = self._lambda_returns(task_rewards + self.config.beta * bonuses, values)

        # Extrinsic critic: the same, of the task's rewards alone.
        extrinsic_loss = torch.zeros((), device=self.device)
        if self.extrinsic_critic is not None and self.slow_extrinsic_critic is not None:
            with torch.no_grad(), self.autocast():
                extrinsic_values = self.slow_extrinsic_critic(imagined.features)
            extrinsic_returns = self._lambda_returns(task_rewards, extrinsic_values)
            extrinsic_loss, _ = self._update_critic(
                "extrinsic_critic", self.extrinsic_critic, imagined, extrinsic_returns
            )

        # Actor: maximise lambda-returns, by gradients through the dynamics, plus the entropy. As in DreamerV2, the
        # action at state i first affects the return of state i + 1.
        entropies = imagined.entropies[:-1]
        objective = returns[1:] + self.config.entropy_weight * entropies
        actor_loss = -(imagined.weights[:-2] * objective).mean()
        self._gradient_step(actor_loss, "actor")
        critic_loss, critic_mean = self._update_critic("critic", self.critic, imagined, returns)

        metrics |= {
            "critic_loss": critic_loss,
            "extrinsic_critic_loss": extrinsic_loss,
            "actor_loss": actor_loss.detach(),
            "critic_mean": critic_mean,
            "policy_entropy": entropies.detach().mean(),
            "reward_size": self.reward_scale.magnitude,
            "intrinsic_size": self.bonus_scale.magnitude,
        }
        return UpdateOutput(metrics, bonus)

    def update_world_model(self, batch: SequenceBatch) -> tuple[State, dict[str, Tensor], StackedOutput | None]:
        """Update the world model, and return the latent states of the batch, the losses and the bonus."""
        with torch.no_grad(), self.autocast():
            tokens = self.autoencoder.features(batch.images.flatten(0, 1))
        uniforms = self.rand(*batch.rewards.shape, self.config.variables)
        rewards = batch.rewards.flatten()
        with self.autocast():
            embeddings = self.model.encoder(tokens).unflatten(0, batch.rewards.shape)
            posterior, prior = self.model.rssm.observe_sequence(embeddings, batch.actions, batch.is_first, uniforms)
            features = posterior.features.flatten(0, 1)
            predicted_tokens = self.model.decoder(features)
            predicted_rewards = self.model.reward(features)
        feature_loss = (predicted_tokens - tokens).square().sum(-1).mean()
        reward_loss = (predicted_rewards - symlog(rewards)).square().mean()
        divergence = kl_loss(
            posterior.logits,
            prior,
            balance=self.config.kl_balance,
            scale=self.config.kl_scale,
            least=self.config.kl_least,
        )

        # The bonus head predicts the bonus of the latent states, and sends no gradient to them. It shares the optimizer
        # of the world model, whose gradients are clipped by one norm, as in the release.
        bonus, bonus_loss = None, torch.zeros((), device=self.device)
        if self.bonus_head is not None:
            bonus = self.compute_bonus(features.detach(), rewards)
            with self.autocast():
                predicted_bonus = self.bonus_head(features.detach())
            bonus_loss = (predicted_bonus - symlog(bonus.reward[0])).square().mean()
        self._gradient_step(feature_loss + divergence + reward_loss + bonus_loss, "model")
        metrics = {
            "batch_reward": rewards.mean(),
            "feature_loss": feature_loss.detach(),
            "kl_loss": divergence.detach(),
            "reward_loss": reward_loss.detach(),
            "intrinsic_loss": bonus_loss.detach(),
        }
        return posterior, metrics, bonus

    @torch.no_grad()
    def compute_bonus(self, features: Float[Tensor, "n f"], rewards: Float[Tensor, " n"]) -> StackedOutput:
        """Compute the bonus of the latent states of a batch, before it is scaled. A bonus such as RND learns."""
        precision = self.config.projection_precision
        projected = _rounded(_rounded(features, precision) @ self.projection, precision)
        values = torch.zeros_like(rewards)
        if self.slow_extrinsic_critic is not None:
            with self.autocast():
                values = self.slow_extrinsic_critic(features)
            values = _rounded(values, precision)
        return self.bonus.compute_and_learn(projected[None], values=values[None], rewards=rewards[None])

    def _imagine(self, start: State) -> Trajectories:
        """Imagine trajectories from latent states, with actions of the policy and states of the prior."""
        config, count = self.config, len(start.deterministic)
        state, features, entropies = start, [start.features], []
        for _ in range(config.horizon):
            mean, std = mean_and_std(self.actor(features[-1].detach()))
            entropies.append(truncated_normal_entropy(mean, std))
            actions = truncated_normal_sample(mean, std, self.rand(count, self.spec.action_size))
            state = self.model.rssm.imagine(state, actions, self.rand(count, config.variables))
            features.append(state.features)
        steps = torch.arange(config.horizon + 1, device=self.device)[:, None]
        return Trajectories(torch.stack(features), torch.stack(entropies), config.discount**steps)

    def _lambda_returns(
        self, rewards: Float[Tensor, "h n"], values: Float[Tensor, "h n"]
    ) -> Float[Tensor, "h_less_1 n"]:
        """Return the lambda-returns of all imagined states but the last, from whose value they bootstrap."""
        discounts = torch.full_like(rewards[:-1], self.config.discount)
        return lambda_returns(rewards[:-1], values[:-1], discounts, values[-1], self.config.return_lambda)

    def _update_critic(
        self, name: str, critic: ScalarHead, imagined: Trajectories, returns: Float[Tensor, "h_less_1 n"]
    ) -> tuple[Tensor, Tensor]:
        """Update a critic towards returns, and return its loss and mean value."""
        with self.autocast():
            values = critic(imagined.features[:-1].detach())
        loss = (imagined.weights[:-1] * (values - returns.detach()).square()).mean()
        self._gradient_step(loss, name)
        return loss.detach(), values.detach().mean()

    def _gradient_step(self, loss: Tensor, name: str) -> None:
        """Take a step of one optimizer, with the gradient clipped by its norm and with weight decay."""
        clipped_gradient_step(
            loss,
            self.optimizers[name],
            most_norm=self.config.most_gradient_norm,
            decay=self.config.weight_decay,
            decayed=self._decayed_parameters[name],
        )

    def capture_autoencoder(self, batch: SequenceBatch) -> None:
        """Replay updates of the autoencoder, of batches of this shape, as a CUDA graph from now on."""
        self._autoencoder_graph = BatchGraph(self._update_autoencoder, batch, self.generator)

    def capture(self, batch: SequenceBatch) -> None:
        """Replay updates, of batches of this shape, and the choice of actions as CUDA graphs from now on."""
        self._update_graph = BatchGraph(self._update, batch, self.generator)
        self._act_graphs.enable()

    def state_dict(self) -> dict[str, Any]:
        """Return everything that a restart needs."""
        counts = {"seed": self.seed, "updates": self.updates, "autoencoder_updates": self.autoencoder_updates}
        state = {**counts, **clones(self._tensors())}
        return state | ({"bonus": self.bonus.learner_state(0)} if self.has_bonus else {})

    @torch.no_grad()
    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load what `state_dict` returned."""
        check_same_entries(self.state_dict(), state)
        self.seed = state["seed"]
        self.updates, self.autoencoder_updates = state["updates"], state["autoencoder_updates"]
        for name, tensors in self._tensors().items():
            copy_tensors(tensors, state[name])
        for name, optimizer in self.optimizers.items():
            set_adam_steps(optimizer, self.autoencoder_updates if name == "autoencoder" else self.updates)
        if self.has_bonus:
            self.bonus.load_learner_state(0, state["bonus"])

    def load_policy(self, state: dict[str, Any]) -> None:
        """Load only the acting policy, with its world model, from a learner's state, whatever its bonus was."""
        copy_tensors(self._acting_parameters, state["acting"])

    def _tensors(self) -> dict[str, list[Tensor]]:
        """Return all tensors of the learner, by what they belong to."""
        tensors = {
            "acting": self._acting_parameters,
            "slow_critics": self._slow_critic_parameters,
            "reward_sizes": [self.reward_scale.magnitude, self.bonus_scale.magnitude],
            "projection": [self.projection] if self.has_bonus else [],
        }
        for name, optimizer in self.optimizers.items():
            tensors |= adam_tensors(optimizer, name)
        return tensors


def _normalized(rewards: Float[Tensor, "h n"], scale: EmaAbs) -> Float[Tensor, "h n"]:
    """Update the running mean of absolute rewards, and divide by it; no gradient goes through the mean."""
    with torch.no_grad():
        scale(rewards.flatten())
    return rewards / (scale.magnitude + EPSILON)


def _rounded(tensor: Tensor, precision: str) -> Tensor:
    """Round to the precision in which the release computes the features of the bonus."""
    return tensor.half().float() if precision == "float16" else tensor
