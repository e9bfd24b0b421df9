import json
import math
from pathlib import Path

import numpy as np
import pytest

from vcse.agents.a2c.settings import a2c_settings
from vcse.reports.external_curves import MONITOR_POINTS, join_runs, read_foreign
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory

NAN = float("nan")
PUBLISHED = """agent,task,seed,frame,episode_reward,hour
DrQ-v2,hopper_hop,1,0,0.5,0.0
DrQ-v2,hopper_hop,1,20000,10.0,0.1
DrQ-v2,hopper_hop,2,0,1.5,0.0
DrQ-v2,hopper_hop,2,20000,20.0,0.1
"""
RUN = """episode,episode_length,episode_reward,frame,step,total_time
0,1000,2.5,0,0,3.1
20,1000,7.5,20000,10000,99.0
"""
TDMPC2 = "step,reward,seed\n0,2.4,3\n100000,275.1,3\n0,5.6,2\n100000,150.2,2\n"
MONITOR = '#{"t_start": 1.5, "env_id": "CartPole-v1"}\nr,l,t\n'


def write(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def make_run(out, *, name="train.csv"):
    config = RunConfig(
        task="minigrid/LavaGapS7",
        agent="a2c",
        method="vcse",
        seed=0,
        reading="release",
        frames=1000,
        settings=a2c_settings("vcse"),
    )
    directory = RunDirectory(out / "run", config)
    for frame, rate in ((128, NAN), (256, 0.25)):
        directory.append_row(name, {"frame": frame, "episodes": 1, "return_mean": 2 * rate, "success_rate": rate})
    directory.close()
    return directory.path


def with_index(text):
    header, *rows = text.splitlines()
    return "\n".join([f",{header}", *(f"{index},{row}" for index, row in enumerate(rows))]) + "\n"


@pytest.mark.parametrize("text", [PUBLISHED, with_index(PUBLISHED), PUBLISHED.replace("\n", "\r\n")])
def test_published_curves_of_drqv2(tmp_path, text):
    path = tmp_path / "hop.csv"
    path.write_bytes(text.encode())
    (curves,) = read_foreign(path)
    assert curves[:3] == (str(path), "hopper_hop", "DrQ-v2")
    assert curves.frames.tolist() == [0, 20_000]
    assert curves.scores.tolist() == [[0.5, 10], [1.5, 20]]
    assert curves.metric == "return_mean"


def test_tasks_and_methods_of_one_file_stand_apart_and_cannot_be_renamed_together(tmp_path):
    more = PUBLISHED + "CURL,hopper_hop,1,0,3,0\nDrQ-v2,walker_walk,1,0,4,0\n"
    path = write(tmp_path / "all.csv", more)
    names = [(each.task, each.method) for each in read_foreign(path)]
    assert names == [("hopper_hop", "DrQ-v2"), ("hopper_hop", "CURL"), ("walker_walk", "DrQ-v2")]
    with pytest.raises(ValueError, match=r"task is 'x', but .*all\.csv holds 2 of them: hopper_hop, walker_walk"):
        read_foreign(path, task="x")
    (renamed,) = read_foreign(write(tmp_path / "one.csv", PUBLISHED), task="dmc/hopper_hop", method="drqv2")
    assert (renamed.task, renamed.method) == ("dmc/hopper_hop", "drqv2")


def test_the_evaluations_of_a_drqv2_run_need_a_task(tmp_path):
    path = write(tmp_path / "eval.csv", RUN)
    with pytest.raises(ValueError, match=r"eval\.csv does not say its task: give task, which is --overlay-task"):
        read_foreign(path)
    (curves,) = read_foreign(path, task="hopper_hop", method="VCSE")
    assert (curves.task, curves.method) == ("hopper_hop", "VCSE")
    assert curves.frames.tolist() == [0, 20_000]
    assert curves.scores.tolist() == [[2.5, 7.5]]


def test_results_of_tdmpc2_are_named_by_file_and_folder(tmp_path):
    (curves,) = read_foreign(write(tmp_path / "tdmpc2" / "acrobot-swingup.csv", TDMPC2))
    assert (curves.task, curves.method, curves.metric) == ("acrobot-swingup", "tdmpc2", "return_mean")
    assert curves.frames.tolist() == [0, 100_000]
    assert curves.scores.tolist() == [[2.4, 275.1], [5.6, 150.2]]
    elsewhere = write(tmp_path / "mw-push.csv", TDMPC2.replace("reward", "success"))
    (curves,) = read_foreign(elsewhere, method="TD-MPC2", frames_per_step=2)
    assert (curves.task, curves.metric) == ("mw-push", "success_rate")
    assert curves.frames.tolist() == [0, 200_000]


@pytest.mark.parametrize(
    ("place", "method"),
    [
        ("PPO/monitor.csv", "PPO"),
        ("PPO/seed1/monitor.csv", "PPO"),
        ("PPO/run_2/0.monitor.csv", "PPO"),
        ("PPO/Eval/eval.csv", "PPO"),
        ("PPO/CartPole-v1.monitor.csv", "PPO"),  # which is the task
        ("logs/PPO.monitor.csv", "PPO"),
        ("logs/seeded.csv", "seeded"),
    ],
)
def test_a_file_that_does_not_say_its_method_is_called_by_its_place(tmp_path, monkeypatch, place, method):
    path = write(tmp_path / place, MONITOR + "1,2,3\n")
    monkeypatch.chdir(path.parent)
    for way in (path, Path(path.name), Path("..", path.parent.name, path.name)):
        (curves,) = read_foreign(way)
        assert (curves.task, curves.method) == ("CartPole-v1", method)
    (curves,) = read_foreign(path, method="A2C")
    assert curves.method == "A2C"


def test_a_file_is_called_by_where_it_lies_and_not_by_what_it_links_to(tmp_path):
    (tmp_path / "PPO").mkdir()
    (tmp_path / "PPO" / "monitor.csv").symlink_to(write(tmp_path / "blobs" / "3fa9.csv", MONITOR + "1,2,3\n"))
    (curves,) = read_foreign(tmp_path / "PPO" / "monitor.csv")
    assert curves.method == "PPO"


def test_frames_are_not_multiplied(tmp_path):
    with pytest.raises(ValueError, match=r"frames_per_step is 2, but .*hop\.csv counts frames"):
        read_foreign(write(tmp_path / "hop.csv", PUBLISHED), frames_per_step=2)
    with pytest.raises(ValueError, match="frames_per_step must be at least 1, got 0"):
        read_foreign(tmp_path / "hop.csv", frames_per_step=0)


def test_episodes_of_a_monitor_are_averaged_over_the_last_hundred(tmp_path):
    returns, lengths = np.random.default_rng(0).random(150), np.random.default_rng(1).integers(1, 9, 150)
    rows = "".join(f"{r},{n},0.1\n" for r, n in zip(returns, lengths, strict=True))
    (curves,) = read_foreign(write(tmp_path / "monitor.csv", MONITOR + rows), method="PPO")
    assert (curves.task, curves.method, curves.metric) == ("CartPole-v1", "PPO", "return_mean")
    assert curves.frames.tolist() == np.cumsum(lengths).tolist()
    expected = [returns[max(0, n - 100) : n].mean() for n in range(1, 151)]
    np.testing.assert_allclose(curves.scores, [expected])


def test_very_many_episodes_are_read_on_a_grid(tmp_path):
    rows = "".join(f"{r},10,0.1\n" for r in range(1000))
    first_is_long = MONITOR + "5,2000,0.1\n" + rows
    (curves,) = read_foreign(write(tmp_path / "monitor.csv", first_is_long), method="PPO", frames_per_step=4)
    assert len(curves.frames) == MONITOR_POINTS
    assert curves.frames[-1] == 4 * 12_000
    assert curves.scores[0, -1] == pytest.approx(np.arange(900, 1000).mean())
    assert np.isnan(curves.scores[0, curves.frames < 8000]).all()
    assert np.isfinite(curves.scores[0, curves.frames >= 8000]).all()


def test_a_monitor_may_not_know_its_task_but_must_say_what_it_is(tmp_path):
    path = write(tmp_path / "monitor.csv", '#{"t_start": 1.5, "env_id": null}\nr,l,t\n1,2,3\n')
    with pytest.raises(ValueError, match="does not say its task"):
        read_foreign(path, method="PPO")
    with pytest.raises(ValueError, match=r"line 1: '# notes' is not #\{\.\.\.\} in JSON; known are: DrQ-v2's"):
        read_foreign(write(path, "# notes\nr,l,t\n"))
    with pytest.raises(ValueError, match=r"line 4: r is 'x', which is no number"):
        read_foreign(write(path, MONITOR + "1,2,3\nx,2,3\n"))
    with pytest.raises(ValueError, match="line 3: an episode is at least 1 step long, got 0"):
        read_foreign(write(path, MONITOR + "1,0,3\n"))
    with pytest.raises(ValueError, match=r"monitor\.csv has no rows"):
        read_foreign(write(path, MONITOR))
    with pytest.raises(ValueError, match=r"has the columns 'a,b', which is no known format; known are"):
        read_foreign(write(path, "#{}\na,b\n"))


def test_evaluations_of_stable_baselines(tmp_path):
    path = tmp_path / "evaluations.npz"
    results = np.array([[1.0, 3.0], [4.0, 6.0]])
    np.savez(path, timesteps=np.array([10, 20]), results=results, successes=results > 3)
    reward, success = read_foreign(path, task="a", method="b", frames_per_step=2)
    assert reward.frames.tolist() == success.frames.tolist() == [20, 40]
    assert (reward.metric, reward.scores.tolist()) == ("return_mean", [[2, 5]])
    assert (success.metric, success.scores.tolist()) == ("success_rate", [[0, 1]])
    np.savez(path, timesteps=np.array([10, 20, 30]), results=results)
    with pytest.raises(ValueError, match=r"results must hold episodes of each of timesteps, got \(2, 2\) and \(3,\)"):
        read_foreign(path, task="a", method="b")
    np.savez(path, weights=results)
    with pytest.raises(ValueError, match="holds the arrays weights, which is no known format"):
        read_foreign(path)
    path.write_bytes(b"PK but nothing more")
    with pytest.raises(ValueError, match=r"evaluations\.npz cannot be read as an archive of arrays"):
        read_foreign(path)


def test_a_long_table_in_any_order_with_either_metric(tmp_path):
    text = "seed,success_rate,method,frame,return_mean,task\n0,0.5,A,10,,t\n0,0.75,A,20,,t\n0,,B,10,7,t\n"
    first, second = read_foreign(write(tmp_path / "long.csv", text))
    assert (first.method, first.metric, first.scores.tolist()) == ("A", "success_rate", [[0.5, 0.75]])
    assert (second.method, second.metric, second.scores.tolist()) == ("B", "return_mean", [[7]])


def test_scores_in_json(tmp_path):
    record = {"task": "door", "seed": 0, "method": "mwm", "steps": [10, 30], "success_rates": [0.0, 0.5]}
    path = write(tmp_path / "scores.json", json.dumps([record, record | {"seed": 1, "success_rates": [1, 1]}]))
    (curves,) = read_foreign(path)
    assert (curves.task, curves.method, curves.metric) == ("door", "mwm", "success_rate")
    assert curves.frames.tolist() == [10, 30]
    assert curves.scores.tolist() == [[0, 0.5], [1, 1]]
    for records, message in (
        ([record, record], "record 2 has a seed that was there before, 0"),
        ([{"task": "door"}], "record 1 has no method, seed, steps, success_rates; known are"),
        ([record | {"steps": [1]}], "record 1 has 1 steps but 2 success_rates"),
        ([record | {"steps": 5}], "record 1 must have lists of steps and success_rates"),
        ([record | {"steps": [1, "x"]}], "record 1 holds something that is no number"),
        ([record | {"steps": [1, math.inf]}], "record 1 holds something that is no number"),
        ([record | {"task": ["door"]}], "record 1 must name one task and one method"),
    ):
        with pytest.raises(ValueError, match=message):
            read_foreign(write(path, json.dumps(records)))
    with pytest.raises(ValueError, match=r"scores\.json, line 2: not JSON"):
        read_foreign(write(path, '[{"task":\n'))


def test_the_published_scores_of_mwm_have_the_names_of_our_tasks(tmp_path):
    record = {"seed": 0, "method": "mwm", "steps": [10_000, 30_000], "success_rates": [0.0, 0.5]}
    tasks = ("metaworld_drawer_open", "metaworld_handle_pull_side", "rlbench_reach_target")
    path = write(tmp_path / "score.json", json.dumps([{**record, "task": task} for task in tasks]))
    found = read_foreign(path)
    assert [each.task for each in found] == ["metaworld/drawer-open", "metaworld/handle-pull-side", tasks[2]]
    assert all(each.frames.tolist() == [10_000, 30_000] for each in found)


@pytest.mark.parametrize("name", ["train.csv", "eval.csv"])
def test_a_run_of_ours_by_directory_or_file(tmp_path, name):
    run = make_run(tmp_path, name=name)
    for path in (run, run / name):
        reward, success = read_foreign(path)
        assert (reward.task, reward.method, reward.source) == ("minigrid/LavaGapS7", "vcse", str(run / name))
        np.testing.assert_array_equal(reward.scores, [[NAN, 0.5]])
        np.testing.assert_array_equal(success.scores, [[NAN, 0.25]])
        assert success.frames.tolist() == [128, 256]


def test_other_directories_are_named(tmp_path):
    with pytest.raises(ValueError, match=r"is a directory, but not that of a run: there is no config\.json"):
        read_foreign(tmp_path)
    write(tmp_path / "config.json", "{}")
    with pytest.raises(ValueError, match=r"has neither train\.csv nor eval\.csv yet"):
        read_foreign(tmp_path)


def test_runs_at_other_frames_keep_their_last_value_on_one_grid(tmp_path):
    rows = {0: {10: 1.0, 20: 2.0, 30: 3.0}, 1: {15: 5.0, 25: 6.0}, 2: {10: 7.0, 60: 8.0}}
    text = "task,method,seed,frame,return_mean\n" + "".join(
        f"t,m,{seed},{frame},{score}\n" for seed, run in rows.items() for frame, score in reversed(run.items())
    )
    (curves,) = read_foreign(write(tmp_path / "long.csv", text))
    assert curves.frames.tolist() == [10, 15, 20, 25, 30, 60]
    expected = [
        [1, 1, 2, 2, 3, NAN],  # the third has long ended at frame 60
        [NAN, 5, 5, 6, 6, NAN],  # at frame 30, the next would not have been due yet
        [7, 7, 7, 7, 7, 8],
    ]
    np.testing.assert_array_equal(curves.scores, expected)


def test_runs_from_files_of_their_own_are_joined(tmp_path):
    paths = [write(tmp_path / f"{seed}" / "eval.csv", RUN.replace("7.5,20000", f"{seed},20000")) for seed in (8, 9)]
    single = [curves for path in paths for curves in read_foreign(path, task="t", method="m")]
    other = single[0]._replace(method="n")
    joined, alone = join_runs([*single, other])
    assert joined.scores.tolist() == [[2.5, 8], [2.5, 9]]
    assert joined.source == f"{paths[0]}, {paths[1]}"
    assert (alone.method, alone.scores.tolist()) == ("n", [[2.5, 8]])


@pytest.mark.parametrize("rest", ["DrQ-v2,hopper_hop,2,4000", "DrQ-v2,hopper_hop,2,40000,-", "DrQ"])
def test_a_half_written_last_line_is_left_out(tmp_path, rest):
    (whole,) = read_foreign(write(tmp_path / "whole.csv", PUBLISHED))
    (cut,) = read_foreign(write(tmp_path / "cut.csv", PUBLISHED + rest))
    assert cut.scores.tolist() == whole.scores.tolist()
    with pytest.raises(ValueError, match=r"cut\.csv, line 6: "):
        read_foreign(write(tmp_path / "cut.csv", PUBLISHED + rest + "\n"))


def test_a_last_line_without_a_line_end_counts_if_it_is_whole(tmp_path):
    (curves,) = read_foreign(write(tmp_path / "whole.csv", PUBLISHED.rstrip("\n")))
    assert curves.scores.tolist() == [[0.5, 10], [1.5, 20]]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"file\.csv is empty"),
        ("\n \n", r"file\.csv is empty"),
        (PUBLISHED.splitlines()[0] + "\n", r"file\.csv has no rows"),
        (
            "x,y\n1,2\n",
            r"begins with 'x,y', which is no known format; known are: DrQ-v2's published curves \(task, agent",
        ),
        ("x" * 200_000, "which is no known format"),
        (PUBLISHED.replace("10.0", "ten"), r"file\.csv, line 3: episode_reward is 'ten', which is no number"),
        (PUBLISHED.replace(",20000,10", ",,10"), r"line 3: frame is '', which is no number"),
        (PUBLISHED.replace(",20000,10", ",2.5,10"), r"line 3: frame is 2\.5, which is no whole number from 0 on"),
        (PUBLISHED.replace("10.0,0.1", "10.0"), r"line 3: 5 cells below a header of 6"),
        (PUBLISHED.replace(",20000,10", ",0,10"), r"line 3: frame 0 of the same run was there before"),
        ("task,method,seed,frame,return_mean\nt,m,0,10,\n", r"file\.csv has no scores"),
        (PUBLISHED.replace("10.0", '"') + 200_000 * "x", r"file\.csv, line 6: field larger"),
    ],
)
def test_bad_files_are_named_with_the_line(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        read_foreign(write(tmp_path / "file.csv", text))


def test_what_is_no_text_is_named(tmp_path):
    (tmp_path / "file.csv").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValueError, match=r"file\.csv is neither text nor an archive of arrays; known are"):
        read_foreign(tmp_path / "file.csv")
