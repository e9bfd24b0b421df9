"""Kinds of options: several names, what need not be given, and numbers, a wrong one of which is told in words of ours.

Numbers that count frames may be written as people write large numbers: 100000, 100_000, 1e5, 100k, 1M.
"""

import re
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro
from tyro.constructors import PrimitiveConstructorSpec

from vcse.launch.device_names import Device, check_device
from vcse.nearest import did_you_mean

_WRITTEN = re.compile(r"(-?(?:\d{1,3}(?:[_,]\d{3})+|\d+)(?:\.\d+)?(?:[eE]\+?\d{1,2})?)([kKM]?)")
_FACTORS = {"": 1, "k": 1_000, "K": 1_000, "M": 1_000_000}


def count_of(text: str) -> int:
    """Read a number that may be large, above all of frames."""
    found = _WRITTEN.fullmatch(text)
    number = None if found is None else Decimal(re.sub("[_,]", "", found[1])) * _FACTORS[found[2]]
    if number is None or number != int(number):
        raise ValueError(f"it must be a whole number, such as 100000, 100_000, 1e5, 100k or 1M, got {text!r}")
    return int(number)


def whole_of(text: str) -> int:
    """Read a whole number."""
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"it must be a whole number, got {text!r}") from None


def number_of(text: str, otherwise: str = "") -> float:
    """Read a number; what else might have been written is named."""
    try:
        return float(text)
    except ValueError:
        raise ValueError(f"it must be a number{otherwise}, got {text!r}") from None


def number_or_word(text: str, words: Sequence[str]) -> float | str:
    """Read a number, or one of some words."""
    return text if text in words else number_of(text, f" or {' or '.join(words)}")


def truth_of(text: str) -> bool:
    """Read True or False."""
    if text not in ("True", "False"):
        raise ValueError(f"it must be True or False, got {text!r}")
    return text == "True"


def device_of(text: str) -> str:
    """Read the name of a device."""
    try:
        return check_device(text)
    except ValueError as error:
        raise ValueError(str(error).replace("device", "it", 1)) from None


def names_of(texts: list[str]) -> tuple[str, ...]:
    """Read one name or several: none at all is what an empty variable of a shell leaves."""
    if not texts:
        raise ValueError("it needs at least one name")
    for text in texts:
        if re.search("[, ]", text):
            raise ValueError(f"names are separated by spaces, without commas or quotes around them, got {text!r}")
    return tuple(texts)


def numbers_of(texts: list[str], kinds: Sequence[type], written: str) -> float | tuple[float | int, ...]:
    """Read one number, or as many as there are kinds, whole ones of which may be large.

    Args:
        texts: The numbers.
        kinds: Of each, where they are several.
        written: How these are called.
    """
    if len(texts) == 1:
        return number_of(texts[0])
    if len(texts) != len(kinds):
        raise ValueError(f"it must be one number, or {len(kinds)} ({written}), got {' '.join(texts)!r}")
    return tuple((count_of if kind is int else number_of)(text) for text, kind in zip(texts, kinds, strict=True))


def read_by(read: Callable[[str], Any], metavar: str) -> Any:
    """Return the type of an option that a function parses; it may be left out."""
    return read_together_by(lambda texts: read(texts[0]), metavar, 1)


def read_together_by(
    read: Callable[[list[str]], Any], metavar: str, count: int | tuple[int, ...] | Literal["*"]
) -> Any:
    """Return the type of an option of several words that a function parses."""
    return PrimitiveConstructorSpec[Any](
        nargs=count,
        metavar=metavar,
        instance_from_str=read,
        is_instance=lambda value: value is None or isinstance(value, int | float | str | tuple),
        str_from_instance=lambda value: list(map(str, value)) if isinstance(value, tuple) else [str(value)],
    )


def if_given(metavar: str | None = None) -> Any:
    """Return the annotation of an optional option without "(default: None)": its help states the default."""
    return tyro.conf.arg(metavar=metavar, help_behavior_hint="")


def one_of(kind: Any) -> Any:
    """Return the type of an option that is one of some words; with `if_given` it may be left out."""
    words = get_args(kind)

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"it must be one of {', '.join(words)}, got {text!r}{did_you_mean(text, words)}")
        return text

    return read_by(read, f"{{{','.join(words)}}}")


Flag = Annotated[bool, tyro.conf.FlagCreatePairsOff, tyro.conf.arg(help_behavior_hint="")]  # off unless it is given
Frames = Annotated[int, read_by(count_of, "FRAMES")]
Whole = Annotated[int, read_by(whole_of, "INT")]
# Not `Frames | None` and so on, which tell of a wrong number in the words of the types that were tried.
FramesIfGiven = Annotated[int | None, read_by(count_of, "FRAMES"), if_given()]
WholeIfGiven = Annotated[int | None, read_by(whole_of, "INT"), if_given()]
NumberIfGiven = Annotated[float | None, read_by(number_of, "FLOAT"), if_given()]
NameIfGiven = Annotated[str | None, if_given("NAME")]
DeviceName = Annotated[Device, read_by(device_of, "{auto,cpu,cuda}")]
TruthIfGiven = Annotated[bool | None, read_by(truth_of, "{True,False}"), if_given()]
PathIfGiven = Annotated[Path | None, if_given("PATH")]
Names = Annotated[tuple[str, ...], read_together_by(names_of, "NAME [NAME ...]", "*")]
NamesIfGiven = Annotated[Names, if_given()]
NumbersIfGiven = Annotated[
    tuple[str, ...], read_together_by(names_of, "NAME=NUMBER [NAME=NUMBER ...]", "*"), if_given()
]
