"""A cluster of two nodes on this machine, one of which dies."""

import json
import os
import signal
import sys

import jaxtyping
import pytest
from runs.small import assert_same_run, make_config, train

from vcse.launch.cohorts import StoppedError
from vcse.runs.command import executing
from vcse.studies import on_ray
from vcse.studies.local import form_cohorts
from vcse.studies.status import study_status

ray = pytest.importorskip("ray", reason="needs the extra ray")


@pytest.fixture(autouse=True)
def _without_type_checks():
    """The processes have none either, and are compared."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="module")
def cluster():
    """Two nodes with a core each, one of which has a mark, so that a task can be sent there."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        yield nodes
    finally:
        ray.shutdown()
        nodes.shutdown()


@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_a_node_dies_and_every_run_is_finished_once(cluster, tmp_path):
    doomed = cluster.add_node(num_cpus=1)
    ray.init(address=cluster.address, log_to_driver=False)
    out = tmp_path / "study"
    configs = [make_config(seed=seed, frames=9600, checkpoint_every_frames=320) for seed in range(4)]
    cohorts = form_cohorts(configs, jobs=2, device="cpu")
    seen = []

    def kill_a_node_in_the_middle():
        status = study_status(out, configs)
        going = [run for run in status.runs if run.state == "running" and run.frame > 640]
        if len(going) == len(configs) and not seen:
            cluster.remove_node(doomed, allow_graceful=False)
            seen.append(status)

    command = ["study", "run", "minigrid", "--ray", "auto"]
    with executing(command):
        failures = on_ray.run_on_ray(cohorts, out, device="cpu", watch=kill_a_node_in_the_middle)
    assert failures == {}
    assert seen, "no moment was seen at which both nodes trained"
    assert [run.state for run in study_status(out, configs).runs] == ["done"] * 4
    train(configs, tmp_path / "alone")
    for config in configs:  # nothing lost, and no row twice
        assert_same_run(out / config.name, tmp_path / "alone" / config.name)
        assert json.loads((out / config.name / "meta.json").read_text())["command"] == command


@pytest.mark.filterwarnings("ignore")
def test_stopped_it_saves_and_goes_on_to_the_same_files(cluster, tmp_path):
    out = tmp_path / "study"
    configs = [make_config(seed=0, frames=9600, checkpoint_every_frames=9600)]

    def stop_in_the_middle():
        if any(run.frame > 640 for run in study_status(out, configs).runs):
            os.kill(os.getpid(), signal.SIGTERM)

    ray.init(address=cluster.address, log_to_driver=False)
    with pytest.raises(StoppedError):
        on_ray.run_on_ray([configs], out, device="cpu", watch=stop_in_the_middle)
    assert list((out / configs[0].name / "checkpoint").glob("*.pt"))
    ray.init(address=cluster.address, log_to_driver=False)
    assert on_ray.run_on_ray([configs], out, device="cpu", watch=lambda: None) == {}
    train(configs, tmp_path / "alone")
    assert_same_run(out / configs[0].name, tmp_path / "alone" / configs[0].name)


@pytest.mark.filterwarnings("ignore")
def test_a_cohort_that_fails_twice_is_named_and_the_others_go_on(cluster, tmp_path, capsys):
    if not ray.is_initialized():
        ray.init(address=cluster.address, log_to_driver=False)
    bad, good = make_config(seed=0), make_config(seed=1)
    (tmp_path / bad.name / "train.csv").mkdir(parents=True)
    failures = on_ray.run_on_ray([[bad], [good]], tmp_path, device="cpu", watch=lambda: None)
    assert list(failures) == [bad.name]
    assert "train.csv" in failures[bad.name]
    assert "trying once more" in capsys.readouterr().err
    assert [run.state for run in study_status(tmp_path, [bad, good]).runs] == ["failed", "done"]


@pytest.mark.parametrize(("address", "reason"), [("127.0.0.1:1", "refused"), ("nowhere.invalid:6379", "")])
def test_a_wrong_address_is_refused_at_once(address, reason):
    ray.shutdown()
    with pytest.raises(RuntimeError, match=rf"--ray {address}: no cluster there \(.*{reason}.*\)"):
        on_ray.connect(address)


def test_without_ray_a_line_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(RuntimeError, match=r"Ray is not installed: pip install 'vcse\[ray\]'"):
        on_ray.run_on_ray([], tmp_path, device="cpu", watch=lambda: None)
