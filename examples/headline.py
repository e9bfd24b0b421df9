"""The paper's headline on a laptop: A2C on LavaGapS7 without a bonus, with state entropy, and with VCSE.

Trains 16 runs of each on the CPU, dealt out to its cores, and makes a page of them: learning curves, a table
with the paper's numbers beside ours, and a film of a trained policy. The runs are those of

    vcse train --task minigrid/LavaGapS7 --bonus none se vcse --seeds 16 --frames 100000 --out out/demo

Stopped, it goes on where it was; finished, it only makes the page again.

    python examples/headline.py --out out/demo
"""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import tyro
from rich.console import Console
from rich.table import Table

from vcse.agents.a2c.settings import a2c_settings
from vcse.envs.minigrid.names import fastest_backend
from vcse.envs.moments import Moment
from vcse.launch.cohorts import StoppedError
from vcse.launch.processes import suitable_jobs, train_in_jobs
from vcse.play.watch import watch_run
from vcse.reports.demo_page import Row, Story, percent, write_page
from vcse.runs.config import RunConfig
from vcse.runs.machine import cores
from vcse.runs.progress import TrainingProgress

TASK = "minigrid/LavaGapS7"
BONUSES = ("none", "se", "vcse")
PAPER = {"se": 0.139, "vcse": 0.888}  # Section 5.1: average success "after 100K steps"; none for A2C alone
PAPER_FRAMES = 100_000
FILM_EPISODES = 3


@dataclass(frozen=True)
class Args:
    """Train A2C with three bonuses on LavaGapS7 and make a page of it."""

    seeds: int = 16
    """Runs of each bonus."""
    first_seed: int = 0
    """The seed of the first; the others follow."""
    frames: int = PAPER_FRAMES
    """How long each run is."""
    eval_episodes: int = 100
    """Episodes of the evaluation at the end of each run, with sampled and again with likeliest actions."""
    out: Path = Path("out/demo")
    """Folder for the page and the runs."""
    jobs: int | None = None
    """Processes that train; as many as suit the cores if not given."""
    quiet: bool = False
    """Show no progress."""


def main(args: Args) -> int:
    """Train, or go on, or find it done; then make the page."""
    if args.seeds < 1 or args.first_seed < 0 or args.frames < 1 or args.eval_episodes < 0:
        raise SystemExit(
            "--seeds and --frames must be at least 1, --first-seed and --eval-episodes at least 0, got "
            f"{args.seeds}, {args.frames}, {args.first_seed} and {args.eval_episodes}"
        )
    if args.jobs is not None and args.jobs < 1:
        raise SystemExit(f"--jobs must be at least 1, got {args.jobs}")
    wanted = configs(args)
    try:
        with TrainingProgress(quiet=args.quiet) as progress:
            jobs = args.jobs or suitable_jobs((config.agent for config in wanted), device="cpu", cores=cores())
            runs = train_in_jobs(wanted, args.out, device="cpu", threads=cores(), jobs=jobs, progress=progress)
    except StoppedError as error:
        print(f"{error}; the same command goes on", file=sys.stderr)
        return 128 + error.number
    first = next(config for config in wanted if config.method == "vcse")
    film = args.out / "watch.gif"
    endings = watch_run(args.out / first.name, film, episodes=FILM_EPISODES)
    table = write_page(runs, args.out, story(args, endings), film)
    Console().print(_table(table))
    print(f"the page: {(args.out / 'index.html').resolve().as_uri()}")
    return 0


def configs(args: Args) -> list[RunConfig]:
    """Give the runs: what `vcse train` makes of the same options."""
    return [
        RunConfig(
            task=TASK,
            agent="a2c",
            method=bonus,
            seed=args.first_seed + place,
            reading="release",
            frames=args.frames,
            settings=a2c_settings(bonus),
            backend=fastest_backend(),
            eval_episodes=args.eval_episodes,
        )
        for bonus in BONUSES
        for place in range(args.seeds)
    ]


def story(args: Args, endings: Sequence[Moment]) -> Story:
    """Say what was run, what the paper has, and what to keep in mind when the two are compared."""
    options = {"seeds": args.seeds, "first-seed": args.first_seed, "frames": args.frames, "out": args.out}
    given = " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in options.items())
    reached = sum(ending.outcome == "goal" for ending in endings)
    runs = "one run" if args.seeds == 1 else f"{args.seeds} runs"
    return Story(
        title="Exploring with value-conditional state entropy",
        explanation=(
            "A2C learned a small grid world without a bonus (none), with state entropy (se) and with value-conditional "
            f"state entropy (vcse), {runs} each. The agent sees only the cells in front of it, is rewarded only at the "
            "goal, and has to find the one gap in a strip of lava on the way there."
        ),
        command=f"python examples/headline.py {given}",
        paper=PAPER,
        paper_frames=PAPER_FRAMES,
        film_caption=(
            f"{len(endings)} episodes of vcse with seed {args.first_seed}: the first seed, not a chosen one. It "
            f"reached the goal in {reached}. Actions are drawn from the policy, as in training; the gap is drawn anew "
            "for each episode. What the agent sees is brighter."
        ),
        notes=(
            "The paper says neither over which episodes its success is taken nor whether its average is a mean or the "
            "interquartile mean of its curves, and states no spread for its two numbers. Here it is the last 100 "
            "training episodes of each run, then the mean over runs.",
            "Where the paper's text and the code that its authors released disagree, these runs follow the code: vcse "
            "looks at the third neighbour, not the fifth, and the bonus joins the advantage, not the reward.",
            "Seeds and simulator are ours: the layouts of a run come in another order than in the authors' runs.",
            "se and vcse differ here in more than the value: the released se has another offset in the logarithm, "
            "another normaliser and a memory of past states. The bonus se-matched, which differs from vcse in the "
            "value alone, is not on this page, so nothing here says how much of the gap is due to the value.",
        ),
    )


def _table(rows: Sequence[Row]) -> Table:
    title = f"{TASK}: success after {rows[0].frame:,} frames"
    table = Table(title=title, title_justify="left", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column("method", no_wrap=True)
    for heading in ("runs", "mean", "IQM", "95% interval", "eval,\nsampled", "eval,\nlikeliest", "paper"):
        table.add_column(heading, justify="right", no_wrap=True)
    for row in rows:
        interval = f"{percent(row.train_iqm_low)} to {percent(row.train_iqm_high)}"
        shares = (row.eval_sampled, row.eval_likeliest, row.paper)
        training = (percent(row.train_mean), percent(row.train_iqm), interval)
        table.add_row(row.method, str(row.runs), *training, *(percent(share) for share in shares))
    return table


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Args)))
