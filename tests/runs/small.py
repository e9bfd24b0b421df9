"""Runs of a second, and what it means that two of them are the same."""

import time

import torch

from vcse.agents.a2c.settings import a2c_settings
from vcse.launch.cohorts import train_runs
from vcse.runs import checkpoint
from vcse.runs.config import RunConfig
from vcse.runs.progress import TrainingProgress

EMPTY, LAVA = "minigrid/Empty-5x5", "minigrid/LavaGapS5"
FRAMES_PER_UPDATE = 32
PATIENCE_S = 300  # with processes that share their cores with others


def make_config(task=EMPTY, bonus="vcse", seed=0, *, reading="release", method=None, **changes):
    """Nine updates of 4 environments x 8 steps, with checkpoints at 96, 192 and the end."""
    settings = {
        "frames": 288,
        "row_every_frames": 64,
        "eval_every_frames": 160,
        "eval_episodes": 2,
        "checkpoint_every_frames": 96,
        "settings": a2c_settings(bonus, reading, environments=4),
    }
    return RunConfig(
        task=task, agent="a2c", method=method or bonus, seed=seed, reading=reading, **{**settings, **changes}
    )


class Interrupting(TrainingProgress):
    """Does something once training is at a frame, which must be one of a row."""

    def __init__(self, frame, what):
        super().__init__(quiet=True)
        self.frame, self.what = frame, what

    def report(self, status):
        if status.frame >= self.frame:
            self.what()


def train(configs, out, *, device="cpu", threads=1, progress=None):
    return train_runs(configs, out, device=device, threads=threads, progress=progress or TrainingProgress(quiet=True))


def checkpoint_path(run, frame):
    return run / "checkpoint" / f"frame{frame:012d}.pt"


def damage(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def newest_state(run):
    return next(iter(checkpoint.whole(run / "checkpoint")))


def assert_same_run(run, other):
    """Same curves, same actions and same parameters, bit for bit."""
    for name in ("train.csv", "eval.csv"):
        assert (run / name).read_text() == (other / name).read_text(), f"{run / name} differs"
    assert (run / "actions.bin").read_bytes() == (other / "actions.bin").read_bytes()
    assert (run / "DONE").read_text() == (other / "DONE").read_text()
    mine, theirs = newest_state(run), newest_state(other)
    assert mine.frame == theirs.frame
    assert_same(mine.state, theirs.state)


def assert_same(one, other, name="state"):
    if isinstance(one, dict):
        assert one.keys() == other.keys(), name
        for key, value in one.items():
            assert_same(value, other[key], f"{name}.{key}")
    elif isinstance(one, torch.Tensor):
        assert one.dtype == other.dtype, name
        assert torch.equal(one, other), name
    else:
        assert one == other, name


def half_written(directory):
    return [path for path in directory.rglob("*") if path.name.endswith(".tmp")]


def wait_for(condition, is_alive):
    """Wait until something is so, while a process lives that makes it so."""
    give_up = time.monotonic() + PATIENCE_S
    while not condition():
        assert is_alive(), "the process has ended before"
        assert time.monotonic() < give_up
        time.sleep(0.005)


def newest_frame(out):
    return max((int(path.stem.removeprefix("frame")) for path in out.rglob("frame*.pt")), default=0)
