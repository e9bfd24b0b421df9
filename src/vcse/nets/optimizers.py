"""Adam, as the agents with large networks use it, and RMSprop of a stack of small ones."""

from collections.abc import Iterable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor

ADAM_AVERAGES = 2  # that the optimiser keeps of each parameter


def make_adam(
    parameters: Iterable[Tensor], rate: float, device: torch.device, *, epsilon: float = 1e-8
) -> torch.optim.Adam:
    """Make an optimiser; on CUDA one whose step is a few kernels, and can be captured."""
    on_cuda = device.type == "cuda"
    return torch.optim.Adam(list(parameters), lr=rate, eps=epsilon, foreach=False, fused=on_cuda, capturable=on_cuda)


def parameters_of(*modules: torch.nn.Module | None) -> list[Tensor]:
    """Return the parameters of those modules that are not None."""
    return [parameter for module in modules if module is not None for parameter in module.parameters()]


def set_rate(adam: torch.optim.Adam, rate: float) -> None:
    """Set the learning rate; on CUDA in memory that a captured step reads, where it was set before the capture."""
    for group in adam.param_groups:
        if not adam.defaults["capturable"]:
            group["lr"] = rate
        elif isinstance(group["lr"], Tensor):
            group["lr"].fill_(rate)
        else:
            group["lr"] = torch.tensor(rate, device=group["params"][0].device)


def adam_state(adam: torch.optim.Adam, parameter: Tensor) -> dict[str, Tensor]:
    """Return the optimiser's averages for a parameter, which begin at 0 and otherwise come with the first step."""
    state: dict[str, Tensor] = adam.state[parameter]
    if not state:
        on_device = adam.defaults["capturable"]
        state["step"] = torch.zeros((), device=parameter.device if on_device else "cpu")
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
    return state


def adam_tensors(adam: torch.optim.Adam, name: str) -> dict[str, list[Tensor]]:
    """Return the parameters of an optimiser under a name, and its averages under names that begin with it."""
    parameters = [each for group in adam.param_groups for each in group["params"]]
    averages = ("exp_avg", "exp_avg_sq")
    return {name: parameters} | {
        f"{name}.{key}": [adam_state(adam, each)[key] for each in parameters] for key in averages
    }


def set_adam_steps(adam: torch.optim.Adam, steps: int) -> None:
    """Set how many steps an optimiser has taken."""
    for state in adam.state.values():
        state["step"].fill_(steps)


def gradient_step(loss: Float[Tensor, ""], *optimizers: torch.optim.Optimizer) -> None:
    """Take a step of some optimisers down the gradient of a loss; no other gradient is computed."""
    _set_gradients(loss, optimizers)
    for optimizer in optimizers:
        optimizer.step()


def clipped_gradient_step(
    loss: Float[Tensor, ""], adam: torch.optim.Adam, *, most_norm: float, decay: float, decayed: Sequence[Tensor]
) -> None:
    """Take a step down the gradient of a loss, clipped by its norm, with weight decay.

    Args:
        loss: A scalar.
        adam: The optimiser, with all its parameters.
        most_norm: Norm of the gradient of all parameters together, above which it is scaled down.
        decay: Share of themselves that some parameters lose before the step, whatever the learning rate.
        decayed: These parameters.
    """
    parameters = _set_gradients(loss, [adam])
    torch.nn.utils.clip_grad_norm_(parameters, most_norm)
    with torch.no_grad():
        torch._foreach_mul_(list(decayed), 1 - decay)
    adam.step()


def _set_gradients(loss: Float[Tensor, ""], optimizers: Sequence[torch.optim.Optimizer]) -> list[Tensor]:
    """Compute the gradient for the parameters of some optimisers, and return these."""
    parameters = [each for optimizer in optimizers for group in optimizer.param_groups for each in group["params"]]
    for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
        parameter.grad = gradient
    return parameters


def rmsprop_step(
    parameters: Float[Tensor, "m p"],
    squares: Float[Tensor, "m p"],
    gradient: Float[Tensor, "m p"],
    *,
    rate: Float[Tensor, "m 1"],
    decay: Float[Tensor, "m 1"],
    epsilon: Float[Tensor, "m 1"],
) -> None:
    """Take one step of RMSprop down each learner's own gradient, which is overwritten.

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
