"""What is raised where training was asked to stop; in a module of its own, so that catching it imports nothing."""

import signal


class StoppedError(Exception):
    """Training was asked to stop by a signal, and did so after saving, as is told."""

    def __init__(self, number: int, saved: str = "everything is saved") -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}: {saved}")
        self.number, self.saved = number, saved

    def __reduce__(self) -> tuple[type["StoppedError"], tuple[int, str]]:
        """Return what it is pickled by, so that it can be passed between processes."""
        return type(self), (self.number, self.saved)
