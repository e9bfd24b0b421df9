import json
import math
from pathlib import Path

import numpy as np
import pytest
from studies.small_runs import HEADER, ROWS, TASK, make_run

from vcse.agents import read_config
from vcse.reports.loaded_runs import gather, joined, study_directories

SCHEMA_1 = json.loads((Path(__file__).parents[1] / "runs" / "schema1.json").read_text())


def test_a_run_is_read_with_all_that_lies_in_its_directory(tmp_path):
    path = make_run(tmp_path, 3)
    (path / "eval.csv").write_text("frame,success_rate\n128,0.5\n384,\n")
    np.save(path / "visits.npy", np.arange(8).reshape(2, 2, 2))
    (run,), problems = gather(tmp_path)
    assert problems == []
    assert run.identity == (TASK, "vcse", 3)
    assert run.frames.tolist() == [128, 256, 384]
    np.testing.assert_array_equal(run.columns["success_rate"], [math.nan, 0.25, 0.30000000000000004])
    assert list(run.columns) == ["episodes", "success_rate", "bonus_mean"]
    assert run.evaluation["frame"] == 384
    assert math.isnan(run.evaluation["success_rate"])
    assert run.config["a2c"] == {"beta": 0.5}
    assert run.meta == {"vcse": "0.1.0", "cpus": 2}
    assert run.visits.shape == (2, 2, 2)
    assert run.done


def test_runs_stand_by_seed_and_are_done_only_at_their_length(tmp_path):
    for seed in (10, 9, 1):
        make_run(tmp_path, seed, done=seed != 9)
    longer = make_run(tmp_path, 11, frames=1000)
    assert (longer / "DONE").exists()
    runs, _ = gather(tmp_path)
    assert [(run.seed, run.done) for run in runs] == [(1, True), (9, False), (10, True), (11, False)]


def test_what_is_torn_is_named_and_the_rest_is_read(tmp_path):
    torn = make_run(tmp_path, 0)
    (torn / "train.csv").write_text((torn / "train.csv").read_text()[:-4])
    broken = make_run(tmp_path, 1, rows=(ROWS[0], "256,what,0.25,0", ROWS[2]))
    backwards = make_run(tmp_path, 2, rows=(ROWS[0], ROWS[2], ROWS[1]))
    (broken / "meta.json").write_text("{")
    (backwards / "meta.json").unlink()
    (backwards / "visits.npy").write_bytes(b"not an array")
    runs, problems = gather(tmp_path)
    assert [run.frames.tolist() for run in runs] == [[128, 256], [128], [128, 384]]
    folder = "minigrid-LavaGapS7/vcse"
    assert [said for said in problems if "seed0" in said] == [
        f"{folder}/seed0: the last row of train.csv is half written and is left out."
    ]
    assert f"{folder}/seed1: train.csv cannot be read after row 1: the rest is left out." in problems
    assert f"{folder}/seed2: train.csv cannot be read after row 2: the rest is left out." in problems
    assert any("seed1 does not say how it was made: meta.json cannot be read" in said for said in problems)
    assert f"{folder}/seed2 does not say how it was made: there is no meta.json." in problems
    assert any("seed2 is shown without its visits" in said for said in problems)
    assert len(problems) == 6


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (lambda run: (run / "config.json").unlink(), "there is no config.json"),
        (lambda run: (run / "config.json").write_text("[]"), "config.json does not hold an object"),
        (lambda run: (run / "config.json").write_text('{"task": '), "config.json cannot be read"),
        (
            lambda run: (run / "config.json").write_text('{"schema_version": 7}'),
            "config.json has schema version 7; this release reads 2 and 1",
        ),
        (
            lambda run: (run / "config.json").write_text('{"schema_version": 1, "task": "x", "method": "y"}'),
            "config.json does not say which task, method and seed",
        ),
        (
            lambda run: (run / "config.json").write_text(
                '{"schema_version": 1, "task": "x", "method": "y", "seed": 0, "frames": "9"}'
            ),
            "config.json must say of how many frames, got '9'",
        ),
        (lambda run: (run / "train.csv").write_text(f"{HEADER}\n{'x' * 200_000}\n"), "train.csv cannot be read"),
        (lambda run: (run / "train.csv").unlink(), "there is no train.csv"),
        (lambda run: (run / "train.csv").write_text(""), "train.csv has no row yet"),
        (lambda run: (run / "train.csv").write_text(HEADER + "\n"), "train.csv has no row yet"),
        (lambda run: (run / "train.csv").write_text(HEADER + "\n1,2"), "train.csv has no row yet"),
        (lambda run: (run / "train.csv").write_text("a,b\n1,2\n"), "train.csv has no column frame"),
        (lambda run: (run / "train.csv").write_text(HEADER + "\nx,y,z,w\n"), "not one row is whole"),
        (lambda run: (run / "train.csv").write_bytes(b"\xff\xfe\n1\n"), "train.csv cannot be read"),
    ],
)
def test_a_run_that_shows_nothing_is_left_out_and_named(tmp_path, spoil, said):
    spoil(make_run(tmp_path, 0))
    make_run(tmp_path, 1)
    runs, problems = gather(tmp_path)
    assert [run.seed for run in runs] == [1]
    assert problems[-1].startswith(f"minigrid-LavaGapS7/vcse/seed0 is left out: {said}")


@pytest.mark.parametrize(("row_every_frames", "first"), [(10_000, 384), (100, 100)])
def test_runs_that_were_stopped_before_their_first_row_are_told_together(tmp_path, row_every_frames, first):
    for seed in range(4):
        path = make_run(tmp_path, seed, done=False, row_every_frames=row_every_frames)
        (path / "train.csv").unlink()
    runs, problems = gather(tmp_path)
    assert runs == []
    assert problems == [
        "minigrid-LavaGapS7/vcse/seed0 and 3 others are left out: train.csv has no row yet, the first comes after "
        f"about {first} frames."
    ]


def test_of_two_runs_with_one_identity_the_second_is_left_out(tmp_path):
    make_run(tmp_path / "a", 0)
    make_run(tmp_path / "b", 0, rows=ROWS[:1])
    runs, problems = gather(tmp_path)
    assert [len(run.frames) for run in runs] == [3]
    assert problems == [
        "b/minigrid-LavaGapS7/vcse/seed0 is the same run as a/minigrid-LavaGapS7/vcse/seed0, "
        f"{TASK} with vcse, seed 0: the second is left out."
    ]


def test_of_runs_with_one_name_that_differ_it_is_said_in_what(tmp_path):
    make_run(tmp_path / "a", 0)
    make_run(tmp_path / "b", 0, a2c={"beta": 0.001}, frames=999)
    _, problems = gather(tmp_path)
    assert problems == [
        "b/minigrid-LavaGapS7/vcse/seed0 has the name of a/minigrid-LavaGapS7/vcse/seed0, "
        f"{TASK} with vcse, seed 0, but a2c.beta is 0.5 there and 0.001 here: the second is left out. "
        "Train each with a --method of its own to see both."
    ]


@pytest.mark.parametrize("content", SCHEMA_1.values(), ids=SCHEMA_1)
def test_a_run_of_an_earlier_release_is_the_same_under_the_names_of_this_one(tmp_path, content):
    identity = {"task": content["task"], "method": content["method"]}
    then, today = (make_run(tmp_path / name, content["seed"], **identity) for name in ("then", "today"))
    (then / "config.json").write_text(json.dumps(content))
    now = json.dumps(read_config(then).to_json())
    (today / "config.json").write_text(now)
    (run,), (said,) = gather(tmp_path)
    assert run.config == json.loads(now)
    assert f"today/{today.relative_to(tmp_path / 'today')} is the same run as then/" in said


def test_settings_that_are_not_there_hide_no_curve(tmp_path):
    make_run(tmp_path, 0, agent="a2c", a2c=None)
    make_run(tmp_path, 1, agent="sac")
    make_run(tmp_path, 2, agent="of somebody else")
    runs, problems = gather(tmp_path)
    assert ([run.seed for run in runs], problems) == ([0, 1, 2], [])


def test_a_directory_without_runs_is_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("nothing")
    with pytest.raises(ValueError, match=r"holds no run: there is no config\.json and no runs\.csv\.xz below it"):
        gather(tmp_path)
    with pytest.raises(ValueError, match="missing is not a directory"):
        gather(tmp_path / "missing")


def test_directories_can_be_left_alone(tmp_path):
    make_run(tmp_path / "a", 0)
    make_run(tmp_path / "b", 1)
    assert [run.seed for run in gather(tmp_path, without=[tmp_path / "a"]).runs] == [1]


def test_runs_of_several_places_are_joined_and_none_of_them_twice(tmp_path):
    for seed in (0, 1):
        make_run(tmp_path / str(seed), seed)
    places = [tmp_path / "0", tmp_path / "1"]
    parts = [gather(each) for each in places]
    both = joined([parts[0], parts[1]._replace(problems=["one is torn."])], places)
    assert [run.seed for run in both.runs] == [0, 1]
    assert both.problems == ["one is torn."]
    rare = [run._replace(config=run.config | {"eval_every_frames": 9}) for run in parts[1].runs]
    [told] = joined([parts[0], parts[1]._replace(runs=rare)], places).problems
    assert told == f"The runs of {TASK} differ in eval_every_frames: None in {places[0]} and 9 in {places[1]}."
    with pytest.raises(
        ValueError, match=rf"0 and .*1 both hold {TASK} with vcse, seed 0: one of them must be left out"
    ):
        joined([parts[0], parts[0]], places)
    light = [run._replace(config=run.config | {"rendering": "light"}) for run in parts[1].runs]
    with pytest.raises(ValueError, match=r"images of one quality, got .* in .*0 and light in .*1"):
        joined([parts[0], parts[1]._replace(runs=light)], places)


def test_studies_are_found_below_a_directory(tmp_path):
    for name in ("b", "a"):
        make_run(tmp_path / name, 0)
        (tmp_path / name / "study.json").write_text("{}")
    assert study_directories(tmp_path) == [tmp_path / "a", tmp_path / "b"]
    assert study_directories(tmp_path / "a") == [tmp_path / "a"]
