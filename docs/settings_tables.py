"""Write the tables of the agents' settings into their pages, from the fields that the command line is made of.

python docs/settings_tables.py
"""

import re
from pathlib import Path
from typing import Literal, get_args, get_origin, get_type_hints

from vcse.agents import agent_entry, agent_names
from vcse.cli.flags import flag
from vcse.settings import About, AgentSettings, described

HERE = Path(__file__).parent
TABLE = re.compile(
    r"(<!-- settings of (\S+), written by docs/settings_tables.py -->\n).*?(<!-- end of settings -->)", re.S
)


def settings_table(settings: type[AgentSettings]) -> str:
    """Return the settings of an agent as a Markdown table: those with an option first."""
    hints = get_type_hints(settings)
    fields = sorted(described(settings).items(), key=lambda field: not field[1].is_option)
    rows = [
        f"| `{flag(name) if about.is_option else f'--set {name}=...'}` "
        f"| {about.otherwise or f'`{getattr(settings, name)}`'} | {_allowed(hints[name], about)} | {about.help} |"
        for name, about in fields
    ]
    return "\n".join(["", "| setting | default | may be | meaning |", "|---|---|---|---|", *rows, "", ""])


def _allowed(hint: object, about: About) -> str:
    """Return what a setting may be: the range of a number, and words."""
    ranges = {"count": "1 or more", "positive": "above 0", "not negative": "0 or more", "share": "0 to 1"}
    words = [f"`{word}`" for kind in (hint, *get_args(hint)) if get_origin(kind) is Literal for word in get_args(kind)]
    truth = ["`True`", "`False`"] if hint is bool else []
    return ", ".join([*([ranges[about.range]] if about.range in ranges else []), *truth, *words])


def with_tables(page: str) -> str:
    """Return the text of a page with its tables as they should be."""
    return TABLE.sub(lambda found: found[1] + settings_table(agent_entry(found[2]).settings) + found[3], page)


def main() -> None:
    """Rewrite the page of every agent of the package that has one."""
    for path in (HERE / f"{agent}.md" for agent in agent_names()):
        if path.exists():
            path.write_text(with_tables(path.read_text()))


if __name__ == "__main__":
    main()
