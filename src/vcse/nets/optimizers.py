"""Adam, as the agents with large networks use it, and RMSprop of a stack of small ones."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

from vcse.nets.stacked import Stack

ADAM_AVERAGES = 2  # that the optimiser keeps of each parameter


def make_adam(parameters: Iterable[Tensor], rate: float, device: torch.device) -> torch.optim.Adam:
    """Make an optimiser; on CUDA one whose step is a few kernels, and can be captured."""
    on_cuda = device.type == "cuda"
    return torch.optim.Adam(list(parameters), lr=rate, foreach=False, fused=on_cuda, capturable=on_cuda)


def adam_state(adam: torch.optim.Adam, parameter: Tensor) -> dict[str, Tensor]:
    """Return the optimiser's averages for a parameter, which begin at 0 and otherwise come with the first step."""
    state: dict[str, Tensor] = adam.state[parameter]
    if not state:
        on_device = adam.defaults["capturable"]
        state["step"] = torch.zeros((), device=parameter.device if on_device else "cpu")
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
    return state


def descend(loss: Float[Tensor, ""], optimizers: Sequence[torch.optim.Optimizer]) -> None:
    """Take a step of some optimisers down the gradient of a loss, and touch nothing else."""
    parameters = [each for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]]
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    for optimizer in optimizers:
        optimizer.step()


def rms_step(
    parameters: Stack,
    squares: Stack,
    gradient: Stack,
    *,
    rate: Float[Tensor, "m 1"],
    decay: Float[Tensor, "m 1"],
    epsilon: Float[Tensor, "m 1"],
) -> None:
    """Take one step of RMSprop down each learner's own gradient, which is used up.

    Args:
        parameters: A row per learner.
        squares: The running averages of squared gradients.
        gradient: Of the parameters.
        rate: The learning rate of each learner, and likewise below.
        decay: Of the average.
        epsilon: What is added to its root.
    """
    squares.mul_(decay).addcmul_(gradient, gradient * (1 - decay))
    parameters.sub_(rate * gradient / squares.sqrt().add_(epsilon))
