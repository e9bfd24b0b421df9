"""What the pages show must run, and print what they say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("page", ["README.md", "docs/drqv2.md", "docs/readings.md", "docs/sac.md"])
def test_examples_print_what_their_comments_say(page, capsys):
    examples = "".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL))
    assert examples
    expected = re.findall(r"^print\(.*\)  # (.*)$", examples, flags=re.MULTILINE)
    exec(examples, {})
    assert capsys.readouterr().out.splitlines() == expected
