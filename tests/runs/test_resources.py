from pathlib import Path

import pytest

from vcse.runs import resources
from vcse.runs.resources import PROCESS_BYTES, Needs, find_room, free_on_disk, together

GB = 10**9
SMALL, LARGE = Needs(GB, GB, 2 * GB, may_use_disk=True), Needs(GB, 10 * GB, 20 * GB, may_use_disk=True)
OUT = Path("runs")


@pytest.fixture
def free(monkeypatch):
    there = {"cuda": 80 * GB, "cpu": 60 * GB, "disk": 1000 * GB}
    monkeypatch.setattr(resources, "free_bytes", there.get)
    monkeypatch.setattr(resources, "free_on_disk", lambda directory: there["disk"])
    return there


@pytest.mark.parametrize(("jobs", "place"), [(1, "cuda"), (5, "cuda"), (6, "disk"), (7, "disk")])
def test_what_fits_alone_is_placed_elsewhere_where_all_at_once_do_not_fit(free, jobs, place):
    room = find_room([LARGE] * 9, OUT, device="cuda", jobs=jobs)
    assert room.place == place  # 60 GB free on the host never hold six replays of 10 GB
    assert room.at_once == LARGE._replace(working=jobs * GB, replay=10 * jobs * GB, files=20 * jobs * GB, runs=jobs)
    assert room.all_files == 180 * GB


def test_networks_and_processes_leave_less_for_replays(free):
    free["cuda"] = 13 * GB
    assert find_room([LARGE], OUT, device="cuda", jobs=1).place == "cpu"
    free["cpu"] = 14 * GB  # 1 GB and a process are taken, and 80 % of the rest is not 10 GB
    assert find_room([LARGE], OUT, device="cpu", jobs=1).place == "disk"
    free["cpu"] = 15 * GB
    assert find_room([LARGE], OUT, device="cpu", jobs=1).place == "cpu"
    assert find_room([LARGE], OUT, device="cpu", jobs=1).memory == 11 * GB + PROCESS_BYTES


def test_those_that_take_most_are_at_once(free):
    room = find_room([SMALL, LARGE, SMALL, LARGE], OUT, device="cpu", jobs=3)
    assert room.at_once.replay == 21 * GB
    assert find_room([SMALL], OUT, device="cpu", jobs=8).process_bytes == PROCESS_BYTES


def test_of_no_runs_nothing_is_needed(free):
    room = find_room([], OUT, device="cpu", jobs=2)
    assert (room.memory, room.all_files, room.at_once.runs) == (0, 0, 0)
    assert room.describe() == ""


def test_replays_that_fit_nowhere_are_refused_with_numbers_and_what_to_change(free):
    free |= {"cpu": 30 * GB, "disk": 100 * GB}
    with pytest.raises(
        ValueError,
        match=r"for the replays of 4 runs at once in 4 processes, 40\.0 GB are needed, but there is room for 18\.0 GB "
        r"in the memory of the host and 20\.0 GB on disk, in addition to their files: train fewer at once "
        r"\(--jobs, --seeds\)",
    ):
        find_room([LARGE] * 4, OUT, device="cpu", jobs=4)
    assert find_room([LARGE] * 4, OUT, device="cpu", jobs=3).place == "disk"
    with pytest.raises(
        ValueError, match=r"for the replays of 1 run at once, 40\.0 GB are needed, but there is room for 2"
    ):
        find_room([SMALL._replace(replay=40 * GB, may_use_disk=False)], OUT, device="cpu", jobs=1)


def test_files_that_fit_nowhere_are_told_before_replays_that_do_not(free):
    free |= {"cpu": 5 * GB, "disk": 15 * GB}
    with pytest.raises(ValueError, match=r"the files of 1 run will need 20\.0 GB on disk, but 15\.0 GB are free in "):
        find_room([LARGE], OUT, device="cpu", jobs=1)


def test_processes_that_have_no_memory_are_refused_wherever_their_replays_lie(free):
    free["cpu"] = 4 * GB
    assert find_room([SMALL] * 4, OUT, device="cpu", jobs=2).place == "disk"
    with pytest.raises(
        ValueError,
        match=r"for 3 runs at once in 3 processes, 4\.5 GB are needed in the memory of the host beside the",
    ):
        find_room([SMALL] * 4, OUT, device="cpu", jobs=3)


def test_files_of_what_is_at_once_are_refused_and_those_of_all_are_told(free):
    free["disk"] = 50 * GB
    room = find_room([LARGE] * 3, OUT, device="cuda", jobs=2)
    assert room.describe() == (
        "replay: 20.0 GB in the memory of the GPU, for 2 runs at once; files: 60.0 GB more on disk at the end, where "
        "50.0 GB are free\nwarning: that is too little for all runs; the last will stop, and can be resumed once "
        "there is room"
        "; with --no-keep-replay they leave far less behind"
    )
    with pytest.raises(ValueError, match=r"the files of 3 runs will need 60\.0 GB on disk, but 50\.0 GB are free in "):
        find_room([LARGE] * 3, OUT, device="cuda", jobs=3)


def test_what_is_dropped_when_a_run_is_done_is_needed_for_those_at_once_alone(free):
    free["disk"] = 50 * GB
    dropping = LARGE._replace(files=GB, until_done=19 * GB)
    assert find_room([dropping] * 9, OUT, device="cuda", jobs=2).of_files() == (
        "files: 47.0 GB more on disk at most, where 50.0 GB are free"
    )
    with pytest.raises(ValueError, match=r"the files of 3 runs will need 60\.0 GB on disk, but 50\.0 GB are free in "):
        find_room([dropping] * 9, OUT, device="cuda", jobs=3)
    free |= {"cpu": 5 * GB, "disk": 29 * GB}
    with pytest.raises(ValueError, match=r" and 9\.0 GB on disk, in addition to their files: "):
        find_room([dropping], OUT, device="cpu", jobs=1)
    assert together([dropping, SMALL]).until_done == 19 * GB


def test_a_replay_on_disk_and_the_files_share_it(free):
    free |= {"cpu": 5 * GB, "disk": 29 * GB}
    with pytest.raises(ValueError, match=r"10\.0 GB are needed, .* and 9\.0 GB on disk, in addition to their files: "):
        find_room([LARGE], OUT, device="cpu", jobs=1)
    free["disk"] = 30 * GB
    assert find_room([LARGE], OUT, device="cpu", jobs=1).describe() == (
        "replay: 10.0 GB on disk, which is slower; files: 20.0 GB more on disk at the end, where 30.0 GB are free"
    )


def test_without_a_replay_there_is_nothing_to_say_unless_the_disk_is_too_small(free):
    rows = Needs(10**6, 0, GB)
    assert find_room([rows] * 9, OUT, device="cpu", jobs=2).describe() == ""
    free["disk"] = 8 * GB
    said = find_room([rows] * 9, OUT, device="cpu", jobs=2).describe()
    assert said.startswith(
        "files: 9.0 GB more on disk at the end, where 8.0 GB are free\nwarning: that is too little for all"
    )


def test_a_system_that_does_not_say_what_is_free_is_trusted(monkeypatch):
    monkeypatch.setattr(resources, "free_bytes", lambda device: None)
    assert find_room([LARGE._replace(files=0)] * 9, OUT, device="cpu", jobs=9).place == "cpu"


def test_only_where_all_may_use_the_disk_all_do():
    assert together([SMALL, LARGE]) == Needs(2 * GB, 11 * GB, 22 * GB, may_use_disk=True, runs=2)
    assert not together([SMALL, LARGE._replace(may_use_disk=False)]).may_use_disk


def test_the_disk_of_a_directory_is_known_before_it_is_there(tmp_path):
    assert free_on_disk(tmp_path / "not" / "there") == pytest.approx(free_on_disk(tmp_path), rel=0.01)
    assert not (tmp_path / "not").exists()
