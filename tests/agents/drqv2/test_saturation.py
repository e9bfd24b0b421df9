import dataclasses
import math

import pytest
from runs.small_pixels import DOOR, make_config

from vcse.agents.drqv2.saturation import remark

CONFIG = make_config("vcse", task=DOOR, frames=100_000)


def rows(shares, returns, *, every=10_000, success=0.0):
    """Return rows of train.csv from frame 0 on."""
    return [
        {"frame": place * every, "saturated_share": share, "return_mean": paid, "success_rate": success}
        for place, (share, paid) in enumerate(zip(shares, returns, strict=True))
    ]


STUCK = rows([math.nan, 0.2, 0.95, 1.0, 1.0], [math.nan, 360.0, 1040.0, 928.0, 1090.0])


def test_a_policy_that_stays_at_the_ends_of_its_range_is_told_with_what_helps():
    assert remark(CONFIG, STUCK) == (
        "since frame 20,000 at least 95% of its policy's actions have been at an end of their range (saturated_share), "
        "and its returns between 928 and 1090: unless the task is solved, it is stuck there. A new run with "
        "--pre-activation-penalty 0.1 --reward-normalization centered may not be"
    )


def test_it_must_last_for_a_fifth_of_the_run_and_for_20_000_frames():
    assert [bool(remark(CONFIG, STUCK[:end])) for end in range(1, 6)] == [False] * 4 + [True]
    longer = dataclasses.replace(CONFIG, frames=200_000)
    assert not remark(longer, STUCK)
    assert remark(longer, [*rows([1.0] * 4, [1000.0] * 4), *STUCK[4:]])
    shorter = dataclasses.replace(CONFIG, frames=30_000)
    assert not remark(shorter, STUCK[:4])
    assert remark(shorter, STUCK)
    assert not remark(CONFIG, rows([1.0] * 3, [1000.0] * 3, every=9_000))


@pytest.mark.parametrize(
    "others",
    [
        rows([math.nan, 0.2, 0.9, 1.0, 1.0], [math.nan, 360.0, 1040.0, 928.0, 1090.0]),
        rows([math.nan, 1.0, 1.0, 1.0, 1.0], [math.nan, 360.0, 1040.0, 1100.0, 1700.0]),
        rows([math.nan, 1.0, math.nan, 1.0, 1.0], [math.nan, 360.0, 1040.0, 928.0, 1090.0]),
        rows([math.nan, 1.0, 1.0, 1.0, 1.0], [math.nan, math.nan, math.nan, 928.0, 1090.0]),
        rows([math.nan, 1.0, 1.0, 1.0, 1.0], [math.nan, 360.0, 1040.0, 1040.0, 1040.0], success=0.9),
        [{"frame": row["frame"], "return_mean": 1.0, "success_rate": 0.0} for row in STUCK],
    ],
    ids=["not saturated", "learning", "unknown share", "no episode", "solved", "rows of an earlier release"],
)
def test_of_other_policies_nothing_is_said(others):
    assert remark(CONFIG, others) == ""


def test_returns_of_no_reward_at_all_do_not_change():
    assert remark(CONFIG, rows([1.0] * 5, [0.0] * 5, success=math.nan))


def test_what_a_run_has_already_is_not_recommended():
    def with_(**changes):
        return dataclasses.replace(CONFIG, settings=dataclasses.replace(CONFIG.settings, **changes))

    said = remark(with_(pre_activation_penalty=0.01), STUCK)
    assert said.endswith("A new run with --reward-normalization centered may not be")
    said = remark(with_(pre_activation_penalty=0.01, reward_normalization="centered"), STUCK)
    assert said.endswith("it is stuck there")
