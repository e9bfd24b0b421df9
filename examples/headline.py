"""The paper's headline on a laptop: A2C on LavaGapS7 without a bonus, with state entropy, and with VCSE.

Trains 16 runs of each on the CPU, dealt out to its cores, films a trained policy, and makes the page of `vcse report`
of it. The runs are those of

    vcse train --task minigrid/LavaGapS7 --bonus none se vcse --seeds 16 --frames 100000 --out out/demo

Stopped, it continues where it was; finished, it only makes the page again.

    python examples/headline.py --out out/demo
"""

import csv
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import tyro
from rich.console import Console
from rich.table import Table

from vcse.launch.cohorts import StoppedError
from vcse.launch.processes import suitable_jobs, train_in_jobs
from vcse.play.watch import watch_run
from vcse.reports.loaded_runs import gather
from vcse.reports.report import write_report
from vcse.runs.machine import cores
from vcse.runs.progress import TrainingProgress
from vcse.studies.catalog import study
from vcse.studies.local import check_out, take_out
from vcse.studies.manifest import StudyFile
from vcse.studies.study import Study, narrowed, run_configs

TASK = "minigrid/LavaGapS7"
PAPER = {"se": "13.9%", "vcse": "88.8%"}  # Section 5.1: average success "after 100K steps"; none for A2C alone
NOTES = (
    "The paper says neither over which episodes its success is taken nor whether its average is a mean or the "
    "interquartile mean of its curves, and states no spread for its two numbers, 88.8% and 13.9%. Here it is the last "
    "100 training episodes of each run, then the mean over runs.",
    "Where the paper's text and the code that its authors released disagree, these runs follow the code: VCSE looks at "
    "the third neighbour, not the fifth, and the bonus joins the advantage, not the reward.",
    "Seeds and simulator are ours: the layouts of a run come in another order than in the authors' runs.",
    "SE and VCSE differ here in more than the value: the released SE has another offset in the logarithm, another "
    "normaliser and a memory of past states. VCSE without value (--bonus se-matched), which differs from VCSE in the "
    "value alone, is not on this page, so nothing here says how much of the gap is due to the value.",
    "The video is of the first seed, not of a chosen one. Actions are sampled from the policy, as in training, and the "
    "gap is drawn anew for each episode. What the agent sees is brighter.",
)
LEAST = {"seeds": 1, "first_seed": 0, "frames": 1, "eval_episodes": 0, "jobs": 1}


@dataclass(frozen=True)
class Args:
    """Train A2C with three bonuses on LavaGapS7 and make a page of it."""

    seeds: int = 16
    """Runs of each bonus."""
    first_seed: int = 0
    """The seed of the first; the others follow."""
    frames: int = 100_000
    """How long each run is."""
    eval_episodes: int = 100
    """Episodes of the evaluation at the end of each run, with sampled and again with greedy actions."""
    out: Path = Path("out/demo")
    """Folder for the page and the runs."""
    jobs: int | None = None
    """Processes that train; as many as suit the cores if not given."""
    quiet: bool = False
    """Show no progress."""


def main(args: Args) -> int:
    """Train, or resume, or find it done; then make the page."""
    for name, least in LEAST.items():
        if (number := getattr(args, name)) is not None and number < least:
            raise SystemExit(f"--{name.replace('_', '-')} must be at least {least}, got {number}")
    entry = headline(args)
    configs = run_configs(entry, first_seed=args.first_seed, eval_episodes=args.eval_episodes)
    command = f"examples/headline.py --seeds {args.seeds} --first-seed {args.first_seed} --frames {args.frames}"
    methods = list(entry.method_names)
    asked = StudyFile(entry.name, args.seeds, args.first_seed, args.frames, [TASK], methods, f"python {command}")
    check_out(asked, configs, args.out)
    take_out(asked, configs, args.out)
    try:
        with TrainingProgress(quiet=args.quiet) as progress:
            jobs = args.jobs or suitable_jobs((config.agent for config in configs), device="cpu", cores=cores())
            train_in_jobs(configs, args.out, device="cpu", threads=cores(), jobs=jobs, progress=progress)
    except StoppedError as error:
        print(f"{error}; to continue, run the same command again", file=sys.stderr)
        return 128 + error.number
    filmed = args.out / next(config.name for config in configs if config.method == "vcse")
    watch_run(filmed, filmed / "watch.gif")
    page = write_report(args.out, args.out, entry=entry)
    Console().print(table(page))
    print(f"the page: {page.resolve().as_uri()}")
    return 0


def headline(args: Args) -> Study:
    """Return the part of the paper's first study that is run here, and what the page says of it."""
    return replace(
        narrowed(study("minigrid"), seeds=args.seeds, frames=args.frames, tasks=[TASK]),
        title="Exploring with value-conditional state entropy",
        source=(
            "Section 5.1. A2C learns a small grid world without a bonus, with state entropy (SE) and with "
            "value-conditional state entropy (VCSE). The agent sees only the cells in front of it, is rewarded only at "
            "the goal, and has to find the one gap in a strip of lava on the way there"
        ),
        notes=NOTES,
    )


def table(page: Path) -> Table:
    """Return the numbers of the page, and those of the evaluations."""
    runs = gather(page.parent).runs
    rows = list(csv.DictReader((page.parent / "table.csv").read_text().splitlines()))
    title = f"{TASK}: success after {int(rows[0]['frame']):,} frames"
    shown = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for heading in ("method", "runs", "mean", "IQM", "95% interval", "eval,\nsampled", "eval,\ngreedy", "paper"):
        shown.add_column(heading, justify="left" if heading == "method" else "right", no_wrap=True)
    for row in rows:
        method = row["method"]
        mean, iqm, low, high = (percent(float(row[name] or "nan")) for name in ("mean", "iqm", "low", "high"))
        evaluations = [run.evaluation for run in runs if run.method == method]
        sampled, greedy = (
            percent(float(np.mean([each.get(name, np.nan) for each in evaluations])))
            for name in ("success_rate", "argmax_success_rate")
        )
        shown.add_row(method, row["runs"], mean, iqm, f"{low} to {high}", sampled, greedy, PAPER.get(method, "–"))
    return shown


def percent(share: float) -> str:
    """Write a share as people read it."""
    return "–" if np.isnan(share) else f"{share:.1%}"


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args)))
