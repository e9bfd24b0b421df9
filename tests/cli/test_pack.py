from pathlib import Path

import pytest

from vcse.cli import main
from vcse.reports.loaded_runs import gather
from vcse.studies.manifest import read_study_file


@pytest.mark.usefixtures("without_type_checks")
def test_parts_of_a_study_from_different_places_are_packed_as_one(tmp_path, capsys):
    here, there, packed = (str(tmp_path / name) for name in ("here", "there", "packed"))
    command = ["study", "run", "minigrid-k", "--seeds", "1", "--frames", "128", "--device", "cpu", "--quiet"]
    assert main([*command, "--bonuses", "vcse-k3", "--out", here]) == 0
    assert main([*command, "--bonuses", "vcse-k5", "--out", there]) == 0
    Path(packed).mkdir()
    (Path(packed) / "README.md").write_text("what is about to be here")  # hides no run
    assert main(["study", "pack", here, there, "--out", packed]) == 0
    assert "2 runs in" in capsys.readouterr().out
    assert {run.method for run in gather(Path(packed)).runs} == {"vcse-k3", "vcse-k5"}
    asked = read_study_file(Path(packed))
    assert [each.methods for each in asked.requests] == [["vcse-k3"], ["vcse-k5"]]
    assert main(["study", "pack", packed, there, "--out", packed]) == 1
    assert "both hold minigrid/SimpleCrossingS9N1 with vcse-k5, seed 0" in capsys.readouterr().err
    assert main(["study", "pack", here, "--out", packed]) == 1
    assert "packed holds 1 run that would be gone, such as minigrid/" in capsys.readouterr().err
    assert main(["study", "pack", here, there, "--out", here]) == 1
    assert "here holds runs, which an archive beside them would hide" in capsys.readouterr().err
    assert main(["study", "pack", packed, "--out", packed]) == 0
    assert main(["study", "pack", here, "nowhere", "--out", packed]) == 1
    assert "nowhere holds no study" in capsys.readouterr().err
