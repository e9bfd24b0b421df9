"""Work that a GPU does at the same time as other work."""

import torch


class SideStream:
    """Operations inside this context run at the same time as those after it, until they are waited for.

    On a GPU they have a stream of their own; elsewhere they simply run. Tensors that go in or come out must live until
    `wait`.
    """

    def __init__(self, device: torch.device) -> None:
        self._stream = torch.cuda.Stream(device) if device.type == "cuda" else None  # type: ignore[no-untyped-call]
        self._before: torch.cuda.Stream | None = None

    def __enter__(self) -> None:
        """Begin once the operations queued so far are done."""
        if self._stream is not None:
            self._before = torch.cuda.current_stream(self._stream.device)
            self._stream.wait_stream(self._before)
            torch.cuda.set_stream(self._stream)

    def __exit__(self, *raised: object) -> None:
        """Return to the previous stream."""
        if self._before is not None:
            torch.cuda.set_stream(self._before)

    @property
    def is_busy(self) -> bool:
        """Whether operations are running now; never where there is no stream of their own."""
        return self._stream is not None and not self._stream.query()

    def wait(self) -> None:
        """Make the operations that follow wait for those of the side stream."""
        if self._stream is not None:
            torch.cuda.current_stream(self._stream.device).wait_stream(self._stream)
