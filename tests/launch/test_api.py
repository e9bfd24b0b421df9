import numpy as np
import pytest

import vcse
from vcse.agents import read_config


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"seeds": 0}, "seeds must be at least 1, or a list of seeds, got 0"),
        ({"seeds": []}, r"seeds must be at least 1, or a list of seeds, got \[\]"),
        ({"seeds": -2}, "seeds must be at least 1, or a list of seeds, got -2"),
        ({"bonus": []}, "bonus must be one name or more, got none"),
        ({"jobs": 0}, "jobs must be at least 1, got 0"),
    ],
)
def test_nothing_to_train_or_nobody_to_do_it_is_refused(tmp_path, asked, message):
    with pytest.raises(ValueError, match=f"^{message}$"):
        vcse.train("minigrid/Empty-5x5", out=tmp_path / "runs", **asked)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("seeds", [np.int64(2), np.array([0, 1])])
def test_seeds_may_be_numbers_of_numpy(tmp_path, seeds, without_type_checks):
    settings = {"environments": 2, "frames": 16, "eval_episodes": 0, "quiet": True}
    runs = vcse.train("minigrid/Empty-5x5", "none", out=tmp_path, seeds=seeds, **settings)
    assert [read_config(run).seed for run in runs] == [0, 1]
