import importlib.util
import json

from vcse.agents import agents_of
from vcse.cli import main
from vcse.envs.tasks import families


def test_every_family_is_listed_with_its_agent_and_its_tasks(capsys):
    assert main(["tasks"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for family in families():
        agent = agents_of(family)[0]
        assert any(line.split()[:2] == [f"{family}/NAME", agent] for line in lines)
    words = [word for line in lines for word in line.split()]
    assert words.count("hopper_stand") == 1  # for both of its families
    assert "button-press-topdown-wall" in words  # which is not torn


def test_tasks_whose_mission_changes_are_named_once(capsys):
    assert main(["tasks"]) == 0
    told = capsys.readouterr().out
    assert told.count("The mission, a text, is not shown.") == 1
    assert all(told.count(f"{name}*") == 1 for name in ("Fetch-", "GoToDoor-", "KeyCorridor", "LockedRoom"))


def test_a_family_that_lacks_few_of_those_before_names_these_alone(capsys, monkeypatch):
    monkeypatch.setattr("vcse.envs.minigrid.names.lacks_patterns", lambda: True)
    assert main(["tasks"]) == 0
    told = capsys.readouterr().out
    assert "\n  as minigrid/NAME, without WFC-DungeonMazeScaled WFC-MazeSimple " in told
    assert told.count("LavaGapS7") == 1


def test_rows_name_the_whole_task(capsys):
    assert main(["tasks", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {"task": "dmc-pixels/hopper_stand", "agent": "drqv2"} in rows
    assert {"task": "dmc/hopper_stand", "agent": "sac"} in rows


def test_what_is_not_installed_is_said_once_and_last(capsys, monkeypatch):
    monkeypatch.setattr("vcse.envs.mujoco.dmc._installed", lambda: False)
    found = importlib.util.find_spec
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None if name == "metaworld" else found(name))
    assert main(["tasks"]) == 0
    told = capsys.readouterr().out
    assert told.count("dm_control is not installed: pip install 'vcse[dmc]'") == 1
    assert "hopper_stand" not in told
    assert "door-open" not in told
    assert told.splitlines()[-3].split() == ["metaworld/NAME", "drqv2", "mwm", "images"]
    assert told.endswith(
        "\n  metaworld, which simulates metaworld/..., is not installed: pip install 'vcse[metaworld]'\n\n"
    )
    assert main(["tasks", "--json"]) == 0
    out, err = capsys.readouterr()
    assert not {"dmc", "dmc-pixels", "metaworld"} & {row["task"].partition("/")[0] for row in json.loads(out)}
    assert err.splitlines()[0] == (
        "vcse: without dmc/..., dmc-pixels/...: dm_control is not installed: pip install 'vcse[dmc]'"
    )
    assert err.splitlines()[1].startswith("vcse: without metaworld/...: metaworld, ")
