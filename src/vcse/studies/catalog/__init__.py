"""Every experiment of the paper, and nine of our own, as data: what is run, how it is shown, what it answers."""

from vcse.nearest import nearest
from vcse.studies.catalog import dmc, fork, metaworld, minigrid, minigrid_value
from vcse.studies.study import Study

_OURS = (*minigrid.OWN_STUDIES, minigrid_value.STUDY, *fork.STUDIES)
_ENTRIES = (*minigrid.PAPER_STUDIES, *dmc.STUDIES, *metaworld.STUDIES, *_OURS)

CATALOG = {entry.name: entry for entry in _ENTRIES}


def study(name: str) -> Study:
    """Look an entry up, or name those that are written most like it."""
    if name not in CATALOG:
        likest = ", ".join(nearest(name, CATALOG))
        raise ValueError(
            f"study {name!r} does not exist; nearest are {likest} (vcse study list lists all {len(CATALOG)})"
        )
    return CATALOG[name]
