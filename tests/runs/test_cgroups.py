import pytest

from vcse.runs import machine
from vcse.runs.cgroups import cores_in_groups, free_in_groups

GB = 10**9


def make_group(path, limit, usage, cache, *, names=("memory.max", "memory.current", "inactive_file")):
    path.mkdir(parents=True)
    (path / names[0]).write_text(f"{limit}\n")
    (path / names[1]).write_text(f"{usage}\n")
    (path / "memory.stat").write_text(f"anon 5\n{names[2]} {cache}\n")


def test_the_memory_of_a_container_and_of_a_job_in_it_count(tmp_path):
    membership, groups = tmp_path / "cgroup", tmp_path / "groups"
    membership.write_text("0::/job/step\n")
    make_group(groups / "job", 8 * GB, 3 * GB, GB)
    make_group(groups / "job" / "step", "max", 3 * GB, GB)
    assert free_in_groups(membership, groups) == [6 * GB]
    (groups / "job" / "step" / "memory.max").write_text("2000000000")
    assert free_in_groups(membership, groups) == [0, 6 * GB]


def test_the_older_kind_of_groups_is_read_too(tmp_path):
    membership, groups = tmp_path / "cgroup", tmp_path / "groups"
    membership.write_text("5:cpu:/a\n4:memory:/elsewhere/job\n0::/\n")
    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
    make_group(groups / "memory", 4 * GB, GB, 0, names=names)  # a container sees its own group as the top
    assert free_in_groups(membership, groups) == [3 * GB]


def test_where_there_are_no_groups_there_are_no_limits(tmp_path):
    assert free_in_groups(tmp_path / "none", tmp_path) == []
    assert cores_in_groups(tmp_path / "none", tmp_path) == []


@pytest.mark.parametrize(
    ("written", "cores"), [("200000 100000", [2]), ("150000 100000", [2]), ("5000 100000", [1]), ("max 100000", [])]
)
def test_the_cores_of_a_container_count(tmp_path, written, cores):
    membership, groups = tmp_path / "cgroup", tmp_path / "groups"
    membership.write_text("0::/job\n")
    (groups / "job").mkdir(parents=True)
    (groups / "job" / "cpu.max").write_text(f"{written}\n")
    assert cores_in_groups(membership, groups) == cores


@pytest.mark.parametrize(("quota", "cores"), [(300000, [3]), (-1, [])])
def test_the_cores_of_the_older_kind_of_groups_count(tmp_path, quota, cores):
    membership, groups = tmp_path / "cgroup", tmp_path / "groups"
    membership.write_text("4:cpu,cpuacct:/\n")
    (groups / "cpu").mkdir(parents=True)
    (groups / "cpu" / "cpu.cfs_quota_us").write_text(f"{quota}\n")
    (groups / "cpu" / "cpu.cfs_period_us").write_text("100000\n")
    assert cores_in_groups(membership, groups) == cores


def test_a_process_keeps_no_more_cores_busy_than_it_may(monkeypatch):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda process: range(64), raising=False)
    monkeypatch.setattr(machine, "cores_in_groups", lambda: [8, 2])
    assert machine.cores() == 2
    monkeypatch.setattr(machine, "cores_in_groups", list)
    assert machine.cores() == 64
