"""Runs of SAC of a second or two, and what it means that two of them are the same."""

import numpy as np
from agents.contract import assert_same_state

from runs.small import newest_state
from vcse.agents.sac.settings import sac_settings
from vcse.runs.config import RunConfig

PENDULUM, CARTPOLE = "dmc/pendulum_swingup", "dmc/cartpole_swingup"
EPISODE = 100  # frames, where episodes are cut short
SEED_FRAMES, FRAMES = 80, 140
SIZES = {PENDULUM: (3, 1), CARTPOLE: (5, 1)}


def make_config(bonus="vcse", seed=0, *, task=PENDULUM, method=None, settings=None, **changes):
    """Some frames of random actions, then sixty updates before and after the end of the first episode."""
    small = {"hidden_units": 16, "batch_size": 32, "seed_frames": SEED_FRAMES, **(settings or {})}
    lengths = {
        "frames": FRAMES,
        "row_every_frames": 20,
        "eval_every_frames": 100,
        "eval_episodes": 1,
        "checkpoint_every_frames": 40,
        "backend": "dm_control",
    }
    return RunConfig(
        task=task,
        agent="sac",
        method=method or bonus,
        seed=seed,
        reading="release",
        settings=sac_settings(bonus, **small),
        **{**lengths, **changes},
    )


class Transitions:
    """The replay of a run on disk, part by part."""

    def __init__(self, run, task=PENDULUM):
        size, actions = SIZES[task]
        rows = np.fromfile(run / "replay.bin", dtype=np.float32).reshape(-1, 2 * size + actions + 2)
        parts = np.split(rows, np.cumsum([size, actions, 1, 1]), axis=1)
        self.observations, self.actions, self.next_observations = parts[0], parts[1], parts[4]
        self.rewards, self.terminated = parts[2][:, 0], parts[3][:, 0]


def assert_same_run(run, other):
    """Same curves, same transitions and same parameters, bit for bit."""
    for name in ("train.csv", "eval.csv", "DONE"):
        assert (run / name).read_text() == (other / name).read_text(), f"{run / name} differs"
    assert (run / "replay.bin").read_bytes() == (other / "replay.bin").read_bytes()
    mine, theirs = newest_state(run), newest_state(other)
    assert mine.frame == theirs.frame
    assert_same_state(mine.state, theirs.state)
