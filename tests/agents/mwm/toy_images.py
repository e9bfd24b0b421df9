"""Images of a dot that actions move: a family of tasks that needs no simulator, and runs of MWM that take seconds."""

import time

import numpy as np
import pytest
from agents.contract import MWMKind, assert_same_state
from runs.small import newest_state, train

from vcse.agents.mwm.cohort import MWMCohort
from vcse.agents.mwm.settings import ACTION_REPEAT, mwm_settings
from vcse.envs import tasks
from vcse.envs.interface import Family, Step, TaskSpec
from vcse.replay.storage import step_record
from vcse.runs import loop
from vcse.runs.config import RunConfig

EPISODE = 8  # steps
FRAMES, SEED_FRAMES, PRETRAINING = 60, 20, 6
STEPS, SEED_STEPS = FRAMES // ACTION_REPEAT, SEED_FRAMES // ACTION_REPEAT
UPDATES = (STEPS - SEED_STEPS) // 2  # one at every second step, but not after the last
SIDE, DOT = 16, 3
CLOSE = 0.3  # to the goal, where that is success
FILES = ("train.csv", "eval.csv", "frames.bin", "steps.bin", "DONE")
DOTS, ENDING, FOREIGN = "toy-images/dots", "toy-images/ending", "toy-images/foreign"


class Dots:
    """A dot on a plane, which actions move; the fourth step of `ending` ends the task."""

    def __init__(self, names, making):
        assert (making.image_size, making.action_repeat) == (SIDE, ACTION_REPEAT)
        self.count, self.most_steps = len(names), EPISODE
        self.ends_at = np.array([4 if name == "ending" else EPISODE + 1 for name in names])
        self.places, self.goals = np.zeros((2, self.count, 2))
        self.steps = np.zeros(self.count, dtype=np.int64)
        self.needs_reset = np.ones(self.count, dtype=np.bool_)

    def reset(self, seeds):
        for each, seed in enumerate(seeds):
            if seed is not None:
                self.places[each], self.goals[each] = np.random.default_rng(seed).uniform(-1, 1, (2, 2))
                self.steps[each], self.needs_reset[each] = 0, False
        return self.images()

    def images(self):
        shown = np.full((self.count, 3, SIDE, SIDE), 30, dtype=np.uint8)
        for image, *places in zip(shown, self.goals, self.places, strict=True):
            for channel, place in enumerate(places):
                left, top = ((place + 1) / 2 * (SIDE - DOT)).round().astype(int)
                image[channel, top : top + DOT, left : left + DOT] = 250
        return shown

    def send(self, actions):
        assert not self.needs_reset.any()
        assert actions.dtype == np.float32
        assert (np.abs(actions) <= 1).all()
        self.places = (self.places + 0.3 * actions).clip(-1, 1)
        self.steps += 1

    def receive(self):
        apart = np.linalg.norm(self.places - self.goals, axis=1)
        terminated = self.steps >= self.ends_at
        truncated = ~terminated & (self.steps >= EPISODE)
        self.needs_reset = terminated | truncated
        images, rewards = self.images(), (2 - apart).astype(np.float32)
        return Step(images, images, rewards, terminated, truncated, success=apart < CLOSE)

    def close(self):
        self.needs_reset[:] = True


FAMILY = Family(
    "toy-images",
    shows="image",
    about="a dot and its goal",
    tasks=lambda: ("dots", "ending", "foreign"),
    spec=lambda name: TaskSpec(ACTION_REPEAT * EPISODE, action_size=2, has_success=True, is_foreign=name == "foreign"),
    make=Dots,
)


def register(patch):
    """Make the family known for as long as a patch lasts, and let every frame be reported."""
    patch.setitem(tasks._FAMILIES, FAMILY.name, FAMILY)
    patch.setattr(loop, "SECONDS_BETWEEN_REPORTS", -1)


def make_config(bonus="vcse", seed=0, *, task=DOTS, reading="release", method=None, settings=None, **changes):
    """Ten steps of random actions, six updates of the autoencoder alone, then ten of everything in some episodes."""
    lengths = {
        "frames": FRAMES,
        "row_every_frames": 10,
        "eval_every_frames": 30,
        "eval_episodes": 2,
        "checkpoint_every_frames": 14,
        "backend": "",
    }
    small = {**MWMKind.small, "seed_frames": SEED_FRAMES, "steps_per_update": 2, "k": 3}
    small |= {"pretraining_updates": PRETRAINING, "warm_up_updates": 4, "target_updates": 3, "learning_rate": 1e-2}
    return RunConfig(
        task=task,
        agent="mwm",
        method=method or bonus,
        seed=seed,
        reading=reading,
        settings=mwm_settings(bonus, reading, task=task, **{**small, **(settings or {})}),
        **{**lengths, **changes},
    )


class Kept:
    """The replay of a run on disk, part by part: every image, and what led to it."""

    def __init__(self, run, *, side=SIDE, action_size=2):
        self.images = np.fromfile(run / "frames.bin", dtype=np.uint8).reshape(-1, 3, side, side)
        steps = np.fromfile(run / "steps.bin", dtype=step_record(action_size))
        self.actions, self.rewards, self.terminated = steps["action"], steps["reward"], steps["terminated"]
        self.positions = steps["position"].astype(int)


def assert_same_run(run, other):
    """Same curves, same images and same parameters, bit for bit."""
    for name in FILES:
        assert (run / name).read_bytes() == (other / name).read_bytes(), f"{run / name} differs"
    mine, theirs = newest_state(run), newest_state(other)
    assert mine.frame == theirs.frame
    assert_same_state(mine.state, theirs.state)


def train_alone(config, out):
    """Train in a process of its own, which the patches of another do not reach: slowly, and saved again and again."""
    step = MWMCohort.step

    def slow_step(cohort):
        time.sleep(0.01)
        step(cohort)

    with pytest.MonkeyPatch.context() as patch:
        register(patch)
        patch.setattr(MWMCohort, "step", slow_step)
        patch.setattr(loop, "MOST_SECONDS_UNSAVED", 0.05)
        train([config], out)
