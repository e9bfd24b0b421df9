from vcse.runs.words import counted


def test_one_of_a_kind_is_not_written_as_many():
    assert [counted(number, "run") for number in (0, 1, 2, 1000)] == ["0 runs", "1 run", "2 runs", "1,000 runs"]
