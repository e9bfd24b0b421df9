"""Networks of SAC, for many learners at once: every parameter has a leading axis of networks."""

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from vcse.nets.mlp import StackedMLP
from vcse.nets.stacked import gather_rows, index_of
from vcse.nets.tanh_normal import mean_and_log_std

TWIN = 2


class Actor(nn.Module):
    """A tanh-normal policy for each learner."""

    def __init__(
        self, observation_size: int, action_size: int, hidden_units: int, generators: Sequence[torch.Generator]
    ) -> None:
        super().__init__()
        self.mlp = StackedMLP(observation_size, hidden_units, 2 * action_size, generators)

    def forward(self, observations: Float[Tensor, "l n d"]) -> tuple[Float[Tensor, "l n a"], Float[Tensor, "l n a"]]:
        """Return the mean, before the tanh, and the log standard deviation of actions."""
        return mean_and_log_std(self.mlp(observations))


class TwinCritic(nn.Module):
    """Q_1(s, a) and Q_2(s, a) for each learner, and extrinsic ones for some, as one stack of networks.

    The rows of the stack are, where only the second of two learners has extrinsic critics:
    twins of the first, twins of the second, extrinsic twins of the second.

    Args:
        observation_size: Numbers of an observation.
        action_size: Numbers of an action.
        hidden_units: Of each hidden layer.
        generators: Of the weights, one for each learner.
        with_extrinsic: Learners with extrinsic critics.
    """

    with_extrinsic: Int[Tensor, " v"]

    def __init__(
        self,
        observation_size: int,
        action_size: int,
        hidden_units: int,
        generators: Sequence[torch.Generator],
        with_extrinsic: Int[Tensor, " v"],
    ) -> None:
        super().__init__()
        learners = [*range(len(generators)), *with_extrinsic.tolist()]
        twins = [generators[learner] for learner in learners for _ in range(TWIN)]
        self.mlp = StackedMLP(observation_size + action_size, hidden_units, 1, twins)
        self.register_buffer("with_extrinsic", with_extrinsic, persistent=False)
        self.extrinsic_rows = slice(TWIN * len(generators), None)
        self.rows = slice(TWIN * len(generators))

    def q_values(
        self, observations: Float[Tensor, "l n d"], actions: Float[Tensor, "l n a"], *, detach_parameters: bool = False
    ) -> Float[Tensor, "l 2 n"]:
        """Return both Q values of each learner, without the extrinsic ones."""
        inputs = torch.cat((observations, actions), -1).repeat_interleave(TWIN, 0)
        return _paired(self.mlp(inputs, networks=self.rows, detach_parameters=detach_parameters))

    def extrinsic_q_values(
        self, observations: Float[Tensor, "l n d"], actions: Float[Tensor, "l n a"]
    ) -> Float[Tensor, "v 2 n"]:
        """Return both extrinsic Q values of each learner that has them."""
        inputs = gather_rows(torch.cat((observations, actions), -1), self.with_extrinsic).repeat_interleave(TWIN, 0)
        return _paired(self.mlp(inputs, networks=self.extrinsic_rows))

    def forward(
        self,
        observations: Float[Tensor, "l n d"],
        actions: Float[Tensor, "l n a"],
        extrinsic_actions: Float[Tensor, "l n a"],
    ) -> tuple[Float[Tensor, "l 2 n"], Float[Tensor, "v 2 n"]]:
        """Return the Q values and the extrinsic Q values, each at their own actions."""
        inputs = torch.cat((observations, actions), -1)
        if len(self.with_extrinsic):
            extrinsic = torch.cat((observations, extrinsic_actions), -1)
            inputs = torch.cat((inputs, gather_rows(extrinsic, self.with_extrinsic)))
        networks = TWIN * len(observations), TWIN * len(self.with_extrinsic)
        q_values, extrinsic_q_values = self.mlp(inputs.repeat_interleave(TWIN, 0)).split(networks)
        return _paired(q_values), _paired(extrinsic_q_values)

    def rows_of(self, learner: int) -> list[int]:
        """Return the rows of the stack that belong to a learner."""
        extrinsic = index_of(learner, self.with_extrinsic)
        places = [learner] if extrinsic is None else [learner, self.extrinsic_rows.start // TWIN + extrinsic]
        return [TWIN * place + twin for place in places for twin in range(TWIN)]


def _paired(outputs: Float[Tensor, "networks n 1"]) -> Float[Tensor, "pairs 2 n"]:
    return outputs.view(len(outputs) // TWIN, TWIN, outputs.shape[1])
