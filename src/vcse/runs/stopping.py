"""What is raised where training was asked to stop; in a module of its own, so that catching it imports nothing."""

import signal


class StoppedError(Exception):
    """Training was asked to stop, and did so with everything saved."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}, everything is saved")
        self.number = number

    def __reduce__(self) -> tuple[type["StoppedError"], tuple[int]]:
        """Return what it is pickled by, so that it can be passed between processes."""
        return type(self), (self.number,)
