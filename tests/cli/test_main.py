import errno
import itertools
import json
import os
import re
import signal
import subprocess
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
from gl import needs_gl

from vcse import __version__
from vcse.cli import main
from vcse.cli.doctor import Finding, _module, extras_of_vcse
from vcse.cli.selftest import Check
from vcse.cli.verbs import first_line, load_verb
from vcse.envs.tasks import task_spec
from vcse.estimators import kl_entropy

VERBS = sys.modules["vcse.cli.main"].VERBS  # the package's main is the function
SOURCE = Path(__file__).parents[2] / "src"


def test_version(capsys):
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"vcse {__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["bench", "--help"], ["doctor", "--help"], ["selftest", "--help"]])
def test_help_of_every_verb(arguments, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 0
    assert "usage: vcse" in capsys.readouterr().out


def test_help_names_each_verb_in_a_sentence(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    told = " ".join(re.sub(r"[^\w.,:;-]+", " ", capsys.readouterr().out).split())
    assert (
        "watch Record a video of the newest policy of a run: watch.gif in its directory, or the file that --out names. "
        "export Write" in told
    )


def test_help_of_options_fills_its_lines(capsys):
    with pytest.raises(SystemExit):
        main(["report", "--help"])
    box = capsys.readouterr().out.partition("--column NAME")[2].partition("--overlay ")[0]
    lines = [line.strip("│ ") for line in box.splitlines()]
    longest = max(map(len, lines))
    for line, following in itertools.pairwise(filter(None, lines)):
        assert len(line) + 1 + len(following.split()[0]) > longest


def test_help_keeps_the_lines_of_a_list(capsys):
    with pytest.raises(SystemExit):
        main(["bench", "--help"])
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    listed = [line.split()[1] for line in lines if line.startswith("- ")]
    assert listed == ["estimator:", "minigrid:", "sac:", "drqv2:", "mwm:", "adapters:"]


@pytest.mark.parametrize("command", [[], ["study"], *([verb] for verb in VERBS if verb != "study"), ["study", "run"]])
def test_help_fits_eighty_columns(command, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    assert not any(line.lstrip("│ ").startswith("000") for line in lines)  # of a number that is torn


@pytest.mark.parametrize("command", [["report"], ["bench"], ["study", "run"], ["study", "pack"]])
def test_help_names_no_empty_default(command, capsys):
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    assert "(default: )" not in capsys.readouterr().out


def test_help_of_a_verb_among_others_is_its_first_line():
    assert {name: line for name, (_, line) in VERBS.items()} == {
        name: first_line(load_verb(verb)) for name, verb in VERBS.items()
    }


@pytest.mark.parametrize(
    ("arguments", "status"),
    [(["--help"], 0), (["--version"], 0), (["trian"], 2), (["doctor", "--help"], 0), (["selftest", "--help"], 0)],
)
def test_what_computes_nothing_loads_nothing_that_is_slow(arguments, status):
    told = (
        "import atexit, sys\n"
        "slow = {'torch', 'numpy', 'matplotlib', 'jaxtyping'}\n"
        "atexit.register(lambda: print('slow:', *sorted(slow & sys.modules.keys())))\n"
        f"from vcse.cli import main\nsys.exit(main({arguments}))"
    )
    done = subprocess.run(
        [sys.executable, "-c", told],
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout.splitlines()[-1].strip()) == (status, "slow:")


def test_an_option_before_the_verb_is_told_whose_it_is(capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["--json", "doctor"])
    assert exit_.value.code == 2
    assert "in vcse tasks --help" in capsys.readouterr().err


def test_help_mentions_the_version(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "vcse --version" in capsys.readouterr().out


def test_a_file_that_cannot_be_written_is_named_without_the_number_of_the_error(tmp_path, monkeypatch, capsys):
    def refuse(*_, **__):
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM), str(tmp_path / "x"))

    monkeypatch.setattr("pathlib.Path.mkdir", refuse)
    assert main(["train", "--task", "minigrid/Empty-5x5", "--frames", "48", "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err.splitlines()[-1] == f"vcse: {tmp_path / 'x'}: Operation not permitted"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["trian"], "vcse: unknown command 'vcse trian'; did you mean train? (vcse --help lists all "),
        (["study", "rnu"], "vcse: unknown command 'vcse study rnu'; did you mean run? (vcse study --help lists all "),
        (["zip"], "vcse: unknown command 'vcse zip' (vcse --help lists all "),
    ],
)
def test_unknown_verb_is_a_wrong_call_that_names_the_nearest(arguments, told, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert capsys.readouterr().err.startswith(told)


def test_without_a_verb_there_is_help(capsys):
    with pytest.raises(SystemExit) as exit_:
        main([])
    assert exit_.value.code == 0
    assert "usage: vcse" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("option", "told"),
    [
        (["--device", "gpu"], "--device: it must be auto, cpu or cuda, got 'gpu'; did you mean cuda?"),
        (["--device", "cuda:1"], "got 'cuda:1': use cuda, and CUDA_VISIBLE_DEVICES=1 to choose the GPU"),
        (["--reading", "papers"], "recommended, got 'papers'; did you mean paper?"),
    ],
)
def test_a_wrong_word_is_answered_with_what_may_have_been_meant(option, told, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["train", "--task", "minigrid/Empty-5x5", *option])
    assert exit_.value.code == 2
    assert told in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_runs_from_a_source_tree_that_is_not_installed(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "vcse", "--version"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(SOURCE)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == f"vcse {__version__}\n"


@pytest.mark.parametrize("arguments", [["--version"], ["tasks"]])
def test_a_reader_who_has_seen_enough_is_no_error(arguments):
    nobody, written = os.pipe()
    os.close(nobody)
    command = [sys.executable, "-m", "vcse", *arguments]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(SOURCE)}, stdout=written, stderr=subprocess.PIPE, check=False
    )
    os.close(written)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


def test_doctor_names_what_is_here(capsys):
    assert main(["doctor", "--json"]) == 0
    rows = {row["what"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["estimators on cpu"]["status"] == "ok"
    assert rows["extra report"]["status"] == "ok"
    assert "matplotlib" in rows["extra report"]["found"]
    assert (rows["extra dmc"]["status"], rows["dmc/hopper_stand"]["status"]) == ("ok", "ok")


def test_doctor_looks_at_every_extra_and_at_what_the_extras_of_others_need(tmp_path, monkeypatch):
    ours = [
        "jinja2>=3.1; extra == 'report'",
        "pillow>=11; extra == 'report'",
        "inner[more]<2; extra == 'rllib'",
        "rich",
    ]
    inner = ['lz4; extra == "more"', 'inner[more]; extra == "all"', 'old; python_version < "3" and extra == "more"']
    describe(
        "vcse",
        tmp_path,
        *(f"Requires-Dist: {each}" for each in ours),
        *(f"Provides-Extra: {extra}" for extra in ("report", "rllib")),
    )
    describe("inner", tmp_path, *(f"Requires-Dist: {each}" for each in inner))
    monkeypatch.syspath_prepend(tmp_path)
    assert extras_of_vcse() == {"report": ["jinja2", "pillow"], "rllib": ["inner", "lz4"]}


def test_doctor_imports_packages_by_the_names_of_their_modules():
    modules = {"pillow": "PIL", "pytest-xdist": "xdist", "stable-baselines3": "stable_baselines3", "mypy": "mypy"}
    assert {package: _module(package) for package in modules} == modules


def test_doctor_works_where_vcse_is_not_installed(capsys, monkeypatch):
    def not_found(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.metadata", not_found)
    assert main(["doctor", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[-1]
    assert (row["what"], row["status"], row["remedy"]) == ("extras", "missing", "pip install vcse")


def describe(package, place, *lines):
    """Put metadata of a package there, as pip would."""
    described = place / f"{package.replace('-', '_')}-1.0.dist-info"
    described.mkdir()
    (described / "METADATA").write_text(
        "\n".join(["Metadata-Version: 2.1", f"Name: {package}", "Version: 1.0", *lines])
    )
    return described


def install_broken(package, module, message, place):
    """Put a package there whose only module fails when it is imported."""
    (place / f"{module}.py").write_text(f"raise RuntimeError({message!r})")
    (describe(package, place) / "RECORD").write_text(f"{module}.py,,\n")


def test_doctor_shows_each_finding_as_it_comes_and_cuts_nothing(capsys, monkeypatch):
    name, command = "image of dmc-pixels/hopper_stand", f"pip install 'vcse[{'x' * 90}]'"
    shown = []

    def findings():
        yield Finding(name, "missing", "no library", command)
        shown.append(capsys.readouterr().out)
        yield Finding("Python", "ok", "3.11")

    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("vcse.cli.doctor.diagnose", findings)
    assert main(["doctor"]) == 0
    assert f"missing  {name}  no library" in shown[0]
    assert command in shown[0]
    assert "Python" in capsys.readouterr().out


def test_doctor_gives_the_command_for_a_missing_extra(capsys, monkeypatch):
    monkeypatch.setattr("vcse.cli.doctor.extras_of_vcse", lambda: {"report": ["no-such-package-anywhere"]})
    assert main(["doctor", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[-1]
    assert (row["status"], row["remedy"]) == ("missing", "pip install 'vcse[report]'")


def test_doctor_fails_where_the_simulator_does(capsys, monkeypatch):
    def diverge(_tasks):
        raise RuntimeError("Physics state is invalid")

    monkeypatch.setattr("vcse.cli.doctor.extras_of_vcse", lambda: {"dmc": ["dm-control", "mujoco"]})
    monkeypatch.setattr("vcse.envs.mujoco.dmc.DMCStates", diverge)
    assert main(["doctor", "--json"]) == 1
    rows = {row["what"]: row for row in json.loads(capsys.readouterr().out)}
    row = rows["dmc/hopper_stand"]
    assert (row["status"], row["found"]) == ("broken", "RuntimeError: Physics state is invalid")


def test_doctor_says_what_to_install_where_nothing_draws(capsys, monkeypatch):
    monkeypatch.setattr("vcse.cli.doctor.extras_of_vcse", lambda: {"dmc": ["dm-control", "mujoco"]})
    monkeypatch.setattr("vcse.envs.mujoco.rendering._loads", lambda _library: False)
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    assert main(["doctor", "--json"]) == 0
    row = json.loads(capsys.readouterr().out)[-1]
    assert (row["what"], row["status"]) == ("image of dmc-pixels/hopper_stand", "missing")
    assert "EGL" in row["found"]
    assert row["remedy"].startswith("apt install lib")


@needs_gl
def test_doctor_fails_where_an_installed_simulator_draws_nothing(capsys, monkeypatch, tmp_path):
    task_spec("dmc/hopper_stand")  # this process has imported what works, and the one that draws begins anew
    (tmp_path / "mujoco.py").write_text("raise ImportError('libmujoco.so.3 is damaged')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("vcse.cli.doctor.extras_of_vcse", lambda: {"dmc": ["dm-control", "mujoco"]})
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    assert main(["doctor", "--json"]) == 1
    row = json.loads(capsys.readouterr().out)[-1]
    assert (row["what"], row["status"]) == ("image of dmc-pixels/hopper_stand", "broken")
    assert "libmujoco.so.3 is damaged" in row["found"]
    assert row["remedy"] == "pip install --force-reinstall dm-control mujoco"


def test_doctor_fails_where_drawing_is_turned_off(capsys, monkeypatch):
    monkeypatch.setattr("vcse.cli.doctor.extras_of_vcse", lambda: {"dmc": ["dm-control", "mujoco"]})
    monkeypatch.setenv("MUJOCO_GL", "off")
    assert main(["doctor", "--json"]) == 1
    row = json.loads(capsys.readouterr().out)[-1]
    assert row["status"] == "broken"
    assert "MUJOCO_GL=off turns drawing off" in row["found"]
    assert row["remedy"] == "unset MUJOCO_GL"


def test_doctor_says_what_to_install_where_what_mujoco_gl_names_is_not_here(capsys, monkeypatch):
    monkeypatch.setattr("vcse.cli.doctor.extras_of_vcse", lambda: {"dmc": ["dm-control", "mujoco"]})
    monkeypatch.setattr("vcse.envs.mujoco.rendering._loads", lambda _library: False)
    monkeypatch.setenv("MUJOCO_GL", "osmesa")
    assert main(["doctor", "--json"]) == 1
    row = json.loads(capsys.readouterr().out)[-1]
    assert (row["what"], row["status"], row["remedy"]) == ("extra dmc", "broken", "unset MUJOCO_GL")
    assert "MUJOCO_GL=osmesa renders with OSMesa, which is not here: apt install libosmesa6" in row["found"]


@pytest.mark.parametrize(("named", "remedy"), [("nonsense", "unset MUJOCO_GL"), ("", "pip install --force-reinstall")])
def test_doctor_tells_a_wrong_mujoco_gl_from_a_broken_package(capsys, monkeypatch, tmp_path, named, remedy):
    install_broken("needs-gl", "needs_gl", "invalid value for environment variable MUJOCO_GL", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("vcse.cli.doctor.extras_of_vcse", lambda: {"metaworld": ["needs-gl", "mujoco"]})
    monkeypatch.setenv("MUJOCO_GL", named)
    assert main(["doctor", "--json"]) == 1
    row = json.loads(capsys.readouterr().out)[-1]
    assert row["status"] == "broken"
    assert row["remedy"].startswith(remedy)


def test_doctor_fails_where_an_installed_extra_is_broken(capsys, monkeypatch, tmp_path):
    install_broken("python-broken", "broken_extra", "libGL.so.1 not found", tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("vcse.cli.doctor.extras_of_vcse", lambda: {"report": ["python-broken"]})
    assert main(["doctor", "--json"]) == 1
    row = json.loads(capsys.readouterr().out)[-1]
    assert "libGL.so.1" in row["found"]
    assert row["remedy"] == "pip install --force-reinstall python-broken"


def test_selftest_passes_and_prints_bias_and_spread(capsys):
    assert main(["selftest", "--json", "--draws", "3"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert all(row["passed"] for row in rows)
    assert {"bias", "spread", "expected", "tolerance"} <= rows[0].keys()


@pytest.mark.parametrize("json", [False, True])
def test_selftest_shows_each_check_as_it_is_done(capsys, monkeypatch, json):
    shown = []

    def checks(*_):
        for mean in (2.8, 3.6):
            yield Check("KL", "Gaussian, 2d", 2000, 2, 5, 2.838, mean, mean - 2.838, 0.01, 0.05)
            shown.append(capsys.readouterr())

    monkeypatch.setattr("vcse.cli.selftest.run_checks", checks)
    assert main(["selftest", *(["--json"] if json else [])]) == 1
    first, second = (each.err if json else each.out for each in shown)
    assert first.splitlines()[1].split()[:4] == ["estimator", "samples", "N", "k"]
    assert first.splitlines()[2].split()[-3:] == ["-0.038", "0.010", "ok"]
    assert second.endswith("0.010  not ±0.05\n")
    assert max(map(len, first.splitlines())) < 80


def _off_by_log_two(points, *, k):
    return kl_entropy(points, k=k) + 0.6931


def test_selftest_fails_when_an_estimator_is_off_by_log_two(capsys, monkeypatch):
    monkeypatch.setattr("vcse.estimators.kl_entropy", _off_by_log_two)
    assert main(["selftest", "--draws", "2"]) == 1
    assert "4 of 21 failed" in capsys.readouterr().err


def test_bench_prints_flat_rows(capsys):
    assert main(["bench", "estimator", "--json", "--device", "cpu", "--repeats", "1", "--sizes", "64x8x3"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert list(row) == ["device", "n", "d", "k", "ms", "naive_ms", "peak_mib", "naive_peak_mib"]
    assert (row["device"], row["n"], row["d"], row["k"]) == ("cpu", 64, 8, 3)
    assert row["ms"] > 0
    assert row["naive_ms"] > 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["bench", "estimator", "--sizes", "64x8"], "a size is written NxDxK"),
        (["bench", "estimator", "--sizes", "3x2x12"], "K from 1 to N - 1, got '3x2x12'"),
        (["bench", "estimator", "--sizes", "8x0x3"], "D of at least 1 and K from 1 to N - 1, got '8x0x3'"),
        (["bench", "sac", "--rendering", "fast"], "--rendering is for drqv2, got sac"),
        (["bench", "estimator", "--repeats", "0"], "--repeats must be at least 1, got 0"),
        (["selftest", "--draws", "1"], "--draws must be at least 2, got 1"),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(arguments, message, capsys):
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1
