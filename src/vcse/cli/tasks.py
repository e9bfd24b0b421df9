"""`vcse tasks`: what can be trained on."""

import json as json_format
import sys
import textwrap
from collections.abc import Mapping, Sequence

from vcse.agents import agents_of
from vcse.cli.option_types import Flag
from vcse.envs.minigrid.names import CHOOSING_MISSIONS, NAMING_MISSIONS
from vcse.envs.tasks import families, known_tasks, task_spec

MISSIONS = f"""\
  The mission, a text, is not shown. From episode to episode it chooses among several things in
  {" ".join(f"{name}*" for name in CHOOSING_MISSIONS)}, and names the only one of its kind in
  {" ".join(f"{name}*" for name in NAMING_MISSIONS)}.
"""


def tasks(json: Flag = False) -> int:
    """List the tasks of every family, the agent that each is for, and what it sees.

    Args:
        json: Print the rows as a JSON list on standard output, and nothing else; families that are not installed, and
            those that take any registered id (gymnasium/...), are left out.
    """
    groups: dict[tuple[str, ...] | str, list[str]] = {}  # that have the same names, or the same in their place
    missing: dict[str, list[str]] = {}  # by what is not installed
    rows: list[dict[str, str]] = []
    for family in families():
        try:
            known = _usable_tasks(family)
        except RuntimeError as error:
            missing.setdefault(str(error), []).append(family)
            continue
        if listed_as := families()[family].listed:
            groups.setdefault(listed_as, []).append(family)
            continue
        rows += [{"task": task, "agent": agents_of(family)[0]} for task in known]
        groups.setdefault(tuple(task.partition("/")[2] for task in known), []).append(family)
    if json:
        print(json_format.dumps(rows, indent=1))
        for reason, alike in missing.items():
            print(f"vcse: without {', '.join(f'{family}/...' for family in alike)}: {reason}", file=sys.stderr)
        return 0
    listed: dict[str, Sequence[str]] = {}
    for names, alike in (*groups.items(), *missing.items()):
        for family in alike:
            print(f"{family + '/NAME':20} {' '.join(agents_of(family)):6} {families()[family].about}")
        print(f"  {names}\n" if isinstance(names, str) else f"{_wrapped(_briefly(names, listed))}\n")
        listed |= {family: names for family in alike if not isinstance(names, str)}
        if "minigrid" in alike and not isinstance(names, str):
            print(MISSIONS)
    return 0


def _usable_tasks(family: str) -> tuple[str, ...]:
    """Return the tasks of a family; raise RuntimeError where what simulates them is not installed."""
    known = known_tasks(family)
    if known and not families()[family].listed:
        try:
            task_spec(known[0])  # some know the names of their tasks in any case
        except RuntimeError as error:
            raise RuntimeError(str(error).replace(known[0], f"{family}/...")) from error
    return known


def _briefly(names: Sequence[str], listed: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Return names, or in which few they differ from those of a family that was listed before."""
    for family, before in listed.items():
        without = [name for name in before if name not in names]
        if set(names) < set(before) and len(without) < len(names):
            return ["as", f"{family}/NAME,", "without", *without]
    return names


def _wrapped(names: Sequence[str]) -> str:
    """Put names side by side, none of them torn."""
    return textwrap.fill(
        " ".join(names),
        width=100,
        initial_indent="  ",
        subsequent_indent="  ",
        break_on_hyphens=False,
        break_long_words=False,
    )
