import csv
import dataclasses
import json
import math
import re
import shutil
import subprocess
from base64 import b64decode
from collections import Counter
from html.parser import HTMLParser
from urllib.parse import unquote
from xml.etree import ElementTree

import numpy as np
import pytest
from requirements import CHROMIUM, needs_chromium

from vcse.agents.a2c.settings import a2c_settings
from vcse.reports.archive import write_archive
from vcse.reports.external_curves import ForeignCurves
from vcse.reports.figures import MOST_RUNS, Drawn, Panel, learning_curves
from vcse.reports.loaded_runs import gather
from vcse.reports.panels import MOST_POINTS, draw
from vcse.reports.report import _gain, _score, write_report
from vcse.reports.sections import find_all, make_section
from vcse.reports.verdicts import ALL_TASKS, FEWEST_EPISODES
from vcse.runs.config import RunConfig
from vcse.studies.catalog import study
from vcse.studies.catalog.minigrid import CROSSED_MAP
from vcse.studies.manifest import StudyFile
from vcse.studies.study import Claim, narrowed

LAVA, EMPTY = "minigrid/LavaGapS7", "minigrid/Empty-16x16"
CROSSING = f"minigrid-table/SimpleCrossingS9N1-map{CROSSED_MAP}"


def make_run(out, method, seed, success, *, task=LAVA, frames=None, column="success_rate", visits=None, **config):
    frames = [100_000 * number // len(success) for number in range(1, len(success) + 1)] if frames is None else frames
    bonus = method if method in ("none", "se", "vcse") else "vcse"
    content = RunConfig(
        task=task,
        agent="a2c",
        method=method,
        seed=seed,
        reading="release",
        frames=frames[-1],
        settings=a2c_settings(bonus),
    ).to_json()
    path = out / task.replace("/", "-") / method / f"seed{seed}"
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps(content | config))
    meta = {
        "vcse": "0.1.0",
        "python": "3.12",
        "packages": {"numpy": "2.0"},
        "cpus": 2,
        "device": "cpu",
        "commit": "a" * 40,
    }
    (path / "meta.json").write_text(json.dumps(meta | {"command": ["train", "minigrid"]}))
    rows = [f"{frame},{'' if math.isnan(each) else each}" for frame, each in zip(frames, success, strict=True)]
    (path / "train.csv").write_text("\n".join((f"frame,{column}", *rows)) + "\n")
    (path / "DONE").write_text(f"{frames[-1]}\n")
    if visits is not None:
        np.save(path / "visits.npy", visits)
    return path


def make_study(out, name="minigrid", *, levels=None, tasks=(LAVA, EMPTY), seeds=6):
    """Return a study whose runs rise to a level, a little apart from each other."""
    levels = levels or {"none": 0.1, "se": 0.3, "vcse": 0.9}
    for task in tasks:
        for method, level in levels.items():
            for seed in range(seeds):
                make_run(out, method, seed, [level * part + 0.01 * seed for part in (0.2, 0.5, 1, 1)], task=task)
    asked = StudyFile(name, seeds, 0, None, list(tasks), list(levels), f"vcse study run {name}")
    (out / "study.json").write_text(json.dumps(asked.to_json()))
    return out


def read_csv(path):
    with open(path, newline="") as file:
        return list(csv.DictReader(file))


class Structure(HTMLParser):
    """Collects what a page refers to and says, and fails where tags do not close each other."""

    VOID = ("meta", "link", "img", "br", "source", "col", "wbr")

    def __init__(self, text):
        super().__init__()
        self.open, self.sources, self.links, self.text, self.data = [], [], [], "", ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        if tag not in self.VOID:
            self.open.append(tag)
        for name, value in attributes:
            if name in ("src", "srcset", "poster", "data", "action"):
                self.sources.append(value)
            if name == "href":
                self.links.append(value)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, text):
        if self.open[-1:] == ["script"]:
            self.data = self.data or text
        else:
            self.text += text


@pytest.mark.parametrize(("seeds", "is_said"), [(2, True), (4, True), (5, False)])
def test_an_interval_of_few_runs_is_said_to_be_from_the_lowest_to_the_highest(tmp_path, seeds, is_said):
    page = write_report(make_study(tmp_path, tasks=(LAVA,), seeds=seeds))
    assert ("spans the lowest to the highest" in Structure(page.read_text()).text) == is_said
    row = read_csv(page.parent / "table.csv")[-1]
    lowest, highest = 0.9, 0.9 + 0.01 * (seeds - 1)
    ends = [float(row[name]) for name in row if name in ("low", "high")]
    assert (ends == pytest.approx([lowest, highest])) == is_said


def test_a_study_gives_curves_numbers_and_verdicts(tmp_path):
    page = write_report(make_study(tmp_path))
    assert page == tmp_path / "report" / "index.html"
    found = Structure(page.read_text())
    entry = study("minigrid")
    words = (entry.title, entry.source, "36 runs: 2 tasks, 3 methods, 6 seeds each", *entry.notes)
    words += (
        *(claim.says for claim in entry.claims if not claim.where_run),
        "holds",
        "all tasks together",
        "vcse study run minigrid",
    )
    words += ("2 CPU cores", "numpy 2.0", "a" * 12, "a2c.bonus.k", "after 100K")
    assert [word for word in words if word not in found.text] == []
    (drawing,) = json.loads(found.data)
    assert [each["name"] for each in drawing["series"]] == ["none", "se", "vcse"]
    assert [panel["task"] for panel in drawing["panels"]] == [LAVA, EMPTY]
    panel = drawing["panels"][0]
    line = panel["lines"]["vcse"]
    assert (panel["frames"], line["runs"]) == ([25_000, 50_000, 75_000, 100_000], 6)
    assert line["iqm"][-1] == 925  # thousandths
    assert line["low"][-1] < 925 < line["high"][-1]
    assert line["std"][-1] == round(1000 * np.std(0.01 * np.arange(6)))
    names = {"index.html", "curves.png", "curves.svg", "curves.csv", "claims.csv", "table.csv"}
    assert {path.name for path in page.parent.iterdir()} == names


def test_the_files_have_the_numbers_of_the_runs(tmp_path):
    out = write_report(make_study(tmp_path)).parent
    (last,) = [
        row
        for row in read_csv(out / "curves.csv")
        if (row["task"], row["method"], row["frame"]) == (LAVA, "vcse", "100000")
    ]
    assert list(last) == ["task", "method", "frame", "runs", "iqm", "low", "high", "mean", "std", "measure"]
    assert [float(last[name]) for name in ("runs", "iqm", "mean")] == pytest.approx([6, 0.925, 0.925])
    (cell,) = [row for row in read_csv(out / "table.csv") if (row["task"], row["method"]) == (EMPTY, "se")]
    assert (cell["frame"], cell["runs"], float(cell["iqm"])) == ("100000", "6", pytest.approx(0.325))
    claims = read_csv(out / "claims.csv")
    first = claims[0]
    assert (first["by"], first["task"], first["verdict"], first["runs"]) == ("paper", LAVA, "holds", "6")
    assert float(first["difference"]) == pytest.approx((0.9 - 0.3) * (0.2 / 2 + 0.5 + 1 + 1 / 2) / 3)
    assert {row["task"] for row in claims if row["claim"] == first["claim"]} == {LAVA, EMPTY, ALL_TASKS}
    assert '<span class="reason">2 of 6 tasks</span>' in (out / "index.html").read_text()


def test_claims_have_paired_intervals_and_corrected_verdicts_behind_what_they_had_before(tmp_path):
    page = write_report(make_study(tmp_path))
    rows = read_csv(page.parent / "claims.csv")
    before = ["claim", "by", "measure", "task", "difference", "low", "high", "runs", "other_runs", "verdict", "reason"]
    added = ["pairing", "shared_seeds", "paired_difference", "paired_low", "paired_high", "mean_paired_difference"]
    added += ["low_90", "high_90", "p_value", "p_holm", "p_benjamini_hochberg", "by_holm", "by_benjamini_hochberg"]
    assert list(rows[0]) == before + added
    assert (rows[0]["pairing"], rows[0]["shared_seeds"], rows[0]["by_holm"]) == ("unpaired", "6", "holds")
    widths = [
        float(rows[0][high]) - float(rows[0][low]) for low, high in (("low", "high"), ("paired_low", "paired_high"))
    ]
    assert widths[1] < 1e-6 < widths[0]  # its seeds are as far apart in one method as in the other
    text = Structure(page.read_text()).text
    assert "No verdict on this page uses it" in text
    corrected = "5 are decided; after correction for multiple comparisons, 5 by Holm's method"
    assert f"Of 5 comparisons on single tasks, {corrected}" in text


def test_a_page_of_claims_that_are_judged_by_seed_says_so(tmp_path):
    make_study(tmp_path, tasks=(LAVA,), levels={"se": 0.3, "vcse": 0.9})
    entry = narrowed(study("minigrid"), tasks=[LAVA])
    entry = dataclasses.replace(entry, claims=(Claim("Faster.", "vcse", "se", paired=True),))
    page = write_report(tmp_path, entry=entry)
    text = Structure(page.read_text()).text
    assert "VCSE against SE: area under the curve, paired by seed." in text
    assert "Claims that say so are judged by it" in text
    assert "corrected for their number" not in text  # there is one


def test_a_page_of_a_margin_has_the_interval_that_decides(tmp_path):
    make_study(tmp_path, tasks=(LAVA,), levels={"se": 0.88, "vcse": 0.9})
    entry = narrowed(study("minigrid"), tasks=[LAVA])
    entry = dataclasses.replace(entry, claims=(Claim("Alike.", "vcse", "se", within=0.1),))
    page = write_report(tmp_path, entry=entry)
    (row,) = read_csv(page.parent / "claims.csv")
    low, low_90, high_90, high = (float(row[name]) for name in ("low", "low_90", "high_90", "high"))
    assert low < low_90 < high_90 < high < 0.1
    assert (row["verdict"], row["measure"]) == ("holds", "vcse against se: area under the curve, within 0.1")
    assert float(row["p_value"]) < 0.05
    assert f"90%: {_gain(low_90, True)} to {_gain(high_90, True)}" in Structure(page.read_text()).text


def test_a_verdict_that_is_hidden_by_those_on_other_tasks_is_told(tmp_path):
    make_study(tmp_path, tasks=(LAVA,))
    for method, level in (("vcse", 0.9), ("se", 0.3)):
        for seed in range(2):
            make_run(tmp_path, method, seed, [level, level + 0.01 * seed], task=EMPTY)
    asked = StudyFile("minigrid", 6, 0, None, [LAVA, EMPTY], ["none", "se", "vcse"], "")
    (tmp_path / "study.json").write_text(json.dumps(asked.to_json()))
    text = Structure(write_report(tmp_path).read_text()).text
    assert "holds on LavaGapS7" in text


def test_the_same_runs_give_the_same_files(tmp_path):
    runs = make_study(tmp_path / "runs")
    for name in ("one", "two"):
        write_report(runs, tmp_path / name)
    for path in (tmp_path / "one").iterdir():
        assert path.read_bytes() == (tmp_path / "two" / path.name).read_bytes(), path.name


def test_the_page_needs_nothing_but_itself(tmp_path):
    runs = make_study(tmp_path)
    (runs / "policy.gif").write_bytes(b"GIF89a of a policy")
    (runs / "large.mp4").write_bytes(bytes(2_000_000))
    for number in range(4):
        (runs / f"z{number}.mp4").write_bytes(b"film")
    page = write_report(runs)
    text = page.read_text()
    found = Structure(text)
    kinds = [source.partition(";")[0] for source in found.sources]
    assert kinds == ["data:image/gif", "data:video/mp4", "data:video/mp4"]
    for link in found.links:
        assert link == "data:," or link.startswith("#") or (page.parent / link).is_file()
    assert "://" not in text
    assert not re.search(r"@import|url\(|fetch\(|XMLHttpRequest|import\(|sendBeacon|WebSocket|EventSource", text)
    assert "1 video of 2 MB or more: not shown here." in found.text


def test_words_from_run_directories_cannot_become_a_script(tmp_path):
    evil = "</script><script>alert(1)</script><b onclick='x'>"
    out = tmp_path / "a<img src=x>"
    out.mkdir()
    for seed in range(2):
        path = make_run(out, f"m{seed}", seed, [0.1, 0.5], note=evil)
        config = json.loads((path / "config.json").read_text())
        (path / "config.json").write_text(json.dumps(config | {"method": evil, "task": f"minigrid/{evil}"}))
        (path / "meta.json").write_text(
            json.dumps({"commit": evil, "device": evil, "vcse": evil, "command": ["train", evil]})
        )
    (out / evil.replace("/", "")).mkdir()
    (out / evil.replace("/", "") / "config.json").write_text("{")
    text = write_report(out, tmp_path / "report").read_text()
    assert text.count("<script") == 2  # the drawing and what draws it
    assert text.count("</script>") == 2
    for tag in ("<b onclick", "<img src=x", "<script>alert"):
        assert tag not in text
    found = Structure(text)
    assert evil in found.text
    (drawing,) = json.loads(found.data)
    assert drawing["series"][0]["name"] == evil


def test_a_study_that_has_not_begun_does_not_hide_the_others(tmp_path, capsys):
    make_study(tmp_path / "one")
    (tmp_path / "two").mkdir()
    (tmp_path / "two" / "study.json").write_text((tmp_path / "one" / "study.json").read_text())
    said = []
    page = write_report(tmp_path, progress=said.append).read_text()
    assert "VCSE solves the tasks faster than SE." in page
    assert any("two holds no run" in each for each in said)
    with pytest.raises(ValueError, match="two holds no run"):
        write_report(tmp_path / "two")


def test_a_shorter_request_does_not_shorten_the_tables_of_longer_runs(tmp_path):
    study = make_study(tmp_path / "one", seeds=1)
    asked = StudyFile.from_json(json.loads((study / "study.json").read_text()))
    longer, shorter = (dataclasses.replace(asked, frames=frames) for frames in (4096, 1024))
    (study / "study.json").write_text(json.dumps(longer.joined(shorter).to_json()))
    write_report(study)
    after_short = {row["frame"] for row in read_csv(study / "report" / "table.csv")}
    (study / "study.json").write_text(json.dumps(longer.to_json()))
    write_report(study)
    assert {row["frame"] for row in read_csv(study / "report" / "table.csv")} == after_short


def test_several_studies_are_sections_of_one_page(tmp_path):
    make_study(tmp_path / "one")
    make_study(tmp_path / "two", "minigrid-full", tasks=("minigrid-full/LavaGapS7",))
    make_run(tmp_path / "loose", "vcse", 0, [0.5, 0.6])
    page = write_report(tmp_path)
    found = Structure(page.read_text())
    names = ["minigrid", "minigrid-full", tmp_path.name]
    assert [link for link in found.links if link.startswith("#")] == [f"#{name}" for name in names]
    assert [section["name"] for section in json.loads(found.data)] == names
    for name in names:
        assert (page.parent / name / "curves.csv").is_file()
    assert study("minigrid-full").title in found.text
    assert f"Runs in {tmp_path.name}" in found.text


def test_studies_with_the_same_title_are_told_apart_by_their_folders(tmp_path):
    for name in ("night", "day/again"):
        make_study(tmp_path / name, seeds=2, tasks=(LAVA,))
    make_study(tmp_path / "full", "minigrid-full", seeds=2, tasks=("minigrid-full/LavaGapS7",))
    text = write_report(tmp_path).read_text()
    title = study("minigrid").title
    headings = re.findall("<h2>(.*)</h2>", text)
    assert headings == [f"{title} (day/again)", study("minigrid-full").title, f"{title} (night)"]
    for heading in headings:
        assert f">{heading}</a>" in text


def test_an_archive_gives_the_same_curves_as_its_runs(tmp_path):
    runs = make_study(tmp_path / "runs")
    archive = tmp_path / "archive"
    write_archive(gather(runs).runs, archive)
    shutil.copy(runs / "study.json", archive)
    drawn = [json.loads(Structure(write_report(directory).read_text()).data) for directory in (runs, archive)]
    assert drawn[0][0]["panels"] == drawn[1][0]["panels"]
    for name in ("table.csv", "claims.csv"):
        assert (runs / "report" / name).read_bytes() == (archive / "report" / name).read_bytes()
    assert (runs / "report" / "curves.csv").exists()
    assert not (archive / "report" / "curves.csv").exists()  # the archive holds the curves
    assert 'href="curves.csv"' not in (archive / "report" / "index.html").read_text()


def test_any_column_can_be_shown_on_a_page_of_its_own_which_judges_nothing(tmp_path):
    make_study(tmp_path, seeds=2)
    for number, path in enumerate(sorted(tmp_path.glob("*/vcse/seed*/train.csv"))):
        header, *rows = path.read_text().splitlines()
        path.write_text("\n".join([f"{header},bonus_mean", *(f"{row},{-2 - number / 4}" for row in rows)]) + "\n")
    page = write_report(tmp_path, column="bonus_mean")
    assert page == tmp_path / "report-bonus_mean" / "index.html"
    found = Structure(page.read_text())
    (drawing,) = json.loads(found.data)
    assert not any(panel["isShare"] for panel in drawing["panels"])
    assert [panel["lines"].keys() for panel in drawing["panels"]] == [{"vcse"}, {"vcse"}]
    assert drawing["panels"][1]["lines"]["vcse"]["iqm"][-1] == pytest.approx(-2.125)
    assert "Learning curves: column bonus_mean" in found.text
    assert "Claims and verdicts" not in found.text
    assert not (page.parent / "claims.csv").exists()
    judged = write_report(tmp_path, column="success_rate")  # which is what the study is judged by
    assert read_csv(judged.parent / "claims.csv") == read_csv(write_report(tmp_path).parent / "claims.csv")


def test_a_column_without_a_number_in_it_is_said_to_be_so_and_is_no_matter_of_episodes(tmp_path):
    make_run(tmp_path, "none", 0, [math.nan, math.nan], task="dmc-pixels/hopper_stand", agent="drqv2")
    make_run(tmp_path, "vcse", 0, [math.nan, 0.5], task="dmc-pixels/hopper_stand", agent="drqv2")
    found = Structure(write_report(tmp_path, column="success_rate").read_text())
    assert "dmc-pixels/hopper_stand with none: 1 run without success_rate, not drawn." in found.text
    assert "Learning curves: success rate over the last 10 training episodes" in found.text
    (drawing,) = json.loads(found.data)
    assert [each["name"] for each in drawing["series"]] == ["vcse"]


def test_where_some_method_was_not_run_on_some_task_it_is_said(tmp_path):
    make_study(tmp_path, seeds=1)
    shutil.rmtree(tmp_path / EMPTY.replace("/", "-") / "se")
    text = Structure(write_report(tmp_path).read_text()).text
    assert "5 runs: 2 tasks, 3 methods, 1 seed each, not every method on every task." in text


@pytest.mark.parametrize(("number", "told"), [(-1.8057, "\u22121.81"), (-2500.0, "\u22122,500"), (math.nan, "–")])
def test_a_negative_score_has_a_minus_sign(number, told):
    assert _score(number, False) == told


def test_a_page_about_one_task_begins_with_how_the_methods_ended(tmp_path):
    one = Structure(write_report(make_study(tmp_path / "one", tasks=(LAVA,))).read_text()).text
    assert (
        "After 100K frames: VCSE 92.5%; SE 32.5%; no bonus 12.5% (mean over runs, success rate over the last 100" in one
    )
    assert "(mean over runs" not in Structure(write_report(make_study(tmp_path / "two")).read_text()).text


def test_what_is_said_of_a_study_can_be_given(tmp_path):
    runs = make_study(tmp_path / "runs", tasks=(LAVA,))
    entry = narrowed(study("minigrid"), tasks=[LAVA])
    entry = dataclasses.replace(entry, title="Of one task", source="ours. More", notes=("A note.",))
    found = Structure(write_report(runs, tmp_path / "page", entry=entry).read_text())
    words = ("Of one task", "Ours. More. 18 runs", "A note.", entry.claims[0].says, "vcse study run minigrid")
    assert [word for word in words if word not in found.text] == []
    assert {row["task"] for row in read_csv(tmp_path / "page" / "claims.csv")} == {LAVA}


def test_runs_of_no_study_are_shown_without_claims(tmp_path):
    for seed in range(3):
        make_run(tmp_path / "mine", "own", seed, [12.5, 800.0], column="return_mean", task="dmc/hopper_hop")
    found = Structure(write_report(tmp_path / "mine").read_text())
    (drawing,) = json.loads(found.data)
    assert (drawing["name"], drawing["panels"][0]["isShare"]) == ("mine", False)
    assert "Claims and verdicts" not in found.text
    assert "800" in found.text
    assert "vcse train minigrid" in found.text
    assert "Runs in mine" in found.text
    assert "claims.csv" not in found.text
    assert not (tmp_path / "mine" / "report" / "claims.csv").exists()


def test_a_run_that_does_not_know_a_metric_yet_does_not_choose_it_for_all(tmp_path):
    for seed in range(3):
        make_run(tmp_path / "mine", "vcse", seed, [0.5, 1.0], column="eval_return_mean")
    make_run(tmp_path / "mine", "none", 0, [3.0, 3.0], column="episodes")
    page = write_report(tmp_path / "mine").read_text()
    assert "Learning curves: mean return in evaluation" in page


def test_all_commands_are_shown(tmp_path):
    commands = [["train", "minigrid", "--seeds", str(number)] for number in range(6)] + [["resume", "a b"]]
    for seed, command in enumerate([*commands, commands[0]]):
        path = make_run(tmp_path / "mine", "vcse", seed, [0.5])
        (path / "meta.json").write_text(json.dumps({"command": command}))
    text = write_report(tmp_path / "mine").read_text()
    expected = [f"vcse train minigrid --seeds {number}" for number in range(6)] + ["vcse resume &#39;a b&#39;"]
    shown = re.findall("<pre>(.*)</pre>", text)
    assert [re.sub("</?span>", "", each) for each in shown] == expected  # a line breaks between words alone
    assert shown[0] == "<span>vcse</span> <span>train</span> <span>minigrid</span> <span>--seeds</span> <span>0</span>"
    make_study(tmp_path / "study", seeds=1)
    content = json.loads((tmp_path / "study" / "study.json").read_text())
    (tmp_path / "study" / "study.json").write_text(json.dumps(content | {"command": "vcse one\nvcse two"}))
    shown = re.findall("<pre>(.*)</pre>", write_report(tmp_path / "study").read_text())
    assert [re.sub("</?span>", "", each) for each in shown] == ["vcse one", "vcse two"]


def test_what_is_no_command_of_ours_is_not_shown_as_one(tmp_path):
    noted = [["train", "minigrid"], ["-f", "/home/someone/kernel-123.json"], ["/home/someone/script.py"], [], None]
    for seed, arguments in enumerate(noted):
        path = make_run(tmp_path, "vcse", seed, [0.5])
        (path / "meta.json").write_text(json.dumps({"command": arguments}))
    text = write_report(tmp_path).read_text()
    shown = re.findall("<pre>(.*)</pre>", text)
    assert [re.sub("</?span>", "", each) for each in shown] == ["vcse train minigrid"]
    assert "someone" not in text


def test_tasks_of_every_command_are_judged(tmp_path):
    make_study(tmp_path)
    first, second = (StudyFile("minigrid", 6, 0, None, [task], ["none", "se", "vcse"], task) for task in (LAVA, EMPTY))
    for asked in (first, first.joined(second)):
        (tmp_path / "study.json").write_text(json.dumps(asked.to_json()))
        rows = read_csv(write_report(tmp_path).parent / "claims.csv")
        judged = {row["task"] for row in rows if row["claim"] == study("minigrid").claims[0].says}
        assert judged == {LAVA, "all tasks together", *([EMPTY] if asked.earlier else [])}


def test_settings_of_a_bonus_are_those_of_methods_that_have_one(tmp_path):
    text = Structure(write_report(make_study(tmp_path, seeds=1)).read_text()).text
    _, _, differences = text.partition("How the methods differ")
    differences, _, common = differences.partition("Settings that all runs share")
    assert re.sub(r"\s+", "", differences) == "methoda2c.bonus.namea2c.bonus.knobonusnonenone–SEsese5VCSEvcsevcse3"
    assert "a2c.beta0.005" in re.sub(r"\s+", "", common)
    for seed in range(2):
        make_run(tmp_path / "none", "none", seed, [0.5])
    text = Structure(write_report(tmp_path / "none").read_text()).text
    assert "a2c.bonus.name" in text
    assert "a2c.bonus.k" not in text


def test_a_setting_of_the_bonus_is_told_where_a_step_cost_makes_it_matter(tmp_path):
    for method, bonus, deviations in (
        ("none", "none", {}),
        ("none-cost", "none", {"step_cost": 0.02}),
        ("vcse", "vcse", {}),
    ):
        path = make_run(tmp_path, method, 0, [0.5, 0.6])
        settings = a2c_settings(bonus, "release", task=LAVA, **deviations)
        config = json.loads((path / "config.json").read_text())
        config["a2c"] = json.loads(json.dumps(dataclasses.asdict(settings)))
        (path / "config.json").write_text(json.dumps(config))
    (section,) = (
        make_section(each, (), column=None, taken=(), progress=print) for each in find_all(tmp_path, None, print)
    )
    assert section.differences["a2c.injection"] == {"none": "–", "none-cost": "reward", "vcse": "after_gae"}
    assert section.differences["a2c.step_cost"] == {"none": "0", "none-cost": "0.02", "vcse": "0"}


def test_runs_of_an_earlier_release_stand_beside_those_of_this_one(tmp_path):
    out = write_report(make_study(tmp_path, seeds=2)).parent
    before = {name: (out / name).read_bytes() for name in ("claims.csv", "table.csv")}
    shown = Structure((out / "index.html").read_text()).text.partition("How the methods differ")[2]
    assert "a2c.values" in shown
    for path in tmp_path.rglob("seed1/config.json"):
        content = json.loads(path.read_text()) | {"schema_version": 1}
        content["keeps_replay"], content["values"] = content.pop("keep_replay"), content["a2c"].pop("values")
        content["a2c"]["keeps_extrinsic_critic"] = content["a2c"].pop("keep_extrinsic_critic")
        path.write_text(json.dumps(content))
    write_report(tmp_path)
    assert {name: (out / name).read_bytes() for name in before} == before
    assert Structure((out / "index.html").read_text()).text.partition("How the methods differ")[2] == shown


def test_one_run_has_no_interval(tmp_path):
    out = write_report(make_study(tmp_path, seeds=1)).parent
    for name in ("table.csv", "claims.csv"):
        assert {(row["low"], row["high"]) for row in read_csv(out / name)} == {("", "")}
    assert {row["runs"] for row in read_csv(out / "table.csv")} == {"1"}
    assert not re.search(
        r"\d to ", Structure((out / "index.html").read_text()).text.partition("Claims and verdicts")[2]
    )


def test_claims_that_lack_nothing_but_runs_are_no_findings(tmp_path):
    few = write_report(make_study(tmp_path / "few", seeds=4)).read_text()
    assert '<p class="result verdict too-few-runs">too few runs</p>' in few
    assert not re.search('<p class="result verdict undecided"', few)
    assert re.search(r'<li class="verdict too-few-runs">\d with too few runs</li>', few)
    alike = write_report(make_study(tmp_path / "alike", levels={"none": 0.5, "se": 0.5, "vcse": 0.5})).read_text()
    assert '<p class="result verdict undecided">undecided</p>' in alike
    assert "too few runs<" not in alike


def test_lines_begin_where_enough_episodes_have_ended(tmp_path):
    for method, episodes in (("se", (4, 20, 40)), ("vcse", (4, 8, 12))):
        for seed in range(2):
            path = make_run(tmp_path / "mine", method, seed, [1.0, 0.5, 0.5])
            rows = [f"{1000 * (row + 1)},{count},0.5" for row, count in enumerate(episodes)]
            (path / "train.csv").write_text("\n".join(("frame,episodes,success_rate", *rows)) + "\n")
    found = Structure(write_report(tmp_path / "mine").read_text())
    (drawing,) = json.loads(found.data)
    assert drawing["panels"][0]["lines"]["se"]["iqm"] == [None, 500, 500]
    assert f"A line starts once {FEWEST_EPISODES} training episodes of every run have ended" in found.text
    reason = f"no line, as at no point have {FEWEST_EPISODES} episodes of every run ended."
    assert f"{LAVA} with vcse: {reason}" in found.text
    assert (tmp_path / "mine" / "report" / "curves.png").is_file()
    shutil.rmtree(tmp_path / "mine" / "minigrid-LavaGapS7" / "se")
    page = write_report(tmp_path / "mine", tmp_path / "none")
    assert "curves.png" not in Structure(page.read_text()).links


def test_what_is_wrong_is_said_on_the_page(tmp_path):
    make_study(tmp_path)
    folder = tmp_path / "minigrid-LavaGapS7" / "vcse"
    (folder / "seed0" / "train.csv").write_text("frame,success_rate\n25000,0.1\n50000,")
    (folder / "seed0" / "DONE").unlink()
    (folder / "seed1" / "config.json").write_text("{")
    said = []
    text = Structure(write_report(tmp_path, progress=said.append).read_text()).text
    assert [each for each in said if each.endswith(".")] == re.findall(
        r"^\S.*\.$", text.partition("Problems found in the data")[2].partition("How it was made")[0], re.MULTILINE
    )
    assert "minigrid-LavaGapS7/vcse/seed0: the last row of train.csv is half written and is left out." in text
    assert "minigrid-LavaGapS7/vcse/seed1 is left out: config.json cannot be read" in text
    assert "1 run of 35 is not finished: its curve ends early." in text
    assert f"1 of the 36 runs that were asked for are not here; the first is {LAVA} with vcse, seed 1." in text
    assert "up to frame 25,000, where the shortest run ends" in text


def test_a_study_file_that_cannot_be_read_leaves_the_curves(tmp_path):
    make_study(tmp_path)
    for content in ("{", '{"schema_version": 3}', json.dumps(StudyFile("x", 1, 0, None, [], [], "").to_json())):
        (tmp_path / "study.json").write_text(content)
        text = Structure(write_report(tmp_path).read_text()).text
        assert "No claim is judged: " in text


def test_a_directory_without_runs_is_refused(tmp_path):
    with pytest.raises(ValueError, match="holds no run"):
        write_report(tmp_path)
    with pytest.raises(ValueError, match="nowhere is not a directory"):
        write_report(tmp_path / "nowhere")
    make_run(tmp_path, "vcse", 0, [0.5])
    (tmp_path / "minigrid-LavaGapS7" / "vcse" / "seed0" / "config.json").write_text("{")
    with pytest.raises(ValueError, match=r"holds no run that can be read: .*seed0 is left out"):
        write_report(tmp_path)


def test_visits_are_drawn_where_the_study_is_about_them(tmp_path):
    visits = np.zeros((2, 25, 25), dtype=np.int64)
    visits[:, 1, 1], visits[1, 7, 7] = 3, 1
    for method in ("se", "vcse"):
        for seed in range(2):
            run = {"visits": visits, "visits_every_frames": 500}
            make_run(tmp_path, method, seed, [0.0], task=CROSSING, frames=[1000], **run)
    asked = StudyFile("minigrid-heatmap", 2, 0, 1000, [CROSSING], ["se", "vcse"], "vcse study run minigrid-heatmap")
    (tmp_path / "study.json").write_text(json.dumps(asked.to_json()))
    found = Structure(write_report(tmp_path).read_text())
    assert [source.partition(",")[0] for source in found.sources] == ["data:image/png;base64"] * 2
    (drawing,) = json.loads(found.data)
    (panel,) = drawing["panels"]
    assert (panel["frames"], panel["lines"]["vcse"]["iqm"]) == ([500, 1000], [0, 250])


def test_other_peoples_curves_are_dashed_lines_on_their_task(tmp_path):
    scores = np.array([[0.1, 0.2, np.nan], [0.3, 0.4, 0.5]])
    frames = np.array([1000, 2000, 3000])
    theirs = ForeignCurves("somewhere/theirs.csv", "LavaGapS7", "vcse", frames, scores, "success_rate")
    elsewhere = theirs._replace(source="other.csv", task="DoorKey-8x8")
    found = Structure(write_report(make_study(tmp_path), overlays=[theirs, elsewhere]).read_text())
    (drawing,) = json.loads(found.data)
    assert [(each["name"], each["is_dashed"]) for each in drawing["series"]][2:] == [
        ("vcse", False),
        ("vcse, theirs.csv", True),
    ]
    assert drawing["series"][2]["colour"] == drawing["series"][3]["colour"]
    line = drawing["panels"][0]["lines"]["vcse, theirs.csv"]
    assert (line["frames"], line["iqm"], line["runs"]) == ([1000, 2000, 3000], [200, 300, 500], [2, 2, 1])
    assert "vcse, theirs.csv" not in drawing["panels"][1]["lines"]
    here = f"success_rate on {LAVA}, {EMPTY}; --overlay-task says which of these tasks it is about."
    assert f"Nothing of other.csv is drawn: it has success_rate on DoorKey-8x8, and here is {here}" in found.text
    assert "Dashed lines are other people's results, up to the last frame of ours." in found.text
    returns = theirs._replace(metric="return_mean")
    found = Structure(write_report(tmp_path, overlays=[returns]).read_text())
    assert "theirs.csv is drawn: it has return_mean on LavaGapS7, and here is success_rate.\n" in found.text
    assert "Dashed lines" not in found.text


def test_other_peoples_curves_of_one_method_on_several_tasks_are_one_entry_of_the_legend(tmp_path):
    make_study(tmp_path, seeds=1)
    frames, scores = np.array([25_000, 100_000, 1_000_000]), np.array([[0.2, 0.6, 0.9]])
    overlays = [
        ForeignCurves(f"{task[-3:]}.csv", task, "theirs", frames, scores, "success_rate") for task in (LAVA, EMPTY)
    ]
    (drawing,) = json.loads(Structure(write_report(tmp_path, overlays=overlays).read_text()).data)
    theirs = [each for each in drawing["series"] if each["is_dashed"]]
    assert [each["name"] for each in theirs] == ["theirs, several files"]
    for panel in drawing["panels"]:
        line = panel["lines"]["theirs, several files"]
        assert (line["frames"], line["iqm"]) == ([25_000, 100_000], [200, 600])  # as far as ours go
    assert "pS7.csv, x16.csv" in theirs[0]["explanation"]


def test_what_would_come_to_nothing_is_refused_before_anything_is_judged_or_drawn(tmp_path):
    make_study(tmp_path / "runs", seeds=1)
    (tmp_path / "file").write_text("")
    said = []
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        with pytest.raises(ValueError, match=r"the report cannot be written to .*; --out names a directory"):
            write_report(tmp_path / "runs", out, progress=said.append)
    with pytest.raises(ValueError, match=f"--overlay-task must be one of {LAVA}, {EMPTY}, got 'LavaGap'"):
        write_report(tmp_path / "runs", overlay_task="LavaGap", progress=said.append)
    assert not [each for each in said if "judging" in each or "drawing" in each]
    assert not (tmp_path / "runs" / "report").exists()
    for name in ("LavaGapS7", LAVA):
        write_report(tmp_path / "runs", overlay_task=name)


def test_tasks_are_put_together_where_the_figure_is_an_aggregate(tmp_path):
    tasks = study("dmc-pixels-rcse").task_names
    for task, level in zip(tasks, (100.0, 300.0), strict=True):
        for method in ("rcse", "vcse"):
            for seed in range(5):
                made = {"task": task, "column": "eval_return_mean", "frames": [1000, 2000, 3000]}
                make_run(tmp_path, method, seed, [0.0, level, level + 10 * seed], **made)
    asked = StudyFile("dmc-pixels-rcse", 5, 0, 3000, list(tasks), ["rcse", "vcse"], "")
    (tmp_path / "study.json").write_text(json.dumps(asked.to_json()))
    (drawing,) = json.loads(Structure(write_report(tmp_path).read_text()).data)
    assert [panel["task"] for panel in drawing["panels"]] == ["all tasks", *tasks]
    line = drawing["panels"][0]["lines"]["vcse"]
    assert (line["runs"], line["iqm"][:2]) == (10, [0, 200])
    assert line["low"][1] == line["high"][1] == 200  # runs are drawn within their task


@pytest.mark.parametrize(("methods", "labels"), [(("a", "b"), ["a  30", "b  30"]), (("a", "b" * 20), ["1", "2"])])
def test_long_names_stand_below_the_figure_and_returns_have_their_own_scale(methods, labels):
    middle = np.array([-10.0, 30.0])
    line = Drawn(np.array([1, 2]), np.array([3, 3]), middle, middle - 10, middle + 10, middle, np.full(2, 10.0))
    figure = learning_curves([Panel("task", dict.fromkeys(methods, line), is_share=False)])
    (panel,) = figure.axes
    assert [label.get_text() for label in panel.texts] == labels
    assert [len(legend.get_texts()) for legend in figure.legends] == ([2] if labels == ["1", "2"] else [])
    low, high = panel.get_ylim()
    assert (low, high) == pytest.approx((-20 - 1.2, 40 + 1.2))


@pytest.mark.parametrize(
    ("number", "is_share", "beside", "told"),
    [
        (0.125, True, 0.0, "+12.5"),
        (-85.47, False, 129.6, "−85"),
        (16.25, False, 0.0, "+16.2"),
        (0.00174, False, -1.6, "+0.00"),
        (1050.4, False, 0.0, "+1,050"),
        (0.0, False, 0.0, "+0"),
        (math.nan, False, 0.0, "–"),
    ],
)
def test_a_difference_has_a_sign_and_no_more_digits_than_are_read(number, is_share, beside, told):
    assert _gain(number, is_share, beside) == told


def test_runs_that_end_early_or_have_no_score_yet_are_told_apart():
    frames = np.array([1, 2, 3])
    scores = np.array([[np.nan, 0.2, 0.4], [0.0, 0.4, np.nan], [0.1, 0.6, np.nan]])
    present = np.array([[True, True, True], [True, True, False], [True, True, False]])
    line = draw(frames, scores, present)
    assert line.runs.tolist() == [3, 3, 1]
    np.testing.assert_allclose(line.iqm, [np.nan, 0.4, 0.4])
    np.testing.assert_allclose(line.mean, [np.nan, 0.4, 0.4])
    np.testing.assert_allclose(line.std, [np.nan, np.std([0.2, 0.4, 0.6]), 0])


def test_long_curves_are_thinned_out_and_other_frames_are_put_together(tmp_path):
    long = np.linspace(0, 1, 1000)
    make_run(tmp_path, "vcse", 0, long.tolist(), frames=list(range(10, 10_010, 10)))
    make_run(tmp_path, "vcse", 1, long[:500].tolist(), frames=list(range(20, 10_020, 20)))
    (drawing,) = json.loads(Structure(write_report(tmp_path).read_text()).data)
    (panel,) = drawing["panels"]
    assert len(panel["frames"]) == MOST_POINTS
    assert (panel["frames"][0], panel["frames"][-1]) == (10, 10_000)
    line = panel["lines"]["vcse"]
    assert set(line["runs"]) == {1, 2}
    every, runs = line["every"], line["scores"]
    assert {len(run) for run in runs} == {-(-(MOST_POINTS - 1) // every) + 1}
    assert [run[0] for run in runs] == [0, None]  # percents; the second begins later
    assert [run[-1] for run in runs] == [100, 50]


def test_runs_are_drawn_one_by_one_up_to_a_number_that_the_page_states(tmp_path):
    make_study(tmp_path / "all", tasks=(LAVA,), levels={"vcse": 0.8}, seeds=MOST_RUNS)
    make_study(tmp_path / "more", tasks=(LAVA,), levels={"vcse": 0.8}, seeds=MOST_RUNS + 2)
    for name, is_hidden in (("all", False), ("more", True)):
        found = Structure(write_report(tmp_path / name).read_text())
        ((line,),) = ([panel["lines"]["vcse"] for panel in each["panels"]] for each in json.loads(found.data))
        assert [run[-1] for run in line["scores"]] == [80 + seed for seed in range(MOST_RUNS)]
        assert (f"the first {MOST_RUNS} of each method" in found.text) == is_hidden


def test_methods_are_named_in_words_and_their_labels_stay_findable(tmp_path):
    make_study(tmp_path, levels={"none": 0.1, "vcse": 0.9, "se-matched": 0.9, "vcse-reward": 0.8, "mine": 0.7})
    page = write_report(tmp_path)
    found = Structure(page.read_text())
    (drawing,) = json.loads(found.data)
    names = {each["name"]: each["label"] for each in drawing["series"]}
    in_words = {"none": "no bonus", "vcse": "VCSE", "se-matched": "VCSE without value", "mine": "mine"}
    assert names == in_words | {"vcse-reward": "VCSE in the reward"}
    assert "VCSE against no bonus: area under the curve." in found.text
    assert 'title="se-matched"' in page.read_text()  # of the rows of the tables
    assert {row["method"] for row in read_csv(page.parent / "table.csv")} == set(names)
    assert "VCSE without value" in (page.parent / "curves.svg").read_text()
    differ = found.text.partition("How the methods differ")[2].partition("Settings that all runs share")[0]
    assert "VCSE in the reward vcse-reward" in differ


def test_the_claim_about_the_control_leads_the_page_and_no_file(tmp_path):
    page = write_report(make_study(tmp_path, levels={"se": 0.3, "vcse": 0.9, "se-matched": 0.9, "none": 0.1}))
    text = Structure(page.read_text()).text
    before, _, claims = text.partition("Claims and verdicts")
    about = next(claim.says for claim in study("minigrid").claims if claim.better == "vcse" and claim.where_run)
    assert re.search(
        rf"{about} Undecided:\s+VCSE against VCSE without value, \+0.0 points \[.*\], mean of all tasks", before
    )
    assert claims.index(about) < claims.index("VCSE solves the tasks faster than SE.")
    rows = read_csv(page.parent / "claims.csv")
    assert (rows[0]["claim"], rows[-1]["claim"]) == ("VCSE solves the tasks faster than SE.", about)
    entry = dataclasses.replace(
        study("minigrid"), claims=(Claim("Alike.", "vcse", "se-matched", tasks=(LAVA,), within=0.1),)
    )
    margin = Structure(write_report(tmp_path, tmp_path / "margin", entry=entry).read_text()).text
    (row,) = read_csv(tmp_path / "margin" / "claims.csv")
    assert f"Holds:\nVCSE against VCSE without value, +0.0 points [{_gain(float(row['low_90']), True)}, " in margin
    assert "(90% interval)." in margin
    said = []
    without = write_report(make_study(tmp_path / "without"), progress=said.append).read_text()
    assert '<ul class="lead"' not in without
    assert "judging 3 claims" in said
    assert '<li class="faint">3 claims, 1 more about methods not run</li>' in without  # as vcse study show counts them
    assert '<li class="faint">4 claims</li>' in page.read_text()


def test_where_no_run_ever_succeeds_returns_are_drawn_too(tmp_path):
    for method, level in (("none", 3.0), ("vcse", 5.0)):
        for seed in range(2):
            path = make_run(tmp_path, method, seed, [0.0, 0.0], task="metaworld/door-open", column="eval_success_rate")
            rows = [f"{frame},0,{level + seed}" for frame in (50_000, 100_000)]
            (path / "train.csv").write_text("\n".join(("frame,eval_success_rate,eval_return_mean", *rows)) + "\n")
            make_run(
                tmp_path, method, seed, [0.0, 0.5 * seed], task="metaworld/drawer-open", column="eval_success_rate"
            )
    page = write_report(tmp_path)
    (drawing,) = json.loads(Structure(page.read_text()).data)
    shown = [(each["task"], each["label"], each["isShare"], each["isZero"]) for each in drawing["panels"]]
    success = "success rate in evaluation"
    assert shown == [
        ("metaworld/door-open", success, True, True),
        ("metaworld/door-open", "mean return in evaluation", False, False),
        ("metaworld/drawer-open", success, True, False),
    ]
    assert drawing["panels"][1]["lines"]["vcse"]["iqm"] == [5.5, 5.5]
    rows = read_csv(page.parent / "curves.csv")
    assert {row["measure"] for row in rows if row["task"].endswith("door-open")} == {
        success,
        "mean return in evaluation",
    }
    assert {row["iqm"] for row in read_csv(page.parent / "table.csv") if row["task"].endswith("door-open")} == {"0.0"}


def dump(page, *, fragment="", options=(), profile):
    """Return what Chromium makes of a page when it can reach nothing."""
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={profile}"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000", *options]
    command += ["--window-size=1400,1200", f"file://{page}{fragment}"]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


def with_script(page, script):
    """Return a copy of a page that runs a script at its end."""
    copy = page.with_name("scripted.html")
    copy.write_text(page.read_text().replace("</body>", f"<script>{script}</script></body>"))
    return copy


def drawn_paths(dom, kind="middle"):
    """Return the attributes of all lines or bands, in the order in which they were drawn."""
    return [dict(re.findall(r'([\w-]+)="([^"]*)"', tag)) for tag in re.findall(rf'<path class="{kind}[^>]*>', dom)]


@needs_chromium
def test_a_browser_draws_the_curves_and_shows_their_numbers(tmp_path):
    page = write_report(make_study(tmp_path / "runs"))
    profile = tmp_path / "profile"
    whole = dump(page, options=["--dump-dom"], profile=profile)
    lines = drawn_paths(whole)
    assert [line["data-method"] for line in lines] == ["none", "se", "vcse"] * 2
    assert [float(line["data-last"]) for line in lines[:3]] == pytest.approx([0.125, 0.325, 0.925])
    assert {line["data-points"] for line in lines} == {"4"}
    assert whole.count('aria-pressed="true" data-method') == 3

    chosen = dump(page, fragment="#off=se&band=std&hover=52000", options=["--dump-dom"], profile=profile)
    assert [line["data-method"] for line in drawn_paths(chosen)] == ["none", "vcse"] * 2
    assert 'aria-pressed="false" data-method="se"' in chosen
    assert re.search(r'aria-pressed="true" data-band="std"', chosen)
    assert chosen.count("<b>frame 50,000</b>") == 2
    shown = re.findall(r'<tr data-method="(\w+)" data-value="([\d.]+)">', chosen)
    assert [(method, float(value)) for method, value in shown[:2]] == [("vcse", 0.475), ("none", 0.075)]
    assert "47.5%" in chosen
    assert "± 1.7%" in chosen
    assert "6 runs each" in chosen
    assert drawn_paths(chosen, "band")[1]["d"] != drawn_paths(whole, "band")[2]["d"]

    image = tmp_path / "image.png"
    dump(page, options=[f"--screenshot={image}"], profile=profile)
    assert image.stat().st_size > 20_000


@needs_chromium
def test_a_browser_draws_single_runs_and_saves_what_it_shows_as_svg(tmp_path):
    page = write_report(make_study(tmp_path / "runs", seeds=3))
    options, profile = ["--dump-dom"], tmp_path / "profile"
    # What would be saved to a file is put on the page.
    script = """
        URL.createObjectURL = blob => { blob.text().then(text => document.title = btoa(encodeURI(text))); return "#"; };
        document.querySelector("[data-save]").click();
    """
    dom = dump(with_script(page, script), options=options, profile=profile)
    thin = drawn_paths(dom, "run")
    assert [(each["data-method"], each["d"].count("M")) for each in thin] == [("none", 3), ("se", 3), ("vcse", 3)] * 2
    drawing = ElementTree.fromstring(unquote(b64decode(re.search("<title>(.*)</title>", dom)[1]).decode()))
    found = list(drawing.iter("{http://www.w3.org/2000/svg}path"))
    shown = [(each.get("data-method"), each.get("class").split()[0]) for each in found if each.get("class") != "leader"]
    assert Counter(shown) == Counter(
        {(m, kind): 2 for m in ("none", "se", "vcse") for kind in ("run", "band", "middle")}
    )
    assert {each.get("style").count("stroke-width") for each in found} == {1}  # it needs no style of the page
    words = [each.text for each in drawing.iter("{http://www.w3.org/2000/svg}text")]
    assert {LAVA, EMPTY, "no bonus", "SE", "VCSE", "100%"} <= set(words)
    assert drawn_paths(dump(page, fragment="#runs=off", options=options, profile=profile), "run") == []


@needs_chromium
def test_a_browser_draws_a_point_where_there_is_no_line(tmp_path):
    make_run(tmp_path / "runs", "vcse", 0, [0.5])
    make_run(tmp_path / "runs", "se", 0, [0.1, 0.4])
    dom = dump(write_report(tmp_path / "runs"), options=["--dump-dom"], profile=tmp_path / "profile")
    assert re.findall(r'<circle class="point"[^>]* data-method="(\w+)"', dom) == ["vcse"]


@needs_chromium
def test_a_browser_says_where_there_is_nothing_to_draw(tmp_path):
    path = make_run(tmp_path / "runs", "vcse", 0, [1.0])
    profile = tmp_path / "profile"
    whole = dump(write_report(tmp_path / "runs"), options=["--dump-dom"], profile=profile)
    assert ">no number to draw yet</text>" not in whole
    (path / "train.csv").write_text(f"frame,episodes,success_rate\n1000,{FEWEST_EPISODES - 1},1.0\n")
    empty = dump(write_report(tmp_path / "runs"), options=["--dump-dom"], profile=profile)
    assert empty.count(">no number to draw yet</text>") == 1
    assert ">100%</text>" in empty


@needs_chromium
def test_a_browser_names_lines_by_numbers_where_names_do_not_fit(tmp_path):
    names = [f"vcse-beta-{number}" for number in range(7)]
    for name in names:
        make_run(tmp_path / "runs", name, 0, [0.5, 1.0])
    dom = dump(write_report(tmp_path / "runs"), options=["--dump-dom"], profile=tmp_path / "profile")
    assert sorted(re.findall(r'<text class="end"[^>]*>([^<]*)</text>', dom)) == list("1234567")
    assert [f'<span class="faint">{number}</span> {name}' in dom for number, name in enumerate(names, 1)] == [True] * 7
    assert len(drawn_paths(dom, "leader")) == 6  # all end at 100 %, and one label stands there


@needs_chromium
def test_a_browser_says_that_no_run_ever_succeeded(tmp_path):
    for seed in range(3):
        make_run(tmp_path / "runs", "vcse", seed, [0.0, 0.0])
    dom = dump(write_report(tmp_path / "runs"), options=["--dump-dom"], profile=tmp_path / "profile")
    assert ">0% in every run throughout training</text>" in dom
    assert ">100%</text>" in dom  # and not an axis that ends at 5 %


@needs_chromium
def test_a_browser_dots_a_line_where_some_runs_have_ended(tmp_path):
    make_run(tmp_path / "runs", "vcse", 0, [0.1, 0.2, 0.3, 0.4])
    make_run(tmp_path / "runs", "vcse", 1, [0.1, 0.2, 0.3], frames=[25_000, 50_000, 75_000])
    make_run(tmp_path / "runs", "se", 0, [0.1, 0.2, 0.3, 0.4])
    dom = dump(write_report(tmp_path / "runs"), options=["--dump-dom"], profile=tmp_path / "profile")
    (fewer,) = drawn_paths(dom, "middle fewer")
    assert (fewer["data-method"], fewer["d"].count("M"), fewer["d"].count("L")) == ("vcse", 1, 1)
    (solid,) = (line for line in drawn_paths(dom) if line["data-method"] == "vcse" and "data-last" in line)
    assert solid["d"].count("L") == 2
    assert "A line is dotted where some of its runs have already ended" in dom


def test_runs_beside_studies_that_cannot_be_read_are_named(tmp_path):
    make_study(tmp_path / "study")
    broken = tmp_path / "beside" / "run"
    broken.mkdir(parents=True)
    (broken / "config.json").write_text("{")
    told = []
    write_report(tmp_path, progress=told.append)
    assert any("beside/run" in each for each in told)
