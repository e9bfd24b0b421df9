import subprocess
import sys
from pathlib import Path

import pytest

from vcse.runs import machine
from vcse.runs.arithmetic import EXACT
from vcse.runs.command import executing
from vcse.runs.machine import commit_of


@pytest.fixture(autouse=True)
def _not_known():
    commit_of.cache_clear()
    yield
    commit_of.cache_clear()


@pytest.fixture
def repository(tmp_path):
    """Where this source might lie: in a repository, which does not track it until it is told to."""
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=b"]
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "theirs"], check=True)
    place = tmp_path / ".venv" / "site-packages" / "machine.py"
    place.parent.mkdir(parents=True)
    place.write_text("")
    return git, place


def test_only_the_commit_of_a_repository_that_tracks_a_file_is_its_commit(repository):
    git, place = repository
    assert commit_of(place) is None
    subprocess.run([*git, "add", "-f", str(place)], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "ours"], check=True)
    [head] = subprocess.run([*git, "rev-parse", "HEAD"], capture_output=True, text=True, check=True).stdout.split()
    commit_of.cache_clear()
    assert commit_of(place) == head


def test_without_git_or_a_repository_there_is_no_commit(monkeypatch, tmp_path):
    assert commit_of(tmp_path / "machine.py") is None
    monkeypatch.setenv("PATH", str(tmp_path))
    assert commit_of(Path(__file__)) is None
    assert machine.describe_machine("cpu", EXACT).keys() >= {"commit", "vcse"}


def test_the_arguments_of_another_program_are_no_command(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["ipykernel_launcher.py", "-f", "/home/someone/kernel-123.json"])
    assert machine.describe_machine("cpu", EXACT)["command"] is None
    with executing(["train", "--task", "minigrid/Empty-5x5"]):
        assert machine.describe_machine("cpu", EXACT)["command"] == ["train", "--task", "minigrid/Empty-5x5"]
        with executing(None):
            assert machine.describe_machine("cpu", EXACT)["command"] is None
    assert machine.describe_machine("cpu", EXACT)["command"] is None
