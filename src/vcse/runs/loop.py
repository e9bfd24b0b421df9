"""The training loop, of every agent: rows, evaluations, checkpoints, stopping and resuming."""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from vcse.runs.cohort import Cohort
from vcse.runs.progress import Status, Stopwatch
from vcse.runs.schedule import MOST_SECONDS_UNSAVED, SECONDS_BETWEEN_REPORTS, is_due


def train(
    cohort: Cohort,
    frames: int,
    *,
    report: Callable[[Status], None],
    should_stop: Callable[[], bool],
    take_rows: Callable[[Sequence[Mapping[str, Any]]], None] = lambda rows: None,
) -> bool:
    """Train a cohort until every run has had so many frames. False: stopped before, with a checkpoint.

    Args:
        cohort: The runs.
        frames: Of each.
        report: Called with their status.
        should_stop: Asked before every step.
        take_rows: Called with a row of train.csv for every run, once it is written.
    """
    config = cohort.directories[0].config  # all runs of a cohort have the same intervals

    try:
        if cohort.frame == 0:
            cohort.begin()
            if cohort.evaluates_at_start and config.eval_every_frames > 0:
                _evaluate(cohort)
                take_rows(_write_rows(cohort, is_evaluated=True))
        # Not before: to evaluate a policy that has learned nothing is no pace.
        watch = row_watch = Stopwatch(cohort.frame)
        last_report = last_save = time.monotonic()
        while cohort.frame < frames:
            if should_stop():
                save(cohort)
                return False
            due = partial(_is_due_since, cohort, cohort.frame)
            cohort.step()
            is_last = cohort.frame >= frames
            speed, row_speed = watch.frames_per_s(cohort.frame), row_watch.frames_per_s(cohort.frame)
            is_evaluated = due(config.eval_every_frames) or is_last
            if is_evaluated:
                _evaluate(cohort)
            has_row = due(config.row_every_frames) or is_last or (is_evaluated and cohort.rows_show_evaluations)
            if has_row:
                take_rows(_write_rows(cohort, is_evaluated=is_evaluated))
            if due(cohort.timing_every_frames) or is_last:
                _write_timing(cohort, row_speed)
                row_watch = Stopwatch(cohort.frame)  # what was done for this row is not of the time of the next
            if has_row or time.monotonic() - last_report > SECONDS_BETWEEN_REPORTS:
                last_report = time.monotonic()
                report(cohort.status(frames, speed * len(cohort.directories)))
            is_overdue = time.monotonic() - last_save > MOST_SECONDS_UNSAVED
            if (due(config.checkpoint_every_frames) or is_overdue) and not is_last:
                save(cohort)
                last_save = time.monotonic()
        save(cohort)
        for directory in cohort.directories:
            directory.finish(cohort.frame)
    finally:
        cohort.close()
    return True


def save(cohort: Cohort) -> None:
    """Write a checkpoint of every run."""
    for directory, state in zip(cohort.directories, cohort.states(), strict=True):
        directory.save_checkpoint(cohort.frame, state)


def _is_due_since(cohort: Cohort, frame: int, every_frames: int) -> bool:
    """Return whether something is due after a step from a frame: nothing after one that learned alone, and had none."""
    return cohort.frame > frame and is_due(every_frames, frame=cohort.frame, step_frames=cohort.step_frames)


def _evaluate(cohort: Cohort) -> None:
    if cohort.directories[0].config.eval_episodes > 0:
        for directory, row in zip(cohort.directories, cohort.evaluate(), strict=True):
            directory.append_row("eval.csv", row)


def _write_rows(cohort: Cohort, *, is_evaluated: bool) -> list[dict[str, Any]]:
    rows = cohort.rows(is_evaluated=is_evaluated)
    for directory, row in zip(cohort.directories, rows, strict=True):
        directory.append_row("train.csv", row)
    return rows


def _write_timing(cohort: Cohort, frames_per_s: float) -> None:
    runs = len(cohort.directories)
    for directory in cohort.directories:
        row = {"frame": cohort.frame, "unix_time": time.time(), "frames_per_s": frames_per_s, "runs": runs}
        directory.append_row("timing.csv", row)
