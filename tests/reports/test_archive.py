import json
import lzma
from pathlib import Path

import numpy as np
import pytest
from studies.small_runs import TASK, make_run

from vcse.agents import read_config
from vcse.reports.archive import write_archive
from vcse.reports.loaded_runs import gather

RESULTS = Path(__file__).parents[2] / "results"
SCHEMA_1 = json.loads((Path(__file__).parents[1] / "runs" / "schema1.json").read_text())


def test_an_archive_gives_back_the_same_runs(tmp_path):
    path = make_run(tmp_path / "runs", 0)
    (path / "eval.csv").write_text("frame,success_rate,argmax_success_rate\n384,0.1,\n")
    np.save(path / "visits.npy", np.arange(8).reshape(2, 2, 2))
    make_run(tmp_path / "runs", 1, done=False)
    make_run(tmp_path / "runs", 0, method="a, <odd> name", header="frame,success_rate", rows=("100,0.5", "200,1.0"))
    runs = gather(tmp_path / "runs").runs
    write_archive(runs, tmp_path / "archive")
    again, problems = gather(tmp_path / "archive")
    assert problems == []
    for one, other in zip(runs, again, strict=True):
        assert one.identity == other.identity
        np.testing.assert_array_equal(one.frames, other.frames)
        assert list(one.columns) == list(other.columns)
        for column, numbers in one.columns.items():
            np.testing.assert_array_equal(numbers, other.columns[column])
        assert (one.config, one.meta, one.done, one.text) == (other.config, other.meta, other.done, other.text)
        np.testing.assert_equal(one.evaluation, other.evaluation)
        if one.visits is None:
            assert other.visits is None
        else:
            np.testing.assert_array_equal(one.visits, other.visits)
    assert sum(run.visits is not None for run in again) == 1
    described = json.loads((tmp_path / "archive" / "runs.json").read_text())
    assert [len(described[part]) for part in ("config", "meta", "columns")] == [1, 1, 2]
    text = lzma.decompress((tmp_path / "archive" / "runs.csv.xz").read_bytes()).decode()
    assert f"{TASK},vcse,0,384,0.30000000000000004,9,-2.5" in text  # the digits of train.csv


def test_an_archive_is_read_instead_of_what_lies_beside_it(tmp_path):
    make_run(tmp_path, 0)
    write_archive(gather(tmp_path).runs, tmp_path)
    make_run(tmp_path, 1)
    assert [run.seed for run in gather(tmp_path).runs] == [0]


@pytest.mark.parametrize("spoil", [lambda whole: b"torn", lambda whole: whole[:40] + b"x" * 20 + whole[60:]])
def test_an_archive_whose_visits_are_damaged_is_shown_without(tmp_path, spoil):
    np.save(make_run(tmp_path / "runs", 0) / "visits.npy", np.ones((2, 7, 7), dtype=np.int32))
    write_archive(gather(tmp_path / "runs").runs, tmp_path)
    path = tmp_path / "visits.npz"
    path.write_bytes(spoil(path.read_bytes()))
    (run,), problems = gather(tmp_path)
    assert run.visits is None
    assert any("is shown without its visits: visits.npz cannot be read" in said for said in problems)


def test_an_archive_whose_files_disagree_is_named(tmp_path):
    for seed in (0, 1):
        make_run(tmp_path / "runs", seed)
    write_archive(gather(tmp_path / "runs").runs, tmp_path)
    described = json.loads((tmp_path / "runs.json").read_text())
    described["runs"][1]["seed"] = 5
    (tmp_path / "runs.json").write_text(json.dumps(described))
    runs, problems = gather(tmp_path)
    assert [run.seed for run in runs] == [0]
    assert any("vcse 1 is left out: runs.json does not describe it." in said for said in problems)
    assert any("vcse, seed 5 is left out: runs.csv.xz has no row of it." in said for said in problems)
    (tmp_path / "runs.json").write_text(json.dumps(described | {"schema_version": 9}))
    runs, (said,) = gather(tmp_path)
    assert runs == []
    assert "runs.json has schema version 9; this release reads 1" in said
    (tmp_path / "runs.csv.xz").write_bytes(b"torn")
    assert "is left out" in gather(tmp_path).problems[0]


def test_an_archive_of_an_earlier_release_is_read_under_the_names_of_this_one(tmp_path):
    then = SCHEMA_1["a2c with exact values"]
    path = make_run(tmp_path / "runs", then["seed"], task=then["task"], method=then["method"])
    write_archive(gather(tmp_path / "runs").runs, tmp_path)
    described = json.loads((tmp_path / "runs.json").read_text())

    def read(content):
        described["config"] = [{name: each for name, each in content.items() if name not in ("task", "method", "seed")}]
        (tmp_path / "runs.json").write_text(json.dumps(described))
        return gather(tmp_path)

    (run,), problems = read(then)
    assert problems == []
    (path / "config.json").write_text(json.dumps(then))
    now = json.loads(json.dumps(read_config(path).to_json()))
    assert run.config == now
    assert run.config["a2c"]["values"] == "exact"
    write_archive([run], tmp_path / "again")
    assert gather(tmp_path / "again").runs[0].config == now
    runs, said = read(then | {"schema_version": 7})
    assert runs == []
    assert "is left out: it has schema version 7; this release reads 2 and 1." in said[0]


@pytest.mark.parametrize(("name", "expected"), [("metaworld", "mean"), ("dmc-pixels", "none")])
def test_published_runs_of_drqv2_have_the_settings_of_today(name, expected):
    runs, problems = gather(RESULTS / name)
    assert problems == []
    for run in runs:
        settings = run.config["drqv2"]
        assert not {"normalize_reward", "normalizes_reward"} & set(settings)
        assert settings["reward_normalization"] == expected
        assert (settings["actor_normalization"], settings["pre_activation_penalty"]) == (False, 0.0)


def test_an_archive_of_nothing_and_of_the_same_run_twice_is_refused(tmp_path):
    make_run(tmp_path, 0)
    (run,) = gather(tmp_path).runs
    with pytest.raises(ValueError, match="runs must hold at least one run, got none"):
        write_archive([], tmp_path)
    with pytest.raises(ValueError, match="runs must differ in task, method or seed"):
        write_archive([run, run], tmp_path)
