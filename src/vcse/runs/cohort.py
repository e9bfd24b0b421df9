"""What a cohort is, whichever agent it trains: what the loop asks of it."""

from collections.abc import Sequence
from typing import Any, Protocol, runtime_checkable

from vcse.runs.directory import RunDirectory
from vcse.runs.progress import Status


@runtime_checkable
class Cohort(Protocol):
    """Runs that are trained in lockstep. A run's numbers do not depend on the others."""

    directories: list[RunDirectory]
    step_frames: int  # of one step of every run
    timing_every_frames: int  # between rows of timing.csv
    rows_show_evaluations: bool  # train.csv has a row at every evaluation too, which is shown there
    evaluates_at_start: bool  # policies are evaluated before they have learned anything too

    def __init__(
        self,
        directories: Sequence[RunDirectory],
        *,
        device: str = "cpu",
        threads: int = 1,
        replay_place: str | None = None,
    ) -> None:
        """Build all that learns and simulates; without a place for the replay, one is found for this cohort alone."""

    @property
    def frame(self) -> int:
        """Frames that every run has had so far."""

    def describe(self) -> str:
        """Return what a user should know and is known only now; empty if there is nothing."""

    def begin(self) -> None:
        """Begin the first episodes, where no checkpoint is loaded."""

    def step(self) -> None:
        """Act, see what the actions led to, and learn what is due.

        Once there are frames, a step may also learn alone, and have no frames. Then no row, evaluation or checkpoint of
        `checkpoint_every_frames` is due, but the loop reports, can be stopped, and saves what was unsaved for too long:
        as `frame` does not say how far such learning is, the states must.
        """

    def rows(self, *, is_evaluated: bool) -> list[dict[str, Any]]:
        """Return a row of train.csv for every run, all numbers of which are finite."""

    def evaluate(self) -> list[dict[str, Any]]:
        """Play episodes with every policy, and return a row of eval.csv for every run."""

    def states(self) -> list[dict[str, Any]]:
        """Return the checkpoint of every run, once its logs hold what the checkpoint counts on."""

    def cut(self, states: Sequence[dict[str, Any]]) -> None:
        """Drop what runs wrote after their checkpoints, all at the same frame; without any, all that they wrote."""

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        """Go back to a checkpoint of every run, all at the same frame, none of which is the beginning."""

    def status(self, frames: int, frames_per_s: float) -> Status:
        """Return where the cohort is on its way to so many frames."""

    def close(self) -> None:
        """End the simulators."""
