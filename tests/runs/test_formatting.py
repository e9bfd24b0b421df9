import math

import pytest

from vcse.runs.formatting import counted, duration, size


def test_one_of_a_kind_is_not_written_as_many():
    assert [counted(number, "run") for number in (0, 1, 2, 1000)] == ["0 runs", "1 run", "2 runs", "1,000 runs"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (89.0, "89 s"), (600.0, "10 min"), (9e3, "2.5 h"), (math.inf, "unknown time")]
)
def test_durations_are_written_as_people_say_them(seconds, text):
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("number", "zeros", "text"),
    [
        (0, 0, "0.0 MB"),
        (12, 6, "12.0 MB"),
        (340, 6, "340 MB"),
        (34, 8, "3.4 GB"),
        (106, 9, "106 GB"),
        (123, 10, "1.2 TB"),
    ],
)
def test_sizes_are_written_in_the_unit_that_people_would_take(number, zeros, text):
    assert size(number * 10**zeros) == text
