"""Time a commit and the present working tree by turns on one machine, and print the ratio of their medians.

python benchmarks/compare_with.py COMMIT [NAME ...] [--device cuda] [--rounds 5] [--bonuses vcse] [--learners 1 16]
    [--seconds 2]

The names are those of `vcse bench`; COMMIT may also be a folder with another source tree. Each tree is imported once,
in a process of its own, and is idle while the other is measured; they take turns in going first. A ratio above 1 means
that the working tree is faster.
"""

import argparse
import dataclasses
import io
import json
import os
import statistics
import subprocess
import sys
import tarfile
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
# What is compared of a row, and whether more of it is better.
MEASURES = {
    "estimator": {"ms": False},
    "minigrid": {"frames_per_s": True},
    "sac": {"updates_per_s": True, "frames_per_s": True},
    "drqv2": {"ms_per_update": False, "frames_per_s": True},
}
# What tells the rows of one benchmark apart.
CASE_COLUMNS = ("task", "learners", "hidden_units", "bonus", "rendering", "n", "d", "k")
REPEATS = 20  # of the estimator at each size

Measured = dict[tuple[str, str], list[float]]  # by case and measure, one number of each round


def rows_of(
    name: str, device: str, bonuses: list[str], learners: list[int], seconds: float | None
) -> list[dict[str, Any]]:
    """Measure one benchmark with the `vcse` that is imported here, and return its rows."""
    import importlib

    from vcse.runs.machine import cores

    module = importlib.import_module(f"vcse.bench.{name}")
    if name == "estimator":
        sizes = module.CUDA_SIZES if device == "cuda" else module.CPU_SIZES
        rows = module.measure(device, tuple(size for size in sizes if size.n <= 4096), repeats=REPEATS)
    else:
        cases = module.CUDA_CASES if device == "cuda" else module.CPU_CASES
        if name == "drqv2" and device == "cuda":
            cases = module.cases_for(device, "light")
        if bonuses:
            cases = [each for each in cases if {*getattr(each, "bonuses", (getattr(each, "bonus", ""),))} <= {*bonuses}]
        if learners:
            cases = [each for each in cases if getattr(each, "learners", 1) in learners]
        rows = module.measure(device, cases, threads=cores(), seconds=seconds or module.SECONDS)
    return [dataclasses.asdict(row) for row in rows]


def answer_requests() -> None:
    """Measure what each line of standard input asks for, and print the rows as one line."""
    answers, sys.stdout = sys.stdout, sys.stderr  # whatever else is printed is no answer
    for line in sys.stdin:
        print(json.dumps(rows_of(**json.loads(line))), file=answers, flush=True)


def start(source: Path) -> "subprocess.Popen[str]":
    """Start a process that measures with the `vcse` of one source tree."""
    path = os.pathsep.join(filter(None, [str(source), os.environ.get("PYTHONPATH")]))
    return subprocess.Popen(
        [sys.executable, __file__, "--answer"],
        env=os.environ | {"PYTHONPATH": path},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


def ask(process: "subprocess.Popen[str]", request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that a process measures."""
    assert process.stdin is not None
    assert process.stdout is not None
    print(json.dumps(request), file=process.stdin, flush=True)
    line = process.stdout.readline()
    if not line:
        raise SystemExit(f"a benchmark failed with exit status {process.wait()}")
    rows: list[dict[str, Any]] = json.loads(line)
    return rows


def compare(name: str, processes: dict[str, "subprocess.Popen[str]"], rounds: int, request: dict[str, Any]) -> float:
    """Run one benchmark in both trees by turns, print a line per number, and return the lowest ratio."""
    measured: dict[str, Measured] = {tree: defaultdict(list) for tree in processes}
    reference, head = measured.values()
    for each in range(rounds):
        for tree in list(processes)[:: 1 if each % 2 == 0 else -1]:
            for row in ask(processes[tree], {"name": name} | request):
                case = " ".join(str(row[column]) for column in CASE_COLUMNS if column in row)
                for measure in MEASURES[name]:
                    measured[tree][case, measure].append(float(row[measure]))
        # What a comparison that is cut short has found so far.
        latest = "; ".join(
            f"{' '.join(key)} {' '.join(f'{m[key][-1]:.4g}' for m in measured.values())}" for key in reference
        )
        print(f"{name}: round {each + 1} of {rounds}: {latest}", file=sys.stderr, flush=True)
    lowest = float("inf")
    for (case, measure), numbers in reference.items():
        old, new = statistics.median(numbers), statistics.median(head[case, measure])
        ratio = new / old if MEASURES[name][measure] else old / new
        lowest = min(lowest, ratio)
        print(f"{name:<10} {case:<38} {measure:<14} {old:>10,.4g} {new:>10,.4g} {ratio:>7.3f}", flush=True)
    return lowest


def source_of(commit: str, scratch: Path) -> Path:
    """Return the folder that `vcse` of a commit, or of another source tree, is imported from."""
    if (Path(commit) / "src").is_dir():
        return Path(commit).resolve() / "src"
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit, "src"], stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(scratch, filter="data")
    return scratch / "src"


def main() -> int:
    """Read the command line, compare, and return the exit status: 1 where something is slower than asked for."""
    parser = argparse.ArgumentParser(description="Compare the speed of a commit and the working tree.")
    parser.add_argument("commit", help="the reference: a commit, or a folder with a source tree")
    parser.add_argument("names", nargs="*", help=f"of {', '.join(MEASURES)}; all if none is given")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="default: cpu")
    parser.add_argument("--rounds", type=int, default=5, help="of each tree, of which the median counts (default: 5)")
    parser.add_argument("--bonuses", nargs="+", default=[], help="only cases with these bonuses; all if none is given")
    parser.add_argument("--learners", nargs="+", type=int, default=[], help="only cases of so many; all if not given")
    parser.add_argument("--seconds", type=float, help="per measurement; that of `vcse bench` if not given")
    parser.add_argument("--least", type=float, default=0.95, help="the lowest ratio that is accepted (default: 0.95)")
    given = parser.parse_args()
    if strange := [name for name in given.names if name not in MEASURES]:
        parser.error(f"there is no benchmark {strange[0]!r}; there are {', '.join(MEASURES)}")
    request = {"device": given.device, "bonuses": given.bonuses, "learners": given.learners, "seconds": given.seconds}
    with tempfile.TemporaryDirectory(prefix="compare-speed-") as scratch:
        reference = start(source_of(given.commit, Path(scratch)))
        processes = {"reference": reference, "head": start(ROOT / "src")}
        print(f"{'bench':<10} {'case':<38} {'measure':<14} {'reference':>10} {'head':>10} {'faster':>7}")
        lowest = min(compare(name, processes, given.rounds, request) for name in given.names or MEASURES)
        for process in processes.values():
            process.terminate()
    print(f"lowest ratio {lowest:.3f}, {given.least} is accepted")
    return 0 if lowest >= given.least else 1


if __name__ == "__main__":
    sys.exit(answer_requests() if sys.argv[1:] == ["--answer"] else main())
