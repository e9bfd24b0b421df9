import json
from pathlib import Path

import pytest

from vcse.bench import drqv2, estimator, minigrid, sac, tables

MEASURED = Path(__file__).parents[2] / "benchmarks"
LINES = {
    "estimator": ("N=128 d=64 k=3: ", " ms"),
    "minigrid": ("16 learners, none: ", " frames/s"),
    "sac": ("1 learners of 1024 units, none: ", " updates/s"),
    "drqv2": ("dmc-pixels/hopper_stand, none, faithful: ", " frames/s"),
}


@pytest.mark.parametrize("module", [estimator, minigrid, sac, drqv2])
def test_what_was_published_is_shown_with_a_line_for_each_row(module):
    name = module.__name__.rpartition(".")[2]
    rows = [module.Row(**row) for row in json.loads((MEASURED / f"{name}-h200.json").read_text())]
    begins, ends = LINES[name]
    assert tables.line(rows[0]).startswith(begins)
    assert tables.line(rows[0]).endswith(ends)
    table = tables.TABLES[name](rows)
    assert rows[0].device in table.title
    assert table.row_count == len(rows)
    assert all(cell for column in table.columns for cell in [str(column.header), next(iter(column.cells))])
