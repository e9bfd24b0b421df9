"""The directive `commands`: the help of every command, as its parser prints it."""

import contextlib
import io
import os
from collections.abc import Callable
from unittest.mock import patch

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from vcse.cli.main import VERBS, main
from vcse.cli.study import VERBS as STUDY_VERBS

NAMES = [*((verb,) for verb in VERBS if verb != "study"), *(("study", verb) for verb in STUDY_VERBS)]
COLUMNS = "84"


def help_of(*arguments: str, run: Callable[[list[str]], int] = main) -> str:
    """Return what `vcse ARGUMENTS --help` prints, without colours."""
    printed = io.StringIO()
    with (
        patch.dict(os.environ, {"COLUMNS": COLUMNS, "NO_COLOR": "1", "TERM": "dumb"}),
        contextlib.redirect_stdout(printed),
        contextlib.suppress(SystemExit),
    ):
        run([*arguments, "--help"])
    return "\n".join(line.rstrip() for line in printed.getvalue().strip().splitlines())


class CommandsDirective(SphinxDirective):
    """Insert a section for every command."""

    def run(self) -> list[nodes.Node]:
        """Parse the sections as part of the page."""
        sections = [f"## vcse {' '.join(words)}\n\n```text\n{help_of(*words)}\n```\n" for words in NAMES]
        return self.parse_text_to_nodes("\n".join(sections), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("commands", CommandsDirective)
    return {"parallel_read_safe": True}
