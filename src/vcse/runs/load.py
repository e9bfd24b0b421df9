"""Trained policies, read from runs on disk. Nothing is locked: a run may go on training meanwhile."""

import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from vcse.agents.a2c import A2C, A2CConfig, A2CSpec
from vcse.bonuses.named import BonusChoice
from vcse.envs.tasks import task_spec
from vcse.runs import checkpoint
from vcse.runs.checkpoint import Checkpoint, CorruptCheckpointError
from vcse.runs.config import RunConfig
from vcse.runs.store import read_config


class Policies(NamedTuple):
    """Policies that fit one agent, a learner each. Those of one task stand side by side."""

    agent: A2C
    configs: list[RunConfig]
    frame: int  # at which all of them were saved
    paths: list[Path]


class MissingCheckpointError(ValueError):
    """A run that has not saved anything yet."""


def newest_checkpoint(path: Path) -> Checkpoint:
    """Read the newest whole checkpoint of a run's directory, and say which were passed over."""
    try:
        return _newest(path)
    except FileNotFoundError:
        return _newest(path)  # a run that is training drops an old one now and then: what replaced it is there


def load_policies(paths: Sequence[Path], device: str = "cpu") -> list[Policies]:
    """Load the newest policy of every run, in as few agents as possible.

    Runs share an agent where they have the same shapes, simulator and frame, whatever explored: a policy is made
    of an encoder and an actor, and neither bonus nor optimiser is loaded.

    Args:
        paths: Directories of runs.
        device: Where the networks live.
    """
    alike: dict[Any, list[tuple[Path, RunConfig, Checkpoint]]] = {}
    for path in paths:
        config, found = read_config(path), newest_checkpoint(path)
        spec = task_spec(config.task)
        key = (spec.observation_shape, spec.actions, config.backend, found.frame)
        alike.setdefault(key, []).append((path, config, found))
    loaded = []
    for group in alike.values():
        group.sort(key=lambda each: (each[1].task, each[1].method, each[1].seed))
        spec = task_spec(group[0][1].task)
        agent = A2C(
            A2CSpec(spec.observation_shape, spec.actions),
            [_policy_alone(config.a2c) for _, config, _ in group],
            [config.seed for _, config, _ in group],
            device=device,
        )
        for learner, (_, _, found) in enumerate(group):
            wanted = agent.learner_state(learner)
            agent.load_learner_state(learner, {name: found.state["agent"][name] for name in wanted})
        configs, frame = [config for _, config, _ in group], group[0][2].frame
        loaded.append(Policies(agent, configs, frame, [path for path, _, _ in group]))
    return loaded


def _newest(path: Path) -> Checkpoint:
    for found in checkpoint.whole(path / "checkpoint"):
        if isinstance(found, CorruptCheckpointError):
            print(f"vcse: {found}; going back to the one before", file=sys.stderr)
        else:
            return found
    raise MissingCheckpointError(f"{path} has no whole checkpoint yet: there is no policy to load")


def _policy_alone(config: A2CConfig) -> A2CConfig:
    """Leave out what only training needs, so that runs with other batches and bonuses fit the same agent."""
    nothing = BonusChoice(name="none", reading=config.bonus.reading, k=1)
    return dataclasses.replace(A2CConfig(bonus=nothing), discount=config.discount)
