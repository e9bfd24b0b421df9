import csv
import json
import math
from html.parser import HTMLParser

import numpy as np
import pytest

from vcse.agents.a2c.settings import a2c_settings
from vcse.reports.demo_page import Row, Story, comparisons, describe_making, headline, percent, write_page
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory

STORY = Story(
    title="A <title> of its own",
    explanation="What was run.",
    command="make demo",
    paper={"vcse": 0.9},
    paper_frames=10_000,
    notes=("A reason.",),
)


def make_run(out, method, seed, rates, *, task="minigrid/LavaGapS7", evaluated=(0.5, 0.25)):
    config = RunConfig(
        task=task,
        agent="a2c",
        method=method,
        seed=seed,
        reading="release",
        frames=10_000,
        settings=a2c_settings("vcse"),
    )
    directory = RunDirectory(out / config.name, config)
    for number, rate in enumerate(rates, 1):
        directory.append_row("train.csv", {"frame": 5000 * number, "success_rate": rate})
        timing = {"frame": 5000 * number, "unix_time": 1000.0 + 50 * number + seed, "frames_per_s": 100.0}
        directory.append_row("timing.csv", timing)
    if evaluated:
        directory.append_row("eval.csv", {"frame": 5000, "success_rate": 0.0, "argmax_success_rate": 0.0})
        row = {"frame": 10_000, "success_rate": evaluated[0], "argmax_success_rate": evaluated[1]}
        directory.append_row("eval.csv", row)
    directory.close()
    return directory.path


def make_runs(out):
    rates = {"none": [0.0, 0.1, 0.0, 0.1, 0.0, 0.1], "vcse": [0.8, 0.9, 1.0, 1.0, 0.9, 0.8]}
    return [make_run(out, method, seed, [0.0, rate]) for method in rates for seed, rate in enumerate(rates[method])]


def make_row(method, mean, *, low=0.0, high=1.0, paper=math.nan, runs=16, frame=100_096):
    return Row(method, runs, "0 to 15", frame, mean, low, high, mean, low, high, mean, mean, paper)


class Structure(HTMLParser):
    """Collects what a page refers to, and fails where tags do not close each other."""

    VOID = ("meta", "link", "img", "br", "source")

    def __init__(self):
        super().__init__()
        self.open, self.sources, self.links, self.text = [], [], [], ""

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "srcset"):
                self.sources.append(value)
            if name == "href":
                self.links.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        self.text += text


def test_the_table_has_the_numbers_of_the_runs(tmp_path):
    rows = write_page(make_runs(tmp_path), tmp_path / "page", STORY)
    none, vcse = rows
    assert (vcse.method, vcse.runs, vcse.seeds, vcse.frame) == ("vcse", 6, "0 to 5", 10_000)
    assert vcse.train_mean == pytest.approx(0.9)
    assert vcse.train_iqm == pytest.approx((0.8 + 0.9 + 0.9 + 1.0) / 4)
    assert 0.8 <= vcse.train_mean_low < 0.9 < vcse.train_mean_high <= 1
    assert 0.8 <= vcse.train_iqm_low < 0.9 < vcse.train_iqm_high <= 1
    assert (vcse.eval_sampled, vcse.eval_likeliest) == (0.5, 0.25)  # of the last row alone
    assert vcse.paper == 0.9
    assert none.train_mean == pytest.approx(0.05)
    assert math.isnan(none.paper)
    with open(tmp_path / "page" / "table.csv", newline="") as file:
        written = list(csv.DictReader(file))
    assert float(written[1]["train_mean"]) == vcse.train_mean
    assert written[0]["paper"] == ""


def test_the_page_needs_nothing_but_itself(tmp_path):
    film = tmp_path / "film.gif"
    film.write_bytes(b"GIF89a of a policy")
    page = tmp_path / "page"
    write_page(make_runs(tmp_path), page, STORY, film)
    text = (page / "index.html").read_text()
    found = Structure()
    found.feed(text)
    assert found.open == []
    assert len(found.sources) == 3  # light, dark, film
    assert all(source.startswith(("data:image/png;base64,", "data:image/gif;base64,")) for source in found.sources)
    for link in found.links:
        assert link == "data:," or (page / link).is_file()
    assert "://" not in text
    assert "@import" not in text
    words = (STORY.title, STORY.explanation, STORY.command, *STORY.notes, "90.0%", "not stated", "seeds 0 to 5")
    assert [word for word in words if word not in found.text] == []
    assert {path.name for path in page.iterdir()} == {"index.html", "table.csv", "curves.png", "curves-dark.png"}


def test_the_same_runs_give_the_same_page(tmp_path):
    paths = make_runs(tmp_path)
    for name in ("one", "two"):
        write_page(paths, tmp_path / name, STORY)
    assert (tmp_path / "one" / "index.html").read_bytes() == (tmp_path / "two" / "index.html").read_bytes()


def test_what_was_not_measured_is_left_open(tmp_path):
    rates = [[math.nan, math.nan], [math.nan, 0.5]]
    paths = [make_run(tmp_path, "vcse", seed, rates[seed], evaluated=(1.0, 1.0) if seed else ()) for seed in (0, 1)]
    (row,) = write_page(paths, tmp_path / "page", STORY)
    assert math.isnan(row.train_mean)
    assert math.isnan(row.eval_sampled)  # one run of two is not the method's mean
    assert "–" in (tmp_path / "page" / "index.html").read_text()


def test_two_tasks_are_refused(tmp_path):
    paths = [make_run(tmp_path, "vcse", 0, [0.5]), make_run(tmp_path, "vcse", 0, [0.5], task="minigrid/Unlock")]
    with pytest.raises(ValueError, match="a page is about one task, got 2: minigrid/LavaGapS7, minigrid/Unlock"):
        write_page(paths, tmp_path / "page", STORY)


def test_the_headline_names_the_best_first():
    rows = [make_row("none", 0.065), make_row("unknown", math.nan), make_row("vcse", 0.971)]
    assert headline(rows) == (
        "After 100,096 frames vcse reaches the goal in 97.1% of its training episodes, none in 6.5%, unknown in –."
    )


def test_differences_from_the_paper_are_told_as_they_are():
    story = Story("", "", "", paper_frames=100_000)
    said = comparisons(
        [
            make_row("none", 0.1),
            make_row("se", 0.05, low=0.04, high=0.07, paper=0.139),
            make_row("vcse", 0.97, low=0.94, high=0.99, paper=0.888),
            make_row("rcse", 0.5, low=0.4, high=0.6, paper=0.55),
        ],
        story,
    )
    assert said == [
        "se: 5.0% here, 13.9% in the paper. Ours is lower: the paper's number lies outside the 95% interval of our "
        "mean, 4.0% to 7.0%.",
        "vcse: 97.0% here, 88.8% in the paper. Ours is higher: the paper's number lies outside the 95% interval of our "
        "mean, 94.0% to 99.0%.",
        "rcse: 50.0% here, 55.0% in the paper. The two agree: the paper's number lies inside the 95% interval of our "
        "mean, 40.0% to 60.0%.",
        "none: the paper's text states no number.",
    ]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"frame": 20_096}, "are for 100,000 frames and these runs end at 20,096: they are not compared"),
        ({"runs": 4}, "With 4 runs of a method there is nothing to compare yet"),
    ],
)
def test_what_bears_no_comparison_is_not_compared(changes, said):
    (sentence,) = comparisons([make_row("vcse", 0.9, paper=0.888, **changes)], Story("", "", "", paper_frames=100_000))
    assert said in sentence
    assert comparisons([make_row("vcse", 0.9)], Story("", "", "", paper_frames=100_000)) == []


def test_how_it_was_made_comes_from_the_runs(tmp_path):
    paths = [make_run(tmp_path, "vcse", seed, [0.1, 0.2]) for seed in (0, 7)]
    meta = json.loads((paths[0] / "meta.json").read_text())
    (paths[1] / "meta.json").write_text(json.dumps(meta | {"commit": "f" * 40, "device": "a GPU", "cpus": 3}))
    making = describe_making(paths)
    assert making.frames == 20_000
    # Seed 0 began 5,000 frames at 100 frames/s before its first row, at 1,050; the last row is seed 7's, at 1,107.
    assert making.seconds == pytest.approx(1107 - (1050 - 50))
    assert making.commit == f"{(meta['commit'] or 'unknown')[:12]}; {'f' * 12}"
    assert making.machine.endswith("3 CPU cores, a GPU")
    assert f"numpy {np.__version__}" in making.versions


def test_shares_are_written_for_people():
    assert [percent(0.9712), percent(0.0), percent(1.0), percent(math.nan)] == ["97.1%", "0.0%", "100.0%", "–"]
