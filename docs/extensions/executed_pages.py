"""Tutorials are executed: the code of a page runs from top to bottom, and its output is put below it.

Of the pages in docs/tutorials, these fences run, in a folder of the page's own:

- `python`: in one interpreter for the whole page, as if typed one after the other;
- `sh`: by bash;
- `{code-block}` with a `:caption:`: written to the file that the caption names.

What a cell prints to standard output follows it; an image that it saves is shown where the page names it. Anything else
(`console`, `text`) is only shown. A cell that fails, fails the build.
"""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from time import perf_counter

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError
from sphinx.util import logging

PAGES = "docs/tutorials/"
FENCE = re.compile(
    r"^```(?P<kind>python|sh|\{code-block\} \w+)\n(?::caption: (?P<file>\S+)\n)?(?P<code>.*?)^```\n", re.M | re.S
)
IMAGE = re.compile(r"(!\[[^\]]*\]\()(?P<file>[\w.-]+)(\))")
RUNNER = Path(__file__).with_name("run_cells.py")
LOG = logging.getLogger(__name__)


def outputs_of(cells: list[dict[str, str]], folder: Path) -> list[str]:
    """Run the cells of a page in a folder, and return what each printed."""
    environment = os.environ | {
        "CUDA_VISIBLE_DEVICES": "",
        "COLUMNS": "88",
        "MPLBACKEND": "Agg",
        "NO_COLOR": "1",
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    results = folder.parent / f"{folder.name}.json"
    done = subprocess.run(
        [sys.executable, RUNNER, results],
        input=json.dumps(cells),
        cwd=folder,
        env=environment,
        text=True,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        raise ExtensionError(f"a cell of {folder.name} failed:\n{done.stdout}{done.stderr}")
    if done.stderr:
        LOG.info("%s", done.stderr)
    outputs: list[str] = json.loads(results.read_text())
    return outputs


def execute(app: Sphinx, name: str, source: list[str]) -> None:
    """Run the code of a tutorial and put what it printed into its text."""
    fences = list(FENCE.finditer(source[0])) if name.startswith(PAGES) else []
    if not fences:
        return
    folder = Path(app.doctreedir).parent / "executed" / Path(name).name
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    cells = [{"kind": fence["kind"], "file": fence["file"] or "", "code": fence["code"]} for fence in fences]
    begin = perf_counter()
    outputs = iter(outputs_of(cells, folder))
    LOG.info("executed %s in %.1f s", name, perf_counter() - begin)

    def with_output(fence: re.Match[str]) -> str:
        printed = next(outputs)
        return f"{fence[0]}\n```{{code-block}} text\n:class: output\n\n{printed}\n```\n" if printed else fence[0]

    def made(image: re.Match[str]) -> str:
        if not (folder / image["file"]).exists():
            return image[0]
        return f"{image[1]}{os.path.relpath(folder / image['file'], Path(app.srcdir, name).parent)}{image[3]}"

    source[0] = IMAGE.sub(made, FENCE.sub(with_output, source[0]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Hook in before pages are parsed."""
    app.connect("source-read", execute)
    return {"parallel_read_safe": True}
