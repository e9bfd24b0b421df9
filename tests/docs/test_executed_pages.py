"""The code of tutorials runs, and its output is put below it."""

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

pytest.importorskip("sphinx", reason="Sphinx is not installed")
sys.path.append(str(Path(__file__).parents[2] / "docs" / "extensions"))
from executed_pages import execute
from sphinx.errors import ExtensionError

PAGE = """# A tutorial

```{code-block} python
:caption: helper.py

answer = 42
```

```python
import helper
from pathlib import Path

seen = helper.answer
```

```python
print("seen", seen)
Path("figure.png").write_bytes(b"")
```

![A figure](figure.png)

```sh
echo from the shell
```

```console
$ not executed
```
"""


def executed(page, tmp_path, name="docs/tutorials/some"):
    app, source = SimpleNamespace(doctreedir=tmp_path / "doctrees", srcdir=tmp_path), [page]
    execute(app, name, source)
    return source[0]


def test_cells_share_names_and_what_they_print_follows_them(tmp_path):
    page = executed(PAGE, tmp_path)
    assert ":class: output\n\nseen 42\n```" in page
    assert ":class: output\n\nfrom the shell\n```" in page
    assert page.count(":class: output") == 2
    assert "![A figure](../../executed/some/figure.png)" in page


def test_a_cell_that_fails_fails_the_build(tmp_path):
    with pytest.raises(ExtensionError, match=r"(?s)some failed:.*ZeroDivisionError"):
        executed("```python\n1 / 0\n```\n", tmp_path)
    with pytest.raises(ExtensionError, match="some failed"):
        executed("```sh\nfalse | true\n```\n", tmp_path)


def test_other_pages_are_left_alone(tmp_path):
    assert executed(PAGE, tmp_path, "docs/how-to/some") == PAGE
