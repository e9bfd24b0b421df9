import numpy as np
import pytest

from vcse.agents.a2c.settings import a2c_settings
from vcse.reports.demo_curves import lines, read_curves
from vcse.reports.statistics import interquartile_mean
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory


def make_run(out, seed, success, *, method="vcse", task="minigrid/LavaGapS7", frames=None, episodes=16):
    config = RunConfig(
        task=task, agent="a2c", method=method, seed=seed, reading="release", frames=1000, settings=a2c_settings("vcse")
    )
    directory = RunDirectory(out / config.name, config)
    for frame, rate in zip(frames or range(128, 10_000, 128), success, strict=False):
        row = {"frame": frame, "episodes": episodes, "return_mean": 0.5, "success_rate": rate}
        directory.append_row("train.csv", row)
    directory.close()
    return directory.path


def test_runs_stand_by_seed_and_methods_apart(tmp_path):
    paths = [
        make_run(tmp_path, 10, [0.1, 0.4]),
        make_run(tmp_path, 2, [float("nan"), 0.3]),
        make_run(tmp_path, 0, [0.5, 0.6, 0.7], method="se"),
    ]
    curves = read_curves(paths)
    assert list(curves) == [("minigrid/LavaGapS7", "vcse"), ("minigrid/LavaGapS7", "se")]
    mine = curves["minigrid/LavaGapS7", "vcse"]
    assert mine.seeds == (2, 10)
    assert mine.frames.tolist() == [128, 256]
    np.testing.assert_array_equal(mine.success, [[np.nan, 0.3], [0.1, 0.4]])
    assert curves["minigrid/LavaGapS7", "se"].success.tolist() == [[0.5, 0.6, 0.7]]


def test_before_enough_episodes_have_ended_nothing_is_known(tmp_path):
    [curves] = read_curves([make_run(tmp_path, 0, [1.0, 1.0], episodes=15)]).values()
    assert np.isnan(curves.success).all()


def test_runs_with_other_frames_are_refused(tmp_path):
    paths = [make_run(tmp_path, 0, [0.1, 0.4]), make_run(tmp_path, 1, [0.1])]
    message = r"same frames: .*seed0 has 2 up to frame 256, .*seed1 has 1 up to frame 128"
    with pytest.raises(ValueError, match=message):
        read_curves(paths)
    same_number = make_run(tmp_path, 2, [0.1, 0.4], frames=(128, 300))
    with pytest.raises(ValueError, match="seed2 has 2 up to frame 300"):
        read_curves([paths[0], same_number])


def test_a_run_without_rows_and_a_run_given_twice_are_named(tmp_path):
    path = make_run(tmp_path, 0, [])
    with pytest.raises(ValueError, match=r"seed0 has no row in train\.csv yet"):
        read_curves([path])
    path = make_run(tmp_path, 1, [0.5])
    with pytest.raises(ValueError, match="are the same run, seed 1"):
        read_curves([path, path])


def test_a_line_is_the_interquartile_mean_inside_its_band(tmp_path):
    rates = np.random.default_rng(0).random((8, 3))
    paths = [make_run(tmp_path, seed, rates[seed].tolist(), method=m) for m in ("se", "vcse") for seed in range(8)]
    drawn = lines(read_curves(paths), np.random.default_rng(0), resamples=100)
    assert [list(methods) for methods in drawn.values()] == [["se", "vcse"]]
    line = drawn["minigrid/LavaGapS7"]["vcse"]
    np.testing.assert_allclose(line.middle, interquartile_mean(rates[:, None]))
    assert ((line.low < line.middle) & (line.middle < line.high)).all()
