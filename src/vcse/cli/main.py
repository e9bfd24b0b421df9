"""The `vcse` command: which verbs there are, and how it fails."""

import os
import select
import signal
import sys
from collections.abc import Sequence

from vcse import __version__
from vcse.cli.bench import bench
from vcse.cli.doctor import doctor
from vcse.cli.evaluate import evaluate_runs
from vcse.cli.report import report
from vcse.cli.selftest import selftest
from vcse.cli.study import run_study_command, study
from vcse.cli.tasks import tasks
from vcse.cli.train import resume, train
from vcse.cli.verbs import Verb, run_verb
from vcse.cli.watch import watch
from vcse.launch.cohorts import StoppedError

VERBS: dict[str, Verb] = {
    "train": train,
    "resume": resume,
    "eval": evaluate_runs,
    "watch": watch,
    "tasks": tasks,
    "study": study,
    "report": report,
    "bench": bench,
    "doctor": doctor,
    "selftest": selftest,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give its exit status: 0, 1 where it could not do its work, 2 for what cannot be parsed."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        status = _run(arguments)
        sys.stdout.flush()
    except (ValueError, RuntimeError, OSError) as error:
        if isinstance(error, BrokenPipeError) and _reader_has_left():
            return 128 + signal.SIGPIPE
        print(f"vcse: {_told(error)}", file=sys.stderr)
        return 1
    except StoppedError as error:
        print(f"vcse: {error}; the same command, or vcse resume, goes on", file=sys.stderr)
        return 128 + error.number
    except KeyboardInterrupt:
        print("vcse: interrupted", file=sys.stderr)
        return 130
    return status


def _told(error: Exception) -> str:
    """Give what an error says; of a file, without the number that the system has for it."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(f"vcse {__version__}")
        return 0
    if arguments[:1] == ["study"]:  # which has verbs of its own
        return run_study_command(arguments[1:])
    description = "Value-conditional state entropy exploration. vcse --version prints the version."
    return run_verb(VERBS, arguments, prog="vcse", description=description)


def _reader_has_left() -> bool:
    """Whether nobody reads what is printed any more, as after `vcse tasks | head`; what is left goes nowhere then."""
    asked = select.poll()
    asked.register(sys.stdout.fileno(), 0)  # that the other end is closed is told in any case
    if not asked.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
