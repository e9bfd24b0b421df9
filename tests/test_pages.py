"""What the pages show must run, and print what they say."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    "README.md",
    "docs/explanation/drqv2.md",
    "docs/explanation/estimators.md",
    "docs/explanation/sac.md",
    "docs/how-to/choose-beta-k-and-features.md",
    "docs/how-to/gymnasium.md",
    "docs/how-to/your-own-agent.md",
    "docs/reference/readings.md",
]
SHORTER = {"learn(200_000": "learn(2_048"}  # what a page trains for is not waited for


@pytest.mark.parametrize("page", PAGES)
def test_examples_print_what_their_comments_say(page, capsys):
    examples = "".join(re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), flags=re.DOTALL))
    assert examples
    for long, short in SHORTER.items():
        examples = examples.replace(long, short)
    expected = re.findall(r"^print\(.*\)  # (.*)$", examples, flags=re.MULTILINE)
    exec(examples, {})
    assert capsys.readouterr().out.splitlines() == expected
