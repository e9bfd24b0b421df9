"""The built site: make docs writes it, with warnings as errors. It is whole, and asks for nothing outside."""

import importlib
import json
import re
import subprocess
from html.parser import HTMLParser
from urllib.parse import unquote, urlsplit

import pytest
from requirements import CHROMIUM, SITE, needs_chromium, needs_site

from vcse.agents import agent_entry, agent_names
from vcse.cli.flags import flag
from vcse.settings import described

PAGES = sorted(path for path in SITE.rglob("*.html") if not {"_modules", "_static", "report"} & set(path.parts))
pytestmark = needs_site
LOADED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src", "audio": "src"}
RELATIONS_THAT_LOAD = {"stylesheet", "icon", "preload", "prefetch", "preconnect", "dns-prefetch", "modulepreload"}


class Links(HTMLParser):
    """What a page loads, what it links to, and what can be linked to in it."""

    def __init__(self, page):
        super().__init__()
        self.loaded, self.links, self.anchors = [], [], set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        known = dict(attrs)
        self.anchors |= {known[key] for key in ("id", "name") if key in known}
        if LOADED.get(tag) in known:
            self.loaded.append(known[LOADED[tag]])
        elif tag == "link" and RELATIONS_THAT_LOAD & set(known.get("rel", "").split()):
            self.loaded.append(known["href"])
        elif tag == "a" and "href" in known:
            self.links.append(known["href"])


@pytest.fixture(scope="module")
def read():
    known = {}

    def links_of(path):
        if path not in known:
            known[path] = Links(path.read_text())
        return known[path]

    return links_of


def is_outside(url):
    return bool(urlsplit(url).netloc)


def test_nothing_is_loaded_from_outside(read):
    assert len(PAGES) > 40
    outside = {(page.name, url) for page in PAGES for url in read(page).loaded if is_outside(url)}
    styles = "".join(path.read_text() for path in SITE.rglob("_static/**/*.css"))
    assert outside == set()
    assert re.findall(r"(?:url\(|@import)\s*['\"]?(?:https?:)?//", styles) == []


def test_links_lead_to_files_and_anchors_that_are_there(read):
    broken = []
    for page in PAGES:
        for url in (*read(page).links, *read(page).loaded):
            parts = urlsplit(url)
            if parts.scheme or parts.netloc:
                continue
            target = (page.parent / unquote(parts.path)).resolve() if parts.path else page
            if not target.is_file() or (
                parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in read(target).anchors
            ):
                broken.append(f"{page.relative_to(SITE)}: {url}")
    assert broken == []


@pytest.mark.parametrize("package", ["bonuses", "estimators", "integrations"])
def test_every_public_name_is_in_the_reference(read, package):
    page = read(SITE / f"docs/reference/api/{package}.html")
    public = importlib.import_module(f"vcse.{package}").__all__
    assert {name for name in public if f"vcse.{package}.{name}" not in page.anchors} == set()


def test_every_command_and_setting_is_in_the_reference(read):
    assert {"vcse-train", "vcse-report", "vcse-study-run"} <= read(SITE / "docs/reference/commands.html").anchors
    page = re.sub(r"<[^>]+>", "", (SITE / "docs/reference/settings.html").read_text())
    for agent in agent_names():
        for name in described(agent_entry(agent).settings):
            assert flag(name) in page or f"--set {name}=..." in page


def test_tutorials_show_what_was_executed():
    for page in (SITE / "docs/tutorials").glob("*.html"):
        assert page.name == "index.html" or 'class="output' in page.read_text()


# Every page in a frame of the same width, one after the other: how much wider it is than its frame, and what it loaded.
READER = """
<pre></pre><script>
const wider = {}, loaded = new Set();
(async () => {
  for (const page of %s) {
    const frame = Object.assign(document.createElement("iframe"), { src: page, width: %d, height: 900 });
    document.body.append(frame);
    await new Promise((done) => (frame.onload = done));
    const root = frame.contentDocument.documentElement;
    wider[page] = root.scrollWidth - root.clientWidth;
    frame.contentWindow.performance.getEntriesByType("resource").forEach((each) => loaded.add(each.name));
    frame.remove();
  }
  document.querySelector("pre").textContent = JSON.stringify([wider, [...loaded]]);
})();
</script>
"""


@needs_chromium
@pytest.mark.parametrize("width", [1400, 400])
def test_pages_fit_their_window_and_no_request_leaves(tmp_path, width):
    reader = tmp_path / "reader.html"
    reader.write_text(READER % (json.dumps([page.as_uri() for page in PAGES]), width))
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    command += ["--allow-file-access-from-files", "--host-resolver-rules=MAP * ~NOTFOUND", "--window-size=1600,1000"]
    command += ["--virtual-time-budget=200000", "--dump-dom", reader.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=True)
    wider, loaded = json.loads(re.search(r"<pre>(.*?)</pre>", done.stdout, re.DOTALL)[1])
    assert len(wider) == len(PAGES)
    assert {page: pixels for page, pixels in wider.items() if pixels > 0} == {}
    assert len(loaded) > 5  # styles and scripts
    assert [name for name in loaded if not name.startswith(("file:", "data:"))] == []
