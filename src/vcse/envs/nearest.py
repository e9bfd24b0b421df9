"""What may have been meant by a name that does not exist."""

import difflib
from collections.abc import Iterable

SHOWN = 3


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Give the few names that are written most like a wrong one, small letters or not, the likest first."""
    in_small = {each.lower(): each for each in known}
    return [in_small[each] for each in difflib.get_close_matches(name.lower(), in_small, n=SHOWN, cutoff=0)]
