import pytest

from vcse.studies.catalog import study
from vcse.studies.study import narrowed, run_configs


class TestNarrowed:
    def test_seeds_frames_tasks_and_bonuses(self):
        small = narrowed(study("minigrid"), seeds=2, frames=1000, tasks=["Unlock"], bonuses=["se"])
        assert [config.name for config in run_configs(small, first_seed=5)] == [
            "minigrid-Unlock/se/seed5",
            "minigrid-Unlock/se/seed6",
        ]
        assert {config.frames for config in run_configs(small)} == {1000}

    def test_seeds_begin_with_the_studys_own_and_some_methods_have_more(self):
        entry = narrowed(study("metaworld-remedies"), bonuses=["clean-penalty-centered", "clean-penalty-mean"])
        assert [config.seed for config in run_configs(entry)] == [20, 21, 20]
        assert [config.seed for config in run_configs(entry, first_seed=3)] == [3, 4, 3]
        assert [config.seed for config in run_configs(narrowed(entry, seeds=2))] == [20, 21, 22, 20, 21]
        assert entry.runs_per_task == 3

    def test_a_bonus_names_its_methods_where_none_has_its_name(self):
        assert narrowed(study("minigrid-k"), bonuses=["vcse"]).method_names == ("vcse-k3", "vcse-k5", "vcse-k7")
        assert narrowed(study("minigrid-controls"), bonuses=["vcse"]).method_names == ("vcse",)

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"seeds": 0}, "--seeds must be at least 1, got 0"),
            ({"frames": -5}, "--frames must be at least 1, got -5"),
            (
                {"tasks": ["LavaGap7"]},
                r"minigrid has no task 'LavaGap7'; nearest are minigrid/LavaGapS7, .*minigrid lists all 6\)",
            ),
            ({"tasks": ["minigird/LavaGapS7"]}, "nearest are minigrid/LavaGapS7, "),
            ({"bonuses": ["vcse", "rnd"]}, "has no method 'rnd', but none, se, vcse$"),
        ],
    )
    def test_what_the_study_does_not_have_is_refused(self, options, message):
        with pytest.raises(ValueError, match=message):
            narrowed(study("minigrid"), **options)


def test_the_heat_map_can_be_made_longer_and_is_drawn_of_short_runs_too():
    entry = study("minigrid-heatmap")
    every = {
        frames: run_configs(narrowed(entry, frames=frames))[0].visits_every_frames
        for frames in (5_000, 100_000, 300_000)
    }
    assert every == {5_000: 500, 100_000: 10_000, 300_000: 10_000}
