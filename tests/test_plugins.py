import os
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from vcse.plugins import load_plugins

SOURCE = Path(__file__).parents[1] / "src"


@pytest.fixture(autouse=True)
def forgets(monkeypatch, tmp_path):
    """Begin each test without plug-ins, in a directory of its own, and forget what it imported."""
    monkeypatch.delenv("VCSE_PLUGINS", raising=False)
    monkeypatch.setattr("sys.path", sys.path.copy())
    monkeypatch.setattr("vcse.plugins.entry_points", lambda **_: ())
    monkeypatch.chdir(tmp_path)
    load_plugins.cache_clear()
    yield
    load_plugins.cache_clear()
    for module in [module for module in sys.modules if module.endswith("_plugin")]:
        del sys.modules[module]


def write(name, text="import os\nos.environ['LOADED'] += __name__ + ' '\n"):
    Path(f"{name}.py").write_text(text)


def test_imports_what_the_variable_names_from_the_current_directory_once(monkeypatch):
    write("first_plugin")
    write("second_plugin")
    monkeypatch.setenv("LOADED", "")
    monkeypatch.setenv("VCSE_PLUGINS", "first_plugin, second_plugin,")
    load_plugins()
    assert os.environ["LOADED"] == "first_plugin second_plugin "
    for module in ("first_plugin", "second_plugin"):
        del sys.modules[module]
    load_plugins()
    assert os.environ["LOADED"] == "first_plugin second_plugin "


def test_imports_the_entry_points_of_its_group(monkeypatch, tmp_path):
    write("installed_plugin")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("LOADED", "")
    points = {"vcse.plugins": [EntryPoint("mine", "installed_plugin", "vcse.plugins")]}
    monkeypatch.setattr("vcse.plugins.entry_points", lambda *, group: points[group])
    load_plugins()
    assert os.environ["LOADED"] == "installed_plugin "


def test_without_plugins_nothing_changes():
    before = (sys.path.copy(), set(sys.modules))
    load_plugins()
    assert (sys.path, set(sys.modules)) == before


@pytest.mark.parametrize(
    ("module", "reason"),
    [("no_such_plugin", "No module named 'no_such_plugin'"), ("damaged_plugin", "KeyError: 'no luck'")],
)
def test_one_that_cannot_be_imported_is_named_each_time(module, reason, monkeypatch):
    write("damaged_plugin", "raise KeyError('no luck')")
    monkeypatch.setenv("VCSE_PLUGINS", module)
    for _ in range(2):
        with pytest.raises(
            ValueError, match=f"VCSE_PLUGINS names module '{module}', which cannot be imported: .*{reason}"
        ):
            load_plugins()


def test_an_entry_point_that_cannot_be_imported_is_named(monkeypatch):
    monkeypatch.setattr(
        "vcse.plugins.entry_points", lambda **_: [EntryPoint("mine", "no_such_plugin:register", "vcse.plugins")]
    )
    with pytest.raises(ValueError, match="the entry point 'mine' names module 'no_such_plugin', which cannot be"):
        load_plugins()


def test_a_plugin_may_ask_for_plugins_itself(monkeypatch):
    write("asking_plugin", "from vcse.plugins import load_plugins\nload_plugins()\n")
    monkeypatch.setenv("VCSE_PLUGINS", "asking_plugin")
    load_plugins()
    assert "asking_plugin" in sys.modules


def test_loads_nothing_else_of_the_library():
    told = "import sys, vcse.plugins; print(*(m for m in sys.modules if m[:5] in ('vcse', 'vcse.', 'torch', 'numpy')))"
    done = subprocess.run(
        [sys.executable, "-c", told],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "vcse vcse.plugins\n"
