"""What `RolloutBonus` and `ReplayBonus` share: the bonus, its feature encoder and the extrinsic critic."""

import copy
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Shaped
from torch import Tensor, nn

from vcse.bonuses.base import Bonus, BonusBatch, BonusOutput, check_order, check_served, needed_by
from vcse.bonuses.payments import PaymentMonitor
from vcse.bonuses.value_conditional import ValueConditionalStateEntropy
from vcse.estimators.checks import check_all_finite, check_numbers, checks_run
from vcse.integrations.networks import Observations, Shape, encoder_for, evaluating

BETA = 0.02  # one standard deviation of a standardised bonus, in units of the task's reward
CHUNK_SIZE = 1024  # observations per forward pass where no gradient is needed


class BonusPart(nn.Module):
    """A bonus for an existing agent, with everything that it needs and the agent does not have.

    That is the extrinsic critic, which learns from the task's rewards alone, its optimizer, and the feature encoder.
    `state_dict` holds all of it. The global random number generator is never used.
    """

    provides: ClassVar[frozenset[str]]  # what a bonus may need beside the features
    check_every: ClassVar[int] = 1  # calls between two checks of the bonus by the monitor

    def __init__(
        self,
        critic: nn.Module,
        shape: Shape | None,
        *,
        bonus: Bonus | None,
        encoder: nn.Module | None,
        beta: float,
        learning_rate: float,
        seed: int,
    ) -> None:
        super().__init__()
        check_beta(beta)
        if encoder is None:
            if shape is None:
                raise ValueError("pass an encoder, or the shape of an observation")
            encoder = encoder_for(shape, seed=seed)
        self.bonus = chosen_bonus(bonus)
        if self.bonus.learner_shape:
            raise ValueError(f"the bonus must be made with learners=None, got learners={self.bonus.learner_shape[0]}")
        self.needs = needed_by(self.bonus)
        check_served(type(self.bonus).__name__, self.needs, type(self).__name__, self.provides)
        if "episode_starts" not in self.provides:
            check_order(self.bonus, None)
        self.encoder, self.critic, self._beta = encoder, critic, beta
        trainable = [each for each in critic.parameters() if each.requires_grad]
        self.optimizer = torch.optim.Adam(trainable, lr=learning_rate, fused=True)
        self.generator = torch.Generator().manual_seed(seed)
        self.monitor = PaymentMonitor(beta=beta)
        self.output: BonusOutput | None = None  # of the last call
        self._calls = 0
        self._critic_metrics: dict[str, Tensor] = {}  # of the last call; logged as means

    def __call__(self, *args: Any, learn: bool = True, **kwargs: Any) -> Tensor:
        """Return beta times the bonus, even if the agent runs in inference mode or with autocast."""
        if any(isinstance(each, np.ndarray) for each in (*args, *kwargs.values())):
            raise ValueError(f"{type(self).__name__} takes tensors, got a NumPy array: pass torch.from_numpy(array)")
        # The extrinsic critic needs gradients, and values in float32: bfloat16 has 8 bits for what tells states apart.
        device = self.optimizer.param_groups[0]["params"][0].device
        check_device(device)
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            check_processes(torch.distributed.get_world_size())
        modes = torch.inference_mode(mode=False), torch.autocast(device.type, enabled=False)
        with modes[0], modes[1], nullcontext() if learn else self._unchanged():
            bonus: Tensor = super().__call__(*args, learn=learn, **kwargs)
        return bonus

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Compute with a copy of the bonus, in evaluation mode, and keep the metrics."""
        kept = self.bonus, self.output, self._critic_metrics
        self.bonus = copy.deepcopy(self.bonus)  # its memory and running statistics change with every call
        try:
            with evaluating(self.modules()):
                yield
        finally:
            self.bonus, self.output, self._critic_metrics = kept

    @property
    def beta(self) -> float:
        """The weight of the bonus. A training loop may change it at any time."""
        return self._beta

    @beta.setter
    def beta(self, beta: float) -> None:
        check_beta(beta)
        self._beta = beta

    def metrics(self) -> dict[str, float]:
        """Return the metrics of the last call that learned, for logging: "bonus/mean", "bonus/std", "bonus/beta", ...

        On CUDA this waits for the device, once.
        """
        if self.output is None:
            return {}
        metrics = self._critic_metrics | self.output.diagnostics()
        numbers = torch.stack([each.float().mean() for each in metrics.values()]).tolist()
        named = zip(metrics, numbers, strict=True)
        return {f"bonus/{name.removeprefix('bonus_')}": number for name, number in named} | {"bonus/beta": self.beta}

    def _weighted_bonus(
        self,
        features: Float[Tensor, "n d"],
        rewards: Float[Tensor, " n"],
        *,
        learn: bool,
        valid: Bool[Tensor, " n"] | None = None,
        **inputs: Callable[[], Tensor],
    ) -> Float[Tensor, " _"]:
        """Compute beta times the bonus, and let the bonus learn.

        Args:
            features: In which nearest neighbours are searched.
            rewards: Of the task.
            learn: Whether the bonus learns, and the monitor sees it.
            valid: Which rows are transitions, if not all: only their bonus is returned, and only they are learned from.
            inputs: Computes, by name, what some bonuses need beside the features. Only what is needed is computed.
        """
        available: dict[str, Callable[[], Tensor]] = {"rewards": lambda: rewards, **inputs}
        needed = {name: available[name]() for name in self.needs}
        computed = torch.promote_types(features.dtype, torch.float32)  # Gymnasium's own rewards are in float64
        needed |= {name: needed[name].to(computed) for name in ("values", "rewards") if name in needed}
        if valid is None:
            self.output = self.bonus(features, **needed)
        else:
            features, needed = zeroed(features, valid), {name: zeroed(each, valid) for name, each in needed.items()}
            self.output = self.bonus(features, valid=valid, **needed)
            features, rewards = features[valid], rewards[valid]
            needed = {name: each[valid] for name, each in needed.items()}
        bonus = self.beta * self.output.reward.to(rewards.dtype)
        if not learn:
            return bonus
        if self.bonus.learns:  # after the reward is computed: a bonus must not have seen the states that it rewards
            with torch.enable_grad():
                self._critic_metrics |= self.bonus.learn(BonusBatch(features, **needed))
        if self._calls % self.check_every == 0:
            self.monitor.beta = self.beta
            self.monitor(self.output, rewards=rewards)
        self._calls += 1
        return bonus

    def _learn(self, loss: Float[Tensor, ""]) -> None:
        """Take one optimizer step. The gradient of the loss reaches the extrinsic critic alone."""
        parameters = self.optimizer.param_groups[0]["params"]
        # The module may have more than the critic, such as a policy: what the loss does not use has no gradient.
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        self.optimizer.step()

    def get_extra_state(self) -> dict[str, Any]:
        """Return the state of the optimizer and of the random number generator."""
        return {"optimizer": self.optimizer.state_dict(), "generator": self.generator.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Load what `get_extra_state` returned."""
        # A copy, since the optimizer would update the loaded tensors in place.
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        self.generator.set_state(state["generator"].cpu())


def check_device(device: torch.device) -> None:
    """Raise ValueError for a device that lacks what a bonus computes with."""
    if device.type == "mps":
        raise ValueError("a bonus computes in float64, which mps does not have: keep it and its inputs on cpu")


def check_processes(count: int) -> None:
    """Raise ValueError if several processes train one agent."""
    if count > 1:
        raise ValueError(
            f"distributed training is not supported: each of the {count} processes would train an extrinsic critic of "
            "its own, and they would diverge"
        )


def check_beta(beta: float) -> None:
    """Raise ValueError for a weight that is negative, infinite or NaN."""
    if not 0 <= beta < math.inf:
        raise ValueError(f"beta must be finite and not negative, got {beta}")


def check_decay_steps(decay_steps: int | float | None) -> None:
    """Raise ValueError for numbers of steps over which nothing can fall."""
    if decay_steps is not None and not decay_steps >= 1:
        raise ValueError(f"decay_steps must be at least 1, got {decay_steps}")


def decayed(beta: float, steps: int | float, decay_steps: int | float) -> float:
    """Compute the weight of a bonus after a number of environment steps: it falls linearly to 0 over `decay_steps`."""
    return beta * max(0.0, 1 - steps / decay_steps)


def chosen_bonus(bonus: Any, k: int | None = None) -> Bonus:
    """Return the given bonus, or the recommended one if it is None, with another k if one is given."""
    if bonus is None:
        return ValueConditionalStateEntropy() if k is None else ValueConditionalStateEntropy(k=k)
    if isinstance(bonus, type):
        raise ValueError(f"bonus must be an instance, got the class {bonus.__name__}: pass {bonus.__name__}(...)")
    if not isinstance(bonus, Bonus):
        raise ValueError(f"bonus must be a Bonus, got {bonus!r}")
    if k is not None:
        raise ValueError(f"pass k or bonus, not both: got k={k} and {type(bonus).__name__}")
    return bonus


def check_enough_states(bonus: Bonus, states: int, given: str, *, size: str) -> None:
    """Raise ValueError for a bonus whose k-th neighbour so few states cannot have.

    Args:
        bonus: The bonus.
        states: Of a rollout or a batch.
        given: The same in words.
        size: The setting of the agent that decides it.
    """
    k = getattr(bonus, "k", 0)
    if k >= states:
        raise ValueError(f"k={k} needs more than {k} states, but {given}: decrease k or increase {size}")


def detached(tensor: Tensor) -> Tensor:
    """Return a tensor without its graph; a copy if it was made in inference mode, since autograd refuses those."""
    return tensor.detach().clone() if tensor.is_inference() else tensor.detach()


def apply(function: Callable[..., Any], *observations: Any) -> Any:
    """Apply a function to observations, or, where they are dictionaries, to those of each name."""
    if isinstance(observations[0], Mapping):
        return {name: function(*(each[name] for each in observations)) for name in observations[0]}
    return function(*observations)


def rows_of(observations: Observations, rows: Any) -> Any:
    """Return some rows of observations."""
    return apply(lambda each: each[rows], observations)


def in_chunks(network: Callable[[Observations], Tensor], observations: Observations) -> Tensor:
    """Compute the output of a network chunk by chunk, since a whole rollout of images may not fit into memory.

    The chunks are equal but for one row: in one of very few rows a matrix product may round differently, and equal
    observations would no longer have equal features.
    """
    size = len(next(iter(observations.values())) if isinstance(observations, Mapping) else observations)
    chunks = max(1, math.ceil(size / CHUNK_SIZE))
    bounds = [size * number // chunks for number in range(chunks + 1)]
    return torch.cat([network(rows_of(observations, slice(*each))) for each in pairwise(bounds)])


def zeroed(rows: Shaped[Tensor, "n ..."], valid: Bool[Tensor, " n"]) -> Shaped[Tensor, "n ..."]:
    """Return rows with zeros where they are not valid, since they may hold anything there, NaN included."""
    return rows.masked_fill(~valid.view(-1, *[1] * (rows.ndim - 1)), 0)


def concatenated(*observations: Observations) -> Any:
    """Return batches of observations as one, for one forward pass through each network."""
    return apply(lambda *batches: torch.cat(batches), *observations)


def check_rewards(rewards: Tensor, *, valid: Tensor | None = None) -> None:
    """Raise ValueError for rewards that are NaN or infinite, or that are not numbers."""
    check_numbers("rewards", rewards)
    if checks_run(True, rewards) and rewards.numel() > 0:
        check_all_finite("rewards", rewards if valid is None else rewards.masked_fill(~valid, 0))


def check_targets(targets: Tensor) -> None:
    """Raise ValueError for targets of the extrinsic critic that are NaN or infinite."""
    if checks_run(True, targets):
        check_all_finite("the extrinsic critic's targets, computed from rewards and observations,", targets)


def check_shapes(
    leading: tuple[int, ...], observations: Observations, next_observations: Observations, **others: Tensor | None
) -> None:
    """Raise ValueError for tensors whose leading shape is not that of the rewards: [steps, environments], or [n]."""
    named = dict(others)
    for name, given in (("observations", observations), ("next_observations", next_observations)):
        parts = given.items() if isinstance(given, Mapping) else [("", given)]
        named |= {f"{name}[{key!r}]" if key else name: each for key, each in parts}
    for name, each in named.items():
        if each is not None and tuple(each.shape[: len(leading)]) != leading:
            raise ValueError(f"{name} must begin with the shape of the rewards, {leading}, got {tuple(each.shape)}")
    shapes, next_shapes = (apply(lambda each: tuple(each.shape), each) for each in (observations, next_observations))
    if shapes != next_shapes:
        raise ValueError(f"next_observations have shape {next_shapes}, but observations have shape {shapes}")


def explained_variance(estimates: Float[Tensor, " n"], returns: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """Compute 1 − Var(returns − estimates) / Var(returns): 1 is perfect, and a constant estimate has 0."""
    return 1 - (returns - estimates).var(correction=0) / returns.var(correction=0)
