"""Runs by their names: a task, a bonus, a reading, and in what they deviate from it."""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from vcse.agents import agent_entry, agents_for
from vcse.bonuses.base import check_served
from vcse.bonuses.registry import BonusContext, bonus_entry, make_bonus
from vcse.envs.tasks import backend_of, is_rendered, marker_of
from vcse.runs.config import RunConfig
from vcse.settings import AgentSettings, Reading


def resolve_agent(task: str, asked: str | None = None) -> str:
    """Return the agent that trains on a task; one that cannot is refused."""
    possible = agents_for(task)
    if asked is None:
        return possible[0]
    agent_entry(asked)
    if asked not in possible:
        raise ValueError(f"agent {asked} does not train on {task}, which is for {' or '.join(possible)}")
    return asked


def run_configs(
    task: str,
    bonus: str = "vcse",
    *,
    agent: str | None = None,
    seeds: Sequence[int] = (0,),
    frames: int = 100_000,
    reading: Reading = "release",
    method: str | None = None,
    change: Callable[[AgentSettings], AgentSettings] | None = None,
    **options: Any,
) -> list[RunConfig]:
    """Return the runs of one task and one bonus, which differ in their seeds alone.

    Args:
        task: Such as minigrid/LavaGapS7.
        bonus: Its name.
        agent: The one for the task if not given.
        seeds: One per run.
        frames: How long each run is.
        reading: Whose definitions are followed.
        method: The label of the runs in comparisons; the bonus' name if not given.
        change: What else is done to the settings of the agent.
        options: Settings of the agent and of the run, by their names in config.json; None is as if not given.
    """
    entry = agent_entry(resolve_agent(task, agent))
    # Numbers of NumPy, which config.json cannot hold, are those of Python.
    plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in options.items()}
    given = {name: value for name, value in plain.items() if value is not None}
    if "seed" in given:
        raise ValueError(f"seed is not an option of several runs: pass seeds=[{given['seed']}]")
    of_run = {field.name for field in dataclasses.fields(RunConfig)}
    of_agent = {name: given.pop(name) for name in list(given) if name not in of_run}
    check_served(bonus, bonus_entry(bonus).needs, entry.name, entry.gives)
    settings = entry.settings_for(bonus, reading, task=task, **of_agent)
    settings = settings if change is None else change(settings)
    context = BonusContext(environments=1, action_size=1, gives=entry.gives)
    make_bonus(settings.bonus, learners=1, dimensions=1, context=context)  # refuses what no bonus can be
    backend = backend_of(task, given.pop("backend", "auto"))
    goal_marker = marker_of(task, given.pop("goal_marker", None))
    rendering = given.pop("rendering", "faithful")
    runs = [
        RunConfig(
            task=task,
            agent=entry.name,
            method=bonus if method is None else method,
            seed=seed,
            reading=reading,
            frames=frames,
            settings=settings,
            backend=backend,
            rendering=rendering if is_rendered(task) else None,
            goal_marker=goal_marker,
            **(entry.schedule._asdict() | given),
        )
        for seed in seeds
    ]
    entry.check(runs[0])
    return runs
