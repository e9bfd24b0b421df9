"""`vcse.train`: what `vcse train` does, from Python."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from vcse.launch.cohorts import unfinished_runs
from vcse.launch.configs import run_configs
from vcse.launch.devices import Device, check_rendering, device_for
from vcse.launch.processes import suitable_jobs, train_in_jobs
from vcse.runs.machine import cores
from vcse.runs.progress import TrainingProgress
from vcse.settings import Reading

__all__ = ["train"]


def train(
    task: str,
    bonus: str | Sequence[str] = "vcse",
    *,
    out: str | Path = "runs",
    agent: str | None = None,
    seeds: int | Sequence[int] = 1,
    frames: int = 100_000,
    reading: Reading = "release",
    device: Device = "auto",
    jobs: int = 1,
    quiet: bool = False,
    **settings: Any,
) -> list[Path]:
    """Train runs of one task, and return their directories; unfinished runs go on, finished ones are skipped.

    Args:
        task: Such as minigrid/LavaGapS7.
        bonus: The name of a bonus, or several.
        out: Where the runs are written: OUT/TASK/METHOD/seedN.
        agent: The one for the task if not given.
        seeds: How many runs of each bonus, or which seeds.
        frames: How long each run is, in frames of the simulator.
        reading: Whose definitions are followed: release, paper, clean or recommended.
        device: Where the networks live.
        jobs: Processes that the runs are dealt out to. The default is 1, not one per core as in `vcse train`: more of
            them import the script that calls this, which then must do so below `if __name__ == "__main__":`.
        quiet: Show no progress.
        settings: Of the agent and the run, by their names in config.json: beta=0.01, eval_episodes=10.

    Example:
        >>> import tempfile, vcse
        >>> [run] = vcse.train("minigrid/Empty-5x5", out=tempfile.mkdtemp(), frames=256, eval_episodes=2, quiet=True)
        >>> sorted(path.name for path in run.glob("*.csv"))
        ['eval.csv', 'timing.csv', 'train.csv']
    """
    bonuses = [bonus] if isinstance(bonus, str) else list(bonus)
    if not bonuses:
        raise ValueError("bonus must be one name or more, got none")
    each_seed = [int(seed) for seed in (seeds if isinstance(seeds, Iterable) else range(seeds))]
    if not each_seed:
        raise ValueError(f"seeds must be at least 1, or a list of seeds, got {seeds}")
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, got {jobs}")
    options = {"agent": agent, "seeds": each_seed, "frames": frames, "reading": reading, **settings}
    configs = [config for name in bonuses for config in run_configs(task, name, **options)]
    left = unfinished_runs(configs, Path(out))
    resolved = device_for(left, Path(out), device)
    check_rendering(left, resolved)
    most = suitable_jobs((config.agent for config in left), device=resolved, cores=cores())
    with TrainingProgress(quiet=quiet) as progress:
        return train_in_jobs(
            configs, Path(out), device=resolved, threads=cores(), jobs=min(jobs, most), progress=progress
        )
