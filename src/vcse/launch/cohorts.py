"""Training many runs: which are done, which go on from where, which share a cohort; and stopping cleanly."""

import shlex
import signal
import sys
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from vcse.agents import agent_entry
from vcse.envs.tasks import task_warning
from vcse.launch.payments import payment_remarks
from vcse.runs import checkpoint, loop
from vcse.runs.arithmetic import computing_with
from vcse.runs.checkpoint import Checkpoint
from vcse.runs.config import RunConfig
from vcse.runs.directory import RunDirectory, bytes_on_disk, check_config, check_logs, done_frame
from vcse.runs.divergence import Diverged, DivergedError
from vcse.runs.formatting import counted
from vcse.runs.progress import TrainingProgress
from vcse.runs.remarks import Remarks
from vcse.runs.resources import Needs, Room, check_files, find_room, together
from vcse.runs.stopping import StoppedError as StoppedError  # noqa: PLC0414 (others import it from here)


class Plan(NamedTuple):
    """Runs that can be trained together, and what each starts from."""

    directories: list[RunDirectory]
    checkpoints: list[Checkpoint | None]

    @property
    def frame(self) -> int:
        """Where they start."""
        first = self.checkpoints[0]
        return 0 if first is None else first.frame


def train_runs(
    configs: Sequence[RunConfig],
    out: Path,
    *,
    device: str,
    threads: int,
    progress: TrainingProgress,
    tensorboard: bool = False,
    replay_place: str | None = None,
) -> list[Path]:
    """Train runs to their last frame, in as few cohorts as possible, and return their directories.

    Finished runs are skipped and unfinished ones resumed. One that diverges is given up, and told of in the end.

    Args:
        configs: The runs.
        out: Where they are written.
        device: Where the networks live.
        threads: For the environments.
        progress: That is told.
        tensorboard: Write for TensorBoard too.
        replay_place: Where replays lie, as whoever trains others at the same time has chosen it; None: nobody does.
    """
    names = [config.name for config in configs]
    if len(set(names)) < len(names):
        raise ValueError(f"several runs have the name {next(name for name in names if names.count(name) > 1)}")
    check_runs(configs, out)  # all of them, before anything is written
    if replay_place is None:
        room = room_for(alike(unfinished_runs(configs, out)), out, device=device, jobs=1)
        replay_place = room.place
        if said := room.describe():
            progress.note(said)
    with ExitStack() as stack:
        unfinished: dict[str, RunDirectory] = {}
        for config in configs:
            directory = open_run(config, out, tensorboard=tensorboard, device=device)
            stack.callback(directory.close)
            if directory.done_frame >= config.frames:
                print(f"{directory.path} is done: {directory.done_frame:,} frames", file=sys.stderr)
            else:
                unfinished[config.name] = directory
        cohorts = alike([directory.config for directory in unfinished.values()])
        built = {"device": device, "threads": threads, "replay_place": replay_place}
        given_up: dict[str, Diverged] = {}
        with stop_on_signals(progress.say_stopping) as stopped:
            while cohorts:
                cohort = cohorts.pop(0)
                check_files(needs_of(cohort, out), out, place=replay_place)  # others may have filled the disk since
                waiting = sum(map(len, cohorts))
                mine = [unfinished[config.name] for config in cohort]
                try:
                    with computing_with(agent_entry(cohort[0].agent).arithmetic(device)):
                        _train_cohort(mine, built, waiting=waiting, progress=progress, stopped=stopped)
                except DivergedError as error:
                    given_up |= error.runs
                    if left := _give_up(error, cohort, out, progress):
                        cohorts.insert(0, left)
    if given_up:
        raise DivergedError(given_up)
    return [out / name for name in names]


def _give_up(
    error: DivergedError, cohort: Sequence[RunConfig], out: Path, progress: TrainingProgress
) -> list[RunConfig]:
    """Report which runs of a cohort diverged, and return those that continue without them."""
    # Runs that had other checkpoints may be done: they must not go back with the rest.
    left = [config for config in unfinished_runs(cohort, out) if config.name not in error.runs]
    others = "the other continues" if len(left) == 1 else f"the {len(left)} others continue"
    progress.drop(list(error.runs))
    progress.note(f"{error}: abandoned" + (f"; {others} from the last checkpoint" if left else ""))
    return left


def check_runs(configs: Iterable[RunConfig], out: Path) -> None:
    """Refuse runs whose directories hold other ones, or lack what is needed to go on."""
    for config in configs:
        check_run(out / config.name, config)


def check_run(path: Path, config: RunConfig) -> None:
    """Refuse a directory that holds another run than this, or lacks what is needed to go on."""
    check_config(path, config)
    check_logs(path, config, agent_entry(config.agent).logs)


def open_run(config: RunConfig, out: Path, *, device: str = "cpu", tensorboard: bool = False) -> RunDirectory:
    """Return the directory of a run, locked."""
    arithmetic = agent_entry(config.agent).arithmetic(device)
    return RunDirectory(out / config.name, config, tensorboard=tensorboard, device=device, arithmetic=arithmetic)


def unfinished_runs(configs: Sequence[RunConfig], out: Path) -> list[RunConfig]:
    """Return the runs that are not done."""
    return [config for config in configs if done_frame(out / config.name) < config.frames]


def saved_frame(config: RunConfig, out: Path) -> int:
    """Return the frame of a run's newest checkpoint, which is where it goes on if that is whole."""
    return min(config.frames, max(checkpoint.frames(out / config.name / "checkpoint"), default=0))


@contextmanager
def telling_what_is_saved(configs: Sequence[RunConfig], out: Path) -> Iterator[None]:
    """Complete the error of runs that are stopped here, so that it tells how far they are saved."""
    try:
        yield
    except StoppedError as error:
        saved = [frame for config in configs if (frame := saved_frame(config, out)) > 0]
        if not saved:
            raise StoppedError(error.number, "no run had begun") from None
        where = f"frame {saved[0]:,}" if len(set(saved)) == 1 else f"frames {min(saved):,} to {max(saved):,}"
        waiting = len(configs) - len(saved)
        told = f"{counted(len(saved), 'run')} saved in {out} at {where}"
        if waiting:  # which vcse resume would not begin
            raise StoppedError(error.number, f"{told}, {waiting} not begun") from None
        raise StoppedError(error.number, told, f"vcse resume {shlex.quote(str(out))}") from None


def warn_of(configs: Sequence[RunConfig]) -> None:
    """Warn of runs that hardly anybody can want, each reason once."""
    warned: dict[str, list[RunConfig]] = {}
    for config in configs:
        for reason in (agent_entry(config.agent).warning(config), task_warning(config.task)):
            if reason:
                warned.setdefault(reason, []).append(config)
    for reason, runs in warned.items():
        more = f" and {counted(len(runs) - 1, 'other')}" if len(runs) > 1 else ""
        print(f"vcse: warning, {runs[0].name}{more}: {reason}", file=sys.stderr)


def room_for(cohorts: Sequence[Sequence[RunConfig]], out: Path, *, device: str, jobs: int) -> Room:
    """Find room for the replays and files of cohorts, of which so many are trained at once; refuse what has none."""
    return find_room([needs_of(cohort, out) for cohort in cohorts], out, device=device, jobs=jobs)


def needs_of(configs: Sequence[RunConfig], out: Path) -> Needs:
    """Return about what runs take that are trained together; what they have on disk already is not taken again."""
    needs = []
    for config in configs:
        mine, there = agent_entry(config.agent).needs(config), bytes_on_disk(out / config.name)
        left = max(0, mine.until_done - there)
        needs.append(mine._replace(until_done=left, files=max(0, mine.files + mine.until_done - there - left)))
    return together(needs)


def _train_cohort(
    directories: Sequence[RunDirectory],
    built: Mapping[str, Any],
    *,
    waiting: int,
    progress: TrainingProgress,
    stopped: Callable[[], int],
) -> None:
    """Train runs that fit one cohort, together as far as their checkpoints allow."""
    left = len(directories)
    for plan in _plans(directories):
        if stopped():
            raise StoppedError(stopped())
        left -= len(plan.directories)
        _train(plan, built, waiting=waiting + left, progress=progress, stopped=stopped)


def _train(
    plan: Plan, built: Mapping[str, Any], *, waiting: int, progress: TrainingProgress, stopped: Callable[[], int]
) -> None:
    """Train a plan, in a cohort that is built with these keywords, while so many runs wait."""
    configs = [directory.config for directory in plan.directories]
    frames = configs[0].frames
    tasks = {config.task for config in configs}
    what = tasks.pop() if len(tasks) == 1 else f"{len(tasks)} tasks"
    runs = counted(len(configs), "run") + (f", {waiting} more to come" if waiting else "")
    if plan.frame >= frames:
        for directory in plan.directories:  # nothing but the mark is missing: the last checkpoint is written after all
            directory.finish(plan.frame)
        return
    names = [config.name for config in configs]
    progress.start(f"{what}, {configs[0].agent}, {runs}", frames, plan.frame, runs=names)
    cohort = agent_entry(configs[0].agent).cohort(plan.directories, **built)
    try:
        states = [found.state for found in plan.checkpoints if found is not None]
        cohort.cut(states)
        if plan.frame > 0:
            cohort.load(states)
        if said := cohort.describe():
            progress.note(said)
        remarks = Remarks(plan.directories, agent_entry(configs[0].agent).remark, progress.note)
        remark_on_payments = payment_remarks(plan.directories, progress.note)
    except BaseException:
        cohort.close()
        raise

    def take_rows(rows: Sequence[Mapping[str, Any]]) -> None:
        remarks.take(rows)
        remark_on_payments(rows)

    try:
        finished = loop.train(
            cohort,
            frames,
            report=progress.report,
            should_stop=lambda: stopped() != 0,
            take_rows=take_rows,
        )
    except OSError as error:  # a full disk, most of all
        what = f"{error.filename}: {error.strerror}" if error.filename and error.strerror else str(error)
        raise RuntimeError(
            f"{what}; stopped at frame {cohort.frame:,}: once that is fixed, the same command, or vcse resume, "
            "continues from the last checkpoint"
        ) from error
    if not finished:
        raise StoppedError(stopped())


def cohort_key(config: RunConfig) -> Hashable:
    """Return what runs must have in common to be trained in one cohort."""
    return (
        (config.agent, config.frames, config.backend, *agent_entry(config.agent).in_common(config)),
        (config.row_every_frames, config.eval_every_frames, config.eval_episodes),
        (config.checkpoint_every_frames, config.visits_every_frames),
    )


def alike(configs: Sequence[RunConfig]) -> list[list[RunConfig]]:
    """Sort runs into those that fit one cohort; within it, runs of one task stand side by side."""
    groups: dict[Hashable, list[RunConfig]] = {}
    for config in configs:
        groups.setdefault(cohort_key(config), []).append(config)
    return [sorted(group, key=lambda config: config.task) for group in groups.values()]


def _plans(directories: Sequence[RunDirectory]) -> Iterator[Plan]:
    """Group runs that stopped at the same frame, so that they continue together.

    A process that dies while it writes checkpoints leaves some runs one checkpoint ahead of others: those go back
    to the one before, or from their first to the start, which gives the same numbers again, so that all can stay
    together. Runs that have not begun yet, such as those of more seeds, send nobody back.
    """
    newest = {directory.path: directory.newest_checkpoint() for directory in directories}
    all_began = all(found is not None or (path / "train.csv").exists() for path, found in newest.items())
    last = min(0 if found is None else found.frame for found in newest.values())
    for path, found in newest.items():
        if found is not None and found.frame > last:
            before = checkpoint.load_at(path / "checkpoint", last)
            from_the_start = all_began and last == 0 and len(checkpoint.frames(path / "checkpoint")) == 1
            if before is not None or from_the_start:
                newest[path] = before
    for frame in sorted({0 if found is None else found.frame for found in newest.values()}):
        mine = [each for each in directories if (newest[each.path] or Checkpoint(0, {})).frame == frame]
        yield Plan(mine, [newest[each.path] for each in mine])


@contextmanager
def stop_on_signals(say_stopping: Callable[[], None] = lambda: None) -> Iterator[Callable[[], int]]:
    """Turn SIGTERM and Ctrl-C into a wish to stop; a second Ctrl-C interrupts at once.

    Outside the main thread signals cannot be taken: there nothing stops.

    Args:
        say_stopping: Called at the first signal: the step that is under way, or an evaluation, may take a while.
    """
    if threading.current_thread() is not threading.main_thread():
        yield lambda: 0
        return
    received: list[int] = []

    def wish(number: int, frame: FrameType | None) -> None:
        del frame
        if number == signal.SIGINT and received:
            raise KeyboardInterrupt
        if not received:
            say_stopping()
        received.append(number)

    before = {number: signal.signal(number, wish) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield lambda: received[0] if received else 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
