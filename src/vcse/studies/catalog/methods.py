"""Methods that studies of several families compare."""

from vcse.studies.study import Method

NONE = Method("none", "none", explanation="no bonus")
SE = Method("se", "se", explanation="state entropy")
VCSE = Method("vcse", "vcse", explanation="value-conditional state entropy")
MATCHED = Method("se-matched", "se-matched", explanation="VCSE with the value left out")


def weighted(bonus: str, beta: float) -> Method:
    """Return a bonus with a weight of its own, which its name tells."""
    return Method(f"{bonus}-beta-{beta:g}", bonus, settings={"beta": beta}, explanation=f"{bonus}, β = {beta:g}")
