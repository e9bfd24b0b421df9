"""Directories of runs that were never trained."""

import json

TASK = "minigrid/LavaGapS7"
HEADER = "frame,episodes,success_rate,bonus_mean"
ROWS = ("128,0,,0.1", "256,3,0.25,1e-05", "384,9,0.30000000000000004,-2.5")


def make_run(out, seed, *, method="vcse", task=TASK, rows=ROWS, header=HEADER, done=True, **config):
    path = out / task.replace("/", "-") / method / f"seed{seed}"
    path.mkdir(parents=True)
    content = {"schema_version": 1, "task": task, "method": method, "seed": seed, "frames": 384, "a2c": {"beta": 0.5}}
    (path / "config.json").write_text(json.dumps(content | config))
    (path / "meta.json").write_text(json.dumps({"vcse": "0.1.0", "cpus": 2}))
    (path / "train.csv").write_text("\n".join((header, *rows)) + "\n")
    if done:
        (path / "DONE").write_text("384\n")
    return path
