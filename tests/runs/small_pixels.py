"""Runs of DrQ-v2 of a second or two, and what it means that two of them are the same."""

import dataclasses

import numpy as np
import pytest
from agents.contract import assert_same_state

from runs.small import newest_state, train
from vcse.agents import image_environments
from vcse.agents.drqv2.settings import ACTION_REPEAT, IMAGE_SHAPE, drqv2_settings
from vcse.envs.mujoco.pixels import Pixels
from vcse.envs.tasks import task_spec
from vcse.runs import loop
from vcse.runs.config import RunConfig

PENDULUM, DOOR = "dmc-pixels/pendulum_swingup", "metaworld/door-open"
EPISODE = 30  # steps, where episodes are cut short
FRAMES, SEED_FRAMES = 100, 40
FILES = ("train.csv", "eval.csv", "frames.bin", "steps.bin", "DONE")


class ShortPixels(Pixels):
    """Environments whose episodes this process cuts short: those who simulate are in processes of their own."""

    def reset(self, seeds):
        shown = super().reset(seeds)
        if not hasattr(self, "steps"):
            self.steps = np.zeros(self.count, dtype=np.int64)
        self.steps[[seed is not None for seed in seeds]] = 0
        return shown

    def receive(self):
        step = super().receive()
        self.steps += 1
        truncated = step.truncated | (~step.terminated & (self.steps >= EPISODE))
        self._needs_reset = step.terminated | truncated
        return step._replace(truncated=truncated)


class Lending:
    """In the place of the class: gives environments that were used before, which take seconds to start."""

    def __init__(self):
        self.free, self.lent = {}, []

    def __call__(self, tasks, making):
        assert (making.image_size, making.action_repeat) == (IMAGE_SHAPE[-1], ACTION_REPEAT)
        free = self.free.setdefault((tuple(tasks), making), [])
        environments = free.pop() if free else ShortPixels(tasks, dataclasses.replace(making, threads=1))
        really_close = environments.close if "close" not in vars(environments) else environments.really_close

        def give_back():
            if environments in self.lent:
                self.lent.remove(environments)
                if environments._is_stepping:
                    environments.receive()
                free.append(environments)

        environments.really_close, environments.close = really_close, give_back
        environments._needs_reset[:] = True
        self.lent.append(environments)
        return environments

    def close(self):
        for environments in [*self.lent, *(each for some in self.free.values() for each in some)]:
            environments.really_close()


def shorten(patch, pixels):
    """Make episodes short, and report every frame."""
    patch.setattr("vcse.envs.mujoco.Pixels", pixels)
    patch.setattr("vcse.cli.evaluate.cores", lambda: 1)
    frames = ACTION_REPEAT * EPISODE
    patch.setattr(
        image_environments, "task_spec", lambda task: dataclasses.replace(task_spec(task), most_frames=frames)
    )
    patch.setattr(loop, "SECONDS_BETWEEN_REPORTS", -1)


def smaller(settings, **changes):
    """Make networks and batches of a configuration tiny."""
    small = {"hidden_units": 16, "features": 8, "batch_size": 6, "seed_frames": SEED_FRAMES}
    small |= {"bonus": dataclasses.replace(settings.bonus, k=3)}
    if settings.bonus_batch_size is not None:
        small["bonus_batch_size"] = 10
    return dataclasses.replace(settings, **{**small, **changes})


def make_config(bonus="vcse", seed=0, *, task=PENDULUM, reading="release", method=None, settings=None, **changes):
    """Twenty steps of random actions, then fifteen updates before and after the end of the first episode."""
    lengths = {
        "frames": FRAMES,
        "row_every_frames": 20,
        "eval_every_frames": 60,
        "eval_episodes": 1,
        "checkpoint_every_frames": 30,
        "backend": "metaworld" if task == DOOR else "dm_control",
        "rendering": "fast",
    }
    return RunConfig(
        task=task,
        agent="drqv2",
        method=method or bonus,
        seed=seed,
        reading=reading,
        settings=smaller(drqv2_settings(bonus, reading, task=task), **(settings or {})),
        **{**lengths, **changes},
    )


class Kept:
    """The replay of a run on disk, part by part: every frame, and what led to it."""

    def __init__(self, run, action_size=1):
        self.frames = np.fromfile(run / "frames.bin", dtype=np.uint8).reshape(-1, *IMAGE_SHAPE)
        steps = np.fromfile(run / "steps.bin", dtype=np.float32).reshape(-1, action_size + 3)
        self.actions = steps[:, :action_size]
        self.rewards, self.terminated, self.positions = steps[:, -3], steps[:, -2], steps[:, -1].astype(int)


def assert_same_run(run, other):
    """Same curves, same frames and same parameters, bit for bit."""
    for name in FILES:
        assert (run / name).read_bytes() == (other / name).read_bytes(), f"{run / name} differs"
    mine, theirs = newest_state(run), newest_state(other)
    assert mine.frame == theirs.frame
    assert_same_state(mine.state, theirs.state)


def train_short(config, out):
    """Train in a process of its own, which the patches of another do not reach."""
    with pytest.MonkeyPatch.context() as patch:
        shorten(patch, ShortPixels)
        train([config], out)
