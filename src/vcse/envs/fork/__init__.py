"""A fork: an open room without reward on one side, a narrow corridor that pays on the other.

In `fork/ratio16-first6` the room has 16 times as many cells as the corridor, which pays from its sixth cell on.
"""

from collections.abc import Sequence
from functools import partial

from vcse.envs.fork.recording import record_fork
from vcse.envs.fork.world import TASKS, Fork
from vcse.envs.interface import Family, Making, TaskSpec, one_task

__all__ = ["FAMILIES", "Fork"]


def _make(names: Sequence[str], making: Making) -> Fork:
    del making  # nothing is random, and a step of all environments is one look into a table
    return Fork(one_task(names), len(names))


def _spec(name: str) -> TaskSpec:
    return TaskSpec(
        most_frames=Fork.most_steps,
        observation_shape=Fork.observation_shape,
        actions=Fork.actions,
        has_success=True,
        rewards_only_the_goal=TASKS[name].pays_only_the_end,
        shows="state",
    )


FAMILIES = (
    Family(
        "fork",
        shows=("state",),
        about="two coordinates: a room without reward beside a corridor that pays",
        tasks=partial(tuple, TASKS),
        spec=_spec,
        make=_make,
        record=record_fork,
        resets_itself=True,
        backend="table",
        has_discrete_actions=True,
    ),
)
