import json

import pytest

from vcse.cli import main
from vcse.studies.manifest import StudyFile


def make_runs(out, *, study=None, seeds=4):
    """Write runs of two methods that share most of what they differ by from seed to seed."""
    for method, lead in (("vcse", 0.2), ("se", 0.0)):
        for seed in range(seeds):
            path = out / method / f"seed{seed}"
            path.mkdir(parents=True)
            config = {"schema_version": 1, "task": "minigrid/Unlock", "method": method, "seed": seed, "frames": 200}
            (path / "config.json").write_text(json.dumps(config))
            (path / "meta.json").write_text("{}")
            level = lead + 0.1 * seed + 0.02 * (seed % 2) * (method == "vcse")
            (path / "train.csv").write_text(f"frame,success_rate\n100,{level}\n200,{level}\n")
            (path / "DONE").write_text("200\n")
    if study:
        asked = StudyFile(study, seeds, 0, None, ["minigrid/Unlock"], ["vcse", "se"], "")
        (out / "study.json").write_text(json.dumps(asked.to_json()))
    return out


def rows_of(capsys, *arguments):
    assert main(["study", "power", *map(str, arguments), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_seeds_are_told_paired_and_unpaired_for_both_questions(tmp_path, capsys):
    make_runs(tmp_path, study="minigrid")
    assert main(["study", "power", str(tmp_path), "--difference", "0.05"]) == 0
    shown = capsys.readouterr().out
    assert "vcse against se, 1 task" in shown
    assert "to find a difference of 0.05" in shown
    assert "to show: alike within 0.05" in shown
    assert "control" not in shown  # the claims whose methods were run, and no others
    rows = rows_of(capsys, tmp_path, "--difference", "0.05", "--within", "0.1", "--seeds", "8", "16")
    assert len(rows) == 2 * 2 * 3
    needed = {(row["question"], row["pairing"]): row for row in rows if row["is_needed"]}
    assert {row["size"] for row in rows if row["question"] == "equivalence"} == {0.1}
    paired, unpaired = (needed["difference", pairing] for pairing in ("paired by seed", "unpaired"))
    # The pairs differ by 0.2 and 0.22 in turn; the runs of a method by 0.1 from one seed to the next.
    assert paired["spread"] == pytest.approx((0.0004 / 3) ** 0.5)
    assert unpaired["spread"] > 10 * paired["spread"]
    assert paired["seeds"] == 5 < unpaired["seeds"]
    with_eight = [row["power"] for row in rows if row["seeds"] == 8 and row["pairing"] == "unpaired"]
    assert all(0 <= power < 0.8 for power in with_eight)


def test_methods_are_named_where_no_study_says_what_is_compared(tmp_path, capsys):
    make_runs(tmp_path)
    assert main(["study", "power", str(tmp_path), "--difference", "0.05"]) == 1
    assert "--method and --than must say what is compared, of se, vcse" in capsys.readouterr().err
    options = ["--difference", "0.05", "--method", "vcse", "--than", "se"]
    assert {row["method"] for row in rows_of(capsys, tmp_path, *options)} == {"vcse"}


def test_the_runs_of_a_study_are_looked_for(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["study", "power", "minigrid", "--difference", "0.05"]) == 1
    assert "there are no runs of minigrid in runs/minigrid or results/minigrid" in capsys.readouterr().err
    make_runs(tmp_path / "results" / "minigrid", study="minigrid")
    assert main(["study", "power", "minigrid", "--difference", "0.05"]) == 0
    assert capsys.readouterr().out.startswith("results/minigrid: success_rate, area under the curve, 80% power")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--difference", "0"], "a difference or margin must be a number above 0, got 0.0"),
        (["--difference", "0.1", "--within", "-1"], "a difference or margin must be a number above 0, got -1.0"),
        (["--difference", "0.1", "--seeds", "1"], "--seeds must be at least 2, got 1"),
        (["--difference", "0.1", "--method", "vcse"], "--method and --than must be given together"),
        (["--difference", "0.1", "--method", "vcse", "--than", "rnd"], "there is no run of rnd, only of se, vcse"),
    ],
)
def test_what_cannot_be_planned_is_refused(tmp_path, capsys, options, message):
    make_runs(tmp_path, study="minigrid")
    assert main(["study", "power", str(tmp_path), *options]) == 1
    assert message in capsys.readouterr().err


def test_one_run_of_a_method_has_no_spread(tmp_path, capsys):
    make_runs(tmp_path, study="minigrid", seeds=1)
    assert main(["study", "power", str(tmp_path), "--difference", "0.1"]) == 1
    assert "on no task are there 2 runs each of vcse and se with success_rate" in capsys.readouterr().err
    assert main(["study", "power", "nothing", "--difference", "0.1"]) == 1
    assert "nothing is neither a directory nor a study" in capsys.readouterr().err
