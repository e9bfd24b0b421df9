"""Small networks of the bonuses that learn: all parameters of a learner in one row, and Adam's averages in others.

On a CPU learners are computed one after the other, each in memory of its own: BLAS sums in another order for a stack of
another size, and by where in memory a product begins, so that nothing else has the same bits however many there are. On
a GPU a layer of all learners is one product.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Float, Shaped
from torch import Tensor, nn

from vcse.bonuses.normalizers import learner_shape
from vcse.estimators.checks import whole_number

Pieces = Mapping[str, Float[Tensor, "l ..."]]  # weights and biases by name, each with the learner axis first
Activation = Callable[[Tensor], Tensor]
# Of each learner's parameters and rows: what is minimised, and the numbers to log.
Loss = Callable[..., tuple[Float[Tensor, " l"], Float[Tensor, "l m"]]]

GAIN = math.sqrt(2)  # of orthogonal weights before rectified units
AVERAGED, AVERAGED_SQUARES, EPSILON = 0.9, 0.999, 1e-8  # of Adam
ALIGNMENT = 64  # bytes, of all memory that PyTorch allocates


def generators_of(seed: int | Sequence[int], learners: int | None) -> list[torch.Generator]:
    """Return a generator for each learner: one seed makes them all alike.

    Args:
        seed: One for all learners, or one for each.
        learners: How many there are; None is one.
    """
    (count,) = learner_shape(learners) or (1,)
    seeds = [seed] * count if isinstance(seed, int) else list(seed)
    if len(seeds) != count:
        raise ValueError(f"seed must be one number, or one for each of learners={learners}, got {len(seeds)}")
    return [torch.Generator().manual_seed(each) for each in seeds]


class NetworkRows(nn.Module):
    """Networks that stay as they are.

    Args:
        sizes: Of the layers of each network, from inputs to outputs, by its name.
        generators: One per learner.
        learners: The size of the leading learner axis, or None where there is none.
    """

    rows: Float[Tensor, "*learners p"]

    def __init__(
        self, sizes: Mapping[str, Sequence[int]], generators: Sequence[torch.Generator], learners: int | None
    ) -> None:
        super().__init__()
        self.shapes: dict[str, tuple[int, ...]] = {}
        for name, units in sizes.items():
            for number, (before, after) in enumerate(pairwise(units)):
                self.shapes |= {f"{name}.{number}.weight": (before, after), f"{name}.{number}.bias": (after,)}
        rows = torch.stack([self._initial(generator) for generator in generators])
        self.register_buffer("rows", rows.view(*learner_shape(learners), -1))

    def _initial(self, generator: torch.Generator) -> Float[Tensor, " p"]:
        """Sample orthogonal weights; biases begin at 0."""
        parts = []
        for shape in self.shapes.values():
            if len(shape) == 1:
                parts.append(torch.zeros(shape))
            else:
                weight = nn.init.orthogonal_(torch.empty(shape[::-1]), gain=GAIN, generator=generator)
                parts.append(weight.T.flatten())
        return torch.cat(parts)

    @property
    def stack(self) -> Float[Tensor, "l p"]:
        """The parameters, with a learner axis even where there is none."""
        return self.rows.view(-1, self.rows.shape[-1])

    def pieces(self, rows: Float[Tensor, "l p"]) -> dict[str, Float[Tensor, "l ..."]]:
        """Return the parameters in rows by their names."""
        parts = torch.split(rows, [math.prod(shape) for shape in self.shapes.values()], dim=1)
        named = zip(self.shapes.items(), parts, strict=True)
        return {name: part.view(len(rows), *shape) for (name, shape), part in named}


@dataclass(frozen=True)
class Adam:
    """How networks learn from a batch."""

    learning_rate: float
    epochs: int  # how often they see it
    minibatches: int  # its parts, each of which makes a step

    def __post_init__(self) -> None:
        if not 0 < self.learning_rate < math.inf:
            raise ValueError(f"learning_rate must be finite and above 0, got {self.learning_rate}")
        whole_number("epochs", self.epochs, least=1)
        whole_number("minibatches", self.minibatches, least=1)


class LearnedRows(NetworkRows):
    """Networks that learn by Adam.

    Args:
        sizes: Of the layers of each network, from inputs to outputs, by its name.
        generators: One per learner.
        learners: The size of the leading learner axis, or None where there is none.
        adam: How they learn.
    """

    averages: Float[Tensor, "*learners p"]
    squares: Float[Tensor, "*learners p"]
    steps: Float[Tensor, "*learners"]

    def __init__(
        self,
        sizes: Mapping[str, Sequence[int]],
        generators: Sequence[torch.Generator],
        learners: int | None,
        adam: Adam,
    ) -> None:
        super().__init__(sizes, generators, learners)
        self.adam = adam
        self.register_buffer("averages", torch.zeros_like(self.rows))
        self.register_buffer("squares", torch.zeros_like(self.rows))
        self.register_buffer("steps", torch.zeros(self.rows.shape[:-1], dtype=torch.float64))

    def fit(self, loss: Loss, *batch: Shaped[Tensor, "l n ..."]) -> Float[Tensor, "l m"]:
        """Take steps down the gradient of a loss, and return the mean of the numbers to log.

        Minibatches take every so many-th row, so that each has some of every environment and of every time.

        Args:
            loss: Called with `pieces` and the rows of a minibatch.
            batch: With the learner axis first.
        """
        parts = min(self.adam.minibatches, batch[0].shape[1])
        shown = [
            self._descend(loss, *(each[:, part::parts] for each in batch))
            for _ in range(self.adam.epochs)
            for part in range(parts)
        ]
        return sum(shown[1:], shown[0]) / len(shown)

    def _descend(self, loss: Loss, *batch: Shaped[Tensor, "l n ..."]) -> Float[Tensor, "l m"]:
        shown = []
        for mine in shares(self.stack):
            rows = own(self.stack[mine]).detach().requires_grad_()
            with torch.enable_grad():
                losses, numbers = loss(self.pieces(rows), *(own(each[mine]) for each in batch))
                (gradient,) = torch.autograd.grad(losses.sum(), rows)
            self._adam_step(mine, gradient)
            shown.append(numbers.detach())
        return torch.cat(shown)

    @torch.no_grad()
    def _adam_step(self, mine: slice, gradient: Float[Tensor, "l p"]) -> None:
        """Take one step of some learners (Kingma and Ba 2015)."""
        averages, squares = (each.view(-1, each.shape[-1])[mine] for each in (self.averages, self.squares))
        steps = self.steps.view(-1, 1)[mine].add_(1)
        averages.lerp_(gradient, 1 - AVERAGED)
        squares.mul_(AVERAGED_SQUARES).addcmul_(gradient, gradient, value=1 - AVERAGED_SQUARES)
        rate = (self.adam.learning_rate / (1 - AVERAGED**steps)).float()
        spread = (squares / (1 - AVERAGED_SQUARES**steps).float()).sqrt().add_(EPSILON)
        self.stack[mine].sub_(rate * averages / spread)


def shares(stack: Shaped[Tensor, "l ..."]) -> Iterator[slice]:
    """Return which learners are computed at once: all on a GPU, one after the other on a CPU."""
    if stack.is_cuda:
        yield slice(None)
    else:
        yield from (slice(learner, learner + 1) for learner in range(len(stack)))


def in_shares(
    function: Callable[..., Shaped[Tensor, "l ..."]], *stacks: Shaped[Tensor, "l ..."]
) -> Shaped[Tensor, "l ..."]:
    """Return what a function makes of some learners' rows, put together for all of them."""
    found = [function(*(own(each[mine]) for each in stacks)) for mine in shares(stacks[0])]
    return torch.cat(found) if len(found) > 1 else found[0]


def own(share: Shaped[Tensor, "l ..."]) -> Shaped[Tensor, "l ..."]:
    """Return some learners' rows where memory of their own would begin: as they are, or copied."""
    return share if share.is_contiguous() and share.data_ptr() % ALIGNMENT == 0 else share.clone()


def applied(
    pieces: Pieces, name: str, inputs: Float[Tensor, "l n i"], activations: Sequence[Activation | None]
) -> Float[Tensor, "l n o"]:
    """Apply each learner's own network to its own inputs.

    Args:
        pieces: The parameters.
        name: Of the network.
        inputs: Of its first layer.
        activations: After each layer; None after those that are linear.
    """
    hidden = inputs
    for number, activation in enumerate(activations):
        bias, weight = pieces[f"{name}.{number}.bias"], pieces[f"{name}.{number}.weight"]
        hidden = torch.baddbmm(bias.unsqueeze(1), hidden, weight)
        hidden = hidden if activation is None else activation(hidden)
    return hidden
