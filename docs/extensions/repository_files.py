"""Links from pages to files of the repository: each linked file is copied to the same place beside the built pages.

So a relative link is right where the Markdown is read and in the site, and opens what it names. A linked HTML page
brings its folder.
"""

import shutil
from pathlib import Path
from posixpath import dirname, join, normpath

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform


class LinkedFiles(SphinxTransform):
    """Turn downloads, which Sphinx would give names of its own, into plain links to copies."""

    default_priority = 400

    def apply(self, **_: object) -> None:
        """Replace every download of the page."""
        for node in list(self.document.findall(addnodes.download_reference)):
            target = node["reftarget"]
            place = normpath(join(dirname(self.env.docname), target))
            source, copy = Path(self.env.srcdir, place), Path(self.app.outdir, place)
            if place.startswith("..") or not source.is_file():
                continue  # Sphinx warns of it
            if source.suffix == ".html":
                shutil.copytree(source.parent, copy.parent, dirs_exist_ok=True)
            else:
                copy.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(source, copy)
            node.replace_self(nodes.reference("", "", *node.children, refuri=target, internal=True))


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the transform."""
    app.add_transform(LinkedFiles)
    return {"parallel_read_safe": True}
