"""Verbs of a command: which one is meant, and how their help is laid out."""

import inspect
import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module

import tyro
from tyro.extras import SubcommandApp

from vcse.nearest import did_you_mean

Verb = Callable[..., int]
NamedVerb = tuple[str, str]  # "module:function", and the first line of its docstring


def run_verb(verbs: Mapping[str, Verb | NamedVerb], arguments: list[str], *, prog: str, description: str) -> int:
    """Run the verb that arguments begin with, or tell which there are; give the exit status."""
    name, rest = "".join(arguments[:1]), arguments[1:]
    # Of other options the last counts, as is usual; but people add to this one.
    if sum(each.partition("=")[0] == "--set" for each in rest) > 1:
        print("vcse: --set is given twice: write all that it sets behind one, as in --set A=1 B=2", file=sys.stderr)
        raise SystemExit(2)
    if name in verbs:  # by itself, so that what it says of a wrong call names its own help
        return int(tyro.cli(filling_lines(load_verb(verbs[name])), prog=f"{prog} {name}", args=rest) or 0)
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
