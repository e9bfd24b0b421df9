"""Policies that are stuck at the ends of their range of actions, found by the rows of a run."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from vcse.agents.drqv2.settings import DrQv2Settings
from vcse.runs.config import RunConfig

MOST_SHARE = 0.9  # of actions at an end of their range
SHARE_OF_RUN = 0.2  # that it must last,
LEAST_FRAMES = 20_000  # and so many frames
MOST_CHANGE = 0.2  # of the largest return: noise of actions and first states alone change them by as much
MOST_SUCCESS = 0.5  # a policy that solves its task may play the ends of its range


def remark(config: RunConfig, rows: Sequence[Mapping[str, Any]]) -> str:
    """Return that a run's policy is stuck at the ends of its range, and what helps; empty where it is not.

    Args:
        config: Of the run.
        rows: Of train.csv so far, one or more.
    """
    begin = rows[-1]["frame"] - max(SHARE_OF_RUN * config.frames, LEAST_FRAMES)
    recent = [row for row in rows if row["frame"] >= begin]
    returns = [row["return_mean"] for row in recent]
    shares = [row.get("saturated_share", math.nan) for row in recent]
    is_saturated = rows[0]["frame"] <= begin and all(share > MOST_SHARE for share in shares)
    if not is_saturated or not all(map(math.isfinite, returns)) or rows[-1]["success_rate"] > MOST_SUCCESS:
        return ""
    if max(returns) - min(returns) > MOST_CHANGE * max(map(abs, returns)):
        return ""
    found = (
        f"since frame {recent[0]['frame']:,.0f} at least {min(shares):.0%} of its policy's actions have been at an end "
        f"of their range (saturated_share), and its returns between {min(returns):.4g} and {max(returns):.4g}: unless "
        "the task is solved, it is stuck there"
    )
    remedies = _remedies(DrQv2Settings.of(config.settings))
    return f"{found}. A new run with {' '.join(remedies)} may not be" if remedies else found


def _remedies(settings: DrQv2Settings) -> list[str]:
    """Return the options against it that a run does not have yet."""
    found = []
    if not settings.pre_activation_penalty > 0:
        found.append("--pre-activation-penalty 0.1")
    if settings.reward_normalization != "centered":
        found.append("--reward-normalization centered")
    return found
