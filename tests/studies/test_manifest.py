import json

import pytest

from vcse.studies.manifest import StudyFile, read_study_file

TASK = "minigrid/Empty-5x5"


def test_a_study_file_reads_back_and_refuses_other_versions(tmp_path):
    asked = StudyFile("minigrid", 16, 0, None, [TASK], ["none", "vcse"], "vcse study run minigrid")
    assert read_study_file(tmp_path) is None
    content = asked.to_json()
    assert content["schema_version"] == 1
    (tmp_path / "study.json").write_text(json.dumps(content))
    assert read_study_file(tmp_path) == asked
    assert "earlier" not in content  # which one command has no use for
    both = asked.joined(StudyFile("minigrid", 1, 16, 1000, [TASK], ["se"], "vcse study run minigrid --bonuses se"))
    (tmp_path / "study.json").write_text(json.dumps(both.to_json()))
    assert read_study_file(tmp_path) == both
    assert len(both.wanted) == 33
    assert both.joined(asked).wanted[0] == (TASK, "se", 16)  # what was asked for last stands last
    (tmp_path / "study.json").write_text(json.dumps(content | {"schema_version": 2}))
    with pytest.raises(ValueError, match=r"study\.json has schema version 2; this release reads 1"):
        read_study_file(tmp_path)
    for text in ("{", "[]", '{"schema_version": 1}'):
        (tmp_path / "study.json").write_text(text)
        with pytest.raises(ValueError, match=r"study\.json cannot be read"):
            read_study_file(tmp_path)
