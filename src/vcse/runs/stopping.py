"""What is raised where training was asked to stop; by itself, so that whoever catches it loads nothing else."""

import signal


class StoppedError(Exception):
    """Training was asked to stop, and did so with everything saved."""

    def __init__(self, number: int) -> None:
        super().__init__(f"stopped by {signal.Signals(number).name}, everything is saved")
        self.number = number

    def __reduce__(self) -> tuple[type["StoppedError"], tuple[int]]:
        """Return what it is pickled by, so that it can be passed between processes."""
        return type(self), (self.number,)
