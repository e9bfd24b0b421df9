"""The recipes of CONTRIBUTING.md, followed to the letter in a copy of the source."""

import csv
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "CONTRIBUTING.md").read_text()
TOY = (ROOT / "tests" / "outside" / "toy_plugin.py").read_text()
RECIPES = dict(re.findall(r"^### (.+?)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
TITLES = ["A bonus", "An environment family", "An agent"]


def apply(diff, tree):
    """Replace the lines of a diff that begin with a space or a minus by those that begin with a space or a plus."""
    header, *lines = diff.splitlines()
    path = tree / header.removeprefix("--- ")
    old, new = ("".join(f"{line[1:]}\n" for line in lines if line[0] in kind) for kind in (" -", " +"))
    text = path.read_text()
    assert text.count(old) == 1, f"{path} has these lines {text.count(old)} times:\n{old}"
    path.write_text(text.replace(old, new))


def follow(recipe, tree):
    """Write the files of a recipe, and make its changes."""
    for path, code in re.findall(r"```python\n# (src/\S+)\n(.*?)```", recipe, re.DOTALL):
        (tree / path).write_text(code)
    for diff in re.findall(r"```diff\n(.*?)```", recipe, re.DOTALL):
        apply(diff, tree)


@pytest.fixture
def tree(tmp_path):
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_there_are_three_recipes():
    assert list(RECIPES) == TITLES


@pytest.mark.parametrize("title", TITLES)
def test_a_recipe_makes_what_its_command_trains(title, tree):
    recipe = RECIPES[title]
    if title == "An agent":  # which is the toy's, as the recipe says
        imports = TOY[TOY.index("import math") : TOY.index("# ---- A family")]
        agent = TOY[TOY.index("# ---- An agent") : TOY.index("register_agent(ENTRY)")]
        (tree / "src/vcse/agents/climber.py").write_text(f"{imports.replace(', register_agent', '')}\n{agent}")
    follow(recipe, tree)
    [command] = re.findall(r"`(vcse train .*?)`", recipe)
    if "dmc/" in command:
        pytest.importorskip("dm_control", reason="needs the extra dmc")
    words = [sys.executable, "-m", *shlex.split(command), "--out", "runs", "--device", "cpu", "--eval-episodes", "2"]
    environment = os.environ | {"PYTHONPATH": str(tree / "src")}
    done = subprocess.run(words, cwd=tree, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    [curve] = (tree / "runs").rglob("train.csv")
    *_, last = csv.DictReader(curve.read_text().splitlines())
    assert float(last["bonus_mean"]) != 0
