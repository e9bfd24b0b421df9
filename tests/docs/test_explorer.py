"""The page of docs/explorer, in a browser: its numbers are the library's, and it does what it says."""

import json
import re
import shutil
import subprocess
from html.parser import HTMLParser
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from requirements import CHROMIUM, needs_chromium

from vcse.bonuses import NoNormalizer, RawValues, StateEntropy, ValueConditionalStateEntropy

EXPLORER = Path(__file__).parents[2] / "docs" / "explorer"
CLOUDS = ("room", "clusters", "blob", "grid")

# What a reader does, for the scripts of the tests. What was only simulated cannot capture the pointer.
READER = """
Element.prototype.setPointerCapture = () => {};
const find = (selector) => document.querySelector(selector);
const shown = () => [...document.querySelectorAll(".told dd b")].map((b) => b.textContent);
const selected = () => find(".told h3").textContent;
const press = (key, shiftKey) => (plot) => {
  const svg = find(`[data-plot=${plot}] svg`);
  for (const type of ["keydown", "keyup"]) svg.dispatchEvent(new KeyboardEvent(type, { key, shiftKey }));
};
const point = (plot, type, x, y) => {
  const svg = find(`[data-plot=${plot}] svg`);
  const { left, top } = svg.getBoundingClientRect();
  svg.dispatchEvent(new PointerEvent(type, { clientX: left + x, clientY: top + y, pointerId: 1, bubbles: true }));
};
const middle = (plot) => {
  const ring = find(`[data-plot=${plot}] .ring`);
  return [Number(ring.getAttribute("cx")) + 1, Number(ring.getAttribute("cy")) + 1]; // beside the border of 1 pixel
};
"""


def browse(tmp_path, script, *, fragment="", width=1400, options=()):
    """Return what a script in a copy of the page gives back, and the page as it is then."""
    page = tmp_path / "explorer"
    shutil.copytree(EXPLORER, page, dirs_exist_ok=True)
    given = (
        f"document.body.append(Object.assign(document.createElement('pre'), {{textContent: JSON.stringify({script})}}))"
    )
    text = (page / "index.html").read_text()
    (page / "index.html").write_text(text.replace("</body>", f"<script>{READER}{given}</script></body>"))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=2000", "--enable-logging=stderr"]
    command += [f"--window-size={width},1200", *options, "--dump-dom", f"file://{page}/index.html{fragment}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert "CONSOLE" not in done.stderr, [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(_LastPre(done.stdout).text), done.stdout


class _LastPre(HTMLParser):
    """Reads what the last <pre> of a page holds."""

    def __init__(self, page):
        super().__init__()
        self.text, self.inside = "", False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        if tag == "pre":
            self.text, self.inside = "", True

    def handle_endtag(self, tag):
        self.inside = self.inside and tag != "pre"

    def handle_data(self, data):
        self.text += data if self.inside else ""


def library(features, values, *, k, reading, standardize):
    """Compute what the page shows with the library: the two bonuses, as they are before any scaling."""
    features, values = (torch.tensor(each, dtype=torch.float64) for each in (features, values))
    normalizer = None if standardize else RawValues()
    conditional = ValueConditionalStateEntropy(k=k, reading=reading, value_normalizer=normalizer)
    blind = StateEntropy(k=k, reading=reading, normalizer=NoNormalizer())
    return conditional(features, values=values), blind(features)


def rewards_needs_chromium(tmp_path, cases):
    """Return what estimator.js makes of each case."""
    script = f"""{json.dumps(cases)}.map(({{features, values, k, reading, standardize}}) => {{
      const {{standardized, rewards, diagnostics}} = vcseEstimator;
      const batch = rewards(features, standardize ? standardized(values) : values, {{k, reading}});
      const of = (name) => batch.map((each) => each[name]);
      return {{vcse: of("vcse"), se: of("se"), radius: of("radius"), value_distance: of("valueDistance"),
        value_count: of("valueCount"), diagnostics: diagnostics(batch)}};
    }})"""
    return browse(tmp_path, script)[0]


def clouds_needs_chromium(tmp_path):
    script = f"{json.dumps(CLOUDS)}.map((name) => [name, vcseClouds.makeCloud(name, {{count: 100, seed: 4}})])"
    return dict(browse(tmp_path, script)[0])


def hold_against_library(tmp_path, cases):
    for case, found in zip(cases, rewards_needs_chromium(tmp_path, cases), strict=True):
        conditional, blind = library(**case)
        np.testing.assert_allclose(found["vcse"], conditional.reward, atol=1e-9)
        np.testing.assert_allclose(found["se"], blind.reward, atol=1e-9)
        np.testing.assert_allclose(found["radius"], conditional.radius, atol=1e-9)
        np.testing.assert_allclose(found["value_distance"], conditional.value_distance, atol=1e-9)
        assert found["value_count"] == conditional.value_count.tolist()
        diagnostics = conditional.diagnostics()
        for name, number in found["diagnostics"].items():
            assert number == pytest.approx(float(diagnostics[name])), name


@needs_chromium
def test_random_points_with_and_without_duplicates_earn_what_the_library_pays(tmp_path):
    random = np.random.default_rng(0)
    cases = []
    for dimensions, k, reading, standardize in product((1, 2, 5), (1, 4, 9), ("clean", "paper"), (True, False)):
        features, values = random.normal(size=(40, dimensions)), random.normal(size=40)
        features[10:20], values[10:16] = features[3], values[3]  # equal states, of which some share their value
        values[30:] = 2.5
        common = {"k": k, "reading": reading, "standardize": standardize}
        cases.append({"features": features.tolist(), "values": values.tolist(), **common})
        whole = random.integers(0, 4, size=(40, dimensions + 1)).tolist()  # ties wherever one looks
        features, values = [row[:-1] for row in whole], [row[-1] for row in whole]
        cases.append({"features": features, "values": values, **common, "standardize": False})
    cases.append({**cases[0], "values": [0.1] * 40})  # nothing to standardise
    hold_against_library(tmp_path, cases)


@needs_chromium
def test_clouds_of_the_page_earn_what_the_library_pays_at_every_scale(tmp_path):
    cases = []
    clouds = clouds_needs_chromium(tmp_path)
    for (name, cloud), reading, scale in product(clouds.items(), ("clean", "paper"), (0.1, 1, 10)):
        assert len(cloud) == 100
        assert {point["group"] for point in cloud} == set(range(3 if name == "blob" else 2)), name
        features = [[scale * point["x"], scale * point["y"]] for point in cloud]
        values = [point["value"] for point in cloud]
        common = {"features": features, "values": values, "reading": reading, "standardize": True}
        cases += [{**common, "k": k} for k in (1, 5)]
    hold_against_library(tmp_path, cases)


@needs_chromium
@pytest.mark.parametrize(("reading", "width"), [("clean", 1400), ("paper", 400)])
def test_the_address_chooses_what_is_shown(tmp_path, reading, width):
    cloud = clouds_needs_chromium(tmp_path)["blob"]
    cloud[7].update(x=0.25, y=-0.5, value=0.9)
    features = [[2 * point["x"], 2 * point["y"]] for point in cloud]
    values = [point["value"] for point in cloud]
    fragment = f"#cloud=blob&reading={reading}&k=3&scale=2&select=7&moved=7_0.25_-0.5_0.9&standardize=false&show=both"
    shown, page = browse(tmp_path, "shown()", fragment=fragment, width=width)
    outputs = library(features, values, k=3, reading=reading, standardize=False)
    assert [each.replace("−", "-") for each in shown] == [f"{output.reward[7]:.2f}" for output in outputs]
    assert "At (0.50, −1.00), with the value 0.90." in page
    assert len(re.findall(r'<path class="link"', page)) == 6  # three neighbours, for VCSE and for SE
    counted = int(outputs[0].value_count[7])
    assert f"ψ({counted + 1})/2" in page


@needs_chromium
def test_clouds_and_experiments_show_what_they_say(tmp_path):
    script = f"""{json.dumps(CLOUDS)}.map((cloud) => {{
      find(`input[value=${{cloud}}]`).click();
      return [document.querySelectorAll("[data-plot=vcse] .points circle").length, location.hash];
    }}).concat([0, 1, 2, 3].map((i) => {{
      find(`[data-try="${{i}}"]`).click();
      return [find(".see").textContent, shown(), find(".told").textContent, find("[role=status]").className];
    }}))"""
    result, _ = browse(tmp_path, script)
    for cloud, (points, address) in zip(CLOUDS, result, strict=False):
        assert points == 100
        assert address == ("" if cloud == "room" else f"#cloud={cloud}")
    scaled, raised, heap, paper = result[4:]
    assert scaled[0].startswith("The value stops mattering")
    assert "nv = 99" in scaled[2]
    assert [each[3] for each in result[4:]] == ["alarm", "calm", "calm", "calm"]
    assert heap[1] == ["−11.80", "0.00"]
    assert "nv = 1." in paper[2]

    cloud = clouds_needs_chromium(tmp_path)["room"]
    features, values = [[point["x"], point["y"]] for point in cloud], [point["value"] for point in cloud]
    assert cloud[4]["group"] == 0
    use = {"k": 5, "reading": "clean", "standardize": True}
    before, blind = library(features, values, **use)
    after, _ = library(features, [*values[:4], 0.8, *values[5:]], **use)
    assert [float(each.replace("−", "-")) for each in raised[1]] == [
        pytest.approx(float(after.reward[4]), abs=0.01),
        pytest.approx(float(blind.reward[4]), abs=0.01),
    ]
    assert after.radius[4] > before.radius[4]
    assert after.value_count[4] < before.value_count[4]


@needs_chromium
def test_a_point_is_dragged_and_keys_choose_and_move(tmp_path):
    script = """(() => {
      const log = [[selected(), find(".told p").textContent]];
      const note = () => log.push([selected(), find(".told p").textContent, location.hash]);
      const [x, y] = middle("vcse");
      point("vcse", "pointerdown", x, y); point("vcse", "pointermove", x + 2, y); note(); // a trembling click
      point("vcse", "pointermove", x + 60, y - 60); point("vcse", "pointerup", x + 60, y - 60); note();
      point("vcse", "pointermove", x, y); note(); // let go
      const [across, down] = middle("strip");
      point("strip", "pointerdown", across, down); point("strip", "pointermove", across, 1);
      point("strip", "pointerup", across, 1); note();
      press("ArrowRight", true)("vcse"); note();
      press("ArrowDown", true)("strip"); note();
      press("ArrowRight")("vcse"); note();
      press("ArrowLeft")("strip"); note(); // means nothing there
      return log;
    })()"""
    log, _ = browse(tmp_path, script)
    first, click, dragged, left, raised, right, lowered, chosen, same = log
    assert first == click[:2]
    assert dragged[0] == first[0] == "State 5 of 100"

    def place(told):
        numbers = re.match(r"At \((\S+), (\S+)\), with the value (\d\.\d+)", told[1].replace("−", "-")).groups()
        return np.array([float(each) for each in numbers])

    moved = place(dragged) - place(first)
    assert moved[0] == pytest.approx(moved[1], abs=0.011)  # to the right and up by as much
    assert 0.2 < moved[0] < 0.6
    assert moved[2] == 0
    assert left == dragged
    assert place(raised) == pytest.approx([*place(dragged)[:2], 1.0])
    assert place(right) == pytest.approx(place(raised) + np.array([0.1, 0, 0]), abs=0.011)
    assert place(lowered) == pytest.approx(place(right) - np.array([0, 0, 0.02]))
    assert chosen[0] != first[0]
    assert place(chosen)[0] > place(lowered)[0]
    assert same == chosen
    assert re.match(r"#moved=4_[\d.-]+_[\d.-]+_0\.98&select=\d+$|#select=\d+&moved=4_[\d.-]+_[\d.-]+_0\.98$", chosen[2])


@needs_chromium
def test_a_finger_on_a_point_moves_it_and_elsewhere_scrolls(tmp_path):
    script = """["vcse", "pairs"].map((plot) => [middle(plot), [1, 1]].map(([x, y]) => {
      const svg = find(`[data-plot=${plot}] svg`);
      const { left, top } = svg.getBoundingClientRect();
      const touch = new Touch({ identifier: 1, target: svg, clientX: left + x, clientY: top + y });
      return !svg.dispatchEvent(new TouchEvent("touchstart", { touches: [touch], cancelable: true }));
    }))"""
    kept, _ = browse(tmp_path, script)
    assert kept == [[True, False], [False, False]]


@needs_chromium
def test_sliders_and_switches_change_the_page(tmp_path):
    script = """(() => {
      const set = (name, value) => {
        const input = find(`[name=${name}]`);
        input.value = value;
        for (const type of ["input", "change"]) input.dispatchEvent(new Event(type, { bubbles: true }));
      };
      set("k", 9); set("count", 30); set("scale", 1);
      find("[name=standardize]").click(); find("[value=paper]").click(); find("[value=se]").click();
      const circles = document.querySelectorAll("[data-plot=se] .points circle").length;
      const changed = [circles, find("[data-plot=vcse]").hidden, location.hash];
      find("[data-do=reset]").click();
      return [...changed, location.hash, find("[name=k]").value];
    })()"""
    (circles, hidden, address, after, k), _ = browse(tmp_path, script)
    assert (circles, hidden) == (30, True)
    assert address == "#count=30&k=9&scale=10&reading=paper&standardize=false&show=se"
    assert (after, k) == ("", "5")


@needs_chromium
def test_an_address_that_means_nothing_is_the_page_as_it_is_first_seen(tmp_path):
    fragment = "#cloud=moon&k=many&scale=-3&select=1000&moved=4_a_b_c&what-to-try"
    script = "[find('[name=k]').value, selected(), location.hash]"
    result, _ = browse(tmp_path, script, fragment=fragment)
    assert result == ["5", "State 100 of 100", fragment]


@needs_chromium
def test_nothing_is_fetched_but_the_files_beside_the_page(tmp_path):
    script = "[...document.querySelectorAll('[src], link')].map((each) => each.src ?? each.href)"
    names, _ = browse(tmp_path, script)
    folder = f"file://{tmp_path}/explorer/"
    fetched = {name.removeprefix(folder) for name in names if not name.startswith("data:")}
    assert fetched == {path.name for path in EXPLORER.iterdir()} - {"index.html"}


def test_no_file_names_another_place():
    for path in EXPLORER.iterdir():
        assert not re.search(r"https?:|url\(|@import|\bfetch\(|XMLHttpRequest|WebSocket", path.read_text()), path.name
