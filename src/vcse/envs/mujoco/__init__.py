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
    return Pixels(
        [f"{family}/{task}" for task in tasks],
        rendering=making.rendering,
        device=making.device,
        processes=making.threads,
        goal_marker=making.goal_marker,
        spins=making.spins,
        image_size=making.image_size,
        action_repeat=making.action_repeat,
    )


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
        backend=lambda name, asked: "dm_control",
    ),
    Family(
        "dmc-pixels",
        shows="image",
        about="images",
        tasks=dmc.registered_tasks,
        check=partial(dmc.check_task, family="dmc-pixels"),
        spec=partial(task_spec, "dmc-pixels"),
        make=partial(_make_images, family="dmc-pixels"),
        record=partial(record_simulation, family="dmc-pixels"),
        backend=lambda name, asked: "dm_control",
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
        backend=lambda name, asked: "metaworld",
        has_goal_marker=True,
    ),
)
