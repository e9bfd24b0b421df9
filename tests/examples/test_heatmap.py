import importlib.util
from pathlib import Path

import numpy as np
import pytest

EXAMPLE = Path(__file__).parents[2] / "examples" / "heatmap.py"


@pytest.fixture
def heatmap(without_type_checks):
    del without_type_checks
    spec = importlib.util.spec_from_file_location("heatmap", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_draws_where_the_agents_were(heatmap, tmp_path, capsys):
    args = heatmap.Args(seeds=1, frames=2560, out=tmp_path, quiet=True)
    assert heatmap.main(args) == 0
    assert (tmp_path / "visits.png").stat().st_size > 10_000
    said = capsys.readouterr().out
    for bonus in heatmap.BONUSES:
        assert f"{bonus:11s} beyond the wall" in said
        number = heatmap.map_number("vertical", 4, 5)
        visits = np.load(tmp_path / f"minigrid-table-SimpleCrossingS9N1-map{number}" / bonus / "seed0" / "visits.npy")
        assert visits.shape == (10, 25, 25)
        assert visits.sum((1, 2)).tolist() == [256] * 10
        assert visits[:, 1, 1].sum() > 0
        assert visits[:, 4, [1, 2, 3, 4, 6, 7]].sum() == 0  # the wall
