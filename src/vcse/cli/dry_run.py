"""`--dry-run`: what a command would train, how long, and how much memory and disk it takes."""

from collections.abc import Sequence
from pathlib import Path

from vcse.agents import agent_entry
from vcse.launch.cohorts import needs_of, room_for, saved_frame
from vcse.runs.config import RunConfig
from vcse.runs.formatting import counted, duration, size
from vcse.runs.machine import cores


def say_what_would_run(
    title: str,
    configs: Sequence[RunConfig],
    cohorts: Sequence[Sequence[RunConfig]],
    out: Path,
    *,
    device: str,
    jobs: int,
    is_here: bool = True,
) -> int:
    """Print how much there is to do; refuse what this machine has no room for.

    Args:
        title: What is trained.
        configs: All its runs.
        cohorts: The runs that are left.
        out: Where they are written.
        device: Where the networks live.
        jobs: Processes at the same time.
        is_here: Whether this machine trains them.
    """
    left = [config for cohort in cohorts for config in cohort]
    if not left:
        print(f"{all_done(configs, out)}: nothing would run")
        return 0
    # More processes than cores take turns, and a GPU is shared badly.
    at_once = 1 if device == "cuda" else min(jobs, len(cohorts), *([cores()] if is_here else []))
    saved = {config.name: saved_frame(config, out) for config in left}
    seconds = sum(
        agent_entry(config.agent).expected_seconds(config, device) * (1 - saved[config.name] / config.frames)
        for config in left
    )
    where = "the GPU" if device == "cuda" else counted(at_once, "core")
    what = f"{len(left)} of {counted(len(configs), 'run')}"
    there = sum(saved.values())
    after = f" after the {there:,} that are saved" if there else ""
    print(f"{title}: {what} to train, {sum(config.frames for config in left) - there:,} frames{after}")
    print(f"  {counted(len(cohorts), 'cohort')} on {where}, about {duration(seconds / at_once)}")
    by_task: dict[str, list[RunConfig]] = {}
    for config in configs:  # in their order, which cohorts do not keep
        if config.name in saved:
            by_task.setdefault(config.task, []).append(config)
    for task, mine in by_task.items():
        methods = ", ".join(dict.fromkeys(config.method for config in mine))
        print(f"  {task}: {counted(len(mine), 'run')} of {mine[0].frames:,} frames, {methods}")
    if is_here:
        room = room_for(cohorts, out, device=device, jobs=jobs)
        print(f"  memory: about {size(room.memory)} at once")
        print("".join(f"  {said}\n" for said in (room.of_replays(), room.of_files()) if said), end="")
    else:
        print(f"  files: {size(sum(needs_of(cohort, out).files for cohort in cohorts))} more on disk at the end")
    return 0


def all_done(configs: Sequence[RunConfig], out: Path) -> str:
    """Print that no run is left to train."""
    return f"the run in {out} is done" if len(configs) == 1 else f"all {len(configs)} runs in {out} are done"
