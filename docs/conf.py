"""The documentation site: `make docs` builds it into out/docs from the Markdown of the repository.

The root of the source is the repository, so that a relative link between docs/, results/ and the rest is the same on
the site as where the Markdown is read.
"""

import sys
from pathlib import Path

from sphinx.application import Sphinx

sys.path.insert(0, str(Path(__file__).parent / "extensions"))

import vcse

project = "vcse"
author = "the vcse developers"
copyright = author
version = release = vcse.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "commands",
    "executed_pages",
    "repository_files",
    "settings_tables",
]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "results/**.md",
    "benchmarks/*.md",
    "policies/*.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
]
exclude_patterns = [".*", "out", "runs", "build", "dist", "src", "tests", "examples", "**/__pycache__"]

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 4
suppress_warnings = ["myst.header"]  # results begin at the level that suits them

nitpicky = True
nitpick_ignore_regex = [
    ("py:obj", ".*"),  # in docstrings backticks are links where there is something to link to, else code
    ("py:class", r"vcse\.(runs\..*|agents\.entry\.Policies|integrations\.sb3_\w+\..*)|dict\[str"),  # no page has these
    (
        "py:.*",
        r"(Tensor|ndarray|jaxtyping|collections|typing|pathlib|numpy|np|torch|gymnasium|stable_baselines3|tensordict|torchrl|skrl)\b.*",
    ),
]
default_role = "py:obj"
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
autodoc_default_options = {"members": True}
napoleon_google_docstring = True
napoleon_numpy_docstring = False
maximum_signature_line_length = 88
toc_object_entries_show_parents = "hide"

html_theme = "furo"
html_title = "vcse"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_copy_source = False
html_show_sphinx = False
html_last_updated_fmt = None
pygments_style, pygments_dark_style = "friendly", "monokai"

REDIRECT = '<!doctype html><meta charset="utf-8"><title>vcse</title><meta http-equiv="refresh" content="0; url={0}">'


def write_entrance(app: Sphinx, exception: Exception | None) -> None:
    """Write the index.html that leads to the first page."""
    if exception is None and app.builder.format == "html":
        Path(app.outdir, "index.html").write_text(REDIRECT.format(f"{root_doc}.html"))


def setup(app: Sphinx) -> None:
    """Hook in what needs no extension of its own."""
    app.connect("build-finished", write_entrance)
