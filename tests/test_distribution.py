"""What a user installs: the source distribution, a wheel built from it, and that wheel in a fresh environment."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

from vcse import __version__
from vcse.extras import install

pytest.importorskip("hatchling", reason="needs the extra dev")

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
MOST_BYTES = 2_000_000  # of the source distribution: what bulk the repository has stays there

BONUS = """
import importlib.metadata, json, sys
import torch, vcse
torch.manual_seed(0)
features, values = torch.randn(64, 3), torch.randn(64)
output = vcse.ValueConditionalStateEntropy.recommended()(features, values=values)
metadata = importlib.metadata.metadata("vcse")
print(json.dumps({
    "file": vcse.__file__,
    "mean": float(output.reward.mean()),
    "std": float(output.reward.std(correction=0)),
    "extras": metadata.get_all("Provides-Extra"),
    "needs": metadata.get_all("Requires-Dist"),
}))
"""


def call(*command, **settings):
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    return subprocess.run(
        list(map(str, command)), env=environment, check=True, capture_output=True, text=True, **settings
    ).stdout


def build(target, source, out):
    """Build a distribution with what is installed here, as `python -m build --no-isolation` does."""
    call(sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", out, cwd=source)
    [built] = out.iterdir()
    return built


@pytest.fixture(scope="module")
def sdist(tmp_path_factory):
    return build("sdist", ROOT, tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist, tmp_path_factory):
    unpacked = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(unpacked, filter="data")
    return build("wheel", unpacked / f"vcse-{__version__}", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def fresh(wheel, tmp_path_factory):
    """Return the folder of commands of a new environment that has the wheel, and sees the dependencies of this one."""
    place = tmp_path_factory.mktemp("fresh")
    venv.create(place, with_pip=False)
    python = place / "bin" / "python"
    call(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-deps", "--no-index", wheel)
    [packages] = place.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib"))  # without the .pth files that are there
    return place / "bin"


def test_the_source_distribution_has_what_a_wheel_needs_and_no_bulk(sdist):
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CITATION.cff", "SECURITY.md", "src/vcse/py.typed"} <= names
    assert {name.partition("/")[0] for name in names if "/" in name} == {"src", "examples"}
    assert sdist.stat().st_size < MOST_BYTES


def test_the_wheel_has_every_file_of_the_package(wheel):
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if name.startswith("vcse/")}
    package = ROOT / "src" / "vcse"
    files = [file for file in package.rglob("*") if file.is_file() and "__pycache__" not in file.parts]
    assert names == {f"vcse/{file.relative_to(package)}" for file in files}
    assert {"vcse/py.typed", "vcse/reports/templates/report.html"} <= names


def test_a_bonus_is_computed_from_the_installed_wheel_and_its_extras_are_declared(fresh):
    told = json.loads(call(fresh / "python", "-c", BONUS, cwd=fresh))
    assert Path(told["file"]).is_relative_to(fresh.parent)
    assert (told["mean"], told["std"]) == (pytest.approx(0, abs=1e-5), pytest.approx(1, abs=1e-3))
    extras = PROJECT["optional-dependencies"]
    assert set(told["extras"]) == set(extras)
    for extra, wanted in extras.items():
        needs = [line for line in told["needs"] if re.search(rf"extra == ['\"]{extra}['\"]", line)]
        assert len(needs) == len(wanted)


def test_the_commands_of_the_installed_wheel_start(fresh):
    assert call(fresh / "vcse", "--version") == f"vcse {__version__}\n"
    assert "selftest" in call(fresh / "vcse", "--help")
    assert "minigrid-k" in call(fresh / "vcse", "study", "list")


def test_the_line_of_error_messages_installs_an_extra_of_the_wheel(fresh):
    pytest.importorskip("jinja2", reason="needs the extra report")
    *pip, requirement = install("report").replace("'", "").split()
    assert pip == ["pip", "install"]
    asked = ("--quiet", "--dry-run", "--no-index", "--report", "-", requirement)
    report = json.loads(call(sys.executable, "-m", "pip", "--python", fresh / "python", "install", *asked))
    assert report["install"] == []  # pip found the extra, and all that it needs is here


def test_what_is_said_of_versions_is_one_thing():
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.search(r"^version: (.+)$", citation, re.MULTILINE)[1] == __version__
    assert f"## [{__version__}]" in (ROOT / "CHANGELOG.md").read_text()
