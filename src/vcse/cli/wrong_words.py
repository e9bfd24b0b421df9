"""What is said of a word on a command line that the parser does not know: which one it is, and what may be meant."""

import difflib
import re
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import tyro

MOST_MEANT = 3  # options that are named in the place of a wrong one
LEAST_ALIKE = 0.75  # of two names, 1 being the same


class Argument(NamedTuple):
    """An argument of a verb, as its parser has it."""

    options: Sequence[str]  # how it is written; none where its place says which it is
    metavar: str
    help: str
    most_words: float
    is_required: bool


def arguments_of(verb: Callable[..., int]) -> list[Argument]:
    """Return all arguments of a verb."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of get_parser, for which there is no substitute
        actions = tyro.extras.get_parser(verb)._actions
    return [
        Argument(
            each.option_strings,
            str(each.metavar),
            str(each.help),
            each.nargs if isinstance(each.nargs, int) else float("inf"),
            each.required,
        )
        for each in actions
    ]


def repeated_list(arguments: Iterable[Argument], given: Sequence[str]) -> str:
    """Return an option that is given more than once and takes several words: people would add to it by the second.

    Of other options the last counts, as is usual.
    """
    lists = [option for argument in arguments if argument.most_words > 1 for option in argument.options]
    return next((option for option in lists if given.count(option) > 1), "")


def wrong_word(arguments: Sequence[Argument], words: Iterable[str], *, prog: str) -> str:
    """Return which option is unknown or which word one too many, and what may have been meant; empty if none is."""
    known = {option: argument for argument in arguments for option in argument.options}
    places = [argument for argument in arguments if not argument.options]
    given: list[Argument] = []
    unknown = ""
    free: list[str] = []  # words that belong to no option
    taking = 0.0  # words that the last option still takes
    for word in words:
        name, has_value, _ = word.partition("=")
        argument = known.get(name.replace("_", "-"))
        if argument is not None:
            given.append(argument)
            taking = 0 if has_value else argument.most_words
        elif re.match("--?[A-Za-z]", name):
            unknown, taking = unknown or name, float("inf")
        elif taking > 0:
            taking -= 1
        else:
            free.append(word)
    missing = [argument for argument in known.values() if argument.is_required and argument not in given]
    if unknown:
        meant = " or ".join(", ".join(_nearest(unknown, known, missing)).rsplit(", ", 1))
        hint = f"; did you mean {meant}?" if meant else ""
        return f"unknown option '{unknown}' of {prog}{hint} ({prog} --help lists all)"
    if len(free) <= sum(place.most_words for place in places):
        return ""
    strange = free[len(places) :]
    if missing:
        meant = " ".join([missing[0].options[0], *(strange if missing[0].most_words > 1 else strange[:1])])
        return f"unexpected argument '{strange[0]}' of {prog}; did you mean {meant}? ({prog} --help lists all)"
    takes = " and ".join(f"one {place.metavar}" for place in places) or "no argument but options"
    return f"unexpected argument '{strange[0]}': {prog} takes {takes} ({prog} --help)"


def _nearest(option: str, known: Mapping[str, Argument], missing: Sequence[Argument]) -> list[str]:
    """Return the options that may have been meant by a wrong one.

    They are written much like it, or must be given and are not, or share a word with it, or are the only one whose help
    has it.
    """
    names = {each.strip("-"): each for each in known if each.startswith("--")}
    name = option.strip("-").replace("_", "-")
    alike = difflib.get_close_matches(name, names, n=1, cutoff=LEAST_ALIKE)
    found = [names[each] for each in alike] or [each.options[0] for each in missing]
    found += [
        whole
        for each, whole in names.items()
        if name in each.split("-") or name.startswith(each) or each.startswith(name)
    ]
    if not found:
        word = re.compile(rf"\b{re.escape(name.replace('-', '_'))}\b")
        found = [each for each, argument in known.items() if word.search(f"{argument.metavar} {argument.help}")]
        found = found if len(found) == 1 else []
    return list(dict.fromkeys(found))[:MOST_MEANT]
