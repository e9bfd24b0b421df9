"""Trained policies, read from runs on disk. Nothing is locked: a run may go on training meanwhile."""

import sys
from collections.abc import Hashable, Sequence
from pathlib import Path

from vcse.agents import agent_entry, read_config
from vcse.agents.entry import Policies, Saved
from vcse.runs import checkpoint
from vcse.runs.checkpoint import Checkpoint, MisfitError


def usual_episodes(policies: Policies) -> int:
    """Return the episodes of an evaluation in training, in which all agree; the agent's own where there were none."""
    in_training = policies.configs[0].eval_episodes
    return in_training if in_training > 0 else agent_entry(policies.configs[0].agent).schedule.eval_episodes


def newest_checkpoint(path: Path, agent: str) -> Checkpoint | None:
    """Read the newest whole checkpoint of a run's directory with a policy, and say which were passed over."""

    def read() -> Checkpoint | None:
        needed = agent_entry(agent).policy
        return checkpoint.newest(path / "checkpoint", otherwise="there is no policy to load", agent_needs=needed)

    try:
        return read()
    except FileNotFoundError:
        return read()  # a run that is training drops an old one now and then: what replaced it is there


def load_policies(paths: Sequence[Path], device: str = "cpu") -> list[Policies]:
    """Load the newest policy of every run, in as few agents as possible.

    Runs share an agent where it is the same, with the same shapes, simulator, frame and episodes of an evaluation,
    whatever their batches and bonuses were: those are not loaded. A run that has saved nothing yet is named and left
    out.

    Args:
        paths: Directories of runs.
        device: Where the networks live.
    """
    alike: dict[Hashable, list[Saved]] = {}
    missing = []
    for path in paths:
        config = read_config(path)
        newest = newest_checkpoint(path, config.agent)
        if newest is None:
            missing.append(path)
            continue
        saved = Saved(path, config, newest)
        key = (config.agent, newest.frame, config.eval_episodes, *agent_entry(config.agent).player.in_common(saved))
        alike.setdefault(key, []).append(saved)
    if not alike:
        runs = f"{paths[0]} has no" if len(paths) == 1 else f"none of {len(paths)} runs ({paths[0]}, ...) has a"
        raise ValueError(f"{runs} whole checkpoint{_yet(paths)}: there is no policy to load")
    for path in missing:
        print(f"vcse: {path} has no whole checkpoint{_yet([path])} and is left out", file=sys.stderr)
    misfits: list[MisfitError] = []
    found = [policies for group in alike.values() for policies in _load_fitting(group, device, misfits)]
    if not found:
        raise misfits[0]
    for misfit in misfits:
        print(f"vcse: {misfit}; the run is left out", file=sys.stderr)
    return found


def _yet(paths: Sequence[Path]) -> str:
    """Promise a checkpoint of runs that have saved nothing, but not of those whose checkpoints are damaged."""
    return "" if any(checkpoint.frames(path / "checkpoint") for path in paths) else " yet"


def _load_fitting(group: list[Saved], device: str, misfits: list[MisfitError]) -> list[Policies]:
    """Load runs together; where one of them does not fit, each by itself, without that one."""
    try:
        return [_load_together(group, device)]
    except MisfitError as misfit:
        if len(group) == 1:
            misfits.append(misfit)
            return []
        return [policies for saved in group for policies in _load_fitting([saved], device, misfits)]


def _load_together(group: list[Saved], device: str) -> Policies:
    group.sort(key=lambda saved: (saved.config.task, saved.config.method, saved.config.seed))
    frame = group[0].checkpoint.frame
    agent = agent_entry(group[0].config.agent).player.load(group, device)
    return Policies(agent, [saved.config for saved in group], frame, [saved.path for saved in group], device)
