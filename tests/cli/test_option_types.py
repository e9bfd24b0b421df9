import re

import pytest

from vcse.cli import main
from vcse.cli.option_types import count_of


@pytest.mark.parametrize(
    ("text", "number"),
    [
        *((text, 100_000) for text in ("100000", "100_000", "100,000", "1e5", "1E+5", "100k", "0.1M")),
        ("1M", 1_000_000),
        ("1.5M", 1_500_000),
        ("1_234_567", 1_234_567),
        ("0", 0),
        ("-5", -5),  # which the options refuse by name
    ],
)
def test_large_numbers_are_read_as_people_write_them(text, number):
    assert count_of(text) == number


@pytest.mark.parametrize(
    "text", ["", "many", "1,0", "1_0", "1.5", "1e-5", "1e999", "100m", "k", "1 000", "nan", "0x10"]
)
def test_what_is_no_count_is_told_with_what_is(text):
    message = f"it must be a whole number, such as 100000, 100_000, 1e5, 100k or 1M, got {text!r}"
    with pytest.raises(ValueError, match=re.escape(message)):
        count_of(text)


@pytest.mark.parametrize(
    "command",
    [
        ["train", "--task", "minigrid/LavaGapS7", "--frames"],
        ["train", "--task", "minigrid/LavaGapS7", "--eval-every-frames"],
        ["resume", "runs", "--frames"],
        ["study", "run", "minigrid", "--frames"],
    ],
    ids=" ".join,
)
def test_every_option_that_counts_frames_says_how_they_are_written(tmp_path, monkeypatch, capsys, command):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit) as exit_:
        main([*command, "many"])
    assert exit_.value.code == 2
    told = " ".join(capsys.readouterr().err.replace("│", " ").split())
    message = "it must be a whole number, such as 100000, 100_000, 1e5, 100k or 1M, got 'many'"
    assert f"Error parsing {command[-1]}: {message}" in told
    assert "Annotated" not in told


@pytest.mark.parametrize(
    ("option", "text", "message"),
    [
        ("--hidden-units", "1.5", "it must be a whole number, got '1.5'"),
        ("--seeds", "few", "it must be a whole number, got 'few'"),
        ("--k", "None", "it must be a whole number, got 'None'"),
        ("--beta", "much", "it must be a number, got 'much'"),
        ("--temperature", "hot", "it must be a number or learned, got 'hot'"),
        ("--rendering", "pretty", "it must be one of faithful, light, fast, got 'pretty'"),
        ("--value-critic", "None", "it must be one of online, target, got 'None'"),
        ("--extrinsic-entropy", "perhaps", "it must be True or False, got 'perhaps'"),
        ("--task", "", "it needs at least one name"),
        ("--bonus", "", "it needs at least one name"),
        ("--action-noise", "loud", "it must be a number, got 'loud'"),
        ("--action-noise", "1 0.1", "it must be one number, or 3 (FROM TO STEPS), got '1 0.1'"),
    ],
)
def test_what_is_no_number_is_told_without_the_words_of_types(capsys, option, text, message):
    with pytest.raises(SystemExit) as exit_:
        main(["train", *([] if option == "--task" else ["--task", "dmc/hopper_stand"]), option, *text.split()])
    assert exit_.value.code == 2
    told = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"Error parsing {option}: {message}" in told
    assert "None" not in told.replace("(default: None)", "").replace(text or " ", "")
    assert "For full helptext, see vcse train --help" in told


@pytest.mark.parametrize("option", ["--tasks", "--bonuses"])
def test_a_study_does_not_take_no_names_for_all(tmp_path, capsys, option):
    with pytest.raises(SystemExit) as exit_:
        main(["study", "run", "minigrid", "--dry-run", "--out", str(tmp_path), option])
    assert exit_.value.code == 2
    told = " ".join(capsys.readouterr().err.replace("│", " ").split())
    assert f"Error parsing {option}: it needs at least one name" in told


def test_a_study_takes_frames_as_people_write_them(tmp_path, capsys):
    arguments = ["minigrid", "--seeds", "1", "--tasks", "minigrid/Unlock", "--frames", "2M", "--device", "cpu"]
    assert main(["study", "run", *arguments, "--dry-run", "--out", str(tmp_path)]) == 0
    assert "minigrid/Unlock: 3 runs of 2,000,000 frames" in capsys.readouterr().out
