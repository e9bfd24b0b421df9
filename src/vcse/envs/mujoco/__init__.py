"""Simulated robots: DeepMind Control and Meta-World, from states and from images."""

from collections.abc import Sequence
from functools import partial

from vcse.envs.interface import Environments, Family, Making
from vcse.envs.mujoco import dmc, metaworld
from vcse.envs.mujoco.dmc import DMCStates
from vcse.envs.mujoco.pixels import Pixels, task_spec
from vcse.envs.mujoco.recording import record_simulation


def _make_states(tasks: Sequence[str], making: Making) -> Environments:
    if making.action_repeat != 1:
        raise ValueError(f"dmc/... repeats no actions, got action_repeat={making.action_repeat}")
    return DMCStates(tasks, processes=making.threads)


def _make_images(tasks: Sequence[str], making: Making, *, family: str) -> Environments:
    return Pixels([f"{family}/{task}" for task in tasks], making)


FAMILIES = (
    Family(
        "dmc",
        shows="state",
        about="states",
        tasks=dmc.registered_tasks,
        check=dmc.check_task,
        spec=dmc.task_spec,
        make=_make_states,
        record=record_simulation,
        backend="dm_control",
    ),
    Family(
        "dmc-pixels",
        shows="image",
        about="images",
        tasks=dmc.registered_tasks,
        check=partial(dmc.check_task, family="dmc-pixels"),
        spec=lambda name: task_spec(f"dmc-pixels/{name}"),
        make=partial(_make_images, family="dmc-pixels"),
        record=partial(record_simulation, family="dmc-pixels"),
        backend="dm_control",
    ),
    Family(
        "metaworld",
        shows="image",
        about="images",
        tasks=lambda: metaworld.TASKS,
        check=metaworld.check_task,
        spec=metaworld.task_spec,
        make=partial(_make_images, family="metaworld"),
        record=partial(record_simulation, family="metaworld"),
        backend="metaworld",
        has_goal_marker=True,
    ),
)
