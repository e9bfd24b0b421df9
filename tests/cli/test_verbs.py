import json

import pytest

from vcse.cli import main


def refused(arguments, capsys):
    """Return what a wrong call prints, which is one line, with exit status 2."""
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    [line] = printed.err.splitlines()
    return line


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["train", "--tasks", "minigrid/Empty-5x5"], "--task"),
        (["train", "--taks", "minigrid/Empty-5x5"], "--task"),
        (["train", "--task", "minigrid/Empty-5x5", "--bonuses", "none", "vcse"], "--bonus"),
        (["train", "--task", "minigrid/Empty-5x5", "--seed", "3"], "--seeds, --first-seed or --seed-frames"),
        (["train", "--task", "minigrid/Empty-5x5", "--output=runs"], "--out"),
        (["train", "--task", "minigrid/Empty-5x5", "-o", "runs"], "--out"),
        (["train", "--task", "minigrid/Empty-5x5", "--learning-rate", "1e-3"], "--set"),
        (["train", "--env", "minigrid/Empty-5x5"], "--task or --environments"),
        (["eval", "--episode", "3", "runs"], "--episodes"),
        (["watch", "runs", "--mp4", "film"], "--out"),
        (["report", "--metric", "bonus_mean", "runs"], "--column"),
        (["tasks", "--jsn"], "--json"),
        (["selftest", "--draw", "3"], "--draws"),
        (["study", "run", "minigrid", "--bonus", "vcse"], "--bonuses"),
        (["study", "power", "runs", "--diff", "0.1"], "--difference"),
    ],
)
def test_an_unknown_option_names_what_may_have_been_meant(arguments, meant, capsys):
    unknown = next(each for each in arguments if each.startswith("-") and each != "--task").partition("=")[0]
    prog = " ".join(["vcse", *arguments[: 2 if arguments[0] == "study" else 1]])
    assert refused(arguments, capsys) == (
        f"vcse: unknown option '{unknown}' of {prog}; did you mean {meant}? ({prog} --help lists all)"
    )


def test_an_unknown_option_like_no_other_names_the_help(capsys):
    arguments = ["train", "--task", "minigrid/Empty-5x5", "--total-timesteps", "5"]
    assert refused(arguments, capsys) == (
        "vcse: unknown option '--total-timesteps' of vcse train (vcse train --help lists all)"
    )


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["train", "minigrid/Empty-5x5"], "of vcse train; did you mean --task minigrid/Empty-5x5?"),
        (["train", "a", "b", "--bonus", "none"], "of vcse train; did you mean --task a b?"),
        (["train", "--seeds", "2", "a"], "of vcse train; did you mean --task a?"),
        (["export", "runs", "policy"], "of vcse export; did you mean --out policy?"),
        (["eval", "runs", "others"], ": vcse eval takes one PATH"),
        (["tasks", "minigrid"], ": vcse tasks takes no argument but options"),
    ],
)
def test_an_argument_too_many_is_told_where_it_belongs(arguments, told, capsys):
    assert told in refused(arguments, capsys)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (
            ["--json", "doctor"],
            "'--json' of vcse; options follow the command, as in vcse doctor --json (vcse --help)",
        ),
        (["--versoin"], "'--versoin' of vcse; did you mean --version? (vcse --help)"),
        (["-x"], "'-x' of vcse (vcse --help)"),
        (
            ["study", "--dry-run", "run", "minigrid"],
            "'--dry-run' of vcse study; options follow the command, as in ",
        ),
    ],
)
def test_an_option_before_the_command_is_told_where_it_belongs(arguments, told, capsys):
    assert refused(arguments, capsys).startswith(f"vcse: unknown option {told}")


def test_a_study_is_no_command(capsys):
    assert refused(["study", "minigrid-k"], capsys) == (
        "vcse: 'minigrid-k' is a study, not a command; did you mean vcse study show minigrid-k or "
        "vcse study run minigrid-k?"
    )


@pytest.mark.parametrize("names", ["vcse,se", "vcse se"])
def test_names_are_separated_by_spaces(names, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["train", "--task", "minigrid/Empty-5x5", "--bonus", names])
    assert exit_.value.code == 2
    assert "names are separated by spaces, without commas or" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("option", "arguments"),
    [
        ("--task", ["train", "--task", "a", "--task", "b"]),
        ("--set", ["train", "--task", "a", "--set", "discount=0.9", "--set=learning_rate=1e-3"]),
        ("--bonuses", ["study", "run", "minigrid", "--bonuses", "vcse", "--bonuses", "se"]),
    ],
)
def test_an_option_of_several_words_is_given_once(option, arguments, capsys):
    assert refused(arguments, capsys) == f"vcse: {option} is given twice: write all behind one, as in {option} A B"


def test_of_an_option_of_one_word_the_last_counts(capsys):
    assert main(["train", "--task", "minigrid/Empty-5x5", "--seeds", "x", "--seeds=-1", "--dry-run"]) == 1
    assert capsys.readouterr().err == "vcse: --seeds must be at least 1, got -1\n"


def test_what_is_missing_is_explained(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["train", "--seeds", "2"])
    assert exit_.value.code == 2
    assert "Missing from vcse train" in capsys.readouterr().err


def test_options_may_be_written_in_any_way(capsys):
    arguments = ["train", "--task", "minigrid/Empty-5x5", "--first_seed=-1", "--dry-run"]
    assert main(arguments) == 1
    assert capsys.readouterr().err == "vcse: --first-seed must be at least 0, got -1\n"


def test_what_a_verb_prints_is_its_own(capsys):
    assert main(["study", "list", "--json"]) == 0
    printed = capsys.readouterr()
    assert len(json.loads(printed.out)) > 20
    assert printed.err == ""
