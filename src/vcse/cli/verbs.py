"""Verbs of a command: which one is meant, how it is called, and how its help is laid out."""

import contextlib
import functools
import inspect
import io
import re
import shutil
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import tyro
from tyro.extras import SubcommandApp

from vcse.cli.wrong_words import arguments_of, repeated_list, wrong_word
from vcse.nearest import did_you_mean

Verb = Callable[..., int]
NamedVerb = tuple[str, str]  # "module:function", and the first line of its docstring
MOST_COLUMNS = 100  # of text, however wide the terminal is


def run_verb(verbs: Mapping[str, Verb | NamedVerb], arguments: list[str], *, prog: str, description: str) -> int:
    """Run the verb that arguments begin with, or tell which there are; give the exit status."""
    name, rest = "".join(arguments[:1]), arguments[1:]
    if name in verbs:  # by itself, so that what it says of a wrong call names its own help
        return _parse(filling_lines(load_verb(verbs[name])), rest, prog=f"{prog} {name}")() or 0
    if name and not name.startswith("-"):
        message = f"unknown command '{prog} {name}'{did_you_mean(name, verbs)}"
        print(f"vcse: {message} ({prog} --help lists all {len(verbs)})", file=sys.stderr)
        raise SystemExit(2)
    if name in ("-h", "--help"):
        print(_help(verbs, prog=prog, description=description))
        raise SystemExit(0)
    app = (
        SubcommandApp()
    )  # for a shell to complete, or for an option in the wrong place: it looks at those of every verb
    for each, verb in verbs.items():
        app.command(name=each)(load_verb(verb))
    return int(app.cli(prog=prog, description=description, args=arguments) or 0)


def _help(verbs: Mapping[str, Verb | NamedVerb], *, prog: str, description: str) -> str:
    """Return a line or two on each of some verbs, which are not imported if they are only named."""
    width, indent = _width(), max(map(len, verbs)) + 4
    lines = [f"usage: {prog} COMMAND [OPTIONS]", "", textwrap.fill(description, width), ""]
    for name, verb in verbs.items():
        line = verb[1] if isinstance(verb, tuple) else first_line(verb)
        lines.append(
            textwrap.fill(line, width, initial_indent=f"  {name}".ljust(indent), subsequent_indent=" " * indent)
        )
    return "\n".join([*lines, "", f"{prog} COMMAND --help explains a command and all its options."])


def _width() -> int:
    return min(shutil.get_terminal_size().columns, MOST_COLUMNS)


def load_verb(verb: Verb | NamedVerb) -> Verb:
    """Import a verb that is only named."""
    if not isinstance(verb, tuple):
        return verb
    module, _, function = verb[0].partition(":")
    loaded: Verb = getattr(import_module(module), function)
    return loaded


def first_line(verb: Verb) -> str:
    """Return the first line of a docstring, which is the help of a verb among others."""
    return (inspect.getdoc(verb) or "").partition("\n")[0]


class _Page(io.StringIO):
    """Keeps what would be printed: with the colours and the letters that are possible there."""

    def __init__(self, stream: Any) -> None:
        super().__init__()
        self.stream = stream

    @property
    def encoding(self) -> Any:  # type: ignore[override]
        """How letters are encoded in the end."""
        return self.stream.encoding

    def isatty(self) -> bool:
        """Return whether it is printed on a terminal in the end."""
        return bool(self.stream.isatty())


def _print_help(verb: Verb, *, prog: str) -> None:
    """Print the help of a verb; tyro leaves the lines above its boxes as long as they are."""
    page = _Page(sys.stdout)
    with contextlib.redirect_stdout(page), contextlib.suppress(SystemExit):
        tyro.cli(verb, prog=prog, args=["--help"])
    for line in page.getvalue().splitlines():
        is_text = line and line[0].isalpha()
        print(textwrap.fill(line, _width(), break_on_hyphens=False) if is_text else line)


def filling_lines(verb: Verb) -> Verb:
    """Reflow the help of a verb, which tyro would break where the source does; "- " begins a new line."""
    text = re.sub(r"\n {8,}(?!- )", " ", inspect.getdoc(verb) or "")
    verb.__doc__ = inspect.unwrap(verb).__doc__ = text  # tyro reads what a decorator is around
    return verb


def _parse(verb: Verb, words: Sequence[str], *, prog: str) -> Callable[[], int]:
    """Return the call of a verb that is asked for; a wrong one is refused in a line if it is known what was meant.

    The caller calls it: tyro would take what a verb prints for its own.
    """

    @functools.wraps(verb)
    def bind(*values: Any, **options: Any) -> Callable[[], int]:
        return functools.partial(verb, *values, **options)

    if "-h" in words or "--help" in words:
        _print_help(verb, prog=prog)
        raise SystemExit(0)
    given = [word.partition("=")[0] for word in words if word.startswith("--")]
    if len(set(given)) < len(given) and (option := repeated_list(arguments_of(verb), given)):
        print(f"vcse: {option} is given twice: write all behind one, as in {option} A B", file=sys.stderr)
        raise SystemExit(2)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stderr(printed):
            call: Any = tyro.cli(bind, prog=prog, args=words)
    except SystemExit as exit_:
        wrong = wrong_word(arguments_of(verb), words, prog=prog) if exit_.code else ""
        sys.stderr.write(f"vcse: {wrong}\n" if wrong else printed.getvalue())
        raise
    return call  # type: ignore[no-any-return]
