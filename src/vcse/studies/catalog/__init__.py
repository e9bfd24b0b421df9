"""Every experiment of the paper, and seven of our own, as data: what is run, how it is shown, what it answers."""

from vcse.envs.nearest import nearest
from vcse.studies.catalog import dmc, metaworld, minigrid
from vcse.studies.study import Study

_ENTRIES = (*minigrid.PAPER_STUDIES, *dmc.STUDIES, *metaworld.STUDIES, *minigrid.OWN_STUDIES)

CATALOG = {entry.name: entry for entry in _ENTRIES}


def study(name: str) -> Study:
    """Look an entry up, or name those that are written most like it."""
    if name not in CATALOG:
        likest = ", ".join(nearest(name, CATALOG))
        raise ValueError(
            f"study {name!r} does not exist; nearest are {likest} (vcse study list lists all {len(CATALOG)})"
        )
    return CATALOG[name]
