"""Run a commit and the present working tree side by side, and compare what they produce, byte for byte.

python tests/compare_with.py COMMIT [--only SUBSTRING ...] [--keep DIR] [--list]

Both trees are copied when this begins, so that files may be edited meanwhile. Every case is a short training on the
CPU. What is compared of a run: train.csv, eval.csv, DONE, visits.npy, all *.bin, and the agent in the newest
checkpoint; and of some cases what `vcse eval` says. What is not: timing.csv, meta.json, config.json.
"""

import argparse
import csv
import hashlib
import io
import json
import os
import pickle
import re
import shlex
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch

# Words of the command lines that later trees have under another name: "--old-flag": "--new-flag".
RENAMED_OPTIONS = {"--normalize-reward=True": "--reward-normalization=mean"}

ROOT = Path(__file__).resolve().parents[1]
EVERYWHERE = "--device cpu --jobs 1 --threads 1 --quiet"
EVALUATION = "--device cpu --json --episodes 1"
COMPARED_FILES = ("train.csv", "eval.csv", "DONE", "visits.npy", "*.bin")
MOST_SECONDS = 600.0  # of a command
TAIL_LINES = 15  # of what a command that failed said
SHOWN_NAMES = 3  # of columns or tensors that differ
SHOWN_RUNS = 6  # of a case, that differ


@dataclass(frozen=True)
class Case:
    """A training, and how it is gone on with."""

    name: str
    options: str  # of `vcse train`
    frames: int
    more_frames: int = 0  # if given, the same command is given once more, with so many frames
    begun_by_reference: bool = False  # both trees go on with a run that the reference began
    is_evaluated: bool = False  # `vcse eval` looks at one of the runs

    def command(self, frames: int, out: Path) -> list[str]:
        """Return the words of a training up to a frame."""
        return ["train", *shlex.split(self.options), "--frames", str(frames), *EVERYWHERE.split(), "--out", str(out)]


A2C = "--task minigrid/LavaGapS7 minigrid/DoorKey-6x6 --eval-every-frames 2560 --eval-episodes 2"
A2C_VISITS = f"{A2C} --visits-every-frames 512"
A2C_BONUSES = "--bonus none se vcse se-matched"
# Four environments: an update is 32 frames, so that episodes reach their time limit soon.
A2C_FEW = "--environments 4 --eval-every-frames 640 --eval-episodes 2 --visits-every-frames 512"
TABLE = f"--task minigrid-table/SimpleCrossingS9N1 {A2C_FEW}"
BONUSES = "--bonus none se vcse rcse se-matched"
SAC_SIZES = "--hidden-units 32 --batch-size 32 --seed-frames 50 --eval-episodes 1 --eval-every-frames 200"
SAC = f"--task dmc/cartpole_swingup {SAC_SIZES}"
DRQV2_SIZES = "--rendering fast --hidden-units 16 --batch-size 16 --set features=8"
DRQV2_PLAYED = f"{DRQV2_SIZES} --eval-every-frames 0 --eval-episodes 1"  # evaluated at the end: episodes are long
DRQV2_SHORT = f"{DRQV2_SIZES} --eval-every-frames 60 --eval-episodes 0 --seed-frames 40"
CARTPOLE = "--task dmc-pixels/cartpole_swingup"
DRQV2 = f"{CARTPOLE} {DRQV2_SHORT}"
MWM_SIZES = (
    "--rendering fast --image-size 16 --batch-size 4 --sequence-length 5 --autoencoder-batch-size 3 --horizon 4 "
    "--hidden-units 12 --deterministic 8 --seed-frames 40 --pretraining-updates 3 --precision float32 "
    "--set autoencoder_sequence_length=4 token_dimensions=16 encoder_blocks=1 decoder_blocks=1 model_dimensions=16 "
    "model_blocks=1 heads=2 variables=3 classes=4 projection_size=6"
)
MWM_SHORT = "--sequence-sampling uniform --eval-every-frames 60 --eval-episodes 0"
MWM = f"{CARTPOLE} --agent mwm {MWM_SIZES} {MWM_SHORT}"

CASES = (
    Case("a2c-release", f"{A2C} {A2C_BONUSES} --seeds 2", 5248, is_evaluated=True),
    Case("a2c-paper", f"{A2C} {A2C_BONUSES} --reading paper", 5248),
    Case("a2c-clean", f"{A2C} {A2C_BONUSES} --reading clean", 5248),
    Case("a2c-re3", f"{A2C} --bonus none se --reading re3 --seeds 2 --first-seed 3", 5248),
    Case("a2c-full", f"--task minigrid-full/SimpleCrossingS9N1 {A2C_FEW} {A2C_BONUSES}", 5248),
    Case("a2c-table-exact", f"{TABLE} --bonus none se vcse --values exact", 1920),
    Case("a2c-table-exact-stationary", f"{TABLE} --bonus vcse --values exact-stationary --reading paper", 1920),
    Case(
        "a2c-deviations",
        f"--task minigrid/LavaGapS7 {A2C_FEW} {A2C_BONUSES} --time-limit bootstraps --injection reward "
        "--bonus-features position --keep-extrinsic-critic --k 4 --beta 0.02 --log-offset 0.5 "
        "--value-normalization running --set learning_rate=3e-4 discount=0.97",
        1920,
    ),
    Case(
        "a2c-clean-deviations",
        f"--task minigrid/DoorKey-6x6 {A2C_FEW} {A2C_BONUSES} --reading clean --time-limit ends --injection after_gae "
        "--backend minigrid",
        960,
    ),
    Case("a2c-resumed", f"{A2C_VISITS} {A2C_BONUSES}", 1280, more_frames=2560),
    Case("a2c-begun-by-reference", f"{A2C_VISITS} --bonus se vcse", 1280, more_frames=2560, begun_by_reference=True),
    Case("sac-release", f"{SAC} {BONUSES}", 1100, is_evaluated=True),  # beyond the end of an episode
    Case("sac-paper", f"{SAC} {BONUSES} --reading paper", 300),
    Case("sac-clean", f"{SAC} {BONUSES} --reading clean --seeds 2", 300),
    Case(
        "sac-deviations",
        f"--task dmc/pendulum_swingup dmc/hopper_stand {SAC_SIZES} --bonus vcse rcse --temperature learned "
        "--value-critic online --updates-per-step 0.5 --extrinsic-entropy True --replay-capacity 120 --k 5 --beta 0.2 "
        "--log-offset 0.5 --value-normalization running --set learning_rate=3e-4",
        300,
    ),
    Case("sac-resumed", f"{SAC} {BONUSES} --seeds 2", 200, more_frames=400),
    Case("sac-begun-by-reference", f"{SAC} --bonus vcse se", 200, more_frames=400, begun_by_reference=True),
    Case("drqv2-release", f"{DRQV2} {BONUSES}", 100),
    Case("drqv2-paper", f"{DRQV2} {BONUSES} --reading paper", 100),
    Case("drqv2-clean", f"{DRQV2} {BONUSES} --reading clean", 100),
    Case("drqv2-evaluated", f"{CARTPOLE} {DRQV2_PLAYED} --bonus vcse --seed-frames 40", 80, is_evaluated=True),
    # Beyond the end of an episode.
    Case("drqv2-metaworld", f"--task metaworld/door-open {DRQV2_PLAYED} --bonus vcse --seed-frames 460", 540),
    Case(
        "drqv2-deviations",
        f"--task dmc-pixels/walker_walk {DRQV2_SHORT} --bonus vcse rcse --bonus-batch-size 24 --beta-decay 0.01 "
        "--action-noise 1 0.1 40 --n-step 2 --value-critic target --curiosity-pair one-step --beta 0.2 "
        "--return-injection every_step --normalize-reward=True --value-normalization running --replay-capacity 30",
        100,
    ),
    Case("drqv2-resumed", f"{DRQV2} --bonus none vcse --action-noise 0.3", 60, more_frames=120),
    Case("drqv2-begun-by-reference", f"{DRQV2} --bonus vcse", 60, more_frames=120, begun_by_reference=True),
    Case("mwm-release", f"{MWM} {BONUSES}", 160),
    Case("mwm-clean", f"{MWM} {BONUSES} --reading clean", 160),
    Case("mwm-resumed", f"{MWM} --bonus none vcse", 90, more_frames=160),
    Case("mwm-begun-by-reference", f"{MWM} --bonus vcse", 90, more_frames=160, begun_by_reference=True),
)


class Tree(NamedTuple):
    """A copy of the sources, and what its command line calls differently."""

    name: str
    source: Path
    renamed: Mapping[str, str]


class CommandError(Exception):
    """A command that failed, with the tail of what it said."""


@dataclass
class Outcome:
    """What came of a case in one tree."""

    seconds: float = 0.0
    evaluation: list[dict[str, Any]] = field(default_factory=list)
    failure: str = ""


@dataclass
class Findings:
    """What differs, and what is worth a word though nothing differs."""

    differences: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def extract_commit(commit: str, place: Path) -> Path:
    """Extract the sources of a commit to a folder, and return the one to import from."""
    packed = subprocess.run(["git", "-C", str(ROOT), "archive", commit, "src"], stdout=subprocess.PIPE, check=True)
    with tarfile.open(fileobj=io.BytesIO(packed.stdout)) as archive:
        archive.extractall(place, filter="data")
    return place / "src"


def run_python(tree: Tree, words: Sequence[str], folder: Path) -> str:
    """Run Python with the modules of a tree, and return what it writes to standard output."""
    command = [sys.executable, *words]
    environment = os.environ | {"PYTHONPATH": str(tree.source)}
    try:
        ended = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=MOST_SECONDS
        )
    except subprocess.TimeoutExpired as error:
        raise CommandError(f"{tree.name}: {shlex.join(words)}: not done after {MOST_SECONDS:.0f} s") from error
    if ended.returncode:
        tail = "\n".join(ended.stderr.splitlines()[-TAIL_LINES:])
        raise CommandError(f"{tree.name}: {shlex.join(words)}: exit status {ended.returncode}\n{tail}")
    return ended.stdout


def run_vcse(tree: Tree, words: Sequence[str], folder: Path) -> str:
    """Run a command of the program, in words of the reference, and return what it writes to standard output."""
    return run_python(tree, ["-m", "vcse", *(tree.renamed.get(word, word) for word in words)], folder)


def check_imports(tree: Tree, folder: Path) -> None:
    """Refuse a tree whose modules would be imported from elsewhere, such as from an installed package."""
    found = Path(run_python(tree, ["-c", "import vcse; print(vcse.__file__)"], folder).strip()).resolve()
    if not found.is_relative_to(tree.source.resolve()):
        raise CommandError(f"{tree.name}: vcse is imported from {found}, not from {tree.source}")


def run_folders(out: Path) -> list[Path]:
    """Return the folders of runs, relative to where they are."""
    return sorted(path.parent.relative_to(out) for path in out.rglob("train.csv"))


def run_case_in(tree: Tree, case: Case, folder: Path) -> Outcome:
    """Run what a case asks of one tree."""
    outcome, out, begin = Outcome(), folder / tree.name, time.monotonic()
    lengths = [case.frames, case.more_frames] if case.more_frames else [case.frames]
    try:
        for frames in lengths[case.begun_by_reference :]:
            run_vcse(tree, case.command(frames, out), folder)
        if case.is_evaluated:
            run = [out, *(out / run for run in run_folders(out))][-1]
            said = run_vcse(tree, ["eval", str(run), *EVALUATION.split()], folder)
            outcome.evaluation = [{key: row[key] for key in row if key != "run"} for row in json.loads(said)]
    except (CommandError, json.JSONDecodeError) as error:
        outcome.failure = str(error)
    outcome.seconds = time.monotonic() - begin
    return outcome


def run_case(case: Case, reference: Tree, head: Tree, folder: Path) -> tuple[Outcome, Outcome]:
    """Run a case in both trees at once; what the reference begins for both is run before."""
    folder.mkdir(parents=True)
    if case.begun_by_reference:
        first = run_case_in(reference, replace(case, more_frames=0, begun_by_reference=False), folder)
        if first.failure:
            return first, Outcome()
        shutil.copytree(folder / reference.name, folder / head.name)
    with ThreadPoolExecutor(2) as pool:
        begun = [pool.submit(run_case_in, tree, case, folder) for tree in (reference, head)]
        return begun[0].result(), begun[1].result()


def compare_runs(reference: Path, head: Path) -> Findings:
    """Compare all runs of a case."""
    findings = Findings()
    runs, others = run_folders(reference), run_folders(head)
    for run in sorted({*runs, *others}):
        if run not in runs or run not in others:
            findings.differences.append(f"{run}: only in {'the reference' if run in runs else 'head'}")
            continue
        one, other = reference / run, head / run
        names = {path.name for place in (one, other) for each in COMPARED_FILES for path in place.glob(each)}
        found = [compare_files(one / name, other / name) for name in sorted(names)]
        found.append(compare_checkpoints(one, other, findings.notes))
        if any(found):
            findings.differences.append(f"{run}: {'; '.join(filter(None, found))}")
    if not runs:
        findings.differences.append("there are no runs to compare")
    return findings


def compare_files(reference: Path, head: Path) -> str:
    """Compare two files byte by byte, and return how they differ; nothing where they do not."""
    if not (reference.exists() and head.exists()):
        return f"{reference.name} only in {'the reference' if reference.exists() else 'head'}"
    one, other = reference.read_bytes(), head.read_bytes()
    if one == other:
        return ""
    if reference.suffix == ".csv":
        return f"{reference.name}, {describe_rows(one.decode(), other.decode())}"
    alike = min(len(one), len(other))
    first = next((place for place in range(alike) if one[place] != other[place]), alike)
    return f"{reference.name}, first at byte {first:,}, of {len(one):,} and {len(other):,} bytes"


def describe_rows(reference: str, head: str) -> str:
    """Describe the first row in which two CSV files differ."""
    rows, others = (list(csv.reader(text.splitlines())) for text in (reference, head))
    for place, (row, other) in enumerate(zip(rows, others, strict=False)):
        if row != other and place == 0:
            lost, new = ([name for name in a if name not in b] for a, b in ((row, other), (other, row)))
            return f"columns: {name_some(lost)} only in the reference, {name_some(new)} only in head, or another order"
        if row != other:
            cells = zip(rows[0], row, other, strict=False)
            changed = [f"{name} {old or 'empty'} -> {new or 'empty'}" for name, old, new in cells if old != new]
            return f"row {place} ({rows[0][0]} {row[0]}): {name_some(changed)}"
    return f"of {len(rows)} and {len(others)} lines the first are the same, but perhaps for their ends"


def name_some(names: Sequence[str]) -> str:
    """Return some of many names, and how many are left out."""
    more = f" and {len(names) - SHOWN_NAMES} more" if len(names) > SHOWN_NAMES else ""
    return (", ".join(names[:SHOWN_NAMES]) or "none") + more


def read_agent(path: Path) -> dict[str, tuple[str, str]]:
    """Read every tensor and number of the agent in a checkpoint, by name: its kind, and its bits."""
    magic, _, content = path.read_bytes().partition(b"\n")
    digest, payload = content[:32], content[32:]
    if not re.fullmatch(rb"vcse checkpoint \d+", magic) or digest != hashlib.sha256(payload).digest():
        raise ValueError(f"{path} is not a whole checkpoint")
    state = torch.load(io.BytesIO(payload), map_location="cpu", weights_only=True)
    if not state.get("agent"):
        raise ValueError(f"{path} holds no agent")
    return dict(leaves(state["agent"], "agent"))


def leaves(value: Any, name: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Walk through nested dicts and lists, and yield what is in them by its path."""
    if isinstance(value, dict):
        for key, each in value.items():
            yield from leaves(each, f"{name}.{key}")
    elif isinstance(value, list | tuple):
        for place, each in enumerate(value):
            yield from leaves(each, f"{name}[{place}]")
    elif isinstance(value, torch.Tensor):
        content = value.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        yield name, (f"{value.dtype} {tuple(value.shape)}", hashlib.sha256(content).hexdigest())
    else:
        yield name, (type(value).__name__, repr(value))


def compare_checkpoints(reference: Path, head: Path, notes: list[str]) -> str:
    """Compare the newest agents of two runs bit by bit, and return how they differ; other names alone are noted."""
    newest = [max((run / "checkpoint").glob("frame*.pt"), default=run / "none") for run in (reference, head)]
    if newest[0].name != newest[1].name:
        return f"the newest checkpoint is {newest[0].name} in the reference, {newest[1].name} in head"
    try:
        one, other = (read_agent(path) for path in newest)
    except (OSError, ValueError, pickle.UnpicklingError) as error:
        return f"checkpoint: {error}"
    changed = [name for name, leaf in one.items() if name in other and leaf != other[name]]
    lost, new = [name for name in one if name not in other], [name for name in other if name not in one]
    told = f"checkpoint names: {name_some(lost)} only in the reference, {name_some(new)} only in head"
    if not (lost or new):
        return f"checkpoint: {name_some(changed)}" if changed else ""
    if Counter(one.values()) == Counter(other.values()):
        notes.append(f"{told}; the tensors and numbers are the same")
        return ""
    return f"checkpoint: {name_some(changed)} of the same name, {told}"


def compare_outcomes(one: Outcome, other: Outcome, folders: tuple[Path, Path]) -> Findings:
    """Compare all that came of a case."""
    failures = [outcome.failure for outcome in (one, other) if outcome.failure]
    if failures:
        return Findings(differences=failures)
    findings = compare_runs(*folders)
    if repr(one.evaluation) != repr(other.evaluation):
        findings.differences.append(f"vcse eval: {one.evaluation} in the reference, {other.evaluation} in head")
    return findings


def compare_all(cases: Sequence[Case], commit: str, kept: Path | None) -> int:
    """Run cases one after the other, tell what differs, and return how many do."""
    differing = 0
    with tempfile.TemporaryDirectory(prefix="compare-with-") as made:
        place = Path(made)
        source = extract_commit(commit, place / "reference-tree")
        has_new_names = any("reward_normalization" in each.read_text() for each in source.rglob("settings.py"))
        reference = Tree("reference", source, RENAMED_OPTIONS if has_new_names else {})
        head = Tree("head", place / "head-tree" / "src", RENAMED_OPTIONS)
        shutil.copytree(ROOT / "src", head.source, ignore=shutil.ignore_patterns("__pycache__"))
        for tree in (reference, head):
            check_imports(tree, place)
        print(f"{'case':<28} {commit[:9]:>9} {'head':>9}", flush=True)
        for case in cases:
            folder = (kept or place / "runs") / case.name
            one, other = run_case(case, reference, head, folder)
            findings = compare_outcomes(one, other, (folder / reference.name, folder / head.name))
            differing += bool(findings.differences)
            said = "DIFFERS" if findings.differences else "equal"
            print(f"{case.name:<28} {one.seconds:>7.1f} s {other.seconds:>7.1f} s  {said}", flush=True)
            shown = findings.differences[:SHOWN_RUNS] + [f"note: {note}" for note in dict.fromkeys(findings.notes)]
            if len(findings.differences) > SHOWN_RUNS:
                shown.append(f"and {len(findings.differences) - SHOWN_RUNS} more")
            for text in shown:
                print("    " + text.replace("\n", "\n    "), flush=True)
            if kept is None:
                shutil.rmtree(folder)
    return differing


def main() -> int:
    """Read the command line, compare, and return the exit status."""
    parser = argparse.ArgumentParser(description="Compare what a commit and the working tree produce, byte for byte.")
    parser.add_argument("commit", help="the reference")
    parser.add_argument("--only", nargs="+", metavar="SUBSTRING", help="cases whose name holds one of these")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="keep the runs there; it must be empty or new")
    parser.add_argument("--list", action="store_true", help="list the cases and do nothing")
    given = parser.parse_args()
    cases = [case for case in CASES if given.only is None or any(part in case.name for part in given.only)]
    if not cases:
        parser.error("no case has such a name; see --list")
    if given.list:
        for case in cases:
            print(f"{case.name}: vcse train {case.options} --frames {case.more_frames or case.frames}")
        return 0
    kept = given.keep.resolve() if given.keep else None
    if kept and kept.exists() and (not kept.is_dir() or any(kept.iterdir())):
        parser.error(f"{kept} is not an empty folder: runs that are there would be taken for done")
    begin = time.monotonic()
    try:
        differing = compare_all(cases, given.commit, kept)
    except (CommandError, subprocess.CalledProcessError) as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{len(cases)} cases, {differing} differ ({time.monotonic() - begin:.0f} s)")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
