"""Latent dynamics with categorical states: the recurrent state-space model of DreamerV2 (Hafner et al., ICLR 2021)."""

from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import elu, linear, pad

from vcse.nets import initializers
from vcse.nets.precision import at_least_float32

GRU_NORM_EPSILON = 1e-3
UPDATE_BIAS = -1.0


class State(NamedTuple):
    """A latent state. All of it is float32, also under `torch.autocast`."""

    deterministic: Float[Tensor, "*b d"]  # of the GRU
    stochastic: Float[Tensor, "*b v c"]  # one-hot samples
    logits: Float[Tensor, "*b v c"]  # that they were sampled from

    @property
    def features(self) -> Float[Tensor, "*b f"]:
        """Return what a network reads of the state: the stochastic part, then the deterministic."""
        return torch.cat((self.stochastic.flatten(-2), self.deterministic), -1)


class RSSM(nn.Module):
    """A GRU whose inputs are a sample of categorical variables and an action.

    From its state, the prior predicts the next sample, and the posterior infers it with the help of an observation.

    Args:
        action_size: Numbers of an action.
        embedding: Numbers that an observation is embedded in.
        generator: Source of the weights.
        deterministic: Numbers of the GRU's state.
        hidden: Units of the layers between.
        variables: Categorical variables of a sample.
        classes: Classes of each.
        action_inputs: Numbers that an action is padded to with zeros, if it has fewer.
    """

    def __init__(
        self,
        action_size: int,
        embedding: int,
        generator: torch.Generator,
        *,
        deterministic: int = 1024,
        hidden: int = 1024,
        variables: int = 32,
        classes: int = 32,
        action_inputs: int = 50,
    ) -> None:
        super().__init__()
        self.deterministic, self.variables, self.classes = deterministic, variables, classes
        stochastic = variables * classes
        padded = max(action_inputs, action_size)
        self.padding = padded - action_size
        self.inputs = _SplitLinear(stochastic, padded, hidden, generator)
        self.gru = _NormalizedGRU(hidden, deterministic, generator)
        self.prior_hidden = initializers.linear(deterministic, hidden, generator)
        self.prior_output = initializers.linear(hidden, stochastic, generator)
        self.posterior_hidden = _SplitLinear(deterministic, embedding, hidden, generator)
        self.posterior_output = initializers.linear(hidden, stochastic, generator)

    def initial(self, count: int, device: torch.device | str) -> State:
        """Return states of zeros, as they are before episodes begin."""
        shapes = (self.deterministic,), (self.variables, self.classes), (self.variables, self.classes)
        return State(*(torch.zeros(count, *shape, device=device) for shape in shapes))

    def imagine(self, state: State, actions: Float[Tensor, "n a"], uniforms: Float[Tensor, "n v"]) -> State:
        """Sample the states that follow, from the prior.

        Args:
            state: Where actions are taken.
            actions: One for each state.
            uniforms: Random numbers, one for each variable.
        """
        deterministic = self._advance(state, self._action_part(actions))
        logits = self._prior(deterministic)
        return State(deterministic, straight_through_sample(logits, uniforms), logits)

    def observe(
        self,
        state: State,
        actions: Float[Tensor, "n a"],
        embeddings: Float[Tensor, "n e"],
        is_first: Bool[Tensor, " n"],
        uniforms: Float[Tensor, "n v"],
    ) -> tuple[State, Float[Tensor, "n v c"]]:
        """Sample the states that follow, from the posterior.

        Args:
            state: Where actions were taken.
            actions: What led to the observations.
            embeddings: The observations.
            is_first: Whether an episode begins here, so that the state before and the action count as zeros.
            uniforms: Random numbers, one for each variable.

        Returns:
            The states, and the logits of the prior.
        """
        action_part = self._action_part(actions.masked_fill(is_first[:, None], 0))
        embedding_part = self.posterior_hidden.ahead(embeddings)
        after = self._step(state, action_part, embedding_part, is_first, uniforms)
        return after, self._prior(after.deterministic)

    def observe_sequence(
        self,
        embeddings: Float[Tensor, "b t e"],
        actions: Float[Tensor, "b t a"],
        is_first: Bool[Tensor, "b t"],
        uniforms: Float[Tensor, "b t v"],
    ) -> tuple[State, Float[Tensor, "b t v c"]]:
        """Sample the states of sequences from the posterior, step by step from the initial state.

        Args:
            embeddings: The observations.
            actions: What led to each.
            is_first: Whether an episode begins there.
            uniforms: Random numbers, one for each variable.

        Returns:
            The states of all steps, and the logits of their priors.
        """
        # Products with actions and embeddings do not depend on the state, and no state depends on the prior: each of
        # them is one product for all steps.
        action_parts = self._action_part(actions.masked_fill(is_first[..., None], 0))
        embedding_parts = self.posterior_hidden.ahead(embeddings)
        state = self.initial(len(embeddings), embeddings.device)
        states = []
        for step in zip(*(each.unbind(1) for each in (action_parts, embedding_parts, is_first, uniforms)), strict=True):
            state = self._step(state, *step)
            states.append(state)
        sequence = State(*(torch.stack(each, 1) for each in zip(*states, strict=True)))
        return sequence, self._prior(sequence.deterministic)

    def _step(
        self,
        state: State,
        action_part: Float[Tensor, "n h"],
        embedding_part: Float[Tensor, "n h"],
        is_first: Bool[Tensor, " n"],
        uniforms: Float[Tensor, "n v"],
    ) -> State:
        before = State(*(each.masked_fill(is_first.view(-1, *(1,) * (each.ndim - 1)), 0) for each in state))
        deterministic = self._advance(before, action_part)
        logits = self._logits(self.posterior_output(elu(self.posterior_hidden(deterministic, embedding_part))))
        return State(deterministic, straight_through_sample(logits, uniforms), logits)

    def _advance(self, state: State, action_part: Float[Tensor, "n h"]) -> Float[Tensor, "n d"]:
        inputs = self.inputs(state.stochastic.flatten(-2), action_part)
        deterministic: Tensor = self.gru(inputs, state.deterministic)
        return deterministic

    def _action_part(self, actions: Float[Tensor, "*b a"]) -> Float[Tensor, "*b h"]:
        return self.inputs.ahead(pad(actions, (0, self.padding)))

    def _prior(self, deterministic: Float[Tensor, "*b d"]) -> Float[Tensor, "*b v c"]:
        return self._logits(self.prior_output(elu(self.prior_hidden(deterministic))))

    def _logits(self, outputs: Float[Tensor, "*b o"]) -> Float[Tensor, "*b v c"]:
        return at_least_float32(outputs).reshape(*outputs.shape[:-1], self.variables, self.classes)


class _SplitLinear(nn.Module):
    """A linear layer of two inputs side by side, whose product with the second can be computed ahead."""

    def __init__(self, first: int, second: int, outputs: int, generator: torch.Generator) -> None:
        super().__init__()
        whole = initializers.linear(first + second, outputs, generator)
        assert whole.bias is not None
        self.first_weight = nn.Parameter(whole.weight.detach()[:, :first].contiguous())
        self.second_weight = nn.Parameter(whole.weight.detach()[:, first:].contiguous())
        self.bias = whole.bias

    def ahead(self, second: Float[Tensor, "*b s"]) -> Float[Tensor, "*b o"]:
        return linear(second, self.second_weight, self.bias)

    def forward(self, first: Float[Tensor, "*b f"], ahead: Float[Tensor, "*b o"]) -> Float[Tensor, "*b o"]:
        return linear(first, self.first_weight) + ahead


class _NormalizedGRU(nn.Module):
    """A GRU with one layer norm over all gates, whose reset gate acts on the candidate."""

    def __init__(self, inputs: int, size: int, generator: torch.Generator) -> None:
        super().__init__()
        self.gates = initializers.linear(inputs + size, 3 * size, generator)
        self.norm = nn.LayerNorm(3 * size, GRU_NORM_EPSILON)

    def forward(self, inputs: Float[Tensor, "n i"], state: Float[Tensor, "n d"]) -> Float[Tensor, "n d"]:
        gates = at_least_float32(self.gates(torch.cat((inputs, state), -1)))
        reset, candidate, update = self.norm(gates).chunk(3, -1)
        candidate = (reset.sigmoid() * candidate).tanh()
        following: Tensor = torch.lerp(state, candidate, (update + UPDATE_BIAS).sigmoid())
        return following


def straight_through_sample(
    logits: Float[Tensor, "*b v c"], uniforms: Float[Tensor, "*b v"]
) -> Float[Tensor, "*b v c"]:
    """Sample categorical variables by the inverse of their distribution functions, as one-hot vectors.

    Their gradient is that of the probabilities.

    Args:
        logits: Of the classes of each variable.
        uniforms: Random numbers in [0, 1), one for each variable.
    """
    probabilities = at_least_float32(logits).softmax(-1)
    with torch.no_grad():
        reached = probabilities.cumsum(-1)
        # All probabilities may add up to less than a uniform. The last class that has any is sampled then.
        passed = (reached <= uniforms[..., None]) & (reached < reached[..., -1:])
        sampled = passed.sum(-1, keepdim=True)
        one_hot = (torch.arange(logits.shape[-1], device=logits.device) == sampled).to(probabilities.dtype)
    return one_hot + (probabilities - probabilities.detach())


def kl_divergence(posterior: Float[Tensor, "*b v c"], prior: Float[Tensor, "*b v c"]) -> Float[Tensor, "*b"]:
    """Compute the divergence of posterior from prior, in nats, summed over variables. Both are logits."""
    posterior_log = at_least_float32(posterior).log_softmax(-1)
    prior_log = at_least_float32(prior).log_softmax(-1)
    return (posterior_log.exp() * (posterior_log - prior_log)).sum((-2, -1))


def kl_loss(
    posterior: Float[Tensor, "*b v c"],
    prior: Float[Tensor, "*b v c"],
    *,
    balance: float = 0.8,
    scale: float = 1.0,
    least: float = 0.01,
    most: float = 100.0,
) -> Float[Tensor, ""]:
    """Return the divergence of posterior from prior, whose gradient moves the prior more than the posterior.

    Args:
        posterior: Logits.
        prior: Logits.
        balance: Part of the gradient that moves the prior.
        scale: Factor of the divergence, before it is clipped.
        least: Nats to which the scaled divergence of a step is clipped; it has no gradient below.
        most: Nats to which it is clipped; it has no gradient above.
    """
    of_prior = kl_divergence(posterior.detach(), prior)
    of_posterior = kl_divergence(posterior, prior.detach())
    return (scale * (balance * of_prior + (1 - balance) * of_posterior)).clamp(least, most).mean()
