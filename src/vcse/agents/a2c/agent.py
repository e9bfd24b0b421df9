"""A2C (advantage actor-critic) with an exploration bonus, for a cohort of learners at once.

One update per rollout of 16 environments x 8 steps. Every tensor has a leading learner axis `l`; learners share
operations, never numbers: each has its own parameters, optimiser state, gradient norm and random numbers.

The extrinsic critic sees detached features and the task's rewards only: it is the value that VCSE conditions on,
and the bonus cannot reach it. A learner without a bonus has none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped, UInt8
from torch import Tensor

from vcse.agents.a2c.networks import TanhHead
from vcse.agents.a2c.settings import A2CSettings
from vcse.bonuses.stacked import StackedBonus
from vcse.nets.cached_encoder import RememberedEncoder
from vcse.nets.cuda.graphs import Captured, CapturedCall
from vcse.nets.encoders import GridEncoder
from vcse.nets.stacked import Layout, Pieces, Stack
from vcse.replay.rollouts import Rollout
from vcse.returns import gae
from vcse.settings import check_cohort
from vcse.streams import torch_generator

HIDDEN_UNITS = 64


@dataclass(frozen=True)
class A2CSpec:
    """What the agent must know of its environments."""

    observation_shape: tuple[int, int, int]
    actions: int


class A2C:
    """A cohort of A2C learners.

    Args:
        spec: Shape of the observations and number of actions, the same for all learners.
        configs: The settings of each learner. `SHARED` ones must agree; all else may differ.
        seeds: The seed of each learner's parameters.
        device: Where everything lives.
        check_finite: Let the bonus refuse NaN and infinity; on CUDA this waits for the device.
    """

    SHARED = ("environments", "rollout_steps", "bonus_features")

    def __init__(
        self,
        spec: A2CSpec,
        configs: Sequence[A2CSettings],
        seeds: Sequence[int],
        *,
        device: torch.device | str = "cpu",
        check_finite: bool = False,
    ) -> None:
        check_cohort(configs, seeds, self.SHARED)
        self.device = torch.device(device)
        self.configs = tuple(configs)
        common = configs[0]

        self.encoder = GridEncoder(*spec.observation_shape)
        self.actor = TanhHead("actor", self.encoder.features, HIDDEN_UNITS, spec.actions)
        self.critic = TanhHead("critic", self.encoder.features, HIDDEN_UNITS, 1)
        self.extrinsic_critic = TanhHead("extrinsic_critic", self.encoder.features, HIDDEN_UNITS, 1)
        modules = (self.encoder, self.actor, self.critic)
        self.layout = Layout({name: shape for each in modules for name, shape in each.layout.shapes.items()})

        # One generator per learner and stack, so that having a bonus does not change a learner's policy.
        generators = [torch_generator(seed, "parameters") for seed in seeds]
        parameters = torch.cat([each.initial(generators) for each in modules], 1)
        valued = [learner for learner, config in enumerate(configs) if config.has_extrinsic_critic]
        extrinsic = self.extrinsic_critic.initial([generators[learner] for learner in valued]) if valued else None
        self.parameters = parameters.to(self.device).requires_grad_()
        self.squares = torch.zeros_like(parameters, device=self.device)  # RMSprop's average of squared gradients
        self.valued = torch.tensor(valued, dtype=torch.int64, device=self.device)
        self.extrinsic_parameters: Stack | None = None
        self.extrinsic_squares: Stack | None = None
        if extrinsic is not None:
            self.extrinsic_parameters = extrinsic.to(self.device).requires_grad_()
            self.extrinsic_squares = torch.zeros_like(extrinsic, device=self.device)

        # The bonus sees features of its own: a random encoder that is never trained, or positions.
        paid = [learner for learner, config in enumerate(configs) if config.has_bonus]
        self.paid = torch.tensor(paid, dtype=torch.int64, device=self.device)
        self.random_encoder: Stack | None = None
        if paid and common.bonus_features == "encoder":
            encoders = [torch_generator(seeds[learner], "random encoder") for learner in paid]
            self.random_encoder = self.encoder.initial(encoders).to(self.device)
        self.bonus = StackedBonus(
            [configs[learner].bonus for learner in paid],
            dimensions=2 if common.bonus_features == "position" else self.encoder.features,
            check_finite=check_finite,
        ).to(self.device)

        self.discount = self._per_learner("discount")
        self.gae_lambda = self._per_learner("gae_lambda")
        self.learning_rate = self._per_learner("learning_rate")
        self.rms_decay = self._per_learner("rms_decay")
        self.rms_epsilon = self._per_learner("rms_epsilon")
        self.entropy_coefficient = self._per_learner("entropy_coefficient")
        self.value_coefficient = self._per_learner("value_coefficient")
        self.most_gradient_norm = self._per_learner("most_gradient_norm")
        self.beta = self._per_learner("beta")[self.paid, None, None]
        joins_reward = torch.tensor([config.injection == "reward" for config in configs], device=self.device)
        self.joins_reward = joins_reward[:, None, None].float()
        bootstraps = torch.tensor([config.time_limit == "bootstraps" for config in configs], device=self.device)
        self.ends_at_limit = ~bootstraps[:, None, None]
        self.needs_arrived = any(config.time_limit == "bootstraps" for config in configs)
        self.remembered: RememberedEncoder | None = None
        self._prepare()
        self._prepare_random_encoder()
        self._captured_update: Captured[dict[str, Tensor]] | None = None
        self._captured_from: Rollout | None = None
        self._captured_acts: dict[tuple[int, ...], CapturedCall[Tensor]] = {}

    @torch.no_grad()
    def _prepare(self) -> None:
        """Bring the parameters to the form in which they are applied until the next update."""
        pieces = self.layout.pieces(self.parameters)
        heads = {name: pieces[name] for head in (self.actor, self.critic) for name in head.layout.shapes}
        self.acting = self.encoder.prepare(pieces) | heads

    def _prepare_random_encoder(self) -> None:
        """Bring the random encoder to the form in which it is applied; on a CPU it remembers what it has encoded."""
        if self.random_encoder is None:
            return
        self.random_pieces = self.encoder.prepare(self.encoder.layout.pieces(self.random_encoder))
        if self.device.type == "cpu":
            self.remembered = RememberedEncoder(self.encoder, self.random_pieces, len(self.random_encoder))

    def _replace_random_encoder(self, row: int, remembered: dict[str, Tensor] | None) -> None:
        """Take one learner's encoder into use, and what it has encoded."""
        assert self.random_encoder is not None
        pieces = self.encoder.prepare(self.encoder.layout.pieces(self.random_encoder[row : row + 1]))
        for name, piece in pieces.items():
            self.random_pieces[name][row] = piece[0]
        if self.remembered is not None:
            nothing = {"observations": torch.empty(0), "features": torch.empty(0, self.encoder.features)}
            self.remembered.load_learner_state(row, remembered or nothing)

    @property
    def learners(self) -> int:
        """How many there are."""
        return len(self.configs)

    @torch.no_grad()
    def act(
        self,
        observations: UInt8[Tensor, "l n h w c"],
        uniforms: Float[Tensor, "l n"] | None,
        learners: slice = slice(None),
    ) -> Int[Tensor, "l n"]:
        """Choose an action for every environment of some learners.

        Args:
            observations: What the environments show, on the host or the device.
            uniforms: A random number in [0, 1) for each, which draws the action; None for the likeliest action.
            learners: Whose environments these are.
        """
        if self._captured_update is not None and uniforms is not None:
            return self._captured_act(observations, uniforms, learners)
        return self._act(observations.to(self.device), uniforms, learners)

    def _captured_act(
        self, observations: UInt8[Tensor, "l n h w c"], uniforms: Float[Tensor, "l n"], learners: slice
    ) -> Int[Tensor, "l n"]:
        key = (*learners.indices(self.learners), *observations.shape)
        if key not in self._captured_acts:
            self._captured_acts[key] = CapturedCall(
                lambda shown, drawn: self._act(shown, drawn, learners), observations, uniforms, device=self.device
            )
        return self._captured_acts[key](observations, uniforms)

    def _act(
        self, observations: UInt8[Tensor, "l n h w c"], uniforms: Float[Tensor, "l n"] | None, learners: slice
    ) -> Int[Tensor, "l n"]:
        logits = self._logits(observations, learners)
        if uniforms is None:
            return logits.argmax(-1)
        below = logits.softmax(-1).cumsum(-1) <= uniforms.unsqueeze(-1)
        return below[..., :-1].sum(-1)

    @property
    def can_be_captured(self) -> bool:
        """Whether updates are not captured yet but could be: the memory of a bonus grows at first."""
        return self._captured_update is None and self.bonus.is_capturable

    def release_capture(self) -> None:
        """Run operation by operation again."""
        self._captured_update, self._captured_from = None, None
        self._captured_acts.clear()

    def capture(self, rollout: Rollout) -> None:
        """Replay the update from this memory, and the choice of actions after it, as CUDA graphs from now on."""
        self._captured_update = Captured(lambda: self._update(rollout, None))
        self._captured_from = rollout

    @torch.no_grad()
    def action_probabilities(
        self, observations: UInt8[Tensor, "l n h w c"], learners: slice = slice(None)
    ) -> Float[Tensor, "l n a"]:
        """Give the policy's distribution over actions."""
        return self._logits(observations, learners).softmax(-1)

    def _logits(self, observations: UInt8[Tensor, "l n h w c"], learners: slice) -> Float[Tensor, "l n a"]:
        acting = {name: piece[learners] for name, piece in self.acting.items()}
        return self.actor(acting, self.encoder(acting, observations))

    def update(self, rollout: Rollout, values: Float[Tensor, "l n t"] | None = None) -> dict[str, Float[Tensor, " l"]]:
        """Learn from a rollout; what is returned is overwritten by the next update.

        Args:
            rollout: What happened, under the present parameters.
            values: What the bonus conditions on; the extrinsic critic's if not given, or where it is NaN.

        Returns:
            Numbers to log, one per learner.
        """
        if self._captured_update is not None and rollout is self._captured_from and values is None:
            return self._captured_update()
        return self._update(rollout, values)

    def _update(self, rollout: Rollout, values: Float[Tensor, "l n t"] | None) -> dict[str, Float[Tensor, " l"]]:
        learners, n, t = rollout.actions.shape
        pieces = self.layout.pieces(self.parameters)
        encoder = self.encoder.prepare(pieces)
        features = self.encoder(encoder, rollout.observations.flatten(1, 2))
        arrived = self._arrived_features(rollout, encoder)
        critic = self.critic(pieces, features).view(learners, n, t + 1)
        terminated, ended = self._ends(rollout)

        # The value of the task's own rewards: nothing of it reaches the encoder, nothing of the bonus reaches it.
        extrinsic_loss, extrinsic = self._extrinsic(features.detach(), arrived, rollout, terminated, ended)

        # The bonus of s_t, weighted by beta.
        with torch.no_grad():
            condition = extrinsic if values is None else torch.where(values.isnan(), extrinsic, values)
            bonus = self.weighted_bonus(rollout, condition)
            joined = rollout.rewards + bonus * self.joins_reward
            advantages = gae(
                joined,
                critic[..., :-1],
                critic[..., 1:] if arrived is None else self.critic(pieces, arrived).view(learners, n, t),
                terminated,
                ended,
                discount=self.discount[:, None],
                gae_lambda=self.gae_lambda[:, None],
            )
            advantages += bonus * (1 - self.joins_reward)
            returns = critic[..., :-1] + advantages  # so the critic learns the bonus too, either way

        logits = self.actor(pieces, features.view(learners, n, t + 1, -1)[:, :, :-1].flatten(1, 2))
        log_policy = logits.log_softmax(-1)
        log_taken = log_policy.gather(-1, rollout.actions.reshape(learners, n * t, 1)).view(learners, n, t)
        policy_loss = -(log_taken * advantages).mean((1, 2))
        entropy = -(log_policy.exp() * log_policy).sum(-1).mean(1)
        value_loss = (critic[..., :-1] - returns).square().mean((1, 2))
        loss = policy_loss - self.entropy_coefficient * entropy
        loss = loss + self.value_coefficient * (value_loss + extrinsic_loss)
        gradient_norm = self._descend(loss)
        self._prepare()
        return {
            "policy_entropy": entropy.detach(),
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "extrinsic_value_loss": extrinsic_loss.detach(),
            "critic_mean": critic.detach().mean((1, 2)),
            "gradient_norm": gradient_norm,
            **({} if values is None else _agreement(extrinsic.flatten(1), values.flatten(1))),
        }

    def _ends(self, rollout: Rollout) -> tuple[Tensor, Tensor]:
        """Say where nothing comes after, and where an episode ends for whatever reason."""
        ended = rollout.terminated | rollout.truncated
        return rollout.terminated | (rollout.truncated & self.ends_at_limit), ended

    @torch.no_grad()
    def _arrived_features(self, rollout: Rollout, encoder: Pieces) -> Float[Tensor, "l m f"] | None:
        """Give the features of what each action led to, before any reset, where that is needed."""
        return None if rollout.arrived is None else self.encoder(encoder, rollout.arrived.flatten(1, 2))

    def _extrinsic(
        self,
        features: Float[Tensor, "l m_and_n f"],
        arrived: Float[Tensor, "l m f"] | None,
        rollout: Rollout,
        terminated: Tensor,
        ended: Tensor,
    ) -> tuple[Float[Tensor, " l"], Float[Tensor, "l n t"]]:
        """Give the extrinsic critic's loss and values; zeros for learners that have none."""
        learners, n, t = rollout.actions.shape
        if self.extrinsic_parameters is None:
            return features.new_zeros(learners), features.new_zeros(learners, n, t)
        who = self.valued
        pieces = self.extrinsic_critic.layout.pieces(self.extrinsic_parameters)
        estimates = self.extrinsic_critic(pieces, self._of(who, features)).view(len(who), n, t + 1)
        with torch.no_grad():
            advantages = gae(
                self._of(who, rollout.rewards),
                estimates[..., :-1],
                estimates[..., 1:]
                if arrived is None
                else self.extrinsic_critic(pieces, self._of(who, arrived)).view(len(who), n, t),
                self._of(who, terminated),
                self._of(who, ended),
                discount=self.discount[who, None],
                gae_lambda=self.gae_lambda[who, None],
            )
            returns = estimates[..., :-1] + advantages
        losses = self._among_all(who, (estimates[..., :-1] - returns).square().mean((1, 2)))
        return losses, self._among_all(who, estimates[..., :-1].detach())

    def weighted_bonus(self, rollout: Rollout, values: Float[Tensor, "l n t"]) -> Float[Tensor, "l n t"]:
        """Give beta times the bonus of each state, and keep what it was made of; zeros for learners without."""
        if not len(self.paid):
            return torch.zeros_like(values)
        if self.random_encoder is None:
            features = self._of(self.paid, rollout.positions).flatten(1, 2)
        else:
            features = self._random_features(self._of(self.paid, rollout.observations)[:, :, :-1].flatten(1, 2))
        self.bonus_output = self.bonus(
            features,
            values=self._of(self.paid, values).flatten(1),
            rewards=self._of(self.paid, rollout.rewards).flatten(1),
        )
        reward = self.bonus_output.reward.view(len(self.paid), *values.shape[1:])
        return self._among_all(self.paid, self.beta * reward)

    def _random_features(self, observations: UInt8[Tensor, "m n h w c"]) -> Float[Tensor, "m n f"]:
        return (
            self.encoder(self.random_pieces, observations) if self.remembered is None else self.remembered(observations)
        )

    def _descend(self, loss: Float[Tensor, " l"]) -> Float[Tensor, " l"]:
        """Take one step of RMSprop down each learner's own gradient, clipped to its own norm, and give the norms."""
        stacks = [stack for stack in (self.parameters, self.extrinsic_parameters) if stack is not None]
        gradients = torch.autograd.grad(loss.sum(), stacks)
        with torch.no_grad():
            square_norm = gradients[0].square().sum(1)
            if self.extrinsic_parameters is not None:
                square_norm = square_norm.index_add(0, self.valued, gradients[1].square().sum(1))
            norm = square_norm.sqrt()
            shrink = (self.most_gradient_norm / (norm + 1e-6)).clamp(max=1.0)
            self._rms_step(self.parameters, self.squares, gradients[0], shrink, slice(None))
            if self.extrinsic_parameters is not None and self.extrinsic_squares is not None:
                self._rms_step(
                    self.extrinsic_parameters, self.extrinsic_squares, gradients[1], shrink[self.valued], self.valued
                )
        return norm

    def _rms_step(
        self, parameters: Stack, squares: Stack, gradient: Stack, shrink: Float[Tensor, " m"], who: slice | Tensor
    ) -> None:
        decay, epsilon, rate = (each[who, None] for each in (self.rms_decay, self.rms_epsilon, self.learning_rate))
        clipped = gradient.mul_(shrink[:, None])
        squares.mul_(decay).addcmul_(clipped, clipped * (1 - decay))
        parameters.sub_(rate * clipped / squares.sqrt().add_(epsilon))

    def _of(self, who: Int[Tensor, " m"], tensor: Shaped[Tensor, "l ..."]) -> Shaped[Tensor, "m ..."]:
        """Give the rows of some learners, without a copy where these are all."""
        return tensor if len(who) == self.learners else tensor[who]

    def _among_all(self, who: Int[Tensor, " m"], rows: Shaped[Tensor, "m ..."]) -> Shaped[Tensor, "l ..."]:
        """Give the rows of some learners with zeros for the others, without a copy where these are all."""
        if len(who) == self.learners:
            return rows
        return rows.new_zeros(self.learners, *rows.shape[1:]).index_copy(0, who, rows)

    def _per_learner(self, name: str) -> Float[Tensor, " l"]:
        return torch.tensor([getattr(config, name) for config in self.configs], device=self.device)

    def learner_state(self, learner: int) -> dict[str, Any]:
        """Give everything of one learner that a restart needs; it does not depend on the rest of the cohort."""
        state: dict[str, Any] = {
            "parameters": _copy(self.parameters[learner]),
            "squares": _copy(self.squares[learner]),
        }
        if self.extrinsic_parameters is not None and self.extrinsic_squares is not None:
            for row in (self.valued == learner).nonzero().flatten().tolist():
                state["extrinsic_parameters"] = _copy(self.extrinsic_parameters[row])
                state["extrinsic_squares"] = _copy(self.extrinsic_squares[row])
        for row in (self.paid == learner).nonzero().flatten().tolist():
            state["bonus"] = self.bonus.learner_state(row)
            if self.random_encoder is not None:
                state["random_encoder"] = _copy(self.random_encoder[row])
            if self.remembered is not None:
                state["remembered"] = self.remembered.learner_state(row)
        return state

    @torch.no_grad()
    def load_learner_state(self, learner: int, state: dict[str, Any]) -> None:
        """Take one learner's state back."""
        # What is remembered of observations is not there in checkpoints of a GPU.
        mine, theirs = (sorted(each.keys() - {"remembered"}) for each in (self.learner_state(learner), state))
        if mine != theirs:
            raise ValueError(f"the learner has {mine}, but the checkpoint holds {theirs}")
        self.parameters[learner].copy_(state["parameters"])
        self.squares[learner].copy_(state["squares"])
        if self.extrinsic_parameters is not None and self.extrinsic_squares is not None:
            for row in (self.valued == learner).nonzero().flatten().tolist():
                self.extrinsic_parameters[row].copy_(state["extrinsic_parameters"])
                self.extrinsic_squares[row].copy_(state["extrinsic_squares"])
        for row in (self.paid == learner).nonzero().flatten().tolist():
            self.bonus.load_learner_state(row, state["bonus"])
            if self.random_encoder is not None:
                self.random_encoder[row].copy_(state["random_encoder"])
                self._replace_random_encoder(row, state.get("remembered"))
        self._prepare()

    def state_dict(self) -> dict[str, Any]:
        """Give the state of every learner."""
        return {str(learner): self.learner_state(learner) for learner in range(self.learners)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take the state of every learner back."""
        for learner in range(self.learners):
            self.load_learner_state(learner, state[str(learner)])


def _agreement(guessed: Float[Tensor, "l m"], exact: Float[Tensor, "l m"]) -> dict[str, Float[Tensor, " l"]]:
    """Say how well the extrinsic critic knows the exact values; NaN for learners that have none."""
    error = (guessed - exact).square().mean(-1).sqrt()
    apart, exact_apart = (each - each.mean(-1, keepdim=True) for each in (guessed, exact))
    spread = apart.square().sum(-1).sqrt() * exact_apart.square().sum(-1).sqrt()
    return {"exact_value_rmse": error, "exact_value_correlation": (apart * exact_apart).sum(-1) / spread}


def _copy(tensor: Tensor) -> Tensor:
    return tensor.detach().cpu().clone()
