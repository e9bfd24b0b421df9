"""Options that count frames, which may be written as people write large numbers: 100000, 100_000, 1e5, 100k, 1M."""

import re
from decimal import Decimal
from typing import Annotated

from tyro.constructors import PrimitiveConstructorSpec

_WRITTEN = re.compile(r"(-?(?:\d{1,3}(?:[_,]\d{3})+|\d+)(?:\.\d+)?(?:[eE]\+?\d{1,2})?)([kM]?)")
_FACTORS = {"": 1, "k": 1_000, "M": 1_000_000}


def count_of(text: str) -> int:
    """Read a number of frames."""
    found = _WRITTEN.fullmatch(text)
    number = None if found is None else Decimal(re.sub("[_,]", "", found[1])) * _FACTORS[found[2]]
    if number is None or number != int(number):
        raise ValueError(f"a number of frames is written like 100000, 100_000, 1e5, 100k or 1M, got {text!r}")
    return int(number)


_SPEC = PrimitiveConstructorSpec[int | None](
    nargs=1,
    metavar="FRAMES",
    instance_from_str=lambda texts: count_of(texts[0]),
    is_instance=lambda value: value is None or isinstance(value, int),
    str_from_instance=lambda value: [str(value)],
)
Frames = Annotated[int, _SPEC]
# Not `Frames | None`, which tells of a wrong number in the words of the types that were tried.
FramesIfGiven = Annotated[int | None, _SPEC]
