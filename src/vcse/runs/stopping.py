"""What is raised where training was asked to stop; in a module of its own, so that catching it imports nothing."""

import signal


class StoppedError(Exception):
    """Training was asked to stop by a signal, and did so after saving, as is told.

    Args:
        number: Of the signal.
        saved: What is saved.
        resume: The command that continues all runs, if there is one besides the command that was stopped.
    """

    def __init__(self, number: int, saved: str = "everything is saved", resume: str = "") -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}: {saved}")
        self.number, self.saved, self.resume = number, saved, resume

    def __reduce__(self) -> tuple[type["StoppedError"], tuple[int, str, str]]:
        """Return what it is pickled by, so that it can be passed between processes."""
        return type(self), (self.number, self.saved, self.resume)
