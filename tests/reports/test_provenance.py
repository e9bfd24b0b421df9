import pytest

from vcse.reports.provenance import all_of, machine


@pytest.mark.parametrize(
    ("meta", "named"),
    [
        ({"cpus": 2, "device": "cpu"}, "2 CPU cores"),
        ({"cpus": 16, "device": "NVIDIA H200"}, "16 CPU cores, NVIDIA H200"),
        (
            {"cpus": 16, "device": "NVIDIA H200", "drawn_by": "osmesa"},
            "16 CPU cores, NVIDIA H200, images drawn by osmesa",
        ),
        ({}, "unknown"),
    ],
)
def test_a_machine_is_named_with_what_draws(meta, named):
    assert machine(meta) == named


def test_what_runs_agree_on_is_said_once():
    assert all_of(["2 CPU cores", "16 CPU cores", "2 CPU cores"]) == "2 CPU cores; 16 CPU cores"
