"""The `vcse` command: which verbs there are, and how it fails."""

import os
import select
import signal
import sys
from collections.abc import Sequence

from vcse import __version__
from vcse.cli.verbs import NamedVerb, run_verb
from vcse.runs.command import executing
from vcse.runs.stopping import StoppedError

# Where each verb is, and the first line of its docstring; its module is imported once it is asked for.
VERBS: dict[str, NamedVerb] = {
    "train": (
        "vcse.cli.train:train",
        "Train every task with every bonus and every seed. Unfinished runs are resumed, finished ones skipped.",
    ),
    "resume": (
        "vcse.cli.train:resume",
        "Resume every unfinished run below a directory. One that cannot be read is skipped, with exit status 1.",
    ),
    "eval": (
        "vcse.cli.evaluate:evaluate_runs",
        "Play episodes with the newest policy of every run, with sampled and with greedy actions.",
    ),
    "watch": (
        "vcse.cli.watch:watch",
        "Record a video of the newest policy of a run: watch.gif in its directory, or the file that --out names.",
    ),
    "export": (
        "vcse.cli.export:export",
        "Write the newest policy of a run as a small folder: weights that act, configuration, and a card with scores.",
    ),
    "push": (
        "vcse.cli.export:push",
        "Upload a run's policy, or an exported one, to the Hugging Face Hub, with a card.",
    ),
    "tasks": ("vcse.cli.tasks:tasks", "List the tasks of every family, the agent that each is for, and what it sees."),
    "study": (
        "vcse.cli.study:study",
        "List, show and run studies, the experiments of the paper and ours: vcse study list | show | run | status ...",
    ),
    "report": (
        "vcse.cli.report:report",
        "Write a page about a study, several studies, or any runs: curves, numbers, and a verdict on each claim.",
    ),
    "bench": ("vcse.cli.bench:bench", "Measure speed and memory."),
    "doctor": (
        "vcse.cli.doctor:doctor",
        "Check Python, PyTorch, devices and extras: what is here, what is missing, and the command that installs it.",
    ),
    "selftest": (
        "vcse.cli.selftest:selftest",
        "Check the estimators against closed forms: print bias and spread, and fail outside the tolerance.",
    ),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and give its exit status: 0, 1 where it could not do its work, 2 for what cannot be parsed."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with executing(arguments):
            status = _run(arguments)
        sys.stdout.flush()
    except (ValueError, RuntimeError, OSError) as error:
        if isinstance(error, BrokenPipeError) and _reader_has_left():
            return 128 + signal.SIGPIPE
        print(f"vcse: {_told(error)}", file=sys.stderr)
        return 1
    except StoppedError as error:
        resume = f", or {error.resume}" if error.resume else ""
        print(f"vcse: {error}; to continue, run the same command again{resume}", file=sys.stderr)
        return 128 + error.number
    except KeyboardInterrupt:
        print("vcse: interrupted", file=sys.stderr)
        return 130
    return status


def _told(error: Exception) -> str:
    """Return what an error says; of a file, without the number that the system has for it."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)


def _run(arguments: list[str]) -> int:
    if arguments == ["--version"]:
        print(f"vcse {__version__}")
        return 0
    if arguments[:1] == ["study"]:  # which has verbs of its own
        from vcse.cli.study import run_study_command

        return run_study_command(arguments[1:])
    description = "Value-conditional state entropy exploration. vcse --version prints the version."
    return run_verb(VERBS, arguments or ["--help"], prog="vcse", description=description)


def _reader_has_left() -> bool:
    """Whether nobody reads what is printed any more, as after `vcse tasks | head`; what is left goes nowhere then."""
    asked = select.poll()
    asked.register(sys.stdout.fileno(), 0)  # that the other end is closed is told in any case
    if not asked.poll(0):
        return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return True
