"""Verbs of a command: which one is meant, how it is called, and how its help is laid out."""

import contextlib
import functools
import inspect
import io
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

import tyro
from tyro.extras import SubcommandApp

from vcse.cli.wrong_words import arguments_of, repeated_list, wrong_word
from vcse.nearest import did_you_mean

Verb = Callable[..., int]
NamedVerb = tuple[str, str]  # "module:function", and the first line of its docstring


def run_verb(verbs: Mapping[str, Verb | NamedVerb], arguments: list[str], *, prog: str, description: str) -> int:
    """Run the verb that arguments begin with, or tell which there are; give the exit status."""
    name, rest = "".join(arguments[:1]), arguments[1:]
    if name in verbs:  # by itself, so that what it says of a wrong call names its own help
        return _parse(filling_lines(load_verb(verbs[name])), rest, prog=f"{prog} {name}")() or 0
    if name and not name.startswith("-"):
        message = f"unknown command '{prog} {name}'{did_you_mean(name, verbs)}"
        print(f"vcse: {message} ({prog} --help lists all {len(verbs)})", file=sys.stderr)
        raise SystemExit(2)
    app = SubcommandApp()
    # Where an option comes first, in the wrong place or for a shell to complete, tyro looks at those of every verb.
    needs_options = name.startswith("-") and name not in ("-h", "--help")
    for each, verb in verbs.items():
        line = verb[1] if isinstance(verb, tuple) else first_line(verb)
        app.command(name=each, help=line)(load_verb(verb) if needs_options else _stand_in)
    return int(app.cli(prog=prog, description=description, args=arguments) or 0)


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


def _stand_in() -> int:
    """Stand for a verb of which nothing but its name and its first line is told."""
    return 0


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
