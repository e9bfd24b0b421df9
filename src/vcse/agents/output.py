"""What an update of an agent returns."""

from typing import NamedTuple

from torch import Tensor

from vcse.bonuses.stacked import StackedOutput


class UpdateOutput(NamedTuple):
    """Numbers to log, and the bonus of the batch; both are overwritten by the next update."""

    metrics: dict[str, Tensor]
    bonus: StackedOutput | None  # of the learners that have one; None if none has
