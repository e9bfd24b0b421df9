"""What may have been meant by a name that does not exist."""

import difflib
from collections.abc import Iterable, Sequence

SHOWN = 3


def nearest(name: str, known: Iterable[str]) -> list[str]:
    """Return the few names that are written most like a wrong one, small letters or not, the likest first."""
    in_small = {each.lower(): each for each in known}
    return [in_small[each] for each in difflib.get_close_matches(name.lower(), in_small, n=SHOWN, cutoff=0)]


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return the question that ends an error message, with the name that is most like a wrong one; empty if none is."""
    in_small = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), in_small, n=1)
    return f"; did you mean {in_small[found[0]]}?" if found else ""


def check_known(family: str, name: str, known: Sequence[str]) -> None:
    """Refuse a task that a family does not have, and name those that are written most like it."""
    if name not in known:
        likest = ", ".join(f"{family}/{each}" for each in nearest(name, known))
        raise ValueError(
            f"task '{family}/{name}' does not exist; nearest are {likest} (vcse tasks lists all {len(known)})"
        )
