"""What a command would add to the directory of a study: none grows by an option that was left out."""

from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from vcse.runs.config import RunConfig
from vcse.runs.formatting import counted
from vcse.studies.catalog import study
from vcse.studies.manifest import StudyFile
from vcse.studies.study import narrowed, run_configs

SEEDS = ("seeds", "first_seed")


def requested_runs(file: StudyFile) -> dict[str, RunConfig]:
    """Return the runs that the commands of a directory asked for, by name, each as long as it was asked for at most."""
    runs: dict[str, RunConfig] = {}
    for asked in file.requests:
        entry = narrowed(
            study(asked.study), seeds=asked.seeds, frames=asked.frames, tasks=asked.tasks, bonuses=asked.methods
        )
        for config in run_configs(entry, first_seed=asked.first_seed):
            if config.name not in runs or config.frames > runs[config.name].frames:
                runs[config.name] = config
    return runs


def check_growth(before: StudyFile, configs: Sequence[RunConfig], out: Path, *, given: Collection[str]) -> None:
    """Raise ValueError where a study would grow by an option that was left out.

    Args:
        before: What earlier commands asked for.
        configs: The runs that are asked for now.
        out: The directory of the study.
        given: The options that the command has: seeds, first_seed, frames, tasks, bonuses.
    """
    there = requested_runs(before)
    added = [config for config in configs if config.name not in there]
    longer = [config for config in configs if config.name in there and config.frames > there[config.name].frames]
    is_asked_for = all(_is_named(config, there.values(), given) for config in added)
    if is_asked_for and ("frames" in given or not longer):
        return
    growth = [f"add {counted(len(added), 'run')} of {_lengths(added)} frames"] if added else []
    growth += [f"extend {counted(len(longer), 'run')} to {_lengths(longer)}"] if longer else []
    command = before.command.splitlines()[-1]
    raise ValueError(
        f"{out} holds {counted(len(there), 'run')} of {_lengths(there.values())} frames; this command would "
        f"{' and '.join(growth)}: to resume what is there, run {command} --out {out}; to enlarge the study, repeat "
        "this command with --enlarge"
    )


def _is_named(added: RunConfig, there: Iterable[RunConfig], given: Collection[str]) -> bool:
    """Return whether options name what is new about a run: its task, its method, its seed, or how they are combined."""
    reasons: list[tuple[str, ...]] = [
        options
        for options, field in ((("tasks",), "task"), (("bonuses",), "method"), (SEEDS, "seed"))
        if getattr(added, field) not in {getattr(config, field) for config in there}
    ]
    return all(set(options) & set(given) for options in reasons or [("tasks", "bonuses", *SEEDS)])


def _lengths(configs: Iterable[RunConfig]) -> str:
    frames = {config.frames for config in configs}
    return f"{min(frames):,}" if len(frames) == 1 else f"{min(frames):,} to {max(frames):,}"
