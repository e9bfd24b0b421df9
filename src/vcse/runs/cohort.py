"""What a cohort is, whichever agent it trains."""

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Protocol

from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.progress import Status
from vcse.runs.resources import Needs


class Cohort(Protocol):
    """Runs that are trained in lockstep, from their first frame or their last checkpoint to their last frame."""

    @classmethod
    def check(cls, config: RunConfig) -> None:
        """Refuse settings that do not go with the task, before anything is written."""

    @classmethod
    def warning(cls, config: RunConfig) -> str:
        """Say of what can be run why hardly anybody wants it, as nothing is learned; empty where all is well."""

    @classmethod
    def in_common(cls, config: RunConfig) -> tuple[Hashable, ...]:
        """Give what runs must have in common to be trained together, beside what `cohort_key` asks of all agents."""

    @classmethod
    def expected_seconds(cls, config: RunConfig, device: str) -> float:
        """Give about how long a run takes. The point is the order of magnitude."""

    @classmethod
    def needs(cls, config: RunConfig) -> Needs:
        """Give about what a run takes of memory and disk."""

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
        """Say what is known only now and a user should know; nothing where there is nothing to say."""

    def cut(self, states: Sequence[dict[str, Any]]) -> None:
        """Drop what runs wrote after their checkpoints, all at the same frame; without any, all that they wrote."""

    def load(self, states: Sequence[dict[str, Any]]) -> None:
        """Go back to a checkpoint of every run, all at the same frame, none of which is the beginning."""

    def train(self, frames: int, *, report: Callable[[Status], None], should_stop: Callable[[], bool]) -> bool:
        """Go on until every run has had so many frames. False: stopped before, with a checkpoint."""

    def close(self) -> None:
        """End the simulators; training does so by itself."""
