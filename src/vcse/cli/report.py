"""`vcse report`: what runs say, on one page."""

import sys
from pathlib import Path
from typing import Annotated

import tyro


def report(
    directory: Annotated[Path, tyro.conf.Positional],
    /,
    out: Path | None = None,
    overlay: Annotated[tuple[Path, ...], tyro.conf.arg(metavar="FILE [FILE ...]")] = (),
    overlay_task: str | None = None,
) -> int:
    """Write a page about a study, about several, or about any runs: curves, numbers, and a verdict on each claim.

    The page needs nothing but itself and opens from disk; its figures and tables lie beside it as files. Runs that
    cannot be read are named on it and here, and the others are shown.

    Args:
        directory: A study, a directory of studies, a directory of runs, or an archive of them.
        out: Where the page goes; the folder report in the directory if it is not given.
        overlay: Files of other people's curves, drawn as dashed lines on the tasks that they are about.
        overlay_task: Which of the tasks here these curves are about, for files that do not say or have another name
            for it.
    """
    try:
        from vcse.studies.foreign import join_runs, read_foreign
        from vcse.studies.report import write_report
    except ImportError as error:  # jinja2 and matplotlib are wanted here alone
        raise RuntimeError(f"the report needs {error.name}: pip install -e '.[report]'") from error
    if overlay_task is not None and not overlay:
        raise ValueError("--overlay-task names the task of --overlay, which is not given")
    curves = join_runs(each for path in overlay for each in read_foreign(path, task=overlay_task))
    page = write_report(
        directory,
        out,
        curves,
        overlay_task=overlay_task,
        progress=lambda said: print(f"vcse: {said}", file=sys.stderr),
    )
    print(page)
    return 0
