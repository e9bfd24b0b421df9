import re
from dataclasses import replace
from pathlib import Path

import pytest

from vcse.studies.catalog import CATALOG
from vcse.studies.growth import check_growth, requested_runs
from vcse.studies.manifest import StudyFile
from vcse.studies.study import narrowed, run_configs

TASK = "minigrid/SimpleCrossingS9N1"
METHODS = ["vcse-k3", "vcse-k5", "vcse-k7"]
# What a user began with: 6 of the 24 runs of the study, 60,000 of their 500,000 frames.
FILE = StudyFile("minigrid-k", 2, 0, 60_000, [TASK], METHODS, "vcse study run minigrid-k --seeds 2 --frames 60000")
OUT = Path("runs/minigrid-k")


def asked(*, first_seed=None, **options):
    return run_configs(narrowed(CATALOG["minigrid-k"], **options), first_seed=first_seed)


def test_the_study_as_it_was_asked_for_and_less_of_it_are_no_growth():
    check_growth(FILE, asked(seeds=2, frames=60_000), OUT, given=["seeds", "frames"])
    check_growth(FILE, asked(seeds=1, frames=60_000, bonuses=["vcse-k3"]), OUT, given=["seeds", "frames", "bonuses"])


def test_options_that_were_left_out_enlarge_nothing_and_the_numbers_are_told():
    told = (
        "runs/minigrid-k holds 6 runs of 60,000 frames; this command would add 18 runs of 500,000 frames and extend 6 "
        "runs to 500,000: to resume what is there, run vcse study run minigrid-k --seeds 2 --frames 60000 --out "
        "runs/minigrid-k; to enlarge the study, repeat this command with --enlarge"
    )
    with pytest.raises(ValueError, match=f"^{re.escape(told)}$"):
        check_growth(FILE, asked(), OUT, given=[])


@pytest.mark.parametrize(
    ("options", "refused"),
    [
        ({"seeds": 4, "frames": 60_000}, None),
        ({"seeds": 2, "frames": 100_000}, None),
        ({"seeds": 4}, "extend 6 runs to 500,000"),  # the frames were left out
        ({"frames": 60_000}, "add 18 runs of 60,000 frames:"),  # the seeds were
        ({"seeds": 2, "frames": 60_000, "first_seed": 2}, None),
    ],
)
def test_options_that_are_given_may_enlarge_a_study(options, refused):
    if refused is None:
        check_growth(FILE, asked(**options), OUT, given=options)
    else:
        with pytest.raises(ValueError, match=refused):
            check_growth(FILE, asked(**options), OUT, given=options)


def test_methods_that_were_left_out_before_are_not_added_unless_they_are_named():
    before = replace(FILE, methods=["vcse-k3"])
    small = {"seeds": 2, "frames": 60_000}
    check_growth(before, asked(**small, bonuses=["vcse-k5"]), OUT, given=[*small, "bonuses"])
    with pytest.raises(ValueError, match=r"holds 2 runs of 60,000 frames; this command would add 4 runs"):
        check_growth(before, asked(**small), OUT, given=small)


def test_runs_of_two_commands_are_not_combined_by_a_third_that_names_nothing():
    other = replace(FILE, first_seed=2, methods=["vcse-k5"])
    both = replace(FILE, methods=["vcse-k3"]).joined(other)
    configs = asked(seeds=4, frames=60_000, bonuses=["vcse-k3", "vcse-k5"])
    with pytest.raises(ValueError, match="would add 4 runs"):
        check_growth(both, configs, OUT, given=["frames"])
    check_growth(both, configs, OUT, given=["frames", "seeds"])


def test_of_several_requests_for_a_run_the_longest_counts():
    longer = replace(FILE, seeds=1, frames=80_000)
    for file in (FILE.joined(longer), longer.joined(FILE)):
        assert sorted(config.frames for config in requested_runs(file).values()) == [60_000] * 3 + [80_000] * 3
