"""What the rows of a run show to be wrong with its bonus: it pays for ending episodes, or all states earn the same.

The agents of other libraries are warned by a `PaymentMonitor`, batch by batch, of the same. Here it is for tasks and
bonuses of one's own: on the tasks of the paper, what its bonuses pay is part of what is reproduced.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any

from vcse.agents import agent_entry
from vcse.agents.presets import MEAN_ZERO
from vcse.bonuses.payments import LEAST_MEAN, MOST_ZERO_RADII, NEGATIVE_SHARE
from vcse.bonuses.registry import bonus_entry
from vcse.envs.tasks import family_of, task_spec
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory
from vcse.runs.remarks import Remarks

ROWS = 2  # that must look alike, so that one odd row is no alarm; where a run has but one, that
SOLVED = 0.5  # success from which states repeat because the task is solved
Row = Mapping[str, Any]


def payment_remarks(
    directories: Sequence[RunDirectory], note: Callable[[str], None]
) -> Callable[[Sequence[Row]], None]:
    """Return what takes a row of every run, and remarks on the first of each task and method, if one's own is in it.

    Args:
        directories: Of the runs.
        note: Called with each remark, which is the same in every process.
    """
    firsts: dict[str, int] = {}
    for place, directory in enumerate(directories):
        if is_of_ones_own(directory.config):
            firsts.setdefault(_method(directory.config), place)
    chosen = [directories[place] for place in firsts.values()]
    remarks = Remarks(chosen, find_payment_problem, note, called=_method)
    return lambda rows: remarks.take([rows[place] for place in firsts.values()])


def _method(config: RunConfig) -> str:
    """Return the directory of all runs of a task and a method."""
    return config.name.rpartition("/")[0]


def find_payment_problem(config: RunConfig, rows: Sequence[Row]) -> str:
    """Return what is wrong with what a bonus pays, and the remedy; empty where nothing is.

    Args:
        config: Of the run.
        rows: Of train.csv so far.
    """
    beta = getattr(config.settings, "beta", None)
    are_enough = len(rows) >= ROWS or rows[-1]["frame"] >= config.frames
    if not beta or not are_enough or rows[-1].get("success_rate", 0) > SOLVED:
        return ""
    last = list(pairwise([{"frame": 0, "episodes": 0}, *rows]))[-ROWS:]
    repeat = agent_entry(config.agent).action_repeat
    if all(_pays_for_ending(row, first, beta, repeat) for first, row in last) and not _is_warned(config):
        return (
            "the bonus is negative on average, and large beside the task's reward (bonus_mean in train.csv, times "
            f"beta), so that it pays for ending episodes; {MEAN_ZERO}"
        )
    if all(row.get("zero_radius_share", 0) > MOST_ZERO_RADII for row in rows[-ROWS:]):
        return (
            "nearly all states have so many duplicates in a batch that the bonus does not tell them apart "
            "(zero_radius_share in train.csv): take a larger --k, or observations that differ more"
        )
    if all(row.get("bonus_std") == 0 for row in rows[-ROWS:]):
        return "all states of a batch earn the same bonus (bonus_std in train.csv), which shows no way to explore"
    return ""


def is_of_ones_own(config: RunConfig) -> bool:
    """Return whether a run has a bonus, and its task or its bonus comes from outside of the library."""
    if not config.settings.has_bonus:
        return False
    makers: tuple[Any, ...] = (family_of(config.task).make, bonus_entry(config.settings.bonus.name).make)
    modules = [getattr(make, "func", make).__module__ for make in makers]  # of partial functions too
    return task_spec(config.task).is_foreign or any(name.partition(".")[0] != "vcse" for name in modules)


def _pays_for_ending(row: Row, before: Row, beta: float, action_repeat: int) -> bool:
    """Return whether a step between two rows cost more than it should beside what the task paid for it."""
    steps = (row["frame"] - before["frame"]) / action_repeat
    mean, return_mean = (row.get(name, math.nan) for name in ("bonus_mean", "return_mean"))
    if steps <= 0 or math.isnan(mean) or math.isnan(return_mean):
        return False
    task: float = abs(return_mean) * (row["episodes"] - before["episodes"]) / steps
    size: float = max(abs(mean), row.get("bonus_std", 0))
    return bool(-beta * mean > max(NEGATIVE_SHARE * task, LEAST_MEAN * beta * size))


def _is_warned(config: RunConfig) -> bool:
    """Return whether a warning before the run has said the same."""
    return MEAN_ZERO in agent_entry(config.agent).warning(config)
