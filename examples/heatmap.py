"""Where agents go: visits of each cell of one SimpleCrossingS9N1 map, in ten slices of the first 100,000 frames.

The map has a vertical wall in the middle whose opening lies away from the start. A2C trains on it with no bonus,
with state entropy, with VCSE, and with VCSE without the value; the picture shows where they were, side by side, and
how many of the visits lay beyond the wall.

    python examples/heatmap.py --out out/heatmap
"""

import os
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro

from vcse.envs.crossing import MAPS, map_number
from vcse.runs.config import RunConfig, a2c_config
from vcse.runs.jobs import suitable_jobs, train_in_jobs
from vcse.runs.launch import StoppedError
from vcse.runs.progress import TrainingProgress
from vcse.studies.plots import visit_maps

BONUSES = ("none", "se", "vcse", "se-matched")
SLICES = 10
SIDE = 9


@dataclass(frozen=True)
class Args:
    """Train on one map and draw the visits."""

    seeds: int = 4
    """Runs of each bonus, whose visits are added."""
    first_seed: int = 0
    """The seed of the first; the others follow."""
    frames: int = 100_000
    """How long each run is; the picture has ten slices of it."""
    wall: int = 4
    """Where the vertical wall stands: 2, 4 or 6."""
    opening: int = 5
    """Where it opens: 1 to 7. The agent starts at 1."""
    out: Path = Path("out/heatmap")
    """Folder for the picture and the runs."""
    quiet: bool = False
    """Show no progress."""


def main(args: Args) -> int:
    """Train, or go on, or find it done; then draw."""
    number = map_number("vertical", args.wall, args.opening)
    configs = [
        RunConfig(
            task=f"minigrid-table/SimpleCrossingS9N1-map{number}",
            agent="a2c",
            method=bonus,
            seed=seed,
            reading="release",
            frames=args.frames,
            a2c=a2c_config(bonus),
            backend="table",
            eval_episodes=0,
            visits_every_frames=args.frames // SLICES,
        )
        for bonus in BONUSES
        for seed in range(args.first_seed, args.first_seed + args.seeds)
    ]
    cores = os.cpu_count() or 1
    jobs = suitable_jobs(len(configs), device="cpu", cores=cores)
    try:
        with TrainingProgress(quiet=args.quiet) as progress:
            train_in_jobs(configs, args.out, device="cpu", threads=cores, jobs=jobs, progress=progress)
    except StoppedError as error:
        print(f"{error}; the same command goes on", file=sys.stderr)
        return 128 + error.number
    visits = {
        bonus: sum(
            np.load(args.out / config.name / "visits.npy")[:SLICES, :SIDE, :SIDE]
            for config in configs
            if config.method == bonus
        )
        for bonus in BONUSES
    }
    walls = np.array([[MAPS[number].is_wall(x, y) for y in range(SIDE)] for x in range(SIDE)])
    beyond = ~walls & (np.arange(SIDE)[:, None] > args.wall)
    picture = visit_maps(visits, walls, beyond, frames_per_snapshot=args.frames // SLICES)
    picture.savefig(args.out / "visits.png", dpi=150)
    for bonus, counts in visits.items():
        shares = counts[:, beyond].sum(-1) / counts.sum((1, 2))
        print(f"{bonus:11s} beyond the wall, slice by slice: {' '.join(f'{share:.0%}' for share in shares)}")
    print(f"the picture: {args.out / 'visits.png'}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(tyro.cli(Args)))
