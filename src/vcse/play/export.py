"""Exporting a policy: a finished run without what only training needs, and a card that says how good it is.

README.md      the card                                  evaluation.json   the numbers in it
config.json    everything that decides the run's numbers meta.json         versions, commit, command
checkpoint/    the weights that act                      DONE              the frame at which they were saved

It is read like any run, by `vcse eval`, `vcse watch` and `vcse.load_policy`.
"""

import dataclasses
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from vcse.agents import agent_entry, read_config
from vcse.play.card import model_card
from vcse.play.evaluate import evaluate_policies
from vcse.play.load import load_policies, newest_checkpoint, usual_episodes
from vcse.play.scores import LEAST_EPISODES, PolicyScores, Precision, Scores
from vcse.runs import checkpoint
from vcse.runs.checkpoint import write_atomically
from vcse.runs.config import RunConfig
from vcse.runs.directory import check_no_file, read_meta
from vcse.runs.formatting import counted
from vcse.runs.machine import cores

CARD_FILE, SCORES_FILE = "README.md", "evaluation.json"
PRIVATE_META = ("platform",)  # of the machine of whoever ran it


def is_exported(path: Path) -> bool:
    """Return whether a directory is that of an exported policy."""
    return (path / CARD_FILE).exists() and (path / SCORES_FILE).exists()


def read_scores(path: Path) -> PolicyScores:
    """Read the scores of an exported policy."""
    return PolicyScores.from_json(json.loads((path / SCORES_FILE).read_text()))


def export_policy(run: Path, out: Path, *, episodes: int | None = None, device: str = "cpu") -> PolicyScores:
    """Write the newest policy of a run to a directory, and return how good it is.

    Weights are stored in float16 if what the policy reaches with them lies within the intervals of what it reaches with
    those of training, on the same episodes, and in float32 otherwise.

    Args:
        run: The run's directory.
        out: A directory that is not there yet, or empty.
        episodes: Of the evaluation, for each of the two ways to act; as many as in training if None.
        device: Where the networks live.
    """
    check_no_file(out, "the policy")
    if out.exists() and any(out.iterdir()):
        raise ValueError(f"{out} holds files already: choose another --out, or remove it")
    if episodes is not None and episodes < LEAST_EPISODES:
        raise ValueError(f"episodes must be at least {LEAST_EPISODES}, got {episodes}")
    if is_exported(run):
        raise ValueError(f"{run} holds an exported policy already: copy it")
    config = read_config(run)
    newest = newest_checkpoint(run, config.agent)
    if newest is None:
        raise ValueError(f"{run} has no whole checkpoint: there is no policy to export")
    state, needed = newest.state["agent"], agent_entry(config.agent).policy
    weights = {name: each for name, each in state.items() if name in needed or not needed}
    meta = _public_meta(run)
    out.mkdir(parents=True, exist_ok=True)  # where that cannot be, no episode need be played
    with tempfile.TemporaryDirectory() as temporary:
        place = Path(temporary)
        _write_run(place / "float32", config, newest.frame, _rounded(weights, torch.float32), meta)
        trained, count = _evaluate(place / "float32", episodes, device)
        precision: Precision = "float32"
        stored = trained
        if all(float(each.abs().max()) < torch.finfo(torch.float16).max for each in _tensors(weights)):
            _write_run(place / "float16", config, newest.frame, _rounded(weights, torch.float16), meta)
            found, _ = _evaluate(place / "float16", count, device)
            if trained.allow(found):
                stored, precision = found, "float16"
        scores = PolicyScores(newest.frame, count, precision, stored, trained)
        made = place / precision
        write_atomically(made / SCORES_FILE, _as_json(scores.to_json()))
        write_atomically(made / CARD_FILE, model_card(read_config(made), meta, scores).encode())
        _copy(made, out)
    return scores


def _copy(made: Path, out: Path) -> None:
    """Copy all files of a directory into another, which is empty again where that fails: half a policy is none."""
    try:
        for path in (each for each in sorted(made.rglob("*")) if each.is_file()):
            write_atomically(out / path.relative_to(made), path.read_bytes())
    except BaseException:
        for each in out.iterdir() if out.is_dir() else ():
            shutil.rmtree(each) if each.is_dir() else each.unlink()
        raise


def _write_run(path: Path, config: RunConfig, frame: int, weights: Any, meta: dict[str, Any]) -> None:
    """Write a finished run that holds nothing but a policy, so that nobody tries to make it longer."""
    finished = dataclasses.replace(config, frames=min(config.frames, frame), keep_replay=False)
    checkpoint.save(path / "checkpoint", frame, {"agent": weights})
    write_atomically(path / "meta.json", _as_json(meta))
    write_atomically(path / "DONE", f"{frame}\n".encode())
    write_atomically(path / "config.json", _as_json(finished.to_json()))


def _evaluate(path: Path, episodes: int | None, device: str) -> tuple[Scores, int]:
    """Play episodes with a policy as it is read from disk; give its scores, and of how many episodes they are."""
    [policies] = load_policies([path], device)
    count = max(LEAST_EPISODES, usual_episodes(policies)) if episodes is None else episodes
    text = f"{policies.configs[0].name} at frame {policies.frame:,}, with weights in {path.name}"
    print(f"vcse: {text}: {counted(count, 'episode')}, twice", file=sys.stderr)
    [found] = evaluate_policies(policies, episodes=count, threads=cores())
    return Scores.of(found), count


def _tensors(weights: Any) -> Iterator[Tensor]:
    """Return all tensors of an agent's state that are not empty, whatever holds them."""
    if isinstance(weights, Tensor):
        yield from [weights] if weights.numel() else []
    elif isinstance(weights, dict | list | tuple):
        for each in weights.values() if isinstance(weights, dict) else weights:
            yield from _tensors(each)


def _rounded(weights: Any, precision: torch.dtype) -> Any:
    """Return an agent's state in another precision; what is no number with a fraction stays as it is."""
    if isinstance(weights, Tensor):
        return weights.to(precision if weights.is_floating_point() else weights.dtype, copy=True)
    if isinstance(weights, dict):
        return {name: _rounded(each, precision) for name, each in weights.items()}
    if isinstance(weights, list | tuple):
        return type(weights)(_rounded(each, precision) for each in weights)
    return weights


def _public_meta(run: Path) -> dict[str, Any]:
    """Return what a run's `meta.json` says, without folders and machines of whoever ran it."""
    meta = read_meta(run)
    command = meta.pop("command", None) or [""]
    if command[0] in ("train", "study"):  # else it was begun from Python, or began elsewhere
        meta["command"] = _without_out(command)
    return {name: each for name, each in meta.items() if name not in PRIVATE_META}


def _without_out(command: list[str]) -> list[str]:
    """Return a command without the directory that it wrote to."""
    return [
        each
        for before, each in zip(["", *command], command, strict=False)
        if "--out" not in (before, each) and not each.startswith("--out=")
    ]


def _as_json(content: dict[str, Any]) -> bytes:
    return (json.dumps(content, indent=1) + "\n").encode()
