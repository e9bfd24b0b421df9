import dataclasses
import math

import numpy as np
import pytest

from vcse.reports.loaded_run import GatheredRun
from vcse.reports.statistics import area_under_curve
from vcse.reports.verdicts import (
    ALL_TASKS,
    FEWEST_EPISODES,
    count_corrected,
    decided_otherwise,
    judge,
    metric_curve,
)
from vcse.studies.catalog import CATALOG, study
from vcse.studies.study import Claim, Task, ZeroClaim

LAVA, EMPTY = "minigrid/LavaGapS7", "minigrid/Empty-16x16"


def make_run(method, seed, success, *, task=LAVA, frames=None, visits=None, config=None, **columns):
    success = np.array(success, dtype=float)
    frames = np.arange(1, len(success) + 1) * 1000 if frames is None else np.array(frames)
    columns = {name: np.array(each, dtype=float) for name, each in columns.items()}
    return GatheredRun(
        task, method, seed, frames, {"success_rate": success, **columns}, {}, config or {}, {}, visits, True, ""
    )


def make_study(*claims, tasks=(LAVA,), metric="success_rate"):
    return dataclasses.replace(
        study("minigrid"),
        tasks=tuple(Task(task, 3000) for task in tasks),
        claims=claims,
        metric=metric,
    )


def make_runs(levels, *, task=LAVA, runs=6):
    """Return runs of constant success, a little apart from each other."""
    return [
        make_run(method, seed, [level + 0.01 * seed] * 3, task=task)
        for method, level in levels.items()
        for seed in range(runs)
    ]


FASTER = Claim("faster", "vcse", "se")


@pytest.mark.parametrize(
    ("levels", "within", "verdict"),
    [
        ({"vcse": 0.6, "se": 0.2}, None, "holds"),
        ({"vcse": 0.2, "se": 0.6}, None, "contradicted"),
        ({"vcse": 0.5, "se": 0.5}, None, "undecided"),
        ({"vcse": 0.6, "se": 0.2}, 0.0, "contradicted"),
        ({"vcse": 0.2, "se": 0.6}, 0.0, "contradicted"),
        ({"vcse": 0.5, "se": 0.5}, 0.0, "undecided"),  # that nothing is between them is never shown
        ({"vcse": 0.51, "se": 0.5}, 0.1, "holds"),
        ({"vcse": 0.5, "se": 0.51}, 0.1, "holds"),
        ({"vcse": 0.6, "se": 0.5}, 0.1, "undecided"),
        ({"vcse": 0.51, "se": 0.5}, 0.02, "undecided"),
        ({"vcse": 0.7, "se": 0.5}, 0.1, "contradicted"),
        ({"vcse": 0.5, "se": 0.7}, 0.1, "contradicted"),
    ],
)
def test_the_interval_decides(levels, within, verdict):
    study = make_study(dataclasses.replace(FASTER, within=within))
    (judged,) = judge(study, make_runs(levels))
    (judgement,) = judged.judgements
    assert judgement.verdict == verdict
    assert judgement.difference == pytest.approx(levels["vcse"] - levels["se"])
    assert judgement.low <= judgement.difference <= judgement.high
    assert (judgement.runs, judgement.other_runs, judgement.reason) == (6, 6, "")


def test_equal_numbers_that_were_added_up_differently_are_no_difference():
    study = make_study(FASTER)
    runs = [make_run("vcse", s, [0.1 + 0.2] * 3) for s in range(6)] + [make_run("se", s, [0.3] * 3) for s in range(6)]
    assert judge(study, runs)[0].judgements[0].verdict == "undecided"


def test_few_runs_decide_nothing():
    runs = make_runs({"vcse": 0.9, "se": 0.1}, runs=4)
    (judgement,) = judge(make_study(FASTER), runs)[0].judgements
    assert (judgement.verdict, judgement.reason) == ("undecided", "4 runs of a method; 5 are needed")
    assert judgement.low > 0


def test_one_run_has_no_interval():
    runs = make_runs({"vcse": 0.9}) + make_runs({"se": 0.1}, runs=1)
    (judgement,) = judge(make_study(FASTER), runs)[0].judgements
    assert (judgement.verdict, judgement.difference) == ("undecided", pytest.approx(0.925 - 0.1))
    assert math.isnan(judgement.low)
    assert math.isnan(judgement.high)
    (judgement,) = judge_zero(([0, 0.5], [0, 9]))[0].judgements
    assert (judgement.difference, judgement.runs) == (0, 1)
    assert math.isnan(judgement.low)


def test_tasks_are_judged_alone_and_together():
    runs = make_runs({"vcse": 0.6, "se": 0.2}) + make_runs({"vcse": 0.4, "se": 0.4}, task=EMPTY)
    lava, empty, together = judge(make_study(FASTER, tasks=(LAVA, EMPTY)), runs)[0].judgements
    assert [lava.verdict, empty.verdict] == ["holds", "undecided"]
    assert (together.task, together.runs, together.other_runs) == (ALL_TASKS, 12, 12)
    assert together.difference == pytest.approx((lava.difference + empty.difference) / 2)
    assert together.low < together.difference < together.high


def test_where_a_task_is_cut_at_its_shortest_run_the_verdict_on_all_says_so():
    runs = [run for task in (LAVA, EMPTY) for run in make_runs({"vcse": 0.9, "se": 0.1}, task=task)]
    runs.append(make_run("vcse", 6, [0.9, 0.9], task=EMPTY))
    lava, empty, together = judge(make_study(FASTER, tasks=(LAVA, EMPTY)), runs)[0].judgements
    assert (lava.reason, empty.reason) == ("", "up to frame 2,000, where the shortest run ends")
    assert (together.task, together.reason) == (ALL_TASKS, "1 task up to where the shortest run ends")


def test_a_task_that_nobody_learns_counts_together_with_the_others_as_much_as_they_do():
    """One interquartile mean of the runs of all tasks would leave it out altogether."""
    tasks = [f"minigrid/{name}" for name in ("One", "Two", "Three", "Hard")]
    runs = [run for task in tasks[:3] for run in make_runs({"vcse": 0.9, "se": 0.3}, task=task)]
    runs += make_runs({"vcse": 0.0, "se": 0.0}, task=tasks[3])
    *_, together = judge(make_study(FASTER, tasks=tasks), runs)[0].judgements
    assert together.difference == pytest.approx(0.75 * 0.6)


def test_tasks_together_need_enough_runs_on_each():
    runs = make_runs({"vcse": 0.6, "se": 0.2}) + make_runs({"vcse": 0.6, "se": 0.2}, task=EMPTY, runs=2)
    *_, together = judge(make_study(FASTER, tasks=(LAVA, EMPTY)), runs)[0].judgements
    assert (together.verdict, together.reason) == ("undecided", "2 runs of a method on a task; 5 are needed")


def test_what_was_not_run_is_said():
    runs = make_runs({"vcse": 0.6, "se": 0.2})
    lava, empty, together = judge(make_study(FASTER, tasks=(LAVA, EMPTY)), runs)[0].judgements
    assert (empty.verdict, empty.reason) == ("not run", "no run of vcse and se")
    assert math.isnan(empty.difference)
    assert (lava.verdict, together.verdict, together.reason) == ("holds", "holds", "1 of 2 tasks")
    missing = judge(make_study(Claim("", "vcse", "rcse")), runs)[0].judgements
    assert [(each.verdict, each.reason) for each in missing] == [("not run", "no run of rcse")]


def test_of_tasks_that_were_not_asked_for_a_claim_says_nothing():
    runs = make_runs({"vcse": 0.6, "se": 0.2})
    entry = make_study(FASTER, tasks=(LAVA, EMPTY))
    lava, together = judge(entry, runs, [LAVA])[0].judgements
    assert (lava.task, together.task, together.reason) == (LAVA, ALL_TASKS, "1 of 2 tasks")
    of_neither = judge(entry, runs, ["minigrid/Unlock"])[0].judgements  # a claim that is judged nowhere is not run
    assert [each.task for each in of_neither] == [LAVA, EMPTY, ALL_TASKS]


def test_a_claim_may_be_about_some_tasks_alone():
    runs = make_runs({"vcse": 0.6, "se": 0.2}) + make_runs({"vcse": 0.6, "se": 0.2}, task=EMPTY)
    study = make_study(dataclasses.replace(FASTER, tasks=(EMPTY,)), tasks=(LAVA, EMPTY))
    assert [each.task for each in judge(study, runs)[0].judgements] == [EMPTY]


def test_the_area_counts_nothing_before_the_first_episode_and_ends_where_all_are():
    late = [make_run("vcse", seed, [math.nan, 0.8, 0.8, 0.8]) for seed in range(5)]
    short = [make_run("se", seed, [0.1, 0.1]) for seed in range(5)]
    (judgement,) = judge(make_study(FASTER), late + short)[0].judgements
    assert judgement.difference == pytest.approx((0 + 0.8) / 2 - 0.1)
    assert judgement.reason == "up to frame 2,000, where the shortest run ends"


def test_the_area_is_that_of_the_statistics_also_where_rows_are_unevenly_apart():
    frames, rising = np.array([1000, 2000, 9000]), np.array([0.2, 0.4, 0.9])
    runs = [make_run("vcse", seed, rising, frames=frames) for seed in range(5)]
    runs += [make_run("se", seed, [0.0] * 3, frames=frames) for seed in range(5)]
    (judgement,) = judge(make_study(FASTER), runs)[0].judgements
    assert judgement.difference == pytest.approx(area_under_curve(rising[None, None], frames)[0, 0])
    assert judgement.difference == pytest.approx((0.3 * 1000 + 0.65 * 7000) / 8000)


@pytest.mark.parametrize("metric", ["success_rate", "return_mean"])
def test_nothing_is_known_of_a_run_before_enough_episodes_have_ended(metric):
    episodes = [1, FEWEST_EPISODES - 1, FEWEST_EPISODES, 100]
    run = make_run("vcse", 0, [1, 1, 0.25, 0.5], return_mean=[1, 1, 0.25, 0.5], episodes=episodes, beta=[1] * 4)
    frames, scores = metric_curve(run, metric)
    assert frames.tolist() == [1000, 2000, 3000, 4000]
    np.testing.assert_array_equal(scores, [math.nan, math.nan, 0.25, 0.5])
    assert metric_curve(run, "beta")[1].tolist() == [1] * 4  # is no matter of episodes
    alike = run._replace(config=run.config | {"agent": "drqv2"})  # whose episodes are all equally long
    assert metric_curve(alike, metric)[1].tolist() == [1, 1, 0.25, 0.5]
    early = [make_run("vcse", seed, [1.0] * 3, episodes=[1, 2, 50]) for seed in range(5)]
    never = [make_run("se", seed, [0.0] * 3, episodes=[16, 32, 50]) for seed in range(5)]
    (judgement,) = judge(make_study(FASTER), early + never)[0].judgements
    assert judgement.difference == pytest.approx((0 + 0.5) / 2)


def test_a_claim_about_a_frame_looks_at_the_first_row_not_before_it():
    study = make_study(dataclasses.replace(FASTER, at_frame=1500))
    runs = [make_run("vcse", seed, [0.1, 0.7, 0.9]) for seed in range(5)]
    runs += [make_run("se", seed, [0.1, 0.2, 0.9]) for seed in range(5)] + [make_run("se", 5, [0.1])]
    (judgement,) = judge(study, runs)[0].judgements
    assert judgement.difference == pytest.approx(0.5)
    assert (judgement.runs, judgement.other_runs, judgement.reason) == (5, 5, "1 run left out, too short")
    never = make_study(dataclasses.replace(FASTER, at_frame=9000))
    (judgement,) = judge(never, runs)[0].judgements
    assert (judgement.verdict, judgement.reason) == ("not run", "no run reaches frame 9,000")


ZERO = ZeroClaim("nothing is decided by the value", "vcse", "decided")


def judge_zero(*runs):
    return judge(make_study(ZERO), [make_run("vcse", seed, s, decided=d) for seed, (s, d) in enumerate(runs)])


def test_a_column_is_looked_at_until_the_first_success():
    (judged,) = judge_zero(*[([math.nan, 0, 0.1, 0], [0, 0, 9, 9])] * 5)
    assert judged.measure == "mean of decided until the first success"
    (judgement,) = judged.judgements
    assert (judgement.verdict, judgement.difference, judgement.runs) == ("holds", 0, 5)
    (judgement,) = judge_zero(*[([0, 0, 0.1], [0.2, 0.4, 9])] * 5)[0].judgements
    assert (judgement.verdict, judgement.difference) == ("contradicted", pytest.approx(0.3))


def test_a_column_that_is_seldom_above_zero_is_undecided():
    (judgement,) = judge_zero(*[([0, 0], [0, 0])] * 7, ([0, 0], [0, 0.5]))[0].judgements
    assert (judgement.verdict, judgement.difference) == ("undecided", 0)


def test_runs_with_success_from_the_first_row_are_left_out_and_counted():
    (judgement,) = judge_zero(*[([0, 0.5], [0, 9])] * 5, ([0.5, 0.5], [9, 9]))[0].judgements
    assert (judgement.verdict, judgement.runs) == ("holds", 5)
    assert judgement.reason == "1 run left out with success from the first row on"
    (judgement,) = judge_zero(*[([0.5], [9])] * 5)[0].judgements
    assert (judgement.verdict, judgement.runs) == ("undecided", 0)
    (judgement,) = judge_zero(*[([0, 0.5], [0, 9])] * 4)[0].judgements
    assert (judgement.verdict, judgement.reason) == ("undecided", "4 runs; 5 are needed")
    (judgement,) = judge(make_study(ZERO), make_runs({"vcse": 0.1}))[0].judgements
    assert judgement.verdict == "not run"


def test_the_share_beyond_the_wall_comes_from_the_visits():
    visits = np.zeros((3, 9, 9), dtype=np.int64)
    visits[0, 1, 1], visits[0, 4, 5], visits[0, 5, 5] = 6, 1, 1  # in the opening is not beyond
    visits[1, 7, 7] = 4
    run = make_run("vcse", 0, [0.0], visits=visits, config={"visits_every_frames": 500})
    frames, shares = metric_curve(run, "beyond_wall_share")
    assert frames.tolist() == [500, 1000]  # in the last slice nobody was anywhere
    np.testing.assert_allclose(shares, [1 / 8, 1])
    assert metric_curve(make_run("vcse", 0, [0.0]), "beyond_wall_share") is None
    assert metric_curve(make_run("vcse", 0, [0.0]), "return_mean") is None
    others = visits.copy()
    others[1] = others[0]
    runs = [
        make_run(method, seed, [0.0], visits=counted, config={"visits_every_frames": 500})
        for method, counted in (("vcse", visits), ("se", others))
        for seed in range(5)
    ]
    (judgement,) = judge(make_study(FASTER, metric="beyond_wall_share"), runs)[0].judgements
    assert judgement.verdict == "holds"
    assert judgement.difference == pytest.approx((1 - 1 / 8) / 2)


def test_every_claim_of_the_catalogue_can_be_judged_without_runs():
    for entry in CATALOG.values():
        judged = judge(entry, [])
        always = [claim for claim in entry.claims if isinstance(claim, ZeroClaim) or not claim.where_run]
        assert [each.claim for each in judged] == always
        for claim in judged:
            assert {each.verdict for each in claim.judgements} == {"not run"}


def test_what_is_measured_at_some_rows_alone_is_a_curve_of_these():
    nan = math.nan
    evaluated = [nan, 100, nan, 300, nan, 500]
    run = make_run("vcse", 0, [0.0] * 6, eval_return_mean=evaluated)
    frames, scores = metric_curve(run, "eval_return_mean")
    assert (frames.tolist(), scores.tolist()) == ([2000, 4000, 6000], [100, 300, 500])
    assert metric_curve(make_run("vcse", 0, [0.0] * 2, eval_return_mean=[nan, nan]), "eval_return_mean") is None
    runs = [make_run("vcse", seed, [0.0] * 6, eval_return_mean=evaluated) for seed in range(5)]
    runs += [make_run("se", seed, [0.0] * 6, eval_return_mean=[nan, 0, nan, 0, nan, 0]) for seed in range(5)]
    (judgement,) = judge(make_study(FASTER, metric="eval_return_mean"), runs)[0].judgements
    assert judgement.difference == pytest.approx(300)


def make_shared_luck(lead, *, task=LAVA, seeds=range(8), others=range(8)):
    """Return runs of which those of a seed are alike."""
    luck = np.linspace(0, 0.6, 16)
    return [make_run("vcse", seed, [luck[seed] + lead] * 3, task=task) for seed in seeds] + [
        make_run("se", seed, [luck[seed] + 0.001 * (seed % 3)] * 3, task=task) for seed in others
    ]


def test_a_claim_is_judged_by_seed_where_it_says_so_and_shows_it_elsewhere():
    runs = make_shared_luck(0.05)
    (unpaired,) = judge(make_study(FASTER), runs)[0].judgements
    claim = judge(make_study(dataclasses.replace(FASTER, paired=True)), runs)[0]
    (paired,) = claim.judgements
    assert (unpaired.verdict, unpaired.pairing, unpaired.shared_seeds) == ("undecided", "unpaired", 8)
    assert (paired.verdict, paired.pairing, paired.shared_seeds) == ("holds", "paired by seed", 8)
    assert (paired.low, paired.high) == (unpaired.paired_low, unpaired.paired_high)
    assert unpaired.low < 0 < paired.low <= paired.difference <= paired.high < unpaired.high
    assert paired.mean_paired_difference == pytest.approx(0.05 - 0.001 * np.mean([0, 1, 2, 0, 1, 2, 0, 1]))
    assert paired.p_value < 0.05 < unpaired.p_value
    assert claim.measure == "vcse against se: area under the curve, paired by seed"


def test_runs_of_seeds_that_the_other_method_lacks_are_left_out_and_counted():
    paired = make_study(dataclasses.replace(FASTER, paired=True))
    (judgement,) = judge(paired, make_shared_luck(0.05, seeds=range(2, 10)))[0].judgements
    assert (judgement.runs, judgement.other_runs, judgement.shared_seeds) == (6, 6, 6)
    assert judgement.reason == "4 runs left out, of a seed that the other method lacks"
    (judgement,) = judge(paired, make_shared_luck(0.05, seeds=range(8, 16)))[0].judgements
    assert (judgement.verdict, judgement.reason) == ("not run", "no seed that both have")
    (few,) = judge(paired, make_shared_luck(0.05, seeds=range(4, 10)))[0].judgements
    assert (few.verdict, few.runs) == ("undecided", 4)
    assert few.reason.startswith("4 runs of a method; 5 are needed; 6 runs left out")


def test_unpaired_runs_count_where_a_claim_is_not_judged_by_seed():
    (judgement,) = judge(make_study(FASTER), make_shared_luck(0.05, seeds=range(2, 10)))[0].judgements
    assert (judgement.runs, judgement.other_runs, judgement.shared_seeds, judgement.reason) == (8, 8, 6, "")
    assert judgement.paired_difference != pytest.approx(judgement.difference)
    (none,) = judge(make_study(FASTER), make_shared_luck(0.05, seeds=range(8, 16)))[0].judgements
    assert none.shared_seeds == 0
    assert math.isnan(none.paired_low)


def test_by_seed_a_run_that_is_too_short_leaves_out_that_of_its_seed():
    runs = [*make_shared_luck(0.05, others=range(7)), make_run("se", 7, [0.4])]
    claim = dataclasses.replace(FASTER, paired=True, at_frame=3000)
    (judgement,) = judge(make_study(claim), runs)[0].judgements
    assert (judgement.runs, judgement.other_runs, judgement.reason) == (7, 7, "2 runs left out, too short")


def test_tasks_are_paired_each_and_averaged():
    runs = make_shared_luck(0.05) + make_shared_luck(0.15, task=EMPTY)
    claim = dataclasses.replace(FASTER, paired=True)
    lava, empty, together = judge(make_study(claim, tasks=(LAVA, EMPTY)), runs)[0].judgements
    assert together.difference == pytest.approx((lava.difference + empty.difference) / 2)
    assert (together.runs, together.shared_seeds, together.verdict) == (16, 16, "holds")


def test_a_margin_is_judged_by_seed_too():
    claim = dataclasses.replace(FASTER, within=0.02)
    runs = make_shared_luck(0.005)
    verdicts = [
        judge(make_study(dataclasses.replace(claim, paired=paired)), runs)[0].judgements[0].verdict
        for paired in (False, True)
    ]
    assert verdicts == ["undecided", "holds"]


@pytest.mark.parametrize("margin", [-0.1, math.nan, math.inf])
def test_a_margin_is_a_number_from_0_on(margin):
    with pytest.raises(ValueError, match=f"within must be a number from 0 on, got {margin}"):
        Claim("", "vcse", "se", within=margin)


def test_verdicts_are_corrected_for_how_many_they_are():
    tasks = [f"minigrid/{name}" for name in ("One", "Two", "Three", "Four")]
    runs = [run for task in tasks[1:] for run in make_runs({"vcse": 0.3, "se": 0.3, "none": 0.3}, task=task)]
    runs += make_runs({"vcse": 0.327, "se": 0.3, "none": 0.2}, task=tasks[0])
    claims = judge(make_study(FASTER, Claim("than none", "vcse", "none"), tasks=tasks), runs)
    edge, clear = (claim.judgements[0] for claim in claims)
    assert (edge.verdict, edge.by_holm, edge.by_benjamini_hochberg) == ("holds", "undecided", "undecided")
    assert (clear.verdict, clear.by_holm, clear.by_benjamini_hochberg) == ("holds", "holds", "holds")
    assert clear.p_holm == pytest.approx(8 * clear.p_value)
    assert edge.p_benjamini_hochberg == pytest.approx(8 / 2 * edge.p_value)
    together = claims[0].judgements[-1]
    assert together.p_holm == pytest.approx(min(1, 2 * together.p_value), rel=1)  # two of their own, not ten
    single, pooled = count_corrected(claims)
    assert (single.comparisons, single.decided, single.by_holm, single.by_benjamini_hochberg) == (8, 2, 1, 1)
    assert (pooled.where, pooled.comparisons) == ("on all tasks together", 2)
    assert count_corrected(judge(make_study(FASTER), runs)) == []  # one verdict needs no correction


def test_what_is_undecided_for_want_of_runs_is_no_comparison():
    runs = make_runs({"vcse": 0.6, "se": 0.2}, runs=4)
    (judgement,) = judge(make_study(FASTER), runs)[0].judgements
    assert math.isnan(judgement.p_value)
    assert (judgement.by_holm, judgement.by_benjamini_hochberg) == ("", "")


def test_a_claim_about_a_method_beside_the_studys_is_judged_where_that_was_run():
    control = Claim("The value helps.", "vcse", "se-matched", where_run=True)
    assert [each.claim for each in judge(make_study(FASTER, control), make_runs({"vcse": 0.6, "se": 0.2}))] == [FASTER]
    runs = make_runs({"vcse": 0.6, "se-matched": 0.2})
    assert judge(make_study(control), runs)[0].judgements[0].verdict == "holds"


def test_tasks_that_are_decided_where_all_together_are_not_are_named():
    runs = make_runs({"vcse": 0.6, "se": 0.2}) + make_runs({"vcse": 0.6, "se": 0.2}, task=EMPTY, runs=2)
    (claim,) = judge(make_study(FASTER, tasks=(LAVA, EMPTY)), runs)
    assert decided_otherwise(claim) == {"holds": [LAVA]}
    runs = make_runs({"vcse": 0.9, "se": 0.2}) + make_runs({"vcse": 0.2, "se": 0.4}, task=EMPTY)
    (claim,) = judge(make_study(FASTER, tasks=(LAVA, EMPTY)), runs)
    assert claim.judgements[-1].verdict == "holds"
    assert decided_otherwise(claim) == {"contradicted": [EMPTY]}
    assert decided_otherwise(judge(make_study(FASTER), make_runs({"vcse": 0.6, "se": 0.2}))[0]) == {}
