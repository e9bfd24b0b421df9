"""`vcse report`: what runs say, on one page."""

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import tyro

from vcse.cli.flags import check_least
from vcse.cli.option_types import NameIfGiven, PathIfGiven, Whole, if_given
from vcse.extras import install


def report(
    directory: Annotated[Path, tyro.conf.Positional],
    /,
    out: PathIfGiven = None,
    column: NameIfGiven = None,
    overlay: Annotated[tuple[Path, ...], if_given("FILE [FILE ...]")] = (),
    overlay_task: NameIfGiven = None,
    overlay_method: NameIfGiven = None,
    overlay_frames_per_step: Whole = 1,
) -> int:
    """Write a page about a study, several studies, or any runs: curves, numbers, and a verdict on each claim.

    The page is self-contained and opens from disk; its figures and tables are also written beside it. Runs that cannot
    be read are named on the page and here, and the others are shown.

    Args:
        directory: A study, a directory of studies, a directory of runs, or an archive of them.
        out: Where the page is written. Default: the folder report in the directory, or report-COLUMN with --column.
        column: Plot this column of train.csv, such as eval_return_mean, bonus_mean or critic_loss, in place of the
            study's metric; an unknown name lists all of them. Such a page judges no claims.
        overlay: Files of other people's curves, plotted as dashed lines on their tasks: CSVs of DrQ-v2 or TD-MPC2, or
            with the columns task,method,seed,frame,return_mean; monitor.csv and evaluations.npz of Stable-Baselines3;
            runs of vcse. Runs of the same method are one line.
        overlay_task: The task of these curves, for files that do not name it or have another name for it.
        overlay_method: The label of these curves. Default: what the file says, or else its own name, or that of its
            folder, as in PPO/seed1/monitor.csv.
        overlay_frames_per_step: Frames per step in files that count steps: the action repeat.
    """
    try:
        from vcse.reports.external_curves import join_runs, read_foreign
        from vcse.reports.report import write_report
    except ImportError as error:  # jinja2 and matplotlib are wanted here alone
        raise RuntimeError(f"the report needs {error.name}: {install('report')}") from error
    _check_overlay(overlay, overlay_task, overlay_method, overlay_frames_per_step)
    read = partial(read_foreign, task=overlay_task, method=overlay_method, frames_per_step=overlay_frames_per_step)
    curves = join_runs(each for path in overlay for each in read(path))
    page = write_report(
        directory,
        out,
        curves,
        column=column,
        overlay_task=overlay_task,
        progress=lambda said: print(f"vcse: {said}", file=sys.stderr),
    )
    print(page)
    return 0


def _check_overlay(paths: tuple[Path, ...], task: str | None, method: str | None, frames_per_step: int) -> None:
    """Refuse files that do not exist, and what is said of them where there are none."""
    check_least(overlay_frames_per_step=(frames_per_step, 1))
    said = {"task": task is not None, "method": method is not None, "frames-per-step": frames_per_step != 1}
    given = ", ".join(f"--overlay-{option}" for option, is_given in said.items() if is_given)
    if given and not paths:
        raise ValueError(f"{given} must come with --overlay, whose files are meant")
    for path in paths:
        if not path.exists():
            raise ValueError(f"--overlay names {path}, which does not exist")
