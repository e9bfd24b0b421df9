"""Adam, as the agents with large networks use it, and its state by parameter."""

from collections.abc import Iterable

import torch
from torch import Tensor

ADAM_AVERAGES = 2  # that the optimiser keeps of each parameter


def make_adam(parameters: Iterable[Tensor], rate: float, device: torch.device) -> torch.optim.Adam:
    """Make an optimiser; on CUDA one whose step is a few kernels, and can be captured."""
    on_cuda = device.type == "cuda"
    return torch.optim.Adam(list(parameters), lr=rate, foreach=False, fused=on_cuda, capturable=on_cuda)


def adam_state(adam: torch.optim.Adam, parameter: Tensor) -> dict[str, Tensor]:
    """Give the optimiser's averages for a parameter, which begin at 0 and otherwise come with the first step."""
    state: dict[str, Tensor] = adam.state[parameter]
    if not state:
        on_device = adam.defaults["capturable"]
        state["step"] = torch.zeros((), device=parameter.device if on_device else "cpu")
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
    return state
