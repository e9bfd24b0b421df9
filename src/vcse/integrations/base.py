"""What the two framework-free parts have in common: a bonus, its features, and a critic of the task's own rewards."""

import copy
import math
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from vcse.bonuses.base import Bonus, BonusBatch, BonusOutput, check_order, check_served, needed_by
from vcse.bonuses.payments import PaymentMonitor
from vcse.bonuses.value_conditional import ValueConditionalStateEntropy
from vcse.estimators.checks import check_all_finite, check_numbers, checks_run
from vcse.integrations.networks import Observations, Shape, encoder_for

BETA = 0.02  # one standard deviation of a standardised bonus, in units of the task's reward
PIECE = 1024  # observations that pass through a network at once where no gradient is needed


class BonusPart(nn.Module):
    """A bonus that joins the rewards of somebody else's agent.

    It owns what the bonus needs and the agent does not have: a critic of the task's own rewards, its optimiser and the
    encoder of features. `state_dict` holds all of it, and no global random number is used.
    """

    check_every: ClassVar[int] = 1  # calls between two looks at what the bonus pays

    def __init__(
        self,
        gives: frozenset[str],
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
                raise ValueError("encoder is needed where observations are of no single shape")
            encoder = encoder_for(shape, seed=seed)
        self.bonus = ValueConditionalStateEntropy.recommended() if bonus is None else bonus
        if self.bonus.learner_shape:
            raise ValueError(f"the bonus must be made with learners=None, got learners={self.bonus.learner_shape[0]}")
        self.needs = needed_by(self.bonus)
        check_served(type(self.bonus).__name__, self.needs, type(self).__name__, gives)
        if "episode_starts" not in gives:
            check_order(self.bonus, None)
        self.encoder, self.critic, self._beta = encoder, critic, beta
        learned = [each for each in critic.parameters() if each.requires_grad]
        self.optimizer = torch.optim.Adam(learned, lr=learning_rate, fused=True)
        self.generator = torch.Generator().manual_seed(seed)
        self.monitor = PaymentMonitor(beta=beta)
        self.output: BonusOutput | None = None  # of the last call
        self._calls = 0
        self._critic_metrics: dict[str, Tensor] = {}  # shown by their means

    def __call__(self, *args: Any, **kwargs: Any) -> Tensor:
        """Return beta times the bonus; also where the agent collects and computes in inference mode."""
        if any(isinstance(each, np.ndarray) for each in (*args, *kwargs.values())):
            raise ValueError(f"{type(self).__name__} takes tensors, got a NumPy array: pass torch.from_numpy(array)")
        with torch.inference_mode(mode=False):  # in which no critic could learn
            paid: Tensor = super().__call__(*args, **kwargs)
        return paid

    @property
    def beta(self) -> float:
        """The weight of the bonus, which a training loop may change at any time."""
        return self._beta

    @beta.setter
    def beta(self, beta: float) -> None:
        check_beta(beta)
        self._beta = beta

    def metrics(self) -> dict[str, float]:
        """Return numbers to log of the last call. Waits for the device on CUDA."""
        shown = self._critic_metrics | ({} if self.output is None else self.output.diagnostics())
        return {name: number.mean().item() for name, number in shown.items()}

    def _pay(self, features: Float[Tensor, "n d"], rewards: Float[Tensor, " n"], **given: Any) -> Float[Tensor, " n"]:
        """Return beta times the bonus, which gets what it needs of what is given."""
        known: dict[str, Callable[[], Tensor]] = {"rewards": lambda: rewards, **given}
        needed = {name: known[name]() for name in self.needs}
        self.output = self.bonus(features, **needed)
        if self.bonus.learns:  # after what it pays, so that it is not paid for what it has just learned
            with torch.enable_grad():
                learned = self.bonus.learn(BonusBatch(features, **needed))
            self._critic_metrics |= learned
        if self._calls % self.check_every == 0:
            self.monitor.beta = self.beta
            self.monitor(self.output, rewards=rewards)
        self._calls += 1
        return self.beta * self.output.reward.to(rewards.dtype)

    def _learn(self, loss: Float[Tensor, ""]) -> None:
        """Take one step down the gradient of the critic's loss, which reaches nothing else."""
        parameters = self.optimizer.param_groups[0]["params"]
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.grad = gradient
        self.optimizer.step()

    def get_extra_state(self) -> dict[str, Any]:
        """Return the part of the state that is no tensor of a module."""
        return {"optimizer": self.optimizer.state_dict(), "generator": self.generator.get_state()}

    def set_extra_state(self, state: dict[str, Any]) -> None:
        """Load what `get_extra_state` returned."""
        # A copy, since the optimiser would go on in the very tensors that it is given.
        self.optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
        self.generator.set_state(state["generator"].cpu())


def check_beta(beta: float) -> None:
    """Raise ValueError for a weight that no bonus can have."""
    if not 0 <= beta < math.inf:
        raise ValueError(f"beta must be finite and not negative, got {beta}")


def detached(tensor: Tensor) -> Tensor:
    """Return a tensor without its graph; a copy of one made in inference mode, of which no critic could learn."""
    return tensor.detach().clone() if tensor.is_inference() else tensor.detach()


def apply(function: Callable[[Tensor], Any], observations: Observations) -> Any:
    """Return what a function makes of observations, tensor by tensor where they are dictionaries."""
    if isinstance(observations, Mapping):
        return {name: function(each) for name, each in observations.items()}
    return function(observations)


def in_pieces(network: Callable[[Observations], Tensor], observations: Observations) -> Tensor:
    """Return what a network makes of many observations, some at a time: a rollout of images takes much memory."""
    if isinstance(observations, Mapping):
        names, tensors = list(observations), [torch.split(each, PIECE) for each in observations.values()]
        pieces: Any = [dict(zip(names, each, strict=True)) for each in zip(*tensors, strict=True)]
    else:
        pieces = torch.split(observations, PIECE)
    return torch.cat([network(each) for each in pieces])


def joined(first: Observations, second: Observations) -> Any:
    """Return two batches of observations as one, which takes one pass through each network."""
    if isinstance(first, Tensor):
        assert isinstance(second, Tensor)
        return torch.cat((first, second))
    assert isinstance(second, Mapping)
    return {name: torch.cat((each, second[name])) for name, each in first.items()}


def check_rewards(rewards: Tensor, *, valid: Tensor | None = None) -> None:
    """Raise ValueError for rewards of which the critic would learn NaN or infinity."""
    check_numbers("rewards", rewards)
    if checks_run(True, rewards) and rewards.numel() > 0:
        check_all_finite("rewards", rewards if valid is None else rewards.masked_fill(~valid, 0))


def check_targets(targets: Tensor) -> None:
    """Raise ValueError for targets that would end the critic; the rewards are known to be finite."""
    if checks_run(True, targets):
        check_all_finite("the extrinsic critic's targets, of rewards and observations,", targets)


def check_shaped(
    leading: tuple[int, ...], observations: Observations, next_observations: Observations, **others: Tensor | None
) -> None:
    """Raise ValueError for what is not of as many transitions as the rewards: [steps, environments], or [n]."""
    named = dict(others)
    for name, given in (("observations", observations), ("next_observations", next_observations)):
        parts = given.items() if isinstance(given, Mapping) else [("", given)]
        named |= {f"{name}[{key!r}]" if key else name: each for key, each in parts}
    for name, each in named.items():
        if each is not None and tuple(each.shape[: len(leading)]) != leading:
            raise ValueError(f"{name} must begin with the shape of the rewards, {leading}, got {tuple(each.shape)}")
    shapes, next_shapes = (apply(lambda each: tuple(each.shape), each) for each in (observations, next_observations))
    if shapes != next_shapes:
        raise ValueError(f"next_observations of shape {next_shapes} are none of observations of shape {shapes}")


def explained_variance(estimates: Float[Tensor, " n"], returns: Float[Tensor, " n"]) -> Float[Tensor, ""]:
    """Return 1 − Var(returns − estimates) / Var(returns): 1 is perfect, 0 is what a constant does."""
    return 1 - (returns - estimates).var(correction=0) / returns.var(correction=0)
