"""The directive `settings`: the settings of an agent as a table, from the fields that the command line is made of."""

from typing import Literal, get_args, get_origin, get_type_hints

from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from vcse.agents import agent_entry
from vcse.cli.flags import flag
from vcse.settings import About, AgentSettings, described


def settings_table(settings: type[AgentSettings]) -> str:
    """Return the settings of an agent as a Markdown table, those that have an option first."""
    hints = get_type_hints(settings)
    fields = sorted(described(settings).items(), key=lambda field: not field[1].is_option)
    rows = [
        f"| `{flag(name) if about.is_option else f'--set {name}=...'}` "
        f"| {about.otherwise or f'`{getattr(settings, name)}`'} | {_allowed(hints[name], about)} | {about.help} |"
        for name, about in fields
    ]
    return "\n".join(["| setting | default | allowed | meaning |", "|---|---|---|---|", *rows])


def _allowed(hint: object, about: About) -> str:
    """Return what a setting may be: the range of a number, and words."""
    ranges = {"count": "1 or more", "positive": "above 0", "not negative": "0 or more", "share": "0 to 1"}
    words = [f"`{word}`" for kind in (hint, *get_args(hint)) if get_origin(kind) is Literal for word in get_args(kind)]
    truth = ["`True`", "`False`"] if hint is bool else []
    return ", ".join([*([ranges[about.range]] if about.range in ranges else []), *truth, *words])


class SettingsDirective(SphinxDirective):
    """Insert the table of the agent that is named."""

    required_arguments = 1

    def run(self) -> list:
        """Parse the table as part of the page."""
        return self.parse_text_to_nodes(settings_table(agent_entry(self.arguments[0]).settings))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("settings", SettingsDirective)
    return {"parallel_read_safe": True}
