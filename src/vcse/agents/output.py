"""What an update of an agent returns."""

from typing import NamedTuple

from torch import Tensor

from vcse.bonuses.stacked import StackedOutput


class UpdateOutput(NamedTuple):
    """Numbers to log, and the bonus that was paid; both are overwritten by the next update."""

    metrics: dict[str, Tensor]
    bonus: StackedOutput | None  # of the learners that are paid one; None where nobody is
