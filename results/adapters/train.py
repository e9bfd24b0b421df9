"""Train agents of Stable-Baselines3 with examples/sb3.py, many runs side by side, and write what `vcse report` reads.

python results/adapters/train.py --task MiniGrid-DoorKey-6x6-v0 --steps 300000 --out runs/adapters

A run that is there already is left as it is, so that the same command goes on where it was stopped.
"""

import dataclasses
import importlib.util
import json
import math
import sys
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import tyro

from vcse.runs.arithmetic import EXACT
from vcse.runs.checkpoint import write_atomically
from vcse.runs.config import SCHEMA_VERSION
from vcse.runs.machine import cores, describe_machine

ROOT = Path(__file__).resolve().parents[2]
ROW_STEPS = 5_000
RECENT = 100  # episodes of which means are shown
COLUMNS = ("frame", "episodes", "return_mean", "length_mean", "death_share")


@dataclass(frozen=True)
class Choice:
    """Train agents of Stable-Baselines3, with examples/sb3.py."""

    out: Path
    """Where run directories are made."""
    task: str = "MiniGrid-LavaGapS5-v0"
    """An environment of Gymnasium."""
    algorithm: str = "ppo"
    """ppo or sac."""
    bonuses: tuple[str, ...] = ("none", "vcse", "se", "rnd", "counts")
    """Which."""
    beta: float | None = None
    """Their weight, if it is not the preset's; methods are named after it then."""
    decays: bool = True
    """Let beta fall to 0; methods are named so where it does not."""
    steps: int = 60_000
    """Of each run."""
    seeds: int = 10
    """How many of each bonus."""
    first_seed: int = 100
    """The first of them."""
    jobs: int = dataclasses.field(default_factory=cores)
    """Runs at once."""


def example() -> Any:
    """Return the example that trains, as a module."""
    spec = importlib.util.spec_from_file_location("example_sb3", ROOT / "examples" / "sb3.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["example_sb3"] = module  # where its dataclasses look their types up
    spec.loader.exec_module(module)
    return module


def rows(episodes: Sequence[Any], steps: int) -> str:
    """Return what the last hundred episodes gave, every few thousand steps, as CSV."""
    lines = [",".join(COLUMNS)]
    for frame in range(ROW_STEPS, steps + 1, ROW_STEPS):
        ended = [each for each in episodes if each.step <= frame]
        latest = ended[-RECENT:]
        shown = [
            [each.task_return for each in latest],
            [each.length for each in latest],
            [float(each.terminated and each.task_return <= 0) for each in latest],
        ]
        means = [str(sum(each) / len(each)) if each else "" for each in shown]
        lines.append(",".join([str(frame), str(len(ended)), *means]))
    return "\n".join(lines) + "\n"


def run(choice: Choice, bonus: str, seed: int, directory: Path) -> str:
    """Train one agent, and write its directory."""
    sb3 = example()
    told = {"task": choice.task, "algorithm": choice.algorithm, "bonus": bonus, "steps": choice.steps, "seed": seed}
    weight = {} if choice.beta is None else {"beta": choice.beta}
    args = sb3.Args(**told, **weight, decays=choice.decays)
    _, episodes = sb3.main(args)
    config = {name: value for name, value in dataclasses.asdict(args).items() if name not in ("task", "steps", "log")}
    named = {"task": task_of(choice), "method": method_of(choice, bonus), "frames": choice.steps}
    content = {"schema_version": SCHEMA_VERSION, **named, "agent": f"sb3-{choice.algorithm}", **config}
    directory.mkdir(parents=True, exist_ok=True)
    write_atomically(directory / "config.json", json.dumps(content, indent=1).encode())
    write_atomically(directory / "meta.json", json.dumps(describe_machine("cpu", EXACT), indent=1).encode())
    write_atomically(directory / "train.csv", rows(episodes, choice.steps).encode())
    write_atomically(directory / "DONE", f"{choice.steps}\n".encode())
    latest = [each.task_return for each in episodes[-RECENT:]] or [math.nan]
    return f"{directory}: return {sum(latest) / len(latest):.3f}"


def task_of(choice: Choice) -> str:
    """Return the task's name on pages: that of the environment, and the agent before it."""
    return f"sb3-{choice.algorithm}/{choice.task.removesuffix('-v0')}"


def method_of(choice: Choice, bonus: str) -> str:
    """Return the name of an arm: its bonus, and what is not the preset's."""
    deviations = ([] if choice.beta is None else [f"beta-{choice.beta:g}"]) + ([] if choice.decays else ["constant"])
    return "-".join([bonus, *(deviations if bonus != "none" else ())])


def main(choice: Choice) -> int:
    """Train what is not there yet."""
    wanted = [
        (bonus, seed, choice.out / task_of(choice).replace("/", "-") / method_of(choice, bonus) / f"seed{seed}")
        for seed in range(choice.first_seed, choice.first_seed + choice.seeds)
        for bonus in choice.bonuses
    ]
    missing = [each for each in wanted if not (each[2] / "DONE").exists()]
    print(f"{len(wanted) - len(missing)} of {len(wanted)} runs are there", flush=True)
    failed = 0
    with ProcessPoolExecutor(choice.jobs, mp_context=get_context("spawn")) as pool:
        running = {pool.submit(run, choice, *each): each for each in missing}
        for number, done in enumerate(as_completed(running), 1):
            error = done.exception()
            failed += error is not None
            told = done.result() if error is None else f"{running[done][2]}: failed: {error}"
            print(f"{number} of {len(missing)}: {told}", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Choice)))
