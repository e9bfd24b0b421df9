"""Methods that studies of several families compare, and claims that are not from the paper."""

from functools import partial

from vcse.studies.study import Claim, Method

NONE = Method("none", "none", "no bonus")
SE = Method("se", "se", "state entropy")
VCSE = Method("vcse", "vcse", "value-conditional state entropy")
MATCHED = Method("se-matched", "se-matched", "VCSE with the value left out")

our_claim = partial(Claim, ours=True)


def weighted(bonus: str, beta: float) -> Method:
    """Return a bonus with a weight of its own, which its name tells."""
    return Method(f"{bonus}-beta-{beta:g}", bonus, f"{bonus.upper()}, β = {beta:g}", settings={"beta": beta})
