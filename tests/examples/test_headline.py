import importlib.util
import sys
from pathlib import Path

import pytest
from PIL import Image

from vcse.agents import read_config
from vcse.cli import main
from vcse.runs.directory import run_directories

SCRIPT = Path(__file__).parents[2] / "examples" / "headline.py"
OPTIONS = {"seeds": 2, "frames": 640, "eval_episodes": 2, "quiet": True}


@pytest.fixture(scope="module")
def headline():
    spec = importlib.util.spec_from_file_location("headline", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    sys.modules["headline"] = module  # where its dataclass looks its types up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["headline"]


def test_it_trains_and_makes_a_page_and_then_only_the_page(headline, tmp_path, capsys):
    args = headline.Args(out=tmp_path, **OPTIONS)
    assert headline.main(args) == 0
    said = capsys.readouterr().out
    assert f"the page: {(tmp_path / 'index.html').as_uri()}" in said
    assert [line.split()[:2] for line in said.splitlines()[-4:-1]] == [["none", "2"], ["se", "2"], ["vcse", "2"]]
    assert {path.name for path in tmp_path.glob("[!.]*") if path.is_file()} == {
        *("index.html", "table.csv", "claims.csv", "curves.csv", "study.json")
    }
    with Image.open(tmp_path / "minigrid-LavaGapS7/vcse/seed0/watch.gif") as film:
        assert film.is_animated
    page = (tmp_path / "index.html").read_text()
    assert page.count("data:image/gif;base64,") == 1
    assert "6 runs: 1 task, 3 methods, 2 seeds each" in page
    assert "no run reaches frame 100,000" in page
    assert "<span>--seeds</span> <span>2</span> <span>--first-seed</span> <span>0</span>" in page

    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("train.csv")}
    (tmp_path / "index.html").unlink()
    assert headline.main(args) == 0
    assert "all 6 runs in" in capsys.readouterr().err
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("train.csv")} == before
    assert (tmp_path / "index.html").read_text() == page

    # What the text says of its runs is what they are, and `vcse train` takes them for its own.
    assert {read_config(path).settings.injection for path in run_directories(tmp_path)} == {"after_gae"}
    train = "train --task minigrid/LavaGapS7 --bonus none se vcse --seeds 2 --frames 640 --eval-episodes 2 --quiet"
    assert main([*train.split(), "--out", str(tmp_path)]) == 0
    assert "all 6 runs in" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"seeds": 0}, "--seeds must be at least 1, got 0"),
        ({"first_seed": -1}, "--first-seed must be at least 0, got -1"),
        ({"jobs": 0}, "--jobs must be at least 1, got 0"),
    ],
)
def test_what_cannot_be_done_is_one_line(headline, tmp_path, wrong, message):
    with pytest.raises(SystemExit, match=message):
        headline.main(headline.Args(out=tmp_path, **wrong))
