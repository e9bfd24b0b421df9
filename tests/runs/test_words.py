import math

import pytest

from vcse.runs.words import counted, duration


def test_one_of_a_kind_is_not_written_as_many():
    assert [counted(number, "run") for number in (0, 1, 2, 1000)] == ["0 runs", "1 run", "2 runs", "1,000 runs"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "0 s"), (89.0, "89 s"), (600.0, "10 min"), (9e3, "2.5 h"), (math.inf, "unknown time")]
)
def test_durations_are_written_as_people_say_them(seconds, text):
    assert duration(seconds) == text
