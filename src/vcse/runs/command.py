"""The `vcse` command that this process executes, which runs note in `meta.json`; none where Python code trains."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

# Verbs that begin runs, or make them longer. Earlier releases noted the arguments of any script that trained.
TRAINING_VERBS = ("train", "resume", "study")

_arguments: ContextVar[list[str] | None] = ContextVar("_arguments", default=None)


@contextmanager
def executing(arguments: Sequence[str] | None) -> Iterator[None]:
    """Note the arguments of the command that is executed meanwhile; None for no command."""
    token = _arguments.set(None if arguments is None else list(arguments))
    try:
        yield
    finally:
        _arguments.reset(token)


def current_command() -> list[str] | None:
    """Return the arguments of the command that is being executed; None where there is none."""
    return _arguments.get()
