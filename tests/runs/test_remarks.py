import math
import pickle

import pytest

from runs.small import make_config
from vcse.runs.directory import RunDirectory
from vcse.runs.remarks import Remark, Remarks


@pytest.fixture
def directories(tmp_path):
    configs = [make_config(seed=seed) for seed in range(2)]
    made = [RunDirectory(tmp_path / config.name, config) for config in configs]
    yield made
    for directory in made:
        directory.close()


def large(config, rows):
    """Remark on a run whose last number is above 5, or unknown."""
    last = rows[-1]["number"]
    return f"{last:.0f} of {len(rows)}, seed {config.seed}" if not last <= 5 else ""


def take(remarks, directories, numbers):
    rows = [{"frame": 10, "number": number} for number in numbers]
    for directory, row in zip(directories, rows, strict=True):
        directory.append_row("train.csv", row)
    remarks.take(rows)


def test_each_run_is_remarked_on_once_by_name(directories):
    notes = []
    remarks = Remarks(directories, large, notes.append)
    for numbers in ([1, 2], [1, 6], [1, 7], [8, 1], [9, 9]):
        take(remarks, directories, numbers)
    first, second = (directory.config.name for directory in directories)
    assert notes == [f"{second}: 6 of 2, seed 1", f"{first}: 8 of 4, seed 0"]
    assert all(isinstance(pickle.loads(pickle.dumps(note)), Remark) for note in notes)


def test_rows_from_before_a_restart_count_and_what_they_showed_is_not_said_again(directories):
    before = Remarks(directories, large, lambda text: None)
    for numbers in ([1, 6], [math.nan, 1]):
        take(before, directories, numbers)
    notes = []
    remarks = Remarks(directories, lambda config, rows: large(config, rows) if len(rows) > 2 else "", notes.append)
    take(remarks, directories, [6, 1])
    assert notes == [f"{directories[0].config.name}: 6 of 3, seed 0"]
    again = Remarks(directories, large, notes.append)
    take(again, directories, [7, 7])
    assert len(notes) == 1


def test_an_agent_that_has_nothing_to_say_reads_nothing(directories):
    for directory in directories:
        directory.append_row("train.csv", {"frame": 0, "words": "no number"})
    Remarks(directories, None, pytest.fail).take([{"frame": 1}, {"frame": 1}])


def test_a_damaged_curve_is_named(directories):
    take(Remarks(directories, large, print), directories, [1, 2])
    path = directories[0].path / "train.csv"
    path.write_text(path.read_text() + "20,twelve\n")
    with pytest.raises(ValueError, match=rf"^{path} is damaged: could not convert string to float: 'twelve'$"):
        Remarks(directories, large, print)
