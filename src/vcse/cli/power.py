"""`vcse study power`: how many seeds a study needs."""

import json
import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import tyro
from rich.console import Console
from rich.table import Table

from vcse.cli.flags import check_least
from vcse.cli.option_types import Flag, NameIfGiven, if_given
from vcse.nearest import did_you_mean
from vcse.reports.comparisons import LEVEL, Pair
from vcse.reports.loaded_run import GatheredRun
from vcse.reports.loaded_runs import gather, likely_metric
from vcse.reports.power import POWER, Question, power_of, seeds_needed, spread_of
from vcse.reports.verdicts import curves_by_seed, measure_runs
from vcse.runs.formatting import counted
from vcse.studies.catalog import CATALOG, study
from vcse.studies.manifest import read_study_file
from vcse.studies.study import Claim, Study

PLACES = (Path("runs"), Path("results"))  # where the runs of a study are looked for
PAIRINGS = ("paired by seed", "unpaired")
FEWEST = 2  # runs of a method on a task that have a spread
Row = dict[str, Any]


def show_power(
    name_or_dir: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME_OR_DIR")],
    /,
    difference: float,
    within: Annotated[float | None, if_given("FLOAT")] = None,
    method: NameIfGiven = None,
    than: NameIfGiven = None,
    seeds: Annotated[tuple[int, ...], if_given("N [N ...]")] = (),
    json_rows: Annotated[Flag, tyro.conf.arg(name="json")] = False,
) -> int:
    """Estimate how many seeds it takes to detect a difference, or to show equivalence, from the runs at hand.

    Two methods are compared by the area under the curve, averaged over all tasks on which both were run. Seeds are
    planned for 80 % power at a level of 5 %: a two-sided test of a difference, two one-sided tests of equivalence. In a
    paired design both methods are run with the same seeds; in an unpaired one they are not.

    Args:
        name_or_dir: A directory of runs, an archive, or a study, whose runs are looked for in runs and results.
        difference: The difference to detect, in the metric's unit: 0.03 is three points of success.
        within: The margin of equivalence. Default: as large as the difference.
        method: One of the methods. Default: those of each claim of the study.
        than: The other method.
        seeds: Also print the power of these numbers of seeds.
        json_rows: Print the rows as a JSON list on standard output, and nothing else.
    """
    if (method is None) != (than is None):
        raise ValueError("--method and --than must be given together")
    for each in seeds:
        check_least(seeds=(each, FEWEST))
    directory = _directory_of(name_or_dir)
    runs, problems = gather(directory)
    if not runs:
        raise ValueError(f"{directory} holds no run that can be read: {problems[0]}")
    entry = _entry_of(directory)
    metric = entry.metric if entry else likely_metric(runs)
    compared = [(method, than)] if method and than else _claimed(entry, runs)
    sizes: dict[Question, float] = {"difference": difference, "equivalence": difference if within is None else within}
    rows = [row for pair in compared for row in _rows(runs, *pair, metric, sizes, seeds)]
    if json_rows:
        print(json.dumps(rows, indent=1))
        return 0
    print(f"{directory}: {metric}, area under the curve, {POWER:.0%} power at a level of {LEVEL:.0%}")
    for pair in compared:
        Console().print(_table([row for row in rows if (row["method"], row["than"]) == pair]))
    return 0


def _directory_of(name: str) -> Path:
    """Return the directory that is named, or that holds the runs of the study that is."""
    if Path(name).is_dir():
        return Path(name)
    if name not in CATALOG:
        raise ValueError(f"{name} is neither a directory nor a study{did_you_mean(name, CATALOG)}")
    for place in PLACES:
        if (place / name).is_dir():
            return place / name
    looked = " or ".join(str(place / name) for place in PLACES)
    raise ValueError(f"there are no runs of {name} in {looked}: name the directory that holds some")


def _entry_of(directory: Path) -> Study | None:
    asked = read_study_file(directory)
    return None if asked is None else study(asked.study)


def _claimed(entry: Study | None, runs: list[GatheredRun]) -> list[tuple[str, str]]:
    """Return the methods that claims compare, where both were run."""
    there = {run.method for run in runs}
    claims = [claim for claim in entry.claims if isinstance(claim, Claim)] if entry else []
    compared = dict.fromkeys((claim.better, claim.than) for claim in claims if {claim.better, claim.than} <= there)
    if not compared:
        raise ValueError(f"--method and --than must say what is compared, of {', '.join(sorted(there))}")
    return list(compared)


def _rows(
    runs: list[GatheredRun],
    method: str,
    than: str,
    metric: str,
    sizes: Mapping[Question, float],
    seeds: tuple[int, ...],
) -> Iterator[Row]:
    """Make a row of each question, paired and unpaired, and of each number of seeds that is asked about."""
    pairs = _pairs(runs, method, than, metric)
    spread = spread_of(pairs)
    for question, size in sizes.items():
        for pairing, deviation in zip(PAIRINGS, (spread.paired, spread.unpaired), strict=True):
            known = {"method": method, "than": than, "tasks": len(pairs), "shared_seeds": spread.shared_seeds}
            known |= {"question": question, "size": size, "pairing": pairing}
            known["spread"] = None if math.isnan(deviation) else deviation
            needed = seeds_needed(question, deviation, size)
            for is_needed, number in ((True, needed), *((False, each) for each in seeds)):
                power = None if number is None or math.isnan(deviation) else power_of(question, deviation, size, number)
                yield known | {"seeds": number, "power": power, "is_needed": is_needed}


def _pairs(runs: list[GatheredRun], method: str, than: str, metric: str) -> list[Pair]:
    """Return the areas of the runs of two methods on each task on which both have a spread."""
    for name in (method, than):
        if name not in (there := sorted({run.method for run in runs})):
            raise ValueError(f"there is no run of {name}, only of {', '.join(there)}")
    pairs = []
    for task in dict.fromkeys(run.task for run in runs):
        sides = (curves_by_seed(runs, task, method, metric), curves_by_seed(runs, task, than, metric))
        if min(map(len, sides)) >= FEWEST:
            pairs.append(measure_runs(sides))
    if not pairs:
        raise ValueError(f"on no task are there {FEWEST} runs each of {method} and {than} with {metric}")
    return pairs


def _table(rows: list[Row]) -> Table:
    """Put what two methods need, paired and unpaired, above how likely other numbers of seeds are to succeed."""
    first = rows[0]
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, title_justify="left", title_style="")
    table.title = f"\n{first['method']} against {first['than']}, {counted(first['tasks'], 'task')}"
    for heading in ("", *PAIRINGS):
        table.add_column(heading, justify="right" if heading else "left")
    for question, called in (("difference", "to find a difference of"), ("equivalence", "to show: alike within")):
        asked = [row for row in rows if row["question"] == question]
        by_pairing = [[row for row in asked if row["pairing"] == pairing] for pairing in PAIRINGS]
        for each in zip(*by_pairing, strict=True):
            if each[0]["is_needed"]:
                cells = ["–" if row["seeds"] is None else f"{row['seeds']} seeds" for row in each]
                table.add_row(f"{called} {each[0]['size']:g}", *cells)
            else:
                cells = ["–" if row["power"] is None else f"{row['power']:.0%}" for row in each]
                table.add_row(f"  power with {each[0]['seeds']} seeds", *cells)
    return table
