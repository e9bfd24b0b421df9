"""Write the archives, verdicts.csv and the tables of README.md in this folder.

python results/adapters/judge.py runs/adapters --trials runs/trials   # from run directories, which are packed here
python results/adapters/judge.py                                      # from the archives that are here

To add runs to an archive, name its folder too: results/adapters runs/more.
"""

import csv
import dataclasses
import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tyro
from jaxtyping import Float

from vcse.reports.archive import write_archive
from vcse.reports.loaded_run import GatheredRun
from vcse.reports.loaded_runs import gather
from vcse.reports.statistics import (
    area_under_curve,
    bootstrap_difference,
    holm,
    mean,
    permutation_p_value,
)
from vcse.runs.checkpoint import write_atomically

HERE = Path(__file__).parent
PAGE = HERE / "README.md"
PLAIN = "none"
RETURN = "return_mean"  # of the latest hundred episodes of training, of the task's own rewards
KEPT_COLUMNS = ("frame", "episodes", RETURN, "length_mean", "death_share", "success_rate", "bonus_mean")
PRIVATE_META = ("command", "platform")  # names folders and machines of whoever ran it
RESAMPLES, PERMUTATIONS = 10_000, 100_000
LEVEL = 0.05
SEED = 0  # the same runs give the same page


@dataclass(frozen=True)
class Row:
    """A method against no bonus on one task."""

    task: str
    method: str
    runs: int
    plain_runs: int
    area: float  # mean return over the whole of training, of all runs
    plain_area: float
    difference: float
    low: float  # of the 95 % bootstrap interval of the difference
    high: float
    p_value: float  # by permutation, two-sided
    p_holm: float = float("nan")  # corrected for all rows of the table
    verdict: str = ""


@dataclass(frozen=True)
class Choice:
    """Judge every bonus against no bonus, and write the tables."""

    runs: tyro.conf.Positional[tuple[Path, ...]] = ()
    """Folders of the runs that are judged; those of the archive if none is given."""
    trials: tuple[Path, ...] = ()
    """Folders of the runs that the preset was chosen by; those of their archive if none is given."""


def main(choice: Choice) -> int:
    """Pack the runs that are named, judge them, and fill the tables."""
    runs, trials = packed(choice.runs, HERE), packed(choice.trials, HERE / "trials")
    rows = judged(runs)
    file = io.StringIO()
    writer = csv.DictWriter(file, [field.name for field in dataclasses.fields(Row)], lineterminator="\n")
    writer.writeheader()
    writer.writerows(
        {name: f"{each:.6g}" if isinstance(each, float) else each for name, each in dataclasses.asdict(row).items()}
        for row in rows
    )
    write_atomically(HERE / "verdicts.csv", file.getvalue().encode())
    page = PAGE.read_text()
    for name, text in (("verdicts", verdict_table(rows)), ("ends", end_table(runs)), ("trials", end_table(trials))):
        head, _, rest = page.partition(f"<!-- {name} -->\n")
        page = f"{head}<!-- {name} -->\n{text}<!-- end -->{rest.partition('<!-- end -->')[2]}"
    write_atomically(PAGE, page.encode())
    print(verdict_table(rows) + "\n" + end_table(runs))
    return 0


def packed(directories: Sequence[Path], archive: Path) -> list[GatheredRun]:
    """Return the runs of an archive, after those of some directories have taken its place if any are given."""
    if directories:
        runs = [each for directory in directories for each in gather(directory).runs]
        archive.mkdir(exist_ok=True)
        write_archive([published(run) for run in sorted(runs, key=lambda run: run.identity)], archive)
    return gather(archive).runs


def published(run: GatheredRun) -> GatheredRun:
    """Return a run without columns and facts that nobody looks at."""
    kept = [name for name in run.columns if name in KEPT_COLUMNS]
    header, *lines = csv.reader(io.StringIO(run.text))
    places = [header.index(name) for name in ("frame", *kept)]
    text = "\n".join(",".join(line[place] for place in places) for line in (header, *lines)) + "\n"
    meta = {name: each for name, each in run.meta.items() if name not in PRIVATE_META}
    return run._replace(columns={name: run.columns[name] for name in kept}, meta=meta, text=text)


def judged(runs: Sequence[GatheredRun]) -> list[Row]:
    """Hold every method on every task against no bonus, by the area under the curve of the return."""
    generator = np.random.default_rng(SEED)
    rows = []
    for task in sorted({run.task for run in runs}):
        plain = areas(runs, task, PLAIN)
        for method in sorted({run.method for run in runs if run.task == task} - {PLAIN}):
            paid = areas(runs, task, method)
            pair = (paid[:, None, None], plain[:, None, None])
            low, high = bootstrap_difference(*pair, generator, statistic=mean, resamples=RESAMPLES)
            p_value = permutation_p_value([(paid, plain)], generator, resamples=PERMUTATIONS)
            numbers = (paid.mean(), plain.mean(), paid.mean() - plain.mean(), low[0], high[0], p_value)
            rows.append(Row(task, method, len(paid), len(plain), *map(float, numbers)))
    corrected = holm([row.p_value for row in rows])
    return [
        dataclasses.replace(row, p_holm=p_holm, verdict=verdict(row.difference, p_holm))
        for row, p_holm in zip(rows, corrected, strict=True)
    ]


def areas(runs: Sequence[GatheredRun], task: str, method: str) -> Float[np.ndarray, " runs"]:
    """Return the mean height of each run's curve, from its first row on."""
    mine = [run for run in runs if (run.task, run.method) == (task, method)]
    if unfinished := [run.seed for run in mine if not run.done]:
        raise ValueError(f"{task} with {method} must have whole runs, seeds {unfinished} are not")
    return np.array([area_under_curve(run.columns[RETURN][None, None], run.frames)[0, 0] for run in mine])


def verdict(difference: float, p_holm: float) -> str:
    """Return one word."""
    if p_holm >= LEVEL:
        return "not told apart"
    return "better" if difference > 0 else "worse"


def verdict_table(rows: Sequence[Row]) -> str:
    """Return all rows as Markdown."""
    lines = [
        "| task | bonus | runs | return over training | no bonus | difference | p (Holm) | |",
        "|---|---|--:|--:|--:|--:|--:|---|",
    ]
    for row in rows:
        numbers = f"{row.area:.3g} | {row.plain_area:.3g} | {row.difference:+.3g} [{row.low:+.3g}, {row.high:+.3g}]"
        lines.append(f"| {row.task} | {row.method} | {row.runs} | {numbers} | {row.p_holm:.2g} | {row.verdict} |")
    return "\n".join(lines) + "\n"


def end_table(runs: Sequence[GatheredRun]) -> str:
    """Return the return over training and at its end as Markdown: means over runs, and the worst run."""
    lines = [
        "| task | bonus | runs | return over training | at the end | worst run | deaths |",
        "|---|---|--:|--:|--:|--:|--:|",
    ]
    for task in sorted({run.task for run in runs}):
        for method in sorted({run.method for run in runs if run.task == task}, key=lambda name: (name != PLAIN, name)):
            mine = [run for run in runs if (run.task, run.method) == (task, method)]
            ends = np.array([run.columns[RETURN][-1] for run in mine])
            numbers = f"{areas(runs, task, method).mean():.3g} | {ends.mean():.3g} | {ends.min():.3g}"
            deaths = [run.columns["death_share"][-1] for run in mine if "death_share" in run.columns]
            share = f"{np.mean(deaths):.0%}" if deaths and "Lava" in task else ""
            lines.append(f"| {task} | {method} | {len(mine)} | {numbers} | {share} |")
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    sys.exit(main(tyro.cli(Choice)))
