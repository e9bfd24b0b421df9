"""Trained policies, read from runs on disk. Nothing is locked: a run may go on training meanwhile."""

import sys
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import NamedTuple, assert_never

from vcse.agents.a2c.agent import A2C, A2CConfig, A2CSpec
from vcse.agents.drqv2.agent import DrQv2, DrQv2Config, DrQv2Spec
from vcse.agents.entry import AGENTS
from vcse.agents.sac.agent import SAC, SACConfig, SACSpec
from vcse.bonuses.registry import BonusChoice
from vcse.envs.mujoco.pixels import Pixels, pixel_spec
from vcse.envs.tasks import state_spec, task_spec
from vcse.replay.images import STACK
from vcse.runs import checkpoint
from vcse.runs.checkpoint import Checkpoint, MisfitError, fitting
from vcse.runs.config import RunConfig
from vcse.runs.directory import read_config

# What only training needs is left out, so that runs with other batches and bonuses fit the same agent.
NO_BONUS = BonusChoice(name="none", reading="paper", k=1)
POLICY_ALONE = A2CConfig(bonus=NO_BONUS)


class Policies(NamedTuple):
    """Policies that fit one agent, a learner each. Those of one task stand side by side."""

    agent: A2C | SAC | DrQv2
    configs: list[RunConfig]
    frame: int  # at which all of them were saved
    paths: list[Path]

    @property
    def eval_episodes(self) -> int:
        """Episodes of an evaluation in training, in which all agree; as many as is usual where there were none."""
        in_training = self.configs[0].eval_episodes
        return in_training if in_training > 0 else AGENTS[self.configs[0].agent].schedule.eval_episodes


def newest_checkpoint(path: Path, agent: str) -> Checkpoint | None:
    """Read the newest whole checkpoint of a run's directory with a policy, and say which were passed over."""

    def read() -> Checkpoint | None:
        needed = AGENTS[agent].policy
        return checkpoint.newest(path / "checkpoint", otherwise="there is no policy to load", agent_needs=needed)

    try:
        return read()
    except FileNotFoundError:
        return read()  # a run that is training drops an old one now and then: what replaced it is there


def load_policies(paths: Sequence[Path], device: str = "cpu") -> list[Policies]:
    """Load the newest policy of every run, in as few agents as possible.

    Runs share an agent where they have the same shapes, simulator, frame and episodes of an evaluation, whatever
    their batches and bonuses were: those are not loaded. A run that has saved nothing yet is named and left out.

    Args:
        paths: Directories of runs.
        device: Where the networks live.
    """
    alike: dict[Hashable, list[_Saved]] = {}
    missing = []
    for path in paths:
        config = read_config(path)
        newest = newest_checkpoint(path, config.agent)
        if newest is None:
            missing.append(path)
            continue
        saved = _Saved(path, config, newest)
        alike.setdefault((newest.frame, config.eval_episodes, *_in_common(saved)), []).append(saved)
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


class _Saved(NamedTuple):
    path: Path
    config: RunConfig
    checkpoint: Checkpoint


def _in_common(saved: _Saved) -> tuple[Hashable, ...]:
    """Give what runs must have in common to share an agent, beside their frame and the episodes of an evaluation."""
    config, settings = saved.config, saved.config.settings
    if isinstance(settings, A2CConfig):
        spec = task_spec(config.task)
        return spec.observation_shape, spec.actions, config.backend
    if isinstance(settings, SACConfig):
        return state_spec(config.task), settings.hidden_units
    if isinstance(settings, DrQv2Config):
        return (saved.path,)  # one learner each
    assert_never(settings)  # mypy says so where an agent is new


def _load_fitting(group: list[_Saved], device: str, misfits: list[MisfitError]) -> list[Policies]:
    """Load runs together; where one of them does not fit, each by itself, without that one."""
    try:
        return [_load_together(group, device)]
    except MisfitError as misfit:
        if len(group) == 1:
            misfits.append(misfit)
            return []
        return [policies for saved in group for policies in _load_fitting([saved], device, misfits)]


def _load_together(group: list[_Saved], device: str) -> Policies:
    group.sort(key=lambda saved: (saved.config.task, saved.config.method, saved.config.seed))
    frame = group[0].checkpoint.frame
    return Policies(_agent(group, device), [saved.config for saved in group], frame, [saved.path for saved in group])


def _agent(group: list[_Saved], device: str) -> A2C | SAC | DrQv2:
    settings = group[0].config.settings
    if isinstance(settings, A2CConfig):
        return _a2c(group, device)
    if isinstance(settings, SACConfig):
        return _sac(group, device)
    if isinstance(settings, DrQv2Config):
        return _drqv2(group[0], settings, device)
    assert_never(settings)  # mypy says so where an agent is new


def _a2c(group: list[_Saved], device: str) -> A2C:
    spec = task_spec(group[0].config.task)
    seeds = [saved.config.seed for saved in group]
    agent = A2C(A2CSpec(spec.observation_shape, spec.actions), [POLICY_ALONE] * len(group), seeds, device=device)
    for learner, saved in enumerate(group):
        state = saved.checkpoint.state["agent"]
        with fitting(saved.path):
            agent.load_learner_state(learner, {name: state[name] for name in agent.learner_state(learner)})
    return agent


def _sac(group: list[_Saved], device: str) -> SAC:
    spec = state_spec(group[0].config.task)
    settings = SACConfig(bonus=NO_BONUS, hidden_units=group[0].config.sac.hidden_units)
    seeds = [saved.config.seed for saved in group]
    agent = SAC(SACSpec(spec.observation_size, spec.action_size), [settings] * len(group), seeds, device=device)
    for learner, saved in enumerate(group):
        with fitting(saved.path):
            agent.load_policy(learner, saved.checkpoint.state["agent"])
    return agent


def _drqv2(saved: _Saved, trained: DrQv2Config, device: str) -> DrQv2:
    spec = DrQv2Spec(STACK * Pixels.frame_shape[0], pixel_spec(saved.config.task).action_size)
    settings = DrQv2Config(
        bonus=NO_BONUS,
        noise_schedule=trained.noise_schedule,
        features=trained.features,
        hidden_units=trained.hidden_units,
        encoder_precision=trained.encoder_precision,
    )
    agent = DrQv2(spec, settings, saved.config.seed, device=device)
    with fitting(saved.path):
        agent.load_policy(saved.checkpoint.state["agent"])
    return agent
