"""A2C (advantage actor-critic) with an exploration bonus, for a cohort of learners at once.

One update per rollout of 16 environments x 8 steps. Every tensor has a leading learner axis `l`; learners share
operations, never numbers: each has its own parameters, optimiser state, gradient norm and random numbers.

The extrinsic critic sees detached features and the task's rewards only: it is the value that VCSE conditions on,
and the bonus cannot reach it. A learner without a bonus has none. A step cost is none of the task's rewards: it joins
where the bonus joins.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from vcse.agents.a2c.bonus_inputs import episode_starts, next_features
from vcse.agents.a2c.networks import RandomEncoder, StateFeatures, TanhHead, bonus_encoder
from vcse.agents.a2c.settings import A2CSettings
from vcse.agents.output import UpdateOutput
from vcse.bonuses.base import Bonus, BonusBatch
from vcse.bonuses.registry import BonusContext
from vcse.bonuses.stacked import StackedBonus, StackedOutput
from vcse.nets.cuda.graphs import Captured, CapturedCall
from vcse.nets.observers import Seen, trunk_for
from vcse.nets.optimizers import rms_step
from vcse.nets.stacked import Layout, Stack, among_all, indices, per_learner, place_of, rows_of
from vcse.replay.rollouts import Rollout
from vcse.returns import gae
from vcse.settings import check_cohort
from vcse.streams import torch_generator, torch_seed

HIDDEN_UNITS = 64


@dataclass(frozen=True)
class A2CSpec:
    """What the agent must know of its environments."""

    observation_shape: tuple[int, ...]  # height, width, channels; of states their size
    actions: int
    seen: Seen = "grid"


class A2C:
    """A cohort of A2C learners.

    Args:
        spec: Shape of the observations and number of actions, the same for all learners.
        configs: The settings of each learner. `SHARED` ones must agree; all else may differ.
        seeds: The seed of each learner's parameters.
        bonus: Anybody's, made with as many learners as there are, in the place of those that the settings choose.
        device: Where everything lives.
        check_finite: Let the bonus refuse NaN and infinity; on CUDA this waits for the device.
    """

    SHARED = ("environments", "rollout_steps", "bonus_features")
    # That a bonus may need.
    GIVES = frozenset(("values", "rewards", "actions", "next_features", "episode_starts"))

    def __init__(
        self,
        spec: A2CSpec,
        configs: Sequence[A2CSettings],
        seeds: Sequence[int],
        *,
        bonus: Bonus | None = None,
        device: torch.device | str = "cpu",
        check_finite: bool = False,
    ) -> None:
        check_cohort(configs, seeds, self.SHARED)
        self.device = torch.device(device)
        self.configs, self.learners = tuple(configs), len(configs)
        self.encoder = trunk_for(spec.seen, spec.observation_shape)
        layers = 2 if spec.seen == "state" else 1  # states have no trunk
        self.actor, self.critic, self.extrinsic_critic = (
            TanhHead(name, self.encoder.features, HIDDEN_UNITS, outputs, layers=layers)
            for name, outputs in (("actor", spec.actions), ("critic", 1), ("extrinsic_critic", 1))
        )
        modules = (self.encoder, self.actor, self.critic)
        self.layout = Layout({name: shape for each in modules for name, shape in each.layout.shapes.items()})
        everyone = range(self.learners)
        paid = [learner for learner in everyone if bonus is not None or configs[learner].has_bonus]
        valued = [learner for learner in everyone if learner in paid or configs[learner].keep_extrinsic_critic]
        self.paid, self.valued = indices(paid, self.device), indices(valued, self.device)

        # One generator per learner and stack, so that having a bonus does not change a learner's policy.
        generators = [torch_generator(seed, "parameters") for seed in seeds]
        parameters = torch.cat([each.initial(generators) for each in modules], 1)
        extrinsic = self.extrinsic_critic.initial([generators[each] for each in valued]) if valued else None
        self.parameters = parameters.to(self.device).requires_grad_()
        self.squares = torch.zeros_like(parameters, device=self.device)  # RMSprop's average of squared gradients
        self.extrinsic_parameters = None if extrinsic is None else extrinsic.to(self.device).requires_grad_()
        self.extrinsic_squares = None if extrinsic is None else torch.zeros_like(extrinsic, device=self.device)

        self._make_bonus(bonus, spec, seeds, check_finite=check_finite)
        self._read_settings()
        self._prepare()
        self._captured_update: Captured[UpdateOutput] | None = None
        self._captured_from: tuple[Rollout, Int[Tensor, "l m"] | None] | None = None
        self._captured_acts: dict[tuple[int, ...], CapturedCall[Tensor]] = {}

    def _make_bonus(self, bonus: Bonus | None, spec: A2CSpec, seeds: Sequence[int], *, check_finite: bool) -> None:
        """Make the bonus, and what it sees: a random encoder that is never trained, or positions."""
        mine = [(self.configs[each], seeds[each]) for each in self.paid.tolist()]
        common = self.configs[0]
        by_position = common.bonus_features == "position"
        self.random_encoder: RandomEncoder | StateFeatures | None = None
        if mine and not by_position:
            of_bonus = [torch_generator(seed, "random encoder") for _, seed in mine]
            self.random_encoder = bonus_encoder(spec.seen, self.encoder, of_bonus, self.device)
        context = BonusContext(
            seeds=tuple(torch_seed(seed, "bonus") for _, seed in mine),
            environments=common.environments,
            actions=spec.actions,
            gives=self.GIVES,
        )
        choices = [config.bonus for config, _ in mine]
        dimensions = 2 if self.random_encoder is None else self.random_encoder.features
        self.bonus = StackedBonus.given(
            bonus, choices, context, agent="a2c", dimensions=dimensions, check_finite=check_finite
        ).to(self.device)
        # Those of the learners with a bonus who look at the next state.
        looking = [row for row in range(len(mine)) if "next_features" in self.bonus.needs_of(row)]
        self.looking_ahead = indices(looking, self.device)
        # Whether what an environment shows first in a rollout is the first of its episode.
        self.starts = torch.ones(len(mine), common.environments, dtype=torch.bool, device=self.device)

    def _read_settings(self) -> None:
        """Bring the settings of all learners into tensors."""
        configs = self.configs

        def each(name: str) -> Float[Tensor, " l"]:
            return per_learner(configs, name, self.device)

        self.discount, self.gae_lambda = each("discount"), each("gae_lambda")
        self.learning_rate = each("learning_rate")
        self.rms_decay, self.rms_epsilon = each("rms_decay"), each("rms_epsilon")
        self.entropy_coefficient, self.value_coefficient = each("entropy_coefficient"), each("value_coefficient")
        self.most_gradient_norm = each("most_gradient_norm")
        self.beta = each("beta")[self.paid, None, None]
        self.step_cost = each("step_cost")[:, None, None]
        trains_value = torch.tensor([config.values != "frozen" for config in configs], device=self.device)
        self.trains_value = trains_value.float()
        joins_reward = torch.tensor([config.injection == "reward" for config in configs], device=self.device)
        self.joins_reward = joins_reward[:, None, None].float()
        bootstraps = torch.tensor([config.time_limit == "bootstraps" for config in configs], device=self.device)
        self.ends_at_limit = ~bootstraps[:, None, None]
        self.bootstraps = bool(bootstraps.any())
        # Whether rollouts must hold what actions led to: for the values of it, or for a bonus.
        self.needs_next_observations = self.bootstraps or len(self.looking_ahead) > 0

    @torch.no_grad()
    def _prepare(self) -> None:
        """Bring the parameters to the form in which they are applied until the next update."""
        pieces = self.layout.pieces(self.parameters)
        heads = {name: pieces[name] for head in (self.actor, self.critic) for name in head.layout.shapes}
        self.acting = self.encoder.prepare(pieces) | heads

    @torch.no_grad()
    def act(
        self,
        observations: Shaped[Tensor, "l n ..."],
        uniforms: Float[Tensor, "l n"] | None,
        learners: slice = slice(None),
    ) -> Int[Tensor, "l n"]:
        """Choose an action for every environment of some learners.

        Args:
            observations: What the environments show, on the host or the device.
            uniforms: A random number in [0, 1) for each, which samples the action; None for the likeliest action.
            learners: Whose environments these are.
        """
        if self._captured_update is None or uniforms is None:
            return self._act(observations.to(self.device), uniforms, learners)
        key = (*learners.indices(self.learners), *observations.shape)
        if key not in self._captured_acts:
            self._captured_acts[key] = CapturedCall(
                lambda shown, drawn: self._act(shown, drawn, learners), observations, uniforms, device=self.device
            )
        return self._captured_acts[key](observations, uniforms)

    def _act(
        self, observations: Shaped[Tensor, "l n ..."], uniforms: Float[Tensor, "l n"] | None, learners: slice
    ) -> Int[Tensor, "l n"]:
        logits = self._logits(observations, learners)
        if uniforms is None:
            return logits.argmax(-1)
        below = logits.softmax(-1).cumsum(-1) <= uniforms.unsqueeze(-1)
        return below[..., :-1].sum(-1)

    @torch.no_grad()
    def action_probabilities(
        self, observations: Shaped[Tensor, "l n ..."], learners: slice = slice(None)
    ) -> Float[Tensor, "l n a"]:
        """Return the policy's distribution over actions."""
        return self._logits(observations, learners).softmax(-1)

    def _logits(self, observations: Shaped[Tensor, "l n ..."], learners: slice) -> Float[Tensor, "l n a"]:
        acting = {name: piece[learners] for name, piece in self.acting.items()}
        return self.actor(acting, self.encoder(acting, observations))

    @property
    def can_be_captured(self) -> bool:
        """Whether updates are not captured yet but could be: the memory of a bonus grows at first."""
        return self._captured_update is None and self.bonus.is_capturable

    def release_capture(self) -> None:
        """Run operation by operation again."""
        self._captured_update, self._captured_from = None, None
        self._captured_acts.clear()

    def capture(self, rollout: Rollout, order: Int[Tensor, "l m"] | None = None) -> None:
        """Replay the update from this memory, and the choice of actions after it, as CUDA graphs from now on."""
        self._captured_update = Captured(lambda: self._update(rollout, None, order))
        self._captured_from = rollout, order

    def update(
        self,
        rollout: Rollout,
        values: Float[Tensor, "l n t"] | None = None,
        order: Int[Tensor, "l m"] | None = None,
    ) -> UpdateOutput:
        """Learn from a rollout; what is returned is overwritten by the next update.

        Args:
            rollout: What happened, under the present parameters.
            values: What the bonus conditions on; the extrinsic critic's if not given, or where it is NaN.
            order: Whose value, by its place among the states of the rollout, the bonus sees with each; its own if not
                given.
        """
        captured = self._captured_from
        if self._captured_update and captured and values is None and rollout is captured[0] and order is captured[1]:
            return self._captured_update()
        return self._update(rollout, values, order)

    def _update(
        self, rollout: Rollout, values: Float[Tensor, "l n t"] | None, order: Int[Tensor, "l m"] | None
    ) -> UpdateOutput:
        learners, n, t = rollout.actions.shape
        pieces = self.layout.pieces(self.parameters)
        encoder = self.encoder.prepare(pieces)
        features = self.encoder(encoder, rollout.observations.flatten(1, 2))
        with torch.no_grad():  # what each action led to, before any reset, where that is needed
            next_features = None
            if rollout.next_observations is not None and self.bootstraps:
                next_features = self.encoder(encoder, rollout.next_observations.flatten(1, 2))
        critic = self.critic(pieces, features).view(learners, n, t + 1)
        ended = rollout.terminated | rollout.truncated
        terminated = rollout.terminated | (rollout.truncated & self.ends_at_limit)

        # The value of the task's own rewards: nothing of it reaches the encoder, nothing of the bonus reaches it.
        extrinsic_loss, extrinsic = self._extrinsic(features.detach(), next_features, rollout, terminated, ended)

        # The bonus of s_t, weighted by beta, and less the cost of a step: what joins the reward, or the advantage.
        with torch.no_grad():
            condition = extrinsic if values is None else torch.where(values.isnan(), extrinsic, values)
            condition = condition if order is None else condition.flatten(1).gather(1, order).view_as(condition)
            paid, bonus = self.weighted_bonus(rollout, condition)
            joining = bonus - self.step_cost
            joined = rollout.rewards + joining * self.joins_reward
            advantages = gae(
                joined,
                critic[..., :-1],
                critic[..., 1:] if next_features is None else self.critic(pieces, next_features).view(learners, n, t),
                terminated,
                ended,
                discount=self.discount[:, None],
                gae_lambda=self.gae_lambda[:, None],
            )
            advantages += joining * (1 - self.joins_reward)
            returns = critic[..., :-1] + advantages  # so the critic learns bonus and cost too, either way

        logits = self.actor(pieces, features.view(learners, n, t + 1, -1)[:, :, :-1].flatten(1, 2))
        log_policy = logits.log_softmax(-1)
        log_taken = log_policy.gather(-1, rollout.actions.reshape(learners, n * t, 1)).view(learners, n, t)
        policy_loss = -(log_taken * advantages).mean((1, 2))
        entropy = -(log_policy.exp() * log_policy).sum(-1).mean(1)
        value_loss = (critic[..., :-1] - returns).square().mean((1, 2))
        loss = policy_loss - self.entropy_coefficient * entropy
        loss = loss + self.value_coefficient * (value_loss + extrinsic_loss * self.trains_value)
        gradient_norm = self._descend(loss)
        self._prepare()
        metrics = {
            "policy_entropy": entropy.detach(),
            "policy_loss": policy_loss.detach(),
            "value_loss": value_loss.detach(),
            "extrinsic_value_loss": extrinsic_loss.detach(),
            "critic_mean": critic.detach().mean((1, 2)),
            "gradient_norm": gradient_norm,
            **({} if values is None else _agreement(extrinsic.flatten(1), values.flatten(1))),
        }
        return UpdateOutput(metrics, paid)

    def _extrinsic(
        self,
        features: Float[Tensor, "l m_and_n f"],
        next_features: Float[Tensor, "l m f"] | None,
        rollout: Rollout,
        terminated: Tensor,
        ended: Tensor,
    ) -> tuple[Float[Tensor, " l"], Float[Tensor, "l n t"]]:
        """Return the extrinsic critic's loss and values; zeros for learners that have none."""
        learners, n, t = rollout.actions.shape
        if self.extrinsic_parameters is None:
            return features.new_zeros(learners), features.new_zeros(learners, n, t)
        who = self.valued
        pieces = self.extrinsic_critic.layout.pieces(self.extrinsic_parameters)
        estimates = self.extrinsic_critic(pieces, rows_of(who, features)).view(len(who), n, t + 1)
        with torch.no_grad():
            advantages = gae(
                rows_of(who, rollout.rewards),
                estimates[..., :-1],
                estimates[..., 1:]
                if next_features is None
                else self.extrinsic_critic(pieces, rows_of(who, next_features)).view(len(who), n, t),
                rows_of(who, terminated),
                rows_of(who, ended),
                discount=self.discount[who, None],
                gae_lambda=self.gae_lambda[who, None],
            )
            returns = estimates[..., :-1] + advantages
        losses = among_all(who, (estimates[..., :-1] - returns).square().mean((1, 2)), learners)
        return losses, among_all(who, estimates[..., :-1].detach(), learners)

    def weighted_bonus(
        self, rollout: Rollout, values: Float[Tensor, "l n t"]
    ) -> tuple[StackedOutput | None, Float[Tensor, "l n t"]]:
        """Return the bonus of those who are paid one, and beta times it for each state; zeros for learners without."""
        if not len(self.paid):
            return None, torch.zeros_like(values)
        if self.random_encoder is None:
            features = rows_of(self.paid, rollout.positions).flatten(1, 2)
        else:
            features = self.random_encoder(rows_of(self.paid, rollout.observations)[:, :, :-1].flatten(1, 2))
        given: dict[str, Callable[[], Tensor]] = {
            "values": lambda: rows_of(self.paid, values).flatten(1),
            "rewards": lambda: rows_of(self.paid, rollout.rewards).flatten(1),
            "actions": lambda: rows_of(self.paid, rollout.actions).flatten(1),
            "next_features": lambda: next_features(rollout, self.random_encoder, self.paid, self.looking_ahead),
            "episode_starts": lambda: episode_starts(rollout, self.paid, self.starts),
        }
        batch = {name: given[name]() for name in self.bonus.needs}
        output = self.bonus(features, **batch)
        if self.bonus.learns:
            self.bonus.learn(BonusBatch(features, **batch))
        reward = output.reward.view(len(self.paid), *values.shape[1:])
        return output, among_all(self.paid, self.beta * reward, self.learners)

    def _descend(self, loss: Float[Tensor, " l"]) -> Float[Tensor, " l"]:
        """Take one step of RMSprop down each learner's own gradient, clipped to its own norm, and return the norms."""
        stacks: list[tuple[Stack, Stack, slice | Tensor]] = [(self.parameters, self.squares, slice(None))]
        if self.extrinsic_parameters is not None and self.extrinsic_squares is not None:
            stacks.append((self.extrinsic_parameters, self.extrinsic_squares, self.valued))
        gradients = torch.autograd.grad(loss.sum(), [parameters for parameters, _, _ in stacks])
        with torch.no_grad():
            square_norm = gradients[0].square().sum(1)
            for gradient in gradients[1:]:
                square_norm = square_norm.index_add(0, self.valued, gradient.square().sum(1))
            norm = square_norm.sqrt()
            shrink = (self.most_gradient_norm / (norm + 1e-6)).clamp(max=1.0)
            for (parameters, squares, who), gradient in zip(stacks, gradients, strict=True):
                rms_step(
                    parameters,
                    squares,
                    gradient.mul_(shrink[who, None]),
                    rate=self.learning_rate[who, None],
                    decay=self.rms_decay[who, None],
                    epsilon=self.rms_epsilon[who, None],
                )
        return norm

    def learner_state(self, learner: int) -> dict[str, Any]:
        """Return everything of one learner that a restart needs; it does not depend on the rest of the cohort."""
        state: dict[str, Any] = {name: row.detach().cpu().clone() for name, row in _rows(self, learner).items()}
        row = place_of(learner, self.paid)
        if row is not None:
            state["bonus"] = self.bonus.learner_state(row)
            state |= {} if self.random_encoder is None else self.random_encoder.learner_state(row)
            if "episode_starts" in self.bonus.needs_of(row):
                state["starts"] = self.starts[row].cpu().clone()
        return state

    @torch.no_grad()
    def load_learner_state(self, learner: int, state: dict[str, Any]) -> None:
        """Load one learner's state."""
        # What is remembered of observations is not there in checkpoints of a GPU.
        mine, theirs = (sorted(each.keys() - {"remembered"}) for each in (self.learner_state(learner), state))
        if mine != theirs:
            raise ValueError(f"the learner has {mine}, but the checkpoint holds {theirs}")
        for name, rows in _rows(self, learner).items():
            rows.copy_(state[name])
        row = place_of(learner, self.paid)
        if row is not None:
            self.bonus.load_learner_state(row, state["bonus"])
            if self.random_encoder is not None:
                self.random_encoder.load_learner_state(row, state)
            if "starts" in state:
                self.starts[row] = state["starts"].to(self.device)
        self._prepare()

    @torch.no_grad()
    def load_policy(self, learner: int, state: dict[str, Any]) -> None:
        """Load the policy alone from one learner's state, whatever its bonus was."""
        self.parameters[learner].copy_(state["parameters"])
        self._prepare()

    def state_dict(self) -> dict[str, Any]:
        """Return the state of every learner."""
        return {str(learner): self.learner_state(learner) for learner in range(self.learners)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load the state of every learner."""
        for learner in range(self.learners):
            self.load_learner_state(learner, state[str(learner)])


def _agreement(guessed: Float[Tensor, "l m"], exact: Float[Tensor, "l m"]) -> dict[str, Float[Tensor, " l"]]:
    """Return how well the extrinsic critic knows the exact values; NaN for learners that have none."""
    error = (guessed - exact).square().mean(-1).sqrt()
    apart, exact_apart = (each - each.mean(-1, keepdim=True) for each in (guessed, exact))
    spread = apart.square().sum(-1).sqrt() * exact_apart.square().sum(-1).sqrt()
    return {"exact_value_rmse": error, "exact_value_correlation": (apart * exact_apart).sum(-1) / spread}


def _rows(agent: A2C, learner: int) -> dict[str, Tensor]:
    """Return the rows of all stacks that are a learner's."""
    rows = {"parameters": agent.parameters[learner], "squares": agent.squares[learner]}
    row = place_of(learner, agent.valued)
    if row is not None and agent.extrinsic_parameters is not None and agent.extrinsic_squares is not None:
        rows["extrinsic_parameters"] = agent.extrinsic_parameters[row]
        rows["extrinsic_squares"] = agent.extrinsic_squares[row]
    return rows
